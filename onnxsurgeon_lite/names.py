"""Names as people write and read them: lists and `key=value` on a command line, safe display, shell quoting."""

import fnmatch
import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice, takewhile


def shown(name: str) -> str:
    """The name with control and formatting characters escaped, so that a terminal prints it and does nothing else."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


_WILD = re.compile(r"[*?\[]")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def shown_text(text: str) -> str:
    """Several lines of text in which quoted strings hold names: these are shown in one line each."""
    return "\n".join(map(shown, _QUOTED.sub(lambda quoted: shown(quoted[0]), text).split("\n")))


def command(*words: str) -> str:
    """A shell command that can be pasted, whatever the words hold."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if not word.isprintable():
        return "$'" + "".join(map(_ansi_c, word)) + "'"
    return shlex.quote(word)


def _ansi_c(character: str) -> str:
    if not character.isprintable():
        return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    return "\\" + character if character in "\\'" else character


def listed(names: Iterable[str]) -> str:
    """Several names as one list argument; the inverse of `split`."""
    return ",".join(name.replace("\\", "\\\\").replace(",", "\\,") for name in names)


def split(arguments: Iterable[str], known: Container[str] = ()) -> list[str]:
    r"""Names from list arguments: each is one name if `known` has it, else it is split at commas.

    `\,` is a comma inside a name and `\\` a backslash.
    """
    names: list[str] = []
    for argument in arguments:
        names.extend([argument] if argument in known else _split_one(argument))
    return [name for name in names if name]


def _split_one(argument: str) -> list[str]:
    parts, part, escaped = [], "", False
    for character in argument:
        if escaped:
            part += character if character in ",\\" else "\\" + character
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            parts.append(part)
            part = ""
        else:
            part += character
    return [*parts, part + ("\\" if escaped else "")]


_KEY = re.compile(r"((?:[^\\=]|\\.|\\\Z)*)(?:=(.*))?", re.DOTALL)


def key_value(text: str) -> tuple[str, str | None]:
    r"""The key and the value of `key=value`, split at the first `=`; the value is None where there is no `=`.

    `\=` is an equals sign inside the key and `\\` a backslash; the value stands as it is.
    """
    found = _KEY.fullmatch(text)
    assert found is not None  # any text has a key
    return re.sub(r"\\([\\=])", r"\1", found[1]), found[2]


def key_text(key: str) -> str:
    """A key as it is written before `=`."""
    return re.sub(r"([\\=])", r"\\\1", key)


def starting(ordered: Sequence[str], begins: str) -> Iterator[str]:
    """Those of sorted names that begin so, found without looking at the others."""
    there = islice(ordered, bisect_left(ordered, begins), None)
    return takewhile(lambda name: name.startswith(begins), there)


def is_glob(text: str) -> bool:
    """Whether a text is a pattern rather than a name."""
    return _WILD.search(text) is not None


def beginning(pattern: str) -> str:
    """What all that fits a pattern begins with."""
    return _WILD.split(pattern)[0]


def glob(pattern: str) -> Callable[[str], object]:
    """What says whether a name fits a pattern."""
    return re.compile(fnmatch.translate(pattern)).match


def fitting(ordered: Sequence[str], pattern: str) -> Iterator[str]:
    """Those of sorted names that fit a pattern; only those that begin as it does are looked at."""
    return filter(glob(pattern), starting(ordered, beginning(pattern)))
