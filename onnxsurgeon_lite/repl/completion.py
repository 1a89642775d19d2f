"""What the text before the cursor can go on with."""

import re
from collections.abc import Sequence
from pathlib import Path

from onnxsurgeon_lite.repl.commands import COMMANDS
from onnxsurgeon_lite.repl.session import Session

_WORD = re.compile(r"\s*(\w*)")
_COMMAND = re.compile(r"(?:.*;)?\s*(\w+)\s+(?P<typed>.*)")
_FOUND = re.compile(r"""\.find\(.*\b(?P<field>op|scope|name|cls|src)\s*=\s*["'](?P<typed>[^"']*)""")
_NAMED = re.compile(
    r"""(?:\b(?:graph|dbg)\[|\b(?:graph|dbg|model)\.\w+\(.*)["'](?P<typed>[^"']*)"""
)


def complete(session: Session, text: str) -> tuple[str, list[str]] | None:
    """(what was typed of the last name, what it can be), None where Python's own completion is meant."""
    names = session.names
    command = _COMMAND.fullmatch(text)
    if command and command[1] in COMMANDS:
        typed = command["typed"]
        match COMMANDS[command[1]].completes:
            case "value":
                typed = re.split(r",\s*", typed)[-1]
                return typed, names.values(typed)
            case "node":
                return typed, names.nodes(typed)
            case "file":
                return typed, _files(typed)
            case _:
                return typed, [
                    word for word in COMMANDS if command[1] == "help" and word.startswith(typed)
                ]
    found = _FOUND.search(text)
    if found and found.end() == len(text):
        kinds = {"op": names.ops, "scope": names.scopes, "cls": names.classes, "src": names.sources}
        return found["typed"], kinds.get(found["field"], names.nodes)(found["typed"])
    named = _NAMED.search(text)
    if named and named.end() == len(text):
        return named["typed"], names.nodes(named["typed"])
    return None


def words(text: str) -> Sequence[str]:
    """The commands that the first word of a line can be."""
    word = _WORD.fullmatch(text)
    return [each for each in COMMANDS if word and word[1] and each.startswith(word[1])]


def _files(typed: str) -> list[str]:
    try:
        found = sorted(Path().glob(f"{typed}*")) if not Path(typed).is_absolute() else []
    except (OSError, ValueError, NotImplementedError):
        return []
    return [f"{path}/" if path.is_dir() else str(path) for path in found]
