"""The debugger: where it stops, what it computes, and what it does when something goes wrong."""

import signal
import threading

import numpy as np
import pytest

from kit import AS_WRITTEN, FIXTURES
from kit.bodies import ENDLESS
from kit.busy import interrupt_after
from onnxsurgeon_lite import load, open_references
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.errors import (
    FeedsError,
    ReferenceSetError,
    RuntimeCrash,
    RuntimeFailure,
    RuntimeTimeout,
    UnknownNameError,
    UsageError,
)
from onnxsurgeon_lite.runtime.feeds import Recipe
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions, run_model

FORK = """fork (float[4] x) => (float[4] y, float[4] z) {
    a = Relu(x)
    b = Neg(a)
    c = Abs(b)
    d = Exp(a)
    y = Add(c, d)
    z = Mul(d, d)
}"""
X = np.array([-1, 0, 1, 2], np.float32)


@pytest.fixture(scope="module")
def shared():
    """One runtime for many debuggers."""
    with Runtime(AS_WRITTEN) as runtime:
        yield runtime


@pytest.fixture
def fork(model_of, shared):
    return Debugger(model_of(FORK), {"x": X}, runtime=shared)


def computed(dbg: Debugger) -> set[str]:
    return set(dbg.frame.observer.kept)


def test_it_stops_after_the_node_of_a_breakpoint_then_at_the_end(fork):
    fork.break_("c")

    stop = fork.run()
    end = fork.continue_()

    assert (stop.reason, stop.node, stop.breakpoints) == ("breakpoint", "Abs (@2)", [1])
    assert [reading.name for reading in stop.readings] == ["c"]
    assert (end.reason, [reading.name for reading in end.readings]) == ("end", ["y", "z"])


def test_only_what_a_question_needs_is_computed(fork):
    fork.break_("c")

    fork.run()

    assert computed(fork) == {"x", "a", "b", "c"}


def test_nothing_is_computed_twice(fork):
    fork.break_("c")
    fork.run()
    sessions = fork.frame.observer.sessions

    fork["a"], fork["b"], fork["c"], fork.run()

    assert fork.frame.observer.sessions == sessions


def test_without_room_values_are_computed_again_and_are_the_same(model_of, shared):
    dbg = Debugger(model_of(FORK), {"x": X}, runtime=shared, budget=1)

    end = dbg.run()

    assert computed(dbg) < {"x", "a", "b", "c", "d", "y", "z"}
    assert dbg["b"].tolist() == [0, 0, -1, -2]
    assert end.readings[0].statistics[0].max == pytest.approx(2 + np.exp(2))


def test_next_goes_node_by_node(fork):
    nodes = [fork.next().node for _ in range(6)]

    assert nodes == ["Relu (@0)", "Neg (@1)", "Abs (@2)", "Exp (@3)", "Add (@4)", "Mul (@5)"]
    assert fork.next().reason == "end"


def test_until_goes_to_a_node_once(fork):
    stop = fork.until("d")

    assert (stop.node, stop.breakpoints) == ("Exp (@3)", [])
    assert fork.continue_().reason == "end"


EVERY = ["a", "b", "c", "d", "y", "z"]


@pytest.mark.parametrize(
    ("selectors", "condition", "nodes"),
    [
        (["op:Abs"], None, ["Abs (@2)"]),
        (["@1", "z"], None, ["Neg (@1)", "Mul (@5)"]),
        (EVERY, "out.max() > 2", ["Exp (@3)", "Add (@4)", "Mul (@5)"]),
        (EVERY, "isnan(out)", []),
        (EVERY, lambda facts: facts["out"].min() < 0, ["Neg (@1)"]),
    ],
)
def test_a_breakpoint_is_a_selector_and_a_condition(fork, selectors, condition, nodes):
    for selector in selectors:
        fork.break_(selector, condition)

    found = []
    stop = fork.run()
    while stop.reason != "end":
        found.append(stop.node)
        stop = fork.continue_()

    assert found == nodes


