"""What is done to a value or node of the main graph is done in branches, loops, scans and functions by its id."""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import parser

import onnxsurgeon_lite as osl
from kit.bodies import X, programs, same
from onnxsurgeon_lite import (
    Extract,
    Insert,
    Model,
    Pipeline,
    Remove,
    Rename,
    Replace,
    Rewire,
    SetAttr,
    SetConstant,
    SetOp,
)
from onnxsurgeon_lite.errors import EditError, SurgeonError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.bodies import graph_at
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import loaded, walk
from onnxsurgeon_lite.passes.restore import Restore
from onnxsurgeon_lite.runtime.run import run

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'
PLACES = (
    HEADER
    + """
g (float[2] x, bool c, int64 n, bool go) => (float[2] y, float[2] z, float[2] s, float[2] f, float[2] d) {
    h = Relu(x)
    other = Exp(x)
    y = If(c) <
        then_branch = yes () => (float[2] o) {
            q = Add(h, k) p = LeakyRelu<alpha = 0.5>(q) o = Clip(p, , top)
        },
        else_branch = no () => (float[2] e) { e = Neg(h) }
    >
    z = Loop(n, go, x) <body = b (int64 i, bool on, float[2] a) => (bool next, float[2] o) {
        next = Identity(on) q = Add(a, k) p = LeakyRelu<alpha = 0.5>(q) o = Clip(p, , top)
    }>
    rows = Unsqueeze(x, zero)
    s = Scan<num_scan_inputs = 1, body = sc (float[2] a, float[2] row) => (float[2] o) {
        q = Add(a, row) p = LeakyRelu<alpha = 0.5>(q) o = Clip(p, , top)
    }>(x, rows)
    f = local.part(x, other)
    d = Loop(n, go, x) <body = b (int64 i, bool on, float[2] a) => (bool next, float[2] w) {
        next = Identity(on)
        w = If(on) <
            then_branch = yes () => (float[2] o) {
                q = Add(a, h) p = LeakyRelu<alpha = 0.5>(q) o = Clip(p, , top)
            },
            else_branch = no () => (float[2] e) { e = Neg(a) }
        >
    }>
}
<domain: "local", opset_import: ["" : 21]> part (a, k) => (o) {
    q = Add(a, k) p = LeakyRelu<alpha = 0.5>(q) top = Constant<value = float {1.5}>() o = Clip(p, , top)
}"""
)
WEIGHTS = {"k": np.float32([1, -3]), "top": np.float32(1.5), "zero": np.int64([0])}
BODIES = {
    "@2/then_branch": ("y", np.maximum(X, 0) + WEIGHTS["k"]),
    "@3/body": ("z", X + WEIGHTS["k"]),
    "@5/body": ("s", X + X),
    "fn:local::part": ("f", X + np.exp(X)),
    "@7/body/@1/then_branch": ("d", X + np.maximum(X, 0)),
}
"""Each body, the output that it makes, and its sum q."""
FEEDS = {"x": X, "c": np.array(True), "n": np.array(1), "go": np.array(True)}


@pytest.fixture(scope="module")
def places() -> Model:
    """One model that computes the same in a branch, a loop, a scan, a function, and a branch in a loop."""
    proto = parser.parse_model(PLACES)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in WEIGHTS.items())
    return loaded(onnx.shape_inference.infer_shapes(proto, strict_mode=True))


def leaky(q, alpha: float = 0.5):
    return np.where(q < 0, np.float32(alpha) * q, q)


def elu(q):
    return np.where(q < 0, np.expm1(q) / 2, q)


def top(p, limit: float = 1.5):
    return np.minimum(p, np.float32(limit))


