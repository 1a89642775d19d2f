"""Values inside bodies have in the debugger the names that they have everywhere else."""

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from kit.bodies import BRANCH, CALLS, LOOP, PLANTED, SCAN, loaded
from onnxsurgeon_lite import SetOp
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.errors import UnknownNameError, UsageError
from onnxsurgeon_lite.graph.complete import Completions
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.script import run_script
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.surgery.exposing import exposable

FEEDS = {"x": np.array([-1, 2], np.float32), "c": np.array(True)}


@pytest.mark.parametrize("text", [BRANCH, LOOP, SCAN, CALLS], ids=["If", "Loop", "Scan", "calls"])
def test_what_a_run_calls_a_value_can_be_broken_at_and_looked_at(text, runtime, tmp_path):
    model = loaded(text, tmp_path)
    index = GraphIndex.of(model)
    found = run(index, FEEDS, runtime, exposable(index)[0])
    dbg = Debugger(model, FEEDS, runtime=runtime)

    for name, value in found.items():
        dbg.delete()
        dbg.break_(name)
        stop = dbg.run()

        if value is None:
            assert stop.reason == "end"
        else:
            assert name in [reading.name for reading in stop.readings]
            assert dbg[name].tobytes() == value.tobytes()
            assert dbg[dbg.place].tobytes() == value.tobytes()
    dbg.restart()


@pytest.mark.parametrize("case", PLANTED)
def test_references_from_inside_bodies_are_found_there(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, node, operator, *_, value = PLANTED[case]
    good = loaded(text, tmp_path)
    np.savez("feeds.npz", **FEEDS)
    words = ["record", "model.onnx", "--inner", "-o", "refs", "--feeds", "feeds.npz"]
    assert CliRunner().invoke(app, words).exit_code == 0
    onnx.save(SetOp((node,), operator).apply(good).model.proto, "faulty.onnx")

    session = open_session(tmp_path / "faulty.onnx", reference=tmp_path / "refs")
    with session.dbg as dbg:
        assert run_script(session, [f"break {value}", "run", f"compare {value}"])
        assert session.mismatch
        assert f"{value} float [2]" in capsys.readouterr().out or case == "scan"

        dbg.delete()
        dbg.break_(node)
        stop = dbg.run()
        while stop.reason != "end":
            assert dbg.heal(stop.readings[0].name)[0].match
            stop = dbg.continue_()
        assert [reading.match for reading in stop.readings] == [True] * len(stop.readings)


@pytest.mark.parametrize("text", [BRANCH, LOOP, SCAN, CALLS], ids=["If", "Loop", "Scan", "calls"])
def test_bodies_that_are_not_being_run_are_looked_into(text, runtime, tmp_path):
    model = loaded(text, tmp_path)
    index = GraphIndex.of(model)
    names = exposable(index)[0]
    dbg = Debugger(model, FEEDS, runtime=runtime)

    for name in names:
        readings = {reading.name: reading.value for reading in dbg.read(name)}
        expected = run(index, FEEDS, runtime, [name])
        assert readings.keys() == expected.keys()
        for each, value in expected.items():
            assert value is None or readings[each].tobytes() == value.tobytes()
            assert value is None or dbg[each].tobytes() == value.tobytes()
    assert dbg.place == ""
    dbg.restart()


def test_lists_and_patterns_are_looked_at_in_bodies_too(runtime, tmp_path):
    dbg = Debugger(loaded(LOOP, tmp_path), FEEDS, runtime=runtime)
    inner = ["@1/body/on[1]", "@1/body/two[1]", "@1/body/o[1]"]
    asked = "n,@1/body/o*[1],@1/body/two[1]"

    for _ in range(2):  # while it is not being run, and while it is
        assert {reading.name for reading in dbg.read(asked)} == {"n", *inner}
        dbg.break_("@1/body/o[1]")
        dbg.run()
    dbg.restart()


def test_what_was_set_before_a_body_is_seen_in_it_and_what_was_set_in_it_is_not_guessed(
    runtime, tmp_path
):
    dbg = Debugger(loaded(LOOP, tmp_path), FEEDS, runtime=runtime)
    dbg.set("n", 1)
    assert [reading.name for reading in dbg.read("@1/body/early")] == ["@1/body/early[0]"]
    assert dbg["@1/body/early[1]"] is None

    dbg.restart()
    dbg.break_("@1/body/o[1]")
    dbg.run()
    dbg.set("o", 0)
    for _ in range(3):  # at the next node, in the next iteration, after the loop
        with pytest.raises(UsageError, match="were set"):
            dbg.read("@1/body/o[0]")
        dbg.delete()
        dbg.break_("@1/body/o[3]")
        dbg.continue_()
    dbg.restart()


def test_what_was_set_in_an_early_iteration_is_never_computed_again_without_it(runtime, tmp_path):
    dbg = Debugger(loaded(LOOP, tmp_path), FEEDS, runtime=runtime)
    dbg.break_("@1/body/o[1]")
    dbg.run()
    dbg.set("o", 100)
    dbg.continue_()

    assert dbg["y"].tolist() == [2 * (2 * (100 + 1) + 1), 2 * (2 * (100 - 2) - 2)]
    assert "y" in dbg.frame.fixed
    dbg.restart()


def test_names_in_bodies_are_completed(tmp_path):
    names = Completions(GraphIndex.of(loaded(LOOP, tmp_path)))

    assert names.values("@1/body/@3/e") == ["@1/body/@3/else_branch/t", "@1/body/@3/else_branch/u"]
    assert names.nodes("@1/body/ea") == ["@1/body/early"]
    assert names.values("@0/") == names.values("@9/") == []


def test_a_captured_value_that_is_set_goes_on_in_the_body_and_after_it(runtime, tmp_path):
    dbg = Debugger(loaded(LOOP, tmp_path), FEEDS, runtime=runtime)
    dbg.break_("@1/body/@3/else_branch/t[2]")
    dbg.run()

    (reading,) = dbg.set("x", np.array([10, 20], np.float32))

    assert reading.name == "x"
    assert dbg["t"].tolist() == [-3 - 10, 6 - 20]
    dbg.delete()
    dbg.continue_()
    last = [2 * (-3 - 10), 2 * (6 - 20)]
    assert dbg["y"].tolist() == [2 * (last[0] - 10), 2 * (last[1] - 20)]
    dbg.restart()


@pytest.mark.parametrize(
    ("selector", "closest"),
    [("@1/body/earl", "early"), ("@1/bdy/on", "@1/body"), ("@7/body/on", "@1/body")],
)
def test_unknown_inner_names_offer_the_closest(selector, closest, runtime, tmp_path):
    dbg = Debugger(loaded(LOOP, tmp_path), FEEDS, runtime=runtime)

    for ask in (dbg.break_, dbg.read):
        with pytest.raises(UnknownNameError) as caught:
            ask(selector)

        assert closest in caught.value.hint


def test_a_watched_value_of_a_body_is_shown_at_each_iteration(runtime, tmp_path):
    dbg = Debugger(loaded(LOOP, tmp_path), FEEDS, runtime=runtime)
    dbg.break_("@1/body/early")
    dbg.run()

    assert dbg.watch("early") == ["@1/body/early"]
    names = [[reading.name for reading in dbg.continue_().watched] for _ in range(4)]

    assert names == [[f"@1/body/early[{i}]"] for i in (1, 2, 3)] + [[]]
    dbg.restart()
