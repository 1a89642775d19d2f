"""What the shell completes: the values, nodes and selectors of the model on the line."""

import glob
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import key_text, key_value

if TYPE_CHECKING:
    from onnxsurgeon_lite.graph.complete import Names

_BEFORE = (
    "ONNXDBG_BEFORE"  # the word up to its last ':' or '=', which bash does not want to hear again
)
_BREAKS = (":", "=")

Completer = Callable[..., list[str]]
Ask = Callable[["Names", str], list[str]]
"""What of a model begins with what was typed."""


def rejoin_words() -> None:
    """bash splits words at ':' and '=', so that `op:Co` is three; have one, and complete what follows the last."""
    words, place = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if not place.isdecimal() or not os.environ.get("_ONNXDBG_COMPLETE", "").endswith("bash"):
        return
    joined: list[str] = []
    is_value = False
    for word in [*words[: int(place)], words[int(place)] if int(place) < len(words) else ""]:
        if word == "=" and joined and joined[-1].startswith("-"):
            joined.append("")  # --option=value: two words
            is_value = True
            continue
        glued = is_value or (joined and (word in _BREAKS or joined[-1].endswith(_BREAKS)))
        joined[-1:] = [joined[-1] + word] if glued else [*joined[-1:], word]
        is_value = False
    end = max(joined[-1].rfind(each) for each in _BREAKS) + 1
    os.environ[_BEFORE], joined[-1] = joined[-1][:end], joined[-1][end:]
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)


def _listed(ask: Ask) -> Callable[[typer.Context, str], list[str]]:
    """Completes the last of a comma-separated list."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return _complete(context, incomplete, "", ask)

    return complete


def _paired(
    left: Ask | None, right: Ask | None = None
) -> Callable[[typer.Context, str], list[str]]:
    """Completes what stands on one side of '=', or on both."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        whole = f"{os.environ.get(_BEFORE, '')}{incomplete}"
        _, value = key_value(whole)
        if value is None:
            return [] if left is None else _complete(context, incomplete, "", _keys(left))
        done = whole.removesuffix(value)
        return [] if right is None else _complete(context, incomplete, done, right)

    return complete


def _keys(ask: Ask) -> Ask:
    return lambda names, typed: [key_text(name) for name in ask(names, key_value(typed)[0])]


def _complete(context: typer.Context, incomplete: str, done: str, ask: Ask) -> list[str]:
    from onnxsurgeon_lite.graph.complete import Names
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.model import load

    heard = os.environ.get(_BEFORE, "")
    before, comma, typed = f"{heard}{incomplete}".removeprefix(done).rpartition(",")
    found: dict[str, None] = {}
    here = [context.obj] if isinstance(context.obj, Names) else []  # the prompt's
    for model in here or _models(context):
        try:
            names = model if isinstance(model, Names) else Names(GraphIndex.of(load(model)))
            found |= dict.fromkeys(ask(names, typed))
        except (SurgeonError, OSError, ValueError):
            continue
    return [f"{done}{before}{comma}{name}".removeprefix(heard) for name in found]


def _models(context: typer.Context) -> list[Path]:
    """The model on the line, or several; an option that still lacks its value keeps the line from being parsed."""
    line = os.environ.get("COMP_WORDS", "") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = [str(context.params.get("model")), *shlex.split(line)]
    files = [Path(word) for word in words if word.endswith(".onnx") and Path(word).is_file()]
    return files if context.command.name == "merge" else files[:1] or [Path(words[0])]


values = _listed(lambda names, typed: names.values(typed))
nodes = _listed(lambda names, typed: names.nodes(typed))
inputs = _listed(lambda names, typed: names.inputs(typed))
outputs = _listed(lambda names, typed: names.outputs(typed))
scopes = _listed(lambda names, typed: names.scopes(typed))
functions = _listed(lambda names, typed: names.functions(typed))
of_inputs = _paired(lambda names, typed: names.inputs(typed))
of_outputs = _paired(lambda names, typed: names.outputs(typed))
of_border = _paired(lambda names, typed: [*names.inputs(typed), *names.outputs(typed)])
to_outputs = _paired(None, lambda names, typed: names.outputs(typed))
steps = _paired(lambda names, typed: names.outputs(typed), lambda names, typed: names.inputs(typed))
links = _paired(lambda names, typed: names.values(typed), lambda names, typed: names.inputs(typed))


def rules(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the rules that come with the package, and files with rules."""
    folder = Path(__file__).parent.parent / "graph" / "patterns" / "rules"
    shipped = sorted(path.stem for path in folder.glob("*.onnxtxt"))
    files = sorted(glob.glob(f"{glob.escape(incomplete)}*.onnxtxt"))
    return [*(name for name in shipped if name.startswith(incomplete)), *files]


def checks(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of a suite's checks."""
    from onnxsurgeon_lite.matching.suite import CONFIG, read_suite

    try:
        names = [check.name for check in read_suite(Path(context.params.get("config") or CONFIG))]
    except SurgeonError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def runtimes(incomplete: str) -> list[str]:
    """Complete the names of runtimes."""
    from onnxsurgeon_lite.runtime.backends import names

    return [name for name in names() if name.startswith(incomplete)]
