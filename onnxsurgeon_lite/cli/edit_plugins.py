"""Passes of other packages as verbs of `onnxdbg edit`; nothing of them is imported before one is asked for."""

from collections.abc import Sequence
from inspect import Parameter, Signature, signature
from types import GenericAlias
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

from onnxsurgeon_lite import passes, plugins
from onnxsurgeon_lite.api.spelling import explained
from onnxsurgeon_lite.cli.edit_shared import command
from onnxsurgeon_lite.cli.help import Command
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.plugins import brought, offered
from onnxsurgeon_lite.report import plain

_WORDS = (str, int, float, bool)


class Edits(TyperGroup):
    """Our own verbs, then those that other packages bring; one that cannot be imported is named and left out."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(verb for verb in brought(plugins.PASSES)[0] if verb not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        return _of_package(cmd_name) if own is None and cmd_name in offered(plugins.PASSES) else own

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        plain.show_notes(brought(plugins.PASSES)[1])


def _of_package(verb: str) -> Any:
    """Return the command of a pass: its fields without a default are arguments, the others are options."""
    found, broken = brought(plugins.PASSES)
    if verb not in found:
        raise UsageError(next(line for line in broken if line.startswith(f"left out {verb!r}")))
    fields, hints = signature(passes.PASSES[verb]).parameters, get_type_hints(passes.PASSES[verb])
    about, said = explained(passes.PASSES[verb].__doc__ or verb)

    def make(**given: object) -> "passes.Pass":
        from onnxsurgeon_lite.passes.recipe import make_pass

        return make_pass(verb, given, passes.PASSES)

    own = [_typed(field, hints[name]) for name, field in fields.items() if _is_typed(hints[name])]
    lines = [f"    {field.name}: {said.get(field.name, 'A field of the pass.')}" for field in own]
    make.__name__, make.__doc__ = verb.replace("-", "_"), "\n".join([about, "", "Args:", *lines])
    vars(make)["__signature__"] = Signature(sorted(own, key=lambda p: p.kind))
    info = CommandInfo(name=verb, cls=Command, callback=command(make))
    return typer.main.get_command_from_info(
        info, pretty_exceptions_short=False, rich_markup_mode="rich"
    )


def _is_typed(hint: Any) -> bool:
    """Return whether words of a command line can be a field."""
    kinds = [kind for kind in get_args(hint) if kind not in (type(None), ...)] or [hint]
    return len(kinds) == 1 and kinds[0] in _WORDS and get_origin(hint) is not dict


def _typed(field: Parameter, hint: Any) -> Parameter:
    kind = GenericAlias(Sequence, get_args(hint)[:1]) if get_origin(hint) is tuple else hint
    required = field.default is Parameter.empty
    place = Parameter.POSITIONAL_OR_KEYWORD if required else Parameter.KEYWORD_ONLY
    return field.replace(annotation=kind, kind=place)
