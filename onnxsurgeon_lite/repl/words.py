"""Tell commands from Python.

As in pdb, a line whose first word is a command is that command; `!` in front, or what can only be Python after the
word (`print(x)`, `run = 3`, `next + 1`), makes it Python; what `p` and `pp` print is. A line that is not Python is a
command too if its first word is nearly one: the error then says which.
"""

import ast
import keyword
import re
from collections.abc import Collection
from difflib import get_close_matches

_PYTHON = re.compile(r"\(|\[|,|=|:=|\.\s*\w|(\+|-|\*\*?|//?|%|&|\||\^|<<?|>>?|!|@)=|[-+*/%&|^<>@] ")
_ASSIGNMENT = re.compile(r"=|:=|(\+|-|\*\*?|//?|%|&|\||\^|<<?|>>?|!|@)=")
_PRINTING = ("p", "pp")
_NEARLY = 0.78  # a letter less, more or exchanged; no word of IPython's own is that near
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def command_of(line: str, words: Collection[str]) -> tuple[str, str] | None:
    """(command, the rest of the line), None where it is Python."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if word in words:
        python = _ASSIGNMENT if word in _PRINTING else _PYTHON
        return None if python.match(rest) else (word, rest)
    return (word, rest) if rest and closest(word, words) and not _is_python(line) else None


def closest(word: str, words: Collection[str]) -> list[str]:
    """The commands that a mistyped word may mean."""
    if keyword.iskeyword(word) or not word.isidentifier():
        return []
    return get_close_matches(word, words, cutoff=_NEARLY)


def _is_python(line: str) -> bool:
    try:
        ast.parse(line.strip())
    except (SyntaxError, ValueError):
        return False
    return True


def split(line: str) -> list[str]:
    """The parts between semicolons, those in quotes and brackets aside; the whole where they are not closed."""
    parts, start = [], 0
    quote, closing = "", list[str]()
    for place, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _PAIRS:
            closing.append(_PAIRS[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == ";" and not closing:
            parts.append(line[start:place])
            start = place + 1
    if quote or closing:
        return [line]
    return [part.strip() for part in (*parts, line[start:]) if part.strip()]
