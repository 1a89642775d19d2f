"""Find weights that an export made of pieces of parameters: rows of an embedding, gates of a recurrent node."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, is_float

Keys = NDArray[np.uint64]

_GATES = (1, 4, 3)  # pieces of a bias: whole, of an LSTM, of a GRU
_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Pieces:
    """A weight as equally long pieces of parameters.

    Attributes:
        parameters: the shapes of the parameters that the pieces are from. places: each piece's position among all
            pieces of these. is_transposed: the last two axes of the weight changed places afterwards.
    """

    parameters: Mapping[str, Shape]
    length: int
    places: NDArray[np.intp]
    is_transposed: bool

    def runs(self) -> tuple[str, ...]:
        """Return the parameters in the order of their pieces, one again where it goes on after another."""
        # piece -> the parameter that it is from
        names = list(self.parameters)
        counts = [math.prod(shape) // self.length for shape in self.parameters.values()]
        which = np.repeat(np.arange(len(names)), counts)[self.places].tolist()
        return tuple(names[at] for at, _ in groupby(which))

    def joined(self, read: Callable[[str], Array], shape: Shape) -> Array:
        """Return the weight, made of the parameters' numbers."""
        pieces = np.concatenate([read(name).reshape(-1, self.length) for name in self.parameters])
        # found in the transposed weight, so the result is transposed back
        if self.is_transposed:
            transposed = pieces[self.places].reshape(shape[:-2] + (shape[-1], shape[-2]))
            return transposed.swapaxes(-1, -2)
        return pieces[self.places].reshape(shape)


@dataclass(frozen=True)
class _Table:
    """The pieces of one length, by a digest of their bytes."""

    keys: Keys
    starts: Mapping[str, int]

    def places(self, keys: Keys) -> NDArray[np.intp] | None:
        """Return where pieces are, None if one of them is nowhere or in two places."""
        # keys are sorted, so equal ones are a range: two binary searches; exactly one is wanted
        order = np.argsort(self.keys)
        ends = [np.searchsorted(self.keys, keys, side, order) for side in ("left", "right")]
        return order[ends[0]] if (ends[1] - ends[0] == 1).all() else None


class PieceTable:
    """The pieces of parameters, by their contents."""

    def __init__(self, parameters: Mapping[str, Shape], read: Callable[[str], Array]) -> None:
        self._parameters = parameters
        self._read = read
        self._of = cache(self._table)

    def find(self, array: Array, order: Callable[[str], str] = lambda _: "") -> Pieces | None:
        """Return the pieces that an array is made of, None if one of them is not known.

        Args:
            order: of parameters with the same numbers, those for which it is empty come first.
        """
        # a single number, or the same everywhere, would be found in any parameter
        if array.size < 2 or (array == array.flat[0]).all():
            return None
        made = ((p, p.joined(self._read, array.shape)) for p in self._ways(array))
        # digests only suggest: the numbers decide
        found = (p for p, whole in made if np.array_equal(whole.astype(array.dtype), array))
        return next(found, None) or (self._joined(array, order) if array.ndim == 1 else None)

    def _joined(self, array: Array, order: Callable[[str], str]) -> Pieces | None:
        """Return whole parameters in a row: packed biases."""
        # vectors only: a packed bias is made of whole ones
        known = {
            name: self._read(name).astype(array.dtype)
            for name in sorted(self._parameters, key=order)
            if len(self._parameters[name]) == 1
        }

        def parts(start: int) -> list[str] | None:
            if start == array.size:
                return []
            for name, each in known.items():
                end = start + each.size
                rest = parts(end) if each.size and np.array_equal(array[start:end], each) else None
                if rest is not None:
                    return [name] + rest
            return None

        names = parts(0)
        if not names or len(set(names)) < len(names):
            return None
        shapes = {name: self._parameters[name] for name in names}
        length = math.gcd(*(shape[0] for shape in shapes.values()))
        return Pieces(shapes, length, np.arange(array.size // length), False)

    def _ways(self, array: Array) -> Iterator[Pieces]:
        lengths = set(chain.from_iterable(map(_lengths, self._parameters.values())))
        for is_transposed in (False, True)[: array.ndim]:
            mine = array.swapaxes(-1, -2) if is_transposed else array
            # longer pieces match less by chance
            for length in sorted(lengths, reverse=True):
                if mine.shape[-1] % length == 0:
                    # the digests of all pieces of this length
                    table = self._of(length, mine.dtype)
                    places = table.places(_keys(mine, length))
                    if places is not None:
                        yield self._pieces(table, places, length, is_transposed)

    def _pieces(
        self, table: _Table, places: NDArray[np.intp], length: int, is_transposed: bool
    ) -> Pieces:
        """Name the parameters that the pieces are from, and count the places in these alone."""
        # each piece is of the last parameter that starts before it
        names, starts = list(table.starts), np.array(list(table.starts.values()))
        which = np.searchsorted(starts, places, "right") - 1
        used, which_used = np.unique(which, return_inverse=True)
        parameters = {names[i]: self._parameters[names[i]] for i in used}
        counts = [math.prod(shape) // length for shape in parameters.values()]
        # where each used parameter starts among the pieces of used parameters alone
        fresh = np.cumsum([0] + counts[:-1])
        return Pieces(parameters, length, places - starts[which] + fresh[which_used], is_transposed)

    def _table(self, length: int, dtype: DType) -> _Table:
        keys, starts, count = [np.empty(0, np.uint64)], {}, 0
        for name, shape in self._parameters.items():
            stored = self._read(name) if length in _lengths(shape) else None
            if stored is not None and is_float(stored.dtype):
                starts[name] = count
                keys.append(_keys(stored.astype(dtype), length))
                count += keys[-1].size
        return _Table(np.concatenate(keys), starts)


def _lengths(shape: Shape) -> list[int]:
    """Return how long the pieces of a parameter are: its rows, or the gates of a bias."""
    ways = _GATES if len(shape) == 1 else _GATES[:1]
    return [shape[-1] // n for n in ways if shape and shape[-1] % n == 0 and shape[-1] // n > 1]


def _keys(array: Array, length: int) -> Keys:
    """Return a digest of each piece."""
    # a product with random numbers, a block of rows at a time
    rows = np.ascontiguousarray(array).reshape(-1, length).view(np.uint8)
    factors = np.random.default_rng(0).integers(1, 1 << 63, rows.shape[1], np.uint64)
    step = max(1, _BLOCK // rows.shape[1])
    parts = [rows[i : i + step] @ factors for i in range(0, len(rows), step)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)
