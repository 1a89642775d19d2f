"""Turn graph inputs into constants."""

from dataclasses import dataclass, replace
from typing import ClassVar

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    constant,
    dims_of,
    fixed_shape,
    known_size,
    require_schemas,
    shape_text,
    tensor_type,
)
from onnxsurgeon_lite.model import Model, copied, drop, is_standard
from onnxsurgeon_lite.names import key_text
from onnxsurgeon_lite.passes.fold import fold
from onnxsurgeon_lite.passes.inverse import ReplacedMessage, forget, recall, recall_types, remember
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.set_constant import fill
from onnxsurgeon_lite.passes.targets import one_value
from onnxsurgeon_lite.surgery import (
    Numbers,
    contradicts,
    describe_like,
    make_tensor,
    retype,
    settle,
)
from onnxsurgeon_lite.surgery.control_flow import straighten
from onnxsurgeon_lite.surgery.relax import restore


@dataclass(frozen=True)
class Freeze:
    """Turn graph inputs into constants: (name, numbers) pairs, None for the input's default, or what was promoted.

    With `fold`, onnxruntime computes the nodes that became constant, unless an input or result is larger than
    `limit` bytes, and the branch that runs takes the place of an If. `Promote` is the inverse.

    Attributes:
        values: name -> numbers, a file that holds them, or None.
        fold: compute now what depends on nothing else.
        limit: bytes; nothing larger is folded.
        unroll: with `fold`, replace a Loop that runs at most so many times by its iterations.

    Example:
        >>> opened = osl.promote("whole_model.onnx", "convs1.0.bias").model
        >>> osl.freeze(opened, {"convs1.0.bias": [0.1, 0.2, 0.3]}).changes
        ("input 'convs1.0.bias' is a constant now",)
    """

    values: tuple[tuple[str, Numbers | None], ...]
    fold: bool = False
    limit: int = 1 << 20
    unroll: int = 0
    name: ClassVar[str] = "freeze"
    retypes: ClassVar[bool] = True

    # Sizes may have been open: what follows from them is known then.
    def apply(self, model: Model) -> PassResult:
        """Freeze.

        Raises:
            UnknownNameError: no such value.
            EditError: a value is not an input, has no default, or its declared type does not hold the numbers.
            RuntimeFailure: the runtime cannot run the folded nodes.
        """
        index = GraphIndex.of(model)
        notes = list[str]()
        result = model.copy()
        changes, frozen = list[str](), list[str]()
        relaxed = dict[str, TypeProto]()
        # each input becomes a constant; `Promote` noted in it which types it relaxed
        for selector, numbers in self.values:
            value = one_value(index, selector, notes)
            if value not in index.inputs:
                # `None` for what is a constant already: nothing to do
                if numbers is None and value in index.initializers:
                    continue
                raise EditError(
                    f"value {value!r} is not an input of the graph",
                    f"its inputs are {', '.join(map(repr, index.inputs))}",
                )
            relaxed.update(recall_types(index.inputs[value]))
            _freeze(result, value, numbers)
            frozen.append(value)
            changes.append(f"input {value!r} is a constant now")
        # types follow where the input had open sizes; then relaxed types are restored
        after = settle(index, result)
        if any(_is_open(index.inputs[value]) for value in frozen):  # what follows is known now
            notes += retype(model, after, frozen)
        restore(result, relaxed)
        if self.fold and frozen:  # compute what depends on nothing else now
            require_schemas(after)
            result, folded, more = _folded(result, frozen, self.limit, self.unroll)
            changes += folded
            notes += more
        held = {name: tensor for name in frozen if (tensor := constant(after, name)) is not None}
        return replace(PassResult.of(model, result, changes, notes), frozen=held)


def _folded(
    result: Model, frozen: list[str], limit: int, unroll: int
) -> tuple[Model, list[str], list[str]]:
    """Fold what depends on frozen values, and take the branches that this decides, as long as there is more."""
    changes = list[str]()
    known = set(frozen)
    while True:
        # an If that gives way may leave further constants: as long as one does
        folded, notes = fold(result, known, limit)
        before = {tensor.name for tensor in result.graph.initializer}
        result, taken, kept, _ = straighten(result, unroll)
        changes += folded + taken
        if not taken:
            return result, changes, notes + kept
        known |= {tensor.name for tensor in result.graph.initializer} - before


