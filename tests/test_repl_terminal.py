"""The prompt in a pseudo-terminal: the README's session, Ctrl-C, Tab, errors in the user's own lines."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from conftest import FIXTURES
from onnx import parser, save
from test_debugger import ENDLESS
from test_readme import pattern, squeezed

README = Path(__file__).parent.parent / "README.md"
(SESSION,) = re.findall(r"```repl\n(.*?)```", README.read_text(), re.DOTALL)
COMMAND, *PROMPTED = re.findall(
    r"^(\$|onnxdbg[^>\n]*>) (.*)\n((?:(?!onnxdbg).*\n)*)", SESSION, re.MULTILINE
)
PROMPT = r"onnxdbg( @\S+)?> "
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """An `onnxdbg repl` that is typed at."""

    def __init__(self, *arguments: str, folder: Path) -> None:
        environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "TERM": "dumb"}
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "onnxsurgeon_lite", "repl", *arguments],
            cwd=str(folder),
            env=environment,
            encoding="utf-8",
            timeout=20,
            dimensions=(40, 300),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # maybe ignored here
        )
        self.child.delaybeforesend = 0.25  # the prompt is there before its keys are read
        self.wait()

    def wait(self) -> str:
        """What is said before the next prompt; the prompt is left in `prompt`."""
        self.child.expect(PROMPT)
        self.prompt = self.child.after.strip()
        return ESCAPES.sub("", self.child.before)

    def type(self, line: str) -> str:
        """What a line gives."""
        self.child.sendline(line)
        said = self.wait()
        return said[said.index("\n") + 1 :].replace("\r", "")

    def leave(self) -> None:
        self.child.sendline("exit")
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert self.child.exitstatus == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    shutil.copytree(FIXTURES, folder, dirs_exist_ok=True)
    save(
        parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {ENDLESS}'),
        folder / "e.onnx",
    )
    return folder


def test_the_session_of_the_readme_and_the_script_that_it_leaves(folder):
    words = COMMAND[1].split()
    assert words[:2] == ["onnxdbg", "repl"]
    terminal = Terminal(*words[2:], folder=folder)

    for prompt, line, expected in PROMPTED[:-1]:
        assert terminal.prompt == prompt
        said = terminal.type(line)
        assert re.fullmatch(pattern(expected), squeezed(said)), said
    terminal.leave()

    (folder / "fixed.onnx").rename(folder / "first.onnx")
    subprocess.run([sys.executable, "session.py"], cwd=folder, check=True)
    assert (folder / "fixed.onnx").read_bytes() == (folder / "first.onnx").read_bytes()


def test_ctrl_c_returns_to_the_prompt_and_names_the_node(folder):
    terminal = Terminal("e.onnx", "--fill", "go=ones", folder=folder)
    terminal.child.sendline("run")
    terminal.child.expect("\n")
    terminal.child.expect(pexpect.TIMEOUT, timeout=0.7)

    terminal.child.sendintr()
    said = terminal.wait()

    assert "interrupted" in said
    assert "while computing Loop (@1)" in said
    assert terminal.prompt == "onnxdbg @0>"
    assert "n float [1]" in terminal.type("print n")
    terminal.child.sendline("dbg.run()")
    terminal.child.expect("\n")
    terminal.child.expect(pexpect.TIMEOUT, timeout=0.7)
    terminal.child.sendintr()
    assert "while computing Loop (@1)" in terminal.wait()
    terminal.leave()


def test_the_prompt_shows_errors_in_the_users_lines_and_completes(folder):
    terminal = Terminal("whole_model.onnx", folder=folder)

    assert "closest names: '25'" in terminal.type("break 255")
    assert "closest names: '25'" in terminal.type("dbg['255']")
    assert "closest commands: 'continue'" in terminal.type("contineu")
    assert "closest names: 'break'" in terminal.type("brek 25")
    error = terminal.type("break 25 if isnan(")
    assert "SyntaxError" in error
    assert "onnxsurgeon_lite" not in error
    terminal.child.send("print inp\t")
    terminal.child.expect(pexpect.TIMEOUT, timeout=1)
    assert "input.1 float [1, 3, 20, 20]" in terminal.type("")
    assert "3" in terminal.type("!next = 3; print(next)")
    assert "File `'nofile.py'` not found" in terminal.type("%run nofile.py")
    assert terminal.type("next").startswith("at Conv 'Conv_0' (@0)")
    terminal.leave()


def test_the_letters_of_pdb_and_the_commands_of_onnxdbg_work_at_the_prompt(folder):
    terminal = Terminal(
        "faulty_attribute.onnx", "--reference", "references/whole_model.npz", folder=folder
    )

    assert terminal.type("b 25 27").split("\n")[:2] == ["breakpoint 1: '25'", "breakpoint 2: '27'"]
    assert terminal.type("c").startswith("breakpoint 1 at Conv 'Conv_4' (@4)")
    assert terminal.type("p 25").startswith("25 float [1, 3, 20, 20]")
    assert "B-> Conv 'Conv_4' (@4)" in terminal.type("l")
    assert "wrong node" in terminal.type("bisect -o letters")
    said = terminal.type("edit set-attr Conv_6 dilations=[1,1] pads=[1,1,1,1]")
    assert "attribute dilations = [2, 2] -> [1, 1]" in said
    assert terminal.prompt == "onnxdbg>"
    assert "agrees at '31'" in terminal.type("bisect")
    assert "No such option: --nope" in terminal.type("expose --nope")
    terminal.child.send("extract --inputs 26 --outputs 27 --dry\t")
    terminal.child.expect(pexpect.TIMEOUT, timeout=1)
    assert "extract: 26 -> 27 (1 nodes" in terminal.type("")
    assert "2" in terminal.type("p 1 + 1")
    terminal.child.sendline("q")
    terminal.child.expect(pexpect.EOF)
    terminal.child.close()
    assert terminal.child.exitstatus == 0
