"""Rows that a Gather takes of a table: other rows, or other numbers in them."""

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import linears
from onnxsurgeon_lite.debug.causes.place import Place, Wide, small
from onnxsurgeon_lite.debug.causes.solving import described, solved_constant, unchanged
from onnxsurgeon_lite.passes import Rewire
from onnxsurgeon_lite.tensors.dtypes import Array

_LARGEST = 1 << 24  # differences of rows that are compared with each other


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
        rows = _nearest_rows(table.numbers, view.wanted[0], taken)
        if rows is None or (rows == taken).all():
            continue
        right = rows.reshape(now.shape).astype(now.dtype)
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
