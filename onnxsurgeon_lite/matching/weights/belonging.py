"""Find by names and modules which parameters may be in a weight, and which one belongs there."""

import os.path
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.names import stems_of

Parts = tuple[str, ...]
_Group = tuple[int, Parts]
"""A place in a name, and the other parts of the name."""
Sense = Literal["out x in", "in x out"]
"""What a multiplied parameter holds: rows of weights for each output, as a Linear, or for each input."""
_PASSING = ("Identity", "Cast", "DequantizeLinear")
_ROWS = ("Gather", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN")
"""They use a weight as the checkpoint stores it."""
_RARE = 0.25  # share of the weights up to which what they show is an exception


class Belonging:
    """What the names of weights, and of the nodes that read them, say of a checkpoint's parameters."""

    def __init__(self, index: GraphIndex, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._index = index
        self._shapes = shapes
        self._groups: dict[_Group, list[Parts]] = defaultdict(list)
        # the parts of a parameter's name -> the name
        self._names = {_parts(name): name for name in shapes}
        for parts in self._names:
            for group in _groups(parts):
                self._groups[group].append(parts)

    def rival(self, name: str, parameter: str) -> str:
        """Return the parameter that belongs in a weight instead of another one of its shape; '' if that may."""
        # names of nodes are module paths in most exports
        users = [self._index.nodes[at].name for at in self._index.users(name)]
        said = {self._rival(_parts(user), parameter) for user in users if user} - {None}
        # no node says anything: then the name of the weight itself
        if not said:
            return self._rival(_parts(name), parameter) or ""
        # one reader that says "this parameter" is enough
        return "" if "" in said else min(filter(None, said))

    def misplaced(
        self, whole: Mapping[str, Sequence[str]], packed: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Say of weights that hold what belongs elsewhere what they hold, and what belongs there.

        Args:
            whole: weights and the parameters that have their contents. packed: weights and those that they join.
        """
        # (what it holds, what belongs there) of each weight
        found = dict[str, list[tuple[str, str]]]()
        for name, equal in whole.items():
            # any of the equal parameters may be the one that belongs there
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
        # [layer numbers in the name, in the parameter's] of each weight
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
        # names that differ in numbers alone
        parts = list(zip(*map(_parts, pair), strict=False))
        return all(a == b or (a.isdigit() and b.isdigit()) for a, b in parts)

    def _packed(self, name: str, parameters: Sequence[str]) -> list[str]:
        """Return the parameters that a name such as qkv_proj says, in their order; [] if it says none."""
        # the siblings of the first parameter, by the part of the name that differs
        start = self.rival(name, parameters[0]) or parameters[0]
        for group in _groups(_parts(start)):
            siblings = {parts[group[0]]: parts for parts in self._groups[group]}
            # "q_proj", "k_proj", "v_proj" end in "_proj" and have the stems "q", "k", "v"
            end = os.path.commonprefix([part[::-1] for part in siblings])[::-1]
            stems = {part.removesuffix(end): part for part in siblings if part != end}
            for part in _parts(name):
                # "qkv_proj" -> "q", "k", "v"
                order = stems_of(part.removesuffix(end), stems) if part.endswith(end) else []
                if len(order) > 1:
                    return [self._names[siblings[stems[stem]]] for stem in order]
        return []

    def _rival(self, said: Parts, parameter: str) -> str | None:
        """Return what a name says in place of a parameter; '' if it says that one, None if it says none."""
        said_this = None
        mine = _parts(parameter)
        numbers = [part for part in said if part.isdigit()]
        is_counted = len(numbers) == len(_numbers(parameter))
        # each part of the name in turn: what has all other parts in common
        for place, others in _groups(mine):
            part, words = mine[place], set(said)
            # parameters that differ from this one in this part alone, and have its shape
            alike = [
                parts
                for parts in self._groups[place, others]
                if self._shapes[self._names[parts]] == self._shapes.get(parameter)
            ]
            if part.isdigit():
                # the number at the same position among the numbers of the name
                at = sum(each.isdigit() for each in mine[:place])
                words = {numbers[at]} if is_counted else set()
            found = [parts for parts in alike if parts[place] in words]
            if part in words and found:
                said_this = ""
            elif len(found) == 1:
                return self._names[found[0]]
        return said_this


def _parts(name: str) -> Parts:
    return tuple(re.split(r"[./:]+", name))


def _numbers(name: str) -> list[str]:
    return [part for part in _parts(name) if part.isdigit()]


def _groups(parts: Parts) -> Iterator[_Group]:
    for place in range(len(parts)):
        yield place, parts[:place] + parts[place + 1 :]


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
        # (prefix to drop, prefix to add) of names of the model
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
        users = self._index.users(name)
        origins = [self._index.origins[user] for user in users]
        scopes = [f"{o.scope}." if o.scope else "" for o in origins if o.known or not surely]
        return [_moved(scope, self._way).removesuffix(".") for scope in scopes]

    def _find_way(self) -> tuple[str, str]:
        """Return (prefix to drop, prefix to add) that makes most names equal to the checkpoint's."""
        # names of weights and modules of the model, those of the checkpoint
        scopes = {origin.scope for origin in self._index.origins if origin.known}
        names = scopes | self._index.initializers.keys()
        known = self._owned.keys() | self._parameters
        ways = [
            # at most one prefix is dropped and one is added
            (drop, put)
            for drop in chain([""], _heads(names))
            for put in chain([""], _heads(known))
        ]
        return max(ways, key=lambda way: len({_moved(name, way) for name in names} & known))


def wrapper(names: Iterable[str], inner: Container[str]) -> tuple[str, int]:
    """Return the prefix, such as `model.`, after which most names are those of another checkpoint, and how many."""
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


def usual_senses(index: GraphIndex, weights: Collection[tuple[str, Sequence[int]]]) -> set[Sense]:
    """Return what most weights that are not square say of their parameters, both where these differ.

    Args:
        weights: initializers and the order of their parameter's axes.
    """
    counts = Counter(
        # [1, 0]: the model holds the parameter transposed
        s
        for name, order in weights
        for s in _senses(index, name, list(order) == [1, 0])
    )
    # a sense that more than a quarter has is usual
    return {s for s, count in counts.items() if count > _RARE * counts.total()}


def layout_finding(index: GraphIndex, name: str, order: Sequence[int], usual: set[Sense]) -> str:
    """Return what is wrong with the layout of a square weight, '' if nothing is known to be.

    Without other weights, a transposed one is that of a Linear.
    """
    # a lookup, a convolution or a recurrent node never transposes
    is_transposed = list(order) != sorted(order)
    users = [index.nodes[position].op_type for position in index.users(name)]
    if is_transposed and users and all(op in _ROWS for op in users):
        return f"is transposed, and {users[0]} does not transpose it back"
    known = usual or ({"out x in"} if is_transposed else set())
    if (
        not known
        or not known.isdisjoint(senses := set(_senses(index, name, is_transposed)))
        or not senses
    ):
        return ""
    return f"is {'transposed' if is_transposed else 'not transposed'}, unlike what its {users[0]} needs"


def _senses(index: GraphIndex, name: str, is_transposed: bool) -> Iterator[Sense]:
    """Yield what each matrix product takes a parameter for."""
    for position in index.users(name):
        node = index.nodes[position]
        if node.op_type in _PASSING or (node.op_type == "Transpose" and name == node.input[0]):
            # through what keeps a weight's numbers; a Transpose turns the sense around
            yield from _senses(
                index, node.output[0], is_transposed != (node.op_type == "Transpose")
            )
        elif node.op_type in ("MatMul", "Gemm") and name in node.input[:2]:
            slot = list(node.input).index(name)
            transposes = bool(integer(node, ("transA", "transB")[slot]))
            # each of the three exchanges the roles of the two axes once
            # on the left it is as transposed on the right
            turns = is_transposed + transposes + slot
            yield "in x out" if turns % 2 else "out x in"