def test_a_breakpoint_that_never_hits_is_told_at_the_end(fork):
    fork.break_("c", "out < 0")
    fork.break_("d")
    fork.run()

    end = fork.continue_()

    assert list(end.unhit) == ["breakpoint 1: 'c' if out < 0"]


def test_conditions_are_told_of_more_nodes_than_are_computed_together(model_of, shared):
    nodes = "".join(f"v{i + 1} = Add(v{i}, one)\n" for i in range(100))
    text = f"long (float[1] v0) => (float[1] v100) <float one = {{1}}> {{ {nodes} }}"
    dbg = Debugger(model_of(text), {"v0": np.zeros(1, np.float32)}, runtime=shared)
    dbg.break_("op:Add", "out == 77")

    assert dbg.run().node == "Add (@76)"
    assert dbg.continue_().reason == "end"


def test_a_value_that_is_set_goes_on_and_what_was_computed_before_stays(fork):
    fork.run()

    fork.set("c", np.full(4, 7, np.float32))

    assert {"a", "b", "d"} <= computed(fork)
    assert "y" not in computed(fork)
    assert fork["y"].tolist() == (7 + fork["d"]).tolist()
    assert fork["z"].tolist() == (fork["d"] ** 2).tolist()


def test_a_number_fills_a_value(fork):
    fork.set("a", 0)

    assert fork["d"].tolist() == [1, 1, 1, 1]


def test_an_input_can_be_set_and_restart_forgets_it(fork):
    fork.set("x", np.ones(4, np.float32))
    assert fork["a"].tolist() == [1, 1, 1, 1]

    fork.restart()

    assert fork["a"].tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros(3, np.float32), "value 'c' is float32 [4], the array is float32 [3]"),
        (np.zeros(4), "value 'c' is float32 [4], the array is float64 [4]"),
    ],
)
def test_set_refuses_another_shape_or_dtype(fork, value, said):
    with pytest.raises(FeedsError) as caught:
        fork.set("c", value)

    assert caught.value.message == said
    assert caught.value.hint


def test_healing_a_value_heals_the_output():
    references = open_references(FIXTURES / "references/whole_model.npz")
    model = load(FIXTURES / "faulty_attribute.onnx")
    feeds = {"input.1": references.read("input.1")}
    with Debugger(model, feeds, references) as dbg:
        dbg.break_("25")
        dbg.break_("27")
        stops = [dbg.run(), dbg.continue_()]
        assert [stop.readings[0].match for stop in stops] == [True, False]
        assert not dbg.compare("31")[0].match

        dbg.heal("27")

        assert dbg.continue_().readings[0].match


def test_watched_values_are_shown_when_they_are_there(fork):
    fork.watch("c")
    before = fork.next().watched
    fork.until("d")

    assert not before
    assert [reading.name for reading in fork.next().watched] == ["c"]
    assert fork.watch("c") == []


def test_where_says_node_and_scope():
    model = load(FIXTURES / "whole_model_dynamo.onnx")
    with Debugger(model, recipe=Recipe()) as dbg:
        dbg.break_("scope:convs3.1")
        dbg.run()

        (level,) = dbg.where()

    assert "Conv" in level.node
    assert level.origin.startswith("convs3.1 (Conv2d), make_fixtures.py:")


def test_made_feeds_are_told_and_missing_ones_are_asked_for(model_of, shared):
    dbg = Debugger(model_of(FORK), runtime=shared)
    with pytest.raises(FeedsError, match="no feed for input 'x'") as caught:
        dbg.run()
    assert caught.value.hint == "give it: feed NAME = ARRAY; or have it made: seed 0"

    dbg.seed(3)
    dbg.run()

    assert dbg.made == ["x: float [4] normal, seed 3"]
    dbg.feed("x", X)
    assert dbg["a"].tolist() == [0, 0, 1, 2]


