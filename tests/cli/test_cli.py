"""The command line: what it prints where, what it writes where, how names are given and shown."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from kit import COMMAND, FIXTURES
from kit.commands import COMMANDS
from onnxsurgeon_lite import open_references
from onnxsurgeon_lite.cli.app import app

NAMES = [
    "a,b",
    "it's",
    'say "hi"',
    "two words",
    "-lead",
    "new\nline",
    "[red]x[/red]",
    "\x1b[31mred\x1b[0m",
    "\x9b1m",
    "\u202eturned",
    "../../x",
    "/abs",
    "back\\slash",
    "$HOME `id`",
    "é",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a model, a faulty copy and references in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("whole_model.onnx", "faulty_constant.onnx", "low_precision.onnx"):
        shutil.copy(FIXTURES / name, tmp_path)
    shutil.copy(FIXTURES / "references" / "whole_model.npz", "refs.npz")
    return tmp_path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A model whose every name is a trap: a chain x -> NAMES -> y; a copy that is wrong in its middle; recordings."""

    def chain(wrong: str = "") -> onnx.ModelProto:
        steps = [*NAMES, "y"]
        nodes = [
            helper.make_node(
                "Neg" if name == wrong else "Identity",
                [before],
                [name],
                name=f"node {name}",
                doc_string=name,
            )
            for before, name in zip(["x", *NAMES], steps, strict=True)
        ]
        values = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, ["[red]\x1b[1m"]) for n in "xy"
        ]
        graph = helper.make_graph(nodes, "g\x1b[1m[bold]", values[:1], values[1:])
        model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
        model.producer_name = model.doc_string = "[red]\x1b[31m\nx"
        helper.set_model_props(model, {"[red]": "\x1b[31m"})
        return model

    folder = tmp_path_factory.mktemp("recorded")
    (folder / "strange.onnx").write_bytes(chain().SerializeToString())
    (folder / "wrong.onnx").write_bytes(chain("/abs").SerializeToString())
    for model, target in (("strange.onnx", "refs"), ("wrong.onnx", "others")):
        invoke("record", folder / model, "-o", folder / target, "--fill", "x=ones")
    return folder


@pytest.fixture
def strange(folder, recorded):
    """The working directory, with the models and recordings of strange names."""
    shutil.copytree(recorded, folder, dirs_exist_ok=True)
    return folder


def invoke(*words: object, code: int = 0):
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, (done.output, done.exception)
    return done


def parsed(*words: object, code: int = 0) -> dict:
    """The JSON on stdout, NaN literals refused."""

    def refuse(literal: str):
        raise AssertionError(literal)

    return json.loads(invoke(*words, "--json", code=code).stdout, parse_constant=refuse)


def inputs_of(path: str) -> list[str]:
    return [value.name for value in onnx.load(path).graph.input]


def outputs_of(path: str) -> list[str]:
    return [value.name for value in onnx.load(path).graph.output]


# --- lists of names ---


@pytest.mark.parametrize(
    ("words", "exposed"),
    [
        (["24,26"], ["24", "26"]),
        (["24", "26"], ["24", "26"]),
        (["--", "24", "26"], ["24", "26"]),
        (["Conv_0"], ["21"]),
        (["@0,op:Add"], ["21", "28"]),
        (["op:Conv[1]"], ["22"]),
        (["2[12]"], ["21", "22"]),
    ],
)
def test_values_are_named_in_lists(words, exposed, folder):
    invoke("expose", "whole_model.onnx", "-o", "out.onnx", *words)

    assert outputs_of("out.onnx") == ["31", *exposed]


