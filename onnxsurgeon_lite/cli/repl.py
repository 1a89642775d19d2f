"""Debug: repl."""

import sys
from pathlib import Path
from typing import Annotated, Unpack

import typer

from onnxsurgeon_lite.api.call import Call, ComparingOnFeeds, byte_size
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.boundary import FAILED


@options.command(of="verify")
def repl(
    call: object,
    context: typer.Context,
    model: Path,
    *,
    reference: Path | None = None,
    map: str | None = None,
    commands: Annotated[str | None, options.Typed(("-c",))] = None,
    memory: Annotated[str, options.Typed(("--keep",))] = "256MB",
    feeds: str | None = None,
    **how: Unpack[ComparingOnFeeds],
) -> None:
    """Step through a model as through a program: breakpoints, values, edits, at an IPython prompt.

    $ onnxdbg repl model.onnx --reference refs -c "break 25; run; print 25"
    $ onnxdbg repl model.onnx -c "break op:Add; run; where"

    Args:
        commands: Run these and leave: "break 25; run; print 25".
        memory: Bytes of values that are kept once computed.
    """
    with Call(**how) as running:
        child = running.child()
        from onnxsurgeon_lite.cli.prompt import PromptVerbs
        from onnxsurgeon_lite.repl.opening import open_session
        from onnxsurgeon_lite.repl.script import run_script

        session = open_session(
            model,
            feeds,
            reference,
            how=running.options("none"),
            child=child,
            recipe=running.recipe(),
            tolerance=running.allowed(),
            budget=byte_size(memory),
            mapping=map,
        )
        session.given = {n: v for n, v in context.params.items() if v is not None}
        session.verbs = PromptVerbs(session)
        if commands is None and sys.stdin.isatty():
            from onnxsurgeon_lite.repl.shell import run_shell

            run_shell(session)
            return
        if not run_script(session, [commands] if commands is not None else sys.stdin):
            raise typer.Exit(FAILED)
        options.require(not session.mismatch)
