"""Repair faults that other tools leave."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from onnx import GraphProto

from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import drop_at
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.sort import sort_nodes
from onnxsurgeon_lite.surgery.edits import (
    clear_bodies,
    defined,
    fresh,
    names_in,
    rename_uses,
    sources,
)
from onnxsurgeon_lite.surgery.types import contradicts, infer


@dataclass(frozen=True)
class Fix:
    """Repair duplicate names of values and nodes, wrong node order, and stale or repeated value_info.

    When two nodes produce one value, a reader gets the last one before it in the file, and a graph output the last
    of all. Value_info is stale when an inferred type contradicts it.

    Example:
        >>> osl.fix("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "fix"

    def apply(self, model: Model) -> PassResult:
        """Repair.

        Raises:
            GraphError: the graph has a cycle.
        """
        result = model.copy()
        changes: list[str] = []
        for graph in walk.graphs(result.proto):
            found = [*_single_producers(graph), *_unique_nodes(graph)]
            known = set(defined(graph))
            found += (*_declared_once(graph, known), *_unshadowed(graph, known))
            changes += (f"{text} in graph {graph.name!r}" for text in found)
        changes += sort_nodes(result)
        changes += _stale(result)
        return PassResult.of(model, result, changes)


def _single_producers(graph: GraphProto) -> Iterable[str]:
    """Rename every definition of a value but the last."""
    times = Counter([name for node in graph.node for name in node.output[:] if name])
    outer = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    left = {n: count + (n in outer) for n, count in times.items() if count + (n in outer) > 1}
    if not left:
        return
    taken = names_in([graph])
    current: dict[str, str] = {}
    yield f"value {', '.join(map(repr, list(left)[:6]))} had several producers: renamed all but the last"
    for name in left:
        if name in outer:
            left[name] -= 1  # inputs keep their names
            current[name] = name
    for node in graph.node:
        rename_uses([node], {old: new for old, new in current.items() if old != new})
        for slot, name in enumerate(node.output):
            if name in left:
                left[name] -= 1
                last = left[name] == 0 and name not in outer
                current[name] = name if last else fresh(name, taken)
                node.output[slot] = current[name]
    for value in graph.output:
        value.name = current.get(value.name, value.name)


def _unshadowed(graph: GraphProto, known: set[str]) -> Iterable[str]:
    """Rename body values that shadow outer ones; the checker and runtimes reject them."""
    renamed = clear_bodies(graph.node, known)
    if renamed:
        yield f"renamed values in bodies that shadowed outer ones: {', '.join(map(repr, renamed[:6]))}"


def _unique_nodes(graph: GraphProto) -> Iterable[str]:
    names = [name for node in graph.node if (name := node.name)]
    taken = set(names)
    if len(taken) == len(names):
        return
    seen: set[str] = set()
    renamed = 0
    for node in graph.node:
        if node.name and node.name in seen:
            node.name = fresh(node.name, taken)
            renamed += 1
        seen.add(node.name)
    yield f"renamed {renamed} nodes with a duplicate name"


def _declared_once(graph: GraphProto, known: set[str]) -> Iterable[str]:
    seen = {value.name for values in (graph.input, graph.output) for value in values}
    stale = []
    for place, info in enumerate(graph.value_info):
        if info.name not in known or info.name in seen:
            stale.append(place)
        seen.add(info.name)
    drop_at(graph.value_info, stale)
    if stale:
        yield f"removed {len(stale)} value_info entries: repeated, or of missing values"


def _stale(result: Model) -> Iterable[str]:
    """Correct the value_info and outputs of the main graph that contradict inference."""
    graph = result.proto.graph
    given = set(sources(graph))
    declared = [info for info in (*graph.value_info, *graph.output) if info.name not in given]
    inferred = infer(result, {info.name for info in declared})
    for info in declared:
        kind = inferred.get(info.name)
        if kind is not None and info.type != kind and contradicts(info.type, kind):
            info.type.CopyFrom(kind)
            yield f"corrected the stale type of {info.name!r}"
