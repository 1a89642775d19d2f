"""Check that an edited model computes the same as the original."""

from collections.abc import Iterable, Mapping, Sequence

from onnx import ValueInfoProto

from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.matching.sets import SetComparison, compare_value
from onnxsurgeon_lite.matching.trials import Outputs, Trial, unmoved
from onnxsurgeon_lite.runtime.feeds import Feeds, required_inputs
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.types import contradicts
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance

Pairing = Mapping[str, str]
"""Name in the original -> name in the edited model."""


def verify(
    before: GraphIndex,
    after: GraphIndex,
    trials: Sequence[Trial],
    runtime: Runtime,
    tolerance: Tolerance | None = None,
) -> SetComparison:
    """Run the edited model on the feeds of the original's trials, and compare the common outputs.

    Inputs and outputs are matched by name, renamed ones by position; all by position if they agree only so, as after
    two names were swapped. An input that was a constant in the original gets the constant.

    Raises:
        FeedsError: an input of the edited model has no counterpart in the original.
        ReferenceSetError: the models have no common output.
        RuntimeFailure: the runtime cannot run the edited model.
    """
    once = opened(after, runtime)
    results = []
    for inputs in _pairings(before.inputs, after.inputs):
        actual = [once(feeds_of_edited(before, after, t.feeds, inputs)) for t in trials]
        for names in _pairings(before.outputs, after.outputs):
            expected = [_renamed(trial.outputs, names) for trial in trials]
            result = compare_runs(zip(actual, expected, strict=True), tolerance)
            result.unmoved = [names[name] for name in unmoved(trials) if name in names]
            if not result.compared:
                raise ReferenceSetError("the models have no output in common")
            if result.match:
                return result
            results.append(result)
    return results[0]


def known_feeds(before: GraphIndex, after: GraphIndex) -> Feeds:
    """Return the inputs that are constants in the edited model."""
    held = {name: constant(after, name) for name in required_inputs(before)}
    return {name: after.model.array(tensor) for name, tensor in held.items() if tensor is not None}


def feeds_of_edited(before: GraphIndex, after: GraphIndex, feeds: Feeds, inputs: Pairing) -> Feeds:
    """Return the feeds of the edited model.

    Raises:
        FeedsError: an input has no counterpart in the original.
    """
    found = {inputs[name]: value for name, value in feeds.items() if name in inputs}
    for name in required_inputs(after):
        promoted = constant(before, name)
        if promoted is not None:
            found.setdefault(name, before.model.array(promoted))
        if name not in found:
            raise FeedsError(
                f"input {name!r} has no counterpart in the original model",
                "run the model on feeds of its own, then compare: onnxdbg run, onnxdbg compare",
            )
    return found


def compare_runs(
    runs: Iterable[tuple[Outputs, Outputs]], tolerance: Tolerance | None
) -> SetComparison:
    """Compare (actual, expected) outputs of several runs; keep the worst comparison of each output."""
    result = SetComparison()
    for actual, expected in runs:
        result.only_actual = [name for name in actual if name not in expected]
        result.only_reference = [name for name in expected if name not in actual]
        for name in filter(expected.__contains__, actual):
            for key, found in compare_value(name, actual[name], expected[name], tolerance).items():
                if _badness(found) >= _badness(result.compared.setdefault(key, found)):
                    result.compared[key] = found
    return result


def _badness(comparison: Comparison) -> tuple[bool, float]:
    return not comparison.match, comparison.max_abs


def _pairings(
    before: Mapping[str, ValueInfoProto], after: Mapping[str, ValueInfoProto]
) -> list[Pairing]:
    """Return how values correspond: those of one name, renamed ones in order; or, if that differs, all in order."""
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    named = {name: name for name in before if name in after}
    if len(gone) == len(new):
        named.update(zip(gone, new, strict=True))
    placed = dict(zip(before, after, strict=False))
    fits = not any(contradicts(before[a].type, after[b].type) for a, b in placed.items())
    return [named, placed] if fits and placed != named and len(before) == len(after) else [named]


def _renamed(outputs: Outputs, names: Pairing) -> Outputs:
    return {names[name]: value for name, value in outputs.items() if name in names}
