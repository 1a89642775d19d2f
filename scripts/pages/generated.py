"""The parts of the reference that follow from the code: options, recipe fields, public names, schemas."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import typer

import onnxsurgeon_lite

ROOT = Path(__file__).parent.parent.parent
MARK = re.compile(r"^.*<!-- (\w+) ?(.*?) -->$", re.MULTILINE)


@cache
def commands() -> dict[str, Any]:
    """`edit rename` -> the command as click has it."""
    from onnxsurgeon_lite.cli.app import app

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{path} {name}".strip())
        if not hasattr(command, "commands"):
            command.get_params(typer.Context(command))  # which are read when asked for
            yield path, command

    return dict(walk(typer.main.get_command(app), ""))


def options(name: str, _: str = "") -> str:
    """A command's arguments and options, as a table; those of every edit in a fold."""
    command = commands()[name]
    usual, shared, panel = [], [], None
    for parameter in sorted(command.params, key=_panel_order):
        if getattr(parameter, "hidden", False):
            continue
        if name.startswith("edit ") and _in_every_edit(parameter):
            shared.append(_row(parameter))
            continue
        if (here := getattr(parameter, "rich_help_panel", None)) not in (panel, None):
            usual.append(f"| **{here}** | | |")
            panel = here
        usual.append(_row(parameter))
    lines = [f"`onnxdbg {name} {_usage(command)}`", "", *_table(usual)]
    if shared:
        lines += ["", '??? note "Options of every edit"', ""]
        lines += [f"    {line}" for line in _table(shared)]
    return "\n".join(lines)


def _panel_order(parameter: Any) -> int:
    """Arguments, then the panels of the help page."""
    panels = (None, "Main", "Feeds", "Runtime", "Output")
    return panels.index(getattr(parameter, "rich_help_panel", None))


