"""Mistakes in attention: a causal mask that is missing."""

from collections.abc import Iterator

import numpy as np

from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.passes.insert import Insert
from onnxsurgeon_lite.tensors.dtypes import is_float


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
        sentence = f"{place.title(number)} attends to later positions; with a causal mask of {list(mask.shape)}"
        yield Hypothesis("missing mask", sentence, (edit,), ("causal mask",))
