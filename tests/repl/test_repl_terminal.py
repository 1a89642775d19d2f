"""The prompt in a pseudo-terminal: Ctrl-C, Tab, errors in the user's own lines; test_pages plays sessions."""

import shutil

import pexpect
import pytest
from onnx import parser, save

from kit import FIXTURES
from kit.bodies import ENDLESS
from kit.terminal import Terminal


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    shutil.copytree(FIXTURES, folder, dirs_exist_ok=True)
    save(
        parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {ENDLESS}'),
        folder / "e.onnx",
    )
    return folder


def test_ctrl_c_returns_to_the_prompt_and_names_the_node(folder):
    terminal = Terminal("e.onnx", "--fill", "go=ones", folder=folder)
    terminal.child.sendline("run")
    terminal.child.expect("\n")
    terminal.computes()

    terminal.child.sendintr()
    said = terminal.wait()

    assert "interrupted" in said
    assert "while computing Loop (@1)" in said
    assert terminal.prompt == "onnxdbg @0>"
    assert "n float [1]" in terminal.type("print n")
    terminal.child.sendline("dbg.run()")
    terminal.child.expect("\n")
    terminal.computes()
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
