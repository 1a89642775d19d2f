"""Values inside branches, loops and functions: what numpy computes for them, by the same names everywhere."""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

from kit.bodies import X, programs, same
from onnxsurgeon_lite import Expose, Model, load
from onnxsurgeon_lite.errors import EditError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.bodies import InnerGraph, at, iterations_of
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.surgery.exposing import exposable
from onnxsurgeon_lite.tensors import dtypes

HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'


@pytest.fixture(scope="module", params=["none", "all"])
def runtime(request):
    with Runtime(RuntimeOptions(opt=request.param, threads=1)) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def unoptimized():
    """Without the optimizer, which crashes on some graphs with bodies three deep, as they are."""
    with Runtime(RuntimeOptions(opt="none", threads=1)) as runtime:
        yield runtime


@pytest.fixture
def loaded(tmp_path):
    def make(source: str | onnx.ModelProto) -> Model:
        proto = parser.parse_model(HEADER + source) if isinstance(source, str) else source
        onnx.save(proto, tmp_path / "model.onnx")
        return load(tmp_path / "model.onnx")

    return make


def fetched(runtime, model: Model, feeds, *selectors: str) -> dict:
    index = GraphIndex.of(model)
    return run(index, feeds, runtime, select_values(index, selectors, inner=True).names)


def sound(runtime, model: Model, feeds, *selectors: str) -> dict:
    """Expose: the checker accepts it, and what the model gave before it still gives."""
    before = run(GraphIndex.of(model), feeds, runtime)
    exposed = Expose(selectors).apply(model)
    if not any("is unknown" in note for note in exposed.notes):
        onnx.checker.check_model(exposed.model.proto, full_check=True)
    after = run(GraphIndex.of(exposed.model), feeds, runtime)
    same({name: after[name] for name in before}, before)
    assert exposed.changed
    assert not Expose(selectors).apply(exposed.model).changed
    return after


IF = """
g (float[2] x, bool c) => (float[2] y) {
    h = Relu(x)
    y = If(c) <
        then_branch = yes () => (float[2] o) { q = Add(h, h) o = Neg(q) },
        else_branch = no () => (float[2] p) { r = Abs(x) p = Neg(r) }
    >
}"""


@pytest.mark.parametrize("cond", [True, False])
def test_the_branch_that_is_taken_has_values_and_the_other_none(runtime, loaded, cond):
    feeds, model = {"x": X, "c": np.array(cond)}, loaded(IF)

    found = fetched(runtime, model, feeds, "@1/then_branch/q", "@1/else_branch/@0")

    q, r = np.maximum(X, 0) * 2, np.abs(X)
    same(found, {"@1/then_branch/q": q if cond else None, "@1/else_branch/r": None if cond else r})
    exposed = sound(runtime, model, feeds, "@1/then_branch/q")
    assert len(exposed["@1/then_branch/q"]) == cond


LOOP = """
g (float[2] x, int64 n, bool go) => (float[2] y, float[k,2] zs) {{
    h = Relu(x)
    y, zs = Loop({trips}, {going}, x) <body = b (int64 i, bool c, float[2] a)
                                            => (bool on, float[2] o, float[2] z) {{
        q = Add(a, h)
        five = Constant <value = int64 {{5}}> ()
        below = Less(i, five)
        on = And(below, c)
        zero = Constant <value = int64 {{0}}> ()
        one = Constant <value = int64 {{1}}> ()
        ragged = Range(zero, i, one)
        o = Neg(q)
        z = Mul(o, o)
    }}>
}}"""


def evaluate_loop(trips: int, going: bool) -> dict:
    """What the Loop does: at most `trips` times, while the condition holds, which it gives anew each time."""
    trace, a, h, i = {}, X, np.maximum(X, 0), 0
    while going and i < trips:
        q = a + h
        here = {"i": np.int64(i), "a": a, "q": q, "ragged": np.arange(i), "z": q * q}
        trace |= {f"@1/body/{name}[{i}]": value for name, value in here.items()}
        a, going, i = -q, i < 5, i + 1
    return trace


@pytest.mark.parametrize("trips", ["n", ""])
@pytest.mark.parametrize("going", ["go", ""])
@pytest.mark.parametrize("count", [0, 1, 3, 9])
@pytest.mark.parametrize("go", [True, False])
def test_a_loop_gives_one_tensor_for_each_iteration(runtime, loaded, trips, going, count, go):
    model = loaded(LOOP.format(trips=trips, going=going))
    feeds = {"x": X, "n": np.array(count), "go": np.array(go)}
    inner = [f"@1/body/{name}" for name in ("i", "a", "q", "ragged", "z")]

    found = fetched(runtime, model, feeds, *inner)

    expected = evaluate_loop(count if trips else 99, go or not going)
    same(found, expected or dict.fromkeys(inner))
    sound(runtime, model, feeds, *inner)


