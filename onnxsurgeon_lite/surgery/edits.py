"""Graph edits that several passes share: unique names, renamed uses, valid order.

A name means the value of the innermost scope that defines it. So a rename follows a value into the bodies that
capture it, and stops at bodies that define the name themselves. `''` is an omitted input, never a name.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, MutableSequence, Sequence, Set
from itertools import chain

from onnx import GraphProto, ModelProto, NodeProto

from onnxsurgeon_lite.errors import EditError, GraphError
from onnxsurgeon_lite.graph import GraphIndex, NodeTable, captured, fitting_version, opset_versions
from onnxsurgeon_lite.model import Model, assign, drop, plain_domain, walk

Nodes = MutableSequence[NodeProto]


def defined(graph: GraphProto) -> Iterator[str]:
    """Yield the names that a graph itself defines: inputs, initializers, outputs of its nodes."""
    return chain(walk.sources(graph), walk.outputs(graph.node))


def defined_inside(nodes: Iterable[NodeProto]) -> Iterator[str]:
    """Yield the names that the bodies of these nodes define, at any depth."""
    for _, body in bodies_of(nodes):
        yield from defined(body)


def names_in(graphs: Iterable[GraphProto]) -> set[str]:
    """Return every value name in these graphs and the bodies below them, defined or used."""
    found = set[str]()
    for graph in graphs:
        found.update(
            walk.sources(graph), (value.name for value in graph.output), names_of(graph.node)
        )
    return found


def names_of(nodes: Iterable[NodeProto]) -> set[str]:
    """Return every value name in these nodes and their bodies, defined or used."""
    found = set[str]()
    for node in nodes:
        found.update(node.input[:], node.output[:])
        if node.attribute:
            found |= names_in(body for _, body in walk.bodies(node))
    return found


class Taken:
    """The names that new values must avoid: the same as `value_names`, without a set of all of them.

    It is for a few new names; a set is faster for many.
    """

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._names = outside_names(index)

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._index

    def add(self, name: str) -> None:
        self._names.add(name)


def value_names(index: GraphIndex) -> set[str]:
    """Return every value name that a new name must avoid: of this graph, graphs around and in it, training graphs."""
    return outside_names(index).union(index.values())


def outside_names(index: GraphIndex) -> set[str]:
    """Return every value name that a new name must avoid, except those of the graph itself."""
    bodied = [index.nodes[place] for place in index.bodied]
    return inner_names(index.model.proto, bodied).union(index.outputs, index.model.enclosing.names)


def inner_names(proto: ModelProto, bodied: Iterable[NodeProto]) -> set[str]:
    """Return every value name in the bodies of some nodes and in the training graphs."""
    return names_in(chain(walk.inner(bodied), walk.training(proto)))


def trained(proto: ModelProto) -> set[str]:
    """Return the initializers that training sets."""
    parts = (t.initialization_binding[:] + t.update_binding[:] for t in proto.training_info)
    return {binding.key for binding in chain.from_iterable(parts)}


def fresh(base: str, taken: set[str] | Taken) -> str:
    """Return `base`, with a number appended if needed, such that it is not in `taken`; add it there."""
    name = base
    if name in taken:
        # Doubling, then bisection between a taken number (or 0) and a free one: thousands of nodes may have this
        # base, and trying one number after the other would be quadratic.
        used, number = 0, 1
        while f"{base}_{number}" in taken:
            used = number
            number = 2 * number
        while number - used > 1:
            middle = (used + number) // 2
            used, number = (middle, number) if f"{base}_{middle}" in taken else (used, middle)
        name = f"{base}_{number}"
    taken.add(name)
    return name


def node_names(proto: ModelProto) -> list[str]:
    """Return the names of all nodes of a model's graphs."""
    return [node.name for node in walk.nodes(walk.graphs(proto))]


def name_apart(graphs: Iterable[GraphProto], before: Iterable[str] = ()) -> int:
    """Rename nodes whose name another node has; return how many were renamed.

    Args:
        before: the names of the nodes before an edit: nodes that shared a name then may still share it.
    """
    nodes = list(walk.nodes(graphs))
    allowed = Counter(before)
    seen = Counter[str]()
    taken = allowed.keys() | {node.name for node in nodes}
    renamed = 0
    for node in nodes:
        name = node.name
        seen[name] += 1
        if name and seen[name] > max(1, allowed[name]):
            node.name = fresh(name, taken)
            renamed += 1
    return renamed


