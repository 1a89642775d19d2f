"""Where boxes and lines go, by Sugiyama's method of igraph; equal structures are laid out once."""

import itertools
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TypeVar

from onnxsurgeon_lite.report.page.data import BoxKind, Drawing, Layout
from onnxsurgeon_lite.search.grouping import groups

Box = tuple[BoxKind, int]
Item = TypeVar("Item", bound=Hashable)
_DIGITS = 2


class Numbers(dict[Item, int]):
    """Items in the order in which they were asked for, each with its number."""

    def __missing__(self, item: Item) -> int:
        self[item] = number = len(self)
        return number


class Sketch:
    """Boxes, each with its number, and lines between them, each with the values that run along it."""

    def __init__(self, boxes: Iterable[Box] = ()) -> None:
        self.boxes: Numbers[Box] = Numbers(zip(boxes, itertools.count(), strict=False))
        self.lines = dict[tuple[int, int], dict[int, None]]()

    def add(self, start: Box, end: Box, value: int) -> None:
        """Let a value run from one box to another."""
        self.lines.setdefault((self.boxes[start], self.boxes[end]), {})[value] = None


def sketched(reads: Mapping[int, Iterable[int]], makes: Mapping[int, Iterable[int]]) -> Sketch:
    """Return nodes with the values between them; what others make enters, what none of them reads leaves."""
    sketch = Sketch(("node", node) for node in reads)
    makers = {value: node for node, made in makes.items() for value in made}
    read = set[int]()
    for reader, values in reads.items():
        for value in values:
            read.add(value)
            start: Box = ("node", makers[value]) if value in makers else ("in", value)
            sketch.add(start, ("node", reader), value)
    for value, maker in makers.items():
        if value not in read:
            sketch.add(("node", maker), ("out", value), value)
    return sketch


class Draftsman:
    """Draws, and keeps the layouts."""

    def __init__(self) -> None:
        self.layouts = list[Layout]()
        self._known = dict[object, int]()

    def draw(self, sketch: Sketch) -> Drawing:
        """Lay boxes out so that values run downwards."""
        # the layout depends on numbers alone: equal layers of a model share one
        key = len(sketch.boxes), tuple(sketch.lines)
        if key not in self._known:
            self._known[key] = len(self.layouts)
            self.layouts.append(_layout(*key))
        lines = [(start, end, list(values)) for (start, end), values in sketch.lines.items()]
        return Drawing(list(sketch.boxes), lines, self._known[key])


def _layout(count: int, lines: Sequence[tuple[int, int]]) -> Layout:
    """Lay boxes out in another thread: a signal raises in the main one, and igraph does not survive that."""
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(_native_layout, count, lines).result()


def _native_layout(count: int, lines: Sequence[tuple[int, int]]) -> Layout:
    """Lay connected boxes out, and what is apart side by side: igraph mixes up the bends of several components."""
    graph_of = _igraph().GraphBase
    # 1. which boxes are connected
    component = graph_of(count, lines, True).connected_components("weak")
    members = groups((number, box) for box, number in enumerate(component))
    own = groups((component[start], line) for line, (start, _) in enumerate(lines))
    found = Layout([0.0] * count, [0.0] * count, [[]] * len(lines))
    # 2. lay out each component, then move it to the right of those before
    left = 0.0
    for number, boxes in members.items():
        # the boxes and lines of a component, numbered from 0
        local = {box: place for place, box in enumerate(boxes)}
        ends = [(local[lines[line][0]], local[lines[line][1]]) for line in own[number]]
        places, routes = graph_of(len(boxes), ends, True)._layout_sugiyama(None, None, 1, 1, 100)
        _set_apart(itertools.chain(places, *routes))
        # bends may lie further left or right than boxes
        shift = left - min(x for x, _ in itertools.chain(places, *routes))
        for box, (x, y) in zip(boxes, places, strict=True):
            found.x[box], found.y[box] = round(x + shift, _DIGITS), round(y, _DIGITS)
        for line, bends in zip(own[number], routes, strict=True):
            found.bends[line] = [(round(x + shift, _DIGITS), round(y, _DIGITS)) for x, y in bends]
        left = 1 + shift + max(x for x, _ in itertools.chain(places, *routes))
    return found


def _set_apart(points: Iterable[list[float]]) -> None:
    """Move what overlaps on one level to the right, in place: igraph lets some boxes overlap."""
    for level in groups((point[1], point) for point in points).values():
        level.sort()
        for before, point in itertools.pairwise(level):
            # one column apart from the neighbor on the left
            point[0] = max(point[0], before[0] + 1)


@cache
def _igraph() -> ModuleType:
    """Return igraph's core alone: what is around it imports matplotlib, and takes longer than a page."""
    package = find_spec("igraph")
    places = package.submodule_search_locations if package else None
    name = "igraph._igraph"
    spec = PathFinder.find_spec(name, places)
    # loaded, or not where it is expected: the usual import, which also raises the usual error
    if name in sys.modules or spec is None or spec.loader is None:
        return import_module(name)
    sys.modules[name] = core = module_from_spec(spec)
    spec.loader.exec_module(core)
    return core
