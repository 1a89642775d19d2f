"""Complete the text before the cursor."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from onnxsurgeon_lite.repl.commands import ALIASES, command_named, words
from onnxsurgeon_lite.repl.session import PromptSession
from onnxsurgeon_lite.repl.words import outside

_WORD = re.compile(r"\s*(\w+)")
_COMMAND = re.compile(r"(?:.*;)?\s*(\w+)\s+(?P<typed>.*)")
_CLOSED = re.compile(r"""(?:[^"'\\]|\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*""", re.DOTALL)
_FOUND = re.compile(r"""\.find\(.*\b(?P<field>op|scope|name|cls|src)\s*=\s*\Z""")
_NAMED = re.compile(r"""\b(?:graph|dbg)\[\Z|\b(?:graph|dbg|model)\.\w+\(.*(?<!\w)\Z""")


def complete(session: PromptSession, text: str) -> tuple[str, list[str]] | None:
    """Return (the typed part of the last name, its completions), None to leave it to Python.

    They are written as the line takes them: in a verb quoted, in a text of Python escaped. What a terminal does not
    print is left out.
    """
    found = _complete(session, text)
    return found and (found[0], [name for name in found[1] if name.isprintable()])


def _complete(session: PromptSession, text: str) -> tuple[str, list[str]] | None:
    names = session.names
    found = _COMMAND.fullmatch(text)
    if found and found[1] in words(session):
        typed = found["typed"]
        completes = getattr(command_named(found[1]), "completes", "verb")
        # behind a semicolon another command begins: a name would be Python there
        is_over = outside(typed[: max(map(typed.rfind, " ,")) + 1], ";", names.every)
        # each command says what its line is made of
        match "" if is_over else completes:
            case "value":
                typed = re.split(r",\s*", typed)[-1]
                return typed, names.values(typed)
            case "node":
                typed = typed.split(" ")[-1]
                return typed, names.nodes(typed)
            case "file":
                return typed, [name for name in _files(typed) if ";" not in name]
            case "verb":
                return _verb(session, typed if found[1] == "onnxdbg" else f"{found[1]} {typed}")
            case "help":
                return typed, [w for w in words(session) if w.startswith(typed)]
            case _:
                return typed, []
    # Python: what is before the quote that is still open says what the text in it is
    closed = _CLOSED.match(text)
    before = closed[0] if closed else ""
    quote = text[len(before) :][:1]
    typed = text[len(before) + 1 :]
    found = _FOUND.search(before)
    if not quote or not (found or _NAMED.search(before)):
        return None
    kinds = {"op": "ops", "scope": "scopes", "cls": "classes", "src": "sources"}
    kind = kinds.get(found["field"], "nodes") if found else "nodes"
    return typed, [re.sub(rf"[\\{quote}]", r"\\\g<0>", name) for name in names.of(kind, typed)]


def beginning(session: PromptSession, text: str) -> Sequence[str]:
    """The commands that the first word of a line can be."""
    word = _WORD.fullmatch(text)
    if not word:
        return []
    return [w for w in words(session) if w not in ALIASES and w.startswith(word[1])]


def _verb(session: PromptSession, line: str) -> tuple[str, list[str]]:
    """Complete the last word of a verb's line."""
    before, _, typed = line.rpartition(" ")
    try:
        found = session.verbs.complete(shlex.split(before), typed)
    except ValueError:  # a quote that is open
        return typed, []
    return typed, [shlex.quote(word) for word in found or _files(typed)]


def _files(typed: str) -> list[str]:
    try:
        found = sorted(Path().glob(f"{typed}*")) if not Path(typed).is_absolute() else []
    except (OSError, ValueError, NotImplementedError):
        return []
    return [f"{path}/" if path.is_dir() else str(path) for path in found]
