"""Fit a scale or a zero point to the reference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto

from onnxsurgeon_lite.debug.bisection.quantized.expanding import UNIT, is_bias_scale
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import constant_of, limits_of
from onnxsurgeon_lite.names import is_glob
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import DType, from_array
from onnxsurgeon_lite.tensors.grid import Wide


@dataclass(frozen=True)
class Parameter:
    """The scale (slot 1) or the zero point (slot 2) of a DequantizeLinear.

    Attributes:
        name: of the initializer. numbers: its own, of this dtype.
    """

    node: NodeProto
    slot: int
    name: str
    numbers: Wide
    dtype: DType

    @property
    def is_scale(self) -> bool:
        return self.slot == 1

    def moved(self) -> Wide:
        """Return the numbers a step further: twice the scale, the next zero point."""
        return self.fitted(np.array(1.0))

    def fitted(self, steps: Wide) -> Wide:
        """Return the numbers so many steps further."""
        if self.is_scale:
            return self.scaled(1 + steps)
        limits = limits_of(self.dtype)
        assert limits is not None
        return np.clip(self.numbers + np.rint(steps), *limits)

    def scaled(self, factor: Wide) -> Wide:
        """Return a multiple of the numbers."""
        # one factor for each channel, else the typical one for all
        alike = factor.size == self.numbers.size
        return self.numbers * (factor.reshape(self.numbers.shape) if alike else np.median(factor))

    def put(self, part: ModelProto, numbers: Wide) -> ModelProto:
        """Return the part with other numbers for this node alone, and for the scale of its bias."""
        result = ModelProto()
        result.CopyFrom(part)
        name = f"{self.name}\x01fitted"
        # other readers of the constant keep the old numbers: only this node is tested
        for node in result.graph.node:
            if node.output[0] == self.node.output[0] or is_bias_scale(node):
                slots = [slot for slot, given in enumerate(node.input) if given == self.name]
                for slot in slots:
                    node.input[slot] = name
        tensor = from_array(np.asarray(numbers.astype(self.dtype)), name)
        result.graph.initializer.append(tensor)
        return result

    def edit(self, numbers: Wide) -> tuple[Pass, ...]:
        """Return the edit that gives other numbers to this node alone."""
        return own_numbers(self.node, self.slot, numbers)

    def because(self, numbers: Wide, why: str = "fits the reference") -> str:
        """Say which numbers fit, and how they differ from the own ones."""
        what = "scale" if self.is_scale else "zero point"
        own, other = self.numbers.reshape(-1), numbers.reshape(-1)
        off = np.flatnonzero(~np.isclose(own, other, rtol=1e-4, atol=0))
        at = int(np.abs(own - other).argmax())
        where = "" if own.size == 1 else f" of channel {at}"
        by = f" (x{other[at] / own[at]:.4g})" if self.is_scale and own[at] else ""
        more = f"; {off.size} of {own.size} channels differ" if off.size > 1 else ""
        # Expanding a node adds a scale of 1 for its product, whose own scale has no name in the model.
        if UNIT in self.name:
            return f"another scale of {self.name.split(UNIT)[0]!r}{where}{by} {why}{more}"
        return f"{what} {self.name!r}{where} is {own[at]:.6g}, {other[at]:.6g}{by} {why}{more}"


def own_numbers(node: NodeProto, slot: int, numbers: Wide) -> tuple[Pass, ...]:
    """Return the edit that gives a scale (slot 1) or a zero point to one node; nothing if it has no name."""
    if not node.name or is_glob(node.name):
        return ()
    stored = np.asarray(numbers, np.float64 if slot == 1 else np.int64)
    value = stored if stored.ndim else stored.item()
    return (SetConstant(node.input[slot], value, (node.name,)),)


def parameters_of(index: GraphIndex, nodes: Sequence[NodeProto]) -> Iterator[Parameter]:
    """Yield the constant scales and zero points of DequantizeLinear nodes."""
    for node in nodes:
        for slot, name in enumerate(node.input):
            numbers = constant_of(index, name) if slot else None
            if numbers is not None:
                yield Parameter(node, slot, name, numbers.astype(np.float64), numbers.dtype)


def scale_of(index: GraphIndex, name: str) -> Parameter:
    """Return the scale of the DequantizeLinear that makes a value."""
    node = index.nodes[index.producer[name]]
    return next(p for p in parameters_of(index, [node]) if p.is_scale)


def steps_to(reference: Wide, actual: Wide, moved: Wide, like: Wide, axis: int) -> Wide | None:
    """Return how many steps of a parameter bring the actual value to the reference, in the parameter's shape.

    The value is linear in the parameter. None if the parameter does nothing, or is not one for each channel.
    """
    # Actual value `a`, and `m` with the parameter moved one step: k steps give a + k (m - a). The k that comes closest
    # to the reference r, by least squares, is (m - a)(r - a) / (m - a)^2, for each channel.
    step, wanted = moved - actual, reference - actual
    if like.size == 1:
        step, wanted = step.reshape(1, -1), wanted.reshape(1, -1)
    elif like.ndim == 1 and step.ndim > axis and step.shape[axis] == like.size:
        step, wanted = (np.moveaxis(a, axis, 0).reshape(like.size, -1) for a in (step, wanted))
    else:
        return None
    power = (step * step).sum(1)
    found = np.zeros(like.size)
    np.divide((step * wanted).sum(1), power, out=found, where=power > 0)
    return found.reshape(like.shape) if power.any() else None
