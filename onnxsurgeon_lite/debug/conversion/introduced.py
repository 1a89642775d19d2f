"""How much error each node brings to the outputs."""

from collections import defaultdict
from collections.abc import Collection
from math import hypot, isfinite

from onnxsurgeon_lite.debug.conversion.effects import Effect
from onnxsurgeon_lite.debug.conversion.guard import Guard
from onnxsurgeon_lite.debug.conversion.result import Introduced
from onnxsurgeon_lite.graph.scopes import Provenances
from onnxsurgeon_lite.surgery.precision import PrecisionStep, Site


def introduced(guard: Guard, kept: Collection[str]) -> list[Introduced]:
    """Return what the roundings of each node's results and constants do, to first order, the largest first."""
    by_step = defaultdict[PrecisionStep, list[Site]](list)
    for unit in guard.units:
        # a result counts for its maker, a constant for all that read it
        for step in [unit.maker] if unit.constant is None else [r for r, _ in unit.readers]:
            if step is not None:
                by_step[step].append(unit)
    found = [_introduced(step, units, guard, kept) for step, units in by_step.items()]
    return sorted(found, key=lambda n: (n.error is not None, -(n.error or 0.0)))


def _introduced(
    step: PrecisionStep, units: list[Site], guard: Guard, kept: Collection[str]
) -> Introduced:
    node, effects = step.node, [guard.effects.get(unit, Effect()) for unit in units]
    error = hypot(*(e.error for e in effects))
    high = max((e.largest for e in effects if e.largest is not None), default=None)
    low = min((e.smallest for e in effects if e.smallest is not None), default=None)
    place = str(Provenances([node], {})[0])
    return Introduced(
        node.doc_string,
        node.name,
        node.op_type,
        error if isfinite(error) else None,
        low,
        high,
        node.doc_string in kept,
        place,
    )
