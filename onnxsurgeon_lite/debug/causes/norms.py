"""Mistakes in normalization: one that is missing, another kind, reset constants, the wrong end of a branch."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise, product

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted
from onnxsurgeon_lite.debug.causes.operations import (
    OF_THE_LAST_AXIS,
    RESHAPING,
    Right,
    composed,
    missing_activation,
    put_in,
    right_values,
)
from onnxsurgeon_lite.debug.causes.place import (
    Place,
    RegionNode,
    edited_by,
    selected,
    small,
    titled,
)
from onnxsurgeon_lite.debug.causes.solving import described
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, constant
from onnxsurgeon_lite.passes import Pass, Rewire
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, has_floats, peak, wide

_TOGETHER = 64  # choices among several missing steps
_FLAT = 1e-4  # a scale that differs less, or with a smaller bias, is a factor
_EPSILONS = (1e-5, 1e-6, 1e-12)
_BEHIND_A_NORM = ("Reshape", "Transpose", "Mul", "Add")
_LARGEST = 16  # nodes of a normalization
_MEAN = "ReduceMean"
_STEPS = (_MEAN, "Pow", "Mul", "Add", "Sub", "Div", "Sqrt", "Reciprocal", "Cast")
_SCALING = ("Mul", "Add")
_ADDENDS = 2
_NAMED = 3  # normalizations in a sentence
_BEHIND = "after the addition instead of before the branch"
_BEFORE = "before the branch instead of after the addition"


@dataclass(frozen=True)
class _Norm:
    """A normalization with a scale and a bias by channel.

    Attributes:
        groups: of the channels in axis 1, which are normalized together; 0 for channels in the last axis.
    """

    op_type: str
    epsilon: float
    scale: Wide
    bias: Wide
    groups: int = 0

    @property
    def unknowns(self) -> int:
        return self.scale.size + int(np.count_nonzero(self.bias))

    @property
    def title(self) -> str:
        is_grouped = self.op_type == "GroupNormalization"
        return f"{self.op_type}{f' of {self.groups} groups' * is_grouped}"

    def edit(self, place: Place, start: str, end: str, made: Array) -> Pass:
        """Return the edit that normalizes one value to another."""
        # constants as the nodes read them: by channel of axis 1, or along the last axis
        axes = (1,) * (made.ndim - 2) if self.groups else ()
        mean = "ReduceMean(q, last)" if place.opset >= 18 else "ReduceMean <axes = [-1]> (q)"
        nodes = MISTAKES["norms"][self.op_type].format(epsilon=f"{self.epsilon:.15f}", mean=mean)
        scale, bias = (a.reshape(-1, *axes) for a in (self.scale, self.bias))
        ones = np.ones(self.groups)
        floats = {"s": scale, "b": bias, "e": self.epsilon, "ones": ones, "zeros": ones - 1}
        shapes = {"last": [-1], "split": [0, self.groups, -1], "whole": made.shape}
        numbers = {name: np.asarray(value, made.dtype) for name, value in floats.items()}
        numbers |= {name: np.array(value) for name, value in shapes.items()}
        return composed(place, start, end, made, nodes, numbers)


def _solved(made: Wide, wanted: Wide) -> Iterator[_Norm]:
    """Yield the normalizations with which a value gives what is wanted, each with the best epsilon."""
    # along the last axis, then over the channels of axis 1, as a whole or in groups
    kinds = [(op_type, 0) for op_type in OF_THE_LAST_AXIS] if made.ndim > 1 else []
    if made.ndim > 2 and not _is_a_bias(made, wanted):
        channels = made.shape[1]
        several = [
            g for g in (*MISTAKES["attributes"]["num_groups"], channels) if channels % g == 0
        ]
        kinds += [("BatchNormalization", channels)] + [("GroupNormalization", g) for g in several]
    for op_type, groups in kinds:
        # the epsilon that fits best; a BatchNormalization without a bias is a factor
        norms = [_fitted(op_type, groups, epsilon, made, wanted) for epsilon in _EPSILONS]
        best, error = min(norms, key=lambda found: found[1])
        least = _FLAT * peak(best.scale)
        flat = np.ptp(best.scale) <= least or peak(best.bias) <= least
        if small(np.array(error), wanted) and not (flat and op_type == "BatchNormalization"):
            yield best


def _is_a_bias(made: Wide, wanted: Wide) -> bool:
    """Return whether a bias or a factor by channel gives what is wanted: of one sample, a normalization would, too."""
    x, y = (np.moveaxis(array, 1, -1).reshape(-1, array.shape[1]) for array in (made, wanted))
    biased = y - x - (y - x).mean(axis=0)
    return small(biased, y) or small(y - fitted(x, y)[0] * x, y)


def _fitted(
    op_type: str, groups: int, epsilon: float, made: Wide, wanted: Wide
) -> tuple[_Norm, float]:
    """Return (a normalization with the best scale and bias, its largest error)."""
    # channels last, then one scale and one bias for each
    normal = normalized(made, op_type, groups, epsilon)
    x, y = (np.moveaxis(a, 1 if groups else -1, -1) for a in (normal, wanted))
    rows, wanted_rows = (array.reshape(-1, array.shape[-1]) for array in (x, y))
    (scale,), (bias,) = fitted(rows, wanted_rows, shifts=op_type != "RMSNormalization")
    return _Norm(op_type, epsilon, scale, bias, groups), peak(x * scale + bias - y)


def normalized(array: Wide, op_type: str, groups: int = 0, epsilon: float = _EPSILONS[0]) -> Wide:
    """Return an array normalized along its last axis, or in groups of the channels of axis 1."""
    if op_type == "BatchNormalization":
        return array
    grouped = array.reshape(len(array), groups, -1) if groups else array
    if op_type != "RMSNormalization":
        grouped = grouped - grouped.mean(axis=-1, keepdims=True)
    power = np.square(grouped).mean(axis=-1, keepdims=True)
    return np.asarray(grouped / np.sqrt(power + epsilon)).reshape(array.shape)


def missing_norms(place: Place) -> Hypotheses:
    """Yield normalizations that a value lacks, with constants that are solved for."""
    for right in right_values(place):
        yield from _missing_behind(place, right)


def other_norms(place: Place) -> Hypotheses:
    """Yield other groups and constants of normalizations, and other kinds: with the same scale, or with solved ones."""
    yield from other_groups(place)
    for site in place.sites:
        if not site.op_type.endswith("Normalization"):
            continue
        first, last = _grouped(site)
        start, given, scale = first.input[0], first.operand(0), site.constant(1)
        if not has_floats(given) or given.ndim < 2:
            continue
        # another kind with the same scale, then kinds whose constants are solved for
        others = list[tuple[_Norm, int]]()
        if site.op_type in OF_THE_LAST_AXIS and scale is not None and scale.array.ndim == 1:
            same = scale.numbers
            others = [(_Norm(kind, _EPSILONS[1], same, 0 * same), 0) for kind in OF_THE_LAST_AXIS]
        if last.wanted is not None and last.wanted.shape == given.shape:
            others += ((norm, norm.unknowns) for norm in _solved(wide(given), last.wanted))
        for norm, unknowns in others:
            if norm.op_type != site.op_type:
                edit = norm.edit(place, start, last.output, given)
                sentence = f"{site.title} is another normalization; with {norm.title}"
                mistake = ("normalization", site.op_type, norm.title)
                yield Hypothesis("normalization", sentence, (edit,), mistake, unknowns, given.size)
            elif unknowns and site.op_type == OF_THE_LAST_AXIS[0]:
                yield from _reset(site, norm)


def _reset(site: RegionNode, norm: _Norm) -> Hypotheses:
    """Yield a scale and a bias of a normalization that are both wrong, and were solved for."""
    # where both are wrong, neither alone gives the reference
    constants = [site.constant(slot) for slot in (1, 2)]
    both = list(zip(filter(None, constants), (norm.scale, norm.bias), strict=False))
    edits = tuple(constant.edit(right) for constant, right in both)
    how = " and ".join(f"{c.name!r} {described(c.numbers, right)}" for c, right in both)
    sentence, unknowns = f"constants of {site.title}: {how}; solved for", 2 * norm.scale.size
    if len(both) == 2 and site.made is not None:
        yield Hypothesis("solved constants", sentence, edits, (), unknowns, site.made.size)


def other_groups(place: Place) -> Hypotheses:
    """Yield other numbers of groups, of channels that are laid out in groups to be normalized."""
    for site in place.sites:
        if site.op_type != "InstanceNormalization":
            continue
        before, last = _grouped(site)
        given, scale, bias = before.operand(0), site.constant(1), site.constant(2)
        if last is site or given is None or scale is None or bias is None or given.ndim < 3:
            continue
        if np.ptp(scale.array) or np.ptp(bias.array):
            continue
        channels, now = given.shape[1], scale.array.size
        # InstanceNormalization of a value that is reshaped to groups, as exporters write it
        for groups in range(1, channels + 1):
            if channels % groups or groups == now:
                continue
            split = Rewire(before.input[1], str([0, groups, -1]), before.only, 1)
            more = (each.edit(np.full(groups, each.array[0])) for each in (scale, bias))
            was = f"{site.title} normalizes {channels} channels in {now} groups"
            mistake = ("groups", now, groups)
            yield Hypothesis("groups", f"{was}; in {groups}", (split,) + tuple(more), mistake)


def _grouped(site: RegionNode) -> tuple[RegionNode, RegionNode]:
    """Return the first and last node of a normalization, with a Reshape to groups and back."""
    before, behind = site.maker(0), site.readers
    if before is not None and len(behind) == 1 and before.op_type == behind[0].op_type == "Reshape":
        return before, behind[0]
    return site, site


def _missing_behind(place: Place, right: Right) -> Hypotheses:
    for norm in _solved(right.made, right.wanted):
        # what is normalized gets a name of its own, before the maker's result or after what enters
        normed = partial(norm.edit, place, made=place.values[right.name])
        edits = put_in(right.name, normed, before=right.maker is not None)
        sentence = f"a {norm.title} is missing {right.where}; with one that was solved for,"
        name, unknowns, equations = "missing normalization", norm.unknowns, right.wanted.size
        vague = _is_normalized(right.maker)
        yield Hypothesis(name, sentence, edits, (), unknowns, equations, vague=vague)


def missing_together(place: Place) -> Hypotheses:
    """Yield several steps that only the references have, all at once: the normalizations of query and key."""
    several = dict[str, list[Hypothesis]]()
    for right in right_values(place):
        if right.step:
            found = list(chain(_missing_behind(place, right), missing_activation(place, right)))
            if found:
                several.setdefault(right.step, []).extend(found)
    # one choice for each step that the references have, all choices together
    for chosen in islice(product(*several.values()), _TOGETHER) if len(several) > 1 else ():
        edits = tuple(chain.from_iterable(hypothesis.edits for hypothesis in chosen))
        missing = " and ".join(hypothesis.wrong for hypothesis in chosen)
        unknowns = sum(hypothesis.unknowns for hypothesis in chosen)
        equations = sum(hypothesis.equations for hypothesis in chosen)
        sentence = f"{missing}; with what was solved for,"
        yield Hypothesis("missing operations", sentence, edits, (), unknowns, equations)


def _is_normalized(maker: RegionNode | None) -> bool:
    """Return whether a node's result is normalized already, but for its shape and scale: hardly once more."""
    # back through what only scales and arranges
    while maker is not None and maker.op_type in _BEHIND_A_NORM:
        read = maker.computed
        maker = maker.maker(maker.input.index(read[0])) if len(read) == 1 else None
    return maker is not None and maker.op_type.endswith("Normalization")


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
    index: GraphIndex, values: Collection[str], narrow: bool
) -> Iterator[tuple[str, Edits, GraphIndex]]:
    """Yield (what is wrong, edits, the model with them) of normalizations at residual branches.

    They are those of some values, all, each alone, and two neighbors.

    Args:
        narrow: only several of those values together: one culprit says little of one, and nothing of others.
    """
    # what can be moved at all, and what of it makes the values in question
    norms = filter(None, (_norm_at(index, position) for position in index.order))
    every = [move for norm in norms if (move := _move(index, norm)) is not None]
    here = [move for move in every if move.norm.made in values]
    tried = list[list[str]]()
    for how in dict.fromkeys(move.how for move in here):
        # those here, all of the model, each alone, neighbors
        alike = [move for move in here if move.how == how]
        others = [move for move in every if move.how == how]
        more = () if narrow else (others,) + tuple([move] for move in alike)
        for several in (alike,) + more + tuple(map(list, pairwise(alike))):
            made = [move.norm.made for move in several]
            if made not in tried and not (narrow and len(made) == 1):
                tried.append(made)
                edits, edited = _one_after_the_other(index, [move.norm.root for move in several])
                if edits:
                    verb = "are" if len(made) > 1 else "is"
                    yield f"{_titles(index, made)} {verb} {how}; moved there", edits, edited


