"""Stepping into If, Loop, Scan and functions: what each iteration has, and that the results are the runtime's."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import parser

from kit import AS_WRITTEN
from kit.backend import RANDOM, ROUNDED, cases, fed, ops_of, outcome, same
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.errors import RuntimeFailure, UnknownNameError
from onnxsurgeon_lite.graph.bodies import iterations_of
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.report.debugging import level_text, stop_text
from onnxsurgeon_lite.runtime.session import Runtime

LOOP = """loops (float[2] x, int64 most, bool go) => (float[2] y, float[n, 2] steps) {{
    k = Constant<value_floats=[1.0, 2.0]>()
    y, steps = Loop ({most}, {go}, x) <
            body = body (int64 i, bool before, float[2] v) => (bool after, float[2] w, float[2] s) {{
        w = Add(v, k)
        s = Neg(w)
        top = ReduceMax<keepdims=0>(w)
        limit = Constant<value_float=7.0>()
        after = Less(top, limit)
    }}>
}}"""
PASSED_ON = """passed_on (float[2] x, int64 most, bool go) => (float[2] y) {
    y = Loop (most, go, x) <body = body (int64 i, bool before, float[2] v) => (bool before, float[2] v) { }>
}"""
SCAN = """scans (float[2] s0, float[3, 4, 2] xs, float[4, 2] zs) => (float[2] s, float[2, 4] ys, float[4, 2] last) {
    s, ys, last = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
            scan_output_axes = [1, 0], scan_output_directions = [0, 1],
            body = body (float[2] before, float[3, 2] x, float[2] z) => (float[2] after, float[2] y, float[2] out) {
        part = ReduceSum<keepdims=0>(x, axis)
        after = Add(before, part)
        y = Mul(after, z)
        out = Identity(after)
    }> (s0, xs, zs)
}"""
NESTED = """nested (float[2] x, int64 most, bool go) => (float[2] y) {
    k = Neg(x)
    y = Loop (most, go, x) <body = body (int64 i, bool before, float[2] v) => (bool after, float[2] w) {
        after = Identity(before)
        two = Constant<value_int=2>()
        odd = Mod(i, two)
        one = Cast<to=9>(odd)
        w = If (one) <
            then_branch = yes () => (float[2] a) { a = Add(v, k) },
            else_branch = no () => (float[2] b) { c = Mul(v, v) b = Sub(c, k) }>
    }>
}"""
FUNCTIONS = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
calls (float[2] x) => (float[2] y) <float[2] w = {3.0, 4.0}> {
    a = local.scale:wide <by=2.0> (x, w)
    b = local.scale (a)
    y = Neg(b)
}
<domain: "local", overload: "wide", opset_import: ["" : 21]>
scale <by> (v, w) => (r) {
    p = LeakyRelu<alpha: float = @by>(v)
    r = Mul(p, w)
}
<domain: "local", opset_import: ["" : 21]>
scale <by: float = 10.0> (v, w) => (r) {
    factor = Constant<value_float: float = @by>()
    r = Clip(v, w, factor)
}"""


EACH = 16  # with 1, all 1394 that the runtime runs, it takes a minute and finds no more
"""Which part of the backend's cases is stepped through."""


def stepped(dbg: Debugger) -> list[str]:
    """The nodes on the way to the end, bodies stepped into."""
    nodes = []
    stop = dbg.step()
    while stop.reason != "end":
        nodes.append(stop.node)
        stop = dbg.step()
    return nodes


def whole(runtime: Runtime, model, feeds) -> dict[str, np.ndarray]:
    runtime.open(model)
    for name, value in feeds.items():
        runtime.put(name, value)
    return runtime.run(list(feeds), [output.name for output in model.proto.graph.output]).values


def as_the_runtime(runtime, model, feeds) -> list[str]:
    """Step through everything; the outputs are the runtime's. The nodes on the way."""
    expected = whole(runtime, model, feeds)
    dbg = Debugger(model, feeds, runtime=runtime)

    nodes = stepped(dbg)

    assert all(same(dbg[name], value) for name, value in expected.items())
    dbg.restart()
    return nodes


X = np.array([1, -1], np.float32)


