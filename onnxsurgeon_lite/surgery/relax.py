"""Relax inferred shapes: find declared sizes that depend on a constant, by inference with and without it."""

from collections.abc import Hashable, Mapping, Set
from itertools import chain

from onnx import GraphProto, TensorProto, TensorShapeProto, TypeProto

from onnxsurgeon_lite.graph import MADE_UP, GraphIndex, dims_of
from onnxsurgeon_lite.graph.declared import declare_anew, declared_types
from onnxsurgeon_lite.model import Model, copied, declare, drop, is_standard
from onnxsurgeon_lite.surgery.types import (
    BY_SHAPE_ALONE,
    begin_infer,
    contradicts,
    downstream,
    infer,
)

_Dimension = TensorShapeProto.Dimension
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


# How it works: infer the types with the constants (`infer_before`, in a process of its own) and without them
# (`infer_left`). A size that is known only with the constants depends on them. Without its shape operand, a Reshape
# loses its rank, too, and with it everything after: such values (`lost`) keep their old rank for the second inference.
def relax(
    before: GraphIndex, result: Model, constants: Mapping[str, TensorProto]
) -> dict[str, TypeProto]:
    """After constants became inputs: declare, in place, the sizes that depend on their numbers as unknown.

    Ranks stay if inference still finds them, or if an operator reads the input itself, whose own shape is fixed; ranks
    of outputs always stay, because the format requires them. Bodies keep their declarations.

    Returns:
        The old declaration of each value whose declaration changed.
    """
    if not decides_shapes(before, constants):
        return {}
    stale = downstream(before, constants) - constants.keys()
    declared = chain(result.graph.value_info, result.graph.output)
    if stale.isdisjoint(info.name for info in declared):
        return {}
    infer_before = begin_infer(before.model, stale)
    types = declared_types(result.graph)
    read_here = set(chain.from_iterable(before.readers(constants).values()))
    made_here = before.made_by(read_here)
    requested = made_here | stale
    ranked = dict[str, TypeProto]()

    def without(graph: GraphProto) -> None:  # the graph as it is without the constants
        drop(graph.initializer, lambda tensor: tensor.name in constants)  # defaults
        declare_anew(graph, ranked, with_outputs=True)
        declare(graph, ranked)

    until = 1 + max(read_here, default=-1)  # the nodes up to the last direct reader
    lost = made_here - infer(result, stale, made_here, until, change=without).keys()
    infer_left = None if lost else begin_infer(result, stale, change=without)
    known = infer_before(requested)
    ranked |= {name: of_rank(known[name]) for name in lost & known.keys()}
    infer_left = infer_left or begin_infer(result, stale, change=without)
    left = infer_left(requested) | ranked
    looser = _loosened(types, known, left, {info.name for info in result.graph.output})
    del known, left, infer_before, infer_left  # large
    declare_anew(result.graph, looser, with_outputs=True)
    return {name: kind for name, kind in types.items() if name in looser}


def restore(result: Model, relaxed: Mapping[str, TypeProto]) -> None:
    """After inputs became constants: restore, in place, the relaxed declarations, or the sizes that hold now."""
    if not relaxed:
        return
    inferred = infer(result, relaxed.keys())
    types = declared_types(result.graph)
    nothing = TypeProto()
    # identities of three types -> result: most values share a few
    kinds = dict[Hashable, TypeProto]()  # most values share a few types
    restored = {}
    for name, kind in inferred.items():
        sides = types.get(name, nothing), relaxed[name], kind
        key = tuple(map(id, sides))
        if key not in kinds:
            kinds[key] = _restored(*sides)
        restored[name] = kinds[key]
    declare_anew(result.graph, restored, with_outputs=True)


