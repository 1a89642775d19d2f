"""Numbers of nodes as model-explorer's custom node data: its JSON, under the ids that it gives to nodes."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from onnx import GraphProto, NodeProto

from onnxsurgeon_lite.atomic import write_text
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.report.page.data import Measure

_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {"max": max, "min": min, "sum": sum}
_COLORS = ("#fde725", "#21918c", "#440154")  # light is harmless, as on the page
_BAD = {"bgColor": "#c0392b", "textColor": "#ffffff"}


def write_node_data(path: Path, index: GraphIndex, measures: Sequence[Measure]) -> None:
    """Write the first of what was measured along a graph, whole or not at all; a file has room for one.

    Raises:
        UsageError: nothing was measured.
    """
    found = next((measure for measure in measures if set(measure.nodes) - {-1}), None)
    if found is None:
        raise UsageError("this result has no numbers of nodes", "leave --node-data out")
    write_text(path, json.dumps(node_data(index, found), indent=1, allow_nan=False) + "\n")


def node_data(index: GraphIndex, measure: Measure) -> dict[str, object]:
    """Return the numbers of nodes as model-explorer reads them, several of a node as one.

    A number over its limit has a color of its own; one that should be finite and is not is the text `not finite`.
    """
    found = defaultdict[int, list[int]](list)
    for place, node in enumerate(measure.nodes):
        known = measure.numbers[place] is not None or measure.bad[place]
        # nodes of bodies are not in model-explorer's main graph
        if isinstance(node, int) and node >= 0 and known:
            found[node].append(place)
    ids = node_ids(index.graph)
    results = {ids[node]: _result(measure, places) for node, places in sorted(found.items())}
    colors = _COLORS if measure.worse == "high" else _COLORS[::-1]
    stops = [{"stop": place / 2, "bgColor": color} for place, color in enumerate(colors)]
    name = f"{measure.title} ({measure.unit})"
    return {index.graph.name: {"name": name, "results": results, "gradient": stops}}


def _result(measure: Measure, places: list[int]) -> dict[str, object]:
    numbers = [number for place in places if (number := measure.numbers[place]) is not None]
    known = len(numbers) == len(places)
    value = float(f"{_COMBINED[measure.combine](numbers):.6g}") if known else "not finite"
    return {"value": value, **(_BAD if any(measure.bad[place] for place in places) else {})}


def node_ids(graph: GraphProto) -> list[str]:
    """Return the ids that model-explorer gives to the nodes of a main graph.

    They are names, made unique as `onnx_ir.passes.common.NameFixPass` does: in each graph, with one counter for all.
    """
    taken = Counter[str]()
    ids = list[str]()
    # a stack of (nodes that are left of a graph, names that it uses): bodies come directly after their node
    pending: list[tuple[Iterator[NodeProto], set[str]]] = [(iter(graph.node), set())]
    while pending:
        nodes, used = pending[-1]
        if (node := next(nodes, None)) is None:
            pending.pop()
            continue
        name = wanted = node.name or "node"
        while name in used:
            taken[wanted] += 1
            name = f"{wanted}_{taken[wanted]}"
        used.add(name)
        if len(pending) == 1:
            ids.append(name)
        pending += ((iter(body.node), set[str]()) for _, body in reversed(walk.bodies(node)))
    return ids
