"""Find where NaN, Inf or overflows first appear, without references."""

from collections.abc import Iterator

import numpy as np

from onnxsurgeon_lite.debug.bisection.bisect import ENTERED, Search
from onnxsurgeon_lite.debug.bisection.body_search import BodySearch
from onnxsurgeon_lite.debug.bisection.crash import crash_of
from onnxsurgeon_lite.debug.bisection.diagnose import culprit_at
from onnxsurgeon_lite.debug.bisection.verdicts import operands
from onnxsurgeon_lite.debug.bisection.walk import Walk
from onnxsurgeon_lite.debug.judge import Finds
from onnxsurgeon_lite.debug.result import (
    BisectResult,
    Culprit,
    Finding,
    ValueReport,
    Verdict,
)
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.errors import RuntimeLost
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress, quiet
from onnxsurgeon_lite.tensors.dtypes import is_array
from onnxsurgeon_lite.tensors.references import ReferenceSet


def find(
    model: Model,
    kind: str,
    feeds: Feeds,
    runtime: Runtime,
    search: Search | None = None,
    progress: Progress = quiet,
) -> BisectResult:
    """Find the nodes that produce such values from inputs without them, in bodies too.

    Args:
        kind: `nan`, `inf` or `overflow:float16`.

    Raises:
        UsageError: the kind is unknown.
    """
    search = search or Search()
    judge, index = Finds.of(kind), GraphIndex.of(model)
    observer = Observer(index, runtime, by_node=search.look == "node")
    observer.feed(feeds)
    space = Space(index)
    walk = Walk(
        space, observer, judge, search.look or "unoptimized", search.memory, progress=progress
    )
    result = BisectResult("agrees", look=search.look or "unoptimized", kind=kind)
    try:
        # the first wave is the answer, and nothing is healed: what follows from a NaN is no origin
        for origins in walk.every(lambda found: found):
            bads = [origin.bad for origin in origins]
            result.culprits = list(_culprits(space, observer, judge, bads, result))
            result.verdict = "mismatch"
            break
    # a crash is the culprit then; no reference can be replayed to get around it
    except RuntimeLost as error:
        none = ReferenceSet("", {})
        culprit, result.tensors = crash_of(error, space, feeds, runtime, space.values, none)
        result.verdict, result.culprits = "mismatch", [culprit]
        return result
    for culprit in result.culprits[:ENTERED]:
        # tensors are (None, value): there are no references
        given = {name: result.tensors[name][1] for name in culprit.inputs}
        found, why = BodySearch(observer, culprit, given).find(
            judge, lambda body, feeds: find(body, kind, feeds, runtime, search, progress)
        )
        result.notes += [why] if why else []
        if culprit is result.culprits[0]:
            result.inner = found
    result.compared, result.sessions = walk.compared, observer.sessions
    return result


def _culprits(
    space: Space, observer: Observer, judge: Finds, bads: list[int], result: BisectResult
) -> Iterator[Culprit]:
    for culprit in (culprit_at(space, bad) for bad in bads):
        fetched = observer.fetch([culprit.value] + culprit.inputs, keep=culprit.inputs)
        result.tensors.update((name, (None, value)) for name, value in fetched.items())
        array = fetched[culprit.value]
        if is_array(array):
            # explain the first such element by the elements that it is computed from
            at = tuple(map(int, np.argwhere(judge.hits(array))[0]))
            made = operands({name: fetched[name] for name in culprit.inputs}, at, array)
            verdict: Verdict = "overflow" if np.isfinite(judge.largest) else "non-finite"
            because = f"{judge.because(array)}, computed from {made}"
            culprit.findings = [Finding(verdict, because)]
        culprit.values = [ValueReport(name, "input") for name in culprit.inputs]
        culprit.values.append(ValueReport(culprit.value, "output"))
        yield culprit