def test_unknown_names_offer_the_closest(fork):
    for ask in (fork.break_, fork.read, fork.heal, fork.watch, fork.until):
        with pytest.raises(UnknownNameError):
            ask("nope")
    with pytest.raises(ReferenceSetError, match="none were given"):
        fork.heal("c")
    with pytest.raises(UsageError, match="no node computes 'x'"):
        fork.break_("x")
    with pytest.raises(UnknownNameError, match="no breakpoint '7'"):
        fork.delete(7)


def test_a_condition_that_fails_says_so(fork):
    fork.break_("c", "out.nothing > 1")

    with pytest.raises(UsageError, match="has no attribute 'nothing'") as caught:
        fork.run()

    assert "out, outs, node, iteration" in caught.value.hint


@pytest.mark.parametrize(
    ("condition", "wrong", "hint"),
    [
        ("isnann(out)", "isnann", "closest names: 'isnan'"),
        ("abs(out) > q7z", "q7z", "it can use out, outs, node, iteration, numpy's"),
        ("any(each > q7z for each in out)", "q7z", "it can use out"),
    ],
)
def test_a_condition_names_what_there_is(fork, condition, wrong, hint):
    with pytest.raises(UsageError, match=f"uses '{wrong}', which is not known") as caught:
        fork.break_("c", condition)

    assert hint in caught.value.hint
    assert not len(fork.breakpoints)


def test_a_condition_may_define_names_of_its_own(fork):
    fork.break_("c", "any((lambda most: each.max() > (least := most))(-1.0) for each in out)")

    assert fork.run().node == "Abs (@2)"


def test_an_edited_model_starts_again_with_what_fits(fork, model_of):
    fork.break_("c")
    fork.break_("d")
    fork.run()

    lost = fork.load(model_of(FORK.replace("c = Abs(b)", "e = Abs(b)").replace("Add(c", "Add(e")))

    assert lost == ["breakpoint 1: 'c'"]
    assert fork.run().node == "Exp (@3)"


def test_a_runtime_that_takes_too_long_is_ended_and_the_node_is_named(model_of):
    feeds = {"x": np.ones(1, np.float32), "go": np.array(True)}
    with Runtime(RuntimeOptions(opt="none", lean=True, timeout=1.5)) as runtime:
        dbg = Debugger(model_of(ENDLESS), feeds, runtime=runtime)

        with pytest.raises(RuntimeTimeout) as caught:
            dbg.run()

        assert caught.value.__notes__ == ["while computing Loop (@1)"]
        assert (dbg.place, dbg["n"].tolist()) == ("@0", [-1])