def _freeze(result: Model, value: str, numbers: Numbers | None) -> None:
    graph = result.graph
    place = next(p for p, info in enumerate(graph.input) if info.name == value)
    declared = graph.input[place]
    # what `Promote` replaced by this input, if it did
    origin = recall(declared)
    default = next((p for p, t in enumerate(graph.initializer) if t.name == value), None)
    # the original's numbers may be kept in an initializer of their own, which goes
    if origin is not None and origin.kept is not None:
        original = _original(graph, value, origin) if numbers is None else None
        drop(graph.initializer, lambda tensor: origin.kept and tensor.name == origin.kept)
        if original is not None:
            messages = graph.node if isinstance(original, NodeProto) else graph.initializer
            messages.insert(origin.place, original)
            del graph.input[place]
            return
    if numbers is not None:
        tensor = _tensor(declared, numbers, origin)
    elif default is not None:
        tensor = copied(graph.initializer[default])
    else:
        key = key_text(value)
        raise EditError(
            f"input {value!r} has no default to freeze it to",
            f"give its value: {key}=0.5, {key}=[1,2] or {key}=FILE.npy",
        )
    # the default goes where other numbers take its place, or a Constant node comes back
    if default is not None and (numbers is not None or (origin and origin.kind == "NodeProto")):
        del graph.initializer[default]
    # the default is an initializer already: only the input goes
    elif default is not None:
        del graph.input[place]
        return
    _restore(result, tensor, origin, declared, place if default is None else None)
    del graph.input[place]


def _original(
    graph: GraphProto, value: str, origin: ReplacedMessage
) -> NodeProto | TensorProto | None:
    """Return the constant that `Promote` replaced; None if its numbers are not kept."""
    kept = next((copied(t) for t in graph.initializer if t.name == origin.kept), None)
    # None: not kept anywhere; '': in the message itself
    if origin.kept is None or (origin.kept and kept is None):
        return None
    node, tensor = origin.message(NodeProto), origin.message(TensorProto)
    if kept is not None:
        kept.name = value
    if node is not None and _is_constant(node, value):
        if kept is not None:
            fill(node, kept)
        return node
    return (kept or tensor) if tensor is not None and tensor.name == value else None


def _tensor(
    declared: ValueInfoProto, numbers: Numbers, origin: ReplacedMessage | None
) -> TensorProto:
    """Return the numbers in the declared dtype and shape of the input."""
    kind = declared.type.tensor_type
    if not kind.elem_type:
        raise EditError(f"input {declared.name!r} is not a tensor and cannot be frozen")
    like = TensorProto(data_type=kind.elem_type)
    # open sizes say nothing: then the numbers have their own shape
    like.dims.extend(fixed_shape(declared.type) or ())
    # a hint for `make_tensor`: numbers in a typed field
    if origin is not None and origin.typed:
        like.float_data.append(0)  # its numbers were not raw bytes
    tensor = make_tensor(declared.name, numbers, kind.elem_type, like)
    if contradicts(declared.type, tensor_type(tensor)):
        raise EditError(
            f"numbers of shape {list(tensor.dims)} do not fit input {declared.name!r} "
            f"with shape {shape_text(declared.type)}",
            "give numbers of the declared shape, or a single number for all elements",
        )
    return tensor


def _restore(
    result: Model,
    tensor: TensorProto,
    origin: ReplacedMessage | None,
    declared: ValueInfoProto,
    place: int | None,
) -> None:
    """Put the constant back where `Promote` took it from, else after the initializers."""
    graph = result.graph
    node = origin.message(NodeProto) if origin is not None else None
    bare = origin.message(TensorProto) if origin is not None else None
    if origin is not None and node is not None and _is_constant(node, tensor.name):
        fill(node, tensor)
        graph.node.insert(origin.place, node)
    elif origin is not None and bare is not None and bare.name == tensor.name:
        describe_like(tensor, bare)
        graph.initializer.insert(origin.place, tensor)
    else:
        # the input is noted in the constant, so that `Promote` can restore it
        if place is not None:
            bare_input = copied(declared)
            forget(bare_input)
            remember(tensor, place, bare_input)
        graph.initializer.append(tensor)


def _is_constant(node: NodeProto, value: str) -> bool:
    known = node.op_type == "Constant" and list(node.output) == [value] and len(node.attribute) == 1
    return known and is_standard(node) and node.attribute[0].name.startswith("value")


def _is_open(declared: ValueInfoProto) -> bool:
    return any(known_size(dim) is None for dim in dims_of(declared.type))
