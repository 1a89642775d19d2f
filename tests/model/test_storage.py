"""Data put elsewhere: the model stays what it was, files hold no byte too many, and nobody else's data is touched."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import load, save
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import (
    ExternalDataError,
    OutputExistsError,
    SharedDataError,
    UsageError,
    WriteError,
)
from onnxsurgeon_lite.matching.diff import diff
from onnxsurgeon_lite.model.storage import (
    collect,
    embed,
    list_data,
    move,
    strip,
    stripping,
    unstrip,
)
from onnxsurgeon_lite.runtime.session import run_model

WEIGHT = np.random.default_rng(0).normal(0.5, 2, (16, 512)).astype(np.float32)
X = np.ones((1, 16), np.float32)


def proto() -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["a"]),
            helper.make_node("Gather", ["a", "order"], ["y"], axis=1),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512])],
        [
            numpy_helper.from_array(WEIGHT, "w"),
            numpy_helper.from_array(WEIGHT[0], "b"),
            numpy_helper.from_array(np.arange(512)[::-1].copy(), "order"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def path(tmp_path):
    """A model with its data in `m.bin`, among bytes that nothing refers to."""
    folder = tmp_path / "models"
    folder.mkdir()
    onnx.save(
        proto(),
        folder / "m.onnx",
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
    )
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    data = (folder / "m.bin").read_bytes()
    (folder / "m.bin").write_bytes(b"?" * 777 + data + b"?" * 99)
    for tensor in model.graph.initializer:
        offset = next(entry for entry in tensor.external_data if entry.key == "offset")
        offset.value = str(int(offset.value) + 777)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


SIZE = WEIGHT.nbytes + WEIGHT[0].nbytes + 512 * 8


def same_as_the_original(path: Path) -> bool:
    onnx.save(proto(), path.parent / "original")
    found = diff(load(path.parent / "original"), load(path))
    (path.parent / "original").unlink()
    return found.same


def test_the_list_says_where_each_tensor_is_and_what_it_holds(path):
    found = list(list_data(load(path)))

    assert [t.name for t in found] == ["w", "b", "order"]
    data = path.with_name("m.bin").read_bytes()
    for tensor, array in zip(found, (WEIGHT, WEIGHT[0], np.arange(512)[::-1]), strict=True):
        assert data[tensor.offset : tensor.offset + tensor.bytes] == array.tobytes()
        digest = hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()
        assert tensor.fingerprint == digest


def test_a_fingerprint_is_the_same_wherever_the_tensor_is(path, tmp_path):
    embed(load(path), tmp_path / "inside.onnx")

    inside = list(list_data(load(tmp_path / "inside.onnx")))

    assert [t.fingerprint for t in inside] == [t.fingerprint for t in list_data(load(path))]
    assert {t.file for t in inside} == {"inside.onnx"}


def test_data_is_embedded_and_put_outside_again(path, tmp_path):
    embed(load(path), tmp_path / "inside.onnx")
    written = save(
        load(tmp_path / "inside.onnx"), tmp_path / "out.onnx", external=True, location="d/w.bin"
    )

    assert written.data_files == (tmp_path / "d" / "w.bin",)
    assert (tmp_path / "d" / "w.bin").stat().st_size == SIZE
    for name in ("inside.onnx", "out.onnx"):
        assert same_as_the_original(tmp_path / name)


@pytest.mark.parametrize("location", ["../w.bin", "/w.bin", "m.onnx", "./m.onnx"])
def test_data_goes_nowhere_but_below_the_model(path, location):
    before = {p: p.read_bytes() for p in path.parent.iterdir()}

    with pytest.raises(UsageError, match="cannot hold the data"):
        move(load(path), location)

    assert {p: p.read_bytes() for p in path.parent.iterdir()} == before


def test_moved_data_is_only_at_the_new_place(path):
    moved = move(load(path), "weights/new.bin")
    written, notes = moved.written, moved.notes

    assert sorted(str(p.relative_to(path.parent)) for p in path.parent.rglob("*")) == [
        "m.onnx",
        "weights",
        "weights/new.bin",
    ]
    assert written.data_files[0].stat().st_size == SIZE
    assert notes == ()
    assert same_as_the_original(path)


def test_moved_data_that_another_model_refers_to_stays(path):
    shutil.copy(path, path.with_name("other.onnx"))

    notes = move(load(path), "new.bin").notes

    assert notes == (f"'m.bin' stays: {str(path.with_name('other.onnx'))!r} refers to it",)
    assert same_as_the_original(path)
    assert same_as_the_original(path.with_name("other.onnx"))


def test_data_is_not_rewritten_where_another_model_refers_to_it(path):
    shutil.copy(path, path.with_name("other.onnx"))

    with pytest.raises(SharedDataError):
        move(load(path), "m.bin")

    assert same_as_the_original(path.with_name("other.onnx"))


def test_data_is_not_moved_over_something_else(path):
    path.with_name("mine").write_text("mine")

    with pytest.raises(OutputExistsError):
        move(load(path), "mine")

    assert path.with_name("mine").read_text() == "mine"


def test_collected_data_holds_what_is_referred_to_and_no_more(path):
    found = collect(load(path))

    assert (found.before, found.after) == (SIZE + 876, SIZE)
    assert path.with_name("m.bin").stat().st_size == SIZE
    assert same_as_the_original(path)


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["embed", "models/m.onnx", "-o", "out.onnx"], ""),
        (["external", "models/m.onnx", "-o", "out.onnx", "--location", "deep/w.bin"], ""),
        (["external", "inside.onnx", "-o", "out.onnx"], ""),
        (["move", "models/m.onnx", "deep/w.bin"], "note: 'm.bin' would be removed\n"),
        (["gc", "models/m.onnx"], "876 bytes less\n"),
        (["strip", "models/m.onnx", "-o", "out.onnx"], "stripped 2 tensors\n"),
        (["strip", "inside.onnx", "-o", "out.onnx"], "stripped 2 tensors\n"),
        (["unstrip", "stripped.onnx", "models/m.onnx", "-o", "out.onnx"], ""),
    ],
)
def test_a_dry_run_names_the_files_and_bytes_of_a_real_one_and_writes_nothing(
    path, tmp_path, monkeypatch, words, last
):
    monkeypatch.chdir(tmp_path)
    embed(load(path), tmp_path / "inside.onnx")
    strip(load(path), tmp_path / "stripped.onnx")
    before = contents(tmp_path)

    dry = CliRunner().invoke(app, ["data", *words, "--dry-run"])
    after = contents(tmp_path)
    done = CliRunner().invoke(app, ["data", *words])

    assert (dry.exit_code, done.exit_code, after) == (0, 0, before), dry.output
    written = [file for file, data in contents(tmp_path).items() if before.get(file) != data]
    planned = re.findall(r"would write '(.*)': (\d+) bytes", dry.stdout)
    assert {Path(name).absolute(): int(size) for name, size in planned} == {
        file: file.stat().st_size for file in written
    }
    assert last in dry.output


def test_data_without_gaps_is_not_rewritten(path):
    collect(load(path))
    before = {p: p.stat().st_mtime_ns for p in path.parent.iterdir()}

    found = collect(load(path))

    assert found.files == {}
    assert {p: p.stat().st_mtime_ns for p in path.parent.iterdir()} == before


def test_shared_and_overlapping_data_stays_shared(path):
    model = onnx.load(path, load_external_data=False)
    entries = {entry.key: entry for entry in model.graph.initializer[1].external_data}
    entries["offset"].value = str(777 + 2048)  # the second row of `w`
    path.write_bytes(model.SerializeToString())

    found = collect(load(path))

    assert found.after == WEIGHT.nbytes + 512 * 8
    after = load(path)
    assert np.array_equal(after.array(after.proto.graph.initializer[1]), WEIGHT[1])


def test_data_has_one_name_at_every_instant_while_it_is_collected(path, monkeypatch):
    names, replace = [], Path.replace

    def watched(self, target):
        done = replace(self, target)
        names.extend(file.stat().st_nlink for file in path.parent.iterdir() if file.is_file())
        onnx.load(path)
        return done

    monkeypatch.setattr(Path, "replace", watched)
    collect(load(path))

    assert len(names) > 2
    assert {*names} == {1}


def test_data_is_not_collected_while_another_model_refers_to_it(path):
    shutil.copy(path, path.with_name("other.onnx"))
    path.with_name("broken.onnx").write_bytes(b"no model")
    before = {p: p.read_bytes() for p in path.parent.iterdir()}

    with pytest.raises(SharedDataError, match=r"other\.onnx"):
        collect(load(path))

    assert {p: p.read_bytes() for p in path.parent.iterdir()} == before


def test_a_model_in_a_folder_above_counts_too(path):
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = "sub/m.bin"
    (path.parent / "sub").mkdir()
    path.with_name("m.bin").rename(path.parent / "sub" / "m.bin")
    path.write_bytes(model.SerializeToString())
    below = path.parent / "sub" / "below.onnx"
    for tensor in model.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = "m.bin"
    below.write_bytes(model.SerializeToString())

    with pytest.raises(SharedDataError, match=r"below\.onnx"):
        collect(load(path))


def test_more_than_protobuf_reads_is_not_embedded(tmp_path):
    tensor = TensorProto(name="w", dims=[1 << 30], data_type=1, data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    model = proto()
    model.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "w.bin").touch()
    os.truncate(tmp_path / "w.bin", 4 << 30)

    with pytest.raises(WriteError, match="protobuf reads at most"):
        embed(load(tmp_path / "m.onnx"), tmp_path / "out.onnx")

    assert not (tmp_path / "out.onnx").exists()


# strip and unstrip


@pytest.mark.parametrize("inside", [True, False])
def test_stripped_weights_are_noise_with_the_same_statistics(path, tmp_path, inside):
    source = embed(load(path), tmp_path / "inside.onnx").path if inside else path

    found = strip(load(source), tmp_path / "stripped.onnx", seed=1)

    assert found.changed == 2
    assert found.kept == ("order",)
    stripped = load(tmp_path / "stripped.onnx")
    w, _, order = map(stripped.array, stripped.proto.graph.initializer)
    assert abs(np.corrcoef(w.ravel(), WEIGHT.ravel())[0, 1]) < 0.05
    assert w.mean() == pytest.approx(WEIGHT.mean(), abs=0.1)
    assert w.std() == pytest.approx(WEIGHT.std(), rel=0.05)
    assert w.min() >= WEIGHT.min()
    assert w.max() <= WEIGHT.max()
    assert np.array_equal(order, np.arange(512)[::-1])
    assert run_model(stripped, {"x": X})["y"].shape == (1, 512)
    assert not list(tmp_path.glob(".*"))


def test_noise_is_written_while_other_weights_are_still_read(tmp_path, monkeypatch):
    names = ["first", "last"]
    nodes = [helper.make_node("Add", ["x", name], [f"y_{name}"]) for name in names]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1 << 16])
        for name in ("x", "y_first", "y_last")
    ]
    weights = np.random.default_rng(0).random((2, 1 << 16), np.float32)
    tensors = [numpy_helper.from_array(w, n) for w, n in zip(weights, names, strict=True)]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:], tensors)
    model, written = tmp_path / "two.onnx", tmp_path / "out"
    written.mkdir()
    onnx.save(helper.make_model(graph), model, save_as_external_data=True, location="two.data")
    survey = stripping._survey

    def late(source, tensor):
        deadline = time.monotonic() + 20
        while tensor.name == "last" and not sum(f.stat().st_size for f in written.iterdir()):
            assert time.monotonic() < deadline, "nothing was written before the last weight is read"
            time.sleep(0.01)
        return survey(source, tensor)

    monkeypatch.setattr(stripping, "_survey", late)
    strip(load(model), written / "noise.onnx")
    unstrip(load(written / "noise.onnx"), load(model), tmp_path / "back.onnx")

    back = load(tmp_path / "back.onnx")
    assert [back.array(t).tolist() for t in back.proto.graph.initializer] == weights.tolist()


def test_a_stripped_model_differs_from_its_original_in_weights_alone(path, tmp_path):
    strip(load(path), tmp_path / "stripped.onnx")

    found = diff(load(path), load(tmp_path / "stripped.onnx"))

    assert {difference.kind for difference in found.differences} == {"initializer"}


def test_noise_is_the_seeds(path, tmp_path):
    digests = []
    for seed in (1, 1, 2):
        strip(load(path), tmp_path / "s.onnx", seed, force=True)
        digests.append((tmp_path / "s.data").read_bytes())

    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
@pytest.mark.parametrize("kind", ["uniform", "constant", "skewed"])
def test_any_float_and_any_distribution_is_stripped(tmp_path, dtype, kind):
    rng = np.random.default_rng(0)
    values = {
        "uniform": rng.uniform(-1, 1, 5000),
        "constant": np.full(5000, 0.5),
        "skewed": np.minimum(rng.exponential(1, 5000), 8),
    }[kind].astype(dtype)
    model = proto()
    model.graph.initializer.append(numpy_helper.from_array(values, "v"))
    onnx.save(model, tmp_path / "m.onnx")

    strip(load(tmp_path / "m.onnx"), tmp_path / "s.onnx")

    stripped = load(tmp_path / "s.onnx")
    noise = stripped.array(stripped.proto.graph.initializer[3])
    before, after = values.astype(np.float64), noise.astype(np.float64)
    assert after.mean() == pytest.approx(before.mean(), abs=0.05)
    assert after.std() == pytest.approx(before.std(), rel=0.1, abs=1e-6)
    assert before.min() <= after.min() <= after.max() <= before.max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_weight_far_from_zero_is_stripped_without_what_is_not_finite(tmp_path, dtype):
    values = np.random.default_rng(0).normal(1000, 0.1, (512, 512)).astype(dtype)
    values[0, :3] = np.nan, np.inf, -np.inf
    values[511] = np.nan
    model = proto()
    model.graph.initializer.append(numpy_helper.from_array(values, "v"))
    onnx.save(model, tmp_path / "m.onnx")

    strip(load(tmp_path / "m.onnx"), tmp_path / "s.onnx")

    stripped = load(tmp_path / "s.onnx")
    noise = stripped.array(stripped.proto.graph.initializer[3]).astype(np.float64)
    assert noise.mean() == pytest.approx(1000, abs=0.01)
    assert noise.std() == pytest.approx(0.1, rel=0.02)
    assert np.nanmin(values[1:]) <= noise.min() <= noise.max() <= np.nanmax(values[1:])
    assert np.linalg.matrix_rank(noise - 1000) == 512


def test_quantized_weights_and_biases_are_stripped_and_come_back(tmp_path):
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.integers(-7, 8, (20, 20)).astype(kind), f"w_{kind.__name__}")
        for kind in (np.int8, np.uint8, ml_dtypes.int4, ml_dtypes.uint4, np.int32, np.int64)
    ]
    model = proto()
    model.graph.initializer.extend(weights)
    model.graph.node.append(helper.make_node("DequantizeLinear", ["w_int32", "w"], ["b"]))
    onnx.save(model, tmp_path / "m.onnx")

    strip(load(tmp_path / "m.onnx"), tmp_path / "s.onnx")
    unstrip(load(tmp_path / "s.onnx"), load(tmp_path / "m.onnx"), tmp_path / "full.onnx")

    arrays = [
        {t.name: loaded.array(t) for t in loaded.proto.graph.initializer}
        for loaded in map(load, (tmp_path / "m.onnx", tmp_path / "s.onnx", tmp_path / "full.onnx"))
    ]
    for name in (tensor.name for tensor in weights):
        one, noise, back = (held[name].astype(np.int64) for held in arrays)
        assert np.array_equal(one, noise) == (name == "w_int64")
        assert one.min() <= noise.min() <= noise.max() <= one.max()
        assert np.array_equal(one, back)


def test_an_edited_stripped_model_gets_its_weights_back(path, tmp_path):
    strip(load(path), tmp_path / "s.onnx")
    model = load(tmp_path / "s.onnx")
    model.proto.graph.node[1].op_type = "Sub"
    model.proto.graph.node[0].input[1] = model.proto.graph.initializer[0].name = "renamed"
    save(model, tmp_path / "edited.onnx")

    unstrip(load(tmp_path / "edited.onnx"), load(path), tmp_path / "full.onnx")

    (found,) = diff(load(path), load(tmp_path / "full.onnx")).differences
    assert found.changes[0].what == "operator"


def test_weights_come_back_from_the_original_alone(path, tmp_path):
    strip(load(path), tmp_path / "s.onnx")
    other = proto()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT + 1, "w"))
    onnx.save(other, tmp_path / "other.onnx")

    with pytest.raises(UsageError, match="the original of 'w'"):
        unstrip(load(tmp_path / "s.onnx"), load(tmp_path / "other.onnx"), tmp_path / "f.onnx")
    with pytest.raises(UsageError, match="has no stripped weights"):
        unstrip(load(path), load(path), tmp_path / "f.onnx")


@pytest.mark.parametrize(
    "name", ["external.onnx", "low_precision.onnx", "transformer_block.onnx", "whole_model.onnx"]
)
def test_stripping_loses_nothing_but_weights(name, tmp_path):
    strip(load(FIXTURES / name), tmp_path / "s.onnx", keep_sources=True)
    unstrip(load(tmp_path / "s.onnx"), load(FIXTURES / name), tmp_path / "full.onnx")

    assert diff(load(FIXTURES / name), load(tmp_path / "full.onnx")).same


@pytest.fixture
def without_data(tmp_path) -> Path:
    """A model whose data file was not copied along."""
    shutil.copy(FIXTURES / "external.onnx", tmp_path / "alone.onnx")
    return tmp_path / "alone.onnx"


@pytest.mark.parametrize(
    "words",
    [
        "inspect MODEL",
        "inspect MODEL --node @0",
        "print MODEL",
        "check MODEL",
        "diff MODEL MODEL",
        f"diff MODEL {FIXTURES / 'external.onnx'}",
        "data ls MODEL",
        "extract MODEL --outputs activation -o part.onnx",
        "edit rename MODEL y=out -o edited.onnx",
        "edit rename MODEL y=out --in-place",
        "edit clean MODEL -o edited.onnx",
        "edit set-op MODEL op:Relu Abs -o edited.onnx",
    ],
)
def test_structure_needs_no_data(words, without_data, monkeypatch):
    monkeypatch.chdir(without_data.parent)
    done = CliRunner().invoke(app, words.replace("MODEL", "alone.onnx").split())

    assert done.exit_code == 0, done.output
    for name in ("part.onnx", "edited.onnx"):
        if Path(name).exists():
            assert load(name).missing() == ["external.data"]
            shutil.copy(FIXTURES / "external.data", ".")
            assert not load(name).missing()


def test_what_needs_the_data_says_that_it_is_missing(without_data):
    model = load(without_data)
    part = osl.extract(model, inputs="layer1_out", outputs="activation").model

    assert run_model(part, {"layer1_out": np.ones((2, 64), np.float32)})["activation"].all()
    with pytest.raises(ExternalDataError, match="the external data is missing"):
        run_model(model, {"x": np.ones((1, 32), np.float32)})
    with pytest.raises(ExternalDataError, match="the external data is missing"):
        strip(model, without_data.with_name("s.onnx"))
    notes = diff(model, load(FIXTURES / "external.onnx")).notes
    assert notes[0].startswith("not compared, the data of 4 tensors is missing: 'layer1.bias'")


@pytest.mark.parametrize(
    "words",
    [
        "extract MODEL --outputs activation -o OUT",
        "edit rename MODEL y=out -o OUT",
        "edit fold MODEL -o OUT",
        "edit clean MODEL -o OUT --dry-run",
        "merge MODEL MODEL --map y=x -o OUT",
    ],
)
def test_missing_data_is_not_looked_for_beside_another_folders_files(words, without_data):
    out = without_data.parent / "elsewhere"
    out.mkdir()
    (out / "external.data").write_bytes(b"a stranger's weights" * 5000)
    words = words.replace("MODEL", str(without_data)).replace("OUT", str(out / "out.onnx"))

    done = CliRunner().invoke(app, words.split())

    assert done.exit_code == 2, done.output
    assert f"write -o {without_data.parent}/" in done.output
    assert os.listdir(out) == ["external.data"]


@pytest.mark.parametrize(
    "words", ["split MODEL --at activation -o OUT", "convert MODEL --to int8 -o OUT.onnx"]
)
def test_what_reads_the_data_says_where_to_put_it_and_works_then(words, without_data, tmp_path):
    words = words.replace("MODEL", str(without_data)).replace("OUT", str(tmp_path / "out"))
    before = sorted(os.listdir(tmp_path))

    refused = CliRunner().invoke(app, words.split())

    assert refused.exit_code == 2, refused.output
    assert f"the external data is missing: '{without_data.parent}/external.data'" in refused.output
    assert "put 'external.data' beside the model" in refused.output
    assert sorted(os.listdir(tmp_path)) == before
    shutil.copy(FIXTURES / "external.data", without_data.parent)
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output


def test_no_file_gets_the_name_of_onnx_text(path, tmp_path):
    target = tmp_path / "out.onnxtxt"

    for options in ([], ["--dry-run"]):
        done = CliRunner().invoke(
            app, ["edit", "rename", str(path), "x=z", "-o", str(target), *options]
        )

        assert done.exit_code == 2, done.output
        assert f"write -o {tmp_path / 'out.onnx'}" in done.output
    with pytest.raises(UsageError, match="in ONNX text syntax"):
        save(load(path), target)
    assert not target.exists()


def sparse_model(folder: Path, size: int) -> Path:
    """A model whose weight is a hole of `size` bytes, with a number in the middle and one at the end."""
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Relu", ["w"], ["y"])],
            "sparse",
            [],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size // 4])],
            [TensorProto(name="w", data_type=1, dims=[size // 4], data_location=1)],
        )
    )
    proto.graph.initializer[0].external_data.add(key="location", value="w.data")
    onnx.save(proto, folder / "sparse.onnx")
    with (folder / "w.data").open("wb") as file:
        for place in (size // 2, size - 4):
            file.seek(place)
            file.write(np.float32(1).tobytes())
    return folder / "sparse.onnx"


def test_holes_stay_holes_and_are_not_read(tmp_path):
    size = 1 << 32
    source = sparse_model(tmp_path, size)
    out = tmp_path / "out"
    out.mkdir()

    save(load(source), out / "same.onnx")
    save(load(source), out / "gathered.onnx", external=True, location="all.data")

    for name in ("same.data", "all.data"):
        status = (out / name).stat()
        assert status.st_size == size
        assert status.st_blocks < 1000
    # fingerprints, because a comparison reads the holes
    prints = {
        each.fingerprint
        for path in (source, out / "same.onnx", out / "gathered.onnx")
        for each in list_data(load(path))
    }
    assert len(prints) == 1


def test_four_tebibytes_of_nothing_are_listed_at_once(tmp_path):
    source = sparse_model(tmp_path, 1 << 42)
    began = time.monotonic()

    done = CliRunner().invoke(app, ["data", "ls", str(source)])

    assert done.exit_code == 0
    assert str(1 << 42) in done.output
    assert time.monotonic() - began < 10


def test_a_fingerprint_does_not_depend_on_holes(tmp_path):
    source = sparse_model(tmp_path, 1 << 21)
    (sparse,) = list_data(load(source))
    data = (tmp_path / "w.data").read_bytes()

    (tmp_path / "w.data").write_bytes(data)
    (written,) = list_data(load(source))
    (tmp_path / "w.data").write_bytes(data[4:] + data[:4])
    (other,) = list_data(load(source))

    assert sparse.fingerprint == written.fingerprint != other.fingerprint


SECRET = "/home/author/secret.py"
NUMBERS = [float(number) for number in np.float32(np.arange(20) * 0.3 + 0.1)]


def author_model() -> onnx.ModelProto:
    """Weights in every place that can hold them, and the author's paths in every place that can hold text."""
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "local" : 1], metadata_props: ["source" : "/home/author/secret.py"]>
        g (float[20] x) => (float[20] y) { a = Add(x, c) b = local.f(a) y = Add(b, s) }
        <domain: "local", opset_import: ["" : 21]> f (p) => (q) { k = Constant<value_float = 1.0>() q = Mul(p, k) }
    """)
    graph = proto.graph
    listed = helper.make_node("Constant", [], ["c"], name="listed", value_floats=NUMBERS)
    graph.node.insert(0, listed)
    values = helper.make_tensor("s", 1, [20], NUMBERS)
    indices = helper.make_tensor("at", TensorProto.INT64, [20], range(20))
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [20]))
    inner = helper.make_tensor("", 1, [20], NUMBERS)
    proto.functions[0].node[0].CopyFrom(helper.make_node("Constant", [], ["k"], value=inner))
    training = proto.training_info.add()
    training.algorithm.name = SECRET
    sparse = graph.sparse_initializer[0].values
    for message in (proto, graph, *graph.node, graph.input[0], sparse, *proto.functions):
        message.doc_string = SECRET
    for message in (graph, *graph.node, graph.input[0], *proto.functions):
        message.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=SECRET)
    graph.node[0].attribute[0].doc_string = SECRET
    proto.MergeFromString(b"\xfa\x3f" + bytes([len(SECRET)]) + SECRET.encode())
    return proto


def test_nothing_of_the_weights_and_nothing_of_the_author_remains(tmp_path):
    onnx.save(author_model(), tmp_path / "m.onnx")
    x = {"x": np.ones(20, np.float32)}

    found = strip(load(tmp_path / "m.onnx"), tmp_path / "s.onnx")
    kept = strip(load(tmp_path / "m.onnx"), tmp_path / "kept.onnx", keep_sources=True)

    written = (tmp_path / "s.onnx").read_bytes()
    assert SECRET.encode() not in written
    assert SECRET.encode() in (tmp_path / "kept.onnx").read_bytes()
    assert np.float32(NUMBERS).tobytes() not in written
    assert np.float32(NUMBERS[3:5]).tobytes() not in (tmp_path / "kept.onnx").read_bytes()
    assert found.changed == kept.changed == 3
    assert not kept.removed
    assert "removed training info: 1" in found.removed
    assert any(line.startswith("removed doc strings: ") for line in found.removed)
    assert "removed metadata 'pkg.torch.onnx.stack_trace': 7" in found.removed
    assert run_model(load(tmp_path / "s.onnx"), x)["y"].shape == (20,)

    unstrip(load(tmp_path / "s.onnx"), load(tmp_path / "m.onnx"), tmp_path / "full.onnx")
    whole = [run_model(load(tmp_path / name), x)["y"] for name in ("m.onnx", "full.onnx")]
    assert whole[0].tobytes() == whole[1].tobytes()
    unstrip(
        load(tmp_path / "kept.onnx"), load(tmp_path / "m.onnx"), tmp_path / "full.onnx", force=True
    )
    assert diff(load(tmp_path / "m.onnx"), load(tmp_path / "full.onnx")).same


# scale, and the command


def test_more_data_than_the_memory_allowed_is_moved(tmp_path):
    tensor = TensorProto(name="w", dims=[1 << 26], data_type=1, data_location=1)
    tensor.external_data.add(key="location", value="w.bin")
    model = proto()
    model.graph.initializer.append(tensor)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "w.bin").touch()
    os.truncate(tmp_path / "w.bin", 1 << 28)
    code = (
        "import sys\n"
        "from onnxsurgeon_lite import load\n"
        "from onnxsurgeon_lite.model.storage import *\n"
        "model = load(sys.argv[1])\n"
        "move(model, 'new.bin'); collect(load(sys.argv[1])); list(list_data(load(sys.argv[1])))\n"
        "print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.onnx")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) < 200_000
    (tmp_path / "new.bin").unlink()


def test_what_a_strip_keeps_in_a_node_is_called_by_what_the_node_makes(tmp_path):
    model = proto()
    order = numpy_helper.from_array(np.arange(512))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["order"], value=order))
    del model.graph.initializer[2]
    onnx.save(model, tmp_path / "m.onnx")

    stripped = strip(load(tmp_path / "m.onnx"), tmp_path / "stripped.onnx")

    assert stripped.kept == ("order value",)


def test_the_commands_say_what_they_did(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def said(*words: str) -> str:
        done = CliRunner().invoke(app, ["data", *words])
        assert done.exit_code == 0, done.output
        return done.output

    assert "order" in said("ls", str(path))
    assert "777" in said("ls", str(path), "--no-fingerprint", "--json")
    assert "m.onnx'\n876 bytes less\n" in said("gc", str(path))
    assert "wrote 'm.embed.onnx'\n" in said("embed", str(path))
    assert "with its data in 'm.external.data'" in said(
        "external", "m.embed.onnx", "-o", "m.external.onnx"
    )
    assert "note: no weights, so kept as they are: 'order'" in said("strip", str(path))
    assert "wrote 'm.unstrip.onnx'" in said(
        "unstrip", "m.strip.onnx", str(path), "-o", "m.unstrip.onnx"
    )


def test_small_weights_are_stripped_where_an_operator_takes_them_as_such(tmp_path):
    model = osl.build("""g (float[1,1,2,2] x) => (float[1,2,N,M] y)
        <float[2,1,1,1] w = {1, 2}, float[2] bias = {3, 4}, float[4] scales = {1, 1, 2, 3}, float[1] one = {5}> {
        a = Conv(x, w, bias) b = Add(a, one) y = Resize(b, , scales) }""")

    strip(model, tmp_path / "noise.onnx")
    unstrip(load(tmp_path / "noise.onnx"), model, tmp_path / "back.onnx")

    tensors = (
        model.proto.graph.initializer,
        osl.load(tmp_path / "noise.onnx").proto.graph.initializer,
    )
    changed = [a.name for a, b in zip(*tensors, strict=True) if model.raw(a) != model.raw(b)]
    assert changed == ["w", "bias"]
    assert osl.diff(model, tmp_path / "back.onnx").same


@pytest.fixture
def came(tmp_path, monkeypatch):
    """A model with external data in a folder, beside files that are not in it."""
    (tmp_path / "came").mkdir()
    monkeypatch.chdir(tmp_path / "came")
    for name in ("external.onnx", "external.data"):
        shutil.copy(FIXTURES / name, ".")
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "link", "to"),
    [
        (["edit", "sort", "external.onnx", "-o", "out.onnx", "--force"], "out.onnx", "mine"),
        (["edit", "sort", "external.onnx", "-o", "out.onnx", "--force"], "out.onnx", "new"),
        (["data", "move", "external.onnx", "a.data", "--force"], "a.data", "mine"),
        (["data", "move", "external.onnx", "a.data", "--force"], "a.data", "came/b.data"),
        (["data", "move", "external.onnx", "a/a.data", "--force"], "a", "folder"),
        (
            ["bisect", "external.onnx", "--a", "opt=none", "--b", "opt=all", "-o", "c", "--force"],
            "c",
            "folder",
        ),
        (["record", "external.onnx", "-o", "refs", "--force"], "refs", "folder"),
        (["inspect", "external.onnx", "--html", "page.html", "--force"], "page.html", "mine"),
    ],
)
def test_nothing_is_written_through_a_link_out_of_the_folder(came, words, link, to):
    Path(link).symlink_to(came / to)
    before = sorted(Path().iterdir()), Path("external.onnx").read_bytes()

    done = CliRunner().invoke(app, words)

    assert (came / "mine").read_bytes() == b"mine"
    assert not list((came / "folder").iterdir())
    assert not (came / "new").exists()
    if words[0] != "bisect":  # agrees, and writes nothing
        assert (done.exit_code, "link" in done.stderr, "refused" in done.stderr) == (2, True, True)
        assert (sorted(Path().iterdir()), Path("external.onnx").read_bytes()) == before


def test_data_that_is_another_name_of_a_file_elsewhere_is_refused(came):
    (came / "mine").write_bytes(Path("external.data").read_bytes())
    Path("external.data").unlink()
    os.link(came / "mine", "external.data")

    with pytest.raises(ExternalDataError, match="hard link to a file elsewhere") as caught:
        load("external.onnx").materialize()
    subprocess.run(caught.value.hint.removeprefix("copy it: "), shell=True, check=True)
    load("external.onnx").materialize()


def test_data_with_two_names_in_its_folder_is_read(came):
    os.link("external.data", "second.data")

    load("external.onnx").materialize()
