"""What is otherwise in the model that computed the references: constants, attributes, wiring; rows of a table."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.attributes import changed
from onnxsurgeon_lite.debug.causes.constants import variants
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted, linears
from onnxsurgeon_lite.debug.causes.operators import with_operator
from onnxsurgeon_lite.debug.causes.place import (
    Constant,
    Place,
    RegionNode,
    but,
    settings_of,
    small,
)
from onnxsurgeon_lite.debug.causes.solving import (
    AS_FOLDED,
    borrowed,
    described,
    different,
    solved_constant,
    unchanged,
)
from onnxsurgeon_lite.debug.causes.wiring import rereading
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.cut import Cut, close
from onnxsurgeon_lite.graph.index import GraphIndex, fixed_shape
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import Insert, Pass, Replace, Rewire
from onnxsurgeon_lite.passes.extract import submodel
from onnxsurgeon_lite.tensors.dtypes import Array, Wide, from_array, wide

_WITH = "with the numbers of the references' model"
_SCALED = "is scaled along axis"
_CLOSE = 1e-5  # factors that float32 does not distinguish
_SOLVED = ("number", "rounded constant")  # kinds that say nothing of the numbers held
_WEIGHT = 2  # axes at least
_SMALL = 1 << 20  # elements of a constant that is arranged otherwise
_ALIKE = "by the same operators, from other values"
_TOLD = 4  # operators that are named
_NODES = 512  # that replace a region, at most
_LARGEST = 1 << 24  # differences of rows that are compared with each other


def of_other_model(place: Place) -> Hypotheses:
    """Yield a constant with the numbers of the references' model, then all those of a node together."""
    kind = "other model's constant"
    for site, constants in groupby(place.constants(), lambda constant: constant.site):
        # each constant alone, then all of the node: a folded normalization changes two
        edits, told = list[Pass](), list[str]()
        for each in constants:
            array, right = each.array, place.changed.get(each.name)
            if right is None or each.slot < 0:
                continue
            if (right.shape, right.dtype) == (array.shape, array.dtype):
                how = _told(each, right)
                edits.append(each.edit(right))
                told.append(f"{each.name!r} {how}")
                yield Hypothesis(kind, f"{each} {how}; {_WITH}", (edits[-1],))
        if len(edits) > 1:
            said = ", ".join(told)
            said += f", {AS_FOLDED}" if _SCALED in said else ""
            sentence = f"{len(edits)} constants of {site.title} differ: {said}; {_WITH}"
            yield Hypothesis(kind, sentence, tuple(edits))


def settings_of_other_model(place: Place) -> Hypotheses:
    """Yield each attribute of a node as the other model has it, then all those of the node together."""
    for site, other, node in _pairs(place):
        settings = settings_of(other, node).items()
        right = {name: value for name, value in settings if site.attributes.get(name) != value}
        tries = [{name: value} for name, value in right.items()]
        tries += [right] if len(right) > 1 else []
        yield from (replace(changed(site, each), known=True) for each in tries)


def wiring_of_other_model(place: Place) -> Hypotheses:
    """Yield the values that a node reads in the other model, all of them together."""
    # under the names that values have here
    here = {there or name: name for name, there in place.stored_as.items()}
    for site, _, node in _pairs(place):
        read = zip(site.input, (here.get(name, name) for name in node.input), strict=False)
        pairs = {slot: names for slot, names in enumerate(read) if "" not in names}
        new = {n: right for n, (now, right) in pairs.items() if now != right in place.index}
        if new:
            yield replace(rereading(site, new), known=True)


def operator_of_other_model(place: Place) -> Hypotheses:
    """Yield the operator that a node has in the other model, where it reads as many values."""
    for site, _, node in _makers(place):
        if len(node.input) == len(site.input) and not node.domain:
            yield from (replace(h, known=True) for h in with_operator(site, node.op_type))


def nodes_of_other_model(place: Place) -> Hypotheses:
    """Yield the nodes with which the other model computes the wrong values, where it has other operators."""
    return _nodes(place, alike=False)


def same_nodes_of_other_model(place: Place) -> Hypotheses:
    """Yield the same where it has the same operators: simpler mistakes come before."""
    return _nodes(place, alike=True)


