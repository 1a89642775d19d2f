"""The README's sessions, run as they stand, in order, in a folder that holds the fixtures."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
COMMANDS = [
    (line.removeprefix("$ "), expected)
    for block in BLOCKS
    for line, expected in re.findall(r"^(\$ .*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the fixtures, where the commands run one after another."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "fixtures", folder, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[c for c, _ in COMMANDS])
def test_a_command_of_the_readme_prints_what_it_says(command, expected, folder):
    here = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": here + os.pathsep + os.environ["PATH"]}

    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert re.fullmatch(pattern(expected), squeezed(done.stdout)), done.stdout


def squeezed(text: str) -> str:
    """Without the padding of tables and their rules."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line and not set(line) <= {"─"})


def pattern(expected: str) -> str:
    """`...` stands for anything."""
    return re.escape(squeezed(expected)).replace(r"\.\.\.", r"[\s\S]*?")


def test_the_package_alone_can_show_itself():
    done = subprocess.run(
        [sys.executable, "-m", "onnxsurgeon_lite", "demo"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "mismatch at value '27'" in done.stdout
    assert "produced by Conv (@6)" in done.stdout
