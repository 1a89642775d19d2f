"""What the shell completes, asked as the scripts of `--install-completion` ask."""

import io
import os
import re
import signal
import socket
import threading
import time
from contextlib import redirect_stdout
from shutil import which
from typing import get_type_hints

import onnx
import pexpect
import pytest
import typer

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.commands import COMMANDS
from kit.packages import package
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.cli.completion import answer
from onnxsurgeon_lite.cli.shells import SCRIPTS

DETECTED = ["33", "34", "35", "36", "37", "38", "boxes", "labels", "scores"]
NO_NAMES = {
    "factory", "metric", "what", "target", "noise", "vector", "constant",  # programs, texts, classes, what is new
    "edit add-constant constants", "edit add-constant dtype", "edit annotate entries", "edit simplify without",
    "feeds", "reference", "map", "location", "by", "initializer",  # files
    "provider", "cluster", "memory_limit", "memory", "limit", "a", "b", "find", "commands", "versions",  # settings
    "max_shard", "min_size",  # bytes
    "attr", "attributes", "remove", "numbers", "to", "dim", "domain",  # parts of nodes, numbers, sizes
    "op_type", "op",  # operators, of any opset
    "name", "names", "node_name", "new_value", "count", "prefix",  # names that are not there yet
    "reduce fails", "reduce command", "reduce says",  # conditions, programs, what programs print
    "record scope", "record python",  # of a PyTorch program
}  # fmt: skip
"""Parameters that are text, but mean nothing in the model on the line."""


GROUP = typer.main.get_command(app)


