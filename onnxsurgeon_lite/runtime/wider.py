"""Find where the runtime computes half precision in float32."""

from collections.abc import Iterator

import numpy as np

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, is_array


def computed_wider(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, values: RunValues
) -> Iterator[str]:
    """Yield why a value after an overflow is finite, if it is not with every value rounded."""
    # values that nodes compute
    made = {n: v for n, v in values.items() if is_array(v) and n in index.producer}
    over = [n for n, v in made.items() if v.dtype == np.float16 and np.isinf(v).any()]
    for name in over:
        position = index.producer[name]
        # what depends on the overflow, and is finite all the same
        below = index.descendants([position]) - {position}
        finite = [n for n, v in made.items() if index.producer[n] in below and _is_finite(v)]
        # each node alone, so that every value is rounded
        observer = Observer(index, runtime, by_node=True)
        observer.feed(feeds)
        rounded = observer.fetch(finite)
        other = next((n for n in finite if not _is_finite(rounded[n])), None)
        if other is not None:
            yield (
                f"{name!r} overflows, but {other!r} after it is finite: the runtime computes float16 in float32 and "
                "rounds what is fetched; bisect --look node rounds every value"
            )


def _is_finite(value: RunValue) -> bool:
    if not is_array(value) or value.dtype.kind not in "fc":
        return True
    return bool(np.isfinite(value).all())
