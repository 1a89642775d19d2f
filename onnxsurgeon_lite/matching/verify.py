"""Check that an edited model computes the same as the original."""

from collections.abc import Mapping

from onnxsurgeon_lite.errors import FeedsError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.matching.sets import SetComparison, compare_sets
from onnxsurgeon_lite.runtime.feeds import Feeds, required_inputs
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.comparison import Tolerance
from onnxsurgeon_lite.tensors.references import ReferenceSet


def verify(
    before: GraphIndex,
    after: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    tolerance: Tolerance | None = None,
) -> SetComparison:
    """Run both models on the same feeds and compare their common outputs.

    Renamed inputs and outputs are matched by position. An input that is a constant in the other model gets the
    constant.

    Raises:
        FeedsError: an input of the edited model has no counterpart in the original.
        ReferenceSetError: the models have no common output.
        RuntimeFailure: the runtime cannot run one of them.
    """
    known = {name: feeds.get(name) for name in required_inputs(before)}
    for name in known:
        frozen = constant(after, name)
        if frozen is not None:
            known[name] = after.model.array(frozen)
    given = {name: value for name, value in known.items() if value is not None}
    expected = run(before, given, runtime)
    actual = run(after, _edited_feeds(before, after, given), runtime)
    names = _by_place(before.outputs, after.outputs)
    renamed = {names.get(name, name): value for name, value in expected.items()}
    there = {name: value for name, value in renamed.items() if value is not None}
    return compare_sets(actual, ReferenceSet.of(there, "the original"), tolerance)


def _edited_feeds(before: GraphIndex, after: GraphIndex, feeds: Feeds) -> Feeds:
    names = {new: old for old, new in _by_place(before.inputs, after.inputs).items()}
    found: Feeds = {}
    for name in required_inputs(after):
        promoted = constant(before, name)
        if name in feeds:
            found[name] = feeds[name]
        elif promoted is not None:
            found[name] = before.model.array(promoted)
        elif names.get(name) in feeds:
            found[name] = feeds[names[name]]
        else:
            raise FeedsError(
                f"input {name!r} has no counterpart in the original model",
                "run the model on feeds of its own, then compare: onnxdbg run, onnxdbg compare",
            )
    return found


def _by_place(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, str]:
    """Map names of only one side, old -> new, in order; empty when their numbers differ."""
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    return dict(zip(gone, new, strict=True)) if len(gone) == len(new) else {}
