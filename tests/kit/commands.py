"""Every command by the words that call it, and how one is run without the start of a process."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import typer
from typer.testing import CliRunner

from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.app import app


def _below(group: typer.Typer, path: str) -> Iterator[tuple[str, Callable[..., None]]]:
    for command in group.registered_commands:
        name = command.name or command.callback.__name__
        yield f"{path}{name}", command.callback
    for below in group.registered_groups:
        yield from _below(below.typer_instance, f"{path}{below.name} ")


HELP = {words: command.__doc__ for words, command in _below(app, "")}
COMMANDS = {words: options.whole(command) for words, command in _below(app, "")}


def onnxdbg(*words: object, cwd: Path | str = ".") -> subprocess.CompletedProcess[str]:
    """Run a command in this process; signals, streams and variables need a process of their own (`kit.COMMAND`)."""
    given = list(map(str, words))
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, given)
    # a bug keeps its traceback
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(given, done.exit_code, done.stdout, done.stderr)
