"""What the shell completes: the values, nodes and selectors of the model on the line."""

import glob
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import key_text, key_value, listed, starting

if TYPE_CHECKING:
    from onnxsurgeon_lite.graph.complete import Completions

Completer = Callable[..., list[str]]
Ask = Callable[["Completions", str], list[str]]
"""What of a model begins with what was typed."""

_NOT_PLAIN = r"[^\w./,+%@:=-]"  # what bash may take for more than itself
_ACTIVE = {"": "$`!;&|<>()", '"': "$`!", "'": ""}  # what runs something, by the quote around it
# what a backslash takes the meaning from; None: anything
_ESCAPED = {"": None, '"': '$`"\\', "'": ""}


def answer(shell: str, group: Any) -> None:
    """Print the words that the word at the cursor can become, as the scripts of `shells` read them.

    bash gets what it puts in place of a part of the word, quoted; zsh and fish quote words themselves. Where the
    word already holds what runs something, such as `$(`, nothing is offered.
    """
    if shell not in ("bash", "zsh", "fish"):
        sys.stderr.write("\nonnxdbg: old completion; write onnxdbg --install-completion\n")
        return
    line = os.environ.get("_ONNXDBG_LINE", "")
    given, typed, _, active = _read(line)
    # an answer would be put on a line that runs something
    if active:
        return
    words = completions(group, given[1:], typed)
    if shell == "bash":
        # bash splits words at `:` and `=` and replaces the last part only: answer with what follows its beginning
        part = os.environ.get("_ONNXDBG_WORD", "")
        _, head, quote, _ = _read(line.removesuffix(part))
        rests = (word.removeprefix(head) for word, _ in words if word.startswith(head))
        quoted = (_quoted(rest, quote) for rest in rests)
        lines = [text for text in quoted if not (quote and text.startswith(quote))]  # taken as it
    else:
        # fish writes a '~' in front as it is, and expands it
        own = (each for each in words if shell == "zsh" or not each[0].startswith("~"))
        lines = [f"{word}\t{help}".rstrip("\t") for word, help in own]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def completions(
    group: Any, given: list[str], typed: str, **context: object
) -> Iterator[tuple[str, str]]:
    """(word, its help) of all that a word can become; words that a terminal does not print are left out."""
    from typer._completion_classes import BashComplete

    option, equals, _ = typed.partition("=")
    # `--map=x`: the words are those of the value, so the option goes before them
    before = option + equals if equals and option.startswith("--") else ""
    for found in BashComplete(group, context, "", "").get_completions(list(given), typed):
        if found.value.isprintable():
            yield before + found.value, " ".join((found.help or "").split())


def _read(line: str) -> tuple[list[str], str, str, bool]:
    """(the words before, the last one, the quote that is open in it, whether it holds what runs something)."""
    words = list[str]()
    word = ""
    quote = ""
    active = False
    characters = iter(line)
    for character in characters:
        # a backslash takes the meaning from the next character; within quotes only from some
        if character == "\\" and quote != "'":
            following = next(characters, "")
            escaped = _ESCAPED[quote]
            word += following if escaped is None or following in escaped else character + following
        elif character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif not quote and character.isspace():
            words = words + [word] if word else words
            word = ""
            active = False
        else:
            word += character
            active |= character in _ACTIVE[quote]
    return words, word, quote, active


def _quoted(text: str, quote: str) -> str:
    """A text as bash reads it behind a quote that is open; the quote is closed."""
    if quote == "'":
        return text.replace("'", "'\\''") + quote
    if quote:
        return re.sub(r'[$`"\\]', r"\\\g<0>", text).replace("!", '"\\!"') + quote
    return re.sub(_NOT_PLAIN, r"\\\g<0>", text)


def positional(complete: Completer) -> Completer:
    """Completes an argument: no name that would be read as an option."""

    def without_options(context: typer.Context, incomplete: str) -> list[str]:
        return [word for word in complete(context, incomplete) if not word.startswith("-")]

    return without_options


