"""Find by names and modules which parameter of a checkpoint belongs in a weight of a model.

Parameters of the same shape (`q_proj.weight`, `k_proj.weight`) may be exchanged. `Belonging` finds that: it compares
the parts of their names with the names of the weight and of its nodes. `Places` lists the parameters that may belong
to a value. `layout_finding` says whether a square weight is transposed by mistake.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Literal

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.names import joined_in, rewrapped, wrapper_of
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references import ReferenceSet

Parts = tuple[str, ...]
_Group = tuple[int, Parts]
"""What names have in common that differ in one part: its place, and the other parts."""
Sense = Literal["out x in", "in x out"]
"""The axes of a parameter that is multiplied: a Linear has a row for each output, other layers one for each input."""
_PASSING = ("Identity", "Cast", "DequantizeLinear")
_ROWS = ("Gather", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN")
"""Operators that use a weight as the checkpoint stores it."""
BLOCKS = "MatMulNBits"  # a product with a weight [out, in] in blocks
_RARE = 0.25  # a sense that fewer weights have, as a share, is an exception


def apart(checkpoint: ReferenceSet, index: GraphIndex) -> ReferenceSet:
    """Return a checkpoint whose packed parameters are parts where the model has these.

    Where weights are named after `gate_proj` and `up_proj`, and none after `gate_up_proj`, the rows of that are the
    parameters `gate_proj` and `up_proj`, in the place of `gate_up_proj`.
    """
    ours = set(chain.from_iterable(map(_parts, index.initializers)))
    entries = {**checkpoint.entries}
    for name, entry in checkpoint.entries.items():
        for packed in set(_parts(name)) - ours:
            parts = joined_in(packed, ours)
            # parts of other sizes are found by their contents
            if entry.shape and parts and not entry.shape[0] % len(parts):
                del entries[name]
                size = entry.shape[0] // len(parts)
                shape = (size, *entry.shape[1:])
                for at, part in enumerate(parts):
                    rows = partial(_rows, checkpoint, name, slice(at * size, at * size + size))
                    entries[name.replace(packed, part)] = replace(entry, read=rows, shape=shape)
    return replace(checkpoint, entries=entries)


def _rows(checkpoint: ReferenceSet, name: str, rows: slice) -> Array:
    return checkpoint.rows(name)[rows]


class Belonging:
    """Which parameters the names of weights, and of the nodes that read them, call for."""

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
        """Return the parameter that belongs in a weight instead of the given one; '' if the given one may be right."""
        # names of nodes are module paths in most exports
        users = [self._index.nodes[at].name for at in self._index.users(name)]
        found = (self._rival(_parts(user), parameter) for user in users if user)
        rivals = [rival for rival in found if rival is not None]
        # '' comes first: one reader that names the given parameter is enough; where no node names one, the weight may
        return min(rivals, default=self._rival(_parts(name), parameter) or "")

    def misplaced(
        self, whole: Mapping[str, Sequence[str]], packed: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Describe the weights that hold the wrong parameter: weight -> "holds 'a' where 'b' belongs".

        Args:
            whole: weight -> the parameters that have its contents.
            packed: weight -> the parameters that it joins.
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
            # what the name of the weight lists; else each parameter, or what belongs there instead
            belong = self._packed(name, parts) or [self.rival(name, p) or p for p in parts]
            if len(parts) == len(belong):
                found[name] = [(a, b) for a, b in zip(parts, belong, strict=True) if a != b]
            else:
                found[name] = [(", ".join(parts), ", ".join(belong))]
        # the model counts its layers in another way: another number is no mistake
        if not self._counts_alike({**whole, **packed}):
            for name, pairs in found.items():
                found[name] = [pair for pair in pairs if not self._is_layer(pair)]
        return {
            name: ", ".join(f"holds {has!r} where {right!r} belongs" for has, right in pairs)
            for name, pairs in found.items()
            if pairs
        }

    def _counts_alike(self, weights: Mapping[str, Sequence[str]]) -> bool:
        """Return whether most weights have the layer numbers of their first parameter in their names."""
        pairs = [
            (_numbers(_parts(name)), _numbers(_parts(of[0]))) for name, of in weights.items() if of
        ]
        # names with as many numbers can be compared
        same = [ours == theirs for ours, theirs in pairs if ours and len(ours) == len(theirs)]
        return sum(same) >= len(same) / 2

    def _is_layer(self, pair: tuple[str, str]) -> bool:
        """Return whether two parameters are the same one of two layers."""
        # names that differ in numbers alone
        parts = list(zip(*map(_parts, pair), strict=False))
        return all(a == b or (a.isdigit() and b.isdigit()) for a, b in parts)

    def _packed(self, name: str, parameters: Sequence[str]) -> list[str]:
        """Return the parameters that a name lists, in order: q, k and v for `qkv_proj`; [] if it lists none."""
        # the siblings of the first parameter, by the part of the name that differs
        start = self.rival(name, parameters[0]) or parameters[0]
        for group in _groups(_parts(start)):
            siblings = {parts[group[0]]: parts for parts in self._groups[group]}
            for part in _parts(name):
                if order := joined_in(part, siblings):
                    return [self._names[siblings[each]] for each in order]
        return []

    def _rival(self, name: Parts, parameter: str) -> str | None:
        """Return the parameter that a name calls for instead of the given one.

        Returns:
            '' if it calls for the given one, None if it calls for none.
        """
        calls_for_this = None
        mine = _parts(parameter)
        numbers = _numbers(name)
        is_counted = len(numbers) == len(_numbers(mine))
        # each part of the parameter's name in turn: which part do the other parameters have there
        for place, others in _groups(mine):
            part, words = mine[place], set(name)
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
                calls_for_this = ""
            elif len(found) == 1:
                return self._names[found[0]]
        return calls_for_this


def _parts(name: str) -> Parts:
    return tuple(re.split(r"[./:]+", name))


def _numbers(parts: Parts) -> list[str]:
    return [part for part in parts if part.isdigit()]


def _groups(parts: Parts) -> Iterator[_Group]:
    """Yield each place in a name, with the other parts."""
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
        # names of weights and modules of the model, those of the checkpoint
        scopes = {origin.scope for origin in index.origins if origin.known}
        self._way = wrapper_of(
            scopes | index.initializers.keys(), self._owned.keys() | set(parameters), most=2
        )

    def called(self, name: str) -> list[str]:
        """Return the parameter that has a value's name in the checkpoint, if there is one."""
        called = rewrapped(name, self._way)
        return [called] if called in self._parameters else []

    def own(self, name: str) -> list[str]:
        """Return `called`, then the parameters of the modules that read the value."""
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
        origins = [self._index.origins[user] for user in self._index.users(name)]
        scopes = [f"{o.scope}." if o.scope else "" for o in origins if o.known or not surely]
        return [rewrapped(scope, self._way).removesuffix(".") for scope in scopes]


