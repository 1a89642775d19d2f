"""Complete the text before the cursor."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from onnxsurgeon_lite.repl.commands import ALIASES, command_named, words
from onnxsurgeon_lite.repl.session import Session

_WORD = re.compile(r"\s*(\w*)")
_COMMAND = re.compile(r"(?:.*;)?\s*(\w+)\s+(?P<typed>.*)")
_FOUND = re.compile(r"""\.find\(.*\b(?P<field>op|scope|name|cls|src)\s*=\s*["'](?P<typed>[^"']*)""")
_NAMED = re.compile(
    r"""(?:\b(?:graph|dbg)\[|\b(?:graph|dbg|model)\.\w+\(.*)["'](?P<typed>[^"']*)"""
)


def complete(session: Session, text: str) -> tuple[str, list[str]] | None:
    """Return (the typed part of the last name, its completions), None to leave it to Python."""
    names = session.names
    found = _COMMAND.fullmatch(text)
    if found and found[1] in words(session):
        command, typed = command_named(found[1]), found["typed"]
        match command.completes if command else "verb":
            case "value":
                typed = re.split(r",\s*", typed)[-1]
                return typed, names.values(typed)
            case "node":
                typed = typed.split(" ")[-1]
                return typed, names.nodes(typed)
            case "file":
                return typed, _files(typed)
            case "verb":
                return _verb(session, typed if found[1] == "onnxdbg" else f"{found[1]} {typed}")
            case "help":
                return typed, [w for w in words(session) if w.startswith(typed)]
            case _:
                return typed, []
    found = _FOUND.search(text)
    if found and found.end() == len(text):
        kinds = {"op": names.ops, "scope": names.scopes, "cls": names.classes, "src": names.sources}
        return found["typed"], kinds.get(found["field"], names.nodes)(found["typed"])
    named = _NAMED.search(text)
    if named and named.end() == len(text):
        return named["typed"], names.nodes(named["typed"])
    return None


def beginning(session: Session, text: str) -> Sequence[str]:
    """The commands that the first word of a line can be."""
    word = _WORD.fullmatch(text)
    full = [each for each in words(session) if each not in ALIASES]
    return [each for each in full if word and word[1] and each.startswith(word[1])]


def _verb(session: Session, line: str) -> tuple[str, list[str]]:
    """Complete the last word of a verb's line."""
    before, _, typed = line.rpartition(" ")
    try:
        found = session.verbs.complete(shlex.split(before), typed)
    except ValueError:  # a quote that is open
        return typed, []
    return typed, found or _files(typed)


def _files(typed: str) -> list[str]:
    try:
        found = sorted(Path().glob(f"{typed}*")) if not Path(typed).is_absolute() else []
    except (OSError, ValueError, NotImplementedError):
        return []
    return [f"{path}/" if path.is_dir() else str(path) for path in found]
