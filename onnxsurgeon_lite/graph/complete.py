"""Complete the names of values, nodes and selectors, quickly for any number of them."""

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain, islice

from onnxsurgeon_lite.graph.bodies import inner_values
from onnxsurgeon_lite.graph.index import FUNCTION_PATH, GraphIndex, function_path
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.names import starting

_MOST = 200  # completions offered at a time
_SELECTORS = {"op:": "ops", "scope:": "scopes", "class:": "classes", "src:": "sources"}


_NAMES: dict[str, Callable[[GraphIndex], Iterable[str]]] = {
    "inputs": lambda index: index.required_inputs,
    "outputs": lambda index: index.outputs,
    "functions": lambda index: (
        function_path(function).removeprefix(FUNCTION_PATH)
        for function in index.model.proto.functions
    ),
    "ops": lambda index: index.operators,
    "scopes": lambda index: index.origins.paths(),
    "classes": lambda index: index.origins.class_names(),
    "sources": lambda index: index.origins.sources(),
}
"""What can be completed -> its names, in any order."""


class Completions:
    """Completions where a value or a node is expected."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self._known = dict[str, list[str]]()  # kind -> its names
        self._inner = dict[int, list[str]]()  # node -> its inner values, which are slow to list

    def values(self, typed: str) -> list[str]:
        """Complete values and node selectors."""
        return self._selectors(typed) or self._inside(typed) or _starting(self._values, typed)

    def nodes(self, typed: str) -> list[str]:
        """Complete nodes, node selectors, and values, which mean their producers."""
        found = (
            self._selectors(typed) or self._inside(typed) or _starting(self.index.node_names, typed)
        )
        # each once, in this order
        return list(dict.fromkeys(chain(found, _starting(self._values, typed))))[:_MOST]

    def of(self, kind: str, typed: str) -> list[str]:
        """Complete `values`, `nodes`, or names of a kind of `_NAMES`."""
        own = {"values": self.values, "nodes": self.nodes}.get(kind)
        return own(typed) if own else _starting(self._names(kind), typed)

    def _names(self, kind: str) -> list[str]:
        # sorted when they are first asked for
        if kind not in self._known:
            self._known[kind] = sorted(set(_NAMES[kind](self.index)) - {""})
        return self._known[kind]

    def _selectors(self, typed: str) -> list[str]:
        """Complete the part after `op:` and other prefixes, or the prefix itself."""
        for kind, named in _SELECTORS.items():
            if typed.startswith(kind):
                return [kind + name for name in self.of(named, typed.removeprefix(kind))]
        begun = [
            kind for kind in _SELECTORS if typed and kind.startswith(typed)
        ]  # `o` may become `op:`
        return [*begun, *_starting(self._values, typed)][:_MOST] if begun else []

    def _inside(self, typed: str) -> list[str]:
        """Complete the part after `@12/`."""
        inside = re.match(r"@(\d{1,9})/", typed)
        position = int(inside[1]) if inside else len(self.index.nodes)
        if position >= len(self.index.nodes):
            return []
        if position not in self._inner:
            self._inner[position] = sorted(inner_values(self.index, [position]))
        return _starting(self._inner[position], typed)

    @cached_property
    def every(self) -> frozenset[str]:
        """Every name of a value or node, also of bodies and functions; without the spaces around it, too."""
        names = set(self._values)
        for body in self.index.inner_bodies:
            names.update(*((node.name, *node.input, *node.output) for node in body.nodes))
        proto = self.index.model.proto
        names.update(*(chain(function.input, function.output) for function in proto.functions))
        for graph in walk.graphs(proto):
            names.update(
                value.name for value in chain(graph.input, graph.output, graph.initializer)
            )
        return frozenset(names.union(map(str.strip, names)) - {""})

    @cached_property
    def _values(self) -> list[str]:
        return sorted(self.index.values())


def _starting(names: list[str], typed: str) -> list[str]:
    return list(islice(starting(names, typed), _MOST))