def _nodes(place: Place, alike: bool) -> Hypotheses:
    """Yield what computes the wrong values in the other model, from values that both have."""
    other = place.other
    ends = {name: place.stored_as.get(name, "") or name for name in place.samples[0].wanted}
    if other is None or not other.producer.keys() >= set(ends.values()):
        return
    here = _in_both(place, other)
    begins = [n for n in here if n in other and n not in ends.values()]
    theirs = _cut(other, begins, list(ends.values()))
    ours = _cut(place.index, list(place.inputs), list(ends))
    if theirs is None or ours is None or len(theirs.nodes) > _NODES:
        return
    # its other weights become constants of the repaired model
    weights = other.read_by(theirs.nodes) & other.initializers.keys() - set(theirs.inputs)
    if sum(math.prod(other.initializers[n].dims) for n in weights) > _LARGEST:
        return
    # the sentence names what differs, not all that is replaced
    told = _told_apart(place.index, ours, other, theirs)
    if (told == _ALIKE) is not alike:
        return
    begins = [here[name] for name in theirs.inputs]
    values = " and ".join(map(repr, ends))
    are = "are" if len(ends) > 1 else "is"
    sentence = f"{values} {are} not computed as the references are: {told}; with their nodes"
    # in place of the region's nodes, else beside them, for others may read what is inside
    kept = {f"{name}_before": name for name in ends}
    beside = [Insert(n, "Identity", before=True, output=new) for new, n in kept.items()]
    for edits, unread in ([], {n: n for n in ours.inputs if n not in begins}), (beside, kept):
        model = submodel(other, theirs)
        for tensor in model.graph.initializer:  # the other model's file is none of this one's
            tensor.CopyFrom(from_array(other.model.array(tensor), tensor.name))
        # both have the inputs of the region, read or not
        for name, typed in unread.items():
            kind = place.types.get(typed)
            model.graph.input.add(name=f"{name}_unread", type=kind)
        edit = Replace((*begins, *unread), tuple(ends), model=model)
        yield Hypothesis("nodes", sentence, (*edits, edit), ("nodes",), known=True)


def _in_both(place: Place, other: GraphIndex) -> dict[str, str]:
    """Return where both may begin, the other model's name -> the name here: values, and equal weights, which stay."""
    both = (n for n in place.index.initializers if n in other.initializers)
    same = (n for n in both if n not in place.changed)
    here = {name: name for name in chain(same, place.whole.inputs)}
    for name, value in chain(place.nearby.items(), place.entering.items()):
        stored = place.stored_as.get(name, "") or name
        # what is reshaped has the same reference
        shape = fixed_shape(other.types.get(stored)) or value.shape
        if name in place.stored_as and value.shape == shape:
            here[stored] = name
    return here


def _cut(index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str]) -> Cut | None:
    """Return the nodes that compute values, and what they read of these inputs; None if they read more."""
    try:
        cut = close(index, inputs, outputs)
    except SurgeonError:
        return None
    return replace(cut, inputs=tuple(n for n in inputs if n not in cut.unused), unused=())


def _told_apart(ours: GraphIndex, here: Cut, theirs: GraphIndex, there: Cut) -> str:
    """Say which operators two parts of models do not both have."""
    now, right = (
        Counter(index.nodes[p].op_type for p in cut.nodes if index.nodes[p].op_type != "Constant")
        for index, cut in ((ours, here), (theirs, there))
    )
    more, less = map(_counted, (now - right, right - now))
    if more and less:
        return f"with {more}, where they have {less}"
    if more:
        return f"with {more}, which they have not"
    return f"without {less}, which they have" if less else _ALIKE


def _counted(operators: Counter[str]) -> str:
    """Return a few operators as words, and the number of many nodes."""
    if len(operators) > _TOLD:
        return counted(operators.total(), "node")
    return " and ".join(f"{n} {name}" if n > 1 else name for name, n in operators.items())


def _makers(place: Place) -> Iterator[tuple[RegionNode, GraphIndex, NodeProto]]:
    """Yield (a node, the other model, what makes the same value there)."""
    other = place.other
    if other is None:
        return
    for site in place.sites:
        node = other.node_of(place.stored_as.get(site.output, "") or site.output)
        if node is not None:
            yield site, other, node


def _pairs(place: Place) -> Iterator[tuple[RegionNode, GraphIndex, NodeProto]]:
    """Yield those that have the same operator."""
    for site, other, node in _makers(place):
        if (node.op_type, node.domain) == (site.op_type, site.node.domain):
            yield site, other, node


def _told(constant: Constant, right: Array) -> str:
    """Say how a constant differs from that of the references' model."""
    said = borrowed(constant) or _exchanged(constant, right)
    if said or not constant.is_float:
        return said or "differs"
    known = _arranged(constant, right) if right.size <= _SMALL else ""
    return known or _scaled(constant.array, right) or different(constant, wide(right))


def _arranged(constant: Constant, right: Array) -> str:
    """Say which known mistake makes the numbers of the other model what they are here; '' if none."""
    for kind, how, other in variants(constant):
        what = how.partition("; ")[0]
        if kind not in _SOLVED and np.array_equal(other, right):
            return what
        if kind == "transposed constant" and _differ_by_channel(other, right):
            return f"{what}, behind a scale by channel"
    return ""


