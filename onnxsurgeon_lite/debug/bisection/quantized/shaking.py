"""Tell an error from rounding: shake what is quantized by up to half a quantum, and see what that makes of a part.

Errors are measured by their size, their bias, how they follow the value and what other zero points would do.

Source: random perturbation of operands, as in stochastic arithmetic (CADNA, Verrou).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from onnx import ModelProto, NodeProto, helper, parser

from onnxsurgeon_lite.graph.index import GraphIndex, onnx_opset
from onnxsurgeon_lite.graph.quantizers import DEQUANTIZE, DYNAMIC, Quantizers
from onnxsurgeon_lite.model import copied, walk
from onnxsurgeon_lite.runtime.observe import original
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    DType,
    Wide,
    by_channel,
    from_array,
    numpy_dtype,
    type_of,
)
from onnxsurgeon_lite.tensors.grid import Grid

# Limits, in standard deviations of what the same measure gives for rounding alone.
_RMS, _MEAN, _ALONG = 4.0, 8.0, 8.0  # standard deviations, known from few runs
_IN_CHANNEL = 16.0  # a channel has few elements, and there are many channels
_SLOPE = 1e-3  # a smaller share of the value is no fault
_FEW = 4  # elements of a channel that have no trend


@dataclass(frozen=True)
class Errors:
    """Measures of a tensor's errors: a number for the whole tensor, then one for each channel.

    Attributes:
        rms: the root of the mean square. mean: the bias. along: the part of the error that follows the value.
        shifts: the parts that follow given changes of the value.
    """

    rms: Wide
    mean: Wide
    along: Wide
    shifts: tuple[Wide, ...] = ()

    @classmethod
    def of(cls, error: Wide, value: Wide, axis: int, shifts: Sequence[Wide] = ()) -> "Errors":
        """Measure an error; channels lie along an axis, or along the last one of a value without it."""
        # first a row of all elements, then a row for each channel: a fault in one channel is lost in the whole
        given = (error, value, *shifts)
        found = _measures(*(array.reshape(1, -1) for array in given))
        if error.ndim and error.size:
            last = min(axis, error.ndim - 1)
            parts = (by_channel(array, last) for array in given)
            found = list(map(np.concatenate, zip(found, _measures(*parts), strict=True)))
        rms, mean, along, *others = found
        return cls(rms, mean, along, tuple(others))

    def excess(
        self, noise: Sequence["Errors"], allowed: float, size: float, elements: int
    ) -> float:
        """Return how far the worst measure is above its limit; at most 1 for noise.

        Args:
            noise: measures of errors that rounding alone makes.
            allowed: an error that is none. size: the root mean square of the value. elements: how many it has.
        """
        worst = 0.0
        # `own` and each of `others` hold one measure: [whole, channel 0, channel 1, ...]
        measured = zip(self._all(), *(n._all() for n in noise), strict=True)
        for number, (own, *others) in enumerate(measured):
            limits = np.full(own.shape, _IN_CHANNEL)
            limit = (_RMS, _MEAN, _ALONG)[min(number, 2)]
            # a small tensor has few elements to take the mean of, so the whole gets more room
            limits[0] = limit + (elements**-0.5 * _IN_CHANNEL if elements and number < 3 else 0.0)
            # index 2 is `along`: an error that follows the value by a tiny share is no fault
            least = allowed + _SLOPE * size * (number == 2)
            own, bound = np.abs(own), limits * _usual(np.array(others)) + least
            over = np.divide(own, bound, out=np.where(own > 0, np.inf, 0.0), where=bound > 0)
            worst = max(worst, float(over.max(initial=0.0)))
        return worst

    def _all(self) -> tuple[Wide, ...]:
        return (self.rms, self.mean, self.along) + self.shifts


def _usual(noise: Wide) -> Wide:
    """Return the root mean square of each measure over the runs; of channels, half from all that rounding moves."""
    squares = np.mean(np.square(noise), axis=0)
    # A channel that rounding happens not to move (all its elements are cut off at the end of the range) would allow no
    # error at all: mix each with the median of those that move.
    moved = squares[1:][squares[1:] > 0]  # others are cut off, but may lie at the border
    if moved.size:
        squares[1:] = (squares[1:] + np.median(moved)) / 2
    return np.asarray(np.sqrt(squares))


def _measures(error: Wide, value: Wide, *shifts: Wide) -> list[Wide]:
    """Return root mean square, mean, and the parts that follow the value and each shift, of each row."""
    if not error.shape[1]:
        return [np.zeros(len(error))] * (3 + len(shifts))
    centered = value - value.mean(1, keepdims=True)
    along = [_along(error, direction) for direction in (centered,) + shifts]
    return [np.sqrt((error * error).mean(1)), error.mean(1)] + along


def _along(error: Wide, direction: Wide) -> Wide:
    """Return the part of each row's error in a direction; 0 for short rows, which have no trend."""
    found = np.zeros(len(error))
    if error.shape[1] >= _FEW:
        # the length of the projection of the error on the direction, as a root mean square
        power = np.sqrt((direction * direction).sum(1))
        follows = (error * direction).sum(1) / np.sqrt(error.shape[1])
        np.divide(follows, power, out=found, where=power > 0)
    return found


