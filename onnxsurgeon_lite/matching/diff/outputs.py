"""Compare the outputs of two models on the same feeds, for a diff."""

from collections.abc import Sequence
from dataclasses import replace

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.diff.result import ModelDiff
from onnxsurgeon_lite.matching.trials import Trial, unmoved, unmoved_notes
from onnxsurgeon_lite.matching.verify import compare_runs, feeds_of_edited
from onnxsurgeon_lite.runtime.feeds import check_feeds
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.comparison import Tolerance


def with_outputs(
    models: tuple[GraphIndex, GraphIndex],
    found: ModelDiff,
    trials: Sequence[Trial],
    runtime: Runtime,
    tolerance: Tolerance | None = None,
) -> ModelDiff:
    """Add comparisons of the outputs on the feeds of the first model's trials; it is the reference."""
    first, second = models
    inputs, outputs = (found.renamed.get(kind, {}) for kind in ("inputs", "outputs"))
    # name in the first model -> name in the second, without those that only one has
    names = {name: inputs.get(name, name) for name in first.inputs}
    names = {name: other for name, other in names.items() if other in second.inputs}
    pairs = {name: outputs.get(name, name) for name in first.outputs}
    pairs = {name: other for name, other in pairs.items() if other in second.outputs}
    given = [feeds_of_edited(first, second, trial.feeds, names) for trial in trials]
    for feeds in given:
        check_feeds(second, feeds)
    once = opened(second, runtime, list(pairs.values()))
    runs = []
    for trial, feeds in zip(trials, given, strict=True):
        actual = once(feeds)
        expected = {name: trial.outputs[name] for name in pairs}
        runs.append(({name: actual[other] for name, other in pairs.items()}, expected))
    compared = compare_runs(runs, tolerance)
    notes = found.notes + unmoved_notes(name for name in unmoved(trials) if name in pairs)
    same = found.same and compared.match
    return replace(found, same=same, outputs=compared.compared, notes=notes)
