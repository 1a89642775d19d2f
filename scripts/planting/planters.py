"""Faults to plant in a model: each names the values that go wrong first."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

_OPERATORS = {
    "Add": "Mul", "Mul": "Add", "Sub": "Add", "Div": "Mul", "Relu": "Abs", "Tanh": "Sigmoid", "Sigmoid": "Tanh",
    "Sqrt": "Abs", "Erf": "Tanh", "Softmax": "LogSoftmax", "MaxPool": "AveragePool", "ReduceMean": "ReduceMax",
    "GlobalAveragePool": "GlobalMaxPool", "Gelu": "Relu",
}  # fmt: skip
_ACTIVATIONS = ("Relu", "Erf", "Tanh", "Sigmoid", "Gelu", "Sqrt", "LayerNormalization", "Softmax")
# of a neighbor, not neighbors themselves
_PASSED = ("Reshape", "QuantizeLinear", "DequantizeLinear")
_WEIGHTED = ("MatMul", "Gemm", "Conv")


@dataclass(frozen=True)
class Fault:
    """A model with one fault.

    Attributes:
        places: the outputs of the nodes that are at fault; of a missing node, those of its neighbors.
    """

    kind: str
    model: ModelProto
    places: frozenset[str]


@dataclass
class Plan:
    """A right model, and what is known of it.

    Attributes:
        shapes: the shape of each value, as it was computed.
    """

    model: ModelProto
    shapes: dict[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        graph = self.model.graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self.outputs = {value.name for value in graph.output}

    def copy(self) -> ModelProto:
        made = ModelProto()
        made.CopyFrom(self.model)
        return made

    def nodes(self, *kinds: str) -> Iterator[tuple[int, NodeProto]]:
        for position, node in enumerate(self.model.graph.node):
            if node.op_type in kinds and self.is_float(node.output[0]):
                yield position, node

    def is_float(self, name: str) -> bool:
        """Return whether a value is a tensor that the feeds go into; others have no shape here."""
        return name in self.shapes

    def array(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(self.constants[name])

    def with_constant(self, position: int, slot: int, array: np.ndarray) -> tuple[ModelProto, str]:
        """Return the model whose node reads this constant, and what it makes."""
        made = self.copy()
        node = made.graph.node[position]
        old = self.constants[node.input[slot]]
        array = np.ascontiguousarray(array, helper.tensor_dtype_to_np_dtype(old.data_type))
        made.graph.initializer.append(numpy_helper.from_array(array, "planted"))
        node.input[slot] = "planted"
        return made, node.output[0]

    def readers(self, name: str) -> list[NodeProto]:
        return [node for node in self.model.graph.node if name in node.input]


Planter = Callable[[Plan], Iterator[Fault]]


def _fault(kind: str, planted: tuple[ModelProto, str]) -> Fault:
    return Fault(kind, planted[0], frozenset([planted[1]]))


def constants(plan: Plan) -> Iterator[Fault]:
    for position, node in plan.nodes(*_WEIGHTED, "LayerNormalization", "Add", "Mul", "Div"):
        slots = [slot for slot, name in enumerate(node.input) if slot and name in plan.constants]
        if node.op_type in ("Add", "Mul", "Div"):
            slots = [slot for slot, name in enumerate(node.input) if name in plan.constants]
        for slot in slots[:2]:
            array = plan.array(node.input[slot])
            if array.dtype.kind != "f" or np.abs(array).max(initial=0) > 1e30:
                continue
            kind = "bias" if array.ndim == 1 and node.op_type in (*_WEIGHTED, "Add") else "weight"
            if array.size == 1:
                yield _fault("constant: scalar", plan.with_constant(position, slot, array * 1.1))
                continue
            yield _fault(
                f"constant: {kind}", plan.with_constant(position, slot, array * 1.05 + 0.01)
            )
            if kind == "bias" and array.any():
                yield _fault("constant: lost bias", plan.with_constant(position, slot, array * 0))
            if array.ndim == 2:
                channel = array.copy()
                channel[:, array.shape[1] // 2] *= 1.5
                yield _fault("constant: one channel", plan.with_constant(position, slot, channel))
                if array.shape[0] == array.shape[1]:
                    yield _fault(
                        "constant: transposed", plan.with_constant(position, slot, array.T)
                    )


def attributes(plan: Plan) -> Iterator[Fault]:
    for position, node in plan.nodes(
        "LayerNormalization", "BatchNormalization", "Softmax", "Conv", "Transpose", "Gelu"
    ):
        for number, attribute in enumerate(node.attribute):
            made = plan.copy()
            changed = made.graph.node[position].attribute[number]
            if attribute.name == "epsilon":
                changed.f = 0.5
            elif attribute.name == "axis" and node.op_type == "Softmax":
                changed.i = len(plan.shapes[node.output[0]]) - 2
            elif attribute.name == "pads" and sum(attribute.ints):
                axes = len(attribute.ints) // 2  # one up and left: the shape stays
                changed.ints[:] = [p + 1 for p in attribute.ints[:axes]] + [
                    p - 1 for p in attribute.ints[axes:]
                ]
            elif attribute.name == "perm" and _swapped(plan, node, list(attribute.ints)):
                changed.ints[:] = _swapped(plan, node, list(attribute.ints))
            elif attribute.name == "approximate":
                changed.s = b"none" if attribute.s == b"tanh" else b"tanh"
            else:
                continue
            yield Fault(f"attribute: {attribute.name}", made, frozenset([node.output[0]]))


def _swapped(plan: Plan, node: NodeProto, perm: list[int]) -> list[int]:
    """Return a permutation with two axes of equal sizes exchanged, [] if there are none."""
    shape = plan.shapes[node.output[0]]
    for i, size in enumerate(shape):
        for j in range(i + 1, len(shape)):
            if size == shape[j] and size > 1:
                perm[i], perm[j] = perm[j], perm[i]
                return perm
    return []


def operators(plan: Plan) -> Iterator[Fault]:
    for position, node in plan.nodes(*_OPERATORS):
        if node.op_type in ("Add", "Mul") and node.input[0] == node.input[1]:
            continue
        made = plan.copy()
        other = made.graph.node[position]
        other.op_type = _OPERATORS[node.op_type]
        if node.op_type == "Gelu":
            del other.attribute[:]
        yield Fault(f"operator: {node.op_type}", made, frozenset([node.output[0]]))


def wiring(plan: Plan) -> Iterator[Fault]:
    """Operands exchanged, or one read from an earlier value of the same shape."""
    earlier: dict[tuple[int, ...], list[str]] = {}
    for position, node in enumerate(plan.model.graph.node):
        made = [name for name in node.input if name in plan.shapes]
        if node.op_type in ("Sub", "Div", "MatMul") and len(made) == 2:
            crossed = plan.copy()
            crossed.graph.node[position].input[:] = node.input[::-1]
            if plan.shapes[made[0]] == plan.shapes[made[1]] and made[0] != made[1]:
                yield Fault("wiring: exchanged", crossed, frozenset([node.output[0]]))
        if node.op_type in ("Add", "MatMul") and made:
            others = [
                name for name in earlier.get(plan.shapes[made[0]], []) if name not in node.input
            ]
            if others:
                crossed = plan.copy()
                slot = list(node.input).index(made[0])
                crossed.graph.node[position].input[slot] = others[len(others) // 2]
                yield Fault("wiring: another value", crossed, frozenset([node.output[0]]))
        for name in node.output:
            if name in plan.shapes:
                earlier.setdefault(plan.shapes[name], []).append(name)


def missing(plan: Plan) -> Iterator[Fault]:
    for position, node in plan.nodes(*_ACTIVATIONS, "Add", "Mul", "Div"):
        kept = [n for n in node.input if plan.shapes.get(n) == plan.shapes[node.output[0]]]
        readers = plan.readers(node.output[0])
        for near in readers:  # the list grows
            if near.op_type in _PASSED:
                readers += plan.readers(near.output[0])
        if not kept or node.output[0] in plan.outputs or not readers:
            continue
        residual = node.op_type == "Add" and len(kept) == 2
        made = plan.copy()
        for reader in made.graph.node:
            reader.input[:] = [kept[-1] if n == node.output[0] else n for n in reader.input]
        del made.graph.node[position]
        places = frozenset(
            [*_before(plan, kept[-1]), *(n for near in readers for n in near.output)]
        )
        yield Fault("missing: residual" if residual else f"missing: {node.op_type}", made, places)


def _before(plan: Plan, name: str) -> Iterator[str]:
    """Yield a value, and what it is a copy of."""
    yield name
    maker = next((node for node in plan.model.graph.node if name in node.output), None)
    if maker is not None and maker.op_type in _PASSED:
        yield from _before(plan, maker.input[0])


def extra(plan: Plan) -> Iterator[Fault]:
    for position, node in plan.nodes(*_WEIGHTED, "Add", "LayerNormalization"):
        name = node.output[0]
        readers = plan.readers(name)
        if name in plan.outputs or not readers:
            continue
        beside = plan.copy()
        for reader in beside.graph.node:
            reader.input[:] = ["planted" if n == name else n for n in reader.input]
        beside.graph.node.insert(position + 1, helper.make_node("Relu", [name], ["planted"]))
        places = frozenset(["planted", *(n for reader in readers for n in reader.output)])
        yield Fault("extra: relu", beside, places)
        under = plan.copy()
        under.graph.node[position].output[0] = "planted"
        under.graph.node.insert(position + 1, helper.make_node("Softsign", ["planted"], [name]))
        yield Fault("extra: softsign", under, frozenset([name, "planted"]))


def dtypes(plan: Plan) -> Iterator[Fault]:
    """A value that passes through a narrower dtype on its way."""
    halves = any(t.data_type == TensorProto.FLOAT16 for t in plan.model.graph.initializer)
    wide = TensorProto.FLOAT16 if halves else TensorProto.FLOAT
    for position, node in plan.nodes(*_WEIGHTED, "LayerNormalization", "Softmax"):
        for narrow in ("INT8", "BFLOAT16"):
            made = plan.copy()
            value = node.output[0]
            made.graph.node[position].output[0] = "planted_wide"
            to = TensorProto.DataType.Value(narrow)
            down = helper.make_node("Cast", ["planted_wide"], ["planted_narrow"], to=to)
            up = helper.make_node("Cast", ["planted_narrow"], [value], to=wide)
            made.graph.node.insert(position + 1, down)
            made.graph.node.insert(position + 2, up)
            yield Fault(
                f"dtype: {narrow.lower()}",
                made,
                frozenset([value, "planted_narrow", "planted_wide"]),
            )


def quantization(plan: Plan) -> Iterator[Fault]:
    """Scales and zero points that are not the right ones: of one quantizer, or of both around a value."""
    for position, node in enumerate(plan.model.graph.node):
        if (
            node.op_type not in ("QuantizeLinear", "DequantizeLinear")
            or node.input[1] not in plan.constants
        ):
            continue
        own = node.op_type.removesuffix("Linear").lower()
        if node.input[0] in plan.constants:
            own = "bias" if plan.array(node.input[0]).dtype == np.int32 else "weight"
        scale = plan.array(node.input[1])
        changed = {"scale": scale * 1.3}
        if own in ("bias", "weight"):
            changed |= _channels(scale)
        for what, array in changed.items():
            yield _of_quantizer(plan, f"{own} {what}", position, 1, array)
        if len(node.input) > 2 and own != "bias":
            zero = _next(plan.array(node.input[2]))
            yield _of_quantizer(plan, f"{own} zero point", position, 2, zero)
        if own == "quantize":
            yield from _of_both(plan, node)


def _channels(scale: np.ndarray) -> dict[str, np.ndarray]:
    """Return other scales of a weight."""
    if scale.size == 1:
        return {"scale by 0.5%": scale * 1.005}
    channel = scale.copy()
    channel[scale.size // 2] *= 1.4
    return {"scale by 0.5%": scale * 1.005, "scale of a channel": channel}


def _of_quantizer(plan: Plan, what: str, position: int, slot: int, array: np.ndarray) -> Fault:
    """Change a constant of one quantizer; that of a weight belongs to the nodes that read it."""
    made, value = plan.with_constant(position, slot, array)
    readers = plan.readers(value) if what.startswith(("bias", "weight")) else []
    places = frozenset([value, *(name for reader in readers for name in reader.output)])
    return Fault(f"quantization: {what}", made, places)


def _next(zero: np.ndarray) -> np.ndarray:
    return np.where(zero < np.iinfo(zero.dtype).max, zero + 1, zero - 1)


def _of_both(plan: Plan, node: NodeProto) -> Iterator[Fault]:
    """Change the constants that a QuantizeLinear shares with its DequantizeLinear, and with values that are its own."""
    for what, name in zip(("scale", "zero point"), node.input[1:], strict=False):
        users = [other for other in plan.model.graph.node if name in other.input[1:]]
        places = {name for user in users for name in (user.input[0], *user.output)}
        made, array = plan.copy(), plan.array(name)
        tensor = next(t for t in made.graph.initializer if t.name == name)
        wrong = array * 0.5 if what == "scale" else _further(array)
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(wrong, array.dtype), name))
        yield Fault(f"quantization: {what} of both", made, frozenset(places))


def _further(zero: np.ndarray) -> np.ndarray:
    limits = np.iinfo(zero.dtype)
    return np.where(zero > (limits.min + limits.max) // 2, zero - 40, zero + 40)


KINDS: dict[str, Planter] = {
    "constants": constants, "attributes": attributes, "operators": operators, "wiring": wiring, "missing": missing,
    "extra": extra, "dtypes": dtypes, "quantization": quantization,
}  # fmt: skip


def spread(plan: Plan, kinds: Iterable[str], count: int) -> Iterator[Fault]:
    """Yield up to `count` faults of each kind, spread over the network; each holds a whole model, so one at a time."""
    for planter in map(KINDS.__getitem__, kinds):
        there = Counter(fault.kind for fault in planter(plan))
        met = Counter[str]()
        for fault in planter(plan):
            step = max(1, there[fault.kind] // count)
            place, met[fault.kind] = met[fault.kind] - step // 2, met[fault.kind] + 1
            if place >= 0 and place % step == 0 and place < step * count:
                yield fault


def runs(model: ModelProto) -> bool:
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError:
        return False
    return True