def _titles(index: GraphIndex, made: Sequence[str]) -> str:
    """Say which normalizations make some values."""
    titles = []
    for position in map(index.producer.__getitem__, made):
        is_whole = index.nodes[position].op_type in OF_THE_LAST_AXIS
        titles.append(f"{'' if is_whole else 'what ends with '}{titled(index, position)}")
    if len(titles) > _NAMED:
        titles[_NAMED:] = [f"{len(titles) - _NAMED} more"]
    return " and ".join(titles)


def _one_after_the_other(index: GraphIndex, roots: Sequence[str]) -> tuple[Edits, GraphIndex]:
    """Return the edits that move several normalizations, each found in the graph that the last one left, and the last.

    There are none if one of them cannot be moved.
    """
    edits: Edits = ()
    # each move changes what the next normalization reads: find that anew
    for root in roots:
        norm = _norm_at(index, index.producer[root])
        move = norm and _move(index, norm)
        if not move:
            return (), index
        edits += move.edits
        try:
            index = edited_by(move.edits, index)
        except SurgeonError:
            return (), index
    return edits, index


def _move(index: GraphIndex, norm: _NormalizedValue) -> _Move | None:
    """Return how a normalization is moved to the other end of its branch; None if it stands at none."""
    if norm.made in index.outputs or norm.given in index.outputs:
        return None
    readers = index.users(norm.made)

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
            first = [p for p in index.users(stream) if p in inside]
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
                return moved(_BEFORE, total, index.users(total))
    return None


