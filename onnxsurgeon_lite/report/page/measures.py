"""Numbers along a model."""

import math
from collections.abc import Mapping

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.names import is_count
from onnxsurgeon_lite.report.page.data import Measure, Number
from onnxsurgeon_lite.tensors.comparison import Comparison


def position_of(node_id: str) -> int:
    """Return the node of the main graph that an id belongs to, a body's node to the one around it; -1 for none."""
    digits = node_id.removeprefix("@").partition("/")[0]
    return int(digits) if node_id.startswith("@") and is_count(digits) else -1


def against_references(index: GraphIndex, compared: Mapping[str, Comparison]) -> Measure:
    """Return the errors of values, with what is allowed."""
    return Measure(
        title="Error along the model",
        unit="max abs",
        limit="allowed",
        graph=0,
        nodes=[index.producer.get(name, -1) for name in compared],
        names=[*compared],
        numbers=[
            None if c.reason in ("shape", "dtype", "non-finite") else finite(c.max_abs)
            for c in compared.values()
        ],
        limits=[finite(c.allowed) for c in compared.values()],
        bad=[not c.match for c in compared.values()],
    )


def largest(index: GraphIndex, sizes: Mapping[str, tuple[float, bool]], limit: float) -> Measure:
    """Return the largest magnitudes of values, each with whether it is as it should be."""
    return Measure(
        title="Largest magnitude along the model",
        unit="max |x|",
        limit="allowed",
        graph=0,
        nodes=[index.producer[name] for name in sizes],
        names=[*sizes],
        numbers=[finite(size) for size, _ in sizes.values()],
        limits=[finite(limit)] * len(sizes),
        bad=[not good for _, good in sizes.values()],
    )


def finite(number: float | None) -> Number:
    """Return a number, None for what is not finite."""
    return number if number is not None and math.isfinite(number) else None