HALF = parser.parse_model(HEADER + "m (float[2] a) => (float[2] b) { t = Neg(a) b = Abs(t) }")
EDITS = {
    "rename": (lambda at: Rename(((at("q"), "renamed"), (at("p"), at("q")))), lambda q: top(leaky(q))),
    "rename a node": (lambda at: Rename(((at("op:Clip"), "cut"),), nodes=True), lambda q: top(leaky(q))),
    "rename by a pattern": (lambda at: Rename(((at("*"), "left/*"),)), lambda q: top(leaky(q))),
    "remove": (lambda at: Remove((at("op:LeakyRelu"),)), top),
    "remove the last": (lambda at: Remove((at("op:Clip"),), bridge=at("p")), leaky),
    "insert": (lambda at: Insert(at("q"), "Abs"), lambda q: top(abs(q))),
    "insert a number": (lambda at: Insert(at("q"), "Mul", (at("q"), "2.0")), lambda q: top(leaky(2 * q))),
    "insert for one": (lambda at: Insert(at("p"), "Neg", to=(at("op:Clip"),)), lambda q: top(-leaky(q))),
    "insert at the end": (lambda at: Insert(at("o"), "Neg"), lambda q: -top(leaky(q))),
    "replace": (lambda at: Replace((at("q"),), (at("p"),), "Neg"), lambda q: top(-q)),
    "replace by a model": (lambda at: Replace((at("q"),), (at("p"),), model=loaded(HALF)), lambda q: top(abs(q))),
    "rewire": (lambda at: Rewire(at("p"), at("q")), top),
    "rewire a slot": (lambda at: Rewire(at("p"), at("q"), (at("op:Clip"),), 0), top),
    "rewire to numbers": (lambda at: Rewire(at("p"), "[0.25, 2]"), lambda q: np.float32([0.25, 1.5])),
    "set-op": (lambda at: SetOp((at("op:LeakyRelu"),), "Elu"), lambda q: top(elu(q))),
    "set-attr": (lambda at: SetAttr((at("op:LeakyRelu"),), (("alpha", 0.25),)), lambda q: top(leaky(q, 0.25))),
    "remove an attribute": (lambda at: SetAttr((at("p"),), (), ("alpha",)), lambda q: top(leaky(q, 0.01))),
    "set-constant": (lambda at: SetConstant(at("top"), 0.75), lambda q: top(leaky(q), 0.75)),
}  # fmt: skip
"""Each edit of the body that `at` names things in, and what the body makes of q then."""


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("what", EDITS)
def test_every_verb_edits_the_body_that_its_names_are_in_and_nothing_else(
    what, path, places, runtime
):
    make, computes = EDITS[what]
    output, q = BODIES[path]
    before, computed = places.encoded(), run(GraphIndex.of(places), FEEDS, runtime)
    others = {name: value for name, value in computed.items() if name != output}

    result = make(lambda name: f"{path}/{name}").apply(places)

    assert places.encoded() == before
    onnx.checker.check_model(result.model.proto, full_check=True)
    found = run(GraphIndex.of(result.model), FEEDS, runtime)
    np.testing.assert_allclose(found.pop(output), computes(q), rtol=1e-6)
    same(found, others)
    assert all(path in line for line in result.changes)
    for elsewhere in BODIES.keys() - {path}:
        parts = [graph_at(model.proto, elsewhere) for model in (places, result.model)]
        assert parts[0] == parts[1]


def test_the_names_of_one_edit_can_be_in_several_bodies(places, runtime):
    edit = SetOp(("@0", *(f"{path}/op:LeakyRelu" for path in BODIES)), "Elu")

    result = edit.apply(places)

    found = run(GraphIndex.of(result.model), FEEDS, runtime)
    assert len(result.changes) == 6
    for path in ("@3/body", "@5/body", "fn:local::part"):
        output, q = BODIES[path]
        np.testing.assert_allclose(found[output], top(elu(q)), rtol=1e-6)


def test_a_body_reads_a_value_from_outside_that_it_did_not_read_before(places, runtime):
    result = Rewire("@7/body/@1/then_branch/q", "other").apply(places)

    found = run(GraphIndex.of(result.model), FEEDS, runtime)
    np.testing.assert_allclose(found["d"], top(np.exp(X)), rtol=1e-6)
    before = Insert("h", "Neg", to=("@2/then_branch/op:Add",)).apply(places).model
    found = run(GraphIndex.of(before), FEEDS, runtime)
    np.testing.assert_allclose(found["y"], top(leaky(WEIGHTS["k"] - np.maximum(X, 0))), rtol=1e-6)


def test_a_constant_that_calls_decide_is_no_constant():
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[2] x) => (float[2] y) { y = my.f<a = 2.0>(x) }
    <domain: "my", opset_import: ["": 17]>
    f <a: float = 0.5> (X) => (Y) { k = Constant<value_float: float = @a>() Y = Mul(X, k) }""")

    with pytest.raises(EditError, match="'k' is not a constant") as refused:
        osl.set_constant(model, "fn:my::f/k", 3)

    assert "set-attr" in refused.value.hint


def test_an_attribute_of_a_call_has_the_type_that_its_function_gives_it():
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[2] x) => (float[2] y) { y = my.f(x) }
    <domain: "my", opset_import: ["": 17]>
    f <b, a: float = 0.5> (X) => (Y) {
        k = Constant<value_float: float = @a>() l = Constant<value_float: float = @b>() h = Mul(X, k) Y = Add(h, l)
    }""")

    result = osl.set_attr(model, "@0", {"a": 5, "b": 2}).model.proto

    onnx.checker.check_model(result, full_check=True)
    assert [(a.name, a.f) for a in result.graph.node[0].attribute] == [("a", 5), ("b", 2)]
    with pytest.raises(EditError, match="function 'f' has no attribute 'c'"):
        osl.set_attr(model, "@0", {"c": 5})


