"""The one place where errors become messages and exit codes."""

import errno
import os
import sys
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.report import plain

MISMATCH, FAILED, INTERRUPTED = 1, 2, 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Boundary(TyperGroup):
    """A `SurgeonError` is shown and exits 2; Ctrl-C exits 130; anything else is our bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a name may not fit the encoding
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except SurgeonError as error:
            plain.show_error(error)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt as interrupt:
            plain.note("interrupted")
            for text in getattr(interrupt, "__notes__", ()):
                plain.note(f"  {text}")  # how far the work was
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _close_stdout()  # whoever read the result has gone
            raise typer.Exit(FAILED) from None
        except OSError as error:
            if error.filename is not None or error.errno not in _NO_ROOM:
                raise
            _close_stdout()
            plain.note(f"error: cannot write the result: {error.strerror}")
            plain.note("  free some space, or send it elsewhere")
            raise typer.Exit(FAILED) from error
        return result


def _close_stdout() -> None:
    """Nothing more can be written, at exit neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
