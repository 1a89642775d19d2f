"""Choose the bits of each weight for a wanted error of an output, at the least bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxsurgeon_lite.debug.ranking.rank import sqnr
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.surgery.gradients.step import is_float
from onnxsurgeon_lite.tensors.dtypes import Array, Shape, from_array, is_array, numpy_dtype, wide

_CHOICES = (4, 8, 16)  # bits
_PROBES = 8  # random directions of the output
_SIGNS = "\x01signs"  # an input: of the elements of the output
_FRONT = 1000  # choices that are kept
_TRIES = 10  # runs, each with a stricter budget
_STRICTER = 0.5  # decibels at least
_LAST = ("MatMul", "Gemm")  # the last axis of the weight has the channels of the output


@dataclass(frozen=True)
class LayerBits:
    """The bits of one weight.

    Attributes:
        bytes: its size then. share: its part in the predicted error.
    """

    name: str
    bits: int
    bytes: int
    share: float


@dataclass(frozen=True)
class BitsPerLayer(Shown):
    """Bits of weights that give an output a wanted SQNR at the least bytes.

    Attributes:
        predicted_db: the SQNR to first order. reached_db: that of a run with the weights rounded.
        bytes: of all these weights. before: the same as they are.
    """

    layers: list[LayerBits]
    output: str
    wanted_db: float
    predicted_db: float
    reached_db: float
    bytes: int
    before: int


def rounded(array: Array, bits: int, channels: int) -> Array:
    """Return numbers as symmetric integers of some bits hold them, with a scale for each channel; 16 are float16."""
    if bits == 16:
        return array.astype(np.float16).astype(array.dtype)
    numbers = wide(array)
    others = tuple(axis for axis in range(array.ndim) if axis != channels % array.ndim)
    # the largest magnitude of a channel becomes the largest integer: 7 of 4 bits, 127 of 8
    scale = np.abs(numbers).max(axis=others, keepdims=True) / (2 ** (bits - 1) - 1)
    steps = np.rint(np.divide(numbers, scale, out=np.zeros_like(numbers), where=scale > 0))
    made: Array = (steps * scale).astype(array.dtype)
    return made


def bits_per_layer(
    index: GraphIndex,
    samples: Sequence[Feeds],
    runtime: Runtime,
    wanted_db: float,
    of: str | None,
) -> BitsPerLayer:
    """Choose the bits of each float weight with two axes or more.

    The error of the output is predicted to first order: the error of each number, times the magnitude of the output's
    gradient by it. A run with the weights rounded proves it; where it misses, they get more bits.

    Args:
        of: the output; the first by default.

    Raises:
        UsageError: the output depends on no such weight.
        EditError: a node on the path has no gradient rule.
    """
    output = of or next(iter(index.outputs), "")
    weights = _weights(index, output)
    right = [_tensor(index, feeds, runtime, output) for feeds in samples]
    # SQNR in dB = 10 log10(energy of the output / energy of its error): the budget is that error
    energy = sum(float((wide(value) ** 2).sum()) for value in right)
    _weigh(index, output, weights, samples, runtime)
    budget = energy * 10 ** (-wanted_db / 10)
    for _ in range(_TRIES):
        chosen = _cheapest(weights, budget)
        model = GraphIndex.of(_rounded(index.model, chosen))
        actual = [_tensor(model, feeds, runtime, output) for feeds in samples]
        reached = min(sqnr(a, b) for a, b in zip(actual, right, strict=True))
        if reached >= wanted_db:
            break
        # the prediction was too good: allow less, by what is missing, at least half a decibel
        budget *= 10 ** (min(reached - wanted_db, -_STRICTER) / 10)
    total = sum(weight.losses[bits] for weight, bits in chosen)
    return BitsPerLayer(
        [
            LayerBits(w.name, bits, w.bytes(bits), w.losses[bits] / total if total else 0.0)
            for w, bits in chosen
        ],
        output,
        wanted_db,
        float(10 * np.log10(energy / total)) if total else float("inf"),
        reached,
        sum(weight.bytes(bits) for weight, bits in chosen),
        sum(weight.bytes(weight.whole) for weight in weights),
    )


@dataclass(frozen=True)
class _Weight:
    """A weight, and what each number of bits loses.

    Attributes:
        axis: that of the channels of the output. losses: bits -> the energy of the output's error.
    """

    name: str
    array: Array
    axis: int
    losses: dict[int, float]

    @property
    def whole(self) -> int:
        """The bits that it has."""
        return self.array.dtype.itemsize * 8

    def bytes(self, bits: int) -> int:
        """Return its size in these bits."""
        return -(-self.array.size * bits // 8)

    def in_bits(self, bits: int) -> Array:
        """Return its numbers as these bits hold them."""
        return self.array if bits == self.whole else rounded(self.array, bits, self.axis)


def _weights(index: GraphIndex, of: str) -> list[_Weight]:
    """Return the weights that an output depends on."""
    found = dict[str, _Weight]()
    # a weight that several nodes read has the axis of the first
    for place in sorted(index.ancestors([of])):
        node = index.nodes[place]
        for name in node.input:
            tensor = index.dense(name)
            if tensor is None or len(tensor.dims) < 2 or name in found:
                continue
            if is_float(tensor.data_type):
                array = index.model.array(tensor)
                axis = -1 if node.op_type in _LAST else 0
                bits = [b for b in _CHOICES if b < array.dtype.itemsize * 8]
                losses = dict.fromkeys(bits + [array.dtype.itemsize * 8], 0.0)
                found[name] = _Weight(name, array, axis, losses)
    if not found:
        raise UsageError(f"{of!r} depends on no float weight with two axes", "name another output")
    return list(found.values())


def _tensor(index: GraphIndex, feeds: Feeds, runtime: Runtime, name: str) -> Array:
    value = run(index, feeds, runtime, [name])[name]
    if not is_array(value):
        raise UsageError(f"{name!r} is not a tensor", "name another output")
    return value


def _weigh(
    index: GraphIndex,
    of: str,
    weights: Sequence[_Weight],
    samples: Sequence[Feeds],
    runtime: Runtime,
) -> None:
    """Add to the losses of weights: by random signs of the output, the gradient's mean square is its column's."""
    work = Derivative.of(index.model, [of])
    work.require_floats([of])
    kind = work.index.types[of]
    # With random signs s, the square of the gradient of s * output by a weight is on average the sum of the squares of
    # the gradients of all elements of the output by it.
    found = work.gradients(of, work.input(_SIGNS, kind), [weight.name for weight in weights])
    work.require_dependent(of, [weight.name for weight in weights], found)
    terms = {found[weight.name].name: weight for weight in weights}
    gradient = GraphIndex.of(work.model(terms))
    rng = np.random.default_rng(0)
    for feeds in samples:
        shape = _tensor(index, feeds, runtime, of).shape
        for _ in range(_PROBES):
            signs = rng.choice([-1, 1], shape).astype(numpy_dtype(kind.tensor_type.elem_type))
            observer = Observer(gradient, runtime)
            observer.feed(feeds | {_SIGNS: signs})
            for term, slope in observer.sweep(terms):
                weight = terms[term]
                # the mean over all probes
                squares = np.asarray(slope, np.float64) ** 2 / _PROBES
                for bits in weight.losses:
                    error = wide(weight.in_bits(bits)) - wide(weight.array)
                    weight.losses[bits] += float((squares * error**2).sum())


def _cheapest(weights: Sequence[_Weight], budget: float) -> list[tuple[_Weight, int]]:
    """Return the bits of weights such that their losses are within the budget, at the least bytes."""
    # Choices for the weights so far, as (bytes, loss, bits of each): only those that no other beats in both bytes and
    # loss. So the first that is left in the end has the least bytes.
    front: list[tuple[int, float, Shape]] = [(0, 0.0, ())]
    for weight in weights:
        grown = [
            (size + weight.bytes(bits), loss + more, chosen + (bits,))
            for size, loss, chosen in front
            for bits, more in weight.losses.items()
            if loss + more <= budget
        ]
        least = float("inf")
        front = []
        for choice in sorted(grown):
            if choice[1] < least:
                least = choice[1]
                front.append(choice)
        # thinned out evenly; the last one loses least and stays, so that the budget can be met
        front = front[:: -(-len(front) // _FRONT)] + front[-1:]
    return list(zip(weights, front[0][2], strict=True))


def _rounded(model: Model, chosen: Sequence[tuple[_Weight, int]]) -> Model:
    """Return a model whose weights are as their bits hold them."""
    made = model.copy()
    arrays = {weight.name: weight.in_bits(bits) for weight, bits in chosen}
    for tensor in made.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(from_array(arrays[tensor.name], tensor.name))
    return made
