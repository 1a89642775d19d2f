"""Replay recorded outputs of random operators, which give other numbers in every run."""

from collections.abc import Iterable

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex, reached_functions
from onnxsurgeon_lite.graph.schemas import RANDOM
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.tensors.references import ReferenceSet


def random_nodes(index: GraphIndex, values: Iterable[str]) -> list[int]:
    """Return the upstream nodes that draw random numbers, also in bodies and functions."""
    return [
        position
        for position in sorted(index.ancestors(values))
        if _draws_inside(index.model.proto, index.nodes[position])
        or _trains(index, index.nodes[position])
    ]


def replayed(index: GraphIndex, values: Iterable[str], references: ReferenceSet) -> list[str]:
    """Return the recorded values to replay: every output of a random node, read or not.

    Raises:
        ReferenceSetError: a needed value was not recorded.
    """
    upstream = set(random_nodes(index, values))
    needed = [
        name
        for name in _outputs(index, upstream)
        if name in index.consumers or name in index.outputs
    ]
    missing = [name for name in needed if name not in references]
    if missing:
        nodes = listed([index.describe(index.producer[name]) for name in missing])
        raise ReferenceSetError(
            f"the model draws random numbers, and {references.place!r} does not contain them: {nodes}",
            f"each run draws new ones; store {listed(map(repr, missing))} with the references",
        )
    recorded = [name for name in index.producer if name in references]
    return [n for n in _outputs(index, random_nodes(index, recorded)) if n in references]


def _outputs(index: GraphIndex, positions: Iterable[int]) -> list[str]:
    return [name for p in sorted(positions) for name in index.nodes[p].output if name]


def _draws_inside(model: ModelProto, node: NodeProto) -> bool:
    """Return whether the node or one in its bodies or called functions draws random numbers."""
    called = (inner for function in reached_functions(model, [node]) for inner in function.node)
    return any(map(_draws, walk.with_inner([node, *called])))


def _draws(node: NodeProto) -> bool:
    return node.op_type in RANDOM and node.domain in ("", "ai.onnx")


def _trains(index: GraphIndex, node: NodeProto) -> bool:
    """Return whether the node is a Dropout that may run in training mode."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    mode = index.initializers.get(node.input[2])
    if mode is None and node.input[2] in index.producer:
        producer = index.nodes[index.producer[node.input[2]]]
        mode = next((a.t for a in producer.attribute if a.name == "value"), None)
    if not isinstance(mode, TensorProto):
        return True  # training mode is a run-time input
    return bool(np.any(index.model.array(mode)))
