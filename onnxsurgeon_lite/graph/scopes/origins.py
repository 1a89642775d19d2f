"""Find the source place of each node of a graph, and the nodes of a source place.

A node's own words come first; then the names of its weights (`encoder.layer.4.dense.weight`); then the module that
its neighbors are in.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, takewhile
from typing import TypeVar, overload

from onnx import NodeProto

from onnxsurgeon_lite.graph.scopes.origin import (
    CALL,
    Provenance,
    fits_class,
    fits_scope,
    fits_source,
    origin_of,
)
from onnxsurgeon_lite.model import is_standard
from onnxsurgeon_lite.names import beginning, starting

Key = TypeVar("Key", bound=Hashable)


class Provenances(Sequence[Provenance]):
    """Every node's origin: its own words, otherwise its weights' names, otherwise the module of its neighbors.

    Each is computed on demand, because a command asks about few nodes of many.
    """

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        weights: Collection[str],
    ) -> None:
        """Prepare; no node is read yet.

        Args:
            weights: names of the initializers; a parameter is named by its module's path and its own name.
        """
        self._nodes = nodes
        self._weights = weights
        self._stated = dict[int, Provenance]()
        self._found = dict[int, Provenance]()

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, position: int) -> Provenance: ...
    @overload
    def __getitem__(self, position: slice) -> list[Provenance]: ...
    def __getitem__(self, position: int | slice) -> Provenance | list[Provenance]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        return self._at(range(len(self))[position])

    def __iter__(self) -> Iterator[Provenance]:
        return iter(self._all)

    @cached_property
    def _all(self) -> list[Provenance]:
        return [self._at(position) for position in range(len(self))]

    def _at(self, position: int) -> Provenance:
        origin = self._stated_or_owned(position)
        # with nothing to compare to, the node's own words are all
        if _is_placed(origin) or not self._some_are_placed:
            return origin
        found = self._found.get(position)
        if found is None:
            found = self._found[position] = self._among_neighbors(position, origin)
        return found

    def _stated_or_owned(self, position: int) -> Provenance:
        """Return the origin from a node's own words, or from its weights' names."""
        origin = self._stated.get(position)
        if origin is None:
            origin = origin_of(self._nodes[position])
            if not origin.modules and self._owners and position in self._owned:
                origin = self._by_weights(position, origin)
            self._stated[position] = origin
        return origin

    def _by_weights(self, position: int, origin: Provenance) -> Provenance:
        # exporters store equal weights once, under one owner's name: shared weights tell nothing
        weights = (name for name in self._owned[position] if self._uses[name] == 1)
        owners = set(map(self._owners.__getitem__, weights))
        scope = owners.pop() if len(owners) == 1 else ""
        # TorchScript numbers the calls of one module: `/fc_1/Gemm` can be the second call of `fc`
        if not scope or (origin.known and CALL.sub("", origin.scope) != scope):
            return origin
        # a fused node has the weights of one of its parts and the value of another
        is_whole = is_standard(self._nodes[position])
        return Provenance(scope, _enclosing(scope, self._class_of), (), known=is_whole)

    def _among_neighbors(self, position: int, origin: Provenance) -> Provenance:
        """Place a node without an origin in the innermost module that contains the nodes before and after it."""
        before = self._nearest(position, self._before)
        after = before and self._nearest(position, self._users.__getitem__)
        if not after:
            return origin
        # the innermost module that contains all of them
        shared = takewhile(
            lambda parts: len(set(parts)) == 1,
            zip(*(s.split(".") for s in before + after), strict=False),
        )
        scope = ".".join(parts[0] for parts in shared)
        return Provenance(scope, _enclosing(scope, self._class_of), origin.frames)

    def _nearest(self, position: int, edges: Callable[[int], Iterable[int]]) -> list[str]:
        """Return the scopes of the nearest nodes with a known scope, in one direction."""
        scopes = []
        seen = {position}
        pending = list(edges(position))
        while pending and len(seen) < 64:
            other = pending.pop()
            if other in seen:
                continue
            seen.add(other)
            origin = self._stated_or_owned(other)
            if _is_placed(origin):  # known: no need to look further there
                scopes.append(origin.scope)
            else:
                pending += edges(other)
        return scopes

    def _before(self, position: int) -> list[int]:
        makers = self._makers
        return [makers[name] for name in self._values[position][0] if name in makers]

    @cached_property
    def scopes(self) -> dict[str, list[int]]:
        """Module path -> the nodes directly in it."""
        return _inverted([origin.scope] for origin in self)

    @cached_property
    def classes(self) -> dict[str, list[int]]:
        """Class, with its package -> the nodes in its modules."""
        return _inverted({name for _, name in origin.modules} for origin in self)

    @cached_property
    def lines(self) -> dict[tuple[str, int], list[int]]:
        """(file, line) -> the nodes that a call there leads to."""
        return _inverted(set(origin.frames) for origin in self)

    def in_scope(self, pattern: str) -> list[int]:
        """Return the nodes in matching modules; see `fits_scope`."""
        # paths that begin like the pattern, found by bisection
        near = (path.removesuffix(".") for path in starting(self._ordered, beginning(pattern)))
        return joined(self.scopes[path] for path in near if fits_scope(pattern, path))

    def of_class(self, pattern: str) -> list[int]:
        """Return the nodes in modules of a class; see `fits_class`."""
        return joined(nodes for n, nodes in self.classes.items() if fits_class(pattern, n))

    def from_source(self, pattern: str) -> list[int]:
        """Return the nodes that calls at a line, or in a file, lead to; see `fits_source`."""
        return joined(nodes for at, nodes in self.lines.items() if fits_source(pattern, *at))

    def paths(self) -> Iterator[str]:
        """Yield the path of each module, and those around it."""
        return chain.from_iterable(Provenance(scope).around() for scope in self.scopes)

    def class_names(self) -> Iterator[str]:
        """Yield the classes, without their packages."""
        return (name.rpartition(".")[2] for name in self.classes)

    def sources(self) -> Iterator[str]:
        """Yield the line of each node, as `model.py:42`."""
        return (origin.source for origin in self)

    @cached_property
    def _ordered(self) -> list[str]:
        """The module paths, each with a dot appended."""
        return sorted(f"{path}." for path in self.scopes)

    @cached_property
    def _some_are_placed(self) -> bool:
        """True if neighbors can tell anything."""
        return any(map(_is_placed, map(self._stated_or_owned, range(len(self)))))

    @cached_property
    def _class_of(self) -> dict[str, str]:
        """Module path -> class, from the nodes' own metadata."""
        speaking = (position for position, n in enumerate(self._nodes) if n.metadata_props)
        return {path: name for p in speaking for path, name in origin_of(self._nodes[p]).modules}

    @cached_property
    def _values(self) -> Sequence[tuple[list[str], list[str]]]:
        """The inputs and the outputs of each node."""
        return [(node.input[:], node.output[:]) for node in self._nodes]

    @cached_property
    def _owners(self) -> dict[str, str]:
        """Weight -> the module in its name."""
        # names such as `onnx::MatMul_12` or `/a/b` are no parameter names
        named = (name for name in self._weights if ":" not in name and "/" not in name)
        return {name: name.rpartition(".")[0] for name in named if name.find(".") > 0}

    @cached_property
    def _owned(self) -> dict[int, set[str]]:
        """Node -> those of its inputs that have an owner; the nodes with such inputs."""
        owned = self._owners.keys()
        each = ((place, owned & inputs) for place, (inputs, _) in enumerate(self._values))
        return {place: weights for place, weights in each if weights}

    @cached_property
    def _uses(self) -> Counter[str]:
        return Counter(chain.from_iterable(self._owned.values()))

    @cached_property
    def _makers(self) -> dict[str, int]:
        made = enumerate(self._values)
        return {name: place for place, (_, outputs) in made for name in outputs if name}

    @cached_property
    def _users(self) -> dict[int, list[int]]:
        users = defaultdict[int, list[int]](list)
        makers = self._makers
        for position, (inputs, _) in enumerate(self._values):
            for name in inputs:
                if name in makers:
                    users[makers[name]].append(position)
        return users


def _is_placed(origin: Provenance) -> bool:
    return origin.known or bool(origin.scope)


def _enclosing(scope: str, classes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the enclosing modules with a known class, the path included; empty if its own class is unknown."""
    if scope not in classes:
        return ()
    paths = [""] + Provenance(scope).around()
    return tuple((path, classes[path]) for path in paths if path in classes)


def _inverted(keys: Iterable[Iterable[Key]]) -> dict[Key, list[int]]:
    """Key -> the positions that have it."""
    found = defaultdict[Key, list[int]](list)
    for place, own in enumerate(keys):
        for key in own:
            found[key].append(place)
    return dict(found)


def joined(lists: Iterable[list[int]]) -> list[int]:
    """Merge sorted lists without repeats."""
    several = list(lists)
    return several[0] if len(several) == 1 else sorted(set(chain.from_iterable(several)))
