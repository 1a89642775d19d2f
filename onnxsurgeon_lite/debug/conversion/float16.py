"""Predict what float16 loses, and which nodes must stay in float32."""

from dataclasses import dataclass, replace
from math import inf, isnan

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.debug.conversion.goal import Goal
from onnxsurgeon_lite.debug.conversion.guard import Guard
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.matching.judge import Metric, Values
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress, Shown
from onnxsurgeon_lite.tensors.comparison import DEFAULTS, compare
from onnxsurgeon_lite.tensors.dtypes import Array, has_floats, is_array, wide

_LARGEST = 65504.0  # of float16
_VANISHING = 2.0**-25  # rounds to even: to zero
_STEP = 2.0**-24  # between the smallest numbers of float16
_CLAMP = 1e-7  # converters raise smaller constants to this


@dataclass(frozen=True)
class Float16Risk:
    """The losses of one node in float16.

    Attributes:
        largest: the largest finite magnitude. overflowing: the number of elements above 65504.
        vanishing: the number of nonzero elements that would become zero.
        elements: the number of all elements.
        clamped: names of the node's constants that a converter would clamp.
        keep: True when the node should stay in float32.
        place: the module, class and source line of the node.
    """

    id: str
    name: str
    op_type: str
    value: str
    largest: float
    overflowing: int
    vanishing: int
    elements: int
    clamped: tuple[str, ...]
    keep: bool
    place: str


@dataclass(frozen=True)
class Float16Risks(Shown):
    """The nodes that float16 endangers.

    Attributes:
        exclude: the names of those to keep in float32.
        simulated: what a simulation of the model with these in float32 gave.
    """

    nodes: list[Float16Risk]
    exclude: list[str]
    simulated: str


def float16_risk(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, progress: Progress
) -> Float16Risks:
    """List the nodes at risk in float16, and the nodes that must stay in float32 for right outputs.

    The list is the one that `convert` finds for float16's tolerance: with it, a simulation of the converted model, with
    one rounding on each edge, gives finite outputs within the tolerance.

    Raises:
        FeedsError: an output is not finite in float32 already.
    """
    observer = Observer(index, runtime)
    observer.feed(feeds)
    risks = dict[int, Float16Risk]()
    for name, value in observer.sweep(index.producer, progress):
        if is_array(value) and value.dtype.kind == "f" and value.size:
            risk = _risk(index, name, value)
            # of a node with several outputs, the worst one
            worst = risks.setdefault(index.producer[name], risk)
            if (risk.keep, risk.overflowing) > (worst.keep, worst.overflowing):
                risks[index.producer[name]] = risk
    # search which nodes must stay in float32: the goal is an error of 1, in units of the tolerance
    goal = Goal(metric=Metric("the error", _as_allowed, 1.0))
    guard = Guard(index.model, "float16", (), False, goal, [feeds], runtime, progress)
    kept, _, measured = guard.kept()
    # `keep` from here on is what the search found, no longer the guess from the magnitudes
    found = [
        replace(risk, keep=risk.id in kept)
        for risk in risks.values()
        if risk.id in kept or risk.overflowing or risk.vanishing or risk.clamped
    ]
    found.sort(key=lambda r: (not r.keep, -r.overflowing, -r.vanishing / r.elements))
    named = [risk.name or risk.id for risk in risks.values() if risk.id in kept]
    # nodes of bodies have no measured values
    inside = sorted(kept - {risk.id for risk in risks.values()})
    return Float16Risks(found, list(dict.fromkeys(named + inside)), _said(measured))


def _as_allowed(reference: Values, actual: Values) -> float:
    """Return the largest error as a multiple of what float16's tolerance allows; 0 where all are subnormals' steps."""
    most = 0.0
    for name, expected in reference.items():
        value = actual[name]
        if not has_floats(value):
            continue
        found = compare(value, np.asarray(expected), DEFAULTS["float16"])
        error, allowed = found.max_abs, found.allowed
        if found.worst is not None:
            error, allowed = found.worst.difference, found.worst.allowed
        if found.max_abs > _STEP:
            most = max(most, error / allowed if allowed else inf)
    return most


def _said(measured: float) -> str:
    start = "with these in float32, simulated, the outputs are"
    if isnan(measured):
        return f"{start} not finite"
    return f"{start} finite: {measured:.3g} of the error that is allowed"


def _risk(index: GraphIndex, name: str, value: Array) -> Float16Risk:
    position = index.producer[name]
    node = index.nodes[position]
    magnitudes = np.abs(wide(value))
    over = int((magnitudes > _LARGEST).sum())
    present = magnitudes > 0
    vanishing = int((present & (magnitudes <= _VANISHING)).sum())
    clamped = tuple(read for read in index.reads[position] if _is_clamped(index, read))
    # too large, clamped by converters, or most numbers become 0
    keep = bool(over or clamped or vanishing * 2 > int(present.sum()))
    finite = magnitudes[np.isfinite(magnitudes)]
    largest = float(finite.max(initial=0.0))
    return Float16Risk(
        f"@{position}",
        node.name,
        node.op_type,
        name,
        largest,
        over,
        vanishing,
        value.size,
        clamped,
        keep,
        str(index.origins[position]),
    )


def _is_clamped(index: GraphIndex, name: str) -> bool:
    constant = index.dense(name)
    if constant is None or constant.data_type != TensorProto.FLOAT:
        return False
    magnitudes = np.abs(wide(index.model.array(constant)))
    return bool(((magnitudes > _LARGEST) | ((magnitudes > 0) & (magnitudes < _CLAMP))).any())
