"""Data in several files, and in those of safetensors: the model and other libraries read the same numbers there."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.runtime.session import run_model

RNG = np.random.default_rng(0)
WEIGHTS = {
    "odd": RNG.integers(0, 99, (1, 2049)).astype(np.uint8),
    "w": RNG.normal(size=(16, 512)).astype(np.float32),
    "v": RNG.normal(size=(512, 16)).astype(np.float32),
    "b": RNG.normal(size=(16,)).astype(np.float32),
}
X = np.ones((1, 16), np.float32)


@pytest.fixture
def path(tmp_path):
    graph = onnx.parser.parse_graph("""g (float[1,16] x) => (float[1,16] y, uint8[1,2049] o) {
        m = MatMul(x, w) n = MatMul(m, v) y = Add(n, b) o = Identity(odd)
    }""")
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in WEIGHTS.items())
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=10), path)
    return path


@pytest.mark.parametrize("most", [0, "40KB", 1])
def test_safetensors_hold_what_the_model_reads(path, most, tmp_path):
    before = run_model(osl.load(path), {"x": X})

    written = osl.data.external(path, tmp_path / "m.onnx", "m.safetensors", max_shard=most)

    names = [file.name for file in written.data_files]
    count = {0: 1, "40KB": 2, 1: 3}[most]
    assert names == (
        ["m.safetensors"]
        if count == 1
        else [f"m-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)]
    )
    held = {n: a for file in written.data_files for n, a in load_file(file).items()}
    assert held.keys() == {"w", "v", "odd"}
    assert all(np.array_equal(array, WEIGHTS[name]) for name, array in held.items())
    for stored in osl.data.ls(written.path):
        assert stored.offset % WEIGHTS[stored.name].itemsize == 0
    assert all(
        np.array_equal(after, before[name])
        for name, after in run_model(osl.load(written.path), {"x": X}).items()
    )


def test_small_tensors_stay_in_the_model_also_when_they_were_outside(path):
    osl.data.external(path, path, "all.data", force=True)

    osl.data.external(path, path, "large.data", min_size="4KB")

    files = {stored.name: stored.file for stored in osl.data.ls(path)}
    assert files == {"odd": "model.onnx", "w": "large.data", "v": "large.data"}
    assert onnx.load(path).graph.initializer[0].raw_data == WEIGHTS["odd"].tobytes()


def test_shared_bytes_are_in_one_place_and_names_of_bodies_are_no_others(path):
    model = onnx.load(path)
    array = WEIGHTS["w"] + 1
    body = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["inner"])],
        "body",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [1, 512])],
        [numpy_helper.from_array(array, "w")],
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(
        helper.make_node("If", ["yes"], ["z"], then_branch=body, else_branch=body)
    )
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 512]))
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=1024)
    before = run_model(osl.load(path), {"x": X})

    osl.data.external(path, path, "m.safetensors")

    held = load_file(path.with_name("m.safetensors"))
    assert {name.rstrip("_") for name in held} == {"odd", "w", "v"}
    assert sum(np.array_equal(each, array) for each in held.values()) >= 1
    after = run_model(osl.load(path), {"x": X})
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_integers_that_the_format_lacks_are_in_it_as_bytes(tmp_path):
    model = onnx.ModelProto()
    model.CopyFrom(packages.quantized().proto)
    tensor = helper.make_tensor("int4", TensorProto.INT4, [2, 1500], bytes(1500), raw=True)
    model.graph.initializer.append(tensor)

    osl.data.external(model, tmp_path / "m.onnx", "m.safetensors")

    held = load_file(tmp_path / "m.safetensors")
    assert (held["int4"].dtype, held["int4"].shape) == (np.uint8, (1500,))
    again = osl.load(tmp_path / "m.onnx")
    assert again.array(again.proto.graph.initializer[-1]).shape == (2, 1500)


def test_data_goes_into_shards_by_the_command_and_another_file_is_not_replaced(path, tmp_path):
    words = ["data", "external", path, "-o", tmp_path / "m.onnx", "--location", "m.safetensors"]
    words += ["--max-shard", "40KB", "--min-size", "1KB"]
    (tmp_path / "m-00002-of-00002.safetensors").write_text("of somebody else")

    refused = CliRunner().invoke(app, list(map(str, words)))
    done = CliRunner().invoke(app, [*map(str, words), "--force"])

    assert refused.exit_code == 2
    assert "m-00002-of-00002.safetensors' already exists" in refused.stderr
    assert done.exit_code == 0, done.output
    assert "m-00001-of-00002.safetensors" in done.stdout