def asked(shell: str, line: str, part: str = "") -> list[str]:
    """What a shell gets for a line that ends where the cursor is."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setenv("_ONNXDBG_LINE", line)
        patch.setenv("_ONNXDBG_WORD", part)
        answer(shell, GROUP)
    return said.getvalue().splitlines()


def completed(line: str) -> list[str]:
    """What bash gets; it splits words at ':' and '=', too, and gives the part behind."""
    return asked("bash", line, re.split("[ :=]", line)[-1])


def commands(group, path: str = "") -> dict[str, object]:
    """Every command below a group."""
    found = {}
    for name, command in group.commands.items():
        below = commands(command, f"{path}{name} ") if hasattr(command, "commands") else {}
        found |= below or {f"{path}{name}": command}
    return found


def test_every_parameter_that_takes_names_completes_them():
    texts, completing = set(), set()
    for name, command in commands(typer.main.get_command(app)).items():
        kinds = get_type_hints(COMMANDS[name])
        for parameter in command.get_params(typer.Context(command)):
            if "str" in str(kinds.get(parameter.name)):
                is_completed = parameter._custom_shell_complete is not None
                (completing if is_completed else texts).add((name, parameter.name))

    silent = {f"{name} {own}" for name, own in texts if not {own, f"{name} {own}"} & NO_NAMES}
    assert len(completing) > 60
    assert silent == set()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("extract whole_model.onnx --inputs 3", ["30", "31"]),
        ("extract whole_model.onnx --inputs 22,3", ["22,30", "22,31"]),
        ("extract --outputs 3", []),
        ("expose whole_model.onnx 23 3", ["30", "31"]),
        ("expose whole_model.onnx op:", ["Add", "Conv"]),
        ("expose whole_model.onnx scope:convs2.", ["convs2.0", "convs2.1"]),
        ("split whole_model.onnx --at 2", [str(n) for n in range(21, 30)]),
        ("inspect whole_model.onnx --node op:C", ["Conv"]),
        ("inspect whole_model.onnx --value inp", ["input.1"]),
        ("run whole_model.onnx --fetch 3", ["30", "31"]),
        ("edit set-attr whole_model.onnx Conv_6 auto", ["auto_pad="]),
        ("edit set-attr whole_model.onnx Conv_6 'pads=[1]' d", ["dilations="]),
        ("edit set-attr whole_model.onnx nothing d", []),
        ("edit set-op whole_model.onnx Ad", ["Add_7"]),
        ("edit rewire whole_model.onnx 3", ["30", "31"]),
        ("inspect nothing.onnx --value 2", []),
        ("inspect whole_model.onnx --value=2", [str(n) for n in range(21, 30)]),
        ("bisect whole_model.onnx --fill in", ["input.1"]),
        ("bisect whole_model.onnx --fill input.1=", []),
        ("rank whole_model.onnx --fp16-risk --fill=in", ["input.1"]),
        ("rank whole_model.onnx --fill=", ["input.1"]),
        ("run control_flow.onnx --fill ", ["cond", "steps", "x"]),
        ("edit insert whole_model.onnx 23 Add --input 23 --input 3", ["30", "31"]),
        ("edit outline whole_model_dynamo.onnx convs2", ["convs2", "convs2.0", "convs2.1"]),
        ("edit set-shape whole_model.onnx in", ["input.1"]),
        ("edit set-shape whole_model.onnx input.1=1,3", []),
        ("edit rebatch whole_model.onnx --inputs in", ["input.1"]),
        ("edit pad-outputs detector.onnx --outputs ", DETECTED),
        ("edit pad-outputs detector.onnx --max 3 --fill ", DETECTED),
        ("edit batch-outputs detector.onnx boxes=", DETECTED),
        ("edit batch-outputs detector.onnx boxes=boxes,", [f"boxes,{name}" for name in DETECTED]),
        ("merge whole_model.onnx linear_func.onnx --map 31", ["31"]),
        ("merge whole_model.onnx linear_func.onnx --map 31=", ["input.1", "a", "b", "x"]),
        ("merge whole_model.onnx linear_func.onnx --share a", ["a"]),
        ("compare whole_model.onnx refs.npz --rtol inp", ["input.1"]),
        ("bisect whole_model.onnx --allow=3", ["30", "31"]),
        ("test e", ["export", "edited"]),
    ],
)
def test_the_names_of_the_model_on_the_line_are_completed(line, names, monkeypatch):
    monkeypatch.chdir(FIXTURES)

    assert completed(f"onnxdbg {line}") == names


def test_attributes_of_operators_of_onnxruntime_are_completed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    osl.save(package(), "package.onnx")

    assert completed("onnxdbg edit set-attr package.onnx op:GroupQueryAttention rotary_") == [
        "rotary_interleaved="
    ]


HOSTILE = {
    "$(touch${IFS}PWN)": ["", "'$(to", "'", '"'],
    "`touch PWN`": ["", "'", '"\\`to'],
    "a;touch PWN": ["", "a", "'a;", '"a;t'],
    "a&touch PWN|b>PWN": ["a"],
    "it's": ["it", "'it", "'it'\\''"],
    'say "$HOME"': ["say", "'say ", '"say \\"', '"say \\"\\$HO', "say\\ "],
    "wow!touch!": ["wow", "'wow", '"wow'],
    "!!": [""],
    "~root": ["", "\\~r"],
    "-rf": ["", "="],
    "a:b=c:d e": ["a", "a:", "a:b=", "a:b=c:d", "'a:b=", '"a:b', "a:'b=c"],
    "=x": ["", "="],
    "*[a-z]?{a,b}#^": ["", "'*["],
    "a\\b c": ["a", "'a\\", '"a\\\\'],
    "é\u4e2d b": ["é", "'é", ""],
}
"""Names, and the beginnings that are typed of each."""
NOT_OF_FISH = [
    ("fish", "~root", ""),  # it expands the name itself
    ("fish", "~root", "\\~r"),
    ("fish", "`touch PWN`", '"\\`to'),  # a backslash that it takes as one
]
STUB = """#!/bin/bash
if [ -z "$_ONNXDBG_COMPLETE" ]; then
  printf '%s\\0' "$@" > ran.part; mv ran.part ran; exit
