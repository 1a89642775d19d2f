"""Mistakes in operators: another operator of the same kind, one too many, several too many."""

from collections.abc import Iterator
from itertools import combinations, islice, permutations
from typing import cast

import numpy as np

from onnxsurgeon_lite.debug.causes.formulas import is_undefined
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import composed
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.passes import Pass, Remove, Replace, SetAttr, SetOp
from onnxsurgeon_lite.tensors.dtypes import Array, has_floats, wide

_IMAGE = 4  # axes of images
_MOST_AXES = 5  # axes whose permutations are tried
_PAIRS = 256  # pairs of values of a region between which all is left out
_NEUTRAL = MISTAKES["neutral"]
_KEEP = ("Relu", "LeakyRelu", "Elu", "Abs")
"""Operators that return positive numbers as they are."""
KINDS = [line.split() for line in MISTAKES["operators"]["kinds"]]


def other_operators(place: Place) -> Hypotheses:
    """Yield other operators of the same kind."""
    for kind in KINDS:
        for site in place.sites:
            if site.op_type in kind and not (site.renames or _has_number(site)):
                for op_type in kind:
                    keeps = op_type in _KEEP and _is_positive(site)
                    if op_type != "Identity" and not keeps:
                        yield from with_operator(site, op_type)


def other_arithmetic(place: Place) -> Hypotheses:
    """Yield other operators with a number: a step too many that another takes back is the simpler mistake."""
    for site in place.sites:
        for op_type in _NEUTRAL if _has_number(site) else ():
            yield from with_operator(site, op_type)


def with_operator(site: RegionNode, op_type: str) -> Hypotheses:
    """Yield a node with another operator, and its usual attributes; none that is undefined for what the node reads."""
    read = [site.operand(slot) for slot in range(len(site.input))]
    given = [wide(array) for array in read if array is not None and array.dtype.kind in "fViu"]
    undefined = len(given) == len(read) and is_undefined(op_type, *given)
    if op_type == site.op_type or undefined:
        return
    # attributes that the other operator does not have go
    has = {attribute.name for attribute in site.node.attribute}
    drop = tuple(name for name in MISTAKES["only"].get(site.op_type, ()) if name in has)
    edits: Edits = (SetAttr(site.only, remove=drop),) if drop else ()
    edits += (SetOp(site.only, op_type),)
    for name, value, with_ in [("", 0, ""), *MISTAKES["variants"].get(op_type, ())]:
        more = (SetAttr(site.only, ((name, value),)),) if name else ()
        sentence = f"{site.title} should be {op_type}{with_}; with that"
        mistake = ("operator", site.op_type, op_type, with_)
        yield Hypothesis("operator", sentence, edits + more, mistake)


def _has_number(site: RegionNode) -> bool:
    """Return whether a node scales or shifts by one number."""
    read = [site.constant(slot) for slot in range(len(site.input))]
    return site.op_type in _NEUTRAL and any(c is not None and c.array.size == 1 for c in read)


def _is_positive(site: RegionNode) -> bool:
    """Return whether nothing distinguishes an operator that keeps positive numbers from none at all."""
    read = site.operand(0)
    return has_floats(read) and bool((wide(read) >= 0).all())


def other_parts(place: Place) -> Hypotheses:
    """Yield other orders of elements."""
    yield from _pixels(place)
    for site in place.sites:
        yield from _turned(site)


def _turned(site: RegionNode) -> Hypotheses:
    """Yield axes that are exchanged where they are laid out anew, and the other way."""
    data, made, place = site.operand(0), site.made, site.place
    if data is None or made is None or data.ndim != made.ndim or data.ndim > _MOST_AXES:
        return
    # Transpose and Reshape give the same shape, and mean different orders
    name, result, should_be = site.input[0], (site.output,), f"{site.title} should be"
    if site.op_type == "Transpose" and data.shape != made.shape:
        edit = Replace((name, str(list(made.shape))), result, "Reshape")
        fixed = any(place.is_open(site.output, axis) for axis in range(made.ndim))
        sentence = f"{should_be} Reshape; with that"
        yield Hypothesis("operator", sentence, (edit,), ("laid out",), fixed=fixed)
    for axes in permutations(range(data.ndim)) if site.op_type == "Reshape" else ():
        exchanged = [axis for axis in axes if data.shape[axis] > 1]
        fits = tuple(data.shape[axis] for axis in axes) == made.shape
        if fits and exchanged != sorted(exchanged):
            edit = Replace((name,), result, "Transpose", (("perm", list(axes)),))
            sentence = f"{should_be} Transpose {list(axes)}; with that"
            yield Hypothesis("operator", sentence, (edit,), ("turned", axes))