def test_repeating_an_option_adds_to_it(folder):
    words = ["--inputs", "24", "--inputs", "26", "--outputs", "28,27", "--outputs", "31"]

    invoke("extract", "whole_model.onnx", *words)

    assert inputs_of("whole_model.extract.onnx") == ["24", "26"]
    assert outputs_of("whole_model.extract.onnx") == ["28", "27", "31"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_can_be_given(name, strange):
    escaped = name.replace("\\", "\\\\").replace(",", "\\,")

    invoke("extract", "strange.onnx", f"--inputs={name}", "--outputs", "y", "-o", "one.onnx")
    invoke("expose", "strange.onnx", "-o", "two.onnx", "--", f"{escaped},x")

    assert inputs_of("one.onnx") == [name]
    assert outputs_of("two.onnx") == ["y", name, "x"]


# --- names on the terminal ---


def safe(text: str) -> bool:
    return all(character.isprintable() for line in text.split("\n") for character in line)


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "strange.onnx"],
        ["inspect", "strange.onnx", "--ops"],
        ["inspect", "strange.onnx", "--json"],
        ["inspect", "strange.onnx", "--node", "@7"],
        ["inspect", "strange.onnx", "--value", "*"],
        ["inspect", "strange.onnx", "--value", "*", "--json"],
        ["print", "strange.onnx"],
        ["check", "strange.onnx"],
        ["extract", "strange.onnx", "--outputs", "\x1b[31mred"],
        ["extract", "strange.onnx", "--outputs", "/abs", "-o", "o.onnx"],
        ["extract", "strange.onnx", "--inputs", "/abs", "--outputs", "[red]x[/red]"],
        ["expose", "strange.onnx", "--all"],
        ["expose", "strange.onnx", "node \x1b[31mred\x1b[0m"],
        ["run", "strange.onnx", "--fetch", "*", "--dim", "[red]\x1b[1m=2"],
        ["run", "strange.onnx", "--fetch", "*", "--json"],
        ["run", "strange.onnx", "--fetch", "\x1b[31mre"],
        ["record", "strange.onnx", "-o", "\x1b[31m"],
        ["compare", "wrong.onnx", "refs"],
        ["compare", "refs", "others"],
        ["compare", "wrong.onnx", "refs", "--json"],
        ["bisect", "wrong.onnx", "--reference", "refs", "-o", "\x1b[31mout"],
        ["bisect", "wrong.onnx", "--reference", "refs", "--json"],
        ["bisect", "strange.onnx", "--reference", "refs"],
        ["inspect", "\x1b[31mmissing.onnx"],
    ],
)
def test_names_do_nothing_to_the_terminal(words, strange):
    done = CliRunner().invoke(app, words)

    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert safe(done.stdout), done.stdout
    assert safe(done.stderr), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "strange.onnx", "--value", "[[]red]x*"],
        ["print", "strange.onnx"],
        ["run", "strange.onnx", "--fetch", "[red]x[/red]"],
        ["compare", "refs", "refs"],
    ],
)
def test_names_are_no_markup(words, strange):
    assert "[red]x[/red]" in invoke(*words).stdout


def test_a_line_end_in_a_name_stays_in_its_line(strange):
    text = invoke("print", "strange.onnx").stdout

    assert r'"new\nline" = Identity' in text


