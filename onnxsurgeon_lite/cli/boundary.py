"""The one place where errors become messages and exit codes."""

import os
import sys
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from onnxsurgeon_lite.errors import SurgeonError

MISMATCH, FAILED, INTERRUPTED = 1, 2, 130


class Boundary(TyperGroup):
    """A `SurgeonError` is shown and exits 2; Ctrl-C exits 130; anything else is our bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        from onnxsurgeon_lite.report import lines

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a name may not fit the encoding
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except SurgeonError as error:
            lines.show_error(error)
            raise typer.Exit(FAILED) from error
        except KeyboardInterrupt:
            lines.note("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # whoever read the result has gone; nothing more can be written, at exit neither
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        return result