@pytest.fixture
def interruptible():
    """A test run in the background inherits that SIGINT is ignored; a terminal's command does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def process_of(runtime: Runtime) -> int:
    runtime.about()  # it has started
    return runtime._child._process.pid


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_run_names_the_node_and_keeps_the_values(model_of, shared):
    feeds = {"x": np.ones(1, np.float32), "go": np.array(True)}
    dbg = Debugger(model_of(ENDLESS), feeds, runtime=shared)
    interrupt_after(0.3, process_of(shared))

    with pytest.raises(KeyboardInterrupt) as caught:
        dbg.run()

    assert caught.value.__notes__ == ["while computing Loop (@1)"]
    assert (dbg.place, computed(dbg)) == ("@0", {"x", "go", "n"})
    assert dbg["n"].tolist() == [-1]


LONG_SIZES = "<int64[2] sizes = {6000, 6000}>"
LONG = f"""long (float[1] x) => (float[n, n] z) {LONG_SIZES} {{
    a = Neg(x)
    wide = Expand(a, sizes)
    y = MatMul(wide, wide)
    z = Abs(y)
}}"""


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_long_kernel_and_the_session_lives(model_of):
    with Runtime(RuntimeOptions(opt="none", lean=True, threads=1)) as runtime:
        dbg = Debugger(model_of(LONG), {"x": np.ones(1, np.float32)}, runtime=runtime)
        dbg.read("a")
        dbg.frame.need(["wide"])
        interrupt_after(0.3, process_of(runtime))

        with pytest.raises(KeyboardInterrupt) as caught:
            dbg.read("y")

        assert caught.value.__notes__ == ["while computing MatMul (@2)"]
        assert dbg["a"].tolist() == [-1]


@pytest.mark.usefixtures("interruptible")
def test_nodes_that_were_interrupted_together_run_one_by_one_the_next_time(model_of):
    notes = []
    text = LONG.replace("(float[1] x)", "(float[1] x, int64[2] sizes)").replace(LONG_SIZES, "")
    feeds = {"x": np.ones(1, np.float32), "sizes": np.array([6000, 6000])}
    with Runtime(RuntimeOptions(opt="none", lean=True, threads=1)) as runtime:
        dbg = Debugger(model_of(text), feeds, runtime=runtime)
        for seconds in (0.5, 1.2):
            interrupt_after(seconds, process_of(runtime))
            with pytest.raises(KeyboardInterrupt) as caught:
                dbg.run()
            notes += caught.value.__notes__

    first, second = notes
    assert first.startswith("while computing 4 nodes, Neg (@0) to Abs (@3); they run one by one")
    assert second == "while computing MatMul (@2)"
    assert dbg.place == "@1"


@pytest.mark.usefixtures("interruptible")
def test_a_long_kernel_is_named_at_once_where_its_sizes_are_known(model_of):
    with Runtime(RuntimeOptions(opt="none", lean=True, threads=1)) as runtime:
        dbg = Debugger(model_of(LONG), {"x": np.ones(1, np.float32)}, runtime=runtime)
        dbg.frame.index.learn_types(["y"])
        interrupt_after(1.2, process_of(runtime))

        with pytest.raises(KeyboardInterrupt) as caught:
            dbg.run()

    assert caught.value.__notes__ == ["while computing MatMul (@2)"]
    assert dbg.place == "@1"


def test_a_runtime_that_dies_is_started_again(model_of):
    feeds = {"x": np.ones(1, np.float32), "go": np.array(True)}
    with Runtime(AS_WRITTEN) as runtime:
        dbg = Debugger(model_of(ENDLESS), feeds, runtime=runtime)
        dbg.next()
        dbg.set("n", np.full(1, 5, np.float32))
        process = runtime._child._process
        threading.Timer(0.5, process.kill).start()

        with pytest.raises(RuntimeCrash) as caught:
            dbg.continue_()

        assert caught.value.__notes__ == ["while computing Loop (@1)"]
        assert (dbg.place, dbg["n"].tolist()) == ("@0", [5])


def test_a_node_that_fails_is_not_passed(model_of, shared):
    text = """bad (float[4] x, int64[1] at) => (float[1] y) {
        a = Relu(x)
        y = Gather(a, at)
    }"""
    dbg = Debugger(model_of(text), {"x": X, "at": np.array([9])}, runtime=shared)

    with pytest.raises(RuntimeFailure, match="Gather"):
        dbg.run()

    assert dbg.place == ""
    assert dbg["a"].tolist() == [0, 0, 1, 2]


def test_running_in_parts_equals_the_whole_bit_for_bit():
    model = load(FIXTURES / "transformer_block.onnx")
    references = open_references(FIXTURES / "references/transformer_block.npz")
    names = [value.name for value in model.proto.graph.input]
    feeds = {name: references.read(name) for name in names if name in references}
    whole = run_model(model, feeds, options=AS_WRITTEN)

    with Debugger(model, feeds, budget=4096) as dbg:
        while dbg.next().reason != "end":
            pass
        for name, value in whole.items():
            assert dbg[name].tobytes() == value.tobytes()