def _differ_by_channel(one: Array, other: Array) -> bool:
    """Return whether a factor by output and by input turns one weight to the other: of a folded normalization."""
    if one.shape != other.shape or one.ndim < _WEIGHT or not one.all():
        return False
    # a product of a factor by output and one by input
    factor = (wide(other) / wide(one)).reshape(*one.shape[:2], -1)
    separate = factor[:, :1, :1] * factor[:1, :, :1] / factor[0, 0, 0]
    return bool(np.isfinite(separate).all()) and np.allclose(factor, separate, rtol=1e-3)


def _exchanged(constant: Constant, right: Array) -> str:
    """Name the constant that has its numbers, and the other way; '' for none."""
    # exchanged weights are held by two names: look for the numbers under the other
    place = constant.site.place
    for other, numbers in place.changed.items() if np.ptp(right) else ():
        held = place.whole.dense(other)
        if other != constant.name and np.array_equal(numbers, constant.array):
            now = place.whole.model.array(held) if held else None
            is_same = now is not None and np.array_equal(now, right)
            return f"and {other!r} are exchanged" if is_same else f"is the other model's {other!r}"
    return ""


def _scaled(array: Array, right: Array) -> str:
    """Say by what a constant is scaled along one of its axes; '' if it is not, or by one number."""
    made, wanted = wide(array), wide(right)
    for axis in range(array.ndim if array.ndim > 1 else 0):
        factor = fitted(made, wanted, but(array, axis))[0]
        several = np.ptp(factor) > _CLOSE and factor.all()
        if several and np.allclose(made * factor, wanted, rtol=_CLOSE, atol=0):
            ends = (f"{1 / number:.4g}" for number in (factor.max(), factor.min()))
            return f"{_SCALED} {axis} by {' to '.join(ends)}"
    return ""


def looked_up(place: Place) -> Hypotheses:
    """Yield tables with the rows that the references have wherever a row is taken.

    A row that is taken at one position alone proves nothing: the mistake may be made there.
    """
    for view in linears(place):
        now = view.constant.site.operand(1)
        if now is None or view.taken is None:
            continue
        table, taken, wanted = view.constant.numbers, view.taken, view.wanted[0]
        position = np.arange(len(taken)) % now.shape[-1] if now.ndim else np.zeros(1, np.int64)
        # each row that is taken should be the mean of what the references have there
        rows = np.unique(taken)
        solved = np.stack([wanted[taken == row].mean(axis=0) for row in rows])
        off = ~unchanged(table[rows], solved).all(axis=1)
        if not off.any() or not small(solved[np.searchsorted(rows, taken)] - wanted, wanted):
            continue
        positions = sum(np.unique(position[taken == row]).size for row in rows[off])
        right = table.copy()
        right[rows[off]] = solved[off]
        how, width = described(table, right), table.shape[1]
        unknowns = int(off.sum()) * width
        yield solved_constant(view.constant, right, how, unknowns, positions * width)


def taken_rows(place: Place) -> Hypotheses:
    """Yield other rows that a Gather takes of a table, where no input chooses them: the buckets of distances."""
    for view in linears(place):
        table, site, taken = view.constant, view.constant.site, view.taken
        name = site.name(1)
        now = site.operand(1)
        if now is None or taken is None or name in place.inputs or name in place.live:
            continue
        # which row of the table each wanted row is
        rows = _nearest_rows(table.numbers, view.wanted[0], taken)
        if rows is None or (rows == taken).all():
            continue
        right = rows.reshape(now.shape).astype(now.dtype)
        if (now == now[:1]).all() and not (right == right[:1]).all():
            continue  # they depend on an input: constants are right for these examples alone
        off = int((right != now).sum())
        which = f"other rows of {table.name!r} at {off} of {right.size} places"
        sentence = f"{site.title} takes {which}; with the rows that were solved for"
        edits = (Rewire(name, str(right.tolist()), site.only, 1),)
        fixed = any(place.is_open(name, axis) for axis in range(now.ndim))
        unknowns, known = np.unique(rows).size, view.wanted.size
        yield Hypothesis("rows of a table", sentence, edits, (), unknowns, known, fixed=fixed)


def _nearest_rows(table: Wide, wanted: Wide, present: Array) -> NDArray[np.intp] | None:
    """Return the row of a table that each wanted row is, the present one where several are; None if one is none."""
    if table.shape[0] * wanted.size > _LARGEST:
        return None
    # the nearest row of each, unless the present one is as near
    off = np.abs(table[None] - wanted[:, None]).max(axis=-1)
    rows, every = off.argmin(axis=1), np.arange(len(off))
    least = off[every, rows]
    rows = np.where(off[every, present] <= least, present, rows)
    return rows if small(least, wanted) else None