_NOISE, _EXACT = "\x01noise", "\x01exact"
_NO_RANDOM = 22
"""From this opset on onnxruntime has no kernels of random numbers."""


def shaken(
    part: ModelProto, quantizers: Quantizers, runs: int, share: float = 1.0
) -> tuple[ModelProto, list[dict[str, Array]]]:
    """Return a part that adds noise to what it dequantizes, and the noise to feed it with in each run.

    The noise is up to half a quantum, or a share of that. Equal elements of a vector are rounded alike, so they get
    equal noise; a matrix is shaken element by element.
    """
    result = copied(part)
    made = result.graph.node
    del made[:]
    feeds: list[dict[str, Array]] = [{} for _ in range(runs)]
    # scales that DynamicQuantizeLinear computes: their quantum is known at run time only, so the noise reads them
    computed = {n.output[1] for n in part.graph.node if n.op_type == DYNAMIC and share == 1}
    for number, node in enumerate(part.graph.node):
        made.append(node)
        name = node.output[0]
        grid = _grid(quantizers, node, share)
        # not dequantized, or of unknown step: stays as it is
        if grid is None and not (node.op_type == DEQUANTIZE and node.input[1] in computed):
            continue
        # `name = DequantizeLinear(...)` becomes `exact = DequantizeLinear(...)`, `name = Add(exact, noise)`
        exact, noise = f"{name}{_EXACT}", f"{name}{_NOISE}"
        made[-1].output[0] = exact
        integers = None if grid is None else _vector(quantizers.index, node)
        # three sources of noise: drawn by the runtime with a computed step, with a constant step, or drawn here and fed
        if grid is None:
            made.extend(_drawn(result, exact, node.input[1], noise, number))
        elif integers is None:
            step = _step(result, quantizers.index, node, grid)
            made.extend(_drawn(result, exact, step, noise, number))
        else:
            dtype = _dtype(quantizers.index, node)
            for run, given in enumerate(feeds):
                given[noise] = _noise_of(integers, grid, number * runs + run).astype(dtype)
            result.graph.input.add(name=noise, type=type_of(feeds[0][noise]))
        made.append(helper.make_node("Add", [exact, noise], [name]))
    return result, feeds


def _grid(quantizers: Quantizers, node: NodeProto, share: float = 1.0) -> Grid | None:
    """Return the numbers that a node dequantizes to, with a share of their steps; None if they are not known."""
    found = quantizers.grids.get(original(node.output[0])) if node.op_type == DEQUANTIZE else None
    return None if found is None else replace(found, scale=found.scale * share)