@pytest.mark.parametrize("go", ["go", ""])
@pytest.mark.parametrize(("most", "times"), [("most", 3), ("most", 100), ("most", 0), ("", 100)])
def test_a_loop_ends_when_the_runtime_ends_it(model_of, runtime, most, times, go):
    model = model_of(LOOP.format(most=most, go=go))
    feeds = {"x": X, "most": np.array(times), "go": np.array(True)}

    nodes = as_the_runtime(runtime, model, feeds)

    iterations = {iterations_of(node.rstrip(")"))[1] for node in nodes if "body" in node}
    assert len(iterations) == min(times, 4)


def test_a_loop_that_is_not_entered_is_run_as_a_whole(model_of, runtime):
    model = model_of(LOOP.format(most="most", go="go"))
    feeds = {"x": X, "most": np.array(3), "go": np.array(False)}

    assert as_the_runtime(runtime, model, feeds) == ["Constant (@0)", "Loop (@1)"]


def test_states_that_a_body_passes_on_come_out(model_of, runtime):
    feeds = {"x": X, "most": np.array(3), "go": np.array(True)}

    assert as_the_runtime(runtime, model_of(PASSED_ON), feeds) == ["Loop (@0)"]


def test_a_scan_follows_axes_and_directions(model_of, runtime):
    rng = np.random.default_rng(0)
    shapes = {"s0": [2], "xs": [3, 4, 2], "zs": [4, 2]}
    feeds = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    text = SCAN.replace("last) {", "last) <int64[1] axis = {0}> {", 1)

    nodes = as_the_runtime(runtime, model_of(text), feeds)

    assert len(nodes) == 4 * 4 + 1


SEQUENCE_MAP = """mapped (float[2] x) => (float[2] y) {
    parts = SequenceConstruct(x, x)
    made = SequenceMap (parts) <body = body (float[2] v) => (float[2] w) { w = Neg(v) }>
    at = Constant<value_int=1>()
    y = SequenceAt(made, at)
}"""


def test_a_body_that_cannot_be_stepped_into_is_said_to_be_run_at_once(model_of, runtime):
    dbg = Debugger(model_of(SEQUENCE_MAP), {"x": X}, runtime=runtime)

    stops = [dbg.step() for _ in range(4)]

    assert [stop.reason for stop in stops] == ["step", "over", "step", "step"]
    assert "step does not go into its body" in stop_text(stops[1])
    assert dbg["y"].tolist() == [-1, 1]
    dbg.restart()
    dbg.next()
    assert dbg.next().reason == "step"


def test_bodies_in_bodies_are_stepped_into(model_of, runtime):
    feeds = {"x": X, "most": np.array(3), "go": np.array(True)}

    nodes = as_the_runtime(runtime, model_of(NESTED), feeds)

    assert "Sub (@1/body/@4/else_branch/@1[0])" in nodes
    assert "Add (@1/body/@4/then_branch/@0[1])" in nodes


def test_functions_have_their_overload_their_attributes_and_what_they_are_called_with(
    model_of, runtime
):
    model = model_of(parser.parse_model(FUNCTIONS))

    nodes = as_the_runtime(runtime, model, {"x": X})

    assert nodes == [
        "LeakyRelu (@0/function/@0)",
        "Mul (@0/function/@1)",
        "scale (@0)",
        "Constant (@1/function/@0)",
        "Clip (@1/function/@1)",
        "scale (@1)",
        "Neg (@2)",
    ]


@pytest.fixture
def nested(model_of, runtime):
    feeds = {"x": X, "most": np.array(4), "go": np.array(True)}
    dbg = Debugger(model_of(NESTED), feeds, runtime=runtime)
    yield dbg
    dbg.restart()


def test_values_of_bodies_have_their_iteration_and_captures_are_seen(nested):
    nested.break_("a")

    stop = nested.run()

    assert stop.node == "Add (@1/body/@4/then_branch/@0[1])"
    assert nested["k"].tolist() == [-1, 1]
    assert nested["i"].tolist() == 1
    assert nested["@1/body/i[1]"].tolist() == 1
    assert [level.graph for level in nested.where()] == [
        "",
        "@1/body[1]",
        "@1/body/@4/then_branch[1]",
    ]
    shown = level_text(nested.where()).splitlines()
    assert shown[0] == "main graph: 1 of 2 nodes, in Loop (@1)"
    assert shown[2].endswith("1 of 1 nodes, after Add (@1/body/@4/then_branch/@0[1])")
    assert nested.continue_().node == "Add (@1/body/@4/then_branch/@0[3])"


