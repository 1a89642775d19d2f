"""How far each rounding moves the outputs, to first order: its error, times the gradient of the outputs by it.

The numbers of all roundings are computed in one run forwards and backwards.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import hypot, inf, isnan, prod

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.debug.conversion.goal import Goal
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.matching.judge import Values
from onnxsurgeon_lite.model import Model, assign, walk
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.surgery.precision import Plan, Site
from onnxsurgeon_lite.surgery.precision.losses import loss
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, largest

Slopes = Mapping[str, Term]
"""Value -> the gradient of a sum of all outputs by it, each element with a random sign.

The square of what an error moves that sum by is, on average, the sum of the squares of what it moves the elements by.
"""

_TOTAL = "\x01total"
_NUMBERS = "\x01numbers"


def measured(
    model: Model,
    goal: Goal,
    samples: Sequence[Feeds],
    right: Iterable[Values],
    runtime: Runtime,
    names: Collection[str],
    write: Callable[[Derivative, Slopes], Sequence[Term]],
) -> Wide:
    """Return numbers, a row for each sample.

    Args:
        right: the outputs. names: the values whose gradients are needed. write: returns the numbers, as terms.

    Raises:
        EditError: the model cannot be differentiated. RuntimeFailure: it does not run.
    """
    # only float32 outputs have a gradient
    outputs = [n for n, v in next(iter(right)).items() if getattr(v, "dtype", None) == np.float32]
    work = Derivative.of(_with_total(model, outputs), [_TOTAL])
    slopes = work.gradients(_TOTAL, work.tape.number(1.0, _FLOAT), names, strict=False)
    # one output with all numbers: one run forwards and backwards for each sample
    numbers = work.tape.concat(*map(work.tape.flat, write(work, slopes)))
    del work.index.graph.output[:]
    work.output(_NUMBERS, numbers, helper.make_tensor_type_proto(_FLOAT, [None]))
    run = opened(GraphIndex.of(work.model()), runtime)
    signs = (_signs(outputs, values, goal, seed) for seed, values in enumerate(right))
    found = [run({**feeds, **own})[_NUMBERS] for feeds, own in zip(samples, signs, strict=True)]
    return np.stack([np.asarray(row, np.float64) for row in found])


def _with_total(model: Model, outputs: Sequence[str]) -> Model:
    """Return the model with one number made of the outputs, each element with a weight of its own."""
    result = model.copy()
    graph = result.graph
    kinds = {output.name: output.type for output in graph.output}
    sums = []
    for name in outputs:
        # the sum over all elements of sign * element; the signs are inputs, so that each sample has others
        weighted, total = f"{_TOTAL}\x01{name}", f"{_TOTAL}\x01{name}\x01"
        sums.append(total)
        graph.input.add(name=_sign(name), type=kinds[name])
        graph.node.append(helper.make_node("Mul", [name, _sign(name)], [weighted]))
        graph.node.append(helper.make_node("ReduceSum", [weighted], [total], keepdims=0))
    graph.node.append(helper.make_node("Sum", sums, [_TOTAL]))
    assign(graph.output, [helper.make_tensor_value_info(_TOTAL, _FLOAT, [])])
    return result


def _signs(outputs: Sequence[str], right: Values, goal: Goal, seed: int) -> dict[str, Array]:
    rng, found = np.random.default_rng(seed), dict[str, Array]()
    for name in outputs:
        value = np.asarray(right[name])
        # scaled, so that errors of outputs of other magnitudes can be added
        signs = rng.choice(np.array([-1, 1], np.float32), value.shape)
        found[_sign(name)] = signs / np.float32(goal.scale(value))
    return found


def _sign(name: str) -> str:
    return f"\x01signs\x01{name}"


_LARGE = 4096  # elements of a constant whose effect is taken from its readers' results
_FLOAT = TensorProto.FLOAT


@dataclass(frozen=True)
class Effect:
    """What one rounding does.

    Attributes:
        error: of the outputs, as a norm; Inf where it is not known, or not finite.
        largest, smallest: magnitudes of the value's numbers other than 0; None for constants, and inside bodies.
    """

    error: float = inf
    largest: float | None = None
    smallest: float | None = None


@dataclass
class Effects:
    """Measures the effects of roundings, all in one run forwards and backwards.

    Attributes:
        model: the original, without functions. plan: of the same, nothing kept.
        clamped: the names of constants with numbers beyond the range. extremes: measure magnitudes, too.
    """

    model: Model
    plan: Plan
    goal: Goal
    clamped: Collection[str]
    extremes: bool

    def measured(
        self,
        units: Sequence[Site],
        samples: Sequence[Feeds],
        right: Iterable[Values],
        runtime: Runtime,
    ) -> dict[Site, Effect]:
        """Return the effects of roundings; they are not known inside bodies, nor before a node without a gradient."""
        # rounding -> the values whose gradients tell its effect; `places`: rounding -> its columns in the result
        moved = {unit: _moved(unit) for unit in units if unit.scope is self.plan.main}
        places = dict[Site, slice]()

        def write(work: Derivative, slopes: Slopes) -> list[Term]:
            index, numbers = work.index, list[Term]()
            # upstream of a node without a gradient rule the gradient lacks a part: nothing is known there
            blind = index.read_by(index.ancestors(set(walk.outputs(work.gaps))))
            for unit, names in moved.items():
                if blind.isdisjoint(names):
                    start = len(numbers)
                    numbers += self._numbers(work, unit, [n for n in names if n in slopes], slopes)
                    places[unit] = slice(start, len(numbers))
            return numbers

        names = set(chain.from_iterable(moved.values()))
        try:
            found = measured(self.model, self.goal, samples, right, runtime, names, write)
        except SurgeonError:
            return {}
        return {unit: self._effect(unit, found[:, place]) for unit, place in places.items()}

    def _numbers(
        self, work: Derivative, unit: Site, moved: Sequence[str], slopes: Slopes
    ) -> Iterator[Term]:
        """Yield the extremes of a value, then the norms of what its rounding does."""
        tape = work.tape
        value = Term(tape, unit.name, _FLOAT)
        if self.extremes and unit.constant is None:
            size = value.function("Abs")
            yield tape.op("ReduceMax", size, keepdims=0)
            yield tape.op("ReduceMin", (size > 0).where(size, inf), keepdims=0)
        # The error of the outputs is about gradient * (rounded - value), summed up as a norm. For a large constant this
        # is estimated from what its readers compute: gradient * result * relative rounding error (see `_effect`).
        for name in moved:
            changed = Term(tape, name, _FLOAT)
            error = changed if _is_large(unit) else self._error(unit, value)
            yield tape.op("ReduceL2", slopes[name] * error, keepdims=0)

    def _error(self, unit: Site, value: Term) -> Term:
        limit = largest(dtypes.numpy_dtype(self.plan.narrow))
        # a constant beyond the range is clamped to its end, so that the loss is finite
        inside = value.tape.op("Clip", value, -limit, limit) if unit.name in self.clamped else value
        rounded = inside.cast(self.plan.narrow).cast(_FLOAT)
        # Inf - Inf would be NaN: no error where both are equal
        return rounded.equals(value).where(0.0, rounded - value)

    def _effect(self, unit: Site, found: Wide) -> Effect:
        # the columns that `_numbers` made: two extremes, if asked for, then the norms
        extremes = 2 if self.extremes and unit.constant is None else 0
        error = hypot(*found[:, extremes:].flat)
        if _is_large(unit) and unit.constant is not None:
            error *= loss(self.model, unit.constant, self.plan.narrow)
        error = inf if isnan(error) else error
        if not extremes:
            return Effect(error)
        return Effect(error, float(found[:, 0].max()), float(found[:, 1].min()))


def _is_large(unit: Site) -> bool:
    return unit.constant is not None and prod(unit.constant.dims) > _LARGE


def _moved(unit: Site) -> list[str]:
    """Return the values whose gradients an effect is computed from: a large constant's readers make them."""
    if not _is_large(unit):
        return [unit.name]
    return [out.name for reader, _ in unit.readers for out in reader.outputs if out is not None]
