"""List candidate parameters of an initializer, by its name and by the modules that use it."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable

from onnxsurgeon_lite.graph.index import GraphIndex


class Places:
    """Maps names and modules of a model to a checkpoint, also when one of them has a wrapper module."""

    def __init__(self, index: GraphIndex, parameters: Collection[str]) -> None:
        self._index = index
        self._parameters = parameters
        self._owned: dict[str, list[str]] = defaultdict(list)
        self._inside: dict[str, list[str]] = defaultdict(list)
        for parameter in parameters:
            owner = parameter.rpartition(".")[0]
            self._owned[owner].append(parameter)
            self._inside[owner.rpartition(".")[0]].append(parameter)
        self._way = self._find_way()

    def called(self, name: str) -> list[str]:
        called = _moved(name, self._way)
        return [called] if called in self._parameters else []

    def own(self, name: str) -> list[str]:
        """Return `called`, then the parameters of modules that use it."""
        found = self.called(name)
        for scope in self._scopes(name, surely=True):
            found += self._owned.get(scope, ())
        return list(dict.fromkeys(found))

    def near(self, name: str) -> list[str]:
        """Return `own`, then the parameters of sibling modules."""
        found = self.own(name)
        scopes = self._scopes(name, surely=False)
        for scope in scopes:
            found += self._owned.get(scope, ())
        for scope in scopes:
            found += self._inside.get(scope.rpartition(".")[0], ())
        return list(dict.fromkeys(found))

    def _scopes(self, name: str, surely: bool) -> list[str]:
        users = self._index.consumers.get(name, ())
        origins = [self._index.origins[user] for user in users]
        scopes = [f"{o.scope}." if o.scope else "" for o in origins if o.known or not surely]
        return [_moved(scope, self._way).removesuffix(".") for scope in scopes]

    def _find_way(self) -> tuple[str, str]:
        """Return (prefix to drop, prefix to add) that makes most names equal to the checkpoint's."""
        scopes = {origin.scope for origin in self._index.origins if origin.known}
        names = {*self._index.initializers, *scopes}
        known = {*self._parameters, *self._owned}
        ways = [(drop, put) for drop in ("", *_heads(names)) for put in ("", *_heads(known))]
        return max(ways, key=lambda way: len({_moved(name, way) for name in names} & known))


def wrapper(names: Iterable[str], inner: Container[str]) -> tuple[str, int]:
    """Return the prefix, such as `model.`, behind which most names are those of another checkpoint, and how many."""
    found = Counter(
        name[: dot.end()]
        for name in names
        for dot in re.finditer(r"\.", name)
        if name[dot.end() :] in inner
    )
    return found.most_common(1)[0] if found else ("", 0)


def _heads(names: Iterable[str]) -> list[str]:
    """Return the most common first parts of names, such as `model.`."""
    counts = Counter(name.split(".")[0] for name in names if "." in name)
    return [f"{head}." for head, _ in counts.most_common(3)]


def _moved(name: str, way: tuple[str, str]) -> str:
    drop, put = way
    return f"{put}{name.removeprefix(drop)}" if name.startswith(drop) else name
