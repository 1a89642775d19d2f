"""What `help` shows: the commands in groups, one command, the Python objects."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.report import plain

if TYPE_CHECKING:
    from onnxsurgeon_lite.repl.commands import Command

OBJECTS = {
    "graph": 'graph["22"], graph.find(op="Conv"), graph.around("22"), graph.path("22", "28")',
    "model": 'model.rename({"31": "out"}): every edit verb is a method',
    "dbg": 'dbg["25"]: the numbers of a value; every command is a method',
}
_WIDTH = 40


def show_all(
    groups: "Mapping[str, Mapping[str, Command]]",
    aliases: Mapping[str, str],
    verbs: Mapping[str, str],
) -> None:
    """Show a line for everything that can be typed."""
    for title, commands in groups.items():
        plain.out(title)
        for word, command in commands.items():
            show_command(word, command, aliases)
    others = {
        verb: text for verb, text in verbs.items() if not any(verb in g for g in groups.values())
    }
    if others:
        plain.out("Commands of onnxdbg, on this model")
    for verb, text in others.items():
        plain.out(f"  {verb:<{_WIDTH}} {text}")
    plain.out("Python objects (anything else is Python; ! in front makes it that)")
    for name, text in OBJECTS.items():
        plain.out(f"  {name:<{_WIDTH}} {text}")
    plain.out("help WORD says more: help bisect, help edit rename, help graph, help graph.find")


def show_command(word: str, command: "Command", aliases: Mapping[str, str]) -> None:
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
    members = [each for each in dir(thing) if not each.startswith("_")]
    if member and member not in members:
        raise UnknownNameError(member, first, members, kind="method")
    shown = (
        inspect.getattr_static(type(thing), member, None) or getattr(thing, member)
        if member
        else type(thing)
    )
    usage = f"{name}{inspect.signature(shown)}\n" if callable(shown) and member else ""
    plain.out(f"{usage}{inspect.getdoc(shown)}")
    for each in () if member else members:
        text = inspect.getdoc(
            inspect.getattr_static(type(thing), each, None) or getattr(thing, each)
        )
        plain.out(f"  {first + '.' + each:<{_WIDTH}} {(text or '').partition(chr(10))[0]}")
