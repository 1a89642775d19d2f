"""Tell commands from Python.

As in pdb, a line whose first word is a command is that command; `!` in front, or what can only be Python after the
word (`print(x)`, `run = 3`, `next + 1`), makes it Python; what `p` and `pp` print is. A line that is not Python is a
command too if its first word is nearly one: the error then says which. Names of the model come first: what is one,
such as `a; b` or `(x)`, is never taken apart, nor taken for Python.
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


def command_of(
    line: str, words: Collection[str], names: Collection[str] = ()
) -> tuple[str, str] | None:
    """(command, the rest of the line), None where it is Python.

    Args:
        names: those of the model.
    """
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    is_command = word in words
    if not is_command and not (rest and closest(word, words)):
        return None
    # `p -x` prints: after `p` only an assignment is Python
    python = _ASSIGNMENT if word in _PRINTING else _PYTHON
    # `compare (x)`: what follows looks like Python, but is a name of the model
    if python.match(rest) if is_command else _is_python(line):
        return (word, rest) if any(map(rest.startswith, names)) else None
    return word, rest


def outside(text: str, sign: str, names: Collection[str]) -> list[int]:
    """The places of a sign in a text, except those inside names of the model."""
    places = [place for place in range(len(text)) if text.startswith(sign, place)]
    holding = [name for name in names if sign in name] if places else ()
    for name in holding:
        starts = [start for start in range(len(text)) if text.startswith(name, start)]
        places = [p for p in places if not any(s <= p < s + len(name) for s in starts)]
    return places


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


def split(line: str, names: Collection[str] = ()) -> list[str]:
    """The parts between semicolons, those in quotes, brackets and names aside; the whole where they are not closed."""
    parts = []
    start = 0
    separators = outside(line, ";", names)
    quote = ""
    closing = list[str]()
    for place, character in enumerate(line):
        # what is quoted or in brackets separates nothing
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _PAIRS:
            closing.append(_PAIRS[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif place in separators and not closing:
            parts.append(line[start:place])
            start = place + 1
    # not closed: one part
    if quote or closing:
        return [line]
    return [part.strip() for part in (*parts, line[start:]) if part.strip()]
