"""Replay recorded outputs of random operators, which give other numbers in every run."""

from collections.abc import Iterable
from itertools import chain

import numpy as np
from onnx import ModelProto, NodeProto

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import (
    RANDOM,
    GraphIndex,
    constant,
    reached_functions,
)
from onnxsurgeon_lite.model import is_standard, walk
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.tensors.references import ReferenceSet

_DEVIATIONS = 6  # standard deviations by which zeros are too few for a draw


def random_nodes(index: GraphIndex, values: Iterable[str]) -> list[int]:
    """Return the upstream nodes that draw random numbers, also in bodies and functions."""
    return [
        position
        for position in sorted(index.ancestors(values))
        if _draws_inside(index.model.proto, index.nodes[position])
        or _trains(index, index.nodes[position])
    ]


def _was_off(index: GraphIndex, position: int, references: ReferenceSet) -> bool:
    """Return whether a Dropout that trains passed everything on where the references were recorded."""
    node = index.nodes[position]
    if node.op_type != "Dropout" or node.output[0] not in references:
        return False
    made = references.read(node.output[0])
    if node.input[0] in references:
        return bool(np.any(made)) and np.array_equal(made, references.read(node.input[0]))
    # Its input was not recorded: count zeros. A Dropout that trains leaves about `size * share` zeros, with the
    # standard deviation of a binomial distribution. Far fewer zeros: it did not train.
    size, zeros, share = np.size(made), np.size(made) - np.count_nonzero(made), _ratio(index, node)
    return bool(zeros < size * share - _DEVIATIONS * (size * share * (1 - share)) ** 0.5)


def _ratio(index: GraphIndex, node: NodeProto) -> float:
    """Return the share of elements that a Dropout drops; 0 where it is not known."""
    if len(node.input) < 2 or not node.input[1]:
        return 0.5
    ratio = constant(index, node.input[1])
    return 0.0 if ratio is None else float(index.model.array(ratio).item())


def replayed(index: GraphIndex, values: Iterable[str], references: ReferenceSet) -> list[str]:
    """Return the recorded values to replay: every output of a random node, read or not.

    Raises:
        ReferenceSetError: a needed value was not recorded.
    """
    # outputs that something reads must be replayed; without a reference the result would be chance
    upstream = {p for p in random_nodes(index, values) if not _was_off(index, p, references)}
    needed = [
        name
        for name in index.outputs_of(sorted(upstream))
        if name in index.consumers or name in index.outputs
    ]
    missing = [name for name in needed if name not in references]
    if missing:
        nodes = listed([index.describe(index.producer[name]) for name in missing])
        raise ReferenceSetError(
            f"the model draws random numbers, and {references.place!r} does not contain them: {nodes}",
            f"each run draws new ones; store {listed(map(repr, missing))} with the references, "
            "or export in eval() if `onnxdbg check` says that they train",
        )
    # nodes that only inner references depend on are replayed where possible
    recorded = [name for name in index.producer if name in references]
    drawn = (p for p in random_nodes(index, recorded) if not _was_off(index, p, references))
    return [n for n in index.outputs_of(sorted(drawn)) if n in references]


def _draws_inside(model: ModelProto, node: NodeProto) -> bool:
    """Return whether the node or one in its bodies or called functions draws random numbers."""
    called = walk.nodes(reached_functions(model, [node]))
    every = walk.with_inner(chain([node], called))
    return any(each.op_type in RANDOM and is_standard(each) for each in every)


def _trains(index: GraphIndex, node: NodeProto) -> bool:
    """Return whether the node is a Dropout that may run in training mode."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    mode = constant(index, node.input[2])
    # None: training mode is a run-time input
    return mode is None or bool(index.model.array(mode).any())