def _pixels(place: Place) -> Hypotheses:
    """Yield DepthToSpace and SpaceToDepth between values that have their shapes."""
    values = [(n, v.shape) for n, v in place.values.items() if v.ndim == _IMAGE and all(v.shape)]
    for (start, deep), (end, large) in permutations(values, 2):
        for op_type, a, b in (("DepthToSpace", deep, large), ("SpaceToDepth", large, deep)):
            # the block that gives the larger image its size
            size = b[2] // a[2]
            grown = (a[0], a[1] // size**2, a[2] * size, a[3] * size) if size > 1 else ()
            if grown != b or not place.index.ancestors([end], stop=[start]):
                continue
            for mode in ("CRD", "DCR") if op_type == "DepthToSpace" else ("",):
                more = (("mode", mode),) if mode else ()
                edit = Replace((start,), (end,), op_type, (("blocksize", size), *more))
                sentence = f"what computes {end!r} from {start!r} orders pixels otherwise; with {op_type} {mode}"
                yield Hypothesis("pixels", sentence.rstrip(), (edit,), ("pixels", op_type, mode))


def extra_operations(place: Place) -> Hypotheses:
    """Yield nodes that should not be there, but for those that join two branches."""
    yield from (hypothesis for hypothesis, joins in _extra(place) if not joins)


def extra_joins(place: Place) -> Hypotheses:
    """Yield nodes that join two branches and should not be there: what reads one, may have to read the other."""
    yield from (hypothesis for hypothesis, joins in _extra(place) if joins)


def _extra(place: Place) -> Iterator[tuple[Hypothesis, bool]]:
    """Yield (a node that should not be there, whether it joins two branches)."""
    for site in place.sites:
        value, made = site.output, site.made
        # each input that could stand for the result
        for name in dict.fromkeys(site.computed if made is not None else ()):
            read = place.operand(name)
            if read is None or made is None or read.size != made.size or read.dtype != made.dtype:
                continue
            if read.shape != made.shape and not _is_reshaped(site):
                continue
            if _is_neutral(site, name):
                continue
            others = [place.operand(other) for other in site.computed if other != name]
            smaller = all(other is not None and other.size < read.size for other in others)
            edit: Pass = Replace((name,), (value,), op_type="Identity")
            sentence, instead = f"{site.title} is one too many; without it", ""
            if others:
                edit, instead = _bypassed(site, name)
            mistake, joins = ("extra", site.op_type), value != place.value and not smaller
            yield Hypothesis("extra operation", sentence, (edit,), mistake, instead=instead), joins


def _is_neutral(site: RegionNode, name: str) -> bool:
    """Return whether another operator keeps what a node reads as it is: that is as likely as that it is too much."""
    number = _NEUTRAL.get(site.op_type)
    others = (array for other, array in site.operands.items() if other != name)
    return number is not None and any(bool((array == number).all()) for array in others)


def _bypassed(site: RegionNode, name: str) -> tuple[Pass, str]:
    """Return (the edit that connects what reads a node to one of its inputs, the value which that is then)."""
    place, is_wrong = site.place, site.output == site.place.value
    if name not in place.inputs or not is_wrong:
        return Remove(site.only, bridge=name), name if is_wrong else ""
    read = dict(site.operands)
    made = read.pop(name)  # what enters a region cannot be what leaves it
    return composed(place, name, site.output, made, "y = Identity(x)", {}, read), ""


def _is_reshaped(site: RegionNode) -> bool:
    """Return whether nothing but another shape is made of a Transpose."""
    kinds = {reader.op_type for reader in site.readers}
    return site.op_type == "Transpose" and bool(kinds) and kinds <= {"Reshape", "Flatten"}


def extra_steps(place: Place) -> Hypotheses:
    """Yield several nodes that should not be there."""
    values = list(place.values.items())
    # each value with each that may follow from it
    pairs = combinations(values, 2)
    for (start, read), (end, made) in islice(pairs, _PAIRS):
        if read.shape != made.shape or read.dtype != made.dtype or end in place.inputs:
            continue
        if len(place.index.ancestors([end], stop=[start])) > 1 and has_floats(made):
            edit = Replace((start,), (end,), op_type="Identity")
            sentence = f"what computes {end!r} from {start!r} is one too many; without it"
            found = Hypothesis("extra operations", sentence, (edit,), ("extra", "several"))
            rolled = _rolled(place.sites[place.producer[end]], read)
            if rolled is not None:
                by, axis = rolled
                sentence = f"{end!r} is {start!r} rolled by {by} along axis {axis}; not rolled"
                found = Hypothesis("rolled", sentence, (edit,), ("rolled", by, axis))
            yield found


def _rolled(site: RegionNode, read: Array) -> tuple[int, int] | None:
    """Return (by how much, along which axis) a Concat's result is a value rolled, as `torch.roll` is exported."""
    first, axis = site.operand(0), integer(site.node, "axis")
    if site.op_type != "Concat" or first is None:
        return None
    by = first.shape[axis]  # what was at the end comes first
    is_rolled = np.array_equal(np.roll(read, by, axis), cast(Array, site.made))
    return (min(by, by - read.shape[axis], key=abs), axis) if is_rolled else None
