"""Rows that a Gather takes of a table: other rows, or other numbers in them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import wanted_at
from onnxsurgeon_lite.debug.causes.place import Place, Wide, small, wide
from onnxsurgeon_lite.debug.causes.solving import described, solved_constant, unchanged
from onnxsurgeon_lite.passes.rewire import Rewire
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_LARGEST = 1 << 24  # differences of rows that are compared with each other


def looked_up(place: Place) -> Hypotheses:
    """Yield tables with the rows that the references have wherever a row is taken.

    A row that is taken at one position alone proves nothing: the mistake may be made there.
    """
    for number, node, table, now, wanted in _lookups(place):
        taken, read = now.reshape(-1) % len(table), wanted.reshape(-1, len(table[0]))
        position = np.arange(len(taken)) % now.shape[-1] if now.ndim else np.zeros(1, np.int64)
        rows = np.unique(taken)
        old = wide(table[rows])
        solved = np.stack([read[taken == row].mean(axis=0) for row in rows])
        off = ~unchanged(old, solved).all(axis=1)
        if not off.any() or not small(solved[np.searchsorted(rows, taken)] - read, read):
            continue
        positions = [np.unique(position[taken == row]).size for row in rows[off]]
        right = wide(table).copy()
        right[rows[off]] = solved[off]
        how = described(wide(table), right)
        unknowns, equations = right[rows[off]].size, sum(positions) * len(table[0])
        right = right.astype(table.dtype)
        yield solved_constant(place, number, node.input[0], right, how, unknowns, equations)


def _lookups(place: Place) -> Iterator[tuple[int, NodeProto, Array, Array, Wide]]:
    """Yield (number, node, table, which rows it takes, what it should make of them) of each Gather of rows."""
    for number, node in enumerate(place.nodes):
        table = place.constant(node.input[0]) if node.op_type == "Gather" else None
        wanted = wanted_at(place, number) if table is not None else None
        now = place.operand(node.input[1]) if wanted is not None else None
        if table is None or wanted is None or now is None or table.ndim != 2:
            continue
        of_rows = not place.attributes(node).get("axis", 0) and is_float(table.dtype)
        if of_rows and wanted.shape == (*now.shape, len(table[0])):
            yield number, node, table, now, wanted


def taken_rows(place: Place) -> Hypotheses:
    """Yield other rows that a Gather takes of a table, where no input chooses them: the buckets of distances."""
    for number, node, table, now, wanted in _lookups(place):
        name = node.input[1]
        if name in place.inputs or name in place.live:
            continue
        rows = _nearest_rows(wide(table), wanted.reshape(-1, len(table[0])), now.reshape(-1))
        if rows is None or (rows == now.reshape(-1) % len(table)).all():
            continue
        right = rows.reshape(now.shape).astype(now.dtype)
        off = int((right != now).sum())
        which = f"other rows of {node.input[0]!r} at {off} of {right.size} places"
        sentence = f"{place.title(number)} takes {which}; with the rows that were solved for"
        edit = Rewire(name, str(right.tolist()), place.only(number), 1)
        fixed = any(place.is_open(name, axis) for axis in range(now.ndim))
        kind, unknowns = "rows of a table", np.unique(rows).size
        yield Hypothesis(kind, sentence, (edit,), (), unknowns, wanted.size, fixed=fixed)


def _nearest_rows(table: Wide, wanted: Wide, now: Array) -> NDArray[np.intp] | None:
    """Return the row of a table that each wanted row is, the present one where several are; None if one is none."""
    if table.shape[0] * wanted.size > _LARGEST:
        return None
    off = np.abs(table[None] - wanted[:, None]).max(axis=-1)
    rows = off.argmin(axis=1)
    present = now.astype(np.int64) % len(table)
    every = np.arange(len(rows))
    least = off[every, rows]
    rows = np.where(off[every, present] <= least, present, rows)
    return rows if small(least, wanted) else None
