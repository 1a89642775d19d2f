"""Normalizations of one layer or of several, after the additions instead of before the branches."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnxsurgeon_lite.debug.causes.hypothesis import Edits
from onnxsurgeon_lite.debug.causes.operations import OF_THE_LAST_AXIS, RESHAPING
from onnxsurgeon_lite.debug.causes.place import edited_by, selected, titled
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.passes import Rewire

_LARGEST = 16  # nodes of a normalization
_MEAN = "ReduceMean"
_STEPS = (_MEAN, "Pow", "Mul", "Add", "Sub", "Div", "Sqrt", "Reciprocal", "Cast")
_SCALING = ("Mul", "Add")
_ADDENDS = 2
_NAMED = 3  # normalizations in a sentence
_BEHIND = "after the addition instead of before the branch"
_BEFORE = "before the branch instead of after the addition"


@dataclass(frozen=True)
class _NormalizedValue:
    """The nodes that normalize one value; `root` is what one of them makes: the mean, or all."""

    root: str
    given: str
    made: str
    nodes: frozenset[int]


@dataclass(frozen=True)
class _Move:
    """The edits that move a normalization to the other end of its branch, and the nodes that read another value."""

    norm: _NormalizedValue
    how: str
    edits: tuple[Rewire, ...]


def moved_norms(
    index: GraphIndex, values: Collection[str], narrow: bool = False
) -> Iterator[tuple[str, Edits]]:
    """Yield (what is wrong, edits) of normalizations at residual branches: of some values, of all, of one, of two.

    Args:
        narrow: only several of those values together: one culprit says little of one, and nothing of others.
    """
    every = [move for norm in _norms(index) if (move := _move(index, norm)) is not None]
    here = [move for move in every if move.norm.made in values]
    tried: list[list[str]] = []
    for how in dict.fromkeys(move.how for move in here):
        alike = [move for move in here if move.how == how]
        others = [move for move in every if move.how == how]
        more = () if narrow else (others, *([move] for move in alike))
        for several in (alike, *more, *map(list, pairwise(alike))):
            made = [move.norm.made for move in several]
            if made not in tried and not (narrow and len(made) == 1):
                tried.append(made)
                edits = _one_after_the_other(index, [move.norm.root for move in several])
                if edits:
                    verb = "are" if len(made) > 1 else "is"
                    yield f"{_titles(index, made)} {verb} {how}; moved there", edits


def _titles(index: GraphIndex, made: Sequence[str]) -> str:
    """Say which normalizations make some values."""
    titles = []
    for name in made:
        position = index.producer[name]
        is_whole = index.nodes[position].op_type in OF_THE_LAST_AXIS
        titles.append(f"{'' if is_whole else 'what ends with '}{titled(index, position)}")
    more = [f"{len(titles) - _NAMED} more"] if len(titles) > _NAMED else []
    return " and ".join([*titles[:_NAMED], *more])


def _one_after_the_other(index: GraphIndex, roots: Sequence[str]) -> Edits:
    """Return the edits that move several normalizations, each found in the graph that the last one left."""
    edits: Edits = ()
    for root in roots:
        norm = _norm_at(index, index.producer[root])
        move = None if norm is None else _move(index, norm)
        if move is None:
            return ()
        edits = (*edits, *move.edits)
        try:
            index = edited_by(move.edits, index)
        except SurgeonError:
            return ()
    return edits


def _move(index: GraphIndex, norm: _NormalizedValue) -> _Move | None:
    """Return how a normalization is moved to the other end of its branch; None if it stands at none."""
    if norm.made in index.outputs or norm.given in index.outputs:
        return None
    readers = index.consumers.get(norm.made, [])

    def moved(how: str, source: str, to: Collection[int]) -> _Move:
        """Normalize another value, for other readers."""
        edits = (
            _rewired(index, norm.made, norm.given, readers),
            _rewired(index, norm.given, source, norm.nodes),
            _rewired(index, source, norm.made, to),
        )
        return _Move(norm, how, edits)

    # after an addition: it belongs before the branch that the addition ends
    after = _maker(index, norm.given)
    alone = set(index.consumers[norm.given]) <= norm.nodes
    if alone and after is not None and index.nodes[after].op_type == "Add":
        for stream, branch in _operands(index, after):
            inside = index.ancestors([branch], stop=[stream])
            first = [p for p in index.consumers.get(stream, []) if p in inside]
            if first:
                return moved(_BEHIND, stream, first)
    # before a branch: it belongs after the addition that ends the branch
    for position in index.consumers[norm.given]:
        if index.nodes[position].op_type != "Add" or position in norm.nodes:
            continue
        total = index.nodes[position].output[0]
        for stream, branch in _operands(index, position):
            inside = index.ancestors([branch], stop=[norm.made])
            if stream == norm.given and readers and set(readers) <= inside:
                return moved(_BEFORE, total, index.consumers.get(total, []))
    return None


def _maker(index: GraphIndex, name: str) -> int | None:
    """Return the node that makes a value's elements, before Reshapes whose input nothing else reads."""
    position = index.producer.get(name)
    node = None if position is None else index.nodes[position]
    if node is None or node.op_type not in RESHAPING or len(index.consumers[node.input[0]]) > 1:
        return position
    return _maker(index, node.input[0])


