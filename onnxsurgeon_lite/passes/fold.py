"""Fold nodes that became constant, with onnxruntime."""

import math
from collections.abc import Iterable

import numpy as np
from onnx import TypeProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import RANDOM, constant
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.messages import drop_at
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.surgery.edits import drop_declarations
from onnxsurgeon_lite.tensors import dtypes

_RANDOM = RANDOM | {"Dropout"}


def fold(result: Model, values: Iterable[str], limit: int) -> tuple[list[str], list[str]]:
    """Replace, in place, nodes that are constant given `values` by their results.

    A node stays when it is random, of a custom domain, has a body, does not produce a tensor, or produces a graph
    output; and when an input or result is larger than `limit` bytes or of unknown size.

    Returns:
        (changes, notes).
    """
    index = GraphIndex.of(result)
    positions, too_large = _foldable(index, set(values), limit)
    kept = f"kept {len(too_large)} constant nodes: an input or result is over {limit} bytes or of unknown size"
    notes = [kept] if too_large else []
    if not positions:
        return [], notes
    count = fold_positions(index, positions)
    return [f"folded {len(positions)} nodes into {count} constants"], notes


def fold_positions(index: GraphIndex, positions: set[int]) -> int:
    """Replace, in place, nodes that are constant by their results; return how many results others read."""
    needed = {
        name
        for position in positions
        for name in index.nodes[position].output
        if name and any(user not in positions for user in index.consumers.get(name, ()))
    }
    graph = index.graph
    # empty when all are dead
    computed = _computed(index, positions, sorted(needed)) if needed else {}
    for name, array in computed.items():
        graph.initializer.append(dtypes.from_array(array, name))
    gone = {name for p in positions for name in index.nodes[p].output}
    drop_at(graph.node, positions)
    drop_declarations(graph, gone - needed)
    return len(needed)


def _foldable(index: GraphIndex, known: set[str], limit: int) -> tuple[set[int], set[int]]:
    """Return (nodes to fold, nodes kept for their size), walking forward from the new constants."""
    fold: set[int] = set()
    large: set[int] = set()
    for position in index.order:
        reads = index.reads[position]
        if known.isdisjoint(reads):
            continue
        if not all(name in known or _is_small(index, name, limit) for name in reads):
            if all(name in known or constant(index, name) is not None for name in reads):
                large.add(position)
            continue
        node = index.nodes[position]
        outputs = [name for name in node.output if name]
        if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM or walk.bodies(node):
            continue
        if any(name in index.outputs for name in outputs):
            continue
        sizes = [_size(index.type_of(name)) for name in outputs]
        if any(size is None or size > limit for size in sizes):
            large.add(position)
            continue
        fold.add(position)
        known.update(outputs)
    return fold, large


def _is_small(index: GraphIndex, name: str, limit: int) -> bool:
    tensor = constant(index, name)
    if tensor is None:
        return False
    return (index.model.span(tensor)[2] if is_external(tensor) else LARGE) <= max(limit, LARGE)


def _size(kind: TypeProto | None) -> int | None:
    """Return the bytes of a tensor type with a fixed shape, else None."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    elements = math.prod(int(dim.dim_value) for dim in dims)
    return elements * dtypes.numpy_dtype(kind.tensor_type.elem_type).itemsize


def _computed(index: GraphIndex, positions: set[int], wanted: list[str]) -> dict[str, dtypes.Array]:
    from onnxsurgeon_lite.graph.cut import Cut
    from onnxsurgeon_lite.passes.extract import submodel
    from onnxsurgeon_lite.runtime.session import RuntimeOptions, run_model

    nodes = set(positions)
    for position in positions:
        nodes.update(
            index.producer[name] for name in index.reads[position] if name in index.producer
        )
    part = submodel(index, Cut((), tuple(wanted), tuple(sorted(nodes)), ()))
    values = run_model(part, {}, options=RuntimeOptions(opt="none", threads=1))
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