@pytest.mark.parametrize(
    ("selector", "condition", "node"),
    [
        ("@1/body/@4/else_branch/b", "iteration is None", "Sub (@1/body/@4/else_branch/@1[0])"),
        ("@1/body/w", "iteration == 2", "If (@1/body/@4[2])"),
        ("op:Sub", None, "Sub (@1/body/@4/else_branch/@1[0])"),
        ("@1/body/@1", "iteration > 2", "Constant (@1/body/@1[3])"),
    ],
)
def test_a_breakpoint_lies_in_a_body(nested, selector, condition, node):
    nested.break_(selector, condition)

    assert nested.run().node == node


def test_next_passes_a_body_unless_a_breakpoint_lies_inside(nested):
    nested.next()
    assert nested.next().node == "Loop (@1)"

    nested.break_("a")
    nested.run()

    assert nested.next().node == "If (@1/body/@4[1])"
    assert nested.out().node == "Add (@1/body/@4/then_branch/@0[3])"
    nested.delete()
    stop = nested.out()
    assert (stop.reason, stop.node) == ("returned", "If (@1/body/@4[3])")
    assert nested.out().node == "Loop (@1)"


def test_until_at_the_end_of_an_iteration_goes_past_the_others(nested):
    nested.break_("@1/body/w")
    nested.run()
    nested.delete()

    stop = nested.until()

    assert (stop.reason, stop.node) == ("returned", "Loop (@1)")


def test_what_is_set_in_an_iteration_changes_what_comes_out(nested):
    before = nested["y"].tolist()
    nested.break_("@1/body/w", "iteration == 3")
    nested.restart()
    nested.run()

    nested.set("w", np.array([5, 6], np.float32))
    end = nested.continue_()

    assert end.reason == "end"
    assert nested["y"].tolist() == [5, 6] != before


def test_a_value_of_a_body_that_is_not_run_says_where_to_break(nested):
    with pytest.raises(UnknownNameError) as caught:
        nested.read("a")

    assert caught.value.hint.endswith("break @1/body/@4/then_branch/a")


def step_case(runtime: Runtime, case, path) -> list[str] | None:
    """The outputs that stepping gives otherwise; None where the runtime does not run the model."""
    path.write_bytes(case.model.SerializeToString())
    model, values = load(path), case.data_sets[0][0]
    outputs = [value.name for value in case.model.graph.output]
    try:
        names = fed(runtime, case.model, values)
        expected = None if names is None else outcome(runtime, model, names, outputs).values
    except RuntimeFailure:
        return None
    if names is None or expected is None:
        return None
    feeds = {
        name: list(map(np.asarray, value)) if isinstance(value, list) else np.asarray(value)
        for name, value in zip(names, values, strict=True)
    }
    dbg = Debugger(model, feeds, runtime=runtime)
    assert len(stepped(dbg)) >= len(model.proto.graph.node)  # at each node
    wrong = [name for name in outputs if not same(dbg.frame.value(name), expected[name])]
    dbg.restart()
    return wrong


def step_all(names: list[str], path) -> dict[str, list[str] | None]:
    """Every named case in one child process."""
    with Runtime(AS_WRITTEN) as runtime:
        return {name: step_case(runtime, cases()[name], path) for name in names}


def chosen() -> list[str]:
    """The cases with bodies and functions, those that round, and some of the others."""
    certain = [name for name, case in cases().items() if not ops_of(case.model) & RANDOM]
    inner = {
        name
        for name in certain
        if ops_of(cases()[name].model) & {"If", "Loop", "Scan"} or cases()[name].model.functions
    }
    return [n for i, n in enumerate(certain) if i % EACH == 0 or n in inner or n in ROUNDED]


def test_stepping_through_a_case_gives_what_the_runtime_gives(tmp_path):
    names = chosen()

    with ThreadPoolExecutor(2) as pool:
        halves = [(names[i::2], tmp_path / f"{i}.onnx") for i in range(2)]
        found = [
            done for half in pool.map(step_all, *zip(*halves, strict=True)) for done in half.items()
        ]

    ran = {name: wrong for name, wrong in found if wrong is not None}
    assert {name for name, wrong in ran.items() if wrong} == ROUNDED
    assert len(ran) > 1200 / EACH