def _maker(index: GraphIndex, name: str) -> int | None:
    """Return the node that makes a value's elements, before Reshapes whose input nothing else reads."""
    # a Reshape whose input others read is a branch of its own
    node = index.node_of(name)
    if node is None or node.op_type not in RESHAPING or len(index.consumers[node.input[0]]) > 1:
        return index.producer.get(name)
    return _maker(index, node.input[0])


def is_sum(index: GraphIndex, name: str) -> bool:
    """Return whether a value is the sum of two that are computed: what a residual carries."""
    node = index.node_of(name)
    if node is None or node.op_type != "Add":
        return False
    return sum(constant(index, read) is None for read in node.input) == _ADDENDS


def _operands(index: GraphIndex, position: int) -> Iterator[tuple[str, str]]:
    """Yield (one, the other) operand of an addition, either way around."""
    read = list(index.nodes[position].input)
    if len(set(read)) == _ADDENDS:
        yield read[0], read[1]
        yield read[1], read[0]


def _rewired(index: GraphIndex, old: str, new: str, nodes: Collection[int]) -> Rewire:
    readers = (p for p in index.users(old) if p in nodes)
    return Rewire(old, new, tuple(selected(index, p, several=True) for p in readers))


def _norm_at(index: GraphIndex, position: int) -> _NormalizedValue | None:
    """Return the normalization that a node, or a mean, belongs to."""
    # one node, or several that begin at a mean: of a value, or of its square
    node = index.nodes[position]
    if node.op_type in OF_THE_LAST_AXIS:
        return _NormalizedValue(
            node.output[0], node.input[0], node.output[0], frozenset((position,))
        )
    if node.op_type != _MEAN:
        return None
    before = index.node_of(node.input[0])
    power = before if before is not None and before.op_type in ("Pow", "Mul") else node
    return _composed(index, node.output[0], power.input[0])


def _composed(index: GraphIndex, root: str, given: str) -> _NormalizedValue | None:
    """Return the nodes that normalize a value: what follows from it alone, until all of that is in one value."""
    # follow what is computed from the value alone, in the order of the graph
    known, inside = {given}, set[int]()
    found: _NormalizedValue | None = None
    pending = index.in_order(set(index.users(given)))
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
        readers = index.users(node.output[0])
        pending = index.in_order(set(pending + readers))
        means = any(index.nodes[p].op_type == _MEAN for p in inside)
        whole = means and len(live) > 1 and _open(index, inside) == {node.output[0]}
        if whole or found is not None:
            found = _NormalizedValue(root, given, node.output[0], frozenset(inside))
    return found


def _open(index: GraphIndex, inside: Collection[int]) -> set[str]:
    """Return the values of some nodes that others read."""
    made = index.made_by(inside)
    return {n for n in made if n in index.outputs or not set(index.users(n)) <= set(inside)}
