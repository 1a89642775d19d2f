"""What the shell completes, asked as the scripts of `--install-completion` ask."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FIXTURES

ONNXDBG = Path(sys.executable).with_name("onnxdbg")


def completed(line: str) -> list[str]:
    """What bash gets for a line that ends where the cursor is; it splits words at ':', too."""
    words = line.replace(":", " : ").split(" ")
    words = [word for place, word in enumerate(words) if word or place == len(words) - 1]
    if words[-2:-1] == [":"] and not words[-1]:
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
    ],
)
def test_the_names_of_the_model_on_the_line_are_completed(line, names):
    assert completed(f"onnxdbg {line}") == names
