"""Turn verdicts of a quantized model into causes: the numbers that fit, each proved by another search."""

from collections.abc import Callable

from onnxsurgeon_lite.debug.result import BisectResult, Cause, Culprit
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.pipeline import Pipeline
from onnxsurgeon_lite.passes.typed import as_command, as_step


def add_causes(result: BisectResult, model: Model, again: Callable[[Model], BisectResult]) -> None:
    """Give the culprits a cause whose finding names the numbers that fit, if their edit makes the value right.

    Args:
        again: searches an edited model.
    """
    for culprit in result.culprits:
        steps = culprit.findings[0].edits
        if not steps:
            continue
        try:
            # the proof: with the edit, a new search finds no culprit at this value
            left = again(Pipeline(steps).apply(model).model)
        except SurgeonError:
            continue
        if all(other.value != culprit.value for other in left.culprits):
            culprit.causes = [_cause(culprit, model)]


def _cause(culprit: Culprit, model: Model) -> Cause:
    finding = culprit.findings[0]
    before = next((v.introduced for v in culprit.values if v.name == culprit.value), None)
    edits, command = list(map(as_step, finding.edits)), as_command(finding.edits, model.path)
    return Cause(finding.verdict, finding.because, before, None, finding.edits, edits, command)
