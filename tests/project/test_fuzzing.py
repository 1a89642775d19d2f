"""Short runs of `scripts/fuzz`: the same mutants each time, every command in turn."""

import contextlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import SurgeonError

FUZZING = Path(__file__).parents[2] / "scripts" / "fuzzing"


@pytest.mark.parametrize(
    "words",
    [
        "models --mutants 24 --commands 3 --heavy 0",
        "readers --mutants 1300",
        "typed --mutants 200",
        "signals --mutants 40",
        "urls --mutants 60",
        "trusted --mutants 200",
        "assistant --mutants 60",
        "kept",
    ],
    ids=lambda words: words.split()[0],
)
def test_nothing_breaks(words, tmp_path):
    done = subprocess.run(
        [sys.executable, FUZZING, *words.split(), "--seed", "tests", "--broken", tmp_path / "broken.jsonl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_attacked(monkeypatch):
    monkeypatch.syspath_prepend(str(FUZZING))
    from commands import HEAVY, LIGHT

    lines = [tuple(shlex.split(line)) for line in (LIGHT + HEAVY).split("\n") if line]
    group = typer.main.get_command(app)
    names = {(name,) for name in group.commands if name not in ("data", "edit")}
    names |= {
        (outer, name) for outer in ("data", "edit") for name in group.commands[outer].commands
    }

    attacked = {line[: 2 if line[0] in ("data", "edit") else 1] for line in lines}
    assert sorted(names - attacked) == [("demo",), ("mcp",)]  # which take no file


def test_inputs_that_coverage_led_to_are_read_or_refused(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FUZZING))
    import readers

    for path in sorted((FIXTURES / "fuzzing").rglob("*")):
        if path.is_file():
            name, read, _ = readers.KINDS[path.parent.name]
            (tmp_path / name).write_bytes(path.read_bytes())
            with contextlib.suppress(SurgeonError), readers.timed():
                read(tmp_path / name)
