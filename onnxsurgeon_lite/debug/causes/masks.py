"""Mistakes in attention masks: one that is missing, that is inverted, or that goes into the scores in another way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, islice, product

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.attributes import text
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import composed, put_in
from onnxsurgeon_lite.debug.causes.place import Place, RegionNode, fits, titled
from onnxsurgeon_lite.passes import Insert, Pass, Rewire
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    Arrays,
    Shape,
    data_type_of_numpy,
    has_floats,
    largest,
    wide,
)

Flags = NDArray[np.bool_]
Offsets = NDArray[np.intp]

_MASKED = -1e3  # a score that is no larger is masked
_HIDING = ("Where", "Add", "Sub", "Mul", "Softmax")
_BEFORE = 6  # nodes between a product and its Softmax
_WITH_HEADS = 3  # axes of the scores of several heads
_MOST = 12  # masks that are tried at one place
_AXES_READ = 13  # the opset since which Unsqueeze reads its axes
_POOLING: Mapping[str, Callable[..., Array]] = {
    "ReduceMean": np.mean,
    "ReduceSum": np.sum,
    "ReduceMax": np.max,
}
_MAX_READS = 18  # the opset since which ReduceMax reads its axes
_SUMS = 11  # the opset since which there is CumSum
_OF_ROWS = 2  # axes of positions of a batch
_POSITIONS = (-1, 0), (-1, 1), (1, 1)
"""What is added to the count of what a mask shows, and the position of what it hides."""
_APPLIED = {
    "Add": "is added to the scores as it is by",
    "Sub": "is subtracted from the scores as it is by",
    "Mul": "is multiplied with the scores by",
    "Where": "hides what it should not in",
}
"""Operator -> what it does with a mask and scores."""
_SCALING = {"Div", "Cast"}


def _attending(place: Place) -> Iterator[tuple[RegionNode, Array, Offsets]]:
    """Yield (Softmax, its scores, how far each key is ahead of each query) of floats."""
    for site in place.sites:
        scores = site.operand(0) if site.op_type == "Softmax" else None
        if has_floats(scores) and scores.ndim > 1:
            queries, keys = scores.shape[-2:]
            rows, columns = np.indices((queries, keys))
            yield site, scores, columns - rows - (keys - queries)


def missing_masks(place: Place) -> Hypotheses:
    """Yield causal masks before each Softmax."""
    # with a cache, the queries are the last of the keys
    for site, scores, ahead in _attending(place):
        if not 1 < len(ahead) <= ahead.shape[1]:
            continue
        mask = np.where(ahead <= 0, 0, -np.inf).astype(scores.dtype)
        edit = _added(site, "causal_mask", mask)
        was = f"{site.title} attends to {_later(scores, ahead)}"
        sentence = f"{was}; with a causal mask of {list(mask.shape)}"
        yield Hypothesis("missing mask", sentence, (edit,), ("causal mask",))


def missing_masks_of_pooling(place: Place) -> Hypotheses:
    """Yield means, sums and maxima of the positions that a mask shows, instead of those of all: without padding."""
    masks = _ones_and_zeros(place)
    for site in place.sites if place.opset >= _AXES_READ else ():
        data, made = site.operand(0), site.made
        if site.op_type not in _POOLING or not has_floats(data) or made is None:
            continue
        pooled, nodes = _POOLING[site.op_type], MISTAKES["masked"][site.op_type]
        keeps = made.ndim == data.ndim
        to, kept = data_type_of_numpy(data.dtype), f"<keepdims = {int(keeps)}>"
        for (name, mask), axis in product(masks.items(), range(1, data.ndim - 1)):
            shape = data.shape[: axis + 1]
            if mask.shape[: axis + 1] != shape or mask.size != np.prod(shape):
                continue
            if not np.allclose(pooled(data, axis=axis, keepdims=keeps), made, 1e-3, 1e-4):
                continue
            ends = f"{kept} (t, axis)"
            if place.opset < _MAX_READS:
                ends = f"<keepdims = {int(keeps)}, axes = [{axis}]> (t)"
            behind = np.arange(mask.ndim, data.ndim)
            hides = "u = Unsqueeze(c, behind) " if behind.size else "u = Identity(c) "
            edit = composed(
                place,
                site.input[0],
                site.output,
                data,
                f"c = Cast <to = {to}> (x1) {hides}{nodes.format(kept=kept, ends=ends)}",
                {
                    "axis": np.array([axis]),
                    "behind": behind,
                    "one": np.ones((), data.dtype),
                    "low": np.full((), -largest(data.dtype) / 2, data.dtype),
                },
                {name: mask},
                made,
            )
            what = site.op_type.removeprefix("Reduce").lower()
            was = f"{site.title} is the {what} of all positions of axis {axis}"
            sentence = f"{was}; with the {what} of those that {name!r} shows"
            yield Hypothesis("missing mask", sentence, (edit,), ("masked", what, axis))


def _ones_and_zeros(place: Place) -> Arrays:
    """Return the masks of a place that have ones and zeros, each once: as an input of the model where it is one."""
    values = {**place.values, **place.nearby}
    names = sorted(values, key=place.whole.inputs.__contains__)
    flags = ((name, shown(values[name])) for name in names)
    once = {
        (each.shape, each.tobytes()): name
        for name, each in flags
        if each is not None and values[name].min() >= 0
    }
    return {name: values[name] for name in once.values()}


def padded_positions(place: Place) -> Hypotheses:
    """Yield positions that count what a mask shows, without padding, where rows of a table are taken by all of them."""
    masks = _ones_and_zeros(place)
    for site in place.sites if place.opset >= _SUMS else ():
        now = site.operand(1)
        if site.op_type != "Gather" or now is None or not site.constant(0) or now.ndim != _OF_ROWS:
            continue
        # 0, 1, 2, ... for each example
        if now.dtype.kind != "i" or not (now == np.arange(now.shape[-1])).all():
            continue
        for (name, mask), (first, hidden) in product(masks.items(), _POSITIONS):
            if mask.ndim == _OF_ROWS and fits(now.shape, mask.shape):
                edits = _counting(place, site, now, {name: mask}, first, hidden)
                right = f"counting those that {name!r} shows, with {hidden} elsewhere,"
                sentence = f"{site.title} counts all positions; {right}"
                yield Hypothesis("positions", sentence, edits, ("positions", first, hidden))


def _counting(
    place: Place, site: RegionNode, now: Array, masks: Arrays, first: int, hidden: int
) -> Edits:
    """Return the edits that let a node read how many positions of a mask are shown up to each, plus a number."""
    numbers = {"last": np.array(-1)}
    for key, number in ("first", first), ("hidden", hidden):
        numbers[key] = np.asarray(number, now.dtype)
    # the sum of ones up to a position; what the mask hides has a position of its own
    nodes = f"c = Cast <to = {data_type_of_numpy(now.dtype)}> (x1) s = CumSum(c, last)"
    nodes += " p = Add(s, first) f = Cast <to = 9> (x1) y = Where(f, p, hidden)"
    (mask,) = masks.values()
    made = np.broadcast_to(now, mask.shape)
    return put_in(
        site.input[1],
        lambda start, end: composed(place, start, end, now, nodes, numbers, masks, made),
        site.only,
    )


def missing_slopes(place: Place) -> Hypotheses:
    """Yield what ALiBi adds to scores: slopes by head, for positions before or around."""
    for site, scores, ahead in _attending(place):
        if scores.ndim < _WITH_HEADS:
            continue
        heads = scores.shape[-3]
        # [heads, 1, 1], against the distances of keys from queries
        slopes = np.array(_slopes(heads))[:, None, None]
        for away, which in ((ahead, "before"), (-np.abs(ahead), "around")):
            edit = _added(site, "alibi", (slopes * away).astype(scores.dtype))
            wrong = f"{site.title} has no slopes by head in its scores (ALiBi)"
            sentence = f"{wrong}; with those of {heads} heads for positions {which}"
            fixed = place.is_open(site.input[0], -1)
            yield Hypothesis("missing slopes", sentence, (edit,), ("slopes", which), fixed=fixed)


def _added(site: RegionNode, name: str, numbers: Array) -> Insert:
    """Return the edit that adds numbers to the scores of a Softmax."""
    return Insert(site.input[0], "Add", constants=((name, numbers),), to=site.only)


def _slopes(heads: int) -> list[float]:
    """Return the slopes of ALiBi: powers of a root of 1/256, with those of twice as many heads between."""
    # a geometric sequence for the largest power of two, every second slope of twice as many for the rest
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    return slopes + _slopes(2 * power)[::2][: heads - power] if heads > power else slopes


def _later(scores: Array, ahead: Offsets) -> str:
    """Say which later positions scores let through: all, or a few, where a mask is off."""
    # how far ahead any query sees
    seen = (wide(scores) > _MASKED).reshape(-1, *ahead.shape).any(axis=0)
    most = int(ahead[seen].max(initial=0))
    if not 0 < most < ahead.max():
        return "later positions"
    return f"{most} later position{'s' * (most > 1)}: its mask is off by {most}"


def inverted_flags(place: Place) -> Hypotheses:
    """Yield flags, or ones and zeros, that are the other way round where they hide something."""
    for name, array in place.values.items():
        readers = place.index.users(name)
        if not readers or shown(array) is None or array.min() < 0:
            continue
        # what hides something, somewhere behind
        behind = place.index.descendants(readers)
        if any(place.nodes[number].op_type in _HIDING for number in behind):
            to = place.those(place.readers(name))
            edit = Insert(name, "Sub", ("1", name), to=to)
            if array.dtype.kind == "b":
                edit = Insert(name, "Not", to=to)
            sentence = f"the mask {name!r} is inverted; with 0 for 1 and 1 for 0"
            yield Hypothesis("inverted mask", sentence, (edit,), ("inverted mask",))


def extra_masks(place: Place) -> Hypotheses:
    """Yield masks that are one too many where several are joined."""
    for site in place.sites:
        masks = [name for name in site.input if _is_mask(place, name)]
        if not len(site.input) == len(masks) == 2 or not _is_mask(place, site.output):
            continue
        for name, other in (masks, masks[::-1]):
            if not place.is_constant(name) and site.output != place.value:
                sentence = f"the mask {other!r} of {site.title} is one too many; without it"
                edit = Rewire(site.output, name)
                yield Hypothesis("extra mask", sentence, (edit,), ("extra mask", site.op_type))


def _is_mask(place: Place, name: str) -> bool:
    array = place.operand(name)
    return array is not None and shown(array) is not None


def shown(array: Array) -> Flags | None:
    """Return what a mask shows: its flags, ones, or zeros among numbers that hide; None if it is no mask."""
    if array.size < 2 or array.dtype.kind in "OUS":
        return None
    # two values: zero and one, or zero and one that hides
    numbers = wide(array)
    low, high = numbers.min(), numbers.max()
    hidden = numbers <= (_MASKED if low < 0 else 0)
    is_mask = (low, high) == (0, 1) or (has_floats(array) and low <= _MASKED and high == 0)
    flags: Flags = numbers == high
    return flags if is_mask and (flags | hidden).all() else None


@dataclass(frozen=True)
class _Mask:
    """A value that tells which scores stay: those that it shows, or, where it is `inverted`, the others.

    Attributes:
        axes: what it is unsqueezed along.
    """

    name: str
    array: Array
    inverted: bool
    axes: Shape
    keeps: Flags

    @property
    def hides(self) -> str:
        """Its number where scores are hidden."""
        return text(float(self.array.max() if self.inverted else self.array.min()))

    def nodes(self, opset: int) -> str:
        """Return what makes `y` of the scores `x` and the mask `x1`, in ONNX syntax."""
        # to flags, inverted, with the axes of the scores
        steps = [] if self.array.dtype.kind == "b" else ["Cast <to = 9> ({})"]
        steps = ["Greater({}, masked)"] if self.array.min() < 0 else steps
        steps += ["Not({})"] if self.inverted else []
        if self.axes:
            inner = "({}, axes)" if opset >= _AXES_READ else f" <axes = {list(self.axes)}> ({{}})"
            steps.append(f"Unsqueeze{inner}")
        names = ["x1"] + [f"flags{k}" for k, _ in enumerate(steps)]
        made = (f"{end} = {step.format(of)}" for step, of, end in zip(steps, names, names[1:]))  # noqa: B905  one less
        return " ".join(chain(made, [f"y = Where({names[-1]}, x, low)"]))


@dataclass(frozen=True)
class _Spot:
    """Where scores can be masked.

    Attributes:
        title: the node that masks them, or their Softmax. applied: what the node does with its mask; '' for a Softmax.
        start, end: the scores, and what is read instead of them.
        mask: the mask that the node reads. read: all that it reads besides the scores.
        first: edits before this one.
    """

    title: str
    applied: str
    start: str
    end: str
    mask: str = ""
    read: Mapping[str, Array] = field(default_factory=dict)
    first: tuple[Pass, ...] = ()

    def masked(self, place: Place, scores: Array, mask: _Mask) -> Hypotheses:
        """Yield the scores with a mask; with infinity, too, where it hides all that a query could attend to."""
        wrong = f"{self.title} attends to what the mask {mask.name!r} hides"
        if self.applied:
            wrong = f"the mask {self.mask!r} {self.applied} {self.title}"
        if mask.name != self.mask and self.applied:
            wrong = f"{self.title} masks the scores with {self.mask!r}, not with {mask.name!r}"
        # a query that sees nothing is even with the lowest number, and NaN with infinity: references show which
        lowest = -largest(scores.dtype)
        for low in (lowest,) if mask.keeps.any(axis=-1).all() else (lowest, -np.inf):
            floats = {"masked": _MASKED, "low": low}
            numbers = {name: np.asarray(number, scores.dtype) for name, number in floats.items()}
            numbers["axes"] = np.array(mask.axes, np.int64)
            read, nodes = {mask.name: mask.array, **self.read}, mask.nodes(place.opset)
            edit = composed(place, self.start, self.end, scores, nodes, numbers, read)
            sentence = f"{wrong}; with {text(low)} where it is {mask.hides}"
            mistake = ("mask", self.applied, mask.hides)
            yield Hypothesis("mask", sentence, self.first + (edit,), mistake)


def other_masks(place: Place) -> Hypotheses:
    """Yield scores that are masked by a mask from nearby, instead of or besides what is done with them."""
    for name, scores in place.values.items():
        readers = place.whole.users(name)
        attending = [p for p in readers if place.whole.nodes[p].op_type == "Softmax"]
        if not attending or scores.ndim < 2 or scores.shape[-1] < 2 or not has_floats(scores):
            continue
        for spot in chain(_applied(place, name), _behind(place, name, attending)):
            for mask in islice(_masks(place, scores, spot.mask), _MOST):
                yield from spot.masked(place, scores, mask)


def _behind(place: Place, name: str, attending: Sequence[int]) -> Iterator[_Spot]:
    """Yield the edge to a Softmax."""
    # a value that enters is masked for its readers; one that is made here, for all
    made, plain = name in place.producer, f"{name}_unmasked"
    readers = (site for site in place.readers(name) if place.positions[site.number] in attending)
    to = () if made else place.those(readers)
    start, end = (plain, name) if made else (name, plain)
    if made or to:
        there = Insert(name, "Identity", to=to, before=made, output=plain)
        yield _Spot(titled(place.whole, attending[0]), "", start, end, first=(there,))


def _applied(place: Place, name: str) -> Iterator[_Spot]:
    """Yield the nodes that mask scores, from the last one on."""
    for _ in range(_BEFORE):
        site, made = place.site_of(name), place.operand(name)
        if site is None:
            return
        # one operand of the scores' shape, and a mask among the others
        read = site.operands
        masks = [n for n, array in read.items() if shown(array) is not None]
        alike = [
            n for n in read if n not in masks and made is not None and read[n].shape == made.shape
        ]
        if len(alike) != 1 or site.op_type not in _APPLIED.keys() | _SCALING:
            return
        others = {n: a for n, a in read.items() if n not in alike and not place.is_constant(n)}
        for mask in masks if site.op_type in _APPLIED else ():
            yield _Spot(site.title, _APPLIED[site.op_type], alike[0], name, mask, others)
        name = alike[0]


def _masks(place: Place, scores: Array, own: str) -> Iterator[_Mask]:
    """Yield masks for scores that differ: the one that goes in first, as it is and inverted."""
    constants = {constant.name: constant.array for constant in place.constants()}
    values = {**place.values, **place.nearby, **constants}
    masks = {name: flags for name, array in values.items() if (flags := shown(array)) is not None}
    # the mask that goes in already comes first
    plain, inverted = ([(name, way) for name in masks if name != own] for way in (False, True))
    tried = [(own, False), (own, True)] + plain if own else plain + inverted
    seen = set[bytes]()
    for name, way in tried:
        # each way in which the mask's axes may stand among those of the scores, each effect once
        missing = scores.ndim - masks[name].ndim
        for axes in combinations(range(scores.ndim), missing) if missing >= 0 else ():
            keeps = np.expand_dims(masks[name] != way, axes)
            if not fits(keeps.shape, scores.shape) or keeps.shape[-1] == 1:
                continue
            key = np.packbits(np.broadcast_to(keeps, scores.shape)).tobytes()
            if key not in seen:
                seen.add(key)
                yield _Mask(name, values[name], way, axes, keeps)
