"""The session: what is a command and what is Python, every command, what a user can do wrong."""

import contextlib
import os
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest
from onnx import TensorProto, helper, parser, shape_inference

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import Model, load, open_references
from onnxsurgeon_lite.debug.result import BisectResult, Cause, Culprit
from onnxsurgeon_lite.graph.complete import Completions
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.passes import PASSES
from onnxsurgeon_lite.passes.recipe import read_recipe
from onnxsurgeon_lite.repl.commands import COMMANDS
from onnxsurgeon_lite.repl.completion import beginning, complete
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.preparing import Preparation, PreparedGraph
from onnxsurgeon_lite.repl.script import run_script
from onnxsurgeon_lite.repl.shell import transformed
from onnxsurgeon_lite.repl.words import command_of, split
from onnxsurgeon_lite.runtime.session import run_model

REFERENCES = FIXTURES / "references/whole_model.npz"
FAULTY = FIXTURES / "faulty_attribute.onnx"


@pytest.fixture
def session():
    session = open_session(FAULTY, reference=REFERENCES)
    with session.dbg:
        yield session


@pytest.fixture
def large():
    """An index of more nodes than a look waits for."""
    steps = (f"v{i + 1} = Relu(v{i})" for i in range(5_000))
    text = f"g (float[2, 3] v0) => (float[2, 3] v5000) {{ {' '.join(steps)} }}"
    return GraphIndex.of(
        Model(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}'))
    )


@pytest.fixture
def prepared(large, monkeypatch, tmp_path):
    """What a look tells before the types are inferred elsewhere by `infer`, and after."""
    here, looked = os.getpid(), tmp_path / "looked"

    def looks(infer):
        def elsewhere(*args, **options):
            if os.getpid() == here:
                return None
            while not looked.exists():
                time.sleep(0.01)
            return infer(*args, **options)

        monkeypatch.setattr(shape_inference, "infer_shapes", elsewhere)
        graph, names = PreparedGraph(large), Completions(large)
        Preparation(lambda: (graph, names)).begin()
        before = repr(graph["v7"])
        looked.touch()
        deadline = time.monotonic() + 60
        while graph.learning and time.monotonic() < deadline:
            time.sleep(0.01)
        return before, repr(graph["v7"])

    return looks


def test_the_types_of_a_large_graph_are_inferred_in_another_process(prepared):
    before, after = prepared(shape_inference.infer_shapes)

    assert before.startswith("value 'v7' type not inferred yet: Relu @6 -> Relu @7")
    assert after == "value 'v7' float [2, 3]: Relu @6 -> Relu @7"


def test_a_look_goes_on_without_types_when_their_inference_died(prepared):
    before, after = prepared(lambda *_, **__: os._exit(1))

    assert before.startswith("value 'v7' type not inferred yet: Relu @6 -> Relu @7")
    assert after == "value 'v7' unknown type: Relu @6 -> Relu @7"


@pytest.fixture
def said(session, capsys):
    """What lines give: (output, errors); they must go well unless told."""

    def run(*lines: str, well: bool = True) -> tuple[str, str]:
        capsys.readouterr()
        assert run_script(session, lines) == well
        return capsys.readouterr()

    return run


@pytest.mark.parametrize("word", COMMANDS)
def test_the_first_word_of_a_line_is_a_command(word):
    for rest in (
        "",
        "25",
        "op:Conv[2] if isnan(out)",
        "/encoder/Add",
        "@12/then_branch/q",
        "*relu*",
    ):
        line = f"{word} {rest}".strip()
        assert command_of(line, COMMANDS) == (word, rest)
        assert transformed([line + "\n"], COMMANDS) == [f"__onnxdbg__({line!r})\n"]


@pytest.mark.parametrize("word", [word for word in COMMANDS if word not in ("p", "pp")])
def test_what_can_only_be_python_after_a_command_word_is_python(word):
    for line in (
        f"{word}(x)",
        f"{word} = 3",
        f"{word} += 1",
        f"{word}.x",
        f"{word}[0]",
        f"{word} (x)",
        f"{word} [0]",
        f"{word} - 1",
    ):
        assert command_of(line, COMMANDS) is None
        assert transformed([line + "\n"], COMMANDS) == [line + "\n"]
        assert transformed([f"!{line}\n"], COMMANDS) == [line + "\n"]


@pytest.mark.parametrize("word", COMMANDS)
def test_a_cell_of_several_lines_and_ipythons_own_commands_are_left_alone(word):
    for cell in ([f"{word}\n", "x = 1\n"], [f"%{word} a\n"], [f"x = '{word}'\n"], ["!ls\n"]):
        assert transformed(cell, COMMANDS) == cell


