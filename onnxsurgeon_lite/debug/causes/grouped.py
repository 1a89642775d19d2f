"""Kernels of convolutions in groups: in another order, or solved for group by group."""

from collections.abc import Iterator

import numpy as np

from onnxsurgeon_lite.debug.causes.constants import orders
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses
from onnxsurgeon_lite.debug.causes.linear import fitted, kernel_windows, wanted_at
from onnxsurgeon_lite.debug.causes.place import Place, Wide, small, wide
from onnxsurgeon_lite.debug.causes.solving import borrowed, described, solved_constant, unchanged

_ROWS = 256  # rows from which a group is solved for, at least
_LARGEST = 1 << 24  # numbers that a convolution in groups reads in them


def grouped_kernels(place: Place) -> Hypotheses:
    """Yield kernels of convolutions in groups: in another order, which may be scaled by output, or solved for."""
    for number, node in enumerate(place.nodes):
        groups = place.attributes(node).get("group", 1) if node.op_type == "Conv" else 1
        kernel = place.constant(node.input[1]) if isinstance(groups, int) and groups > 1 else None
        wanted = wanted_at(place, number) if kernel is not None else None
        if kernel is None or wanted is None or not isinstance(groups, int):
            continue
        rows, out = _rows(place, number, wide(kernel), wanted, groups)
        if rows is None:
            continue
        name = node.input[1]
        for how, right, unknowns, equations in _solved(place, name, wide(kernel), rows, out):
            numbers = right.astype(kernel.dtype)
            yield solved_constant(place, number, name, numbers, how, unknowns, equations)


def _rows(
    place: Place, number: int, kernel: Wide, wanted: Wide, groups: int
) -> tuple[Wide | None, Wide]:
    """Return ([rows, groups, inputs], [rows, groups, outputs]); the first is None if there are none."""
    windows, out = kernel_windows(place, number, kernel, wanted)
    if windows is None or len(kernel) % groups or windows.shape[3] % groups:
        return None, out
    inputs = int(np.prod(kernel.shape[1:]))
    rows = windows.reshape(-1, groups, inputs)
    results = np.moveaxis(out, 1, -1).reshape(len(rows), groups, -1)
    step = max(1, len(rows) // max(_ROWS, 4 * inputs))
    return (rows[::step] if rows[::step].size <= _LARGEST else None), results[::step]


def _solved(
    place: Place, name: str, old: Wide, rows: Wide, wanted: Wide
) -> Iterator[tuple[str, Wide, int, int]]:
    """Yield (what is wrong, right kernels, unknowns, equations): of the outputs whose kernels are solved for alone."""
    groups, outputs = wanted.shape[1:]
    flat = wanted.reshape(len(wanted), -1)
    for how, order in orders(len(old)):
        arranged = old[order].reshape(groups, outputs, -1)
        made = np.einsum("rgi,goi->rgo", rows, arranged).reshape(flat.shape)
        factor = fitted(made, flat)[0]
        if small(made * factor - flat, flat):
            right = old[order] * factor.reshape(-1, *[1] * (old.ndim - 1))
            how = f"{how.format(axis=0)}, behind a scale by output that was"
            yield how, right, factor.size, flat.size
            return
    right = old.reshape(groups, outputs, -1).copy()
    for group in range(groups):
        left = wanted[:, group] - rows[:, group] @ right[group].T
        change = np.linalg.lstsq(rows[:, group], left, rcond=1e-6)[0]
        if not np.isfinite(change).all() or not small(left - rows[:, group] @ change, wanted):
            return
        right[group] += change.T
    right = right.reshape(old.shape)
    right = np.where(unchanged(old, right), old, right)
    wrong = int((right != old).reshape(len(old), -1).any(axis=1).sum())
    array = place.constant(name)
    if wrong and array is not None:
        how = borrowed(place, name, array) or described(old, right)
        yield how, right, wrong * old[0].size, wrong * len(rows)
