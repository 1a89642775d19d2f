"""Correct declared types that an edit made wrong, by inference, with a note for each output."""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from itertools import chain, islice

from onnx import GraphProto, TypeProto

from onnxsurgeon_lite.errors import EditError, RuntimeLost
from onnxsurgeon_lite.graph import (
    FEW,
    GraphIndex,
    RejectedError,
    is_complete,
    native,
    serialized_part,
)
from onnxsurgeon_lite.graph.declared import OUTPUT, declare_anew, declared_types
from onnxsurgeon_lite.graph.schemas import COMMUTATIVE
from onnxsurgeon_lite.graph.settling import TRIED, UNSETTLED
from onnxsurgeon_lite.model import Model, check_functions, is_standard

BY_SHAPE_ALONE = COMMUTATIVE | {
    "Sub", "Div", "Pow",
    "Neg", "Abs", "Exp", "Log", "Sqrt", "Erf",
    "Relu", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Clip", "Gelu", "Softmax", "LogSoftmax",
    "Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "GlobalAveragePool",
    "BatchNormalization", "LayerNormalization", "InstanceNormalization",
    "Identity", "Cast", "Transpose", "Flatten", "Concat", "Gather", "Where",
    "Greater", "Less", "Not",
}  # fmt: skip
"""Operators whose output shapes follow from their input shapes."""

_BY_NUMBERS_BEHIND = frozenset(("Reshape", "Expand", "Tile", "Slice", "Unsqueeze", "Squeeze"))
"""Operators whose output shapes depend on the numbers of their inputs, except the first."""
_KNOWN = BY_SHAPE_ALONE | _BY_NUMBERS_BEHIND | {"Constant"}


def follow(
    before: GraphIndex,
    after: GraphIndex,
    types: Mapping[str, TypeProto],
    stands_for: Mapping[str, str] | None = None,
) -> list[str]:
    """After an edit that gave values these types: correct their declarations, and those of all dependents.

    Args:
        stands_for: new value -> the value that it replaced.

    Returns:
        A note for each output whose declaration changed.
    """
    # value -> the value before the edit
    places = {name: (stands_for or {}).get(name, name) for name in types}
    before.learn_types(place for place in places.values() if place in before)
    known = before.types
    # no old type: nothing can have followed from it
    changed = [n for n, kind in types.items() if places[n] in known and kind != known[places[n]]]
    return retype(before.model, after, changed) if changed else []


def retype(before: Model, after: GraphIndex, values: Iterable[str]) -> list[str]:
    """Declare the types of some values and of all dependents again, as inferred.

    Value_info without an inferred type is dropped, because it was written for other types; outputs keep theirs. Values
    of `UNSETTLED` are checked again; one that still does not fit keeps its declaration and stays there.
    """
    result, unsettled = after.model, UNSETTLED.get()
    # Within an edit of several steps, types of the steps before may still wait to fit.
    changed = set(values).union(unsettled or ())
    stale = downstream(after, changed) - after.inputs.keys()  # inputs are declared by the user
    try:
        inferred = _fitting(None if unsettled else before, result, stale)
    except EditError:
        if unsettled is None:
            raise
        unsettled |= changed  # checked again after the next step
        return []
    if unsettled:
        unsettled.clear()
    graph = result.graph
    declare_anew(graph, inferred, stale)
    vars(after).pop("types", None)  # the index cached the old declarations
    notes = []
    for info in graph.output:
        kind = inferred.get(info.name)
        if info.name in stale and kind is not None and contradicts(info.type, kind):
            info.type.CopyFrom(kind)
            notes.append(f"output {info.name!r} changed its type")
    return notes


def _fitting(before: Model | None, result: Model, values: Set[str]) -> dict[str, TypeProto]:
    """Infer the types of values, in a model whose types all fit together if they did before."""
    try:
        return infer(result, values, strict=True)
    except RejectedError as error:
        # it did not fit before either: that is not the edit's fault
        if before is not None and not fits(before, values):
            return infer(result, values)
        reason = str(error).strip().splitlines()[0].rpartition("Inference error(s): ")[2]
        raise EditError(
            f"the types do not fit further on: {reason}", "change their reader in the same edit"
        ) from error


def fits(model: Model, values: Set[str]) -> bool:
    """Return whether the types of values can be inferred, and fit those that are declared."""
    try:
        infer(model, values, strict=True)
    except (RejectedError, RuntimeLost):
        return False
    return True