def _usage(command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    return " ".join([*map(_argument, arguments), "[OPTIONS]"])


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper().strip("[]")
    name += "..." if parameter.nargs == -1 and not name.endswith("...") else ""
    return name if parameter.required else f"[{name}]"


def _in_every_edit(parameter: Any) -> bool:
    edits = [command for name, command in commands().items() if name.startswith("edit ")]
    return all(parameter.opts in [p.opts for p in c.params] for c in edits if len(c.params) > 2)


def _table(rows: list[str]) -> list[str]:
    return (
        ["| option | meaning | default |", "|---|---|---|", *rows]
        if rows
        else ["It takes no options."]
    )


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = f"`{_argument(parameter)}`"
    else:
        spelled = ", ".join([*parameter.opts, *parameter.secondary_opts])
        names = f"`{spelled}{_metavar(parameter)}`"
    default = parameter.default
    shown = (
        f"`{default}`"
        if default not in (None, False, [], (), "") and not parameter.required
        else ""
    )
    text = re.sub(r"\s+", " ", parameter.help or "")
    return f"| {names.replace('|', chr(92) + '|')} | {_escaped(text)} | {shown} |"


def _metavar(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    choices = getattr(parameter.type, "choices", None)
    shown = parameter.metavar or (
        "|".join(map(str, choices)) if choices else parameter.type.name.upper()
    )
    return f" {shown}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[").replace("*", "\\*").replace("<", "&lt;")


def verbs(_: str, page: str) -> str:
    """A section for every verb that no page has one for: what its help says."""
    pages = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    parts = []
    for name, command in commands().items():
        mark = f"<!-- options {name} -->"
        if name.startswith("edit ") and mark not in pages:
            about, _, lines = command.help.partition("\n\n$ ")
            parts += [f"### {name.removeprefix('edit ')}", _escaped(about)]
            parts += [f"```console\n$ {lines}\n```", mark]
    return "\n\n".join(parts)


def recipe(name: str, _: str = "") -> str:
    """The keys of a verb's step in a recipe."""
    from onnxsurgeon_lite import PASSES

    kind = PASSES[name]
    types = get_type_hints(kind)
    rows = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        given = field.default
        if field.default_factory is not dataclasses.MISSING:
            given = field.default_factory()
        needed = given is dataclasses.MISSING
        default = "" if needed or given in (None, (), "") or given == {} else f"`{_toml(given)}`"
        rows.append(
            f"| `{field.name}` | {_kind(types[field.name])} | {'yes' if needed else ''} | {default} |"
        )
    return (
        "\n".join(["| key | holds | needed | default |", "|---|---|---|---|", *rows])
        if rows
        else "No keys."
    )


def recipes(_: str, __: str = "") -> str:
    """Every verb that a recipe can have."""
    from onnxsurgeon_lite import PASSES

    parts = []
    for name, kind in sorted(PASSES.items()):
        first = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        parts += [f"### {name}", "", _escaped(first), "", recipe(name), ""]
    return "\n".join(parts)


def _toml(value: object) -> str:
    return (
        {True: "true", False: "false"}.get(value, repr(value))
        if isinstance(value, bool)
        else repr(value)
    )


def _kind(wanted: Any) -> str:
    """A field's type as TOML has it."""
    options = get_args(wanted)
    if get_origin(wanted) is Mapping:
        return f"table: name = {_kind(options[1])}"
    if get_origin(wanted) is tuple:
        item = options[0]
        if get_origin(item) is tuple:
            return f"table: name = {_kind(get_args(item)[1])}"
        return f"list of {_kind(item)}"
    if any("ndarray" in str(option) for option in options):
        return "numbers, or the path of a file that holds them"
    if "onnxsurgeon_lite.model" in str(wanted):
        return "path of a model"
    if "AttributeValue" in str(wanted) or len(options) > 3:
        return "value of an attribute"
    if callable(wanted) and not isinstance(wanted, type):
        return "path of a Python file"
    kinds = [kind for kind in (options or (wanted,)) if kind is not NoneType]
    names = {str: "text", int: "integer", float: "number", bool: "boolean"}
    return " or ".join(names.get(kind, "path of a Python file") for kind in kinds)


def api(rooms: str, page: str) -> str:
    """The public names that are at home in these rooms; for `rest`, where no other mark of the page names the room."""
    marked = " ".join(names for kind, names in MARK.findall(page) if kind == "api").split()
    names = [
        name
        for name in onnxsurgeon_lite.__all__
        if (_at_home(name, rooms.split()) if rooms != "rest" else not _at_home(name, marked))
    ]
    return "\n\n".join(f"::: onnxsurgeon_lite.{name}" for name in names)


def _at_home(name: str, rooms: list[str]) -> bool:
    public = inspect.unwrap(getattr(onnxsurgeon_lite, name))
    home = getattr(public, "__module__", None) or getattr(
        public, "__name__", "onnxsurgeon_lite.passes"
    )
    place = f"{home.removeprefix('onnxsurgeon_lite.')}."
    return any(place.startswith(f"{room}.") for room in rooms)


def schemas(_: str, __: str = "") -> str:
    """The schema files, with the command that each is of."""
    import json

    rows = []
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json")):
        schema = json.loads(path.read_text())
        rows.append(f"| {schema['title']} | [{path.name}](../schemas/{path.name}) |")
    return "\n".join(["| output of | schema |", "|---|---|", *rows])


def tolerances(_: str, __: str = "") -> str:
    """The tolerance that each dtype has."""
    from onnxsurgeon_lite.tensors.comparison import DEFAULTS

    rows = [f"| {name} | {t.atol:g} | {t.rtol:g} |" for name, t in DEFAULTS.items()]
    return "\n".join(["| dtype | atol | rtol |", "|---|---|---|", *rows])


PARTS: dict[str, Callable[[str, str], str]] = {
    part.__name__: part for part in (options, verbs, recipes, api, schemas, tolerances)
}
