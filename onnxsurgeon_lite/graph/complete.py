"""Complete the names of values, nodes and selectors, quickly for any number of them."""

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import chain, islice

from onnxsurgeon_lite.graph.bodies import inner_values
from onnxsurgeon_lite.graph.index import FUNCTION_PATH, GraphIndex, function_path
from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.names import starting

_MOST = 200  # completions offered at a time


class Completions:
    """Completions where a value or a node is expected."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
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

    def inputs(self, typed: str) -> list[str]:
        """Complete graph inputs, constants excluded."""
        return _starting(sorted(self.index.inputs.keys() - self.index.initializers), typed)

    def outputs(self, typed: str) -> list[str]:
        """Complete graph outputs."""
        return _starting(sorted(self.index.outputs), typed)

    def functions(self, typed: str) -> list[str]:
        """Complete functions: `domain::name`."""
        found = map(function_path, self.index.model.proto.functions)
        return _starting(sorted(path.removeprefix(FUNCTION_PATH) for path in found), typed)

    def ops(self, typed: str) -> list[str]:
        """Complete operator types."""
        return _starting(self._ops, typed)

    def scopes(self, typed: str) -> list[str]:
        """Complete module paths."""
        return _starting(self._scopes, typed)

    def classes(self, typed: str) -> list[str]:
        """Complete module classes."""
        return _starting(self._classes, typed)

    def sources(self, typed: str) -> list[str]:
        """Complete source lines."""
        return _starting(self._sources, typed)

    def _selectors(self, typed: str) -> list[str]:
        """Complete the part after `op:` and other prefixes, or the prefix itself."""
        kinds = {
            "op:": self.ops,
            "scope:": self.scopes,
            "class:": self.classes,
            "src:": self.sources,
        }
        for kind, complete in kinds.items():
            if typed.startswith(kind):
                return [kind + name for name in complete(typed.removeprefix(kind))]
        begun = [kind for kind in kinds if typed and kind.startswith(typed)]  # `o` may become `op:`
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

    @cached_property
    def _ops(self) -> list[str]:
        return sorted(self.index.operators)

    @cached_property
    def _scopes(self) -> list[str]:
        return _sorted(
            path for scope in self.index.origins.scopes for path in Provenance(scope).around()
        )

    @cached_property
    def _classes(self) -> list[str]:
        return _sorted(name.rpartition(".")[2] for name in self.index.origins.classes)

    @cached_property
    def _sources(self) -> list[str]:
        return _sorted(origin.source for origin in self.index.origins)


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(set(names) - {""})


def _starting(names: list[str], typed: str) -> list[str]:
    return list(islice(starting(names, typed), _MOST))
