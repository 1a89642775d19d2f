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
    environment.pop("COLUMNS", None)  # lines stay whole

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


def every_command():
    from onnxsurgeon_lite.cli.app import app

    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    return [command for group in groups for command in group.registered_commands]


def test_every_verb_has_an_example():
    from onnxsurgeon_lite.cli.app import app

    verbs = {command.name for command in app.registered_commands}
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    verbs |= {
        f"{name} {c.name or c.callback.__name__}"
        for name, g in groups.items()
        for c in g.registered_commands
    }

    in_group = "|".join(groups)
    pattern = rf"onnxdbg ((?:(?:{in_group}) )?[\w-]+)"
    shown = {match for command, _ in COMMANDS for match in re.findall(pattern, command)}
    assert verbs == shown


def test_every_command_has_help():
    assert all(command.callback.__doc__ for command in every_command())


def test_the_package_alone_can_show_itself():
    done = subprocess.run(
        [sys.executable, "-m", "onnxsurgeon_lite", "demo"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "wrong node: Conv (@6) makes '27'" in done.stdout
