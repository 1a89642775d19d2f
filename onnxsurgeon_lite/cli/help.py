"""What `--help` shows: options in panels, the same for every command, and two examples below."""

import re
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.models import CommandInfo

from onnxsurgeon_lite.cli import options

_PANELS = {
    "Main": [""],
    "Feeds": ["feeds", "seed", "dim", "fill"],
    "Runtime": [
        "opt",
        "memory",
        "runtime",
        "provider",
        "threads",
        "timeout",
        "memory_limit",
        "ops_library",
        "ops",
        "jobs",
        "cluster",
    ],
    "Output": [
        "output",
        "save",
        "in_place",
        "journal",
        "resume",
        "force",
        "dry_run",
        "copy_data",
        "undo",
        "metrics",
        "verbose",
        "json",
        "help",
    ],
}
"""Panel -> the options that it holds, in their order; those of no other panel are in the first."""
_ORDER = sum(_PANELS.values(), list[str]())


class HelpedCommand(TyperCommand):
    """A command whose help has panels and examples."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, panel by panel; they are read when they are asked for first."""
        # `options.spelled` hides the parameters until here: typer reads them for the one command that is run
        if self.callback and "whole" in vars(self.callback):
            read = typer.main.get_command_from_info(
                CommandInfo(callback=options.whole(self.callback)),
                pretty_exceptions_short=False,
                rich_markup_mode=self.rich_markup_mode,
            )
            self.params = read.params
            self.callback = read.callback
        return sorted(super().get_params(ctx), key=lambda param: _place(param.name))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; brackets in its texts are no markup."""
        about, _, lines = (self.help or "").partition("\n\n$ ")
        # the docstring's lines that begin with `$ ` are the examples
        if lines:
            self.epilog = _plain("\n\n".join(["Examples:"] + f"$ {lines}".splitlines()))
        self.help = _plain(about)
        for param in self.get_params(ctx):
            param.help = _plain(param.help)
            if isinstance(param, TyperOption):
                named = (panel for panel, names in _PANELS.items() if param.name in names)
                param.rich_help_panel = next(named, "Main")
        super().format_help(ctx, formatter)


def _place(name: str | None) -> int:
    return _ORDER.index(name) if name in _ORDER else 0


def _plain(text: str | None) -> str:
    # rich takes `[word]` for markup
    return re.sub(r"\[(?=[a-z#/@])", r"\\[", text or "")
