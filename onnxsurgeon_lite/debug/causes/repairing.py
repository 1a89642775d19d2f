"""Repair a model by the causes of its culprits."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from onnxsurgeon_lite.debug.causes.everywhere import merged
from onnxsurgeon_lite.debug.result import BisectResult, Cause, Culprit, Repair
from onnxsurgeon_lite.errors import EditError, SurgeonError, UsageError
from onnxsurgeon_lite.model import Model, require_replaceable, save
from onnxsurgeon_lite.passes import Pass, PassResult, Pipeline
from onnxsurgeon_lite.passes.recipe_writing import write_recipe

_ROUNDS = 4  # searches of a model that was repaired in part


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
    return tuple(merged(step for node_id in late_first for step in causes[node_id].steps))


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
    force: bool = False,
) -> Repair:
    """Repair a model, search the result again, repair what is left, and write the model with its recipe.

    Args:
        again: bisects a model as the first one was.
    """
    steps: list[Pass] = []
    current, found = model, result
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
