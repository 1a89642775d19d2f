"""Repair a model by the causes of its culprits, or avoid an error of the runtime: the model stays equivalent."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from onnxsurgeon_lite.debug.causes.everywhere import merged
from onnxsurgeon_lite.debug.result import WORKAROUND, BisectResult, Cause, Culprit, Repair
from onnxsurgeon_lite.errors import EditError, SurgeonError, UsageError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.patterns.rule import shipped
from onnxsurgeon_lite.model import Model, require_replaceable, save
from onnxsurgeon_lite.passes import Insert, Pass, PassResult, Pipeline, Rewrite
from onnxsurgeon_lite.passes.recipe_writing import as_command, as_step, write_recipe
from onnxsurgeon_lite.tensors.comparison import Comparison

_ROUNDS = 4  # searches of a model that was repaired in part
_COPY = "Max"  # of one input it returns that, and optimizers neither remove it nor fuse through it
_MOST = 16  # searches at a culprit


def repaired(model: Model, result: BisectResult) -> PassResult:
    """Return a model with the first cause of each culprit repaired.

    Raises:
        EditError: no culprit has a cause, or the edits do not fit together.
    """
    steps = repairs(result)
    if not steps:
        raise EditError(
            "there is nothing to repair: no culprit has a cause", "search causes: onnxdbg bisect"
        )
    return Pipeline(steps).apply(model)


def repairs(result: BisectResult) -> tuple[Pass, ...]:
    """Return the edits that repair the culprits, those of later nodes first: ids of earlier nodes stay."""
    causes = dict(_chosen(result.culprits))
    late_first = sorted(causes, key=lambda node_id: -_position(node_id))
    return tuple(merged(itertools.chain.from_iterable(causes[id_].steps for id_ in late_first)))


def _chosen(culprits: Sequence[Culprit]) -> Iterator[tuple[str, Cause]]:
    for culprit in culprits:
        yield from ((culprit.id, cause) for cause in culprit.causes[:1])
        yield from _chosen(culprit.inside)


def _position(node_id: str) -> int:
    first = node_id.partition("/")[0].removeprefix("@")
    return int(first) if first.isdecimal() else -1


def repair_files(
    model: Model,
    result: BisectResult,
    path: Path,
    again: Callable[[Model], BisectResult],
    force: bool,
) -> Repair:
    """Repair a model, search the result again, repair what is left, and write the model with its recipe.

    Args:
        again: bisects a model as the first one was.
    """
    steps = list[Pass]()
    current, found = model, result
    # an error may hide another one behind it: repair and search again
    for _ in range(_ROUNDS):
        try:
            edit = repaired(current, found)
        except SurgeonError:
            break
        steps += repairs(found)
        current, found = edit.model, again(edit.model)
        if found.verdict != "mismatch":
            break
    if not steps:
        return Repair(result.verdict)
    written = save(current, path, force=force)
    recipe = path.with_suffix(".toml")
    write_recipe(steps, recipe)
    return Repair(found.verdict, written.path, recipe, len(steps), found.outputs, found)


def require_elsewhere(model: Model, path: Path, force: bool) -> None:
    """Raise an error if a repair would overwrite the model, or what is not to be overwritten."""
    if model.path is not None and path.exists() and path.samefile(model.path):
        raise UsageError(f"{str(path)!r} is the model itself", "name another file with --repair")
    for each in (path, path.with_suffix(".toml")):
        require_replaceable(each, force)


def work_around(model: Model, result: BisectResult, again: Callable[[Model], BisectResult]) -> None:
    """Give each culprit that a kernel or an optimizer gets wrong the nearest edit that avoids it.

    Args:
        again: bisects a model as the first one was; it is the proof.
    """
    for culprit in result.culprits:
        # only these are errors of the runtime
        if culprit.verdicts.isdisjoint(("kernel", "optimizer")):
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
    # values that the fused nodes pass to each other come first
    nodes = [int(each[1:]) for each in fused if each[1:].isdecimal()]
    made = index.made_by(nodes)
    read = dict.fromkeys(index.inputs_of(nodes))
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
    words = list(step.rules) + ["--reverse"] * step.reverse
    return ["onnxdbg", "edit", "rewrite", str(model.path or "model.onnx")] + words
