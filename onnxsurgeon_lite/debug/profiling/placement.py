"""Where a runtime runs each node of a model: on which provider, in which of its parts."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from onnx import NodeProto

from onnxsurgeon_lite.debug.profiling.parts import parts
from onnxsurgeon_lite.debug.profiling.result import Profile
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph import FUNCTION_PATH, GraphIndex, function_path
from onnxsurgeon_lite.graph.index import Body
from onnxsurgeon_lite.model import Model, call_key, function_key, walk
from onnxsurgeon_lite.runtime.optimized import load_structure, structure_file
from onnxsurgeon_lite.runtime.options import provider_name
from onnxsurgeon_lite.runtime.session import WHOLE, Runtime
from onnxsurgeon_lite.shown import Shown

Where = dict[str, int | None]
"""Provider -> the number of the part that a node runs in."""

RECORD = ("session.record_ep_graph_assignment_info", "1")
"""The setting with which onnxruntime remembers where it places nodes, from 1.24 on."""


@dataclass
class PlacedNode:
    """A node of the model.

    Attributes:
        provider: '' where the runtime lists no node of its name: it removed, folded, fused or expanded the node. A
            function's nodes may have several, in one call or in different ones.
        part: number of the part that it runs in; None for a provider that runs node by node.
    """

    id: str
    op_type: str
    name: str
    provider: str
    part: int | None


@dataclass
class Placement(Shown):
    """Where a runtime runs the nodes of a model.

    Attributes:
        provider: the one that was asked for.
        nodes: those of the model and of its bodies. The nodes of a function count as its call.
        parts: how many parts each provider compiled; none for one that runs node by node.
        crossings: values of the main graph that one provider makes and another one reads.
        made: provider -> nodes that the runtime made or added there, as `operator name`.
        watched: a run showed it, because this version of the runtime does not say.

    Example:
        >>> found = osl.inspect("whole_model.onnx", placement=True)
        >>> {node.provider for node in found.nodes}
        {'CPUExecutionProvider'}
    """

    provider: str
    nodes: list[PlacedNode]
    parts: dict[str, int]
    crossings: list[str] = field(default_factory=list)
    made: dict[str, list[str]] = field(default_factory=dict)
    watched: bool = False

    @property
    def fell_back(self) -> list[PlacedNode]:
        """Return the nodes that another provider runs than the one that was asked for."""
        return [node for node in self.nodes if node.provider not in ("", self.provider)]


def placement(index: GraphIndex, runtime: Runtime) -> Placement | None:
    """Return where a runtime, asked to record it, places the nodes; None for a version that does not say.

    Raises:
        RuntimeFailure: the runtime refuses the model.
    """
    model = _named_by_ids(index)
    runtime.open(model)
    if runtime.placed is None:
        return None
    where, numbers, made = (
        defaultdict[str, Where](dict),
        Counter[str](),
        list[tuple[str, str, str]](),
    )
    # each node is named by its id
    ids = {node.name for node in walk.with_inner(model.graph.node)}
    for provider, nodes in runtime.placed:
        number = None
        # a provider that compiles its nodes as one part; the CPU runs node by node
        if not provider.startswith(WHOLE):
            number = numbers.total()
            numbers[provider] += 1
        for op_type, name in nodes:
            # what is before it says which call it is of
            own = name[max(0, name.find(FUNCTION_PATH)) :]
            where[own].setdefault(provider, number)
            # no id, and not of a function: the runtime made it
            if own == name and own not in ids:
                made.append((provider, op_type, name))
    if runtime.options.opt != "none" and not where.keys() >= ids:
        _take_fused(index, model, runtime, where)
    return _placement(index, provider_name(runtime.options.provider), where, made, dict(numbers))


def placement_of(index: GraphIndex, profile: Profile) -> Placement:
    """Return where the nodes ran, as a profile shows it."""
    where = defaultdict[str, Where](dict)
    made = list[tuple[str, str, str]]()
    fed = _fed(index)
    for kernel in profile.nodes:
        if not kernel.covers:
            made.append((kernel.provider, kernel.op_type, kernel.name))
        for node_id in fed.intersection(kernel.covers):
            where[node_id].setdefault(kernel.provider, None)
    return replace(_placement(index, profile.provider, where, made, {}), watched=True)


def _named_by_ids(index: GraphIndex) -> Model:
    """Return the model with each node named by its id, so that it is known again."""
    model = index.model.copy()
    copy = GraphIndex.of(model)
    for body in copy.every_body:
        for position, node in enumerate(body.nodes):
            node.name = body.node_id(position)
    return model


def _take_fused(index: GraphIndex, model: Model, runtime: Runtime, where: dict[str, Where]) -> None:
    """Give nodes that were fused before they were placed what the fused ones have.

    A session on the CPU fuses the same ones before it places any; its graph can be written.
    """
    options = replace(runtime.options, opt="basic", provider="cpu", settings=())
    with structure_file() as path, Runtime(options) as beside:
        try:
            beside.open(model, optimized=path)
        except RuntimeFailure:  # the CPU need not be able to run it
            return
        found = parts(index, load_structure(path).graph.node)
    fed = _fed(index)
    for part in found:
        # the placed kernels of the part; what the last one has stands for all
        kernels = [where[name] for name in part.kernels if name in where]
        for node_id in map(index.node_id, part.positions) if kernels else ():
            if node_id in fed:
                where.setdefault(node_id, kernels[-1])


def _fed(index: GraphIndex) -> set[str]:
    """Return the nodes that depend on an input: the runtime folds what does not, so that it runs nowhere."""
    return set(map(index.node_id, index.descendants(index.next_to(index.inputs))))


def _placement(
    index: GraphIndex,
    provider: str,
    where: Mapping[str, Where],
    made: Iterable[tuple[str, str, str]],
    numbers: dict[str, int],
) -> Placement:
    # the runtime puts a function's nodes in the place of each call, and gives them its names
    functions = {function_key(f): f for f in index.model.proto.functions}

    def of(node_id: str, node: NodeProto) -> Where:
        """Return what a node has; a call has what the nodes of its function have."""
        function = functions.get(call_key(node))
        if node_id in where or function is None:
            return where.get(node_id, {})
        body = Body(function_path(function), function.node)
        inner = (of(body.node_id(place), each) for place, each in enumerate(body.nodes))
        return dict(chain.from_iterable(map(dict.items, inner)))

    result = Placement(provider, [], numbers)
    for body in index.every_body:
        for position, node in enumerate(() if body.path.startswith(FUNCTION_PATH) else body.nodes):
            found = of(body.node_id(position), node)
            names = ", ".join(found)
            number = next(iter(found.values())) if len(found) == 1 else None
            placed = PlacedNode(body.node_id(position), node.op_type, node.name, names, number)
            result.nodes.append(placed)
    for maker, op_type, name in made:
        result.made.setdefault(maker, []).append(f"{op_type} {name}".strip())
    on = [node.provider for node in result.nodes]  # those of the main graph come first
    for value, position in index.producer.items():
        readers = {on[reader] for reader in index.consumers.get(value, ())}
        if on[position] and readers - {"", on[position]}:
            result.crossings.append(value)
    return result
