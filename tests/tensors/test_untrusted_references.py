"""Reference tensors from strangers: only regular files of their own folder are read, and damage is told in words."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import struct
import threading
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.matching.values.mapping import load_map
from onnxsurgeon_lite.recording.checkpoint import open_checkpoint
from onnxsurgeon_lite.tensors.references import (
    Samples,
    open_references,
    save_tensors,
    write_test_data,
)

ARRAY = np.arange(300, dtype=np.float32)


def read_all(path: str | Path) -> dict[str, object]:
    for sample in range(min(Samples(path).count, 3)):
        stored = open_references(path, sample=sample)
    return {name: stored.read(name) for name in stored}


def refused(path: str | Path, says: str = "") -> None:
    """Reading is refused within some seconds."""
    outcome: list[BaseException | object] = []

    def work() -> None:
        try:
            outcome.append(read_all(path))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert outcome, "it hangs"
    assert isinstance(outcome[0], SurgeonError), outcome[0]
    assert re.search(says, str(outcome[0]))


def test_a_tensor_is_not_read_from_another_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("secret").write_bytes(ARRAY.tobytes())
    tensor = TensorProto(name="x", dims=[300], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret")
    Path("test_data_set_0").mkdir()
    Path("test_data_set_0/input_0.pb").write_bytes(tensor.SerializeToString())

    refused("test_data_set_0", "'x' refers to data in another file")
    refused("test_data_set_0/input_0.pb", "'x' refers to data in another file")


KINDS = {
    "own": ("values.bin", "index.json"),
    "test_data_set_0": ("input_0.pb",),
    "arrays": ("a.npy",),
}


def folder_of(kind: str) -> Path:
    if kind == "own":
        save_tensors("own", {"x": ARRAY})
    elif kind == "arrays":
        Path("arrays").mkdir()
        np.save("arrays/a.npy", ARRAY)
    else:
        write_test_data(Path(kind), {"x": ARRAY}, {})
    return Path(kind)


@pytest.mark.parametrize("what", ["a pipe", "a device", "a link out", "a folder"])
@pytest.mark.parametrize(("kind", "file"), [(k, f) for k, files in KINDS.items() for f in files])
def test_only_regular_files_of_the_folder_are_read(kind, file, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = folder_of(kind) / file
    path.rename("elsewhere")
    match what:
        case "a pipe":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case "a link out":
            path.symlink_to(Path("elsewhere").absolute())
        case "a folder":
            path.mkdir()

    refused(kind)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors", ".pb", ".pt"])
def test_a_pipe_is_not_opened(suffix, tmp_path):
    path = tmp_path / f"pipe{suffix}"
    os.mkfifo(path)

    if suffix == ".pt":
        pytest.importorskip("torch")
        with pytest.raises(SurgeonError, match="regular file"):
            open_checkpoint(path)
    else:
        refused(path, "not a regular file")


VALUE = {"name": "x", "offset": 0, "length": 4, "dtype": "float", "shape": [1]}


@pytest.mark.parametrize(
    "index",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"values": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"values": [{"name": "x", "offset": 1e400, "length": 4, "dtype": "float", "shape": [1]}]}',
        '{"values": [{"name": "x", "offset": 0, "length": NaN, "dtype": "float", "shape": [1]}]}',
        '{"values": [{"name": "x", "offset": 0, "length": 4, "dtype": "float", "shape": [1e400]}]}',
        '{"values": [{"name": "x", "offset": ' + "9" * 5000 + "}]}",
        json.dumps({"values": [VALUE | {"shape": [-1]}]}),
        json.dumps({"values": [VALUE | {"shape": "1"}]}),
        json.dumps({"values": [VALUE | {"name": ["x"]}]}),
        json.dumps({"values": [VALUE | {"name": None}]}),
        json.dumps({"values": [VALUE | {"dtype": 1}]}),
        json.dumps({"values": [VALUE | {"dtype": "nothing"}]}),
        json.dumps({"values": [VALUE], "file": "../values.bin"}),
        json.dumps({"values": [VALUE], "file": "/dev/zero"}),
        json.dumps({"values": {"x": 1}}),
        json.dumps({"values": 3}),
    ],
    ids=range(16),
)
def test_an_index_that_means_nothing_is_refused(index, tmp_path):
    save_tensors(tmp_path / "own", {"x": ARRAY})
    (tmp_path / "own" / "index.json").write_text(index)

    refused(tmp_path / "own")


def test_the_number_of_samples_is_bounded_by_what_is_there(tmp_path):
    save_tensors(tmp_path / "own", {"x": ARRAY})
    values = [VALUE, VALUE | {"sample": 10**15}]
    (tmp_path / "own" / "index.json").write_text(json.dumps({"values": values}))

    assert Samples(tmp_path / "own").count <= 3


@pytest.mark.parametrize("length", [101_000_000, 1 << 62])
def test_a_header_is_bounded_before_it_is_read(length, tmp_path):
    path = tmp_path / "s.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{")
    os.truncate(path, 1 << 30)

    refused(path, "truncated or not")


@pytest.mark.parametrize(
    ("dtype", "problem"),
    [("|V2147483647", "needs 2147483"), ("<U1073741824", "not a valid dtype|needs 4294967")],
)
def test_an_array_of_a_huge_dtype_is_refused_before_it_is_made(dtype, problem, tmp_path):
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive, archive.open("x.npy", "w") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": (1,)}
        np.lib.format.write_array_header_1_0(file, header)

    assert (tmp_path / "huge.npz").stat().st_size < 300
    tracemalloc.start()
    try:
        refused(tmp_path / "huge.npz", problem)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


def test_archives_of_many_members_are_compared_at_once(tmp_path):
    array = io.BytesIO()
    np.save(array, np.ones(1, np.float32))
    for name in "ab":
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            for number in range(60_000 if name == "a" else 20_000):
                archive.writestr(f"{name}{number or ''}.npy", array.getvalue())
            archive.writestr("common.npy", array.getvalue())
    began = time.process_time()

    found = osl.compare_sets(tmp_path / "a.npz", tmp_path / "b.npz")

    assert list(found.compared) == ["common"]
    assert len(found.only_actual) == 60_000
    assert time.process_time() - began < 30


def test_an_archive_that_says_less_than_it_holds_is_refused(tmp_path):
    path = tmp_path / "bomb.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as member,
    ):
        np.lib.format.write_array(member, ARRAY)
        for _ in range(64):
            member.write(bytes(1 << 20))

    refused(path, "needs 1328")


def test_an_encrypted_archive_is_told(tmp_path):
    path = tmp_path / "locked.npz"
    np.savez(path, x=ARRAY)
    data = bytearray(path.read_bytes())
    for magic, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(magic) + flags] |= 1
    path.write_bytes(data)

    refused(path, "encrypted")


def test_a_state_dict_that_holds_itself_ends(tmp_path):
    torch = pytest.importorskip("torch")
    state: dict[str, object] = {"other": torch.zeros(3)}
    state["model"] = state
    torch.save(state, tmp_path / "own.pt")

    with pytest.raises(SurgeonError, match="holds no parameters"):
        open_checkpoint(tmp_path / "own.pt")


def test_a_map_nested_too_deep_is_told(tmp_path):
    (tmp_path / "map.json").write_text("[" * 100_000)

    with pytest.raises(SurgeonError):
        load_map(tmp_path / "map.json")


def some_of_every_kind(folder: Path) -> list[Path]:
    for suffix in (".npz", ".safetensors", ""):
        save_tensors(folder / f"set{suffix}", {"x": ARRAY, "y": ARRAY.reshape(3, 100)})
    np.savez_compressed(folder / "small.npz", x=ARRAY)
    np.save(folder / "one.npy", ARRAY)
    (folder / "one.pb").write_bytes(numpy_helper.from_array(ARRAY, "x").SerializeToString())
    return sorted(folder.iterdir())


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_set_is_read_or_refused(seed, tmp_path):
    rng = random.Random(seed)
    (tmp_path / "whole").mkdir()
    for path in some_of_every_kind(tmp_path / "whole"):
        for _ in range(12):
            damaged = tmp_path / path.name
            (shutil.copytree if path.is_dir() else shutil.copy)(path, damaged)
            file = rng.choice(sorted(damaged.iterdir())) if damaged.is_dir() else damaged
            data = bytearray(file.read_bytes())
            for _ in range(rng.randint(1, 5)):
                start = min(int(rng.expovariate(1 / 60)), len(data) - 1)
                data[start : start + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
            file.write_bytes(data[: rng.choice([len(data), rng.randint(0, len(data))])])
            with contextlib.suppress(SurgeonError):
                read_all(damaged)
            (shutil.rmtree if damaged.is_dir() else os.unlink)(damaged)
