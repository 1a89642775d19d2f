"""Say by names which parameter belongs in a weight: its layer, its module, its part of a packed projection."""

import os.path
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from onnxsurgeon_lite.graph.index import GraphIndex

Parts = tuple[str, ...]
_Group = tuple[int, Parts]
"""A place in a name, and the other parts of the name."""


class Belonging:
    """What the names of weights, and of the nodes that read them, say of a checkpoint's parameters."""

    def __init__(self, index: GraphIndex, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._index = index
        self._shapes = shapes
        self._groups: dict[_Group, list[Parts]] = defaultdict(list)
        self._names = {_parts(name): name for name in shapes}
        for parts in self._names:
            for group in _groups(parts):
                self._groups[group].append(parts)

    def rival(self, name: str, parameter: str) -> str:
        """Return the parameter that belongs in a weight instead of another one of its shape; '' if that may."""
        users = [self._index.nodes[at].name for at in self._index.consumers.get(name, ())]
        said = {self._rival(_parts(user), parameter) for user in users if user} - {None}
        if not said:
            return self._rival(_parts(name), parameter) or ""
        return "" if "" in said else min(filter(None, said))

    def misplaced(
        self, whole: Mapping[str, Sequence[str]], packed: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Say of weights that hold what belongs elsewhere what they hold, and what belongs there.

        Args:
            whole: weights and the parameters that have their contents. packed: weights and those that they join.
        """
        found: dict[str, list[tuple[str, str]]] = {}
        for name, equal in whole.items():
            pairs = [(parameter, self.rival(name, parameter)) for parameter in equal]
            found[name] = pairs[:1] if all(rival for _, rival in pairs) else []
        for name, parts in packed.items():
            if not parts:
                continue
            said = self._packed(name, parts)
            said = said or [self.rival(name, part) or part for part in parts]
            if len(parts) == len(said):
                found[name] = [(a, b) for a, b in zip(parts, said, strict=True) if a != b]
            else:
                found[name] = [(", ".join(parts), ", ".join(said))]
        numbers = [
            (_numbers(name), _numbers(parts[0]))
            for name, parts in {**whole, **packed}.items()
            if parts
        ]
        counted = [one == other for one, other in numbers if one and len(one) == len(other)]
        if sum(counted) < len(counted) / 2:  # the model counts its layers in another way
            found = {n: [p for p in pairs if not self._is_layer(p)] for n, pairs in found.items()}
        return {
            name: ", ".join(f"holds {has!r} where {right!r} belongs" for has, right in pairs)
            for name, pairs in found.items()
            if pairs
        }

    def _is_layer(self, pair: tuple[str, str]) -> bool:
        """Return whether two parameters are the same one of two layers."""
        parts = list(zip(*map(_parts, pair), strict=False))
        return all(a == b or (a.isdigit() and b.isdigit()) for a, b in parts)

    def _packed(self, name: str, parameters: Sequence[str]) -> list[str]:
        """Return the parameters that a name such as qkv_proj says, in their order; [] if it says none."""
        start = self.rival(name, parameters[0]) or parameters[0]
        for group in _groups(_parts(start)):
            siblings = {parts[group[0]]: parts for parts in self._groups[group]}
            end = os.path.commonprefix([part[::-1] for part in siblings])[::-1]
            stems = {part.removesuffix(end): part for part in siblings if part != end}
            for part in _parts(name):
                order = _split(part.removesuffix(end), stems) if part.endswith(end) else []
                if len(order) > 1:
                    return [self._names[siblings[stems[stem]]] for stem in order]
        return []

    def _rival(self, said: Parts, parameter: str) -> str | None:
        """Return what a name says in place of a parameter; '' if it says that one, None if it does not tell."""
        told = None
        mine = _parts(parameter)
        numbers = [part for part in said if part.isdigit()]
        is_counted = len(numbers) == len(_numbers(parameter))
        for place, others in _groups(mine):
            part, words = mine[place], set(said)
            alike = [
                parts
                for parts in self._groups[place, others]
                if self._shapes[self._names[parts]] == self._shapes.get(parameter)
            ]
            if part.isdigit():
                at = sum(each.isdigit() for each in mine[:place])
                words = {numbers[at]} if is_counted else set()
            found = [parts for parts in alike if parts[place] in words]
            if part in words and found:
                told = ""
            elif len(found) == 1:
                return self._names[found[0]]
        return told


def _parts(name: str) -> Parts:
    return tuple(re.split(r"[./:]+", name))


def _numbers(name: str) -> list[str]:
    return [part for part in _parts(name) if part.isdigit()]


def _groups(parts: Parts) -> Iterator[_Group]:
    for place in range(len(parts)):
        yield place, (*parts[:place], *parts[place + 1 :])


def _split(text: str, stems: Mapping[str, str]) -> list[str]:
    """Return the stems that a text is joined of, with or without underscores; [] if it is not."""
    longest = sorted(filter(None, stems), key=len, reverse=True)
    ends = {
        len(text): ("", 0)
    }  # where the rest can be split -> its first stem, and where that ends
    for start in reversed(range(len(text))):
        for stem in longest:
            end = start + len(stem)
            end += text[end : end + 1] == "_"
            if end in ends and text.startswith(stem, start):
                ends[start] = stem, end
                break
    found, start = list[str](), 0
    while start in ends and start < len(text):
        stem, start = ends[start]
        found.append(stem)
    return found
