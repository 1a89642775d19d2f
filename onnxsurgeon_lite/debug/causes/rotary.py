"""Mistakes in rotary embeddings: another base, and exponents of the whole width instead of the half."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np

from onnxsurgeon_lite.debug.causes.attributes import text
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, Wide, wide
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

Wave = Callable[[Wide], Wide]

_WAVES: tuple[tuple[Wave, Wave], ...] = ((np.cos, np.arccos), (np.sin, np.arcsin))
_BASES = (1e4, 5e5, 1e6, 1e5, 1e3, 1e2, 2e4, 4e4, 1.6e5, 1e7, 8e6, 2e6, 5e6)
_LEAST = 3  # frequencies: two of them always are a geometric sequence


def rotary(place: Place) -> Iterator[Hypothesis]:
    """Yield other bases for all frequencies, and tables of their sines and cosines, of a region."""
    found = [
        (number, name, array, made)
        for number, _, name, array in place.constants()
        if is_float(array.dtype) and (made := _maker(wide(array))) is not None
    ]
    powers = (base**power for *_, (base, _) in found for power in (2, 0.5))
    bases = dict.fromkeys(float(f"{base:.4g}") for base in (*_BASES, *powers))
    for new in bases if found else ():
        if all(abs(new / base - 1) < 1e-3 for *_, (base, _) in found):
            continue
        edits = []
        for number, name, array, (_, make) in found:
            right = make(new).reshape(array.shape).astype(array.dtype)
            edits.append(SetConstant(name, right, (place.node(number),)))
        names = ", ".join(dict.fromkeys(repr(name) for _, name, *_ in found))
        was = text(float(f"{found[0][-1][0]:.4g}"))
        what = f"the base (theta) of the rotary frequencies in {names}"
        sentence = f"{what} is {was}; with {text(new)}"
        yield Hypothesis("rotary base", sentence, tuple(edits), ("rotary base", new))


def _maker(array: Wide) -> tuple[float, Callable[[float], Array]] | None:
    """Return the (base, base -> numbers) of frequencies or of a table of their angles; None for other numbers."""
    if array.ndim and array.size == max(array.shape):
        return _frequencies(array.reshape(-1), lambda frequencies: frequencies)
    table = array.reshape(-1, array.shape[-1]) if array.ndim else array
    if len(table.shape) < 2 or len(table) < _LEAST or np.abs(table).max() > 1 + 1e-6:
        return None
    for (wave, back), repeats in product(_WAVES, (1, 2)):  # twice: the halves have the same angles
        angles = back(np.clip(table[1], -1, 1))
        made = partial(_table, wave, len(table), repeats)
        found = _frequencies(angles[: len(angles) // repeats], made)
        if found is not None and np.allclose(found[1](found[0]), table, atol=1e-3):
            return found
    return None


def _table(wave: Wave, rows: int, repeats: int, frequencies: Wide) -> Wide:
    return np.asarray(wave(np.outer(np.arange(rows, dtype=float), np.tile(frequencies, repeats))))


def _frequencies(
    numbers: Wide, made: Callable[[Wide], Wide]
) -> tuple[float, Callable[[float], Array]] | None:
    """Return the (base, base -> what is made of frequencies) of `base ** (-k / n)`."""
    count = len(numbers)
    if count < _LEAST or abs(numbers[0] - 1) > 1e-3 or not 0 < numbers[1] < 1:
        return None
    base = float(numbers[1] ** -count)
    powers = np.arange(count) / count
    if not np.allclose(numbers, base**-powers, rtol=1e-2, atol=1e-3):
        return None
    return base, lambda other: made(other**-powers)
