"""Rename values or nodes."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import GraphIndex, described
from onnxsurgeon_lite.graph.selecting.select import select_node
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import one_value
from onnxsurgeon_lite.surgery import rename_values


@dataclass(frozen=True)
class Rename:
    """Rename values (also inputs and outputs) or nodes, all at once, so that two names can be swapped.

    Each pair is (old, new). The old name is a selector, or a pattern: each `*` in the new name repeats the match of
    the same `*` (`('*', 'left/*')` adds a prefix). Uses inside bodies, annotations and training graphs are renamed
    too. Values defined inside bodies and functions cannot be renamed.

    Attributes:
        names: old -> new.
        nodes: rename nodes, not values.

    Example:
        >>> print(osl.rename("whole_model.onnx", {"23": "features"}, verify=True))
        renamed value '23' to 'features'
        diff: no difference; named differently: 1 value
        verified: 1 output agrees
    """

    names: tuple[tuple[str, str], ...]
    nodes: bool = False
    name: ClassVar[str] = "rename"

    @in_bodies(values=("names",), each="names")
    def apply(self, model: Model) -> PassResult:
        """Rename them.

        Raises:
            UnknownNameError, AmbiguousNameError: an old name matches nothing, or several values.
            EditError: a new name is empty or taken, or two values get the same name.
        """
        index = GraphIndex.of(model)
        return self._rename_nodes(index) if self.nodes else self._rename_values(index)

    def _rename_values(self, index: GraphIndex) -> PassResult:
        notes = list[str]()
        names = dict[str, str]()
        for old, new in self.names:
            # a name that has a `*` itself is no pattern
            if "*" in new and old not in index:
                names.update(_matched(index.values(), old, new, index.graph.name, "value"))
            else:
                names[one_value(index, old, notes)] = new
        names = {old: new for old, new in names.items() if old != new}
        around = index.model.enclosing.names
        # names that stay, in the graph and around it, must not be taken
        stay = {n for n in names.values() if (n in index or n in around) and n not in names}
        _refuse_collisions(names, stay)
        result = index.model.copy()
        rename_values(result.proto, result.graph, names)
        changes = [f"renamed value {old!r} to {new!r}" for old, new in names.items()]
        return PassResult.of(index.model, result, changes, notes)

    def _rename_nodes(self, index: GraphIndex) -> PassResult:
        # nodes without a name are no target of a pattern
        by_name = {node.name: position for position, node in enumerate(index.nodes)}
        names = dict[int, str]()
        for old, new in self.names:
            if "*" in new and old not in by_name:
                found = _matched(filter(None, by_name), old, new, index.graph.name, "node")
                names.update((by_name[name], given) for name, given in found)
            else:
                names[select_node(index, old)] = new
        stay = {node.name for place, node in enumerate(index.nodes) if place not in names}
        _refuse_collisions({index.describe(place): new for place, new in names.items()}, stay)
        result = index.model.copy()
        changes = []
        for position, new in names.items():
            node = result.graph.node[position]
            if node.name != new:
                changes.append(
                    f"renamed node {described(node, index.node_id(position))} to {new!r}"
                )
                node.name = new
        return PassResult.of(index.model, result, changes)


def _matched(
    known: Iterable[str], old: str, new: str, graph: str, kind: str
) -> Iterator[tuple[str, str]]:
    """Yield (name, new name) for every name that matches the pattern."""
    known = list(known)
    if old.count("*") != new.count("*"):
        raise EditError(
            f"{old!r} and {new!r} have different numbers of '*'",
            "each '*' in the new name repeats the match of the same '*' in the old name",
        )
    # each `*` -> its match, which the same `*` of the new name repeats
    pattern = re.compile("(.*)".join(map(re.escape, old.split("*"))), re.DOTALL)
    found = [(name, match) for name in known if (match := pattern.fullmatch(name))]
    if not found:
        raise UnknownNameError(old, f"graph {graph!r}", known, kind)
    first, *rest = new.split("*")
    for name, match in found:
        yield name, first + "".join(map("".join, zip(match.groups(), rest, strict=True)))


def _refuse_collisions(names: dict[str, str], stay: set[str]) -> None:
    times = Counter(names.values())
    for old, new in names.items():
        if not new:
            raise EditError(f"{old!r} cannot be renamed to an empty name", "give a new name")
        if new in stay:
            raise EditError(
                f"{old!r} cannot be renamed to {new!r}: that name is taken",
                f"rename {new!r} too, or choose another name",
            )
        if times[new] > 1:
            both = ", ".join(repr(o) for o, n in names.items() if n == new)
            raise EditError(f"{both} would get the same name {new!r}", "choose different names")
