"""What the shell completes, asked as the scripts of `--install-completion` ask."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
import typer
from cli_commands import COMMANDS
from conftest import FIXTURES

from onnxsurgeon_lite.cli.app import app

ONNXDBG = Path(sys.executable).with_name("onnxdbg")
DETECTED = ["33", "34", "35", "36", "37", "38", "boxes", "labels", "scores"]
NO_NAMES = {
    "factory", "metric", "what", "target", "noise", "vector", "constant",  # programs, texts, classes, what is new
    "edit add-constant constants", "edit add-constant dtype", "edit simplify without",
    "feeds", "reference", "mapping", "location", "by", "initializer",  # files
    "provider", "cluster", "memory_limit", "memory", "limit", "a", "b", "find", "commands",  # settings
    "attr", "attributes", "remove", "numbers", "to", "dim", "domain",  # parts of nodes, numbers, sizes
    "op_type", "op",  # operators, of any opset
    "name", "names", "new_value", "count", "prefix",  # names that are not there yet
    "record scope",  # of a PyTorch program
}  # fmt: skip
"""Parameters that are text, but mean nothing in the model on the line."""


def completed(line: str) -> list[str]:
    """What bash gets for a line that ends where the cursor is; it splits words at ':' and '=', too."""
    words = line.replace(":", " : ").replace("=", " = ").split(" ")
    words = [word for place, word in enumerate(words) if word or place == len(words) - 1]
    if words[-2:-1] in ([":"], ["="]) and not words[-1]:
        words.pop()
    asked = {
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_ONNXDBG_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [ONNXDBG],
        env={**os.environ, **asked},
        cwd=FIXTURES,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


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
        ("test e", ["export", "edited"]),
    ],
)
def test_the_names_of_the_model_on_the_line_are_completed(line, names):
    assert completed(f"onnxdbg {line}") == names
