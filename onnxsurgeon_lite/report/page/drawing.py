"""Where boxes and lines go, by Sugiyama's method of igraph; equal structures are laid out once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.report.page.data import BoxKind, Drawing, Layout

Box = tuple[BoxKind, int]
_DIGITS = 2


@dataclass
class Lines:
    """Lines between boxes, each with the values that run along it."""

    values: dict[tuple[Box, Box], dict[int, None]] = field(default_factory=dict)

    def add(self, start: Box, end: Box, value: int) -> None:
        """Let a value run from one box to another."""
        self.values.setdefault((start, end), {})[value] = None


@dataclass
class Draftsman:
    """Draws, and keeps the layouts."""

    layouts: list[Layout] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)

    def draw(self, boxes: Iterable[Box], lines: Lines) -> Drawing:
        """Lay boxes out so that values run downwards."""
        places = {box: number for number, box in enumerate(boxes)}
        for ends in lines.values:
            for box in ends:
                places.setdefault(box, len(places))
        found = [
            (places[start], places[end], [*values]) for (start, end), values in lines.values.items()
        ]
        between = tuple((start, end) for start, end, _ in found)
        key = len(places), between
        if key not in self._known:
            self._known[key] = len(self.layouts)
            self.layouts.append(_layout(*key))
        return Drawing([*places], found, self._known[key])


def _layout(count: int, lines: Sequence[tuple[int, int]]) -> Layout:
    from igraph import Graph

    graph = Graph(n=count, edges=lines, directed=True)
    found = graph.layout_sugiyama()
    x, y = ([round(place[axis], _DIGITS) for place in found] for axis in (0, 1))
    bends = [
        [(round(x, _DIGITS), round(y, _DIGITS)) for x, y in each] for each in found.edge_routing
    ]
    return Layout(x, y, bends)
