"""How far each rounding moves the outputs, to first order: its error, times the gradient of the outputs by it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, isnan, prod

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.debug.conversion.goal import Goal, Values
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.surgery.precision import Plan, Site
from onnxsurgeon_lite.surgery.precision.losses import loss
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.narrow import largest

_LARGE = 4096  # elements of a constant whose effect is taken from its readers' results
_TOTAL = "\x01total"
_FOUND = "\x01effects"
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
        right: Sequence[Values],
        runtime: Runtime,
    ) -> dict[Site, Effect]:
        """Return the effects of roundings; they are not known inside bodies, nor before a node without a gradient."""
        outer = [unit for unit in units if unit.scope is self.plan.main]
        try:
            outputs = [n for n, v in right[0].items() if getattr(v, "dtype", None) == np.float32]
            work = Derivative.of(self._with_total(outputs), [_TOTAL])
            known = self._write(work, outer)
            run = opened(GraphIndex.of(work.model()), runtime)
            runs = [
                np.asarray(run({**feeds, **self._signs(outputs, values, n)})[_FOUND])
                for n, (feeds, values) in enumerate(zip(samples, right, strict=True))
            ]
        except SurgeonError:
            return {}
        return {unit: self._effect(unit, runs, places) for unit, places in known.items()}

    def _with_total(self, outputs: Sequence[str]) -> Model:
        """Return the model with one number made of the outputs, each element with a weight of its own."""
        model = self.model.copy()
        graph = model.proto.graph
        kinds = {output.name: output.type for output in graph.output}
        sums = []
        for name in outputs:
            graph.input.add(name=_signs_of(name), type=kinds[name])
            weighted, total = f"{_TOTAL}\x01{name}", f"{_TOTAL}\x01{name}\x01"
            sums.append(total)
            graph.node.extend(
                (
                    helper.make_node("Mul", [name, _signs_of(name)], [weighted]),
                    helper.make_node("ReduceSum", [weighted], [total], keepdims=0),
                )
            )
        graph.node.append(helper.make_node("Sum", sums, [_TOTAL]))
        del graph.output[:]
        graph.output.append(helper.make_tensor_value_info(_TOTAL, _FLOAT, []))
        return model

    def _signs(self, outputs: Sequence[str], right: Values, seed: int) -> dict[str, Array]:
        """Return random signs of outputs' elements: a squared sum of them is, on average, the sum of the squares."""
        rng = np.random.default_rng(seed)
        values = {name: np.asarray(right[name]) for name in outputs}
        return {
            _signs_of(name): rng.choice(np.array([-1, 1], np.float32), value.shape)
            / np.float32(self.goal.scale(value))
            for name, value in values.items()
        }

    # the nodes of one effect

    def _write(self, work: Derivative, units: Sequence[Site]) -> dict[Site, slice]:
        """Write what measures each rounding; return where the result has it."""
        moved = {unit: _moved(unit) for unit in units}
        names = {name for found in moved.values() for name in found}
        slopes = work.gradients(_TOTAL, work.tape.number(1.0, _FLOAT), names, strict=False)
        index = work.index
        blind = {n for g in work.gaps for p in index.ancestors(g.output) for n in index.reads[p]}
        numbers: list[Term] = []
        places = {}
        for unit in units:
            if blind.isdisjoint(moved[unit]):
                start = len(numbers)
                numbers += self._numbers(
                    work, unit, [n for n in moved[unit] if n in slopes], slopes
                )
                places[unit] = slice(start, len(numbers))
        tape = work.tape
        result = tape.concat(*(tape.flat(number) for number in numbers))
        kind = helper.make_tensor_type_proto(_FLOAT, [None])
        del index.model.proto.graph.output[:]
        work.output(_FOUND, result, kind)
        return places

    def _numbers(
        self, work: Derivative, unit: Site, moved: Sequence[str], slopes: Mapping[str, Term]
    ) -> Iterator[Term]:
        """Yield the extremes of a value, then the norms of what its rounding does."""
        tape = work.tape
        value = Term(tape, unit.name, _FLOAT)
        if self.extremes and unit.constant is None:
            size = value.function("Abs")
            yield tape.op("ReduceMax", size, keepdims=0)
            yield tape.op("ReduceMin", (size > 0).where(size, inf), keepdims=0)
        for name in moved:
            changed = Term(tape, name, _FLOAT)
            error = changed if _is_large(unit) else self._error(unit, value)
            yield tape.op("ReduceL2", slopes[name] * error, keepdims=0)

    def _error(self, unit: Site, value: Term) -> Term:
        limit = largest(dtypes.numpy_dtype(self.plan.narrow))
        inside = value.tape.op("Clip", value, -limit, limit) if unit.name in self.clamped else value
        rounded = inside.cast(self.plan.narrow).cast(_FLOAT)
        return rounded.equals(value).where(0.0, rounded - value)

    def _effect(self, unit: Site, runs: Sequence[Array], place: slice) -> Effect:
        found = np.stack([run[place] for run in runs]).astype(np.float64)
        extremes = 2 if self.extremes and unit.constant is None else 0
        error = hypot(*found[:, extremes:].flat)
        if _is_large(unit) and unit.constant is not None:
            error *= loss(self.model, unit.constant, self.plan.narrow)
        error = inf if isnan(error) else error
        if not extremes:
            return Effect(error)
        return Effect(error, float(found[:, 0].max()), float(found[:, 1].min()))


def _signs_of(name: str) -> str:
    return f"\x01signs\x01{name}"


def _is_large(unit: Site) -> bool:
    return unit.constant is not None and prod(unit.constant.dims) > _LARGE


def _moved(unit: Site) -> list[str]:
    """Return the values whose gradients an effect is computed from: a large constant's readers make them."""
    if not _is_large(unit):
        return [unit.name]
    return [out.name for reader, _ in unit.readers for out in reader.outputs if out is not None]
