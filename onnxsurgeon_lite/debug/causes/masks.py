"""Mistakes in attention: a causal mask that is missing."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place, wide
from onnxsurgeon_lite.passes.insert import Insert
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_MASKED = -1e3  # a score that is no larger is masked


def missing_masks(place: Place) -> Iterator[Hypothesis]:
    """Yield causal masks in front of each Softmax."""
    for number, node in enumerate(place.index.nodes):
        scores = place.operand(node.input[0]) if node.op_type == "Softmax" else None
        if scores is None or scores.ndim < 2 or not is_float(scores.dtype):
            continue
        queries, keys = scores.shape[-2:]
        if not 1 < queries <= keys:
            continue
        keeps = np.tri(queries, keys, keys - queries, bool)
        mask = np.where(keeps, 0, -np.inf).astype(scores.dtype)
        token = (place.node(number),)
        edit = Insert(node.input[0], "Add", constants=(("causal_mask", mask),), to=token)
        later = _later(scores, keeps)
        sentence = (
            f"{place.title(number)} attends to {later}; with a causal mask of {list(mask.shape)}"
        )
        yield Hypothesis("missing mask", sentence, (edit,), ("causal mask",))


def _later(scores: Array, keeps: "NDArray[np.bool_]") -> str:
    """Say which later positions scores let through: all, or a few, where a mask is off."""
    seen = (wide(scores) > _MASKED).reshape(-1, *keeps.shape).any(axis=0)
    rows, columns = np.indices(keeps.shape)
    ahead = columns - rows - (keeps.shape[1] - keeps.shape[0])
    most = int(ahead[seen].max(initial=0))
    if not 0 < most < ahead.max():
        return "later positions"
    return f"{most} later position{'s' * (most > 1)}: its mask is off by {most}"
