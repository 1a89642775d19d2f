"""Every command by the words that call it."""

from collections.abc import Callable, Iterator

import typer

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