def test_a_function_takes_a_default_which_calls_without_the_attribute_use(model_of):
    model = model_of("""
    <ir_version: 10, opset_import: ["": 21, "my": 1]> g (float[2] x) => (float[2] y, float[2] z) {
        y = my.f(x) z = my.f <a = 3.0> (x)
    }
    <domain: "my", opset_import: ["": 21]>
    f <b, a: float = 0.5> (X) => (Y) { Y = LeakyRelu <alpha: float = @a> (X) }""")

    result = osl.set_attr(model, "fn:my::f", {"a": 2, "b": 7})
    back = Restore.undoing(model, result.model).apply(result.model).model
    found = osl.run(result.model, {"x": np.array([-1, 1], np.float32)})

    assert result.changes == (
        "function 'f': default of attribute a = 0.5 -> 2",
        "function 'f': default of attribute b = 7",
    )
    assert (found["y"][0], found["z"][0]) == (-2, -3)
    assert back.proto == model.proto
    with pytest.raises(EditError, match="function 'f' has no attribute 'c'"):
        osl.set_attr(model, "fn:my::f", {"c": 5})


def test_a_default_that_decides_a_type_gives_it_to_what_reads_the_calls(model_of):
    model = model_of("""
    <ir_version: 10, opset_import: ["": 21, "my": 1]> g (float[2] x) => (float[2] y) { h = my.f(x) y = Identity(h) }
    <domain: "my", opset_import: ["": 21]> f <to: int = 1> (X) => (Y) { Y = Cast <to: int = @to> (X) }""")

    result = osl.set_attr(model, "fn:my::f", {"to": onnx.TensorProto.INT32}).model.proto

    assert result.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.INT32
    onnx.checker.check_model(result, full_check=True)


def test_an_edit_that_gives_a_body_another_type_gives_it_to_what_reads_its_node(model_of):
    model = model_of("""
    g (float[2] x, bool c) => (float[2] y) {
        b = If(c) <
            then_branch = yes () => (float[2] o) { o = Neg(x) },
            else_branch = no () => (float[2] e) { e = Abs(x) }
        >
        y = Cast<to = 1>(b)
    }""")
    casts = [Insert(f"@0/{value}", "Cast", attributes=(("to", 7),))
             for value in ("then_branch/o", "else_branch/e")]  # fmt: skip

    both = Pipeline(tuple(casts)).apply(model).model
    with pytest.raises(EditError, match="the types do not fit"):
        casts[0].apply(model)

    onnx.checker.check_model(both.proto, full_check=True)
    declared = {info.name: info.type.tensor_type.elem_type for info in both.proto.graph.value_info}
    assert declared == {"b": onnx.TensorProto.INT64}


REFUSED = [
    (Rename((("@2/then_branch/q", "other"),)), EditError, "that name is taken"),
    (Rename((("@2/then_branch/h", "k2"),)), EditError, "'h' comes from outside of '@2/then_branch'"),
    (Insert("@2/then_branch/nothing", "Abs"), UnknownNameError, "no value 'nothing'"),
    (Insert("@2/body/q", "Abs"), UnknownNameError, "no body '@2/body'"),
    (Insert("@2/then_branch/q", "Abs", to=("@1",)), UsageError, "'@1' is not in '@2/then_branch'"),
    (Rewire("@2/then_branch/q", "@3/body/q"), UsageError, "in several bodies: '@2/then_branch', '@3/body'"),
    (Rewire("fn:local::part/q", "h"), UsageError, "'h' is outside of function 'fn:local::part'"),
    (SetOp(("@3/body/op:Add",), "Equal"), EditError, "the types do not fit"),
    (Extract(("h",), ("@9/body/q",)), UnknownNameError, "no body '@9/body'"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "error", "says"), REFUSED)
def test_an_edit_that_a_body_cannot_take_says_why(edit, error, says, places):
    with pytest.raises(error, match=says):
        edit.apply(places)


READ = {
    "@2/then_branch": {"h": np.maximum(X, 0)},
    "@3/body": {"i": np.array(0), "on": np.array(True), "a": X},
    "@5/body": {"a": X, "row": X},
    "fn:local::part": {"a": X, "k": np.exp(X)},
    "@7/body/@1/then_branch": {"a": X, "h": np.maximum(X, 0)},
}


