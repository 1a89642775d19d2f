"""The commands, in the order and the groups that `--help` shows."""

from typing import Annotated

import typer
from typer import _completion_shared

from onnxsurgeon_lite.cli import assistant, completion, edit, repl
from onnxsurgeon_lite.cli.boundary import Boundary
from onnxsurgeon_lite.cli.commands import PANELS, name_of
from onnxsurgeon_lite.cli.data import data
from onnxsurgeon_lite.cli.help import HelpedCommand
from onnxsurgeon_lite.cli.options import CHANGE, DEBUG
from onnxsurgeon_lite.cli.shells import SCRIPTS

_completion_shared._completion_scripts = dict(SCRIPTS)

app = typer.Typer(
    name="onnxdbg",
    cls=Boundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"onnxdbg {version('onnxsurgeon-lite')}")
        raise typer.Exit


@app.callback()
def _onnxdbg(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Debug and edit ONNX models: from "the outputs differ" to the node, and any cut without loading a weight.

    Exit codes: 0 done or agrees, 1 a mismatch was found, 2 could not do it, 70 a bug of onnxdbg,
    130 interrupted.
    """


for panel, commands in PANELS.items():
    for command in commands:
        app.command(name_of(command), rich_help_panel=panel)(command)

app.command("repl", rich_help_panel=DEBUG)(repl.repl)
app.command("mcp", rich_help_panel=DEBUG)(assistant.mcp)
app.add_typer(data, name="data", rich_help_panel=CHANGE)
edits = edit.verbs()
app.add_typer(edits, name="edit", rich_help_panel=CHANGE)
# all commands get the same help page
for group in (app, data, edits):
    for registered in group.registered_commands:
        registered.cls = HelpedCommand


def complete(shell: str) -> None:
    """Tell a shell what the word at its cursor can become."""
    completion.answer(shell, typer.main.get_command(app))
