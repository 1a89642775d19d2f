"""What a line is: a command, or Python.

As in pdb, a line whose first word is a command is that command; `!` in front, or what can only be Python after the
word (`print(x)`, `run = 3`, `next + 1`), makes it Python.
"""

import re
from collections.abc import Container

_PYTHON = re.compile(r"\(|\[|,|=|:=|\.\s*\w|(\+|-|\*\*?|//?|%|&|\||\^|<<?|>>?|!|@)=|[-+*/%&|^<>@] ")
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def command_of(line: str, words: Container[str]) -> tuple[str, str] | None:
    """(command, the rest of the line), None where it is Python."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    if word not in words or _PYTHON.match(rest):
        return None
    return word, rest


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
