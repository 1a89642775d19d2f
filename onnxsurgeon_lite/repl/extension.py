"""The session of a notebook: `%load_ext onnxsurgeon_lite`, then `%onnxdbg MODEL [--feeds F] [--reference REFS]`."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from onnxsurgeon_lite.errors import SurgeonError, UsageError
from onnxsurgeon_lite.repl.opening import open_session
from onnxsurgeon_lite.repl.script import show_problem
from onnxsurgeon_lite.repl.session import PromptSession, Verbs
from onnxsurgeon_lite.repl.shell import install
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.runtime.feeds import Recipe


def load(shell: object, verbs: Callable[[PromptSession], Verbs]) -> None:
    """Have `%onnxdbg` in a shell.

    Args:
        verbs: makes the commands of `onnxdbg` for a session.
    """
    if not isinstance(shell, InteractiveShell):
        raise TypeError(f"{shell!r} is not an IPython shell")

    def onnxdbg(line: str) -> None:
        try:
            session = _open(shell, line)
            session.verbs = verbs(session)
        except SurgeonError as error:
            show_problem(error)

    shell.magics_manager.register_function(onnxdbg, "line", "onnxdbg")


def _open(shell: InteractiveShell, line: str) -> PromptSession:
    """Open a session whose names and commands the shell has from now on."""
    # errors of the line are ours to show
    parser = argparse.ArgumentParser("%onnxdbg", exit_on_error=False)
    parser.add_argument("model", type=Path)
    parser.add_argument("--feeds")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--map")
    parser.add_argument("--seed", type=int, default=0)
    try:
        given, rest = parser.parse_known_args(shlex.split(line))
    except (argparse.ArgumentError, ValueError) as error:
        raise UsageError(str(error), parser.format_usage().strip()) from error
    if rest:
        raise UsageError(f"%onnxdbg takes no {rest[0]!r}", parser.format_usage().strip())
    session = open_session(
        given.model, given.feeds, given.reference, recipe=Recipe(given.seed), mapping=given.map
    )
    session.given = {name: value for name, value in vars(given).items() if value is not None}
    session.leave = lambda: plain.note("close the notebook to leave")
    install(shell, session)
    plain.out(repr(session.model))
    return session
