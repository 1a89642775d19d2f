"""Loading and saving: hazards of weights that stay on disk."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxsurgeon_lite import Extract, load, save
from onnxsurgeon_lite.errors import (
    ExternalDataError,
    ModelFileError,
    OutputExistsError,
    SourceChangedError,
    SurgeonError,
    WriteError,
)
from onnxsurgeon_lite.model import wire
from onnxsurgeon_lite.runtime.session import run_model

WEIGHT = np.arange(2048, dtype=np.float32).reshape(4, 512) / 2048
X = np.ones((1, 4), np.float32)


def proto() -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["h"]),
            helper.make_node("MatMul", ["h", "w"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512])],
        [
            numpy_helper.from_array(WEIGHT, "w"),
            helper.make_tensor("b", TensorProto.FLOAT, [512], WEIGHT[0].tolist()),  # float_data
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(params=["embedded", "external"])
def path(request, tmp_path):
    """A model file with its weights inside, or in a data file beside it."""
    where = tmp_path / "source"
    where.mkdir()
    external = request.param == "external"
    onnx.save(
        proto(),
        where / "m.onnx",
        save_as_external_data=external,
        location="weights.bin",
        size_threshold=0,
    )
    return where / "m.onnx"


def edited(path):
    model = load(path)
    model.proto.graph.name = "edited"
    return model


def result_of(path) -> np.ndarray:
    return run_model(load(path), {"x": X})["y"]


EXPECTED = X @ WEIGHT + WEIGHT[0]


def test_the_weights_are_not_in_memory(path):
    model = load(path)

    assert len(model.proto.SerializeToString()) < 1000
    assert np.array_equal(model.array(model.proto.graph.initializer[0]), WEIGHT)
    assert np.array_equal(model.array(model.proto.graph.initializer[1]), WEIGHT[0])


@pytest.mark.parametrize("external", [None, True, False])
def test_a_model_can_be_saved_over_itself(path, external):
    for _ in range(3):
        save(edited(path), path, external, force=True)

    assert load(path).proto.graph.name == "edited"
    assert np.allclose(result_of(path), EXPECTED)
    assert not list(path.parent.glob(".*"))


@pytest.mark.parametrize("external", [None, True, False])
def test_a_saved_model_is_complete_elsewhere(path, tmp_path, external):
    (tmp_path / "target").mkdir()

    written = save(edited(path), tmp_path / "target" / "copy.onnx", external)
    path.unlink()
    (path.parent / "weights.bin").unlink(missing_ok=True)
    (tmp_path / "target").rename(tmp_path / "moved")

    assert np.allclose(result_of(tmp_path / "moved" / "copy.onnx"), EXPECTED)
    assert bool(written.data_files) == (
        external or (external is None and "copy.data" in str(written))
    )


def test_saving_again_does_not_make_the_data_grow(path, tmp_path):
    sizes = set()
    for _ in range(3):
        save(edited(path), tmp_path / "copy.onnx", external=True)
        sizes.add((tmp_path / "copy.data").stat().st_size)

    assert sizes == {WEIGHT.nbytes + WEIGHT[0].nbytes}


def test_shared_bytes_are_written_once(tmp_path):
    twice = proto()
    twice.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w2"))
    onnx.save(twice, tmp_path / "m.onnx")
    save(load(tmp_path / "m.onnx"), tmp_path / "e.onnx", external=True)
    model = edited(tmp_path / "e.onnx")
    model.proto.graph.initializer[2].CopyFrom(model.proto.graph.initializer[0])
    model.proto.graph.initializer[2].name = "w2"

    save(model, tmp_path / "f.onnx", external=True)

    assert (tmp_path / "f.data").stat().st_size == WEIGHT.nbytes + WEIGHT[0].nbytes


@pytest.mark.parametrize("change", ["append", "touch", "replace", "remove"])
def test_a_source_that_changes_after_the_load_is_an_error(path, tmp_path, change):
    model = edited(path)
    data = path.with_name("weights.bin") if path.with_name("weights.bin").exists() else path
    match change:
        case "append":
            with data.open("ab") as file:
                file.write(b"more")
        case "touch":
            os.utime(data, ns=(1, 1))
        case "replace":
            copy = data.with_name("copy")
            copy.write_bytes(data.read_bytes())
            copy.replace(data)
        case "remove":
            data.unlink()

    with pytest.raises(SourceChangedError):
        save(model, tmp_path / "out.onnx", external=True)
    with pytest.raises(SourceChangedError):
        model.array(model.proto.graph.initializer[0])
    assert not (tmp_path / "out.onnx").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def at(location: str, tmp_path, **entries: int):
    """A model whose tensor `w` says that its bytes are at `location`."""
    model = proto()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd",
        "../outside",
        "a/../../outside",
        "C:\\weights",
        "*/_ORT_MEM_ADDR_/*",
        "",
        "a\0b",
    ],
)
def test_a_location_outside_the_folder_is_refused(tmp_path, location):
    (tmp_path.parent / "outside").write_bytes(WEIGHT.tobytes())

    with pytest.raises(ExternalDataError, match="'w'"):
        load(at(location, tmp_path))


@pytest.mark.parametrize("kind", ["link", "linked folder", "fifo", "device", "folder"])
def test_what_is_no_regular_file_is_refused(tmp_path, kind):
    (tmp_path / "real").write_bytes(WEIGHT.tobytes())
    (tmp_path / "folder").mkdir()
    location = "data"
    match kind:
        case "link":
            (tmp_path / "data").symlink_to(tmp_path / "real")
        case "linked folder":
            (tmp_path / "elsewhere").symlink_to(tmp_path)
            location = "elsewhere/real"
        case "fifo":
            os.mkfifo(tmp_path / "data")
        case "device":
            os.symlink("/dev/zero", tmp_path / "data")
        case "folder":
            location = "folder"

    with pytest.raises(ExternalDataError, match="'w'"):
        load(at(location, tmp_path))


@pytest.mark.parametrize(
    "entries",
    [{}, {"offset": 1}, {"length": 8193}, {"length": 4}, {"offset": -8}, {"offset": 1 << 62}],
)
def test_data_that_is_too_short_is_refused(tmp_path, entries):
    (tmp_path / "data").write_bytes(WEIGHT.tobytes()[: None if entries else -1])

    with pytest.raises(ExternalDataError, match="'w'"):
        load(at("data", tmp_path, **entries))


@pytest.mark.parametrize(
    ("locations", "written"),
    [
        (("m.data", "m.onnx_data"), ("m.data", "m.onnx_data")),
        (("sub/a.bin", "m.bin"), ("m.bin", "m.data")),
        (("numpy.py", "Makefile"), ("m.1.data", "m.data")),
    ],
)
def test_data_files_are_named_after_the_model_that_is_written(tmp_path, locations, written):
    model = proto()
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for i, location in enumerate(locations):
        tensor = model.graph.initializer[i]
        raw = numpy_helper.to_array(tensor).tobytes()
        (tmp_path / "in" / location).write_bytes(raw)
        tensor.CopyFrom(
            TensorProto(name=tensor.name, dims=tensor.dims, data_type=1, data_location=1)
        )
        tensor.external_data.add(key="location", value=location)
    (tmp_path / "in" / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "out").mkdir()

    save(load(tmp_path / "in" / "m.onnx"), tmp_path / "out" / "m.onnx")

    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(
        (*written, "m.onnx")
    )
    if written == locations:
        for name in ("m.onnx", *written):
            assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "in" / name).read_bytes()
    assert np.allclose(result_of(tmp_path / "out" / "m.onnx"), EXPECTED)


def test_a_data_file_of_something_else_is_not_overwritten(path, tmp_path):
    mine = tmp_path / "copy.data"
    mine.write_text("mine")

    with pytest.raises(OutputExistsError):
        save(edited(path), tmp_path / "copy.onnx", external=True)

    assert mine.read_text() == "mine"
    assert not (tmp_path / "copy.onnx").exists()


def test_a_link_as_the_target_stays_a_link_and_permissions_stay(path, tmp_path):
    real = tmp_path / "real.onnx"
    real.write_bytes(b"old")
    real.chmod(0o640)
    (tmp_path / "link.onnx").symlink_to(real)

    save(edited(path), tmp_path / "link.onnx", external=False)

    assert (tmp_path / "link.onnx").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert np.allclose(result_of(real), EXPECTED)


@pytest.mark.parametrize("target", ["missing/out.onnx", "source"])
def test_a_target_that_cannot_be_written_is_told(path, tmp_path, target):
    with pytest.raises(WriteError, match=target.partition("/")[0]):
        save(edited(path), tmp_path / target, external=False)


def test_a_full_disk_leaves_nothing_behind(path, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "m.onnx").write_text("before")
    code = (
        "import resource, signal, sys, onnxsurgeon_lite as osl\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "model = osl.load(sys.argv[1])\n"
        "model.proto.graph.name = 'edited'\n"
        "try: osl.save(model, sys.argv[2], external=False)\n"
        "except osl.SurgeonError as error: print('told:', error)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "out" / "m.onnx")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "told: cannot write" in done.stdout
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["m.onnx"]
    assert (tmp_path / "out" / "m.onnx").read_text() == "before"


def test_a_truncated_model_is_an_error_or_a_model(tmp_path):
    whole = proto().SerializeToString()

    for length in range(0, len(whole), 37):
        (tmp_path / "cut.onnx").write_bytes(whole[:length])
        try:
            accepted = onnx.ModelProto.FromString(whole[:length]).HasField("graph")
        except Exception:
            accepted = False
        if accepted:
            load(tmp_path / "cut.onnx")
        else:
            with pytest.raises(ModelFileError):
                load(tmp_path / "cut.onnx")


@pytest.mark.parametrize("count", [10, 2000, 1 << 21], ids=["inside", "beside", "mapped"])
def test_a_model_that_is_cut_off_while_it_is_read_is_refused(count, tmp_path, monkeypatch):
    cut = proto()
    for number in range(5):
        weight = np.ones(count, np.float32)
        cut.graph.initializer.append(numpy_helper.from_array(weight, f"more {number}"))
    path = tmp_path / "m.onnx"
    path.write_bytes(cut.SerializeToString())
    usual = wire._whole

    def meanwhile(file, size):
        os.truncate(path, size // 2)
        return usual(file, size)

    monkeypatch.setattr(wire, "_whole", meanwhile)

    with pytest.raises(ModelFileError, match="was cut off while it was read|mmap length"):
        load(path)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=6))
def test_damaged_bytes_never_surprise(tmp_path, position, noise):
    damaged = bytearray(proto().SerializeToString())
    position %= len(damaged)
    damaged[position : position + len(noise)] = noise
    (tmp_path / "damaged.onnx").write_bytes(damaged)

    try:
        model = load(tmp_path / "damaged.onnx")
        save(model, tmp_path / "copy.onnx")
    except SurgeonError:
        return
    assert (tmp_path / "copy.onnx").read_bytes() == bytes(damaged)


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def test_a_model_above_2_gib_in_one_file_is_read_and_cut(tmp_path):
    small = proto()
    graph = small.graph.SerializeToString()
    size = (1 << 31) + 4096
    head = TensorProto(name="huge", dims=[size // 4], data_type=1).SerializeToString()
    head += b"\x4a" + varint(size)  # raw_data
    tensor = b"\x2a" + varint(len(head) + size) + head  # initializer
    small.ClearField("graph")
    start = small.SerializeToString() + b"\x3a" + varint(len(graph) + len(tensor) + size) + graph
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.write(start + tensor)
        file.truncate(len(start) + len(tensor) + size)  # a hole: it takes no disk

    model = load(tmp_path / "huge.onnx")
    part = Extract((), ("m",)).apply(model).model
    save(part, tmp_path / "part.onnx")

    assert [t.name for t in model.proto.graph.initializer] == ["w", "b", "huge"]
    outputs = run_model(load(tmp_path / "part.onnx"), {"x": X})
    assert np.allclose(outputs["m"], X @ WEIGHT)


def test_weights_are_copied_where_the_kernel_copies_no_ranges(tmp_path, monkeypatch):
    """As on macOS, whose Python has no `copy_file_range`."""
    monkeypatch.delattr(os, "copy_file_range")
    weight = np.arange(1 << 16, dtype=np.float32)
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(weight, "w")])
    where = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx", **where)

    save(load(tmp_path / "m.onnx"), tmp_path / "n.onnx")

    copied = onnx.load(tmp_path / "n.onnx").graph.initializer[0]
    assert np.array_equal(numpy_helper.to_array(copied), weight)
