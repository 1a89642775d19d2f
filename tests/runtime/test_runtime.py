"""Values on their way between the runtime's process and this one."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxsurgeon_lite import Model, load
from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.errors import RuntimeFailure, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime import memory
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions

EVERY_KIND = """
    kinds (float[N] x, string[2] text) =>
        (float[N] y, string[2] same_text, int4[N] packed, seq(float[N]) both, float[0] nothing)
    <float one = {1.0}, int4 zero = {0}> {
        y = Neg(x)
        same_text = Identity(text)
        packed = QuantizeLinear(y, one, zero)
        both = SequenceConstruct(x, y)
        nothing = Constant<value = float[0] {}>()
    }
"""


def fetched(model):
    feeds = {
        "x": np.arange(5, dtype=np.float32),
        "text": np.array(["a", "ß"], dtype=object),
    }
    with Runtime() as runtime:
        runtime.open(model)
        for name, value in feeds.items():
            runtime.put(name, value)
        return runtime.run(list(feeds), [o.name for o in model.proto.graph.output]).values


def test_values_come_through_memory_and_through_the_socket_alike(model_of, monkeypatch):
    model = model_of(EVERY_KIND)
    through_memory = fetched(model)
    refused = []
    monkeypatch.setattr(memory, "read_memory", lambda *place: bool(refused.append(place)))
    through_socket = fetched(model)

    assert len(refused) == 5
    assert through_memory["y"].tolist() == [0, -1, -2, -3, -4]
    assert through_memory["same_text"].tolist() == ["a", "ß"]
    assert through_memory["packed"].tolist() == [0, -1, -2, -3, -4]
    assert [element.tolist() for element in through_memory["both"]] == [
        [0, 1, 2, 3, 4],
        [0, -1, -2, -3, -4],
    ]
    assert through_memory["nothing"].shape == (0,)
    for name, value in through_memory.items():
        np.testing.assert_array_equal(through_socket[name], value)


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux reads a child's memory")
def test_memory_is_read_where_the_system_gives_it(model_of, monkeypatch):
    answers = []

    def remember(*place):
        answers.append(read_memory(*place))
        return answers[-1]

    read_memory = memory.read_memory
    monkeypatch.setattr(memory, "read_memory", remember)
    fetched(model_of(EVERY_KIND))
    assert answers == [True] * 5


@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux lets go of mapped pages")
def test_a_session_is_let_go_of_where_another_process_needs_the_memory(model_of):
    with Runtime() as runtime:
        runtime.open(model_of("net (float[2] x) => (float[2] y) { y = Neg(x) }"))
        runtime.put("x", np.ones(2, np.float32))
        assert runtime.run(["x"], ["y"]).values["y"].tolist() == [-1, -1]

        runtime.forget((), session=True)

        with pytest.raises(RuntimeFailure, match="no session is open"):
            runtime.run(["x"], ["y"])


@pytest.mark.parametrize("lean", [True, False])
def test_a_product_with_packed_integers_takes_no_more_memory_than_they_do(lean):
    """And rounds what it multiplies only in the sessions that users have."""
    k, n, rng = 1024, 65536, np.random.default_rng(0)
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    net (float[1,{k}] x) => (float[1,{n}] y) {{
        y = com.microsoft.MatMulNBits <K = {k}, N = {n}, bits = 4, block_size = 32, accuracy_level = 4> (x, w, s) }}"""
    model = onnx.parser.parse_model(text)
    codes = rng.integers(0, 256, (n, k // 32, 16), np.uint8)
    arrays = {"w": codes, "s": np.full((n, k // 32), 0.01, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, m) for m, a in arrays.items())
    x = rng.standard_normal((1, k)).astype(np.float32)
    row = np.stack([codes[7] & 15, codes[7] >> 4], -1).reshape(-1).astype(np.float64) - 8

    with Child() as process, Runtime(RuntimeOptions(lean=lean), process) as runtime:
        runtime.open(Model(model))
        runtime.put("x", x)
        made = runtime.run(["x"], ["y"]).values["y"]
        peak = peak_bytes(process._process.pid)

    assert peak < 4 * k * n  # of the weight as float32
    if lean:
        np.testing.assert_allclose(made[0, 7], float(x[0] @ row) * 0.01, rtol=1e-4)


def test_weights_that_were_passed_do_not_stay_in_memory(tmp_path):
    side, blocks = 4096, 8
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> deep (float[1,{side}] x0) => (float[1,{side}] x{blocks}) {{'
        + "\n".join(f"x{i + 1} = MatMul(x{i}, w{i})" for i in range(blocks))
        + "}"
    )
    size = 4 * side * side
    with (tmp_path / "weights").open("wb") as file:
        for i in range(blocks):
            file.seek(i * size)
            file.write(np.float32(2).tobytes())  # the other elements are a hole in the file: zeros
        file.truncate(blocks * size)
    for i in range(blocks):
        weight = model.graph.initializer.add(name=f"w{i}", dims=[side, side], data_type=1)
        weight.data_location = onnx.TensorProto.EXTERNAL
        place = {"location": "weights", "offset": str(i * size), "length": str(size)}
        for key, value in place.items():
            weight.external_data.add(key=key, value=value)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())

    with Child() as process, Runtime(RuntimeOptions(lean=True), process) as runtime:
        runtime.open(load(tmp_path / "model.onnx"))
        runtime.put("x0", np.ones((1, side), np.float32))
        result = runtime.run(["x0"], [f"x{blocks}"]).values[f"x{blocks}"]
        peak = peak_bytes(process._process.pid)

    assert result[0, 0] == 2**blocks
    assert not result[0, 1:].any()
    assert peak < 0.8 * blocks * size


def peak_bytes(process):
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])


def test_without_onnxruntime_a_run_says_what_to_install(tmp_path, monkeypatch):
    """As where no package of onnxruntime is installed: `import onnxruntime` raises."""
    lacking = "raise ModuleNotFoundError(\"No module named 'onnxruntime'\", name='onnxruntime')"
    (tmp_path / "onnxruntime.py").write_text(lacking)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with Runtime() as runtime, pytest.raises(UsageError, match="no onnxruntime") as caught:
        runtime.about()

    assert caught.value.hint == (
        "pip install 'onnxsurgeon-lite[cpu]', or one of onnxruntime-gpu, -directml, -openvino, -qnn"
    )


def test_computed_references_keep_their_values_beside_another_search(model_of):
    model = model_of("g (float[4] x) => (float[4] y) { a = Tanh (x) b = Neg (a) y = Add (a, b) }")
    index, feeds = GraphIndex.of(model), {"x": np.float32([1, 2, 3, 4])}
    with Runtime() as runtime, computed_references(index, feeds, runtime) as own:
        own.prefetch(["a"])
        searched = Observer(index, runtime)
        searched.feed(feeds)
        searched.fetch(["a"], keep=["a"])
        searched.forget(["a"])

        assert not np.any(own.entries["y"].read())


@pytest.mark.parametrize("runtime", ["ort", "reference"])
def test_of_several_runs_in_one_request_those_that_fail_are_none(model_of, runtime):
    model = model_of("taken (float[4] x, int64[N] at) => (float[N] y) { y = Gather(x, at) }")
    with Runtime(RuntimeOptions(runtime=runtime)) as session:
        session.open(model)
        session.put("x", np.arange(4, dtype=np.float32))
        for number in (1, 9, 3):  # the second one is out of range
            session.put(f"at{number}", np.array([number]))
        feeds = [{"x": "x", "at": f"at{number}"} for number in (1, 9, 3)]
        first, second, third = session.tries(feeds, ["y"])

    assert first["y"].tolist() == [1]
    assert second is None
    assert third["y"].tolist() == [3]