def rename_values(
    proto: ModelProto, graph: GraphProto, names: Mapping[str, str], taken: set[str] | None = None
) -> None:
    """Rename values of one graph of a model, all at once: definitions, uses, declarations, annotations.

    A body that defines one of the new names itself gets its own value renamed, so that it does not shadow the outer.

    Args:
        taken: see `clear_bodies`.
    """
    if not names:
        return
    nodes = graph.node
    table = NodeTable.of(graph)
    # A body that makes a value with one of the new names would hide the renamed value from its nodes.
    if table.bodied:
        taken = names_in([graph]).union(names.values()) if taken is None else taken
        clear_bodies(nodes, set(names.values()) - set(defined(graph)), taken)
    _rename_declarations(graph, names)
    # nodes that name one of the values; others need not be decoded
    touched = [nodes[place] for place in table.encoded.mentioning(names)]
    for node in touched:
        _replace(node.output, names)
    rename_uses(touched, names)
    if graph is not proto.graph:  # training refers to values of the main graph alone
        return
    for training in proto.training_info:
        for binding in chain(training.initialization_binding, training.update_binding):
            binding.key = names.get(binding.key, binding.key)
        for capturing in (training.initialization, training.algorithm):
            _rename_captures(capturing, names)


def _rename_declarations(graph: GraphProto, names: Mapping[str, str]) -> None:
    for infos in (graph.input, graph.output, graph.value_info, graph.initializer):
        for info in infos:
            if info.name in names:
                info.name = names[info.name]
    rename_beside(graph, names)


