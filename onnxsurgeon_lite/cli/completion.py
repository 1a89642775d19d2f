"""What the shell completes: the values, nodes and selectors of the model on the line."""

import os
import shlex
from pathlib import Path

import typer

from onnxsurgeon_lite.errors import SurgeonError

_BEFORE = "ONNXDBG_BEFORE"  # the word up to its last colon, which bash does not want to hear again


def rejoin_words() -> None:
    """bash splits words at ':', so that `op:Co` is three; have one, and complete what follows the colon."""
    words, place = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if not place.isdecimal() or not os.environ.get("_ONNXDBG_COMPLETE", "").endswith("bash"):
        return
    joined: list[str] = []
    for word in [*words[: int(place)], words[int(place)] if int(place) < len(words) else ""]:
        glued = joined and (word == ":" or joined[-1].endswith(":"))
        joined[-1:] = [joined[-1] + word] if glued else [*joined[-1:], word]
    before, colon, joined[-1] = joined[-1].rpartition(":")
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    os.environ[_BEFORE] = before + colon


def values(context: typer.Context, incomplete: str) -> list[str]:
    """Values, and the selectors of nodes; of a list the last."""
    return _complete(context, incomplete, nodes=False)


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Nodes and their selectors."""
    return _complete(context, incomplete, nodes=True)


def _complete(context: typer.Context, incomplete: str, nodes: bool) -> list[str]:
    from onnxsurgeon_lite.completing import Names
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.model import load

    line = os.environ.get(_BEFORE, "")
    before, comma, typed = f"{line}{incomplete}".rpartition(",")
    try:
        names = Names(GraphIndex.of(load(_model(context))))
    except (SurgeonError, OSError, ValueError):
        return []
    found = (names.nodes if nodes else names.values)(typed)
    return [f"{before}{comma}{name}".removeprefix(line) for name in found]


def _model(context: typer.Context) -> Path:
    """The model on the line; an option that still lacks its value keeps the line from being parsed."""
    line = os.environ.get("COMP_WORDS", "") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    words = [str(context.params.get("model")), *shlex.split(line)]
    files = (Path(word) for word in words if word.endswith(".onnx"))
    return next((path for path in files if path.is_file()), Path(words[0]))
