"""Faults of quantizers that the reference and the constants show, without a run; fitted scales and zero points."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto

from onnxsurgeon_lite.debug.bisection.quantized.expanding import UNIT, is_bias_scale
from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues
from onnxsurgeon_lite.debug.result import Finding
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import QUANTIZE, constant_of, grid_of, limits_of
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.names import is_glob
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    DType,
    Wide,
    by_channel,
    from_array,
    is_array,
    is_float,
    numpy_dtype,
    rms,
    wide,
)
from onnxsurgeon_lite.tensors.grid import Grid

_EXACT = 1e-4  # relative difference of scales that are equal
_HALF = 0.5 + 1e-3  # quanta
_CLIPS = 4.0  # saturation is a fault when it errs so much more than rounding
_SHARE = 0.005  # and when so many elements are saturated
_SURE = 6.0  # standard deviations
_UNIFORM = 12**-0.5  # standard deviation of rounding, in quanta
_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Suspect:
    """A quantizer that is wrong.

    Attributes:
        value: the value that it makes, or that is made wrong by it. position: its node.
        pair: the other node of its pair, if that may be what is wrong.
    """

    value: str
    position: int
    finding: Finding
    pair: int | None = None


def unlike_pairs(values: FloatValues) -> Iterator[Suspect]:
    """Yield quantizers that do not give the reference back, to half a quantum, as their pair has two grids."""
    index, quantizers = values.index, values.quantizers
    for name, source in quantizers.sources.items():
        # a pair: QuantizeLinear (grid `before`) -> DequantizeLinear (grid `behind`)
        behind, before = quantizers.grids[name], quantizers.before[name]
        if _same(behind, before):
            continue
        stored = values.read(name) if name in values.known else values.feeds.get(source)
        last = index.producer[name]
        first = index.producer[index.nodes[last].input[0]]
        # without a reference it is only known that the pair does not fit: name both
        if not is_array(stored) or not before.fits(stored.shape):
            unknown = "; which of both is wrong is not known, as there is no reference"
            yield Suspect(name, last, _unlike(index.nodes[last], behind, before, unknown), first)
            continue
        numbers, quantum = wide(stored), before.quantum(stored.shape)
        # send the reference through both: within the range it must come back to half a quantum
        made = behind.numbers(before.integers(stored))
        inside = ~before.outside(stored) & np.isfinite(numbers)
        if not (np.abs(made - numbers) > _HALF * quantum + np.abs(numbers) * 2.0**-22)[
            inside
        ].any():
            continue
        # the one whose range fits the reference worse is wrong; of equals the second
        wrong_first = _misfit(before, numbers) > _misfit(behind, numbers) * 1.01
        position, own, other = (first, before, behind) if wrong_first else (last, behind, before)
        yield Suspect(name, position, _unlike(index.nodes[position], own, other))


def _same(one: Grid, other: Grid) -> bool:
    return bool(
        one.scale.shape == other.scale.shape
        and np.allclose(one.scale, other.scale, rtol=_EXACT, atol=0)
        and np.array_equal(one.zero, other.zero)
    )


def _misfit(grid: Grid, reference: Wide) -> float:
    """Return by what factor the range of a grid is wider or narrower than the reference."""
    # log of (needed range / range of the grid): 0 fits, both too wide and too narrow are larger
    low, high = grid.range(reference.shape)
    # a quantizer's range always holds 0
    needed = max(float(reference.max()), 0.0) - min(float(reference.min()), 0.0)
    return abs(float(np.log(max(needed, 1e-30) / float((high - low).max()))))


def _unlike(
    node: NodeProto, own: Grid, other: Grid, fits: str = ", which fits the reference"
) -> Finding:
    """Say how a quantizer differs from its pair, which fits."""
    pair = "DequantizeLinear" if node.op_type == "QuantizeLinear" else "QuantizeLinear"
    # equal scales: the zero points differ
    if own.scale.shape == other.scale.shape and np.allclose(own.scale, other.scale, rtol=_EXACT):
        at = np.flatnonzero(np.atleast_1d(own.zero != other.zero))[0]
        a, b = np.atleast_1d(own.zero)[at], np.atleast_1d(other.zero)[at]
        because = f"zero point {node.input[2]!r} is {a:g}, that of its {pair} {b:g}{fits}"
        return Finding("wrong zero point", because, own_numbers(node, 2, other.zero))
    a, b = float(own.scale.max()), float(other.scale.max())
    because = f"scale {node.input[1]!r} is {a:.6g}, that of its {pair} {b:.6g} (x{b / a:.4g}){fits}"
    return Finding("wrong scale", because, own_numbers(node, 1, other.scale))


@dataclass(frozen=True)
class Saturation:
    """Elements of a reference that a quantizer cannot hold.

    Attributes:
        node: what quantizes. elements: all of them. outside: those out of range.
        fault: True when they err far more than rounding.
        because: how many there are, and which range would hold them.
        scale, zero: the parameters of that range.
    """

    node: NodeProto
    elements: int
    outside: int
    fault: bool
    because: str
    scale: float
    zero: float

    @property
    def value(self) -> str:
        return str(self.node.input[0])


def saturations(values: FloatValues) -> Iterator[Saturation]:
    """Yield the quantizers whose range does not hold the reference."""
    nodes = [node for node in values.index.nodes if node.op_type == QUANTIZE]
    # of several quantizers of one value, the first counts
    for source, node in {node.input[0]: node for node in reversed(nodes)}.items():
        stored = values.read(source) if source in values.known else values.feeds.get(source)
        grid = grid_of(values.index, node)
        if grid is None or not is_array(stored):
            continue
        found = _saturation(node, grid, stored) if grid.fits(stored.shape) and stored.size else None
        if found is not None:
            yield found


def _saturation(node: NodeProto, grid: Grid, stored: Array) -> Saturation | None:
    numbers = wide(stored)
    if (grid.zero == grid.low).all():
        numbers = np.maximum(numbers, 0)  # a ReLU is merged
    count = int(grid.outside(numbers).sum())
    if not count or not np.isfinite(numbers).all():
        return None
    clipped = numbers - grid.clipped(numbers)
    rounding = rms(grid.quantum(numbers.shape)) * _UNIFORM
    # A calibration cuts off a few outliers on purpose. It is a fault if many elements are cut off, and this costs far
    # more than rounding does.
    much = count > 1 and count >= _SHARE * numbers.size
    fault = much and rms(clipped) > _CLIPS * rounding
    low, high = (float(end.ravel()[0]) for end in grid.range(numbers.shape))
    needed = min(float(numbers.min()), 0.0), max(float(numbers.max()), 0.0)
    scale = (needed[1] - needed[0]) / (grid.high - grid.low)
    because = (
        f"{count} of {numbers.size} elements ({100 * count / numbers.size:.3g}%) are beyond {low:.6g} to {high:.6g}; "
        f"the reference needs {needed[0]:.6g} to {needed[1]:.6g}, a scale of {scale:.6g}"
    )
    zero = round(float(grid.low) - needed[0] / scale)
    return Saturation(node, numbers.size, count, fault, because, scale, zero)


@dataclass(frozen=True)
class UnlikeBias:
    """A node whose bias is quantized with another scale than the product of its operands' scales.

    Attributes:
        operands: the dequantized input, weight and bias.
        ratio: the bias' scale by the product, for each channel.
    """

    position: int
    operands: tuple[str, str, str]
    ratio: Wide


def unlike_biases(values: FloatValues) -> Iterator[UnlikeBias]:
    """Yield the nodes with such a bias: fused kernels take the product for its scale."""
    index, quantizers = values.index, values.quantizers
    for position, node in enumerate(index.nodes):
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.input) != 3:
            continue
        x, weight, bias = node.input
        if not {x, weight, bias} <= quantizers.grids.keys() or bias not in quantizers.weights:
            continue
        grids = [quantizers.grids[name] for name in (x, weight, bias)]
        # only biases of int32; the input has one scale, the weight is a constant
        if grids[2].high != _INT32 or grids[0].scale.ndim or weight not in quantizers.weights:
            continue
        # kernels add the bias to integer products, so its scale must be that of a product
        product = grids[0].scale * grids[1].scale
        if grids[2].scale.shape not in ((), product.shape) and product.shape:
            continue
        ratio = grids[2].scale / product
        if not np.allclose(ratio, 1, rtol=_EXACT, atol=0):
            yield UnlikeBias(position, (x, weight, bias), ratio)


def unlike_weights(index: GraphIndex, values: FloatValues, theirs: GraphIndex) -> Iterator[Suspect]:
    """Yield weights that are not those of the float model, rounded."""
    quantizers = values.quantizers
    for name in sorted(quantizers.weights, key=index.rank.__getitem__):
        tensor = next(filter(None, map(theirs.dense, quantizers.origin(name))), None)
        node = index.nodes[index.producer[name]]
        integers = index.dense(node.input[0])
        users = index.consumers.get(name, [])
        if tensor is None or integers is None or not users:
            continue
        unnamed = quantizers.grids[name].block or UNIT in node.input[1]
        if not is_float(numpy_dtype(tensor.data_type)) or unnamed:
            continue  # it is the quantized weight itself, or has no scale that could be named
        if list(tensor.dims) != list(integers.dims) or len(tensor.dims) < 2:
            continue
        right = wide(theirs.model.array(tensor))
        finding = _unlike_weight(node, quantizers.grids[name], index.model.array(integers), right)
        if finding is not None:
            yield Suspect(next(n for n in index.nodes[users[0]].output if n), users[0], finding)


# The integers that are stored against the float weight, both in quanta. For each channel, a wrong scale makes the
# difference follow the integers (`slope`), a wrong zero point shifts it (`shift`); the better of both fits is the
# finding. Integers at the ends of the range are left out: they may be cut off.
def _unlike_weight(node: NodeProto, grid: Grid, integers: Array, right: Wide) -> Finding | None:
    numbers = wide(integers)
    steps = numbers - grid.origin(integers.shape)
    error = right / grid.quantum(integers.shape) - steps  # in quanta
    inside = (numbers > grid.low) & (numbers < grid.high)
    if not inside.any() or np.abs(error[inside]).max() <= _HALF + 1e-2:
        return None
    axis = grid.axis if grid.scale.ndim == 1 else None
    rows = [by_channel(np.where(inside, a, 0.0), axis) for a in (error, steps, wide(inside))]
    power, count = (rows[1] ** 2).sum(1), rows[2].sum(1)
    slope = np.divide((rows[0] * rows[1]).sum(1), power, out=np.zeros(len(power)), where=power > 0)
    shift = np.divide(rows[0].sum(1), count, out=np.zeros(len(count)), where=count > 0)
    noise = _UNIFORM / np.sqrt(np.maximum(power, 1e-30))
    left = [
        np.square(rows[0] - fit).sum()
        for fit in (slope[:, None] * rows[1], np.rint(shift)[:, None] * rows[2])
    ]
    if min(left) > count.sum():  # an error of a quantum, with whatever scale or zero point
        return Finding(
            "wrong constant", f"{node.input[0]!r} is not the float model's weight, quantized"
        )
    if np.rint(shift).any() and left[1] <= left[0]:
        at = int(np.abs(shift).argmax())
        own = float(np.atleast_1d(grid.zero)[at if grid.zero.ndim else 0])
        because = f"zero point {node.input[2]!r} is {own:g}, {own - np.rint(shift[at]):g} fits the float model's weight"
        return Finding("wrong zero point", because)
    off = np.flatnonzero(np.abs(slope) > _SURE * noise)
    if not off.size:
        return None
    at = int(off[np.abs(slope[off]).argmax()])
    own = float(np.atleast_1d(grid.scale)[at if grid.scale.ndim else 0])
    of_channel = f" of channel {at}" if grid.scale.ndim else ""
    more = f"; {off.size} of {len(slope)} channels differ" if off.size > 1 else ""
    because = (
        f"scale {node.input[1]!r}{of_channel} is {own:.6g}, {own * (1 + slope[at]):.6g} (x{1 + slope[at]:.4g}) "
        f"fits the float model's weight{more}"
    )
    return Finding("wrong scale", because)


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
        result = copied(part)
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
        own, other = self.numbers.ravel(), numbers.ravel()
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
                yield Parameter(node, slot, name, wide(numbers), numbers.dtype)


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
    each = like.ndim == 1 and step.ndim > axis and step.shape[axis] == like.size
    if like.size != 1 and not each:
        return None
    step, wanted = (by_channel(a, None if like.size == 1 else axis) for a in (step, wanted))
    power = (step * step).sum(1)
    found = np.zeros(like.size)
    np.divide((step * wanted).sum(1), power, out=found, where=power > 0)
    return found.reshape(like.shape) if power.any() else None