def _asking(kinds: str) -> Ask:
    """Ask for what `Completions` has of these kinds."""
    return lambda names, typed: [n for kind in kinds.split() for n in names.of(kind, typed)]


def _listed(kind: str) -> Completer:
    """Completes the last of a comma-separated list."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return _complete(context, incomplete, "", _asking(kind))

    return complete


def _paired(left: str, right: str = "") -> Completer:
    """Completes what stands on one side of '=', or on both."""

    def keys(names: "Completions", typed: str) -> list[str]:
        return [key_text(name) for name in _asking(left)(names, key_value(typed)[0])]

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        _, value = key_value(incomplete)
        if value is None:
            return _complete(context, incomplete, "", keys)
        return _complete(context, incomplete, incomplete.removesuffix(value), _asking(right))

    return complete


def _complete(context: typer.Context, incomplete: str, done: str, ask: Ask) -> list[str]:
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.graph.complete import Completions
    from onnxsurgeon_lite.model import load

    whole = incomplete.removeprefix(done)
    before, comma, last = whole.rpartition(",")
    found = dict[str, None]()
    here = [context.obj] if isinstance(context.obj, Completions) else []  # the prompt's
    for model in here or _models(context):
        try:
            names = (
                model if isinstance(model, Completions) else Completions(GraphIndex.of(load(model)))
            )
            found |= dict.fromkeys(ask(names, whole))
            if comma:
                found |= dict.fromkeys(before + comma + listed([n]) for n in ask(names, last))
        except (SurgeonError, OSError, ValueError):
            continue
    return [done + name for name in found]


def _models(context: typer.Context) -> list[Path]:
    """The model on the line, or several; an option that still lacks its value keeps the line from being parsed."""
    words = [str(context.params.get("model"))] + _read(os.environ.get("_ONNXDBG_LINE", ""))[0]
    # the parsed model, else a word of the line that is a file; `merge` has several
    files = [Path(word) for word in words if word.endswith(".onnx") and Path(word).is_file()]
    return files if context.command.name == "merge" else files[:1] or [Path(words[0])]


values = _listed("values")
nodes = _listed("nodes")
inputs = _listed("inputs")
outputs = _listed("outputs")
scopes = _listed("scopes")
functions = _listed("functions")
of_inputs = _paired("inputs")
of_outputs = _paired("outputs")
of_border = _paired("inputs outputs")
to_outputs = _paired("", "outputs")
steps = _paired("outputs", "inputs")
links = _paired("values", "inputs")


def attributes(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the attributes that the operators of the nodes on the line have, as NAME=."""
    from onnxsurgeon_lite.graph import schema_of
    from onnxsurgeon_lite.graph.selecting.select import select_nodes

    def ask(names: "Completions", typed: str) -> list[str]:
        index = names.index
        schemas = [
            schema_of(index, index.nodes[place])
            for place in select_nodes(index, str(context.params.get("nodes")))
        ]
        known = {f"{name}=" for schema in schemas if schema for name in schema.attributes}
        return list(starting(sorted(known), typed))

    return _complete(context, incomplete, "", ask)


def rules(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the rules that come with the package, and files with rules."""
    folder = Path(__file__).parent.parent / "graph" / "patterns" / "rules"
    shipped = sorted(path.stem for path in folder.glob("*.onnxtxt"))
    found = [name for name in shipped if name.startswith(incomplete)]
    found += sorted(glob.glob(f"{glob.escape(incomplete)}*.onnxtxt"))
    return found


def checks(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of a suite's checks."""
    from onnxsurgeon_lite.matching.suite import read_suite

    config = context.params.get("config")
    try:
        names = [check.name for check in read_suite(Path(config) if config else None)]
    except SurgeonError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def runtimes(_: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of runtimes."""
    from onnxsurgeon_lite.runtime.backends import names

    return [name for name in names() if name.startswith(incomplete)]
