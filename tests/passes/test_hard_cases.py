"""The models on which other tools fail or lose something: saved, cut and exposed, they lose nothing."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper, parser

from kit.graphs import run
from onnxsurgeon_lite import (
    Clean,
    Dedupe,
    Expose,
    Extract,
    Fix,
    Inline,
    Opset,
    Pipeline,
    Rename,
    Script,
    SetOp,
    Sort,
    load,
    save,
)
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.index import GraphIndex

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1, "my.domain" : 1]>\n'
BIG = np.linspace(-1, 1, 1024, dtype=np.float32).reshape(4, 256)  # 4 KiB: stays on disk
X = np.array([[0.5, -1.0, 2.0, 0.25]], np.float32)


def text(graph: str, *functions: str) -> ModelProto:
    model = parser.parse_model(HEADER + graph + "\n".join(functions))
    model.graph.initializer.append(numpy_helper.from_array(BIG, "big"))
    return model


def body(inner: str, outer: str = "") -> ModelProto:
    """x -> Relu -> (the hard thing: `h` to `t`) -> MatMul with a large weight -> y"""
    return text(
        f"""
        hard (float[1,4] x) => (float[1,256] y) {{
            h = Relu(x)
            {inner}
            m = Neg(t)
            y = MatMul(m, big)
        }}""",
        outer,
    )


def captured_if() -> ModelProto:
    model = body("""
        two = Constant<value = float {2.0}>()
        u = Mul(h, two)
        zero = Constant<value = float {0.0}>()
        s = ReduceSum<keepdims = 0>(h)
        cond = Greater(s, zero)
        t = If(cond) <
            then_branch = yes () => (float[1,4] q) { q = Add(u, w) },
            else_branch = no () => (float[1,4] q) { q = Sub(u, w) }
        >""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "w"))
    return model


def loop(condition: str) -> ModelProto:
    return body(f"""
        trips = Constant<value = int64 {{3}}>()
        true = Constant<value = bool {{1}}>()
        t = Loop(trips, {condition}, h) <
            body = step (int64 i, bool c, float[1,4] a) => (bool go, float[1,4] b) {{
                go = Identity(c)
                b = Add(a, h)
            }}
        >""")


def function() -> ModelProto:
    return body(
        "t = local.twice(h)",
        '<domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }',
    )


def overloads() -> ModelProto:
    model = body("f1 = local.twice(h)\n t = local.twice(f1)")
    for overload, op_type in (("one", "Add"), ("two", "Mul")):
        model.functions.append(
            helper.make_function(
                "local",
                "twice",
                ["a"],
                ["b"],
                [helper.make_node(op_type, ["a", "a"], ["b"])],
                [helper.make_opsetid("", 21)],
                overload=overload,
            )
        )
    calls = [node for node in model.graph.node if node.op_type == "twice"]
    calls[0].overload, calls[1].overload = "one", "two"
    return model


def omitted_output() -> ModelProto:
    model = body("s0, t0 = Split<axis = 1, num_outputs = 2>(h)\n t = Concat<axis = 1>(s0, t0)")
    model.graph.node.insert(1, helper.make_node("Dropout", ["h"], ["d", ""]))
    model.graph.node[2].input[0] = "d"
    return model


def sparse() -> ModelProto:
    model = body("t = Add(h, sp)")
    values = numpy_helper.from_array(np.array([3.0, 4.0], np.float32), "sp")
    indices = numpy_helper.from_array(np.array([0, 2], np.int64), "sp_indices")
    model.graph.sparse_initializer.append(
        SparseTensorProto(values=values, indices=indices, dims=[1, 4])
    )
    return model


def dequantized(dtype: np.dtype) -> ModelProto:
    model = body("w = DequantizeLinear(q, scale)\n t = Add(h, w)")
    numbers = np.array([[1, -1, 0, 1]]).astype(dtype)
    model.graph.initializer.append(numpy_helper.from_array(numbers, "q"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "scale"))
    if np.dtype(dtype).name == "int2":
        model.opset_import[0].version = 25
        model.ir_version = 13
    if np.dtype(dtype).name == "float4_e2m1fn":
        model.opset_import[0].version = 23
        model.ir_version = 11
    return model


def bfloat16() -> ModelProto:
    model = body("w = Cast<to = 1>(q)\n t = Add(h, w)")
    numbers = np.array([[1, -1, 0, 1]]).astype(ml_dtypes.bfloat16)
    model.graph.initializer.append(numpy_helper.from_array(numbers, "q"))
    return model


def documented() -> ModelProto:
    model = body("t = Abs(h)")
    model.producer_name, model.producer_version, model.domain = "someone", "1.2", "org.example"
    model.model_version, model.doc_string = 7, "a model"
    model.metadata_props.add(key="owner", value="me")
    model.graph.doc_string = "a graph"
    model.graph.metadata_props.add(key="part", value="all")
    for node in model.graph.node:
        node.doc_string = "a node"
        node.metadata_props.add(key="scope", value="layer.4")
    model.graph.input[0].doc_string = "an input"
    info = helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 4], "a value")
    info.metadata_props.add(key="range", value="0..1")
    model.graph.value_info.append(info)
    return model