def _loosened(
    types: Mapping[str, TypeProto],
    known: Mapping[str, TypeProto],
    left: Mapping[str, TypeProto],
    outputs: Set[str],
) -> dict[str, TypeProto]:
    """Return the types that lose something, without it."""
    nothing = TypeProto()
    # None: stays as it is
    kinds = dict[Hashable, TypeProto | None]()  # most values share a few types
    looser = {}
    for name, kind in types.items():
        if name in known:
            sides = kind, known[name], left.get(name, nothing)
            key = *map(id, sides), name in outputs
            if key not in kinds:
                found = _relaxed(*sides, name in outputs)
                kinds[key] = found if found != kind else None
            new = kinds[key]
            if new is not None:
                looser[name] = new
    return looser


def decides_shapes(index: GraphIndex, constants: Mapping[str, TensorProto]) -> bool:
    """Return whether a shape can depend on the numbers: inference propagates only integers."""
    # Values whose numbers can still become a shape: integers, and what inference computes from them.
    carried = {n for n, tensor in constants.items() if tensor.data_type in _INTEGERS}
    known = set(constants)
    for position in index.order if carried else range(len(index.nodes)):
        node = index.nodes[position]
        # passes numbers on, and decides no shape itself
        if node.op_type in BY_SHAPE_ALONE and is_standard(node):
            if carried and not carried.isdisjoint(node.input):
                carried.update(filter(None, node.output))
        elif not (
            known.isdisjoint(index.reads[position]) and carried.isdisjoint(index.reads[position])
        ):
            return True
    return False


def _relaxed(declared: TypeProto, known: TypeProto, left: TypeProto, is_output: bool) -> TypeProto:
    """Return a declared type without the known sizes that do not remain."""
    kind = copied(declared)
    sizes = dims_of(known)
    still = dims_of(left)
    dims = dims_of(kind)
    if not kind.tensor_type.HasField("shape") or len(dims) != len(sizes):
        return kind
    if len(still) != len(sizes):  # without the constants, the rank is not known
        if not is_output:
            kind.tensor_type.ClearField("shape")
            return kind
        still = of_rank(known).tensor_type.shape.dim
    for dim, size, other in zip(dims, sizes, still, strict=True):
        # Only a declared size that inference knew, and no longer knows, depends on the constants.
        if _is_known(size) and _same(dim, size) and not _same(size, other):
            _clear(dim)
    return kind


def _restored(current: TypeProto, original: TypeProto, inferred: TypeProto) -> TypeProto:
    """Return the original type if all relaxed sizes hold again, otherwise the inferred one."""
    sizes = dims_of(inferred)
    kind = copied(current)
    shape = kind.tensor_type.shape
    if not current.tensor_type.HasField("shape"):  # relax removed the whole shape
        if not contradicts(original, inferred):
            return original
        for _ in sizes:
            shape.dim.add()
    if (  # the user declared something else since: that stays
        len(shape.dim) != len(sizes)
        or current.tensor_type.elem_type != original.tensor_type.elem_type
    ):
        return current
    for dim, size in zip(shape.dim, sizes, strict=True):
        if not dim.WhichOneof("value") and _is_known(size):
            dim.CopyFrom(size)
    relaxed = zip(shape.dim, dims_of(original), strict=False)
    same = len(shape.dim) == len(dims_of(original))
    return original if same and all(_same(dim, was) for dim, was in relaxed) else kind


def of_rank(kind: TypeProto) -> TypeProto:
    """Return the type with its rank alone."""
    ranked = copied(kind)
    for dim in dims_of(ranked):
        _clear(dim)
    return ranked


def _clear(dim: _Dimension) -> None:
    dim.ClearField("dim_value")
    dim.ClearField("dim_param")


def _is_known(dim: _Dimension) -> bool:
    return bool(dim.WhichOneof("value")) and not dim.dim_param.startswith(MADE_UP)


def _same(one: _Dimension, other: _Dimension) -> bool:
    return (one.WhichOneof("value"), one.dim_value, one.dim_param) == (
        other.WhichOneof("value"),
        other.dim_value,
        other.dim_param,
    )