def is_sum(index: GraphIndex, name: str) -> bool:
    """Return whether a value is the sum of two that are computed: what a residual carries."""
    position = index.producer.get(name)
    if position is None or index.nodes[position].op_type != "Add":
        return False
    return sum(constant(index, n) is None for n in index.reads[position]) == _ADDENDS


def _operands(index: GraphIndex, position: int) -> Iterator[tuple[str, str]]:
    """Yield (one, the other) operand of an addition, either way around."""
    read = list(index.nodes[position].input)
    if len(set(read)) == _ADDENDS:
        yield read[0], read[1]
        yield read[1], read[0]


def _rewired(index: GraphIndex, old: str, new: str, nodes: Collection[int]) -> Rewire:
    readers = dict.fromkeys(p for p in index.consumers.get(old, []) if p in nodes)
    return Rewire(old, new, tuple(selected(index, p, several=True) for p in readers))


def _norms(index: GraphIndex) -> Iterator[_NormalizedValue]:
    """Yield the normalizations along the last axis, those of one node and those of several, in the graph's order."""
    for position in sorted(range(len(index.nodes)), key=index.places.__getitem__):
        norm = _norm_at(index, position)
        if norm is not None:
            yield norm


def _norm_at(index: GraphIndex, position: int) -> _NormalizedValue | None:
    """Return the normalization that a node, or a mean, belongs to."""
    node = index.nodes[position]
    if node.op_type in OF_THE_LAST_AXIS:
        return _NormalizedValue(
            node.output[0], node.input[0], node.output[0], frozenset((position,))
        )
    if node.op_type != _MEAN:
        return None
    before = index.producer.get(node.input[0])
    power = before is not None and index.nodes[before].op_type in ("Pow", "Mul")
    begin = index.nodes[before].input[0] if power and before is not None else node.input[0]
    return _composed(index, node.output[0], begin)


def _composed(index: GraphIndex, root: str, given: str) -> _NormalizedValue | None:
    """Return the nodes that normalize a value: what follows from it alone, until all of that is in one value."""
    # follow what is computed from the value alone, in the order of the graph
    known, inside = {given}, set[int]()
    found: _NormalizedValue | None = None
    pending = sorted(set(index.consumers.get(given, [])), key=index.places.__getitem__)
    while pending and len(inside) < _LARGEST:
        position = pending.pop(0)
        node = index.nodes[position]
        live = {name for name in node.input if name and constant(index, name) is None}
        if position in inside or node.op_type not in _STEPS or not live <= known:
            continue
        if found is not None:
            alone = set(index.consumers[found.made]) == {position}
            if not alone or node.op_type not in _SCALING or live != {found.made}:
                break
        inside.add(position)
        known.update(node.output)
        # the normalization ends where a single value leaves it; a scale and a bias may follow
        readers = index.consumers.get(node.output[0], [])
        pending = sorted({*pending, *readers}, key=index.places.__getitem__)
        means = any(index.nodes[p].op_type == _MEAN for p in inside)
        whole = means and len(live) > 1 and _open(index, inside) == {node.output[0]}
        if whole or found is not None:
            found = _NormalizedValue(root, given, node.output[0], frozenset(inside))
    return found


def _open(index: GraphIndex, inside: Collection[int]) -> set[str]:
    """Return the values of some nodes that others read."""
    made = index.made_by(inside)
    return {
        n for n in made if n in index.outputs or not set(index.consumers.get(n, [])) <= set(inside)
    }
