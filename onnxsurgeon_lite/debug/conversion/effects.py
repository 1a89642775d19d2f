"""How far each rounding moves the outputs, to first order: its error, times the gradient of the outputs by it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import hypot, inf, isnan, prod

from onnx import TensorProto

from onnxsurgeon_lite.debug.conversion.goal import Goal
from onnxsurgeon_lite.debug.conversion.slopes import Slopes, measured
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.matching.judge import Values
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.surgery.precision import Plan, Site
from onnxsurgeon_lite.surgery.precision.losses import loss
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.grid import Wide
from onnxsurgeon_lite.tensors.narrow import largest

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
