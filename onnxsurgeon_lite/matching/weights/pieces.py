"""Find weights that an export made of pieces of parameters: rows of an embedding, gates of a recurrent node."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, groupby

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, is_float
from onnxsurgeon_lite.tensors.in_file import Rows, parts, whole

Keys = NDArray[np.uint64]

_JOINED = 16  # parameters in one weight, such as q, k and v
_GATES = (1, 4, 3)  # pieces of a bias: whole, of an LSTM, of a GRU


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

    def __init__(self, parameters: Mapping[str, Shape], rows: Callable[[str], Rows]) -> None:
        self._parameters = parameters
        self._rows = rows
        self._of = cache(self._table)

    def _read(self, parameter: str) -> Array:
        return whole(self._rows(parameter))

    def find(self, tensor: Rows, order: Callable[[str], str]) -> Pieces | None:
        """Return the pieces that an array is made of, None if one of them is not known.

        Args:
            order: of parameters with the same numbers, those for which it is empty come first.
        """
        # a single number, or the same everywhere, would be found in any parameter
        flat = tensor.reshape(-1)
        if tensor.size < 2 or all((part == flat[:1]).all() for part in parts(flat)):
            return None
        made = ((p, p.joined(self._read, tensor.shape)) for p in self._ways(tensor))
        # digests only suggest: the numbers decide
        found = (p for p, a in made if np.array_equal(a.astype(tensor.dtype), whole(tensor)))
        return next(found, None) or (self._joined(tensor[:], order) if tensor.ndim == 1 else None)

    def _joined(self, array: Array, order: Callable[[str], str]) -> Pieces | None:
        """Return whole parameters in a row: packed biases."""
        # vectors only: a packed bias is made of whole ones
        known = {
            name: self._read(name).astype(array.dtype)
            for name in sorted(self._parameters, key=order)
            if len(self._parameters[name]) == 1
        }

        names = in_a_row(
            array.size,
            lambda at: (n for n, a in known.items() if np.array_equal(array[at : at + a.size], a)),
            lambda name: known[name].size,
        )
        if not names or len(set(names)) < len(names):
            return None
        # pieces of the greatest length that divides all
        shapes = {name: self._parameters[name] for name in names}
        length = math.gcd(*(shape[0] for shape in shapes.values()))
        return Pieces(shapes, length, np.arange(array.size // length), False)

    def _ways(self, tensor: Rows) -> Iterator[Pieces]:
        lengths = set(chain.from_iterable(map(_lengths, self._parameters.values())))
        for is_transposed in (False, True)[: tensor.ndim]:
            # longer pieces match less by chance
            for length in sorted(lengths, reverse=True):
                if tensor.shape[-2 if is_transposed else -1] % length:
                    continue
                # the digests of all pieces of this length
                table = self._of(length, tensor.dtype)
                # the first piece says in most cases that there are none, without reading all
                first = tensor[:length].T if is_transposed else tensor
                if tensor.ndim == 2 and table.places(_keys(first[:1], length)) is None:
                    continue
                mine = whole(tensor).swapaxes(-1, -2) if is_transposed else tensor
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
            stored = self._rows(name) if length in _lengths(shape) else None
            if stored is not None and is_float(stored.dtype):
                starts[name] = count
                keys.append(_keys(stored, length, dtype))
                count += keys[-1].size
        return _Table(np.concatenate(keys), starts)


def in_a_row(
    end: int, fitting: Callable[[int], Iterable[str]], size: Callable[[str], int]
) -> list[str]:
    """Return parameters that fill a weight from the start to the end; none if there are none.

    Args:
        fitting: gives those that may begin at a place, the best first.
        size: how long a parameter is.
    """

    # depth first: (where the next one begins, what is before it)
    pending, tried = [(0, list[str]())], set[int]()
    while pending:
        start, names = pending.pop()
        if start == end:
            return names
        # each place is tried once, however it is reached
        if start not in tried and len(names) < _JOINED:
            tried.add(start)
            # the best is taken first
            found = [(start + size(each), names + [each]) for each in fitting(start)]
            pending += found[::-1]
    return []


def _lengths(shape: Shape) -> list[int]:
    """Return how long the pieces of a parameter are: its rows, or the gates of a bias."""
    ways = _GATES if len(shape) == 1 else _GATES[:1]
    return [shape[-1] // n for n in ways if shape and shape[-1] % n == 0 and shape[-1] // n > 1]


def _keys(tensor: Rows, length: int, dtype: DType | None = None) -> Keys:
    """Return a digest of each piece, cast to a dtype."""
    dtype = dtype or tensor.dtype
    # a product with random numbers, some pieces at a time
    factors = np.random.default_rng(0).integers(1, 1 << 63, length * dtype.itemsize, np.uint64)
    found = [np.empty(0, np.uint64)]
    for part in parts(tensor.reshape((-1, length))):
        found.append(np.ascontiguousarray(part, dtype).view(np.uint8) @ factors)
    return np.concatenate(found)
