"""How far a model's values move by how they are computed: threads, optimization, float64."""

from collections.abc import Container
from contextlib import ExitStack
from dataclasses import replace
from glob import escape

import numpy as np

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.recording.from_model import computed_wide
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.tensors.comparison import OWN, Tolerance, apart
from onnxsurgeon_lite.tensors.dtypes import is_array, is_float
from onnxsurgeon_lite.tensors.statistics import magnitude

_WAYS = ("threads", "optimization", "float64")
_ROOM = 2.0  # either side is so far from what is exact


def with_noise(
    index: GraphIndex,
    feeds: Feeds,
    plain: RuntimeOptions,
    names: Container[str],
    asked: Tolerance | None,
) -> tuple[Tolerance | None, list[str]]:
    """Run a model in several ways, and let its values differ by as much as they do then.

    Args:
        plain: how it runs, with optimization off.

    Returns:
        What was asked for, widened where the noise is larger; a line for each output.
    """
    # in topological order, as every sweep yields them; constants have no noise
    order = [name for name in index.rank if name in names and index.dense(name) is None]
    order.sort(key=index.rank.__getitem__)
    base, wider, said = asked or OWN, list[tuple[str, Tolerance]](), list[str]()
    with ExitStack() as stack:
        # a runtime that is asked for parts keeps no values of a sweep
        # a runtime for float64, one for the model as it runs, and one for each way but float64
        asking, *observers = (
            Observer(index, stack.enter_context(runtime_of(way)))
            for way in (
                plain,
                plain,
                replace(plain, threads=1 if plain.threads != 1 else 2),
                replace(plain, opt="all"),
            )
        )
        exact = (
            made
            for made in computed_wide(index, feeds, asking.runtime, order)
            if made[0] in index.rank
        )
        for observer in observers:
            observer.feed(feeds)
        sides = [observer.sweep(order) for observer in observers]
        # the value as it runs, then in the other ways; all in one order, so that one value is held at a time
        for (name, value), *others in zip(*sides, exact, strict=False):
            # all ways must be at the same value
            alike = all(name == other for other, _ in others)
            if not (alike and is_array(value) and is_float(value.dtype)):
                continue
            moved, how = max(zip((apart(value, other) for _, other in others), _WAYS, strict=True))
            usual = base.of(name).resolved(value.dtype)
            allowed = max(usual.absolute(magnitude(value)), _ROOM * moved)
            # only where the noise is larger than what is usual, and finite
            if allowed == _ROOM * moved < np.inf:
                # names are patterns in a tolerance, so a name is escaped
                wider.append(
                    (escape(name), replace(usual, atol=allowed, scaled=False, columns=False))
                )
            if name in index.outputs:
                said.append(f"noise of {name!r}: {moved:.3g} by {how}; {allowed:.3g} is allowed")
    return replace(base, named=tuple(wider) + base.named) if wider else asked, said