def rename_beside(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename the values that sparse initializers and quantization annotations belong to, in place."""
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = names.get(annotation.tensor_name, annotation.tensor_name)
    rename_parameters(graph, names)


def rename_parameters(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Make quantization annotations read other values."""
    for annotation in graph.quantization_annotation:
        for entry in annotation.quant_parameter_tensor_names:
            entry.value = names.get(entry.value, entry.value)


def rename_uses(nodes: Iterable[NodeProto], names: Mapping[str, str]) -> None:
    """Make nodes read other values, in their bodies too; outputs keep their names."""
    for node in nodes:
        _replace(node.input, names)
        # where a value is when several devices run the model; onnx before 1.18 has no such field
        for place in getattr(node, "device_configurations", ()):
            for spec in place.sharding_spec:
                spec.tensor_name = names.get(spec.tensor_name, spec.tensor_name)
        if not node.attribute:
            continue
        # the captured names that change: nothing else is visible in its bodies
        needed = {name: names[name] for name in captured(node) if name in names}
        for _, body in walk.bodies(node) if needed else ():
            _rename_captures(body, needed)


def _rename_captures(body: GraphProto, names: Mapping[str, str]) -> None:
    # A name that the body defines itself is another value; one that it would hide makes its own value give way.
    local = set(defined(body))
    visible = {old: new for old, new in names.items() if old not in local}
    clashes = local.intersection(visible.values())
    if clashes:
        _rename_local(body, clashes, names_in([body]).union(names, names.values()))
    rename_outputs(body, visible)
    rename_parameters(body, visible)
    rename_uses(body.node, visible)


def rename_outputs(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Make the outputs of a graph other values."""
    for value in graph.output:
        value.name = names.get(value.name, value.name)


def bodies_of(nodes: Iterable[NodeProto]) -> Iterator[tuple[NodeProto, GraphProto]]:
    """Yield (node, body) for the bodies of these nodes, at any depth, each before those inside it."""
    for node in walk.with_inner(nodes):
        for _, body in walk.bodies(node) if node.attribute else ():
            yield node, body


def has_bodies(nodes: Iterable[NodeProto]) -> bool:
    """Return whether some of the nodes hold subgraphs."""
    return any(node.attribute and walk.bodies(node) for node in nodes)


def clear_bodies(
    nodes: Iterable[NodeProto], names: Set[str], taken: set[str] | None = None
) -> list[str]:
    """Rename the values that bodies define under one of these names: outer names must not be shadowed.

    Operators of other domains find the inputs and outputs of their bodies by name: those stay.

    Args:
        taken: the names that the new ones avoid, and are added to; by default `names` and all in the nodes.

    Returns:
        The old names.
    """
    found = list[str]()
    for node, body in bodies_of(nodes):
        clashes = {name for name in defined(body) if name in names}
        if plain_domain(node.domain):
            clashes.difference_update(value.name for value in chain(body.input, body.output))
        if clashes:
            taken = names_of(nodes).union(names) if taken is None else taken
            _rename_local(body, clashes, taken)
            found += sorted(clashes)
    return found


def _rename_local(body: GraphProto, clashes: Iterable[str], taken: set[str]) -> None:
    names = {name: fresh(name, taken) for name in sorted(clashes)}
    _rename_declarations(body, names)
    for node in body.node:
        _replace(node.output, names)
    rename_uses(body.node, names)


def trimmed(names: Iterable[str]) -> list[str]:
    """Return names without trailing omitted ones."""
    kept = list(names)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _replace(slots: MutableSequence[str], names: Mapping[str, str]) -> None:
    held = slots[:]
    if names.keys().isdisjoint(held):
        return
    # '' is an omitted input, whatever the mapping says.
    for slot, name in enumerate(held):
        if name in names and name:
            slots[slot] = names[name]


def importing(model: Model, domain: str | None, notes: list[str]) -> Model:
    """Return a model that imports an operator's domain: this one if it does, else a copy with the import.

    Args:
        notes: gets one for a new import.
    """
    proto = model.proto
    name = plain_domain(domain or "")
    if not name or name in opset_versions(proto.opset_import):
        return model
    # the latest version of the domain that fits the IR version
    result = model.copy()
    version = fitting_version([], name, proto.ir_version) or 1
    result.proto.opset_import.add(domain=name, version=version)
    notes.append(f"domain {name!r} is imported at version {version}")
    return result


def drop_declarations(graph: GraphProto, names: Container[str]) -> None:
    """Remove the types and annotations of values that no longer exist."""
    drop(graph.value_info, lambda info: info.name in names)
    drop(graph.quantization_annotation, lambda annotation: annotation.tensor_name in names)


def settle(before: GraphIndex, result: Model) -> GraphIndex:
    """Check that an edit left the main graph intact, and sort its nodes again if they were sorted.

    Returns:
        The index of the result.
    """
    # GraphIndex raises for names that are made twice, `order` for cycles.
    try:
        after = GraphIndex.of(result)
        _require_whole(before, after)
        order = after.order
    except GraphError as error:
        raise EditError(f"the edit would break the graph: {error.message}", error.hint) from error
    # the nodes were sorted before the edit, and are not sorted now
    if order != list(range(len(order))) and before.order == list(range(len(before.nodes))):
        reorder(result.graph.node, order)
        return GraphIndex.of(result)
    return after


def reorder(nodes: Nodes, order: Sequence[int]) -> None:
    """Reorder the nodes; a body must not define what an earlier node does."""
    ordered = [nodes[position] for position in order]
    assign(nodes, ordered)
    if has_bodies(nodes):  # an inner name may stand before the node that now makes it outside
        clear_bodies(nodes, set(walk.outputs(nodes)))


def _require_whole(before: GraphIndex, after: GraphIndex) -> None:
    """Raise `EditError` if something reads a value that the edit took away."""
    # values that existed before, and are now neither computed nor inputs or initializers
    gone = before.producer.keys() - after.producer.keys()
    gone |= (before.inputs.keys() | before.initializers.keys()) - after.producer.keys()
    gone -= after.inputs.keys() | after.initializers.keys()
    if not gone:
        return
    dangling = {
        name: after.describe(users[0]) for name, users in after.readers(gone).items() if users
    }
    dangling.update((name, "an output of the graph") for name in gone & after.outputs.keys())
    if dangling:
        shown = "; ".join(f"{name!r}, read by {user}" for name, user in list(dangling.items())[:6])
        raise EditError(
            f"the edit would leave {len(dangling)} values without a producer: {shown}",
            "rewire their readers first, or remove them in the same edit",
        )
