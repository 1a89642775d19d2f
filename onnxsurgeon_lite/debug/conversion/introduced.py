"""How much error each node brings to the outputs when it alone is rounded."""

from collections import defaultdict
from collections.abc import Collection
from math import isfinite

from onnxsurgeon_lite.debug.conversion.guard import Guard
from onnxsurgeon_lite.debug.conversion.result import Introduced
from onnxsurgeon_lite.graph.scopes import Provenances
from onnxsurgeon_lite.surgery.precision import Step


def introduced(guard: Guard, kept: Collection[str]) -> list[Introduced]:
    """Measure each node, the largest error first."""
    units = guard.units
    by_step = defaultdict[Step, set[int]](set)
    for number, site in enumerate(units):
        steps = (
            [site.maker]
            if site.maker is not None and site.constant is None
            else [r for r, _ in site.readers]
        )
        for step in steps:
            by_step[step].add(number)
    found = []
    for step, numbers in by_step.items():
        excess = guard.excess(frozenset(numbers))
        node, node_id = step.node, step.node.doc_string
        sizes = [
            guard.magnitudes[u.name]
            for u in step.outputs
            if u is not None and u.name in guard.magnitudes
        ]
        place = str(Provenances([node], {})[0])
        row = (node_id, node.name, node.op_type, excess if isfinite(excess) else None)
        found.append(Introduced(*row, max(sizes, default=None), node_id in kept, place))
    return sorted(found, key=lambda n: (n.excess is not None, -(n.excess or 0.0)))