def test_one_iteration_of_a_loop_can_be_named(runtime, loaded):
    model = loaded(LOOP.format(trips="n", going="go"))
    feeds = {"x": X, "n": np.array(3), "go": np.array(True)}

    found = fetched(runtime, model, feeds, "@1/body/q[1]", "@1/body/ragged[2]", "@1/body/q[7]")

    trace = evaluate_loop(3, True)
    only = {name: trace[name] for name in ("@1/body/q[1]", "@1/body/ragged[2]")}
    same(found, only | {"@1/body/q[7]": None})


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_keeps_its_directions_and_axes(runtime, loaded, backwards, axis):
    model = loaded(f"""
        g (float[2] s, float[2,2] x, float[2,2] w) => (float[2] y, float[2,2] zs, float[2,2] us) {{
            y, zs, us = Scan (s, x, w) <num_scan_inputs = 2,
                scan_input_directions = [{backwards}, 0], scan_input_axes = [{axis}, 0],
                scan_output_directions = [0, {backwards}], scan_output_axes = [{axis}, 1],
                body = b (float[2] a, float[2] x, float[2] v) => (float[2] o, float[2] z, float[2] u) {{
                    q = Add(a, x)
                    o = Neg(q)
                    z = Mul(o, v)
                    u = Identity(v)
                }}>
        }}""")
    x, w = np.arange(4, dtype=np.float32).reshape(2, 2), np.float32([[5, 6], [7, 8]])
    feeds = {"s": X, "x": x, "w": w}

    found = fetched(runtime, model, feeds, "@0/body/q", "@0/body/x", "@0/body/v", "@0/body/z")

    expected, a = {}, X
    for i in range(2):
        element = np.take(x, 1 - i if backwards else i, axis)
        q = a + element
        here = {"q": q, "x": element, "v": w[i], "z": -q * w[i]}
        expected |= {f"@0/body/{name}[{i}]": value for name, value in here.items()}
        a = -q
    same(found, expected)
    sound(runtime, model, feeds, "@0/body/q", "@0/body/x")


FUNCTIONS = """
g (float[2] x, bool c) => (float[2] y) {
    h = local.twice <alpha = 0.5> (x, c)
    y = local.twice (h, c)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
twice <alpha: float = 2.0> (a, c) => (b) {
    d = Elu <alpha: float = @alpha> (a)
    b = If (c) <
        then_branch = t () => (w) { v = local.inner (d) w = Neg(v) },
        else_branch = e () => (w) { w = Identity(d) }>
}
<domain: "local", opset_import: ["" : 21]> inner (a) => (b) { k = Add(a, a) b = Mul(k, k) }
"""


def test_each_call_of_a_function_has_its_own_values_and_attributes(runtime, loaded):
    model, feeds = loaded(FUNCTIONS), {"x": np.float32([1, 2]), "c": np.array(True)}
    names = ["@0/function/d", "@1/function/a", "@1/function/@1/then_branch/@0/function/k"]

    found = fetched(runtime, model, feeds, *names)

    d = feeds["x"]
    h = -((2 * d) ** 2)
    second = np.float32(2) * np.expm1(h)
    assert np.array_equal(found[names[0]], d)
    assert np.array_equal(found[names[1]], h)
    assert np.allclose(found[names[2]], 2 * second)
    sound(runtime, model, feeds, *names)
    body = InnerGraph.of(GraphIndex.of(model), 0, "function").index
    assert body.nodes[0].attribute[0].f == 0.5


def test_overloads_and_omitted_inputs_of_functions(runtime, loaded):
    node, onnx_21 = helper.make_node, [helper.make_opsetid("", 21)]
    add = [node("Add", ["a", "a"], ["q"]), node("Clip", ["q", "", "high"], ["b"])]
    mul = [node("Mul", ["a", "a"], ["q"]), node("Clip", ["q", "", "high"], ["b"])]
    proto = parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) { h = Relu(x) y = Neg(h) }")
    del proto.graph.node[:]
    proto.graph.node.extend(
        [
            node("f", ["x"], ["h"], domain="local", overload="one"),
            node("f", ["h"], ["y"], domain="local", overload="two"),
        ]
    )
    for overload, nodes in (("one", add), ("two", mul)):
        proto.functions.append(
            helper.make_function(
                "local", "f", ["a", "high"], ["b"], nodes, onnx_21, overload=overload
            )
        )
    model = loaded(proto)

    found = fetched(runtime, model, {"x": X}, "@0/function/q", "@1/function/q")

    same(found, {"@0/function/q": 2 * X, "@1/function/q": 4 * X * X})
    sound(runtime, model, {"x": X}, "@0/function/q", "@1/function/q")