def infer(
    model: Model,
    values: Set[str],
    requested: Set[str] | None = None,
    count: int | None = None,
    *,
    strict: bool = False,
    change: Callable[[GraphProto], None] = lambda _: None,
) -> dict[str, TypeProto]:
    """Infer the types of values (of those in `requested`), without reading their declarations.

    Args:
        count: use only the first nodes.
        change: changes what the graph has besides nodes, for the inference alone.
        strict: let inference raise its errors, instead of omitting types.

    Returns:
        Types to read, not to change: equal ones are the same object.
    """
    requested = values if requested is None else requested
    # whoever tries an edit infers its types once, at the end
    if (tried := TRIED.get()) is not None:
        return {name: tried[name] for name in requested & tried.keys()}
    check_functions(model.proto)
    # what is serialized has no types of these values
    part = _undeclared(model, values, count, change)
    return _answered(*part, requested, strict)


def begin_infer(
    model: Model, values: Set[str], *, change: Callable[[GraphProto], None] = lambda _: None
) -> Callable[[Set[str]], dict[str, TypeProto]]:
    """Start what `infer` does, where a fork serves to do it; return what waits for the types of values."""
    # few nodes are faster without a fork; functions need the whole model
    if len(model.graph.node) <= FEW or model.proto.functions:
        return lambda requested: infer(model, values, requested, change=change)
    part, data_prop = _undeclared(model, values, change=change)
    native.begin_infer(part, data_prop=data_prop)
    return partial(_answered, part, data_prop)


def _answered(
    part: bytes, data_prop: bool, requested: Set[str], strict: bool = False
) -> dict[str, TypeProto]:
    """Infer types of a serialized model; return those that say all but sizes."""
    try:
        graph = GraphProto.FromString(
            native.infer_encoded(part, strict=strict, data_prop=data_prop)
        )
    except RejectedError:
        if strict:
            raise
        return {}
    # First the outputs, which are enough for most callers.
    types = declared_types(graph, (OUTPUT,), is_complete)
    if not requested <= types.keys():
        types = declared_types(graph, chosen=is_complete)
    return {name: kind for name, kind in types.items() if name in requested}


def _undeclared(
    model: Model,
    values: Set[str],
    count: int | None = None,
    change: Callable[[GraphProto], None] = lambda _: None,
) -> tuple[bytes, bool]:
    """Return a serialized model without the types of some values; and whether sizes can follow from numbers."""

    # what the outputs declare must not be what inference returns
    def forget(rest: GraphProto) -> None:
        for info in rest.output:
            if info.name in values:
                info.ClearField("type")
        change(rest)

    graph = model.structure().graph
    chosen = None if count is None else range(min(count, len(graph.node)))
    part = serialized_part(model, chosen, forget, lambda name: name not in values)
    return part, _computes_sizes(graph, count)


def distinct(types: Mapping[str, TypeProto]) -> dict[int, TypeProto]:
    """Return the different ones of shared types, by identity."""
    return {id(kind): kind for kind in types.values()}


def _computes_sizes(graph: GraphProto, count: int | None) -> bool:
    """Return whether sizes can follow from computed numbers: propagating data doubles the time of inference."""
    read, constants = set[str](), set[str]()
    # shapes, axes and repeats that nodes read, and what Constants make
    for node in islice(graph.node, count):
        operator = node.op_type
        if operator in _BY_NUMBERS_BEHIND:  # shapes, axes, repeats
            read.update(node.input[1:])
        elif operator == "Constant":
            constants.update(node.output)
        # an unknown operator may compute a size
        if operator not in _KNOWN or not is_standard(node):
            return True
    # Numbers of initializers and inputs need no propagation, and those of Constants neither.
    given = (message.name for message in chain(graph.initializer, graph.input))
    read -= {""}.union(constants, given)
    return bool(read)


def contradicts(declared: TypeProto, inferred: TypeProto) -> bool:
    """Return whether no value can have both types."""
    kind, other = declared.WhichOneof("value"), inferred.WhichOneof("value")
    if kind is None or other is None:
        return False
    if kind != other:
        return True
    if kind != "tensor_type":  # sequences, optionals: only equal types are compatible
        return bool(declared != inferred)
    one, two = declared.tensor_type, inferred.tensor_type
    if one.elem_type and two.elem_type and one.elem_type != two.elem_type:
        return True
    if not (one.HasField("shape") and two.HasField("shape")):
        return False
    if len(one.shape.dim) != len(two.shape.dim):
        return True
    return any(  # negative sizes of some exporters say nothing
        a.HasField("dim_value")
        and b.HasField("dim_value")
        and a.dim_value != b.dim_value
        and min(a.dim_value, b.dim_value) >= 0
        for a, b in zip(one.shape.dim, two.shape.dim, strict=True)
    )


def downstream(index: GraphIndex, values: Iterable[str]) -> set[str]:
    """Return the values and everything that depends on them."""
    # in topological order one pass is enough
    found = set(values)
    for position in index.order:
        if not found.isdisjoint(index.needs[position]):
            found.update(index.table.makes[position])
            found.discard("")
    return found
