"""What `help` shows: the commands in groups, one command, the Python objects."""

import inspect
from collections.abc import Callable, Mapping
from textwrap import shorten

from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.repl.session import Command
from onnxsurgeon_lite.report import plain

OBJECTS = {
    "graph": 'graph["22"], graph.find(op="Conv"), graph.path("22", "28")',
    "model": 'model.rename({"31": "out"}): every edit verb is a method',
    "dbg": 'dbg["25"]: the numbers of a value; every command is a method',
}
_WIDTH, _LINE = 30, 79


def show_all(
    groups: Mapping[str, Mapping[str, Command]],
    aliases: Mapping[str, str],
    verbs: Mapping[str, str],
) -> None:
    """Show a line for everything that can be typed."""
    for title, commands in groups.items():
        plain.out(title)
        for word, command in commands.items():
            show_command(word, command, aliases)
        verbs = {verb: text for verb, text in verbs.items() if verb not in commands}
    if verbs:
        _show_lines("Commands of onnxdbg, on this model", verbs)
    _show_lines("Python objects (anything else is Python; ! in front makes it that)", OBJECTS)
    plain.out("help WORD says more: help bisect, help edit rename, help graph, help graph.find")


def _show_lines(title: str, lines: Mapping[str, str], width: int = 9) -> None:
    plain.out(title)
    for word, text in lines.items():
        plain.out(shorten(text, _LINE, initial_indent=f"  {word:<{width}}", placeholder=" ..."))


def show_command(word: str, command: Command, aliases: Mapping[str, str]) -> None:
    """Show a command's line: its short forms, usage, meaning."""
    named = ", ".join([word, *(short for short, long in aliases.items() if long == word)])
    plain.out(f"  {named + ' ' + command.usage:<{_WIDTH}} {command.help}")


def show_object(namespace: Mapping[str, object], name: str) -> None:
    """Show what an object is, with its methods; or one method.

    Raises:
        UnknownNameError: the object has no such method.
    """
    first, _, member = name.partition(".")
    thing = namespace[first]
    members = {each: _member(thing, each) for each in dir(thing) if not each.startswith("_")}
    methods = {n: m for n, m in members.items() if callable(m) or isinstance(m, property)}
    if member and member not in methods:
        raise UnknownNameError(member, first, methods, kind="method")
    if member:
        usage = _usage(getattr(thing, member)) if callable(methods[member]) else ""
        plain.out(f"{name}{usage}\n{inspect.getdoc(methods[member])}")
        return
    plain.out(f"{inspect.getdoc(type(thing).__mro__[-2])}\n")
    firsts = {n: (inspect.getdoc(m) or "").partition("\n")[0] for n, m in methods.items()}
    _show_lines(f"help {first}.NAME says more:", firsts, 15)


def _usage(method: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(method).replace(return_annotation=inspect.Signature.empty)


def _member(thing: object, name: str) -> object:
    """A method, or a property itself rather than its value."""
    return inspect.getattr_static(type(thing), name, None) or getattr(thing, name)