def test_captured_and_shadowed_names_mean_what_they_do_inside(runtime, loaded):
    model = loaded("""
        g (float[2] x, int64[1] n) => (float[k,2] ys) {
            a = Relu(x)
            s = Neg(x)
            last, ys = Loop (n, , s) <body = b (int64 i, bool c, float[2] x)
                                            => (bool on, float[2] o, float[2] y) {
                on = Identity(c)
                o = Identity(x)
                y = Add(a, o)
            }>
        }""")

    found = fetched(runtime, model, {"x": X, "n": np.array([2])}, "@2/body/x", "@2/body/y", "a")

    y = np.maximum(X, 0) - X
    expected = {f"@2/body/{n}[{i}]": v for i in range(2) for n, v in (("x", -X), ("y", y))}
    same(found, expected | {"a": np.maximum(X, 0)})
    with pytest.raises(UsageError, match="'@2/body/a' is captured") as caught:
        fetched(runtime, model, {}, "@2/body/a")
    assert caught.value.hint == "name it there: 'a'"


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "double", "int8", "bool", "uint4", "float8e4m3fn", "string"]
)
def test_every_dtype_comes_out_as_it_is_inside(runtime, loaded, dtype):
    number = TensorProto.DataType.Value(dtype.upper())
    model = loaded(f"""
        g (float[2] x, int64 n) => (float[2] y) {{
            y = Loop (n, , x) <body = b (int64 i, bool c, float[2] a) => (bool on, float[2] o) {{
                on = Identity(c)
                q = Cast <to = {number}> (a)
                back = Cast <to = 1> (q)
                o = Add(a, back)
            }}>
        }}""")

    found = fetched(runtime, model, {"x": np.float32([1, 0]), "n": np.array(2)}, "@0/body/q")

    expected = ["1", "0"] if dtype == "string" else [1, 0]
    assert found["@0/body/q[0]"].tolist() == expected
    if dtype != "string":
        assert dtypes.data_type_of_numpy(found["@0/body/q[0]"].dtype) == number


def test_sequences_inside_come_out_as_lists(runtime, loaded):
    model = loaded("""
        g (float[2] x, int64 n, bool c) => (float[2] y, seq(float[2]) all) {
            none = SequenceEmpty()
            y, all = Loop (n, , x, none) <body = b (int64 i, bool go, float[2] a, seq(float[2]) s)
                                                => (bool on, float[2] o, seq(float[2]) t) {
                on = Identity(go)
                o = Add(a, a)
                t = If (c) <
                    then_branch = yes () => (seq(float[2]) u) { u = SequenceInsert(s, o) },
                    else_branch = no () => (seq(float[2]) v) { v = SequenceEmpty() }>
            }>
        }""")
    inner, branch = ["@1/body/s", "@1/body/t"], "@1/body/@2/then_branch/u"

    for cond in (True, False):
        feeds = {"x": X, "n": np.array(3), "c": np.array(cond)}
        found = fetched(runtime, model, feeds, *inner, branch)

        made = [X * 2, X * 4, X * 8]
        for i in range(3):
            before, after = (made[:i], made[: i + 1]) if cond else ([], [])
            assert np.array_equal(found[f"@1/body/s[{i}]"], before)
            assert np.array_equal(found[f"@1/body/t[{i}]"], after)
            if cond:
                assert np.array_equal(found[f"{branch}[{i}]"], after)
        assert (branch in found) is not cond
        sound(runtime, model, feeds, *inner, branch)


# --- selectors ---


def test_selectors_behind_a_body_are_the_usual_ones(loaded):
    index = GraphIndex.of(loaded(LOOP.format(trips="n", going="go")))

    def names(selector: str) -> list[str]:
        return select_values(index, [selector], inner=True).names

    assert names("@1/body/@0") == ["@1/body/q"]
    assert names("@1/body/op:Mul") == ["@1/body/z"]
    assert names("@1/body/op:Constant[1]") == ["@1/body/zero"]
    assert names("@1/body/[qz]") == ["@1/body/q", "@1/body/z"]
    assert names("@1/body/q,@1/body/o[2]") == ["@1/body/q", "@1/body/o[2]"]


