"""Resolve the targets of an edit: nodes in any body, one value, the readers of a value."""

from collections.abc import Collection, Iterable

from onnx import GraphProto, NodeProto

from onnxsurgeon_lite import names
from onnxsurgeon_lite.errors import AmbiguousNameError, EditError, GraphError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import (
    select_node,
    select_nodes,
    select_values,
    split_names,
)
from onnxsurgeon_lite.names import glob, is_count, is_glob


def chosen_nodes(index: GraphIndex, selectors: Iterable[str]) -> dict[str, NodeProto]:
    """Return id -> selected node; ids of nodes in bodies and functions (`@12/then_branch/@3`) included."""
    found = dict[str, NodeProto]()
    for selector in split_names(index, selectors):
        # "@12/then_branch/@3" -> "@12/then_branch", "3"
        path, inside, number = selector.rpartition("/@")
        if inside and is_count(number):
            body = next((body for body in index.inner_bodies if body.path == path), None)
            nodes = list(body.nodes) if body is not None else []
            if int(number) < len(nodes):
                found[selector] = nodes[int(number)]
                continue
            if body is not None:
                known = [body.node_id(place) for place in range(len(nodes))]
                raise UnknownNameError(selector, f"body {path!r}", known, kind="node")
        for position in select_nodes(index, selector):
            found[index.node_id(position)] = index.nodes[position]
    return found


def one_value(index: GraphIndex, selector: str, notes: list[str]) -> str:
    """Return the value of the main graph that a selector means; notes of the selection go to `notes`."""
    # `listed` escapes commas: one selector
    selection = select_values(index, [names.listed([selector])])
    notes += selection.notes
    if len(selection.names) != 1:
        raise AmbiguousNameError(selector, selection.names)
    return selection.names[0]


def readers(index: GraphIndex, value: str, selectors: Iterable[str]) -> list[int]:
    """Return the readers of a value: the selected ones, or all."""
    reading = index.readers([value])[value]
    # each node once, in the order asked for
    chosen = list(dict.fromkeys(select_node(index, s) for s in split_names(index, selectors)))
    for position in chosen:
        if position not in reading:
            who = ", ".join(map(index.describe, reading[:6])) or "no node"
            raise EditError(
                f"{index.describe(position)} does not read {value!r}", f"it is read by {who}"
            )
    return chosen or reading


def ends(
    index: GraphIndex, selectors: Iterable[str], known: Collection[str], kind: str
) -> list[str]:
    """Return the inputs or outputs that are named; a glob means all that match it.

    Raises:
        UnknownNameError: the model has no such input or output.
    """
    found = list[str]()
    for selector in split_names(index, selectors):
        # a name that has `*` itself is that name
        matching = [selector] if selector in known else []
        if not matching and is_glob(selector):
            matching = list(filter(glob(selector), known))
        if not matching:
            raise UnknownNameError(selector, "the model", known, kind=kind)
        found += matching
    return found


def initializer_place(graph: GraphProto, value: str) -> int:
    """Return the position of the only initializer of a name; raises `GraphError` if there are several."""
    places = [place for place, tensor in enumerate(graph.initializer) if tensor.name == value]
    if len(places) > 1:
        raise GraphError(
            f"value {value!r} has {len(places)} initializers",
            "keep the last, which runtimes use: onnxdbg edit fix MODEL",
        )
    return places[0]
