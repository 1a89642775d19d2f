"""Models with branches, loops, scans and functions."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, parser

from onnxsurgeon_lite import Model, load
from onnxsurgeon_lite.graph.bodies import at

X = np.array([-1, 2], np.float32)


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
        # a name means another value there
        names = [self.name("p"), self.draw(st.sampled_from(block.visible))]
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


HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'


BRANCH = """
g (float[2] x, bool c) => (float[2] y) {
    h = Relu(x)
    k = If(c) <
        then_branch = yes () => (float[2] o) { q = Add(h, h) r = Sub(q, x) o = Neg(r) },
        else_branch = no () => (float[2] p) { p = Abs(x) }>
    y = Neg(k)
}"""


LOOP = """
g (float[2] x, bool c) => (float[2] y) {
    n = Constant <value = int64 {4}> ()
    y = Loop(n, c, x) <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] o) {
        on = Identity(go)
        two = Constant <value = int64 {2}> ()
        early = Less(i, two)
        o = If (early) <
            then_branch = yes () => (float[2] s) { s = Add(a, x) },
            else_branch = no () => (float[2] u) { t = Sub(a, x) u = Add(t, t) }>
    }>
}"""


SCAN = """
g (float[2] x, bool c) => (float[2] y, float[2] zs) {
    y, zs = Scan(x, x) <num_scan_inputs = 1, scan_input_directions = [1],
        body = b (float[2] a, float e) => (float[2] o, float z) {
            q = Mul(a, e)
            o = Neg(q)
            z = Identity(e)
        }>
}"""


CALLS = """
g (float[2] x, bool c) => (float[2] y) {
    h = local.twice(x)
    y = local.twice(h)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]> twice (a) => (b) {
    q = Neg(a)
    b = local.inner(q)
}
<domain: "local", opset_import: ["" : 21]> inner (a) => (b) { k = Add(a, a) b = Mul(k, k) }
"""


PLANTED = {
    "branch": (BRANCH, "@1/then_branch/@1", "Add", "@1/then_branch/@1", "@1/then_branch/r"),
    "second branch": (LOOP, "@1/body/@3/else_branch/@0", "Mul", "@1/body/@3/else_branch/@0",
                      "@1/body/@3/else_branch/t[2]"),
    "first branch": (LOOP, "@1/body/@3/then_branch/@0", "Mul", "@1/body/@3/then_branch/@0",
                     "@1/body/@3/then_branch/s[0]"),
    "scan": (SCAN, "@0/body/@0", "Add", "@0/body/@0", "@0/body/q[0]"),
    "function in a function": (CALLS, "fn:local::inner/@0", "Mul", "@0/function/@1/function/@0",
                               "@0/function/@1/function/k"),
}  # fmt: skip


def loaded(text: str, folder) -> Model:
    onnx.save(parser.parse_model(HEADER + text), folder / "model.onnx")
    return load(folder / "model.onnx")


ENDLESS = """endless (float[1] x, bool go) => (float[1] z) {
    n = Neg(x)
    y = Loop (, go, n) <body = body (int64 i, bool before, float[1] v) => (bool after, float[1] w) {
        w = Identity(v)
        after = Identity(before)
    }>
    z = Abs(y)
}"""
