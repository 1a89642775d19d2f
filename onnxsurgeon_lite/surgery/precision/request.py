"""Plan the conversion that a user asks for."""

from collections.abc import Sequence

from onnx import TensorProto

from onnxsurgeon_lite.errors import EditError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import checked
from onnxsurgeon_lite.graph.selecting.select import select_nodes, split_names
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery.precision.plan import Plan

NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def plan_of(model: Model, to: str, keep: Sequence[str], io: bool) -> Plan:
    """Return which values of a model become narrow.

    Args:
        keep: nodes that stay in float32, with all of their bodies; an id may name a node inside (`@3/body/@5`).
        io: inputs and outputs become narrow, too.

    Raises:
        UsageError: there is no such dtype to convert to.
        UnknownNameError: there is no such node to keep.
        EditError: a node lacks what its operator takes, or the model has no float32.
    """
    if to not in NARROW:
        raise UsageError(f"there is no conversion to {to!r}", f"it can be {', '.join(NARROW)}")
    checked(model)
    plan = Plan(model, NARROW[to], kept_ids(model, keep), io)
    if not any(scope.sites for scope in plan.scopes()):
        raise EditError(
            "the model has no float32 to convert", "onnxdbg inspect MODEL shows what it has"
        )
    return plan


def kept_ids(model: Model, keep: Sequence[str]) -> set[str]:
    """Return the ids of nodes to keep, of those in their bodies, too."""
    index = GraphIndex.of(model)
    # Ids of nodes in bodies: `@3/body/@5`.
    inner = (
        {b.node_id(p) for b in index.inner_bodies for p, _ in enumerate(b.nodes)} if keep else set()
    )
    found = set[str]()
    for argument in split_names(index, keep):
        chosen = (
            [argument] if argument in inner else [f"@{p}" for p in select_nodes(index, argument)]
        )
        found.update(chosen)
        # everything inside of a chosen node, too
        found.update(node for node in inner for top in chosen if node.startswith(f"{top}/"))
    return found