def usual_senses(index: GraphIndex, weights: Collection[tuple[str, Sequence[int]]]) -> set[Sense]:
    """Return the senses that are usual among the parameters of a checkpoint: one, or both where it mixes them.

    Args:
        weights: (initializer, order of the parameter's axes in it); only of those that are not square.
    """
    counts = Counter[Sense]()
    for name, order in weights:
        # [1, 0]: the model holds the parameter transposed
        counts.update(sense for *_, sense in products(index, name, list(order) == [1, 0]) if sense)
    return {sense for sense, count in counts.items() if count > _RARE * counts.total()}


def layout_finding(index: GraphIndex, name: str, order: Sequence[int], usual: set[Sense]) -> str:
    """Say what is wrong with the layout of a square weight, whose shape does not show it; '' if nothing is known.

    Args:
        order: of the parameter's axes in the weight.
        usual: see `usual_senses`; without any, a transposed weight is taken for that of a Linear.
    """
    is_transposed = list(order) != sorted(order)
    # a lookup, a convolution or a recurrent node never transposes
    users = [index.nodes[position].op_type for position in index.users(name)]
    if is_transposed and users and all(op in _ROWS for op in users):
        return f"is transposed, and {users[0]} does not transpose it back"
    expected = usual or ({"out x in"} if is_transposed else set())
    senses = {sense for *_, sense in products(index, name, is_transposed) if sense}
    if not expected or not senses or not expected.isdisjoint(senses):
        return ""
    return f"is {'transposed' if is_transposed else 'not transposed'}, unlike what its {users[0]} needs"


def products(
    index: GraphIndex, name: str, is_transposed: bool
) -> Iterator[tuple[int, int, Sense | None]]:
    """Yield (position, slot, sense) of each node that reads a parameter; its sense is None if it is no product.

    Args:
        is_transposed: the value holds the parameter transposed.
    """
    for position in index.users(name):
        node = index.nodes[position]
        slot = list(node.input).index(name) if name in node.input else -1
        if node.op_type in _PASSING or (node.op_type == "Transpose" and not slot):
            # through what keeps a weight's numbers; a Transpose turns the sense around
            is_turned = is_transposed != (node.op_type == "Transpose")
            yield from products(index, node.output[0], is_turned)
        elif node.op_type in ("MatMul", "Gemm", BLOCKS) and slot in (0, 1):
            transposes = integer(node, ("transA", "transB")[slot], node.op_type == BLOCKS)
            # each of the three exchanges the roles of the two axes once
            # on the left it is as transposed on the right
            turns = is_transposed + bool(transposes) + slot
            yield position, slot, "in x out" if turns % 2 else "out x in"
        else:
            yield position, slot, None
