"""Where boxes and lines go, by Sugiyama's method of igraph; equal structures are laid out once."""

import itertools
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TypeVar

from onnxsurgeon_lite.report.page.data import BoxKind, Drawing, Layout

Box = tuple[BoxKind, int]
Item = TypeVar("Item", bound=Hashable)
_DIGITS = 2


class Numbers(dict[Item, int]):
    """Items in the order in which they were asked for, each with its number."""

    def __missing__(self, item: Item) -> int:
        self[item] = number = len(self)
        return number


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
        places = Numbers[Box](zip(boxes, itertools.count(), strict=False))
        ends = tuple([(places[start], places[end]) for start, end in lines.values])
        found = [(*e, [*v]) for e, v in zip(ends, lines.values.values(), strict=True)]
        key = len(places), ends
        if key not in self._known:
            self._known[key] = len(self.layouts)
            self.layouts.append(_layout(*key))
        return Drawing([*places], found, self._known[key])


def _layout(count: int, lines: Sequence[tuple[int, int]]) -> Layout:
    """Lay connected boxes out, and what is apart side by side: igraph mixes up the bends of several components."""
    graph_of = _igraph().GraphBase
    component = graph_of(count, lines, True).connected_components("weak")
    members, own = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for box, number in enumerate(component):
        members[number].append(box)
    for line, (start, _) in enumerate(lines):
        own[component[start]].append(line)
    found = Layout([0.0] * count, [0.0] * count, [[]] * len(lines))
    left = 0.0
    for number, boxes in members.items():
        local = {box: place for place, box in enumerate(boxes)}
        ends = [(local[lines[line][0]], local[lines[line][1]]) for line in own[number]]
        places, routes = graph_of(len(boxes), ends, True)._layout_sugiyama(None, None, 1, 1, 100)
        shift = left - min(x for x, _ in itertools.chain(places, *routes))
        for box, (x, y) in zip(boxes, places, strict=True):
            found.x[box], found.y[box] = round(x + shift, _DIGITS), round(y, _DIGITS)
        for line, bends in zip(own[number], routes, strict=True):
            found.bends[line] = [(round(x + shift, _DIGITS), round(y, _DIGITS)) for x, y in bends]
        left = 1 + shift + max(x for x, _ in itertools.chain(places, *routes))
    return found


@cache
def _igraph() -> ModuleType:
    """Return igraph's core alone: what is around it imports matplotlib, and takes longer than a page."""
    package = find_spec("igraph")
    places = package.submodule_search_locations if package else None
    name = "igraph._igraph"
    spec = PathFinder.find_spec(name, places)
    if name in sys.modules or spec is None or spec.loader is None:
        return import_module(name)
    sys.modules[name] = core = module_from_spec(spec)
    spec.loader.exec_module(core)
    return core
