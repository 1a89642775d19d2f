"""Names as people write and read them: lists and `key=value` on a command line, safe display, shell quoting."""

import contextlib
import fnmatch
import json
import math
import os
import re
import shlex
import traceback
import types
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Set
from itertools import islice, product, takewhile

from onnxsurgeon_lite.errors import SurgeonError, UsageError

STANDS_FOR = "onnxdbg.stands_for"
"""Metadata of a node that the runtime made: the ids of the model's own nodes."""


def shown(name: str) -> str:
    """Escape the control and formatting characters of a name, so that a terminal only prints it."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


_HEADS = 4  # prefixes of names that are tried
_WILD = re.compile(r"[*?\[]")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)  # also one that is open: all are tried once


def shown_text(text: str) -> str:
    """Escape names inside the quoted strings of a text; each quoted string becomes one line."""
    return "\n".join(map(shown, _QUOTED.sub(lambda quoted: shown(quoted[0]), text).split("\n")))


def command(*words: str) -> str:
    """Quote words as a shell command that can be pasted."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    # `$'...'` of shells writes control characters as escapes, so that pasting a command runs nothing else.
    if not word.isprintable():
        return "$'" + "".join(map(_ansi_c, word)) + "'"
    return shlex.quote(word)


def _ansi_c(character: str) -> str:
    if not character.isprintable():
        # bytes that are no UTF-8 come as surrogates
        return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    return "\\" + character if character in "\\'" else character


def is_function(place: str) -> bool:
    """Return whether a text is `FILE.py:function`: a file or a folder of that very name is no Python."""
    return place.rpartition(":")[0].endswith(".py") and not os.path.lexists(place)


def function_at(place: str, what: str) -> Callable[..., object]:
    """Return the function of `FILE.py:function`.

    Args:
        what: what messages call it.

    Raises:
        UsageError: there is no such file or function, or the file does not run.
    """
    path, _, name = place.rpartition(":")
    if not path.endswith(".py") or not os.path.isfile(path):
        raise UsageError(f"there is no {what} at {place!r}", "write FILE.py:function")
    # a module of that file alone: nothing is imported, and nothing stays
    module = types.ModuleType(os.path.basename(path).removesuffix(".py"))
    module.__file__ = path
    with calling(path), open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), vars(module))
    function: Callable[..., object] | None = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{path!r} has no function {name!r}", "write FILE.py:function")
    return function


