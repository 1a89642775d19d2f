"""After every verb a semantic diff against the original shows exactly the edit, whatever else the model carries."""

import onnx
import pytest
from onnx import TensorProto, helper

from onnxsurgeon_lite import PASSES, Model, diff
from onnxsurgeon_lite.matching.diff import Change, ModelDiff, edit_diff, models
from onnxsurgeon_lite.passes import (
    BatchOutputs,
    Clean,
    Dedupe,
    Expose,
    Extract,
    Fix,
    Freeze,
    Inline,
    Insert,
    NameOutputs,
    Opset,
    Outline,
    PadOutputs,
    Promote,
    Rebatch,
    Remove,
    Rename,
    Replace,
    Rewire,
    Script,
    SetAttr,
    SetConstant,
    SetOp,
    SetShape,
    Sort,
)

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


def by_script(graph) -> None:
    graph.nodes[6].op = "Abs"


N, FIXED = "float [N, 4]", "float [3, 4]"
RESIZED = [f"changed {kind} '{name}': type {N} -> {FIXED}"
           for kind, names in (("input", "x"), ("output", "yz"), ("value", "abcd")) for name in names]  # fmt: skip
CALLS = [
    "removed node twice 'call' (@2): reads 'b'; makes 'c'",
    "removed node twice 'again' (@3): reads 'c'; makes 'e'",
]
FUNCTIONS = ["removed function 'local::twice::one': ", "removed function 'local::twice::two': "]
DEAD = "removed node Add 'dead' (@4): reads 'x', 'twin'; makes 'nothing'"
TWIN = "removed initializer 'twin' (float [4]): "
SPARSE = "removed node Add '/part/sparse' (@5): reads 'e', 's'; makes 'd'"
LAST = "removed node Relu '/part/last' (@6): reads 'd'; makes 'y'"
LOST = "doc string doc 6 -> ; metadata 'number' '6' -> ; fields unknown to this onnx version"

EDITS = [  # the step, the differences; nodes that it adds are counted
    (Expose(("a",)), [f"added output 'a' ({N}): "], 0),
    (Extract((), ("z",)), [
        *CALLS, DEAD, SPARSE, LAST, f"removed output 'y' ({N}): ", "removed initializer 's' (sparse [4]): ", TWIN,
        "changed metadata quantization annotation of 'c': parameter 'SCALE_TENSOR' 'w' -> ", *FUNCTIONS], 0),
    (Rename((("a", "b"), ("b", "a"), ("w", "weight"))), [], 0),
    (Remove(("scale",)), ["removed node LeakyRelu 'scale' (@1): reads 'a'; makes 'b'"], 0),
    (Insert("a", "Abs"), [], 1),
    (Rewire("a", "x", ("scale",)), ["changed node LeakyRelu 'scale' (@1): input 0 'a' -> 'x'"], 0),
    (SetOp(("/part/last",), "Abs"), ["changed node Relu '/part/last' (@6): operator Relu -> Abs"], 0),
    (SetAttr(("scale",), (("alpha", 0.25),)), ["changed node LeakyRelu 'scale' (@1): attribute alpha 0.5 -> 0.25"], 0),
    (SetConstant("w", 0), ["changed initializer 'w' (float [4]): 4 of 4 elements differ, max abs 4"], 0),
    (Promote(("same",)), ["changed initializer 'same': kind initializer -> input"], 0),
    (Freeze((("x", [[1, 2, 3, 4]]),)), [
        "changed initializer 'x': kind input -> initializer",
        *(line.replace("3, 4", "1, 4") for line in RESIZED[3:])], 0),
    (SetShape({"x": (3, 4)}), RESIZED, 0),
    (Rebatch(3), RESIZED, 0),
    (PadOutputs(3), [*RESIZED[1:3], "added output 'num_detections' (int64 [1]): "], 21),
    (BatchOutputs(5, {"both": ("y", "z")}), [
        f"removed output 'y' ({N}): ", f"removed output 'z' ({N}): ",
        "added output 'both' (float [2, 5, 4]): ", "added output 'num_detections' (int64 [2]): "], 34),
    (NameOutputs(("first", "second")), [], 0),
    (Dedupe(), [TWIN], 0),
    (Inline(), [*CALLS, *FUNCTIONS], 3),
    (Opset(19), ["changed opset ai.onnx: version 18 -> 19"], 0),
    (Script(by_script), ["changed node Relu '/part/last' (@6): operator Relu -> Abs"], 0),
    (Replace(("d",), ("y",), "Abs"), [f"changed node Relu '/part/last' (@6): operator Relu -> Abs; {LOST}"], 0),
    (Outline("part"), [
        "changed node Add '/part/sparse' (@5): operator Add -> local::part; "
        + LOST.replace("6", "5"), LAST, "added function 'local::part': "], 0),
    (Clean(), [DEAD, TWIN], 0),
    (Sort(), [], 0),
    (Fix(), [], 0),
]  # fmt: skip


def test_there_is_a_case_for_every_pass():
    assert {step.name for step, *_ in EDITS} == set(PASSES)


@pytest.mark.parametrize(
    ("step", "expected", "added"), EDITS, ids=lambda value: getattr(value, "name", "")
)
def test_the_difference_is_exactly_the_edit(step, expected, added, monkeypatch):
    model = shuffled() if step.name in ("sort", "fix") else rich()

    result = step.apply(model)
    onnx.checker.check_model(result.model.proto)
    found = lines(diff(model, result.model))

    assert result.changed
    new = [line for line in found if line.startswith("added node")]
    assert sorted(line for line in found if line not in new) == sorted(expected)
    assert len(new) == added


@pytest.mark.parametrize("step", [step for step, *_ in EDITS], ids=lambda step: step.name)
def test_the_difference_of_a_large_model_is_found_around_the_edit(step, monkeypatch):
    model = shuffled() if step.name in ("sort", "fix") else rich()
    del model.proto.training_info[:]
    result = step.apply(model).model
    whole = diff(model, result)

    monkeypatch.setattr(models, "_SMALL", 0)
    found = edit_diff(model, result)

    assert found is not None
    assert sorted(lines(found)) == sorted(lines(whole))
    assert found.notes == whole.notes