def test_output_that_an_encoding_cannot_hold_is_escaped(strange):
    done = subprocess.run(
        [*COMMAND, "inspect", "strange.onnx", "--value", "é"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert r"\xe9" in done.stdout


def test_names_never_become_paths(strange):
    shutil.rmtree("others")
    invoke("record", "strange.onnx", "-o", "refs2.npz", "--fill", "x=ones")
    invoke("run", "strange.onnx", "--fetch", "*", "--save", "run.safetensors")
    invoke("bisect", "wrong.onnx", "--reference", "refs", "-o", "culprit", code=1)

    written = {str(path.relative_to(strange)) for path in strange.rglob("*") if path.is_file()}

    assert written - {path.name for path in FIXTURES.glob("*.onnx")} == {
        "refs.npz",
        "refs/index.json",
        "refs/values.bin",
        "refs2.npz",
        "run.safetensors",
        "strange.onnx",
        "wrong.onnx",
        "culprit/model.onnx",
        "culprit/report.md",
        "culprit/repro.py",
        "culprit/test_data_set_0/actual_0.pb",
        "culprit/test_data_set_0/input_0.pb",
        "culprit/test_data_set_0/output_0.pb",
    }
    assert set(open_references("refs")) == {"x", *NAMES, "y"}


def test_the_reproducer_of_a_strange_name_shows_the_mismatch(strange):
    done = invoke("bisect", "wrong.onnx", "--reference", "refs", "-o", "the culprit", code=1)
    command = done.stdout.partition("reproduce: python ")[2].strip()
    shell = f"{sys.executable} {command}"
    again = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    with_ours = invoke("compare", "the culprit/model.onnx", "the culprit/test_data_set_0", code=1)

    assert "'/abs'" in done.stdout
    assert (again.returncode, again.stdout) == (1, "MISMATCH\n"), again.stderr
    assert "'/abs'" in with_ours.stdout


# --- what is written where ---


def test_without_o_the_output_goes_to_the_working_directory(folder):
    (folder / "sub").mkdir()
    shutil.move("whole_model.onnx", "sub")

    done = invoke("extract", "sub/whole_model.onnx", "--inputs", "22", "--outputs", "28")
    invoke("expose", "sub/whole_model.onnx", "22")

    assert done.stdout == "wrote 'whole_model.extract.onnx'\n"
    assert inputs_of("whole_model.extract.onnx") == ["22"]
    assert outputs_of("whole_model.expose.onnx") == ["31", "22"]
    assert [path.name for path in (folder / "sub").iterdir()] == ["whole_model.onnx"]


@pytest.mark.parametrize("verb", ["extract", "expose"])
def test_a_file_that_was_not_named_is_not_overwritten(verb, folder):
    words = {"extract": ["--outputs", "28"], "expose": ["28"]}[verb]
    other = folder / f"whole_model.{verb}.onnx"
    other.write_bytes(b"precious")

    refused = invoke(verb, "whole_model.onnx", *words, code=2)

    assert "is there already" in refused.stderr
    assert "--force" in refused.stderr
    assert other.read_bytes() == b"precious"
    invoke(verb, "whole_model.onnx", *words, "--force")
    assert "28" in outputs_of(str(other))


def test_the_named_output_is_overwritten_by_force_alone(folder):
    Path("out.onnx").write_bytes(b"old")
    invoke("extract", "whole_model.onnx", "--outputs", "28", "-o", "out.onnx", code=2)
    invoke("expose", "whole_model.onnx", "22", "-o", "whole_model.onnx", code=2)
    assert Path("out.onnx").read_bytes() == b"old"

    invoke("extract", "whole_model.onnx", "--outputs", "28", "-o", "out.onnx", "--force")
    invoke("expose", "whole_model.onnx", "22", "-o", "whole_model.onnx", "--force")

    assert outputs_of("out.onnx") == ["28"]
    assert outputs_of("whole_model.onnx") == ["31", "22"]


def test_a_reproducer_does_not_fall_into_a_folder_that_is_in_use(folder):
    words = ["bisect", "faulty_constant.onnx", "--reference", "refs.npz"]
    invoke(*words, code=1)
    Path("faulty_constant.culprit/notes.txt").write_text("mine")

    refused = invoke(*words, code=2)

    assert "'faulty_constant.culprit' is there already" in refused.stderr
    Path("faulty_constant.culprit/notes.txt").unlink()
    invoke(*words, "--force", code=1)


# --- results as JSON ---


def test_inspect_as_json(folder):
    whole = parsed("inspect", "whole_model.onnx")
    node = parsed("inspect", "whole_model.onnx", "--node", "Conv_1")
    value = parsed("inspect", "whole_model.onnx", "--value", "23")
    several = parsed("inspect", "whole_model.onnx", "--value", "2[12]")

    assert whole["ops"] == {"Conv": 10, "Add": 1}
    assert whole["inputs"][0]["name"] == "input.1"
    assert (node["id"], node["op_type"]) == ("@1", "Conv")
    assert value["consumers"] == ["Conv 'Conv_3' (@3)", "Conv 'Conv_5' (@5)"]
    assert [each["name"] for each in several] == ["21", "22"]


def test_check_as_json(folder):
    proto = onnx.load("whole_model.onnx")
    proto.graph.node[0].op_type = "Oops"
    Path("bad.onnx").write_bytes(proto.SerializeToString())

    valid = {"valid": True, "problem": "", "findings": [], "needs": [], "config": []}
    assert parsed("check", "whole_model.onnx") == valid
    assert "Oops" in parsed("check", "bad.onnx", code=1)["problem"]
    assert invoke("check", "bad.onnx", code=1).stdout.startswith("invalid: ")


def nan_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Log", ["x"], ["log"]),
        helper.make_node("Identity", ["log"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def test_run_as_json_counts_what_is_not_finite(folder):
    Path("nan.onnx").write_bytes(nan_model().SerializeToString())
    np.savez("feeds.npz", x=np.array([0, -1, 1, np.e], np.float32))

    result = parsed("run", "nan.onnx", "--feeds", "feeds.npz")

    (y,) = result["values"]
    assert (y["name"], y["dtype"], y["shape"]) == ("y", "float", [4])
    assert (y["nan"], y["inf"]) == (1, 1)
    assert (y["min"], y["max"], y["mean"]) == (0, pytest.approx(1), pytest.approx(0.5))
    assert result["feeds"] == []


def test_compare_as_json_has_no_literal_that_json_lacks(folder):
    np.savez("a.npz", x=np.array([np.nan, np.inf, 1]), same=np.ones(2))
    np.savez("b.npz", x=np.array([0, np.inf, 1]), same=np.ones(2), only=np.ones(1))

    result = parsed("compare", "a.npz", "b.npz", code=1)

    assert result["compared"]["x"]["reason"] == "non-finite"
    assert result["compared"]["x"]["non_finite"] == [0]
    assert result["compared"]["same"]["metrics"]["sqnr"] == "inf"
    assert result["only_reference"] == ["only"]


def test_bisect_as_json_is_the_documented_contract(folder):
    words = ["bisect", "faulty_constant.onnx", "--reference", "refs.npz"]
    result = parsed(*words, code=1)
    agrees = parsed("bisect", "whole_model.onnx", "--reference", "refs.npz")

    assert set(result) == set(agrees)
    assert result["verdict"] == "mismatch"
    (culprit,) = result["culprits"]
    assert {"id", "name", "op_type", "outputs", "scope"} <= set(culprit)
    assert result["outputs"]["31"]["match"] is False
    assert {"onnxsurgeon-lite", "onnx", "onnxruntime", "numpy"} <= set(result["versions"])
    assert (agrees["verdict"], agrees["culprits"], agrees["reproducer"]) == ("agrees", [], None)
    assert result["reproducer"] == "faulty_constant.culprit"


# --- run, record, compare ---


def test_made_feeds_are_told_on_stderr_and_made_again(folder):
    first, again, other = (
        invoke("run", "whole_model.onnx", "--seed", seed) for seed in ("5", "5", "6")
    )

    assert first.stderr == "note: made input.1: float [1, 3, 20, 20] normal, seed 5\n"
    assert first.stdout == again.stdout
    assert first.stdout != other.stdout


@pytest.mark.parametrize("target", ["out.npz", "out.safetensors", "out"])
def test_what_a_run_gave_is_stored(target, folder):
    done = invoke("run", "whole_model.onnx", "--fetch", "22,31", "--save", target)

    assert f"wrote '{target}'" in done.stdout
    assert set(open_references(target)) == {"22", "31"}


def test_what_a_format_cannot_hold_is_refused_by_name(folder):
    nodes = [helper.make_node("Cast", ["x"], ["half"], to=TensorProto.BFLOAT16)]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    ends = [helper.make_tensor_value_info("half", TensorProto.BFLOAT16, [2])]
    graph = helper.make_graph(nodes, "g", values, ends)
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, ir_version=10, opset_imports=opset)
    Path("half.onnx").write_bytes(model.SerializeToString())

    refused = invoke("run", "half.onnx", "--save", "out.npz", code=2)
    invoke("run", "half.onnx", "--save", "out.safetensors")

    assert ".npz cannot hold 'half'" in refused.stderr
    assert not Path("out.npz").exists()
    assert open_references("out.safetensors").read("half").dtype.name == "bfloat16"


@pytest.mark.parametrize("opt", ["none", "basic", "extended", "all"])
def test_every_level_of_optimization_agrees_with_the_references(opt, folder):
    done = invoke("compare", "whole_model.onnx", "refs.npz", "--opt", opt)

    assert "match" in done.stdout


def test_a_recording_matches_its_own_model_and_not_another(folder):
    done = invoke("record", "whole_model.onnx", "-o", "mine", "--feeds", "refs.npz")

    assert done.stdout == "recorded 12 values in 'mine'\n"
    invoke("compare", "mine", "refs.npz")
    mismatch = invoke("compare", "faulty_constant.onnx", "mine", code=1)
    assert "mismatch at value '31' (float32 [1, 3, 20, 20])" in mismatch.stdout


def test_tolerances_decide(folder):
    np.savez("a.npz", x=np.array([1.0, 2.0]))
    np.savez("b.npz", x=np.array([1.001, 2.0]))

    invoke("compare", "a.npz", "b.npz", code=1)
    invoke("compare", "a.npz", "b.npz", "--rtol", "0.01")
    invoke("compare", "a.npz", "b.npz", "--atol", "0.01")
    invoke("compare", "a.npz", "b.npz", "--atol", "0.0001", code=1)


# --- the command itself ---


def test_results_go_to_stdout_and_notes_to_stderr():
    done = subprocess.run(
        [*COMMAND, "run", FIXTURES / "whole_model.onnx"], capture_output=True, text=True, check=True
    )

    assert done.stderr == "note: made input.1: float [1, 3, 20, 20] normal, seed 0\n"
    assert done.stdout.split()[:4] == ["name", "dtype", "shape", "min"]


def test_a_wrong_command_line_exits_with_2(folder):
    for words in (["no-such-verb"], ["run"], ["run", "whole_model.onnx", "--opt", "most"]):
        assert CliRunner().invoke(app, words).exit_code == 2


# typer's own switch: which shell runs the tests must not matter
NAMED_SHELL = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown(shell):
    done = subprocess.run(
        [*COMMAND, "--show-completion", shell],
        env=NAMED_SHELL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout


def test_completion_is_installed(tmp_path):
    done = subprocess.run(
        [*COMMAND, "--install-completion", "bash"],
        env={**NAMED_SHELL, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".bashrc").exists()


def test_the_version_is_shown():
    assert invoke("--version").stdout.startswith("onnxdbg ")


@pytest.mark.parametrize(
    "verb",
    [
        "inspect",
        "print",
        "check",
        "extract",
        "expose",
        "run",
        "record",
        "compare",
        "bisect",
        "demo",
    ],
)
def test_every_verb_explains_itself(verb):
    assert invoke(verb, "--help").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["extract", "whole_model.onnx", "--inputs", "22", "--outputs", "28"], "22 -> 28 (6 nodes"),
        (["expose", "whole_model.onnx", "23"], "input.1 -> 31, 23 (11 nodes, 20 initializers)"),
        (["split", "whole_model.onnx", "--at", "23"], "part 2: 23 -> 31 (8 nodes)"),
        (["build", "linear.txt"], "graph 'g': x -> y (1 nodes, 0 initializers)"),
        (["edit", "sort", "whole_model.onnx"], "nothing to change"),
    ],
)
def test_a_dry_run_says_what_it_would_make_and_writes_nothing(words, told, folder):
    (folder / "linear.txt").write_text("g (float[2] x) => (float[2] y) { y = Add(x, x) }")
    before = sorted(path.name for path in folder.iterdir())

    dry = CliRunner().invoke(app, [*words, "--dry-run"])

    assert dry.exit_code == 0, dry.output
    assert told in dry.stdout
    assert sorted(path.name for path in folder.iterdir()) == before


WITHOUT_A_DRY_RUN = {
    "inspect", "print", "check", "diff", "data ls",  # they show
    "run", "record", "compare", "test", "profile",  # they write what was found
    "rank", "match", "bisect", "reduce", "demo", "view", "data manifest",
    "repl", "mcp",  # what is written is said there
}  # fmt: skip


def test_every_command_that_writes_a_model_has_a_dry_run():
    without = {
        words
        for words, command in COMMANDS.items()
        if "dry_run" not in inspect.signature(command).parameters
    }

    assert without == WITHOUT_A_DRY_RUN


def test_a_dry_run_of_a_merge_says_what_it_would_make_and_writes_nothing(folder):
    before = sorted(path.name for path in folder.iterdir())
    arguments = ["merge", "whole_model.onnx", "whole_model.onnx", "--share", "input.1"]

    dry = CliRunner().invoke(app, [*arguments, "--dry-run"])
    after = sorted(path.name for path in folder.iterdir())
    done = CliRunner().invoke(app, [*arguments, "-o", "twice.onnx"])

    assert (dry.exit_code, after) == (0, before)
    assert "merged 2 models: input.1 -> 31, 31_1 (22 nodes, 40 initializers)" in dry.stdout
    assert done.stdout == dry.stdout + "wrote 'twice.onnx'\n"


def test_an_edit_that_changes_the_outputs_is_not_written_where_it_is_to_be_verified(folder):
    words = ["edit", "set-op", "whole_model.onnx", "Add_7", "Sub", "-o", "sub.onnx"]

    done = invoke(*words, "--verify", code=1)

    assert "mismatch at value '31'" in done.stdout
    assert "the outputs differ: nothing was written" in done.stderr
    assert not Path("sub.onnx").exists()
    invoke(*words)
    assert Path("sub.onnx").exists()


@pytest.mark.parametrize("copied", [True, False])
def test_an_edited_model_goes_on_using_its_source_s_data_unless_it_is_to_have_its_own(
    folder, copied
):
    for name in ("external.onnx", "external.data"):
        shutil.copy(FIXTURES / name, folder)
    data = Path("external.data").read_bytes()

    done = invoke(
        "edit",
        "rename",
        "external.onnx",
        "x=q",
        "-o",
        "q.onnx",
        *(["--copy-data"] if copied else []),
    )

    assert ("--copy-data gives each its own" in done.stderr) is not copied
    files = {row["file"] for row in parsed("data", "ls", "q.onnx", "--json")}
    assert files == {"q.data" if copied else "external.data"}
    assert Path("external.data").read_bytes() == data
    invoke("diff", "external.onnx", "q.onnx")
