"""Compare the outputs of two models on the same feeds."""

from dataclasses import replace

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.diff.result import ModelDiff
from onnxsurgeon_lite.matching.sets import compare_value
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.feeds import Feeds, check_feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance


def with_outputs(
    models: tuple[Model, Model],
    found: ModelDiff,
    feeds: Feeds,
    runtime: Runtime,
    tolerance: Tolerance | None = None,
) -> ModelDiff:
    """Add comparisons of the outputs on the first model's feeds; the first model is the reference."""
    first, second = map(GraphIndex.of, models)
    inputs, outputs = (found.renamed.get(kind, {}) for kind in ("inputs", "outputs"))
    theirs = {inputs.get(name, name): value for name, value in feeds.items()}
    theirs = {name: value for name, value in theirs.items() if name in second.inputs}
    check_feeds(second, theirs)
    pairs = {name: outputs.get(name, name) for name in first.outputs}
    pairs = {name: other for name, other in pairs.items() if other in second.outputs}
    reference = run(first, feeds, runtime, list(pairs))
    actual = run(second, theirs, runtime, list(pairs.values()))
    compared: dict[str, Comparison] = {}
    for name, other in pairs.items():
        compared |= compare_value(name, actual[other], reference[name], tolerance)
    same = found.same and all(comparison.match for comparison in compared.values())
    return replace(found, same=same, outputs=compared)
