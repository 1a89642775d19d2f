"""The one place where errors become messages and exit codes."""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, cast

import typer
from typer.core import TyperGroup

from onnxsurgeon_lite.errors import SurgeonError, reported
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.report import plain

MISMATCH = 1
FAILED = 2
INTERNAL = 70
INTERRUPTED = 130
_CommandLineError = cast(type[Exception], typer.BadParameter.__mro__[2])  # click has its name
_BEGINNING = len("--ref")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Boundary(TyperGroup):
    """Show errors and exit: 2 for a `SurgeonError` or the system's, 130 for Ctrl-C, 70 for a bug of ours."""

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a name may not fit the encoding
        # typer has split the first word off
        given = ctx._protected_args + ctx.args
        try:
            with _outlasting():
                result = super().invoke(ctx)
        except _CommandLineError as error:
            _suggest(error)
            _suggest_group(error, self, given)
            raise
        except (typer.Exit, typer.Abort):
            raise
        except (Exception, KeyboardInterrupt) as error:
            _keep_output(error, given)
            raise typer.Exit(_code(error)) from error
        return result


class _Output(FileIO):
    """Standard output that outlasts whoever reads it, so that a command goes on and writes its files."""

    is_unread = False

    def _handed_over(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_unread = True
            _close_stdout()
            return len(data)

    write = _handed_over  # under a name that a signal waits for


@contextmanager
def _outlasting() -> Iterator[None]:
    """Write to an output that does not end with its reader; exit then with 2."""
    before = sys.stdout
    output = None
    if before is sys.__stdout__ and isinstance(before, TextIOWrapper) and not before.isatty():
        output = _Output(before.fileno(), "wb", closefd=False)
        sys.stdout = TextIOWrapper(BufferedWriter(output), before.encoding, before.errors)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        finally:
            sys.stdout = before
    if output is not None and output.is_unread:
        raise typer.Exit(FAILED)


def _suggest(error: Any) -> None:
    """Suggest the options that begin as an unknown one does; without any, the similar ones stay suggested."""
    name = getattr(error, "option_name", "")
    context = getattr(error, "ctx", None)
    parameters = context.command.params if context is not None else ()
    known = [option for parameter in parameters for option in parameter.opts]
    if "unexpected extra argument" in error.message and "--against" in known:
        error.message += (
            "; another model to compare with is --against MODEL, references are --reference PATH"
        )
    if len(name) < _BEGINNING:
        return
    beginning = [option for option in known if option.startswith(name[:_BEGINNING])]
    if beginning:
        error.possibilities = beginning


def _suggest_group(error: Any, app: TyperGroup, given: Sequence[str]) -> None:
    """Name the group that has a command which was typed without it, rightly or nearly: `onnxdbg simplify`."""
    groups = {
        verb: name
        for name, group in app.commands.items()
        for verb in getattr(group, "commands", ())
    }
    word = given[0] if given and given[0] not in app.commands else ""
    for near in get_close_matches(word, [*app.commands, *groups], 1):
        if near not in app.commands:
            meant = command("onnxdbg", groups[near], near, *given[1:])
            error.message = f"No such command {word!r}; try: {meant}"


def _keep_output(error: BaseException, given: Sequence[str]) -> None:
    """Let a hint that ends with the given command, corrected, write where that would."""
    if isinstance(error, SurgeonError) and f"{command('onnxdbg', *given[:2])} " in str(error.hint):
        for word in {"-o", "--output"}.intersection(given):
            place = given.index(word)
            error.hint = f"{error.hint} {command(*given[place : place + 2])}"


def _code(error: BaseException) -> int:
    """Show an error, if there is room for that; return the exit code."""
    try:
        return _show(error)
    except KeyboardInterrupt as interrupt:
        return _show(interrupt)
    except OSError:
        return FAILED


def _show(error: BaseException) -> int:
    """Show an error; return the exit code."""
    match error:
        case SurgeonError():
            plain.show_error(error)
        case KeyboardInterrupt():
            plain.show_interrupted(error)
            return INTERRUPTED
        case BrokenPipeError():
            _close_stdout()  # whoever read the result has gone
        case OSError(filename=None, errno=number) if number in _NO_ROOM:
            _close_stdout()
            plain.note(f"error: cannot write the result: {error.strerror}")
            plain.note("  free some space, or send it elsewhere")
        case OSError():
            place = f"{os.fsdecode(error.filename)!r}: " if error.filename else ""
            plain.show_error(SurgeonError(f"{place}{error.strerror or error}"))
        case MemoryError():
            plain.show_error(SurgeonError("there is not enough memory"))
        case _:
            plain.note(f"error: {reported(error)}")
            return INTERNAL
    return FAILED


def _close_stdout() -> None:
    """Nothing more can be written, at exit neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
