"""The prompt's short forms as in pdb, and the commands of `onnxdbg` on the session's model and inputs."""

import doctest
import re
import shutil

import numpy as np
import pytest

from kit import FIXTURES
from onnxsurgeon_lite import load, open_references
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.cli.commands import name_of
from onnxsurgeon_lite.cli.prompt import PromptVerbs
from onnxsurgeon_lite.repl.commands import ALIASES, COMMANDS
from onnxsurgeon_lite.repl.completion import beginning, complete
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.script import run_script
from onnxsurgeon_lite.runtime.feeds import Recipe

FIX = "edit set-attr Conv_6 dilations=[1,1] pads=[1,1,1,1]"


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Sessions in a folder of their own, as the command opens them."""
    shutil.copytree(FIXTURES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    debuggers = []

    def open_one(model: str, reference: str | None = None, **fill: str):
        session = open_session(model, reference=reference, recipe=Recipe(fills=fill))
        session.given = {"seed": 0, **({"reference": reference} if reference else {})}
        session.verbs = PromptVerbs(session)
        debuggers.append(session.dbg)
        return session

    yield open_one
    for dbg in debuggers:
        dbg.__exit__()


@pytest.fixture
def session(opened):
    return opened("faulty_attribute.onnx", "references/whole_model.npz")


@pytest.fixture
def looping(opened):
    return opened("control_flow.onnx", steps="ones")


@pytest.fixture
def said(capsys):
    """What lines give: (output, errors); they must go well unless told."""

    def run(session, *lines: str, well: bool = True) -> tuple[str, str]:
        capsys.readouterr()
        assert run_script(session, lines) == well
        return capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("b 25 27", "break 25; break 27"),
        ("b 25, 27", "break 25; break 27"),
        ("c", "continue"),
        ("n; n 2", "next; next 2"),
        ("s", "step"),
        ("n; r", "next; out"),
        ("n; p 21", "next; print 21"),
        ("n 3; w", "next 3; where"),
        ("n 3; l", "next 3; list"),
        ("b 25; b", "break 25; break"),
        ("b 25; cl 1; b", "break 25; delete 1; break"),
    ],
)
def test_short_forms_do_what_the_words_do(session, said, short, long):
    first = said(session, short)
    said(session, "delete; restart")
    session.dbg.breakpoints._last = 0

    assert said(session, long) == first


def test_a_temporary_breakpoint_stops_once(session, said):
    shown, _ = said(session, "tbreak op:Conv if out.max() > 1", "c", "c", "b")

    assert shown.startswith("temporary breakpoint 1: 'op:Conv' if out.max() > 1\nbreakpoint 1 at ")
    assert "\nat the end\n" in shown
    assert shown.endswith("no breakpoints\n")


def test_names_are_resolved_in_the_frame_that_was_chosen(looping, said):
    said(looping, "b @2/body/@1", "c")

    assert said(looping, "p loop/sum")[0].startswith("@2/body/loop/sum[0] float [2, 3]")
    shown, _ = said(looping, "u")
    assert shown.startswith("> main graph: 2 of 4 nodes, in Loop 'Loop' (@2)\n@2/body[0]: ")
    assert "has no value 'loop/sum'" in said(looping, "p loop/sum", well=False)[1]
    assert " -> Loop 'Loop' (@2)" in said(looping, "ll")[0]
    assert "no frame further out" in said(looping, "u", well=False)[1]

    assert ">" not in said(looping, "d")[0]
    assert "B-> Add 'loop/Add' (@2/body/@1[0])" in said(looping, "ll")[0]
    said(looping, "u", "n")
    assert said(looping, "p loop/is_first")[0].startswith("@2/body/loop/is_first[0] bool")
    assert "no frame further in" in said(looping, "d", well=False)[1]


def test_the_nodes_around_are_listed_and_then_those_that_follow(session, said):
    said(session, "b 27", "n 8")

    first, following, again, about = (said(session, line)[0] for line in ("l", "l", "l .", "l 21"))

    assert [line[1:3] for line in first.splitlines()].index("->") == 5
    assert "B   Conv 'Conv_6' (@6): 26, convs3.1.weight, convs3.1.bias -> 27\n" in first
    assert following == "no more nodes\n"
    assert again == first
    assert about.startswith("    Conv 'Conv_0' (@0): input.1, ")
    assert len(said(session, "ll")[0].splitlines()) == 11


def test_a_value_or_a_python_expression_is_printed(session, looping, said):
    said(session, "most = {'a': 1, 'b': [2]}")

    assert said(session, "p 2 + 3")[0] == "5\n"
    assert said(session, "p (2 + 1)")[0] == "3\n"
    assert said(session, "p most['b']")[0] == "[2]\n"
    assert said(session, "p len(graph)")[0] == "11\n"
    assert said(session, "pp most")[0] == "{'a': 1, 'b': [2]}\n"
    assert [line.split(";")[0][:8] for line in said(session, "p 25, 27")[0].splitlines()][
        0
    ] == "25 float"
    assert "closest names: '25'" in said(session, "p 255", well=False)[1]
    assert "no value 'mots'" in said(session, "p mots", well=False)[1]
    assert said(looping, "p x.shape + (x > 1e9).shape")[0] == "(2, 3, 2, 3)\n"
    assert said(looping, "x = 3", "p x")[0].startswith("x float [2, 3]")


def test_a_value_is_displayed_at_every_stop_until_it_is_not(session, said):
    assert said(session, "display 21", "display")[0] == "display '21'\n" * 2
    assert "  watch 21 float" in said(session, "n 2")[0]
    assert "has no display '22'" in said(session, "undisplay 22", well=False)[1]
    assert "watch" not in said(session, "undisplay", "n")[0]


def test_quit_leaves_at_once(session, said):
    assert said(session, "p 1 + 1; q; p 3", "p 4") == ("2\n", "")


def test_every_command_is_at_the_prompt(session):
    commands = {info.name or name_of(info.callback) for info in app.registered_commands}
    groups = {info.name for info in app.registered_groups}

    assert commands | groups == {*session.verbs.names, "repl", "mcp"}
    assert not ALIASES.keys() & (session.verbs.names.keys() | COMMANDS.keys())


@pytest.mark.parametrize(
    ("line", "shows"),
    [
        ("inspect --node Conv_6", "[1, 1]"),
        ("check", "'faulty_attribute.edited.onnx' is valid"),
        ("diff whole_model.onnx", "no difference"),
        ("diff", "attribute dilations [2, 2] -> [1, 1]"),
        ("onnxdbg print", "dilations: ints = [1, 1]"),
        ("onnxdbg run", "-3.40663"),
        ("onnxdbg compare references/whole_model.npz", "match"),
        ("onnxdbg compare", "match"),
        ("bisect", "agrees at '31'"),
        ("bisect --against whole_model.onnx", "agrees at '31'"),
        ("match whole_model.onnx", "12 pairs"),
        ("rank --against whole_model.onnx", "exclude (0 below 20 dB)"),
        ("weights --against whole_model.safetensors", "20 weights found"),
        ("split --at 23", "agrees with the whole"),
        ("record -o recorded", "recorded 12 values"),
        ("data ls", "fingerprint"),
        ("help bisect", "--strip-weights"),
        ("help edit rename", "OLD=NEW"),
    ],
)
def test_a_command_takes_the_edited_model_and_the_inputs_of_the_session(session, said, line, shows):
    said(session, FIX)
    shown, _ = said(session, line)

    assert shows in shown
    assert not session.mismatch


def test_what_a_command_writes_is_of_the_edited_model(session, said, tmp_path):
    said(
        session,
        FIX,
        "extract --inputs 26 --outputs 27",
        "expose 27",
        "merge whole_model.onnx --map 31=input.1 --prefix b/",
    )

    (conv,) = load(tmp_path / "faulty_attribute.edited.extract.onnx").proto.graph.node
    assert [list(a.ints) for a in conv.attribute if a.name == "dilations"] == [[1, 1]]
    exposed = load(tmp_path / "faulty_attribute.edited.expose.onnx").proto.graph.output
    assert [value.name for value in exposed] == ["31", "27"]
    assert len(load(tmp_path / "faulty_attribute.edited.merge.onnx").proto.graph.node) == 22


def test_an_edit_changes_the_model_of_the_session_and_is_undone(session, said):
    original = session.model.current.proto
    files = {*session.source.path.parent.iterdir()}

    shown, notes = said(session, "edit rename 31=out --verify", "edit set-op Add_7 Sub", "history")
    assert "verified: 1 output agrees" in shown
    assert re.search(r"2: onnxdbg edit set-op \S+ Add_7 Sub", shown)
    assert notes.count("the model changed: at its start again") == 2
    assert "MISMATCH" in said(session, "edit set-op Add_7 Mul --verify")[0]
    assert session.mismatch
    said(session, "edit clean", "edit rename out=o --dry-run", "undo", "undo")

    assert session.model.current.proto == original
    assert {*session.source.path.parent.iterdir()} == files


def test_commands_run_on_what_was_fed(session, said):
    shown, _ = said(session, "feed input.1 = np.zeros((1, 3, 20, 20), 'float32')", "record -o r")

    assert "recorded 12 values" in shown
    assert np.all(open_references("r").read("input.1") == 0)


def test_a_command_compares_with_what_it_is_told(session, said):
    assert "wrong node" in said(session, "bisect -o a")[0]
    assert "total dB" in said(session, "rank --against whole_model.onnx")[0]
    assert "keep in float32" in said(session, "rank --fp16-risk")[0]
    assert "nothing found" in said(session, "bisect --find nan")[0]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("expose --bogus", "No such option: --bogus\n  help expose shows its options"),
        ("edit rename", "help edit rename shows its options"),
        ("edit set-att x", "'set-attr', 'set-layout', 'set-type'?\n  help edit shows its options"),
        ("edit nope", "No such command 'nope'"),
        ("expose 255", "closest names: '25'"),
        ("extract --inputs '22", "No closing quotation"),
        ("diff nothing.onnx", "cannot read 'nothing.onnx'"),
        ("expsoe 25", "closest names: 'expose'"),
        ("onnxdbg repl", "No such command 'repl'"),
    ],
)
def test_what_goes_wrong_in_a_command_is_a_message(session, said, line, says):
    _, problem = said(session, line, well=False)

    assert says in problem
    assert "Traceback" not in problem


@pytest.mark.parametrize(
    ("text", "typed", "some"),
    [
        ("extract --in", "--in", "--inputs"),
        ("extract --inputs 2", "2", "22"),
        ("extract --inputs 22,2", "22,2", "22,28"),
        ("n; expose op:Co", "op:Co", "op:Conv"),
        ("edit set-", "set-", "set-attr"),
        ("edit set-attr Conv_", "Conv_", "Conv_6"),
        ("data em", "em", "embed"),
        ("onnxdbg ru", "ru", "run"),
        ("onnxdbg run --fetch 2", "2", "25"),
        ("match whole", "whole", "whole_model.onnx"),
        ("diff whole", "whole", "whole_model.onnx"),
        ("b 25 2", "2", "27"),
        ("p 2", "2", "25"),
        ("help bis", "bis", "bisect"),
    ],
)
def test_commands_are_completed_as_in_the_shell(session, text, typed, some):
    assert complete(session, text)[0] == typed
    assert some in complete(session, text)[1]


def test_commands_are_completed_with_the_names_of_the_edited_model(session, said):
    said(session, "edit rename 31=result")

    assert complete(session, "extract --outputs r") == ("r", ["result"])
    assert list(beginning(session, "ext")) == ["extract"]


def test_the_examples_of_the_graph_are_true(session, said):
    shown, _ = said(session, "help graph")
    names = {"graph": session.namespace["graph"]}
    test = doctest.DocTestParser().get_doctest(shown, names, "graph", None, 0)

    assert len(test.examples) == 6
    assert doctest.DocTestRunner().run(test).failed == 0


def test_help_says_what_an_object_is_and_what_a_command_does(session, said):
    assert "model.rename" in said(session, "help model")[0]
    assert said(session, "help c")[0].split("  ")[-1] == "on to the next breakpoint\n"
    assert "closest names: 'bisect'" in said(session, "help bisct", well=False)[1]
