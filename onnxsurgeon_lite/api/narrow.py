"""Narrow the region of a culprit: the PyTorch module's operators are recorded, and searched again."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import ReferenceSetError, SurgeonError, UsageError

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.bisection import BisectResult
    from onnxsurgeon_lite.graph.index import GraphIndex
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.tensors.references import ReferenceSet

    Search = Callable[[ReferenceSet, Feeds], BisectResult]

_WIDE = 3  # nodes of a region that need no narrowing


def narrowed(
    result: "BisectResult",
    factory: str,
    index: "GraphIndex",
    sample: "tuple[ReferenceSet, Feeds]",
    align: "Callable[[ReferenceSet, Feeds], ReferenceSet]",
    search: "Search",
) -> "BisectResult":
    """Return a search with the operators of a PyTorch module if it names fewer nodes, else the first one.

    A module that cannot be recorded, or a search that fails, becomes a note: the result before it stays.

    Args:
        factory: `FILE.py:function`, which returns the module.
        align: gives references the names of the model. search: searches with other references.
    """
    result.has_factory = True
    wide = [len(culprit.region) for culprit in result.culprits[:1]]
    if not wide or wide[0] <= _WIDE:
        return result
    stored, feeds = sample
    try:
        with operators_of(factory, index, feeds) as operators:
            try:
                more = align(operators, feeds)
                entries = {**more.entries, **stored.entries}
                again = search(replace(stored, entries=entries, prefetch=lambda _: None), feeds)
            except SurgeonError as error:
                why = f"the operators of {factory!r} do not narrow the region: {error.message}"
                result.notes.append(why)
                return result
    except (ReferenceSetError, UsageError) as error:
        result.notes.append(f"the operators of {factory!r} are not recorded: {error.message}")
        return result
    if not again.culprits or len(again.culprits[0].region) >= wide[0]:
        result.notes.append(f"the operators of {factory!r} do not narrow the region")
        return result
    again.has_factory = True
    again.notes.insert(0, f"recorded the operators of {factory!r} to narrow the region")
    return again


@contextmanager
def operators_of(factory: str, index: "GraphIndex", feeds: "Feeds") -> "Iterator[ReferenceSet]":
    """Yield what each operator of a PyTorch module returns; its files exist in the context."""
    from onnxsurgeon_lite.recording.from_torch import record_factory
    from onnxsurgeon_lite.runtime.feeds import required_inputs
    from onnxsurgeon_lite.tensors.references import open_references

    inputs = required_inputs(index)
    with tempfile.TemporaryDirectory(prefix="onnxdbg-") as folder:
        place = Path(folder) / "operators"
        given = {name: feeds[name] for name in inputs if name in feeds}
        record_factory(factory, place, given, index.model, operators=True)
        yield open_references(place, inputs, list(index.outputs))
