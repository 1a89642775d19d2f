"""Find an edit that avoids an error of the runtime: the model is right, and stays equivalent."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from onnxsurgeon_lite.debug.result import WORKAROUND, BisectResult, Cause, Culprit
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.patterns.rule import shipped
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes import Insert, Pass, Rewrite
from onnxsurgeon_lite.passes.typed import as_command, as_step
from onnxsurgeon_lite.tensors.comparison import Comparison

_COPY = "Max"  # of one input it returns that, and optimizers neither remove it nor fuse through it
_MOST = 16  # searches at a culprit


def work_around(model: Model, result: BisectResult, again: Callable[[Model], BisectResult]) -> None:
    """Give each culprit that a kernel or an optimizer gets wrong the nearest edit that avoids it.

    Args:
        again: bisects a model as the first one was; it is the proof.
    """
    for culprit in result.culprits:
        if not any(f.verdict in ("kernel", "optimizer") for f in culprit.findings):
            continue
        for step, does, edited in _edits(GraphIndex.of(model), culprit):
            outputs = _avoids(again, result, culprit, edited)
            if outputs is not None:
                culprit.causes = [_cause(model, step, does, outputs)]
                break
        else:
            culprit.unexplained = "no edit that was tried avoids this error of the runtime"


def _edits(index: GraphIndex, culprit: Culprit) -> Iterator[tuple[Pass, str, Model]]:
    """Yield edits around a culprit that compute the same otherwise, what they do, and the edited model."""
    candidates = itertools.chain(_splits(index, culprit.covers), _rewritten())
    tried = ((step, does, _edited(index.model, step)) for step, does in candidates)
    found = ((step, does, edited) for step, does, edited in tried if edited is not None)
    return itertools.islice(found, _MOST)


def _splits(index: GraphIndex, fused: Sequence[str]) -> Iterator[tuple[Pass, str]]:
    """Yield what keeps fused nodes apart, from each other, then from others."""
    nodes = [int(each[1:]) for each in fused if each[1:].isdecimal()]
    made = index.made_by(nodes)
    read = dict.fromkeys(itertools.chain.from_iterable(index.reads[p] for p in nodes))
    for name in sorted(read, key=lambda name: name not in made):
        if name in index.producer:
            yield Insert(name, _COPY), f"with a {_COPY} of one input behind {name!r}"


def _rewritten() -> Iterator[tuple[Pass, str]]:
    for rule, reverse in itertools.product(shipped(), (True, False)):
        yield Rewrite((rule,), reverse), f"computed in other steps, by the rule {rule!r},"


def _edited(model: Model, step: Pass) -> Model | None:
    """Return the edited model; None if the edit does not fit, or changes nothing."""
    try:
        edit = step.apply(model)
    except SurgeonError:
        return None
    return edit.model if edit.changed else None


def _avoids(
    again: Callable[[Model], BisectResult], result: BisectResult, culprit: Culprit, edited: Model
) -> dict[str, Comparison] | None:
    """Return the outputs of an edited model that has neither this culprit nor a new one; else None."""
    try:
        found = again(edited)
    except SurgeonError:
        return None
    left = {other.value for other in found.culprits}
    if found.verdict == "inconclusive" or culprit.value in left:
        return None
    return found.outputs if len(left) < len(result.culprits) else None


def _cause(model: Model, step: Pass, does: str, outputs: Mapping[str, Comparison]) -> Cause:
    return Cause(
        WORKAROUND,
        f"{does} the runtime gives the reference",
        None,
        next(iter(outputs.values()), None),
        (step,),
        [as_step(step)],
        _command(model, step),
    )


def _command(model: Model, step: Pass) -> list[str]:
    if not isinstance(step, Rewrite):
        return as_command((step,), model.path)
    words = [*step.rules, *(["--reverse"] if step.reverse else [])]
    return ["onnxdbg", "edit", "rewrite", str(model.path or "model.onnx"), *words]