@pytest.mark.parametrize(
    ("selector", "kind", "closest"),
    [
        ("@1/body/raged", "value", ["@1/body/ragged"]),
        ("@1/bdy/q", "body", ["@1/body"]),
        ("@0/body/q", "body", ["@1/body"]),
        ("@9/body/q", "body", ["@1/body"]),
    ],
)
def test_unknown_inner_names_offer_the_closest(loaded, selector, kind, closest):
    index = GraphIndex.of(loaded(LOOP.format(trips="n", going="go")))

    with pytest.raises(UnknownNameError, match=f"has no {kind}") as caught:
        select_values(index, [selector], inner=True)

    assert caught.value.closest[:1] == closest


def test_where_only_the_main_graph_will_do_an_inner_name_says_so(loaded):
    index = GraphIndex.of(loaded(IF))

    with pytest.raises(UsageError, match="'@1/then_branch/q' is inside a body"):
        select_values(index, ["@1/then_branch/q"])
    with pytest.raises(UnknownNameError) as caught:
        select_values(index, ["q"], inner=True)
    assert caught.value.hint == "it is inside a body: '@1/then_branch/q'"


def test_before_sequences_a_branch_keeps_its_values(loaded):
    proto = parser.parse_model('<ir_version: 7, opset_import: ["" : 12]>' + IF)
    model = loaded(proto)

    with pytest.raises(
        EditError, match="'@1/then_branch/q' cannot be exposed at opset 12"
    ) as caught:
        Expose(("@1/then_branch/q",)).apply(model)

    assert caught.value.hint == "convert the model first: onnxdbg edit opset MODEL 13"
    assert len(exposable(GraphIndex.of(model))[1]) == 4


def test_a_body_that_its_operator_has_not_keeps_its_values(loaded):
    model = loaded(IF)
    branch = model.proto.graph.node[1].attribute[0]
    branch.name = "third_branch"

    with pytest.raises(EditError, match="cannot be exposed from the body 'third_branch' of If"):
        Expose(("@1/third_branch/q",)).apply(model)


@given(st.text(min_size=1), st.lists(st.integers(0, 99), min_size=1))
def test_iterations_in_a_name_are_read_as_they_are_written(value, iterations):
    name = at(value, iterations)

    found, numbers = iterations_of(name)

    assert at(found, numbers) == name
    assert numbers[-len(iterations) :] == tuple(iterations)


# --- random graphs with bodies in bodies, and what numpy makes of them ---


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_inner_values_of_random_graphs_are_those_that_numpy_computes(unoptimized, loaded, program):
    runtime, (proto, block) = unoptimized, program
    model, feeds = loaded(proto), {"x": X}
    index = GraphIndex.of(model)
    values, trace = {"x": X, "w": np.float32([0.5, -1.0])}, {}
    block.evaluate(values, trace, "", ())
    expected = {name: value for name, value in trace.items() if name.startswith("@")}
    names, left_out = exposable(index)

    found = run(index, feeds, runtime, names)

    assert not left_out
    same({name: value for name, value in found.items() if value is not None}, expected)
    if names:
        sound(runtime, model, feeds, *names)


NESTED = """
    g (float[2] x) => (float[2] y, float[3, 2] rows)
    <bool yes = {1}, int64 trips = {3}, float[3, 2] table = {1, 2, 3, 4, 5, 6}> {
        y = Loop(trips, yes, x) <body = outer (int64 i, bool going, float[2] s) => (bool on, float[2] t) {
            on = Identity(going)
            t = Loop(trips, going, s) <body = inner (int64 j, bool more, float[2] u) => (bool again, float[2] v) {
                again = Identity(more) q = Add(u, u) v = Neg(q)
            }>
        }>
        last, rows = Scan<
            num_scan_inputs = 1,
            body = scanned (float[2] state, float[2] row) => (float[2] next, float[2] out) {
                p = Add(state, row) next = Abs(p) out = Neg(p)
            }
        >(x, table)
    }
"""


@pytest.mark.parametrize("value", ["@0/body/@1/body/q", "@0/body/@1/body/v", "@1/body/p"])
def test_exposed_values_are_those_of_the_reference_evaluator_too(value, unoptimized, loaded):
    model = loaded(NESTED)
    exposed = Expose((value,)).apply(model).model

    names = [info.name for info in exposed.proto.graph.output]
    found = dict(zip(names, ReferenceEvaluator(exposed.proto).run(None, {"x": X}), strict=True))

    for name, expected in run(GraphIndex.of(exposed), {"x": X}, unoptimized).items():
        assert np.array_equal(found[name], expected), name
