"""Declared types that an edit made untrue: found by inference, put right, and said."""

from collections.abc import Iterable, Mapping, Set

from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto, shape_inference

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model

_FAILURES = (shape_inference.InferenceError, RuntimeError, ValueError)

BY_SHAPE_ALONE = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"),
        *("Neg", "Abs", "Exp", "Log", "Sqrt", "Erf"),
        *("Relu", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Clip", "Gelu", "Softmax", "LogSoftmax"),
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool", "GlobalAveragePool"),
        *("BatchNormalization", "LayerNormalization", "InstanceNormalization"),
        *("Identity", "Cast", "Transpose", "Flatten", "Concat", "Gather", "Where"),
        *("Equal", "Greater", "Less", "And", "Or", "Not"),
    )
)
"""Operators whose results have a shape that follows from the shapes of what they read."""

_BY_NUMBERS_BEHIND = frozenset(("Reshape", "Expand", "Tile", "Slice", "Unsqueeze", "Squeeze"))
"""Operators whose results' shapes hang on the numbers of what they read, the first of it aside."""


def follow(
    before: GraphIndex,
    after: GraphIndex,
    types: Mapping[str, TypeProto],
    stands_for: Mapping[str, str] | None = None,
    unsettled: set[str] | None = None,
) -> list[str]:
    """After an edit that gave values these types: correct what is declared of them and of what depends on them.

    Args:
        stands_for: new value -> the value whose place it took.
        unsettled: see `retype`.

    Returns:
        A note for each output whose declaration changed.

    Raises:
        EditError: what depends on them does not take the new types.
    """
    places = {name: (stands_for or {}).get(name, name) for name in types}
    before.learn_types(place for place in places.values() if place in before)
    known = before.types
    changed = [n for n, kind in types.items() if places[n] in known and kind != known[places[n]]]
    return retype(before.model, after, changed, unsettled) if changed else []


def retype(
    before: Model, after: GraphIndex, values: Iterable[str], unsettled: set[str] | None = None
) -> list[str]:
    """Declare anew, as inferred, the types of some values and of all that depends on them.

    Value_info that inference knows nothing of is dropped: it was written for other types. Outputs keep theirs then.

    Args:
        unsettled: between the steps of a pipeline, the values whose types do not fit so far. They are looked at again;
            what does not fit is left as it was and stands here then, instead of an error.

    Raises:
        EditError: what depends on them does not take the new types.
    """
    result = after.model
    changed = {*values, *(unsettled or ())}
    stale = downstream(after, changed) - after.inputs.keys()
    try:
        inferred = _fitting(None if unsettled else before, result, stale)
    except EditError:
        if unsettled is None:
            raise
        unsettled |= changed
        return []
    if unsettled:
        unsettled.clear()
    graph = result.proto.graph
    unknown = []
    for place, info in enumerate(graph.value_info):
        name = info.name
        if name in inferred:
            info.type.CopyFrom(inferred[name])
        elif name in stale:
            unknown.append(place)
    for place in reversed(unknown):
        del graph.value_info[place]
    notes = []
    for info in graph.output:
        kind = inferred.get(info.name)
        if info.name in stale and kind is not None and contradicts(info.type, kind):
            info.type.CopyFrom(kind)
            notes.append(f"output {info.name!r} has another type now")
    return notes


def _fitting(before: Model | None, result: Model, values: Set[str]) -> dict[str, TypeProto]:
    """The types of values, of a model in which all types fit together if they did before."""
    try:
        return infer(result, values, strict=True)
    except _FAILURES as error:
        if before is not None and not _fits(before, values):
            return infer(result, values)
        reason = str(error).strip().splitlines()[0].rpartition("Inference error(s): ")[2]
        raise EditError(
            f"the types do not fit further on: {reason}", "change what reads it in the same edit"
        ) from error


def _fits(model: Model, values: Set[str]) -> bool:
    try:
        infer(model, values, strict=True)
    except _FAILURES:
        return False
    return True


def infer(
    model: Model,
    values: Set[str],
    wanted: Set[str] | None = None,
    count: int | None = None,
    *,
    strict: bool = False,
) -> dict[str, TypeProto]:
    """The types of values (of those that are wanted), inferred without looking at what is declared of them.

    Args:
        count: look at the first nodes alone.
        strict: have inference raise what it finds wrong, instead of leaving types out.

    Returns:
        Equal types as one object, to be read and not changed.
    """
    wanted = values if wanted is None else wanted
    part = ModelProto()
    part.CopyFrom(model.structure())
    if count is not None:
        del part.graph.node[count:]
    kept = [info for info in model.proto.graph.value_info if info.name not in values]
    del part.graph.value_info[:]
    part.graph.value_info.extend(kept)
    for info in part.graph.output:
        if info.name in values:
            info.ClearField("type")
    try:
        inferred = shape_inference.infer_shapes(
            part, strict_mode=strict, data_prop=_computes_sizes(part.graph)
        ).graph
    except _FAILURES:
        if strict:
            raise
        return {}
    return _shared(info for info in (*inferred.value_info, *inferred.output) if info.name in wanted)


def _shared(infos: Iterable[ValueInfoProto]) -> dict[str, TypeProto]:
    """The types that say something, by name; equal ones are one object: most values are of few types."""
    kinds: dict[bytes, TypeProto] = {}
    found = {}
    last, says = TypeProto(), False
    for info in infos:
        kind = info.type
        if kind != last:  # neighbours are mostly of one type
            last = kinds.setdefault(kind.SerializeToString(), kind)
            says = _says(last)
        if says:
            found[info.name] = last
    return found


def _computes_sizes(graph: GraphProto) -> bool:
    """Whether sizes may follow from numbers that nodes compute: inference takes twice as long with these."""
    read: set[str] = set()
    for node in graph.node:
        operator = node.op_type
        if node.domain not in ("", "ai.onnx"):
            return True
        if operator in _BY_NUMBERS_BEHIND:
            read.update(node.input[1:])
        elif operator not in BY_SHAPE_ALONE and operator != "Constant":
            return True
    read -= {"", *(message.name for kind in (graph.initializer, graph.input) for message in kind)}
    if read:
        read.difference_update(
            name for node in graph.node if node.op_type == "Constant" for name in node.output
        )
    return bool(read)


def contradicts(declared: TypeProto, inferred: TypeProto) -> bool:
    """Whether no value could be of both types."""
    kind, other = declared.WhichOneof("value"), inferred.WhichOneof("value")
    if kind is None or other is None:
        return False
    if kind != other:
        return True
    if kind != "tensor_type":
        return bool(declared != inferred)
    one, two = declared.tensor_type, inferred.tensor_type
    if one.elem_type and two.elem_type and one.elem_type != two.elem_type:
        return True
    if not (one.HasField("shape") and two.HasField("shape")):
        return False
    if len(one.shape.dim) != len(two.shape.dim):
        return True
    return any(
        a.HasField("dim_value") and b.HasField("dim_value") and a.dim_value != b.dim_value
        for a, b in zip(one.shape.dim, two.shape.dim, strict=True)
    )


def downstream(index: GraphIndex, values: Iterable[str]) -> set[str]:
    """The values, and all that depends on them."""
    found = set(values)
    for position in index.order:
        if not found.isdisjoint(index.needs[position]):
            found.update(index.nodes[position].output[:])
            found.discard("")
    return found


def _says(kind: TypeProto) -> bool:
    if kind.HasField("tensor_type"):
        return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")
    return kind.WhichOneof("value") is not None