@pytest.mark.parametrize("path", BODIES)
def test_a_body_becomes_a_model_whose_inputs_are_what_it_reads_from_outside(path, places, runtime):
    q = BODIES[path][1]

    body = Extract(part=(path,)).apply(places).model
    part = Extract((f"{path}/q",), (f"{path}/p",)).apply(places).model

    for model, feeds, expected in ((body, READ[path], top(leaky(q))), (part, {"q": q}, leaky(q))):
        onnx.checker.check_model(model.proto, full_check=True)
        *_, computed = run(GraphIndex.of(model), feeds, runtime).values()
        np.testing.assert_allclose(computed, expected, rtol=1e-6)


def test_a_cut_in_a_body_takes_what_it_reads_from_outside_and_says_what_else_it_needs(places):
    branch = Extract((), ("@7/body/@1/then_branch/q",)).apply(places).model
    loop = Extract(("@7/body/a",), ("@7/body/w",), auto_inputs=True).apply(places).model

    assert [value.name for value in branch.proto.graph.input] == ["a", "h"]
    assert [value.name for value in loop.proto.graph.input] == ["a", "h", "on"]
    with pytest.raises(SurgeonError) as caught:
        Extract(("@7/body/a",), ("@7/body/w",)).apply(places)
    assert "--inputs @7/body/a,@7/body/h,@7/body/on --outputs @7/body/w" in caught.value.hint


@pytest.mark.parametrize("path", BODIES)
def test_a_node_in_a_body_is_shown_by_its_id(path, places):
    shown = osl.inspect(places, node=f"{path}/op:LeakyRelu")

    assert osl.inspect(places, node=shown.id) == shown
    body = shown.id.rpartition("@")[0]
    assert [value.name for value in (*shown.inputs, *shown.outputs)] == [f"{body}q", f"{body}p"]
    assert shown.outputs[0].type == "float [2]"
    assert shown.outputs[0].consumers[0].startswith(f"Clip {body}@")


def names_of_inner_inputs(nodes) -> set[str]:
    inner = [graph for node in nodes for _, graph in walk.bodies(node)]
    own = {info.name for graph in inner for info in graph.input}
    return own.union(*(names_of_inner_inputs(graph.node) for graph in inner))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.data())
def test_edits_of_random_bodies_that_undo_each_other_change_no_result(runtime, program, data):
    model = loaded(program[0])
    places = [
        (body.path, node.output[0])
        for body in GraphIndex.of(model).inner_bodies
        for node in body.nodes
        if node.output[0].startswith("v")  # two floats
    ]
    path, value = data.draw(st.sampled_from(places))
    source, expected = model, run(GraphIndex.of(model), {"x": X}, runtime)

    def at(name: str) -> str:
        return f"{path}/{name}"

    for edits in (
        [Rename(((at(value), "new"),))],
        [Insert(at("new"), "Mul", (at("new"), "2.0"), output="twice"),
         Insert(at("twice"), "Mul", (at("twice"), "0.5"), output="once")],
        [SetOp((at("twice"), at("once")), "Div")],
        [SetConstant(at("new_mul_constant"), 4), SetConstant(at("twice_mul_constant"), 0.25)],
        [Replace((at("new"),), (at("once"),), "LeakyRelu"), SetAttr((at("once"),), (("alpha", 1.0),))],
        [Rewire(at("once"), at("new"))],
        [Remove((at("once"),))],
        [Rename(((at("new"), value),))],
    ):  # fmt: skip
        model = Pipeline(tuple(edits)).apply(model).model
        same(run(GraphIndex.of(model), {"x": X}, runtime), expected)
    left = [
        node
        for node in graph_at(model.proto, path).node
        if not node.output[0].endswith("_constant")
    ]
    before = graph_at(source.proto, path).node
    # they take another name than a value around them
    if value not in names_of_inner_inputs(before):
        assert left == list(before)


@pytest.mark.parametrize("path", ["@3/body", "fn:local::part", ""])
@pytest.mark.parametrize(
    "edit",
    [
        "rename", "rename a node", "insert", "insert for one", "insert at the end", "replace by a model", "rewire",
        "set-op", "set-attr", "remove an attribute", "remove",
    ],
)  # fmt: skip
def test_an_edit_is_taken_back_by_the_step_that_undoes_it(edit, path, places):
    """In the main graph, in the function's place, too."""
    model = places if path else Extract(part=("fn:local::part",)).apply(places).model
    make, _ = EDITS[edit]

    there = make(lambda name: f"{path}/{name}" if path else name).apply(model).model

    back = Restore.undoing(model, there).apply(there).model
    assert there.proto != model.proto
    assert back.proto == model.proto
