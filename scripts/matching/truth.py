"""What a matching is judged by: values on feeds that it has not seen, and where the nodes lie."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.values import Pair
from onnxsurgeon_lite.matching.values.pair_table import FOLD_INTO
from onnxsurgeon_lite.matching.values.run_both import MatchResult
from onnxsurgeon_lite.recording.from_model import computed
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime

MIN_ELEMENTS = 17
_PLACES = 64
_NEAR = 1e-3


@dataclass
class Content:
    """What two values that are one have in common, whatever their layout."""

    elements: int
    sorted: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> "Content | None":
        if array.dtype.kind != "f" or array.size < MIN_ELEMENTS or not np.isfinite(array).all():
            return None
        places = np.linspace(0, array.size - 1, min(_PLACES, array.size)).astype(int)
        return cls(array.size, np.partition(array.reshape(-1), places)[places])

    def fits(self, other: "Content") -> bool:
        scale = max(np.abs(self.sorted).max(), np.abs(other.sorted).max(), 1e-30)
        apart = np.abs(self.sorted - other.sorted).max()
        return self.elements == other.elements and apart <= _NEAR * scale


class Classes:
    """Contents by number: equal ones have one."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[tuple[int, Content]]] = {}

    def number(self, content: Content) -> int:
        shelf = self._by_size.setdefault(content.elements, [])
        for number, known in shelf:
            if known.fits(content):
                return number
        shelf.append((sum(map(len, self._by_size.values())), content))
        return shelf[-1][0]


@dataclass
class Row:
    nodes: tuple[int, int] = (0, 0)
    values: tuple[int, int] = (0, 0)
    pairs: int = 0
    wrong: tuple[Pair, ...] = ()
    missed: tuple[str, ...] = ()

    def __str__(self) -> str:
        def share(of: tuple[int, int]) -> str:
            return f"{of[0]:4} of {of[1]:4} {100 * of[0] / of[1] if of[1] else 100:6.1f} %"

        return f"{share(self.nodes)}   {share(self.values)}   {len(self.wrong):3} of {self.pairs:4}"


@dataclass
class Seen:
    """A side on feeds that the matching has not seen: its values, which of them count, which come of a weight."""

    values: Iterator[tuple[str, object]]
    weighted: Callable[[str], bool]
    counts: Callable[[str], bool] = lambda _: True


def judge(result: MatchResult, a: Seen, b: Seen, same_module: Callable[[Pair], bool]) -> Row:
    """Coverage and wrong pairs, by the values that both sides have on feeds that the matching has not seen."""
    classes, pairs = Classes(), result.matching.pairs
    back, partner = {pair.b: pair for pair in pairs}, {pair.a: pair.b for pair in pairs}
    arrays = {name: v for name, v in a.values if isinstance(v, np.ndarray)}
    kinds: list[dict[str, int]] = [{}, {}]
    for name, array in arrays.items():
        if a.counts(name) and (content := Content.of(array)) is not None:
            kinds[0][name] = classes.number(content)
    wrong = []
    for name, value in b.values:
        if not isinstance(value, np.ndarray):
            continue
        if (content := Content.of(value)) is not None:
            kinds[1][name] = classes.number(content)
        pair = back.get(name)
        if pair is not None and not pair.blocked and not _agree(arrays[pair.a], value, pair):
            wrong.append(pair)
    wrong += [pair for pair in pairs if pair not in wrong and not same_module(pair)]
    chosen = [{*filter(side.weighted, kinds[i])} for i, side in enumerate((a, b))]
    nodes, missed = _share(kinds, chosen, partner)
    values, more = _share(kinds, [{*side} for side in kinds], partner)
    return Row(nodes, values, len(pairs), tuple(wrong), tuple(dict.fromkeys(missed + more)))


def _share(
    kinds: list[dict[str, int]], names: list[set[str]], partner: dict[str, str]
) -> tuple[tuple[int, int], list[str]]:
    mine, theirs = (
        Counter(side[n] for n in chosen) for side, chosen in zip(kinds, names, strict=True)
    )
    there = mine & theirs
    found = Counter(kinds[0][n] for n in names[0] if n in partner) & there
    short = there - found
    return (found.total(), there.total()), [
        n for n in kinds[0] if n in names[0] and kinds[0][n] in short
    ]


def weighted_in(index: GraphIndex) -> Callable[[str], bool]:
    """Whether a value's node reads a weight, or what is made of weights alone."""
    weights = {
        name
        for name, tensor in index.initializers.items()
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= MIN_ELEMENTS
    }
    for position in index.order:
        node = index.nodes[position]
        if {*node.input} <= weights | index.initializers.keys() and not weights.isdisjoint(
            node.input
        ):
            weights.update(node.output)
    makers = index.producer
    return lambda name: name in makers and not weights.isdisjoint(index.nodes[makers[name]].input)


def from_feeds(index: GraphIndex, feeds: Feeds, runtime: Runtime) -> Iterator[tuple[str, object]]:
    """The values that depend on what is given."""
    depends = {*feeds}
    for position in index.order:
        if not depends.isdisjoint(index.reads[position]):
            depends.update(filter(None, index.nodes[position].output))
    for name, value in computed(index, feeds, runtime):
        if name in feeds or name in depends:
            yield name, value


def _agree(one: np.ndarray, other: np.ndarray, pair: Pair) -> bool:
    one = np.transpose(one, pair.axes) if pair.axes else one
    if one.size != other.size:
        return False
    if one.dtype.kind != "f":
        return bool((one.reshape(-1) == other.reshape(-1)).all())
    x, y = (np.nan_to_num(side.reshape(-1).astype(np.float64)) for side in (one, other))
    return bool(np.abs(x - y).max(initial=0) <= _NEAR * max(np.abs(x).max(initial=0), 1e-6))


def models_agree(a: GraphIndex, b: GraphIndex) -> Callable[[Pair], bool]:
    """Whether two nodes lie in one module, where both say in which."""
    ones, others = ({n: i.origins[p] for n, p in i.producer.items()} for i in (a, b))

    def same(pair: Pair) -> bool:
        one, other = ones.get(pair.a), others.get(pair.b)
        if one is None or other is None or not (one.stated and other.stated):
            return True
        folded = b.nodes[b.producer[pair.b]].op_type in FOLD_INTO
        return folded or _held(one.scope, other.scope)

    return same


def references_agree(a: osl.ReferenceSet, b: GraphIndex) -> Callable[[Pair], bool]:
    """Whether what a module returned is computed in it, or in what returned the same."""

    def same(pair: Pair) -> bool:
        position = b.producer.get(pair.b)
        if position is None or not a.entries[pair.a].scope or not b.origins[position].stated:
            return True
        folded = (
            b.nodes[position].op_type in FOLD_INTO and "BatchNorm" in a.entries[pair.a].class_name
        )
        return folded or _held(f"model.{a.entries[pair.a].scope}", b.origins[position].scope)

    return same


def _held(one: str, other: str) -> bool:
    """Whether two modules are one, or one lies in the other."""
    return (
        f"{other}.".startswith(f"{one}.")
        or f"{one}.".startswith(f"{other}.")
        or not one
        or not other
    )