fi
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '%s\\n' "$_ONNXDBG_COMPLETE" "$_ONNXDBG_LINE" "$_ONNXDBG_WORD" >&3
cat <&3
"""
STARTED = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}


@pytest.fixture
def shell(request, tmp_path, monkeypatch):
    """A shell with its completion, which asks this process; what it runs leaves its words in `ran`."""
    program = which(request.param)
    if program is None and request.param != "bash":
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.chdir(tmp_path)
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=[server], daemon=True).start()
    stub = tmp_path / "bin" / "onnxdbg"
    stub.parent.mkdir()
    stub.write_text(STUB.replace("{port}", str(server.getsockname()[1])))
    stub.chmod(0o755)
    (tmp_path / "script").write_text(SCRIPTS[request.param] % {})
    path = f"{stub.parent}:{os.environ['PATH']}"
    child = pexpect.spawn(
        program,
        STARTED[request.param],
        env={"PATH": path, "HOME": str(tmp_path), "TERM": "dumb", "LC_ALL": "C.UTF-8"},
        encoding="utf-8",
        timeout=10,
        dimensions=(40, 250),
    )
    child.delaybeforesend = None
    if request.param == "zsh":
        child.sendline("autoload -Uz compinit; compinit -u -D")
    child.sendline("source ./script; echo rea''dy")
    child.expect("ready")
    yield child
    child.close(force=True)
    server.close()


def serve(server):
    """Answer shells until the server is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, connection.makefile("rw") as stream:
            lines = [stream.readline().removesuffix("\n") for _ in range(3)]
            stream.writelines(f"{word}\n" for word in asked(*lines))


@pytest.mark.parametrize("shell", STARTED, indirect=True)
def test_a_completed_word_is_the_name_and_runs_nothing(shell, tmp_path, request):
    kind = request.node.callspec.params["shell"]
    wrong = {}
    for number, (name, beginnings) in enumerate(HOSTILE.items()):
        model_with(name, f"{number}.onnx")
        for typed in [b for b in beginnings if (kind, name, b) not in NOT_OF_FISH]:
            shell.expect(pexpect.TIMEOUT, timeout=0)  # takes what it printed, so that it goes on
            space = "" if typed == "=" else " "
            shell.send(f"onnxdbg edit pad-outputs {number}.onnx --outputs{space}{typed}\t\r")
            found = ran(tmp_path)
            if found != name:
                wrong[name, typed] = found
                shell.kill(signal.SIGINT)

    assert wrong == {}
    assert not list(tmp_path.rglob("PWN"))


def model_with(name, file):
    """Save a model whose one output has a name."""
    float1 = [
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in ("x", name)
    ]
    node = onnx.helper.make_node("Relu", ["x"], [name])
    graph = onnx.helper.make_graph([node], "g", float1[:1], float1[1:])
    onnx.save(onnx.helper.make_model(graph), file)


def ran(folder, seconds=5.0):
    """The last word of the command that was run, without the option in front; None where none was run."""
    deadline = time.monotonic() + seconds
    while not (folder / "ran").exists():
        if time.monotonic() > deadline:
            return None
        time.sleep(0.01)
    words = (folder / "ran").read_text().split("\0")[:-1]
    (folder / "ran").unlink()
    return words[-1].removeprefix("--outputs=")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_that_a_terminal_obeys_are_not_offered(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a\nb", "a\x1b]0;b", "a\tb", "a\u202eb"):
        model_with(name, "m.onnx")

        assert asked(shell, "onnxdbg edit pad-outputs m.onnx --outputs ") == []


def test_a_name_that_is_like_an_option_is_not_offered_as_an_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_with("-oPWN", "m.onnx")

    assert asked("zsh", "onnxdbg expose m.onnx ") == ["x"]
    assert asked("zsh", "onnxdbg run m.onnx --fetch ") == ["-oPWN", "x"]


def test_a_word_that_runs_something_already_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_with("$(touch PWN)b", "m.onnx")

    for typed in ("$(to", '"$(to', "`to", "x;to"):
        assert asked("bash", f"onnxdbg run m.onnx --fetch {typed}", "to") == []


def test_names_with_commas_are_completed_as_names_and_in_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_with("a,b", "m.onnx")

    assert asked("zsh", "onnxdbg run m.onnx --fetch a,") == ["a,b", "a,a\\,b", "a,x"]


def test_the_completion_of_an_earlier_version_says_how_to_get_this_one(capsys):
    answer("complete_bash", GROUP)

    said = capsys.readouterr()
    assert (said.out, "onnxdbg --install-completion" in said.err) == ("", True)
