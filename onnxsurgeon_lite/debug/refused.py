"""Find the nodes that the runtime refuses: it is given each of them alone."""

import re
from collections.abc import Callable, Iterator
from itertools import chain

from onnx import NodeProto, TypeProto

from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph import GraphIndex, constant, enter
from onnxsurgeon_lite.graph.bodies import bodies
from onnxsurgeon_lite.graph.cut import Cut
from onnxsurgeon_lite.graph.lint import LintFinding
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.passes.extract import submodel
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime

REFUSED = "refused"
_NAMED = re.compile(r"Name:'([^']+)'")


def refused(index: GraphIndex, runtime: Runtime, feeds: Callable[[], Feeds]) -> list[LintFinding]:
    """Return the nodes that the runtime refuses, in bodies too; those of one kind are tried once.

    A model that it takes is run once, on feeds.
    """
    # A model that is taken whole has no refused node, but may fail when it runs.
    whole = _refusal(index.model, runtime)
    if whole is not None:
        return list(_alone(index, runtime)) or [LintFinding(REFUSED, whole, ())]
    try:
        run(index, feeds(), runtime)
    except RuntimeFailure as error:
        return [LintFinding(REFUSED, error.message, tuple(_NAMED.findall(error.message)))]
    return []


def _refusal(model: Model, runtime: Runtime) -> str | None:
    """Return why the runtime refuses a model; None if it takes it."""
    try:
        runtime.open(model)
    except RuntimeFailure as error:
        runtime.restart()  # it may have crashed
        return error.message
    return None


def _alone(index: GraphIndex, runtime: Runtime) -> Iterator[LintFinding]:
    index.learn_types(filter(None, walk.names(index.nodes)))
    # kind of node -> why it is refused; a model has few kinds
    known = dict[object, str | None]()
    for position in range(len(index.nodes)):
        key = _kind(index, position)
        if key not in known:
            known[key] = _refusal_of(index, position, runtime)
        why = known[key]
        if why is not None:
            # a node with a body may be refused because of a node in it
            inner = [enter(index, f"@{position}/{name}/*")[0] for name in bodies(index, position)]
            inside = list(chain.from_iterable(_alone(body, runtime) for body in inner))
            here = LintFinding(
                REFUSED, f"{index.describe(position)}: {why}", (index.node_id(position),)
            )
            yield from inside or [here]


def _kind(index: GraphIndex, position: int) -> object:
    """Return what nodes have in common that the runtime takes or refuses alike; a node with bodies has its own."""
    node = index.nodes[position]
    if bodies(index, position):
        return position
    operator = NodeProto(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
    # types of all values, and numbers of constants: axes and shapes decide what is refused
    values = [
        (
            index.types.get(name, TypeProto()).SerializeToString(deterministic=True),
            tensor.SerializeToString() if (tensor := constant(index, name)) is not None else b"",
        )
        for name in chain(node.input, node.output)
    ]
    return operator.SerializeToString(deterministic=True), len(node.input), tuple(values)


def _refusal_of(index: GraphIndex, position: int, runtime: Runtime) -> str | None:
    """Return why the runtime refuses a node; None also where a type is not known."""
    reads = index.reads[position]
    # constants stay constants in the model of this node alone
    fixed = [name for name in reads if constant(index, name) is not None]
    inputs = tuple(name for name in reads if name not in fixed)
    outputs = tuple(name for name in index.nodes[position].output if name)
    if any(name not in index.types for name in inputs):
        return None
    nodes = sorted({position}.union(index.producer[n] for n in fixed if n in index.producer))
    part = submodel(index, Cut(inputs, outputs, tuple(nodes), ()))
    for node, place in zip(part.graph.node, nodes, strict=True):
        node.name = node.name or index.node_id(place)  # the message names it
    return _refusal(part, runtime)