def annotated() -> ModelProto:
    model = body("t = Abs(h)")
    annotation = model.graph.quantization_annotation.add(tensor_name="t")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="t_scale")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "t_scale"))
    return model


def defaulted() -> ModelProto:
    model = body("t = Add(h, w)")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "w"))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 4]))
    return model


def initializer_output() -> ModelProto:
    model = body("t = Add(h, w)")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "w"))
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 4]))
    return model


SEQUENCE = """
    s = SequenceConstruct(h, h)
    zero = Constant<value = int64 {0}>()
    t = SequenceAt(s, zero)"""

CASES = {
    "If bodies with captured values": captured_if,
    "Loop without a condition": lambda: loop(""),
    "Loop with a condition": lambda: loop("true"),
    "local function": function,
    "two overloads of a function": overloads,
    "omitted optional input": lambda: body(
        "six = Constant<value = float {6.0}>()\n t = Clip(h, , six)"
    ),
    "omitted optional output": omitted_output,
    "sparse initializer": sparse,
    "int4 weight": lambda: dequantized(ml_dtypes.int4),
    "int2 weight": lambda: dequantized(ml_dtypes.int2),
    "float8e4m3fn weight": lambda: dequantized(ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz weight": lambda: dequantized(ml_dtypes.float8_e4m3fnuz),
    "float4e2m1 weight": lambda: dequantized(ml_dtypes.float4_e2m1fn),
    "bfloat16 weight": bfloat16,
    "metadata, doc strings": documented,
    "unknown custom operator": lambda: body("t = my.domain.Thing(h)"),
    "quantization annotation": annotated,
    "sequence": lambda: body(SEQUENCE),
    "initializer that is an input": defaulted,
    "initializer that is an output": initializer_output,
    "external data": lambda: body("t = Abs(h)"),
}
NOT_RUN = {"unknown custom operator", "float4e2m1 weight"}  # the CPU provider has neither


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """(name, the model on disk, as a plain proto)."""
    proto = CASES[request.param]()
    path = tmp_path / "hard.onnx"
    external = request.param == "external data"
    onnx.save(proto, path, save_as_external_data=external, location="hard.data", size_threshold=0)
    return request.param, path, CASES[request.param]()


def outputs_of(runtime, path, feeds=None) -> dict:
    return run(runtime, load(path), feeds or {"x": X})


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def test_saving_loses_nothing(case, tmp_path, runtime):
    name, path, proto = case
    edited = load(path)
    edited.proto.graph.name = "edited"
    proto.graph.name = "edited"

    save(load(path), tmp_path / "same.onnx")
    for external in (True, False):
        save(edited, tmp_path / "edited.onnx", external)

        assert load(tmp_path / "edited.onnx").materialize() == filled(proto)
        if name not in NOT_RUN:
            assert same(outputs_of(runtime, tmp_path / "edited.onnx"), outputs_of(runtime, path))
    assert check(load(tmp_path / "edited.onnx")).valid
    assert (tmp_path / "same.onnx").read_bytes() == path.read_bytes()


def filled(proto: ModelProto) -> ModelProto:
    """Payloads as raw bytes, however they were written."""
    from onnxsurgeon_lite.model import Model

    plain = ModelProto()
    plain.CopyFrom(Model(proto).materialize())
    return plain


def test_the_hard_thing_survives_a_cut(case, tmp_path, runtime):
    name, path, proto = case

    result = Extract(("h",), ("m",), auto_inputs=True).apply(load(path))
    save(result.model, tmp_path / "part.onnx")
    part = load(tmp_path / "part.onnx")

    assert check(part).valid or name == "unknown custom operator"  # it alone knows its types
    kept = part.proto
    assert (kept.ir_version, kept.opset_import) == (proto.ir_version, proto.opset_import)
    for field in ("producer_name", "domain", "model_version", "doc_string", "metadata_props"):
        assert getattr(kept, field) == getattr(proto, field)
    assert kept.graph.doc_string == proto.graph.doc_string
    assert kept.graph.metadata_props == proto.graph.metadata_props
    assert kept.functions == proto.functions
    assert kept.graph.sparse_initializer == proto.graph.sparse_initializer
    assert kept.graph.quantization_annotation == proto.graph.quantization_annotation
    originals = {node.output[0]: node for node in proto.graph.node}
    assert all(node == originals[node.output[0]] for node in kept.graph.node)
    infos = {info.name: info for info in proto.graph.value_info}
    assert all(info == infos[info.name] for info in kept.graph.value_info if info.name in infos)
    weights = {t.name: t for t in filled(proto).graph.initializer}
    assert all(t == weights[t.name] for t in part.materialize().graph.initializer)
    if name not in NOT_RUN:
        whole = Expose(("h", "m")).apply(load(path)).model
        values = run(runtime, whole, {"x": X})
        feeds = {i.name: values["h"] for i in kept.graph.input if i.name == "h"}
        assert np.array_equal(run(runtime, part, feeds)["m"], values["m"])


def test_exposing_changes_nothing_else(case, tmp_path, runtime):
    name, path, proto = case

    exposed = Expose(("h", "m")).apply(load(path)).model
    save(exposed, tmp_path / "exposed.onnx")

    outputs = load(tmp_path / "exposed.onnx").proto.graph.output
    untyped = {info.name for info in outputs if not info.HasField("type")}
    assert untyped == ({"m"} if name == "unknown custom operator" else set())
    assert untyped or check(load(tmp_path / "exposed.onnx")).valid
    remaining = load(tmp_path / "exposed.onnx").proto.graph
    assert [n.SerializeToString() for n in remaining.node] == [
        n.SerializeToString() for n in load(path).proto.graph.node
    ]
    if name not in NOT_RUN:
        values = outputs_of(runtime, tmp_path / "exposed.onnx")
        assert same({n: values[n] for n in outputs_of(runtime, path)}, outputs_of(runtime, path))


def test_what_cannot_be_run_is_refused_by_the_runtime(tmp_path, runtime):
    for name in NOT_RUN:
        onnx.save(CASES[name](), tmp_path / "hard.onnx")

        with pytest.raises(RuntimeFailure):
            outputs_of(runtime, tmp_path / "hard.onnx")


def test_captured_weights_are_not_copied_into_bodies(tmp_path):
    onnx.save(captured_if(), tmp_path / "if.onnx")

    part = Extract(("h",), ("t",)).apply(load(tmp_path / "if.onnx")).model

    branches = [
        a.g for n in part.proto.graph.node for a in n.attribute if a.name.endswith("branch")
    ]
    assert len(branches) == 2
    assert not any(branch.initializer for branch in branches)
    assert "w" in GraphIndex.of(part).initializers


def test_unknown_fields_survive_an_edit(tmp_path):
    model = body("t = Abs(h)")
    unknown = b"\xfa\x3f\x03new"  # field 1023, which no onnx.proto has
    graph = ModelProto()
    graph.CopyFrom(model)
    graph.graph.MergeFromString(unknown)
    graph.graph.node[1].MergeFromString(unknown)
    graph.MergeFromString(unknown)
    (tmp_path / "new.onnx").write_bytes(graph.SerializeToString())

    result = Extract(("h",), ("m",)).apply(load(tmp_path / "new.onnx")).model
    save(result, tmp_path / "part.onnx")

    assert (tmp_path / "part.onnx").read_bytes().count(unknown) == 3


@pytest.mark.parametrize("step", [Sort(), Fix(), Dedupe(), Clean()], ids=lambda step: step.name)
def test_an_edit_that_finds_nothing_to_do_gives_the_model_itself(case, step):
    name, path, _ = case
    if (name, step.name) == ("Loop without a condition", "clean"):
        pytest.skip("its condition is there and not used")
    model = load(path)

    result = step.apply(model)

    assert not result.changed
    assert result.model is model


def test_renaming_and_back_loses_nothing(case, tmp_path, runtime):
    name, path, _ = case
    there = Rename((("*", "prefix/*"),)).apply(load(path)).model
    save(there, tmp_path / "renamed.onnx")

    back = Rename((("prefix/*", "*"),)).apply(load(tmp_path / "renamed.onnx")).model
    save(back, tmp_path / "back.onnx")

    assert load(tmp_path / "back.onnx").materialize() == filled(load(path).materialize())
    if name not in NOT_RUN:
        renamed = outputs_of(runtime, tmp_path / "renamed.onnx", {"prefix/x": X})
        assert np.array_equal(renamed["prefix/y"], outputs_of(runtime, path)["y"])


def test_converting_the_opset_changes_nothing_else(case, tmp_path):
    name, path, _ = case
    model = load(path)
    version = model.proto.opset_import[0].version + 1
    if "weight" in name and version > 22:
        pytest.skip("the converter does not know the dtype")

    converted = Opset(version).apply(model).model

    expected = model.copy().proto
    expected.opset_import[0].version = version
    expected.ir_version = converted.proto.ir_version
    assert converted.proto == expected


def test_inlining_leaves_no_function_and_computes_the_same(case, tmp_path, runtime):
    name, path, _ = case
    result = Inline().apply(load(path))
    save(result.model, tmp_path / "inlined.onnx")

    assert result.changed == ("function" in name)
    assert not result.model.proto.functions
    if name not in NOT_RUN:
        assert same(outputs_of(runtime, tmp_path / "inlined.onnx"), outputs_of(runtime, path))


def test_a_script_that_does_nothing_changes_nothing(case):
    _, path, _ = case
    model = load(path)

    result = Script(lambda graph: None).apply(model)

    assert not result.changed
    assert result.model is model


def test_a_script_changes_only_what_it_touches(case, tmp_path):
    name, path, _ = case

    def edit(graph):
        node = next(node for node in graph.nodes if node.op == "Neg")
        node.op = "Identity"
        graph.inputs[0].name = "input"

    result = Script(edit).apply(load(path))
    save(result.model, tmp_path / "script.onnx")

    expected = Pipeline((Rename((("x", "input"),)), SetOp(("op:Neg[0]",), "Identity")))
    assert load(tmp_path / "script.onnx").materialize() == filled(
        expected.apply(load(path)).model.materialize()
    )