def _vector(index: GraphIndex, node: NodeProto) -> Array | None:
    """Return the integers of a constant with at most one axis; None for anything else."""
    tensor = index.dense(node.input[0])
    if tensor is None or len(tensor.dims) > 1:
        return None
    return index.model.array(tensor)


def _noise_of(integers: Array, grid: Grid, seed: int) -> Array:
    # one draw for each distinct integer
    levels, which = np.unique(integers.astype(np.int64), return_inverse=True)
    drawn = np.random.default_rng(seed).uniform(-0.5, 0.5, levels.shape)
    return np.asarray(drawn[which].reshape(integers.shape) * grid.quantum(integers.shape))


def _drawn(part: ModelProto, exact: str, step: str, noise: str, seed: int) -> list[NodeProto]:
    """Return the nodes that draw noise for a value, as large as a step."""
    uniform = f"{noise}\x01uniform"
    drawn = noise_like(part, exact, uniform, (-0.5, 0.5), seed + 1)
    return drawn + [helper.make_node("Mul", [uniform, step], [noise])]


def noise_like(
    part: ModelProto, value: str, noise: str, bounds: tuple[float, float], seed: int
) -> list[NodeProto]:
    """Return the nodes that draw uniform noise of a value's shape and dtype, for a part of a model."""
    low, high = bounds
    if onnx_opset(part) < _NO_RANDOM:
        return [
            helper.make_node(
                "RandomUniformLike", [value], [noise], low=low, high=high, seed=float(seed)
            )
        ]
    # the mask of a Dropout chooses one of two numbers: of the same mean and variance
    middle, spread = (low + high) / 2, (high - low) / 12**0.5
    made = parser.parse_graph(f"""g (value) => (noise) {{
        half = Constant <value_float = 0.5> ()
        yes = Constant <value = bool {{1}}> ()
        unused, mask = Dropout <seed = {seed}> (value, half, yes)
        less = Constant <value_float = {middle - spread}> ()
        more = Constant <value_float = {middle + spread}> ()
        chosen = Where (mask, more, less)
        noise = CastLike (chosen, value)
    }}""").node
    inner = {name: f"{noise}\x01{name}" for name in walk.outputs(made)}
    names = inner | {"value": value, "noise": noise}
    for holder in chain.from_iterable((node.input, node.output) for node in made):
        holder[:] = map(names.__getitem__, holder)
    return list(made)


def shifted(part: ModelProto, quantizers: Quantizers, constants: bool) -> ModelProto:
    """Return a part whose zero points are one off: those of constants, or those of all else that is dequantized."""
    result = copied(part)
    made = result.graph.node
    del made[:]
    for node in part.graph.node:
        made.append(node)
        name = node.output[0]
        grid = _grid(quantizers, node)
        if grid is not None and (original(name) in quantizers.weights) is constants:
            made[-1].output[0] = f"{name}{_EXACT}"
            given = [f"{name}{_EXACT}", _step(result, quantizers.index, node, grid)]
            made.append(helper.make_node("Sub", given, [name]))
    return result


def _step(part: ModelProto, index: GraphIndex, node: NodeProto, grid: Grid) -> str:
    """Add the quantum of what a node dequantizes as a constant, and return its name."""
    made = node.output[0]
    kind, tensor = index.types.get(original(made)), index.dense(node.input[0])
    rank = len(kind.tensor_type.shape.dim) if kind is not None else 0
    # of an activation only the rank counts: the quantum broadcasts
    shape = tuple(tensor.dims if tensor is not None else [1] * rank)
    quantum = grid.quantum(shape or (1,)).astype(_dtype(index, node))
    name = f"{made}\x01step"
    part.graph.initializer.append(from_array(np.asarray(quantum), name))
    return name


def _dtype(index: GraphIndex, node: NodeProto) -> DType:
    tensor = index.dense(node.input[1])
    return numpy_dtype(tensor.data_type) if tensor is not None else np.dtype(np.float32)
