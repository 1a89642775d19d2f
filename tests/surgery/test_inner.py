"""Values inside branches, loops and functions: what numpy computes for them, by the same names everywhere."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

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
X = np.array([-1, 2], np.float32)


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


def same(actual: dict, expected: dict) -> None:
    """The same names, in any order, and the same numbers, bit for bit."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if value is None or isinstance(value, list):
            assert np.array_equal(actual[name], value)
            continue
        assert actual[name].dtype == np.asarray(value).dtype, name
        assert actual[name].shape == np.shape(value), name
        assert actual[name].tobytes() == np.asarray(value).tobytes(), name


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

OPERATORS = {"Add": np.add, "Sub": np.subtract, "Min": np.minimum, "Max": np.maximum}


@dataclass
class Block:
    """The nodes of one body, and as many steps that do the same with numpy; every value is two floats, or a scalar."""

    visible: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    steps: list[Callable] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def evaluate(self, values: dict, trace: dict, path: str, iterations: tuple[int, ...]) -> None:
        """Fill in the values, and note each under its name from outside."""
        for step in self.steps:
            step(values, trace, path, iterations)
        names = [name for node in self.nodes for name in node.output]
        trace.update((at(path + name, iterations), values[name]) for name in names)

    def add(self, op_type: str, inputs: list[str], outputs: list[str], **attributes) -> int:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))
        return len(self.nodes) - 1

    def graph(self, inputs: list[tuple], outputs: list[str]) -> onnx.GraphProto:
        """The nodes as a body; its outputs are a condition, where there is one, and vectors."""
        declared = [helper.make_tensor_value_info(*value) for value in inputs]
        kinds = [(9, []) if name.startswith("cond") else (1, [2]) for name in outputs]
        results = map(helper.make_tensor_value_info, outputs, *zip(*kinds, strict=True))
        return helper.make_graph(self.nodes, "body", declared, list(results))