def test_a_value_that_is_set_to_something_is_a_command():
    assert command_of("set 25 = np.zeros(3)", COMMANDS) == ("set", "25 = np.zeros(3)")


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("break 25; run; print 25", ["break 25", "run", "print 25"]),
        ("x = 'a;b'; run;", ["x = 'a;b'", "run"]),
        ("f(a;b)", ["f(a;b)"]),
        ("print it's; run", ["print it's; run"]),
    ],
)
def test_commands_are_separated_by_semicolons(line, parts):
    assert split(line) == parts


def test_commands_and_python_on_one_line():
    assert transformed(["x = 1; run\n"], COMMANDS) == ["x = 1; __onnxdbg__('run')\n"]


def test_every_command_is_in_the_help(said):
    shown, _ = said("help")

    known = [line.split()[0].strip(",") for line in shown.splitlines() if line.startswith("  ")]
    assert known == [*COMMANDS, "graph", "model", "dbg"]
    assert all(len(line) < 80 for line in shown.splitlines())


def test_a_session_from_the_fault_to_the_fixed_model(said, session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, _ = said("break 25; break 27", "run", "continue", "heal 27", "continue")
    assert found.count("MISMATCH") == 1
    assert "breakpoint 2 at Conv 'Conv_6' (@6)  [convs3.1]" in found

    said("model.set_attr('Conv_6', {'dilations': [1, 1], 'pads': [1, 1, 1, 1]})")
    fixed, _ = said("delete", "run", "compare 31", "diff", "history", "save fixed.onnx")
    assert "MISMATCH" not in fixed
    assert "changed node Conv 'Conv_6' (@6): attribute dilations [2, 2] -> [1, 1]" in fixed
    assert not session.mismatch

    said("export session.py", "export recipe.toml")
    (tmp_path / "again").mkdir()
    command = [sys.executable, "session.py", str(FAULTY), "again/fixed.onnx"]
    subprocess.run(command, check=True)
    assert (tmp_path / "again/fixed.onnx").read_bytes() == (tmp_path / "fixed.onnx").read_bytes()
    again = read_recipe(tmp_path / "recipe.toml", PASSES).apply(load(FAULTY)).model
    assert again.proto == session.model.current.proto
    references = open_references(REFERENCES)
    outputs = run_model(load(tmp_path / "fixed.onnx"), {"input.1": references.read("input.1")})
    assert np.allclose(outputs["31"], references.read("31"), atol=1e-5)


def test_edits_are_undone_and_done_again(said, session):
    original = session.model.current.proto

    said("model.rename({'31': 'out'})", "model.set_op('Add_7', 'Sub')", "undo", "undo")
    assert session.model.current.proto == original
    shown, _ = said("redo", "history")

    assert shown.splitlines()[-1].startswith("1: Rename(names=(('31', 'out'),)")
    assert "out" in session.namespace["graph"].index.outputs
    _, problem = said("redo", "redo", well=False)
    assert problem.endswith("error: there is no edit to redo\n  undo takes back the last edit\n")
    undone, _ = said("undo", "undo")
    assert "undone: onnxdbg edit set-op" in undone
    assert undone.splitlines()[0].endswith("Add_7 Sub")
    _, problem = said("undo", well=False)
    assert problem.startswith("error: there is no edit to undo")


def test_one_repair_is_one_undo(said, session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original = session.model.current.proto
    edits = osl.SetOp(("Add_7",), "Sub"), osl.SetAttr(("Conv_6",), (("group", 1),))
    cause = Cause("other", "two nodes are wrong", None, None, edits)
    culprit = Culprit("@7", "Add_7", "Add", "28", ["28"], ["@7"], [], causes=[cause])
    session.found = BisectResult("mismatch", culprits=[culprit])

    shown, _ = said("repair", "history")
    said("export both.toml")

    assert [line for line in shown.splitlines() if line.startswith("1: onnxdbg edit set-")]
    assert (tmp_path / "both.toml").read_text().count("[[step]]") == 2
    said("undo")
    assert session.model.current.proto == original


def test_many_numbers_are_exported_into_files(said, session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said("w = np.arange(81, dtype='float32').reshape(3, 3, 3, 3)")
    said(
        "model.set_constant('convs2.1.weight', w)", "model.set_constant('convs1.0.bias', [1, 2, 3])"
    )

    said("export session.py", "export recipe.toml", "save edited.onnx")

    subprocess.run([sys.executable, "session.py", str(FAULTY), "again.onnx"], check=True)
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "edited.onnx").read_bytes()
    again = read_recipe(tmp_path / "recipe.toml", PASSES).apply(load(FAULTY)).model
    assert again.proto == session.model.current.proto
    assert len(tomllib.loads((tmp_path / "recipe.toml").read_text())["step"]) == 2


def test_every_pass_is_a_method(session):
    offered = dir(session.model)

    for verb in PASSES:
        assert verb.replace("-", "_") in offered
        assert getattr(session.model, verb.replace("-", "_")).__doc__
    assert not hasattr(session.model, "nothing")


def test_every_command_says_what_it_found(said):
    shown, _ = said(
        "next", "next 2", "where", "watch 21", "until 24", "print 24", "set 24 = 0", "print 24"
    )
    assert "main graph: 3 of 11 nodes, after Conv 'Conv_2' (@2)  [convs1.2]" in shown
    assert "  watch 21 float" in shown
    assert "24 float [1, 3, 20, 20]: 0 .. 0, mean 0" in shown
    assert "[0, 0] of [1, 3, 20, 20]:" in shown

    shown, _ = said(
        "restart", "break op:Conv if out.max() > 100", "break", "run", "step", "out", "seed 1"
    )
    assert "breakpoint 1: 'op:Conv' if out.max() > 100, hit 0 times" in shown
    assert "never hit: breakpoint 1: 'op:Conv' if out.max() > 100" in shown

    shown, errors = said("feed input.1 = np.zeros((1, 3, 20, 20), 'float32')", "print input.1")
    assert "input.1 float [1, 3, 20, 20]: 0 .. 0" in shown


def test_python_works_on_the_same_objects(said):
    shown, _ = said(
        "m = dbg['25'].mean()",
        "for i in range(2):",
        "    print(i)",
        "",
        "m < 0",
        "graph['22']",
        "graph['22'].producer.inputs[0]",
        "graph.path('22', '28')",
        "[node.name for node in graph.around('28')]",
        "graph.find(op='Conv', scope='convs2.*')[0].outputs",
    )

    assert shown.splitlines() == [
        "0",
        "1",
        "np.True_",
        "value '22' float [1, 3, 20, 20]: Conv 'Conv_1' (@1) -> Conv 'Conv_2' (@2)",
        "value '21' float [1, 3, 20, 20]: Conv 'Conv_0' (@0) -> Conv 'Conv_1' (@1)",
        "Conv 'Conv_2' (@2): 22, convs1.2.weight, convs1.2.bias -> 23  [convs1.2]",
        "Conv 'Conv_3' (@3): 23, convs2.0.weight, convs2.0.bias -> 24  [convs2.0]",
        "Conv 'Conv_4' (@4): 24, convs2.1.weight, convs2.1.bias -> 25  [convs2.1]",
        "Add 'Add_7' (@7): 25, 27 -> 28",
        "['Add_7', 'Conv_8']",
        "[value '24' float [1, 3, 20, 20]: Conv 'Conv_3' (@3) -> Conv 'Conv_4' (@4)]",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("break 255", "closest names: '25'"),
        ("print nothing", "has no value 'nothing'"),
        ("set 25 = np.zeros(3, 'float32')", "value '25' is float32 [1, 3, 20, 20]"),
        ("set 25 = np.zeros((1, 3, 20, 20))", "convert it: .astype('float32')"),
        ("set 25 = 'abc'", "which 'abc' cannot be: could not convert string to float"),
        ("break 25 if", "break '25 if' has no condition\n  write break NODE if isnan(out)"),
        ("set 25", "set '25' has no value\n  write set VALUE = ARRAY"),
        ("print", "print of what\n  write print VALUE"),
        ("next many", "'many' is not a number of times"),
        ("delete 7", "no breakpoint '7'"),
        ("delete q", "no breakpoint has the number 'q'"),
        ("seed x", "'x' is not a seed"),
        ("undo", "there is no edit to undo"),
        ("export edits.txt", "end it in .py or .toml"),
        ("model.set_op('Add_7')", "needs 'op_type'"),
        ("model.set_op('Add_7', 'Sub', '', 1)", "set-op takes nodes, op_type, domain"),
        ("graph['nope']", "has no node or value 'nope'"),
        ("graph['Conv_*']", "'Conv_*' fits 10 places"),
        ("graph.path('28', '22')", "no path '28 -> 22'"),
        ("graph['onv_9']", "closest names: 'Conv_9'"),
        ("graph['convs2.1']", "closest names: 'convs2.1.bias', 'convs2.1.weight'"),
        ("graph[25]", "names are text\n  write '25', or '@25' for a node's number"),
        ("dbg[25]", "25 is not a name"),
        ("dbg.break_(25)", "25 is not a name"),
        ("set 25 = None", "which None cannot be"),
        ("next 0", "'0' is not a number of times"),
        ("run 3", "run takes nothing after it, and was given '3'\n  write run"),
        ("undo 2", "undo takes nothing after it"),
        ("set 31 = 31*0", "'31*0' does not read the value '31'\n  write set 31 = dbg['31'] ..."),
        ("set v = v*0", "'v*0' does not read the value 'v'\n  write set v = dbg['v'] ..."),
        ("break if out", "break 'if out' has no node"),
        ("brek 25", "no command 'brek' (it has"),
        ("help brek", "closest names: 'break'"),
        ("contineu", "name 'contineu' is not defined\nclosest commands: 'continue'"),
        ("model.renam({})", "closest names: 'rename'"),
        ("break 25 if isnan(", "    isnan(\n         ^\nSyntaxError: '(' was never closed"),
        ("set 25 = np.zeros(", "    np.zeros(\n            ^\nSyntaxError"),
        ("x = = 3", 'File "<input>", line 1\n    x = = 3\n        ^\nSyntaxError'),
        ("1 / 0", 'File "<input>", line 1, in <module>\nZeroDivisionError'),
    ],
)
def test_what_goes_wrong_is_said_in_the_users_words(said, line, says):
    _, problem = said(line, well=False)

    assert says in problem
    assert "onnxsurgeon_lite" not in problem


def test_until_says_that_it_never_came_there(said):
    shown, _ = said("run", "until 21")

    assert shown.endswith("never hit: until '21'\n")


def test_python_and_the_shells_own_words_are_no_mistyped_commands():
    for line in ("with x as y: pass", "while run: pass", "%rum a.py", "resart = 3", "rerun 1-3"):
        assert command_of(line, COMMANDS) is None


def test_the_source_is_not_overwritten(said, session):
    _, problem = said(f"save {FAULTY}", well=False)

    assert "save the model under another name" in problem


def onnxdbg(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxsurgeon_lite", "repl", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False)


def test_lines_come_from_the_option_or_from_standard_input():
    files = [str(FAULTY), "--reference", str(REFERENCES)]

    done = onnxdbg(*files, "-c", "break 25; run; print 25")
    piped = onnxdbg(*files, given="break 25\nrun\nprint 25\nquit\nnonsense\n")

    assert done.returncode == piped.returncode == 0
    assert done.stdout == piped.stdout
    assert "breakpoint 1 at Conv 'Conv_4' (@4)" in done.stdout


@pytest.mark.parametrize(
    ("line", "code"), [("compare 25", 0), ("compare 27", 1), ("compare nope", 2), ("1 / 0", 2)]
)
def test_the_exit_code_is_that_of_diff(line, code):
    assert onnxdbg(str(FAULTY), "--reference", str(REFERENCES), "-c", line).returncode == code


@pytest.mark.parametrize(
    ("text", "typed", "some"),
    [
        ("print 2", "2", "25"),
        ("break op:Co", "op:Co", "op:Conv"),
        ("break sc", "sc", "scope:"),
        ("break scope:convs2", "scope:convs2", "scope:convs2.1"),
        ("break Conv_", "Conv_", "Conv_6"),
        ("break 25; print 2", "2", "27"),
        ("compare 25, 2", "2", "27"),
        ("graph['2", "2", "21"),
        ('dbg["Conv', "Conv", "Conv_6"),
        ("graph.find(op='C", "C", "Conv"),
        ("graph.find(op='Conv', scope='convs1", "convs1", "convs1.0"),
        ("graph.around('2", "2", "22"),
        ("model.rename({'3", "3", "31"),
        ("help co", "co", "continue"),
    ],
)
def test_names_scopes_and_operators_are_completed(session, text, typed, some):
    assert complete(session, text)[0] == typed
    assert some in complete(session, text)[1]
    assert all(name.startswith(typed) for name in complete(session, text)[1])


def test_commands_are_completed_and_python_is_left_alone(session):
    assert list(beginning(session, "co")) == ["continue", "compare"]
    assert list(beginning(session, "")) == []
    assert complete(session, "x = gra") is None


def test_a_condition_uses_what_the_user_defined_and_sees_it_change(said):
    said("most = 1e9", "break 25 if out.max() > most", "most = -1e9")

    assert said("run")[0].startswith("breakpoint 1 at")


def test_an_export_leaves_nothing_behind_when_it_cannot_be_written(said, tmp_path):
    said("model.set_constant('convs1.0.weight', np.zeros((3, 3, 3, 3), np.float32))")
    folder = tmp_path / "missing"

    assert f"mkdir -p {folder}" in said(f"export {folder}/session.py", well=False)[1]

    (tmp_path / "recipe.toml").mkdir()
    assert "is not a regular file" in said(f"export {tmp_path}/recipe.toml", well=False)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


EVIL = '__import__("pathlib").Path("PWN").touch()'
HOSTILE = [
    EVIL,
    f"a; {EVIL}",
    f"b = {EVIL}",
    f"({EVIL})",
    f"[{EVIL}]",
    f"c if {EVIL}",
    f"if {EVIL}",
    f"- 1 or {EVIL}",
    f" = {EVIL}",
    f'd"]; {EVIL} #',
    f"e'); {EVIL} #",
    f", x); {EVIL} #",
    f"{{{EVIL}}}",
    f"~; !{EVIL}",
    "\n" + EVIL,
]


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A session on a model whose nodes and values have names that are Python, outside and in a body."""
    monkeypatch.chdir(tmp_path)
    flags = [helper.make_tensor_value_info("flag", TensorProto.BOOL, [1])]
    floats = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    inner = [helper.make_node("Neg", ["x"], [f"in {n}"], n) for n in HOSTILE]
    inner += [helper.make_node("Relu", ["x"], [f"{n} "], f"{n} ") for n in HOSTILE]
    body = helper.make_graph(inner, "b", [], [helper.make_tensor_value_info(f"in {EVIL}", 1, [1])])
    nodes = [helper.make_node("Relu", ["x"], [n], f"node {n}") for n in HOSTILE]
    nodes.append(helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body))
    graph = helper.make_graph(
        nodes, "g", [*flags, *floats], [helper.make_tensor_value_info("y", 1, [1])]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with (session := open_session("m.onnx")).dbg:
        yield session


@pytest.mark.parametrize("word", ["print", "p", "break", "set", "next", "prnt"])
def test_names_of_the_model_are_never_python(hostile, tmp_path, word):
    typed = [name for name in HOSTILE if name.isprintable()]
    for line in (f"{word} {n}{after}" for n in typed for after in ("", " = 3", " if iteration")):
        run_script(hostile, [line])
        (cell,) = transformed([line], COMMANDS, hostile.names.every)
        if word in COMMANDS and word != "p":
            assert cell.startswith("__onnxdbg__(")
    run_script(hostile, [f"{word} x, in {EVIL}", "restart", "run", "continue", "continue"])

    assert not (tmp_path / "PWN").exists()


def test_what_says_that_it_is_python_is_python(hostile, tmp_path):
    assert run_script(hostile, ["p 1 + 1", f"!{EVIL}"])
    assert (tmp_path / "PWN").exists()


@pytest.mark.parametrize(
    "text",
    [
        "print ",
        "p ",
        "break ",
        "break x, ",
        "break ; ",
        "print ;x,",
        "set ",
        "until ",
        'graph["',
        "dbg['",
        'dbg.read("',
        "graph.find(name='",
    ]
    + ['dbg["25", ', 'dbg.read(f"', "expose ", "edit remove ", "save ", "extract --outputs "],
)
def test_what_is_completed_at_the_prompt_runs_nothing(hostile, tmp_path, text):
    for name in ("s; " + EVIL.replace("/", ""), "t'"):
        (tmp_path / name).touch()
    typed, offered = complete(hostile, text) or ("", [])
    for name in offered:
        line = text.removesuffix(typed) + name
        for end in ("", '"]', "')"):
            run_script(hostile, [line + end])
            (cell,) = transformed([line + end], COMMANDS, hostile.names.every)
            for part in cell.split("\n"):
                with contextlib.suppress(Exception):
                    exec(part, {**hostile.namespace, "__onnxdbg__": lambda _: None})
        hostile.dbg.delete()

    assert not (tmp_path / "PWN").exists()
    assert all(name.isprintable() for name in offered)


def test_a_number_that_is_also_a_value_s_name_may_stand_in_what_python_makes(said):
    said(
        "set 25 = np.full((1, 3, 20, 20), 25, 'float32')", "set 25 = 25", "set 25 = dbg['25'] * 25"
    )