@contextlib.contextmanager
def calling(place: str) -> Iterator[None]:
    """Raise what a user's own code raises as a `UsageError` that names it and the line."""
    try:
        yield
    except (SurgeonError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        trace = traceback.extract_tb(error.__traceback__)
        # the innermost line
        line = next((f"{f.filename}:{f.lineno}" for f in reversed(trace)), place)
        raise UsageError(
            f"{place!r} raised {type(error).__name__}: {error}", f"at {line}"
        ) from error


def is_count(text: str) -> bool:
    """Return whether a text is a whole number, 0 or more, of a size that a dimension or position can have."""
    return text.isdecimal() and len(text) <= 18  # fits int64


def python(value: object) -> str:
    """Write a value as a Python literal, in ASCII: the only way in which a value gets into generated Python.

    Raises:
        TypeError: the value has no literal.
    """
    match value:
        case None | bool() | int() | bytes():
            return repr(value)
        case str():
            return ascii(str(value))
        case float():
            # `inf` and `nan` are no literals
            return repr(float(value)) if math.isfinite(value) else f"float({str(float(value))!r})"
        case tuple():
            return f"({' '.join(f'{python(item)},' for item in value)})"
        case list():
            return f"[{', '.join(map(python, value))}]"
        case dict():
            return f"{{{', '.join(f'{python(k)}: {python(v)}' for k, v in value.items())}}}"
    raise TypeError(f"a {type(value).__name__} has no literal")


def toml(text: str) -> str:
    """Quote a text for a TOML file."""
    # TOML forbids DEL, which JSON leaves as it is
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def listed(names: Iterable[str]) -> str:
    """Join names into one list argument; the inverse of `split`."""
    return ",".join(name.replace("\\", "\\\\").replace(",", "\\,") for name in names)


def joined(names: Iterable[object]) -> str:
    """Quote names, for a message."""
    return ", ".join(map(repr, names))


def few(names: Sequence[str]) -> str:
    """Quote the first names of many, for a message."""
    return joined(names[:6]) + (", ..." if len(names) > 6 else "")


def first(texts: Sequence[str], most: int) -> str:
    """List the first of many texts, and say how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def counted(count: int, what: str) -> str:
    """Return a number of things: `1 node`, `2 nodes`."""
    return f"{count} {what}{'s' * (count != 1)}"


_PART = re.compile(r"(?:[^\\,]|\\.|\\\Z)+", re.DOTALL)


def split(arguments: Iterable[str], known: Container[str] = ()) -> list[str]:
    r"""Split list arguments at commas; an argument that is in `known` stays one name.

    `\,` is a comma inside a name and `\\` a backslash.
    """
    names = list[str]()
    for argument in filter(None, arguments):
        if argument in known:
            names.append(argument)
        else:
            names += (re.sub(r"\\([\\,])", r"\1", part) for part in _PART.findall(argument))
    return names


# the key: anything but `=`, with backslashes before what they escape; then the value
_KEY = re.compile(r"((?:[^\\=]|\\.|\\\Z)*)(?:=(.*))?", re.DOTALL)


def key_value(text: str) -> tuple[str, str | None]:
    r"""Split `key=value` at the first `=`; the value is None if there is no `=`.

    `\=` is an equals sign inside the key and `\\` a backslash; the value is taken as it is.
    """
    found = _KEY.fullmatch(text)
    assert found is not None  # any text has a key
    return re.sub(r"\\([\\=])", r"\1", found[1]), found[2]


def key_text(key: str) -> str:
    """Escape a key for use before `=`."""
    return re.sub(r"([\\=])", r"\\\1", key)


def starting(ordered: Sequence[str], begins: str) -> Iterator[str]:
    """Yield the names that start with `begins`, by binary search in the sorted names."""
    there = islice(ordered, bisect_left(ordered, begins), None)
    return takewhile(lambda name: name.startswith(begins), there)


def is_glob(text: str) -> bool:
    """Return whether a text is a pattern and not a plain name."""
    return _WILD.search(text) is not None


def beginning(pattern: str) -> str:
    """Return the literal prefix of a pattern."""
    return _WILD.split(pattern)[0]


def glob(pattern: str) -> Callable[[str], object]:
    """Return a function that tells whether a name matches the pattern."""
    return re.compile(fnmatch.translate(pattern)).match


def fitting(ordered: Sequence[str], pattern: str) -> Iterator[str]:
    """Yield the sorted names that match a pattern; only names with its literal prefix are tested."""
    return filter(glob(pattern), starting(ordered, beginning(pattern)))


def stems_of(text: str, stems: Iterable[str]) -> list[str]:
    """Return the stems that a text is joined of, with or without underscores; [] if it is not."""
    longest = sorted(filter(None, stems), key=len, reverse=True)
    # where the rest can be split -> its stems
    rest = {len(text): list[str]()}
    # from the end to the start, so that the rest is known where a stem ends
    for start in reversed(range(len(text))):
        for stem in longest:
            end = start + len(stem)
            # the stem, and an underscore after it
            end += text[end : end + 1] == "_"
            if end in rest and text.startswith(stem, start):
                rest[start] = [stem, *rest[end]]
                break
    return rest.get(0, [])


def joined_in(text: str, names: Collection[str]) -> list[str]:
    """Return the names that a text joins, in order; [] if it joins none.

    `qkv_proj` joins `q_proj`, `k_proj` and `v_proj`: the stems, and the end that all of them have.
    """
    for place in (place for place, letter in enumerate(text) if letter == "_"):
        end = text[place:]
        stems = [name.removesuffix(end) for name in names if name.endswith(end)]
        found = stems_of(text[:place], stems)
        if len(found) > 1:
            return [stem + end for stem in found]
    return []


def wrapper_of(names: Collection[str], known: Set[str], most: int = 0) -> tuple[str, str]:
    """Return (prefix to drop, prefix to add), such as `model.`: a wrapper module, with which most names are known.

    Args:
        most: how many parts both prefixes may have where one replaces the other.
    """

    def heads(names: Iterable[str]) -> list[str]:
        found = (name[: dot.end()] for name in names for dot in re.finditer(r"\.", name))
        # an item of a list is around no other item
        counts = Counter(head for head in found if not re.search(r"\.\d+\.$", head))
        return [""] + list(dict(counts.most_common(_HEADS)))

    pairs = product(heads(names), heads(known))
    ways = [way for way in pairs if "".join(way).count(".") <= most or not all(way)]
    return max(ways, key=lambda way: len({rewrapped(name, way) for name in names} & known))


def rewrapped(name: str, way: tuple[str, str]) -> str:
    """Return a name with one prefix in the place of another."""
    drop, put = way
    return f"{put}{name.removeprefix(drop)}" if name.startswith(drop) else name
