"""What TensorRT says of a model: the profile and the layers that `trtexec` writes, given back to the model's nodes.

A layer is called after the nodes that it fuses: `conv1 + relu1`, `PWN(mul, add)`, `{ForeignNode[first...last]}`. Its
metadata, where the engine was built with them, list the nodes one by one. Names are data: none becomes a path.
"""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from onnxsurgeon_lite.debug.profiling.result import Cost, Profile, ProfiledNode
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.untrusted import text_of

# Layers are called `conv1 + relu1`, `a || b`, `PWN(mul, add)`, `{ForeignNode[first...last]}`.
_BETWEEN = re.compile(r" \+ | \|\| |, ")
_OPENING = re.compile(r"^(?:PWN\(|\(|\{ForeignNode\[)+")
_IN_METADATA = re.compile(r"\[ONNX Layer: (.*)\]", re.DOTALL)
_UNNAMED = "node_of_"
"""TensorRT's parser calls a node without a name so, after its first output."""
_WRITE = "trtexec --exportProfile=FILE.json writes it"


def is_profile(path: Path) -> bool:
    """Return whether a file is a profile of TensorRT: a JSON list, which no model is."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] == b"["


# `trtexec` writes [{"count": runs}, {"name": layer, "averageMs": ..., "medianMs": ...}, ...]
def read_profile(path: Path, index: GraphIndex, layers: Path | None = None) -> Profile:
    """Return the times of TensorRT's layers, and the nodes of the model that each one runs.

    Args:
        layers: the file of `--exportLayerInfo`: types, and metadata with the names of nodes.

    Raises:
        UsageError: a file is not what `trtexec` writes, or no layer is called after a node of the model.
    """
    try:
        entries = json.loads(text_of(path))
        timed = [e for e in entries if isinstance(e, dict) and "name" in e]
        runs = next((int(e["count"]) for e in entries if "count" in e), 0)
        seconds = [
            1e-3 * float(e["medianMs"] if "medianMs" in e else e["averageMs"]) for e in timed
        ]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise UsageError(f"{str(path)!r} is no profile of TensorRT: {error!r}", _WRITE) from error
    if not all(math.isfinite(each) and each >= 0 for each in seconds):
        raise UsageError(f"{str(path)!r} has times that are none", _WRITE)
    told = _layers(layers) if layers else {}  # layer -> (type, metadata)
    nodes = []
    for entry, own in zip(timed, seconds, strict=True):
        name = str(entry["name"])
        kind, metadata = told.get(name, ("", ""))
        # a copy into another layout is called after what reads it: it stands for no node
        is_copy = kind == "Reformat" or name.startswith("Reformatting CopyNode")
        positions = [] if is_copy else list(_positions(name, metadata, index))
        op_type = index.nodes[positions[0]].op_type if positions else kind or "(layer)"
        node = ProfiledNode(name, op_type, "TensorRT", cost=Cost(own))
        node.covers = [index.node_id(position) for position in positions]
        for origin in map(index.origins.__getitem__, positions[:1]):
            node.place, node.modules = str(origin), origin.around()
        nodes.append(node)
    if not any(node.covers for node in nodes):
        raise UsageError(
            f"no layer of {str(path)!r} is called after a node of the model",
            "give the model that the engine was built of, and --layers FILE.json of trtexec --exportLayerInfo",
        )
    return Profile(str(path), runs, math.fsum(seconds), nodes, provider="TensorRT")


def _layers(path: Path) -> dict[str, tuple[str, str]]:
    """Return layer -> its type and its metadata."""
    try:
        found = json.loads(text_of(path))["Layers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UsageError(
            f"{str(path)!r} tells no details of TensorRT's layers",
            "build the engine with --profilingVerbosity=detailed; --exportLayerInfo=FILE.json writes them",
        )
    texts = ((e.get("Name"), e.get("LayerType"), e.get("Metadata")) for e in found)
    return {str(name): (str(kind or ""), str(metadata or "")) for name, kind, metadata in texts}


def _positions(name: str, metadata: str, index: GraphIndex) -> Iterator[int]:
    """Yield the nodes that a layer computes, in order, as far as its name and its metadata say."""
    # what is between two brackets is a name, whatever it contains
    # "[ONNX Layer: conv1]\x1e[ONNX Layer: relu1]"
    listed = map(_IN_METADATA.fullmatch, metadata.split("\x1e"))
    names = [match[1] for match in listed if match] or _split(name, index)
    found = dict.fromkeys(position for each in names for position in _called(each, index))
    yield from sorted(found)


def _split(name: str, index: GraphIndex) -> list[str]:
    """Return the names that a layer's name is made of; of a region it has the first and the last."""
    if _called(name, index):  # a node may be called `a + b` itself
        return [name]
    # parts that are no nodes, such as constants and TensorRT's own layers, are found nowhere
    inner = (_OPENING.sub("", part).rstrip(")]}") for part in _BETWEEN.split(name))
    return "...".join(inner).split("...")


def _called(name: str, index: GraphIndex) -> list[int]:
    """Return the one node of a name; none where several have it."""
    found = index.named.get(name, [])
    made = index.producer.get(name.removeprefix(_UNNAMED))
    if made is not None and name.startswith(_UNNAMED) and not index.nodes[made].name:
        found = found or [made]
    return found if len(found) == 1 else []
