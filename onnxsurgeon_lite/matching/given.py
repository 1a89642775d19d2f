"""Check that what the user gave belongs together: feeds and references, or two models."""

from collections.abc import Container, Iterator
from itertools import permutations

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import GraphIndex, schema_of
from onnxsurgeon_lite.model import is_standard
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.tensors.dtypes import Array, Stored, is_array, is_float, wide
from onnxsurgeon_lite.tensors.references import ReferenceSet

_RTOL = 1e-6  # of inputs that were written in another precision
_MOST_AXES = 5  # of arrays whose axes may be exchanged


def require_same_inputs(
    index: GraphIndex, references: ReferenceSet, feeds: Feeds, carried: Container[str] = ()
) -> Feeds:
    """Return the feeds; references of other inputs say nothing about them.

    Args:
        carried: inputs that are not compared: a step gets them from the one before.

    Raises:
        ReferenceSetError: an input that the references hold differs from its feed.
    """
    # an input that was renamed since: where as many names are unknown on both sides, they pair in order
    recorded = [n for n, e in references.entries.items() if e.is_input and n not in index.inputs]
    unnamed = [name for name in feeds if name not in references]
    others = dict(zip(unnamed, recorded, strict=True)) if len(unnamed) == len(recorded) else {}
    for name, feed in feeds.items():
        stored = others.get(name, name)
        if stored not in references or name in carried:
            continue
        if what := difference(feed, references.read(stored)):
            raise ReferenceSetError(
                f"the feeds are not those of {references.place!r}: input {name!r} {what}",
                "leave out --feeds, or record again with these",
            )
    return feeds


def difference(feed: Stored, recorded: Stored) -> str:
    """Say how a feed differs from the input that was recorded; '' where it is the same, also in another layout."""
    if not (is_array(feed) and is_array(recorded)):
        pairs = list(zip(feed, recorded, strict=False))
        return (
            ""
            if len(feed) == len(recorded) and not any(difference(*p) for p in pairs)
            else ("is another sequence than was recorded")
        )
    if is_float(feed.dtype) != is_float(recorded.dtype):
        return ""  # the model was given what prepares its input
    # equal shapes: name the first element that differs
    if feed.shape == recorded.shape:
        wrong = np.logical_not(_close(feed, recorded))
        if not wrong.any():
            return ""
        at = np.argwhere(wrong)[0].tolist()
        where = f"at {at} " if at else ""
        return f"is {feed[tuple(at)]} {where}where {recorded[tuple(at)]} was recorded"
    if feed.size == recorded.size and _rearranged(feed, recorded):
        return ""
    return f"has shape {list(feed.shape)}, {list(recorded.shape)} was recorded"


def _close(feed: Array, recorded: Array) -> Array:
    """Return where two arrays hold the same numbers, up to their precision."""
    if not is_float(feed.dtype):
        return np.asarray(feed == recorded)
    # the coarser dtype decides: what was stored as float16 cannot be exact
    coarse = min(feed.dtype, recorded.dtype, key=lambda dtype: dtype.itemsize)
    given, stored = (wide(array.astype(coarse)) for array in (feed, recorded))
    return np.asarray(np.isclose(given, stored, rtol=_RTOL, atol=0, equal_nan=True))


def _rearranged(feed: Array, recorded: Array) -> bool:
    """Return whether an array is another one with other axes."""
    # NCHW stored as NHWC, for example: some order of the axes makes the numbers equal
    orders = permutations(range(feed.ndim)) if feed.ndim <= _MOST_AXES else [range(feed.ndim)]
    return any(
        bool(_close(np.transpose(feed, order).ravel(), recorded.ravel()).all()) for order in orders
    )


def unlike_models(index: GraphIndex, other: GraphIndex) -> Iterator[str]:
    """Yield what two models have that makes equal nodes compute other numbers, or be fed by order."""
    # inputs of other names are fed by position
    ours, theirs = index.required_inputs, other.required_inputs
    if len(ours) == len(theirs) and set(ours) != set(theirs):
        names, given = map(joined, (theirs, ours))
        yield f"the other model's inputs are fed in order: {names} as {given}"
    # a default value may differ between opsets, for example the axis of Softmax before and since 13
    opsets = index.opset, other.opset
    sides = [{n.op_type: n for n in i.nodes if is_standard(n)} for i in (index, other)]
    for op_type in sorted(sides[0].keys() & sides[1].keys()) if len(set(opsets)) > 1 else ():
        written = [{a.name for a in side[op_type].attribute} for side in sides]
        schemas = [
            schema_of(i, side[op_type]) for i, side in zip((index, other), sides, strict=True)
        ]
        defaults = [{} if s is None else dict(s.attributes) for s in schemas]
        # attributes that both versions know and neither node writes
        for name in sorted((defaults[0].keys() & defaults[1].keys()) - written[0] - written[1]):
            values = [default[name].default_value for default in defaults]
            if values[0] != values[1]:
                versions = f"opset {opsets[0]} and {opsets[1]} of the other model"
                yield f"{op_type} leaves out {name}, whose default differs in {versions}"
