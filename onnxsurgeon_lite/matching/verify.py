"""Check that an edited model computes the same as the original."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from onnx import ValueInfoProto, helper

from onnxsurgeon_lite.errors import FeedsError, ReferenceSetError
from onnxsurgeon_lite.graph import GraphIndex, constant, type_text
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.matching.trials import Outputs, Trial, unmoved
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.types import contradicts
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance
from onnxsurgeon_lite.tensors.dtypes import RunValue, Shape, Stored, is_array

V = TypeVar("V", Stored, RunValue)
Pairing = Mapping[str, str]
"""Name in the original -> name in the edited model."""
Turned = Mapping[str, Shape]
"""Input or output in another layout -> which dimension of the original stands at each place."""


def verify(
    before: GraphIndex,
    after: GraphIndex,
    trials: Sequence[Trial],
    runtime: Runtime,
    tolerance: Tolerance | None = None,
    turned: Turned | None = None,
) -> SetComparison:
    """Run the edited model on the feeds of the original's trials, and compare the common outputs.

    Inputs and outputs are matched by name, renamed ones by position; all by position if they agree only so, as after
    two names were swapped. An input that was a constant in the original gets the constant.

    Args:
        turned: inputs and outputs of the edited model in another layout: the original's numbers are transposed.

    Raises:
        FeedsError: an input of the edited model has no counterpart in the original.
        ReferenceSetError: the models have no common output.
        RuntimeFailure: the runtime cannot run the edited model.
    """
    # each way to pair the inputs, and for its results each way to pair the outputs: the first that agrees
    once = opened(after, runtime)
    results = []
    for inputs in _pairings(before.inputs, after.inputs):
        fed = [_in_layout(trial.feeds, inputs, turned or {}) for trial in trials]
        actual = [once(feeds_of_edited(before, after, feeds, inputs)) for feeds in fed]
        for names in _pairings(before.outputs, after.outputs):
            moved = [_in_layout(trial.outputs, names, turned or {}) for trial in trials]
            expected = [{names[n]: v for n, v in o.items() if n in names} for o in moved]
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
    # inputs of the original that the edited model has as constants
    held = {n: constant(after, n) for n in before.inputs if not constant(before, n)}
    return {name: after.model.array(tensor) for name, tensor in held.items() if tensor}


def other_dtypes(before: GraphIndex, after: GraphIndex) -> dict[str, int]:
    """Return the inputs that have another dtype in the edited model, with it."""
    kinds = [
        {n: v.type.tensor_type.elem_type for n, v in i.inputs.items()} for i in (before, after)
    ]
    return {
        n: kinds[1][n]
        for n, kind in kinds[0].items()
        if kind and kinds[1].get(n, kind) not in (0, kind)
    }


def feeds_of_edited(before: GraphIndex, after: GraphIndex, feeds: Feeds, inputs: Pairing) -> Feeds:
    """Return the feeds of the edited model.

    Raises:
        FeedsError: an input has no counterpart in the original, or its type does not take the original's numbers.
    """
    found = {
        inputs[name]: _fitted(name, value, after.inputs.get(inputs[name]))
        for name, value in feeds.items()
        if name in inputs and not constant(after, inputs[name])
    }
    for name in after.required_inputs:
        # a constant of the original that is an input now
        promoted = constant(before, name)
        if promoted:
            found.setdefault(name, before.model.array(promoted))
        if name not in found:
            raise FeedsError(
                f"input {name!r} has no counterpart in the original model",
                "run the model on feeds of its own, then compare: onnxdbg run, onnxdbg compare",
            )
    return found


def _fitted(name: str, value: Stored, declared: ValueInfoProto | None) -> Stored:
    """Return a feed in the dtype that the edited model takes, if it holds the same numbers."""
    if not is_array(value) or declared is None:
        return value
    # the dtype may differ, the numbers may not
    given = helper.make_tensor_type_proto(dtypes.data_type_of_numpy(value.dtype), value.shape)
    known = declared.type.tensor_type
    if not known.elem_type or not contradicts(declared.type, given):
        return value
    kind = dtypes.numpy_dtype(known.elem_type)
    cast = value.astype(kind)
    shaped = helper.make_tensor_type_proto(dtypes.data_type_of_numpy(kind), value.shape)
    if contradicts(declared.type, shaped) or not np.array_equal(cast.astype(value.dtype), value):
        raise FeedsError(
            f"input {name!r} is {type_text(given)} in this run of the original, the edited model takes "
            f"{type_text(declared.type)}: it cannot take the same numbers",
            "run both models on feeds of their own, then compare: onnxdbg run, onnxdbg compare",
        )
    return cast


def compare_runs(
    runs: Iterable[tuple[Outputs, Outputs]], tolerance: Tolerance | None
) -> SetComparison:
    """Compare (actual, expected) outputs of several runs; keep the worst comparison of each output."""
    result = SetComparison()
    for actual, expected in runs:
        result.only_actual = [name for name in actual if name not in expected]
        result.only_reference = [name for name in expected if name not in actual]
        rule = ValueRule(tolerance, outputs=dict.fromkeys(actual))
        for name in filter(expected.__contains__, actual):
            for key, found in rule.each(name, actual[name], expected[name]).items():
                # the comparison itself where it is the first of this output
                if _badness(found) >= _badness(result.compared.setdefault(key, found)):
                    result.compared[key] = found
    return result


def _badness(comparison: Comparison) -> tuple[bool, float]:
    return not comparison.match, comparison.max_abs


def _pairings(
    before: Mapping[str, ValueInfoProto], after: Mapping[str, ValueInfoProto]
) -> list[Pairing]:
    """Return how values correspond: those of one name, renamed ones in order; or, if that differs, all in order."""
    # a rename keeps the order, so what is new takes the place of what is gone
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    named = {name: name for name in before if name in after}
    if len(gone) == len(new):
        named.update(zip(gone, new, strict=True))
    # two names that were swapped are both still there: only their order and types show it
    placed = dict(zip(before, after, strict=False))
    fits = not any(contradicts(before[a].type, after[b].type) for a, b in placed.items())
    return [named, placed] if fits and placed != named and len(before) == len(after) else [named]


def _in_layout(values: Mapping[str, V], names: Pairing, turned: Turned) -> dict[str, V]:
    """Return values of the original in the layout that the edited model gives them."""
    found: dict[str, V] = {**values}
    for name, value in values.items():
        # the order is written for the new name, or for a name that stayed
        order = turned.get(names.get(name, name), turned.get(name))
        if order is not None and is_array(value):
            found[name] = np.ascontiguousarray(np.transpose(value, order))
    return found
