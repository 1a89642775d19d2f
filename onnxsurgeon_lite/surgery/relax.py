"""Relax inferred shapes: find declared sizes that depend on a constant, by inference with and without it."""

from collections.abc import Collection, Hashable, Iterator, Mapping

from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied, drop
from onnxsurgeon_lite.surgery.types import BY_SHAPE_ALONE, contradicts, downstream, infer

_Dimension = TensorShapeProto.Dimension
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_UNKNOWN = "unk__"  # prefix of the symbols that ONNX's inference invents


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
    declared = [info for info in _declared(result.proto) if info.name in stale]
    read_here = {user for users in before.readers(constants).values() for user in users}
    made_here = {name for user in read_here for name in before.nodes[user].output}
    requested = made_here.union(info.name for info in declared)
    known = infer(before.model, stale, requested) if declared else {}
    until = 1 + max(read_here, default=-1)
    left = (
        _inferred_without(result, constants, stale, known, made_here, until, requested)
        if known
        else {}
    )
    outputs = {info.name for info in result.proto.graph.output}
    nothing = TypeProto()
    kinds: dict[Hashable, tuple[TypeProto, TypeProto]] = {}  # most values share a few types
    changed = {}
    for info in declared:
        name = info.name
        if name in known:
            kind = info.type
            sides = kind, known[name], left.get(name, nothing)
            key = _key(*sides), name in outputs
            if key not in kinds:
                kinds[key] = copied(kind), _relaxed(*sides, name in outputs)
            original, looser = kinds[key]
            if looser != original:
                changed[name] = original
                kind.CopyFrom(looser)
    return changed


def restore(result: Model, relaxed: Mapping[str, TypeProto]) -> None:
    """After inputs became constants: restore, in place, the relaxed declarations, or the sizes that hold now."""
    inferred = infer(result, relaxed.keys()) if relaxed else {}
    kinds: dict[Hashable, TypeProto] = {}  # most values share a few types
    for info in _declared(result.proto):
        name = info.name
        if name in inferred:
            sides = info.type, relaxed[name], inferred[name]
            key = _key(*sides)
            if key not in kinds:
                kinds[key] = _restored(*sides)
            info.type.CopyFrom(kinds[key])


def decides_shapes(index: GraphIndex, constants: Mapping[str, TensorProto]) -> bool:
    """Return whether a shape can depend on the numbers: inference propagates only integers."""
    carried = {n for n, tensor in constants.items() if tensor.data_type in _INTEGERS}
    known = set(constants)
    for position in index.order if carried else range(len(index.nodes)):
        node = index.nodes[position]
        if node.op_type in BY_SHAPE_ALONE and node.domain in ("", "ai.onnx"):
            if carried and not carried.isdisjoint(node.input):
                carried.update(filter(None, node.output))
        elif not (
            known.isdisjoint(index.reads[position]) and carried.isdisjoint(index.reads[position])
        ):
            return True
    return False


def _inferred_without(
    result: Model,
    constants: Collection[str],
    stale: set[str],
    known: Mapping[str, TypeProto],
    made_here: set[str],
    until: int,
    requested: set[str],
) -> dict[str, TypeProto]:
    """Infer the types that hold for any numbers of the constants.

    Args:
        made_here: the outputs of the constants' readers, which are among the nodes before `until`.
    """
    bare = result.copy()
    drop(bare.proto.graph.initializer, lambda tensor: tensor.name in constants)  # defaults
    here = infer(bare, stale, made_here, until)
    ranked = {n: _of_rank(known[n]) for n in made_here & known.keys() - here.keys()}
    missing = set(ranked)
    for info in _declared(bare.proto):
        if info.name in ranked:
            info.type.CopyFrom(ranked[info.name])
            missing.discard(info.name)
    for name in sorted(missing):
        bare.proto.graph.value_info.add(name=name, type=ranked[name])
    return infer(bare, stale - ranked.keys(), requested) | ranked


def _relaxed(declared: TypeProto, known: TypeProto, left: TypeProto, is_output: bool) -> TypeProto:
    """Return a declared type without the known sizes that do not remain."""
    kind = copied(declared)
    sizes = known.tensor_type.shape.dim
    still = left.tensor_type.shape.dim
    dims = kind.tensor_type.shape.dim
    if not kind.tensor_type.HasField("shape") or len(dims) != len(sizes):
        return kind
    if len(still) != len(sizes):
        if not is_output:
            kind.tensor_type.ClearField("shape")
            return kind
        still = _of_rank(known).tensor_type.shape.dim
    for dim, size, other in zip(dims, sizes, still, strict=True):
        if _is_known(size) and _same(dim, size) and not _same(size, other):
            _clear(dim)
    return kind


def _restored(current: TypeProto, original: TypeProto, inferred: TypeProto) -> TypeProto:
    """Return the original type if all relaxed sizes hold again, otherwise the inferred one."""
    sizes = inferred.tensor_type.shape.dim
    kind = copied(current)
    shape = kind.tensor_type.shape
    if not current.tensor_type.HasField("shape"):
        if not contradicts(original, inferred):
            return original
        for _ in sizes:
            shape.dim.add()
    if (
        len(shape.dim) != len(sizes)
        or current.tensor_type.elem_type != original.tensor_type.elem_type
    ):
        return current
    for dim, size in zip(shape.dim, sizes, strict=True):
        if not dim.WhichOneof("value") and _is_known(size):
            dim.CopyFrom(size)
    relaxed = zip(shape.dim, original.tensor_type.shape.dim, strict=False)
    same = len(shape.dim) == len(original.tensor_type.shape.dim)
    return original if same and all(_same(dim, was) for dim, was in relaxed) else kind


def _declared(model: ModelProto) -> Iterator[ValueInfoProto]:
    yield from model.graph.value_info
    yield from model.graph.output


def _key(declared: TypeProto, *others: TypeProto) -> Hashable:
    """Return a key that is equal for equal types; the others are shared objects, so their identity is enough."""
    return declared.SerializeToString(), *map(id, others)


def _of_rank(kind: TypeProto) -> TypeProto:
    """Return the type with its rank alone."""
    ranked = copied(kind)
    for dim in ranked.tensor_type.shape.dim:
        _clear(dim)
    return ranked


def _clear(dim: _Dimension) -> None:
    dim.ClearField("dim_value")
    dim.ClearField("dim_param")


def _is_known(dim: _Dimension) -> bool:
    return bool(dim.WhichOneof("value")) and not dim.dim_param.startswith(_UNKNOWN)


def _same(one: _Dimension, other: _Dimension) -> bool:
    return (one.WhichOneof("value"), one.dim_value, one.dim_param) == (
        other.WhichOneof("value"),
        other.dim_value,
        other.dim_param,
    )