class Programs:
    """Draws blocks."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.count = 0
        self.functions: list[onnx.FunctionProto] = []

    def name(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def block(self, visible: list[str], depth: int) -> Block:
        block = Block(visible)
        kinds = [self.operation, *([self.branch, self.loop, self.scan, self.call] if depth else [])]
        for _ in range(self.draw(st.integers(1, 2))):
            block.made.append(self.draw(st.sampled_from(kinds))(block, depth - 1))
        return block

    def value(self, block: Block) -> str:
        return self.draw(st.sampled_from([*block.visible, *block.made]))

    def operation(self, block: Block, depth: int) -> str:
        one, two, out = self.value(block), self.value(block), self.name("v")
        operator = self.draw(st.sampled_from(sorted(OPERATORS)))
        block.add(operator, [one, two], [out])

        def step(values, *_):
            values[out] = OPERATORS[operator](values[one], values[two])

        block.steps.append(step)
        return out

    def condition(self, block: Block) -> str:
        """Whether a value's first element is above zero."""
        value = self.value(block)
        place, zero, first, cond = map(self.name, ("place", "zero", "first", "cond"))
        block.add("Constant", [], [place], value_int=0)
        block.add("Constant", [], [zero], value_float=0.0)
        block.add("Gather", [value, place], [first])
        block.add("Greater", [first, zero], [cond])

        def step(values, *_):
            values |= {place: np.int64(0), zero: np.float32(0), first: values[value][0]}
            values[cond] = np.bool_(values[first] > 0)

        block.steps.append(step)
        return cond

    def branch(self, block: Block, depth: int) -> str:
        cond, out = self.condition(block), self.name("v")
        branches = {
            name: self.block([*block.visible, *block.made], depth)
            for name in ("then_branch", "else_branch")
        }
        graphs = {name: inner.graph([], inner.made[-1:]) for name, inner in branches.items()}
        position = block.add("If", [cond], [out], **graphs)

        def step(values, trace, path, iterations):
            name = "then_branch" if values[cond] else "else_branch"
            inner = dict(values)
            branches[name].evaluate(inner, trace, f"{path}@{position}/{name}/", iterations)
            values[out] = inner[branches[name].made[-1]]

        block.steps.append(step)
        return out

    def loop(self, block: Block, depth: int) -> str:
        initial, out = self.value(block), self.name("v")
        state = self.draw(st.sampled_from([*block.visible, self.name("state")]))  # it may hide one
        body = self.block(list({*block.visible, *block.made, state}), depth)
        cond, result = self.condition(body), body.made[-1]
        i, going, count = self.name("i"), self.name("going"), self.name("count")
        trips = self.draw(st.integers(0, 3))
        graph = body.graph([(i, 7, []), (going, 9, []), (state, 1, [2])], [cond, result])
        block.add("Constant", [], [count], value_int=trips)
        position = block.add("Loop", [count, "", initial], [out], body=graph)

        def step(values, trace, path, iterations):
            values[count], current, on, number = np.int64(trips), values[initial], True, 0
            while on and number < trips:
                inner = {**values, state: current}
                body.evaluate(inner, trace, f"{path}@{position}/body/", (*iterations, number))
                current, on, number = inner[result], inner[cond], number + 1
            values[out] = current

        block.steps.append(step)
        return out

    def scan(self, block: Block, depth: int) -> str:
        initial, source = self.value(block), self.value(block)
        state, wide, out, stacked = map(self.name, ("state", "wide", "v", "stacked"))
        element = self.draw(st.sampled_from([source, self.name("element")]))
        back, restacked = self.draw(st.booleans()), self.draw(st.booleans())
        body = self.block([n for n in [*block.visible, *block.made, state] if n != element], depth)
        result = body.made[-1]
        body.add("Add", [result, element], [wide])
        body.steps.append(lambda v, *_: v.update({wide: v[result] + v[element]}))
        position = block.add(
            "Scan",
            [initial, source],
            [out, stacked],
            body=body.graph([(state, 1, [2]), (element, 1, [])], [result, wide]),
            num_scan_inputs=1,
            scan_input_directions=[int(back)],
            scan_output_directions=[int(restacked)],
            scan_output_axes=[1],
        )

        def step(values, trace, path, iterations):
            current, rows = values[initial], []
            for number in range(2):
                inner = {**values, state: current, element: values[source][back - number]}
                body.evaluate(inner, trace, f"{path}@{position}/body/", (*iterations, number))
                current, rows = inner[result], [*rows, inner[wide]]
            values |= {out: current, stacked: np.stack(rows[::-1] if restacked else rows, 1)}

        block.steps.append(step)
        return out

    def call(self, block: Block, depth: int) -> str:
        given, out, operator = [self.value(block)] * 2, self.name("v"), self.name("f")
        given[1] = self.value(block)
        names = [
            self.name("p"),
            self.draw(st.sampled_from(block.visible)),
        ]  # a name means another value there
        body = self.block(names, depth)
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
        function = helper.make_function(
            "local", operator, names, body.made[-1:], body.nodes, imports
        )
        self.functions.append(function)
        position = block.add(operator, given, [out], domain="local")

        def step(values, trace, path, iterations):
            inner = {name: values[g] for name, g in zip(names, given, strict=True)}
            body.evaluate(inner, trace, f"{path}@{position}/function/", iterations)
            values[out] = inner[body.made[-1]]

        block.steps.append(step)
        return out


@st.composite
def programs(draw) -> tuple[onnx.ModelProto, Block]:
    made = Programs(draw)
    block = made.block(["x", "w"], depth=1)
    kinds = st.sampled_from([made.branch, made.loop, made.scan, made.call])
    for kind in draw(st.lists(kinds, min_size=1, max_size=3)):
        block.made.append(kind(block, 1))
    vector = helper.make_tensor_type_proto(1, [2])
    graph = helper.make_graph(
        block.nodes,
        "random",
        [helper.make_value_info("x", vector)],
        [helper.make_value_info(block.made[-1], vector)],
        [helper.make_tensor("w", 1, [2], [0.5, -1.0])],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    proto = helper.make_model(graph, opset_imports=imports, functions=made.functions, ir_version=8)
    return proto, block


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
