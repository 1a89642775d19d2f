"""Mistakes in rotary embeddings: another base, exponents of the whole width instead of the half, other pairs."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, permutations, product

import ml_dtypes
import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.debug.causes.arrangement import taken
from onnxsurgeon_lite.debug.causes.attributes import text
from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import composed, edges, put_in
from onnxsurgeon_lite.debug.causes.place import Constant, Indices, Place, fits, who
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.passes import Pass
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Wide, has_floats, peak, wide

Wave = Callable[[Wide], Wide]
Make = Callable[[int, Wide], Wide]
"""(rows, frequencies) -> the first rows of a table, or frequencies."""

_WAVES: tuple[tuple[Wave, Wave], ...] = (
    (np.cos, np.arccos),
    (np.sin, np.arcsin),
    (np.asarray, np.asarray),
)
"""(angles -> a table, the way back); a table may have the angles themselves."""
_BASES = MISTAKES["rotary"]["bases"]
_PAIR = 2
_WIDEST = 512  # features of a head
_MOST = 512  # missing turns
_LARGEST = 1 << 20  # elements of a table
_CLOSE = 1e-4  # to a circle
_SCORING = ("MatMul", "Einsum", "Attention")  # hold a query against keys
_USUAL = 4  # shapes for which tables are made
_TURNED = (
    "c = MatMul(x1, spread) s = MatMul(x2, spread) t = MatMul(x, turn)"
    " a = Mul(x, c) b = Mul(t, s) y = Add(a, b)"
)
_REPEATS = 1, 2  # twice: the halves have the same angles
_HALVES = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
_SAME = 1e-3  # of a base
_ROWS = 256  # of a value, in which a turn is seen
_LEAST = 3  # frequencies: two of them always are a geometric sequence


def rotary(place: Place) -> Hypotheses:
    """Yield other bases of frequencies, and other pairs of features that are turned together."""
    yield from _other_bases(place)
    yield from _other_pairs(place)


def missing_rotary(place: Place) -> Hypotheses:
    """Yield values that are not turned."""
    yield from islice(_missing_turns(place), _MOST)


@dataclass(frozen=True)
class _Waves:
    """Frequencies, or a table of their angles, that a constant has.

    Attributes:
        base: the base that gives them. count: of the frequencies. make: frequencies -> the numbers.
        was: what the frequencies are instead; empty if they are those of the base.
    """

    base: float
    count: int
    make: Callable[[Wide], Wide]
    was: str = ""

    def of(self, base: float) -> Wide:
        """Return the numbers that frequencies of a base give."""
        return self.make(_of_base(self.count, base))


def _other_bases(place: Place) -> Hypotheses:
    """Yield other bases for all frequencies, and tables of their sines, cosines and angles, of a region."""
    found = list[tuple[Constant, _Waves]]()
    for constant in place.constants():
        waves = _waves(constant.array) if constant.is_float else None
        if waves is not None:
            found.append((constant, waves))
    # exponents of the whole width instead of the half make a base its square
    powers = (waves.base**power for _, waves in found for power in (2, 0.5))
    names = joined(dict.fromkeys(constant.name for constant, _ in found))
    for new in (
        dict.fromkeys(float(f"{base:.4g}") for base in chain(_BASES, powers)) if found else ()
    ):
        same = all(abs(new / waves.base - 1) < _SAME for _, waves in found)
        was = next((waves.was for _, waves in found if waves.was), "")
        if same and not was:
            continue
        edits = tuple(c.edit(waves.of(new).reshape(c.array.shape)) for c, waves in found)
        base = text(float(f"{found[0][1].base:.4g}"))
        sentence = (
            f"the base (theta) of the rotary frequencies in {names} is {base}; with {text(new)}"
        )
        if was:
            sentence = f"the rotary frequencies in {names} are {was}; with those of base (theta) {text(new)}"
        yield Hypothesis("rotary base", sentence, edits, ("rotary base", new))


def _waves(array: Array) -> _Waves | None:
    """Return what an array has of frequencies; None for other numbers."""
    if not array.ndim or array.size < _LEAST:
        return None
    is_line = array.size == max(array.shape)
    numbers = wide(array).reshape(-1) if is_line else wide(array).reshape(-1, array.shape[-1])
    if len(numbers) < _LEAST:
        return None
    forms = list(_forms(numbers))
    for count, make, _ in forms:
        base, half = _rounded(array.dtype, numbers, count, make)
        if half:
            was = f"those of base {text(base)} rounded to {half}"
            return _Waves(base, count, partial(make, len(numbers)), was)
    # the second frequency gives the base; the others must follow
    for count, make, frequencies in forms:
        if count < _LEAST or abs(frequencies[0] - 1) > 1e-3 or not 0 < frequencies[1] < 1:
            continue
        base = float(frequencies[1] ** -count)
        if not np.allclose(frequencies, _of_base(count, base), rtol=1e-2, atol=1e-3):
            continue
        found = _Waves(base, count, partial(make, len(numbers)))
        rtol, atol = (_SAME, 0.0) if is_line else (1e-5, 1e-3)
        if np.allclose(found.of(base), numbers, rtol, atol):
            return found
        if is_line:
            return replace(found, was="those of no base")
    return None


def _forms(numbers: Wide) -> Iterator[tuple[int, Make, Wide]]:
    """Yield (count of frequencies, how numbers are made of them, the frequencies) of what numbers may be."""
    if numbers.ndim == 1:
        yield len(numbers), lambda rows, frequencies: frequencies[:rows], numbers
        return
    for (wave, back), repeats in product(_WAVES, _REPEATS):
        count = numbers.shape[1] // repeats
        yield count, partial(_table, wave, repeats), back(np.clip(numbers[1], -1, 1))[:count]


def _rounded(dtype: "DType", numbers: Wide, count: int, make: Make) -> tuple[float, str]:
    """Return the (base, dtype) of usual frequencies in half precision, or of what is made of them; '' for none."""
    for half, base in product(_HALVES, _BASES):
        if count < _LEAST or half.itemsize >= dtype.itemsize:
            continue
        exact = _of_base(count, base)
        few = _precision(half, numbers[:_LEAST], exact, make)
        if few and _precision(half, numbers, exact, make):
            return base, str(half)
    return 0.0, ""


def _precision(half: "DType", numbers: Wide, exact: Wide, make: Make) -> bool:
    """Return whether numbers are made in half precision of exact frequencies."""
    rows = len(numbers)
    if _is_near(make(rows, exact), numbers):
        return False
    rounded = make(rows, wide(exact.astype(half)))
    if _is_near(rounded, numbers):
        return True
    return _is_near(wide(make(rows, exact).astype(half)), numbers)


def _table(wave: Wave, repeats: int, rows: int, frequencies: Wide) -> Wide:
    return np.asarray(wave(np.outer(np.arange(rows, dtype=float), np.tile(frequencies, repeats))))


def _is_near(one: Wide, other: Wide) -> bool:
    """Return whether numbers differ by no more than float32 computes them otherwise."""
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-6, atol=1e-7 * len(one))


def _of_base(count: int, base: float) -> Wide:
    return np.asarray(base ** -(np.arange(count) / count))


@dataclass(frozen=True)
class _Turn:
    """A quarter turn of pairs of features: each becomes the other one, with a sign."""

    how: str
    order: Indices
    sign: Wide

    @classmethod
    def all_of(cls, size: int) -> "list[_Turn]":
        """Return the turns that people write, of features in two halves and of neighbors, in both directions."""
        features = np.arange(size)
        halves, neighbors = np.roll(features, size // 2), features ^ 1
        of_halves, of_neighbors = features < size // 2, features % 2 == 0
        pairs = (("halves", halves, of_halves), ("neighbors", neighbors, of_neighbors))
        return [
            cls(f"{how}{back}", order, np.where(first, -sign, sign))
            for back, sign in (("", 1.0), (" the other way", -1.0))
            for how, order, first in pairs
        ]

    def matrix(self, dtype: "DType") -> Array:
        """Return the matrix that turns features."""
        return np.asarray(np.eye(self.order.size)[:, self.order] * self.sign).astype(dtype)

    def spread(self, pairs: int, dtype: "DType") -> Array:
        """Return the matrix that gives both features of a pair its angle; tables may have it for each already."""
        features = np.arange(self.order.size)
        of_pairs = features if pairs == features.size else np.minimum(features, self.order)
        of_pairs = np.unique(of_pairs, return_inverse=True)[1]
        return np.eye(pairs)[:, of_pairs].astype(dtype)


def _other_pairs(place: Place) -> Hypotheses:
    """Yield values whose features are turned in other pairs, or the other way, all of them at once.

    A turn keeps the length of each pair, however it is written. If the features are in another order before it, and
    are put back after it, then other pairs are turned by the same angles, and exchanged pairs the other way.
    """
    found: dict[str, list[tuple[str, str]]] = {"halves": [], "neighbors": []}
    # quarter turns last: most are steps of a turn that is found before
    for _, start, end, how in sorted(_turned_pairs(place), key=lambda turned: turned[0]):
        if not any(_is_within(place, start, end, *ends) for ends in found[how]):
            found[how].append((start, end))
    for (how, ends), other in zip(found.items(), reversed(found), strict=True):
        names = joined(end for _, end in ends)
        # other pairs are the usual mistake, the direction comes after
        others = ((other, ""), (how, " the other way"), (other, " the other way"))
        for pairs, back in others if ends else ():
            edits = list[Pass]()
            for start, end in ends:
                features = np.arange(place.values[start].shape[-1])
                size = _turned_features(place.values[start], place.values[end])
                order = _order_of_pairs(size, how, pairs)
                features[:size] = order[_partners(size, how)] if back else order
                edits += _around(place, start, end, features)
            sentence = f"rotary embeddings turn {how} in {names}; with {pairs}{back}"
            mistake = ("rotary pairs", f"{pairs}{back}")
            yield Hypothesis("rotary pairs", sentence, tuple(edits), mistake)


def _turned_features(start: Array, end: Array) -> int:
    """Return how many features are turned, in pairs: of a part of each head those behind it stay as they are."""
    changed = (start != end).any(tuple(range(start.ndim - 1)))
    last = int(np.flatnonzero(changed)[-1]) + 1
    return last + last % _PAIR


def _order_of_pairs(size: int, now: str, other: str) -> Indices:
    """Return the order of features in which other pairs stand where the present ones are."""
    features = np.arange(size)
    split = np.concatenate([features[::2], features[1::2]])
    if now == other:
        return features
    return split if now == "halves" else np.argsort(split)


def _turned_pairs(place: Place) -> Iterator[tuple[bool, str, str, str]]:
    """Yield (whether it is a quarter turn, value, what it is turned to, which features are pairs)."""
    rows = {
        name: np.abs(wide(array.reshape(-1, array.shape[-1])[-_ROWS:]))
        for name, array in place.values.items()
        if array.ndim > 1 and array.size and has_floats(array) and name in place.live
        if _PAIR < array.shape[-1] <= _WIDEST and array.shape[-1] % _PAIR == 0
    }
    for how in ("halves", "neighbors"):
        # the length of each pair [rows, features], which a turn keeps
        partners = {name: row[:, _partners(row.shape[1], how)] for name, row in rows.items()}
        lengths = {name: np.hypot(row, partners[name]) for name, row in rows.items()}
        for start, end in permutations(rows, 2):
            if place.values[start].shape != place.values[end].shape:
                continue
            keeps = _is_close(lengths[end], lengths[start])
            if keeps and not _is_close(rows[end], rows[start]) and _leads(place, start, end):
                yield _is_close(rows[end], partners[start]), start, end, how


def _is_within(place: Place, start: str, end: str, first: str, last: str) -> bool:
    """Return whether a turn is another one once more, from its start, to its end, or from a value between."""
    between = _leads(place, first, start) and _leads(place, start, last)
    return start == first or end == last or between


def _partners(size: int, how: str) -> Indices:
    """Return which feature each one is a pair with."""
    return next(turn.order for turn in _Turn.all_of(size) if turn.how == how)


def _is_close(one: Wide, other: Wide) -> bool:
    return peak(one - other) <= _CLOSE * peak(other)


def _around(place: Place, start: str, end: str, order: Indices) -> tuple[Pass, Pass]:
    """Return the edits that put features in an order before what turns them, and back after it."""
    between = place.index.ancestors([end], stop=[start])
    readers = [site for site in place.readers(start) if site.number in between]
    first = taken(start, -1, order, to=place.those(readers))
    return first, taken(end, -1, np.argsort(order), before=True)


def _missing_turns(place: Place) -> Hypotheses:
    """Yield values that are not turned by angles whose cosines and sines the model has, or by usual ones."""
    if all(node.op_type not in _SCORING for node in place.nodes):
        return
    values = {n: v for n, v in {**place.nearby, **place.values}.items() if _may_be_table(v)}
    constants = {**dict(_tables(place)), **_usual_tables(place)}
    # tables of cosines and sines: values of the model first, then constants
    pairs = [
        (one, other)
        for known in (values, constants)
        for one, other in permutations(known, 2)
        if _is_circle(known[one], known[other])
    ]
    known = {**constants, **values}
    for (cos, sin), (name, array, readers) in product(pairs, edges(place)):
        size, half = array.shape[-1] if array.ndim else 0, known[cos].shape[-1]
        if name in (cos, sin) or half not in (size, size / _PAIR):
            continue
        if size % _PAIR or not _PAIR < size <= _WIDEST:
            continue
        if not fits(known[cos].shape[:-1] + (1,), array.shape):
            continue
        for turn in _Turn.all_of(size):
            numbers = {"turn": turn.matrix(array.dtype), "spread": turn.spread(half, array.dtype)}
            tables = {"x1": known[cos], "x2": known[sin]}
            unread = {cos: known[cos], sin: known[sin]} if cos in values else {}
            numbers |= {} if unread else tables
            turned = partial(
                composed, place, made=array, nodes=_TURNED, numbers=numbers, unread=unread
            )
            edits = put_in(name, turned, place.those(readers))
            which = f"the rotary embedding of {cos!r} and {sin!r}"
            sentence = f"{name!r} is not turned by {which} for {who(readers)}; with it"
            yield Hypothesis("missing rotary", sentence, edits, ("turned", turn.how))


def _usual_tables(place: Place) -> dict[str, Array]:
    """Return the cosines and the sines of the usual base, for the first values that could be turned."""
    # rows are positions: as many as the value has
    shapes = {array.shape[-2:] for _, array, _ in edges(place) if array.ndim > 2}
    found = dict[str, Array]()
    for rows, size in sorted(shapes)[:_USUAL]:
        if _PAIR < size <= _WIDEST and size % _PAIR == 0 and 1 < rows <= _LARGEST // size:
            frequencies = _BASES[0] ** (-np.arange(size // _PAIR) / (size // _PAIR))
            for name, (wave, _) in zip(("cos", "sin"), _WAVES, strict=False):
                table = _table(wave, 1, rows, frequencies).astype(np.float32)
                found[f"{name} of base {_BASES[0]:g} and {size} features"] = table
    return found


def _tables(place: Place) -> Iterator[tuple[str, Array]]:
    """Yield the constants of the whole model that may be cosines or sines."""
    for name, tensor in place.whole.initializers.items():
        if not isinstance(tensor, TensorProto) or math.prod(tensor.dims) > _LARGEST:
            continue
        if len(tensor.dims) > 1 and 1 < tensor.dims[-1] <= _WIDEST:
            array = place.whole.model.array(tensor)
            if _may_be_table(array):
                yield name, array


def _may_be_table(array: Array) -> bool:
    """Return whether an array may have the cosines or the sines of the angles of several positions."""
    if not has_floats(array) or array.ndim < 2 or not 1 < array.size <= _LARGEST:
        return False
    return peak(wide(array)) <= 1 + _CLOSE and bool(array.any())


def _is_circle(one: Array, other: Array) -> bool:
    """Return whether two tables are the cosines and the sines of angles that begin with zero."""
    if one.shape != other.shape or one.flat[0] != 1:
        return False
    c, s = wide(one), wide(other)
    return bool((np.abs(c * c + s * s - 1) < _CLOSE).all())


def _leads(place: Place, start: str, end: str) -> bool:
    """Return whether a value is computed from another one."""
    between = place.index.ancestors([end], stop=[start])
    return any(start in place.nodes[number].input for number in between)
