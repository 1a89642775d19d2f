"""After every verb a semantic diff against the original shows exactly the edit, whatever else the model carries."""

import onnx
import pytest
from onnx import TensorProto, helper
from verbs import LOSSLESS

from onnxsurgeon_lite import Model
from onnxsurgeon_lite.matching.diff import Change, ModelDiff, diff, edit_diff, models
from onnxsurgeon_lite.matching.diff.trimming import trim
from onnxsurgeon_lite.passes import Fold

TEXT = """
<ir_version: 10, opset_import: ["" : 18, "local" : 1], producer_name: "maker", producer_version: "1",
 domain: "some.where", model_version: 7, doc_string: "of the model", metadata_props: ["key" : "value"]>
g (float[N,4] x) => (float[N,4] y, float[N,4] z)
<float[4] w = {1,2,3,4}, float[4] same = {1,2,3,4}, float[4] twin = {1,2,3,4},
 float[N,4] a, float[N,4] b, float[N,4] c, float[N,4] d> {
    [add] a = Add(x, w)
    [scale] b = LeakyRelu<alpha = 0.5>(a)
    [call] c = local.twice(b)
    [again] e = local.twice(c)
    [dead] nothing = Add(x, twin)
    ["/part/sparse"] d = Add(e, s)
    ["/part/last"] y = Relu(d)
    [other] z = Add(b, same)
}
<domain: "local", opset_import: ["" : 18], overload: "one">
twice (p) => (q) { q = Add(p, p) }
<domain: "local", opset_import: ["" : 18], overload: "two">
twice (p) => (q) { half = Abs(p) q = Sub(p, half) }
"""
UNKNOWN = b"\xba\x3e\x03abc"  # field 999


def shuffled() -> Model:
    model = rich()
    nodes = list(model.proto.graph.node)
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(reversed(nodes))
    return model


def redundant() -> Model:
    """A rich model with nodes that can go."""
    model = rich()
    graph = model.proto.graph
    more = onnx.parser.parse_graph("""more (float[N,4] b) => (float[N,4] r) {
        [const] k = Add(same, same)
        [times] t = Mul(b, k)
        [idle] i = Identity(t)
        [one] j = Neg(i)
        [other] l = Neg(i)
        [sum] r = Add(j, l)
    }""")
    graph.node.extend(more.node)
    graph.output.extend(more.output)
    return model


def opened() -> Model:
    """A rich model with an input that has a default."""
    model = rich()
    kind = onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    model.proto.graph.input.add(name="same", type=kind)
    return model


def model_for(verb: str) -> Model:
    if verb in ("fold", "cse", "skip-noops", "infer", "simplify"):
        return redundant()
    if verb == "remove-input":
        return opened()
    if verb == "dequantize":
        return quantized()
    return shuffled() if verb in ("sort", "fix") else rich()


def quantized() -> Model:
    """The same, with a pair of quantizers before a node."""
    model = rich()
    graph = model.proto.graph
    last = graph.node[-1]
    pair = [("QuantizeLinear", last.input[0], "q"), ("DequantizeLinear", "q", "dq")]
    nodes = [helper.make_node(op, [name, "qs", "qz"], [made]) for op, name, made in pair]
    last.input[0] = "dq"
    graph.initializer.append(helper.make_tensor("qs", TensorProto.FLOAT, [], [0.5]))
    graph.initializer.append(helper.make_tensor("qz", TensorProto.INT8, [], [0]))
    kept = [*list(graph.node)[:-1], *nodes, last]
    model.proto.graph.ClearField("node")
    graph.node.extend(kept)
    return model


def rich() -> Model:
    """A model with everything that tools lose."""
    proto = onnx.parser.parse_model(TEXT)
    graph = proto.graph
    graph.node[2].overload, graph.node[3].overload = "one", "two"
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [5.0])
    indices = helper.make_tensor("at", TensorProto.INT64, [1], [2])
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    annotation = graph.quantization_annotation.add(tensor_name="c")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    training = proto.training_info.add()
    training.algorithm.name = "step"
    training.algorithm.node.append(helper.make_node("Neg", ["w"], ["new"]))
    training.update_binding.add(key="w", value="new")
    graph.node[1].attribute[0].doc_string = "of the attribute"
    for number, message in enumerate((*graph.node, *graph.value_info, *graph.input, *graph.output,
                                      *graph.initializer, graph, *proto.functions)):  # fmt: skip
        message.doc_string = f"doc {number}"
        message.metadata_props.add(key="number", value=str(number))
        message.MergeFromString(UNKNOWN)
    twin = graph.initializer[2]
    twin.CopyFrom(graph.initializer[1])
    twin.name = "twin"
    proto.MergeFromString(UNKNOWN)
    onnx.checker.check_model(proto)
    return Model(proto)


def lines(found: ModelDiff) -> list[str]:
    """Each difference as `status kind subject: what before -> after`."""
    shown = [
        (f"{d.status} {d.kind} {d.subject}", map(change, d.changes)) for d in found.differences
    ]
    return [f"{what}: {'; '.join(changes)}" for what, changes in shown]


def change(one: Change) -> str:
    return f"{one.what} {one.before} -> {one.after}" if one.before or one.after else one.what


@pytest.mark.parametrize(
    ("step", "expected", "added"), LOSSLESS, ids=lambda value: getattr(value, "name", "")
)
def test_the_difference_is_exactly_the_edit(step, expected, added, monkeypatch):
    model = model_for(step.name)

    result = step.apply(model)
    onnx.checker.check_model(result.model.proto)
    found = lines(diff(model, result.model))

    assert result.changed
    new = [line for line in found if line.startswith("added node")]
    assert sorted(line for line in found if line not in new) == sorted(expected)
    assert len(new) == added


@pytest.mark.parametrize("step", [step for step, *_ in LOSSLESS], ids=lambda step: step.name)
def test_the_difference_of_a_large_model_is_found_around_the_edit(step, monkeypatch):
    model = model_for(step.name)
    del model.proto.training_info[:]
    result = step.apply(model).model
    whole = diff(model, result)

    monkeypatch.setattr(models, "_SMALL", 0)
    found = edit_diff(model, result)

    assert found is not None
    assert sorted(lines(found)) == sorted(lines(whole))
    assert found.notes == whole.notes


def test_of_the_many_readers_of_a_folded_value_few_are_looked_at():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> '
        "many (float[4] x) => (float[4] y) <float[4] one = {1,1,1,1}> {two = Mul(one, one)}"
    )
    values = ["x", *(f"v{number}" for number in range(3000)), "y"]
    for before, after in zip(values, values[1:], strict=False):
        model.graph.node.append(helper.make_node("Add", [before, "two"], [after]))
    before = Model(model)

    after = Fold().apply(before).model
    found, trimmed = edit_diff(before, after), trim(before, after)
    assert found is not None
    assert lines(found) == lines(diff(before, after))
    assert trimmed is not None
    assert len(trimmed.pairs) < 100
