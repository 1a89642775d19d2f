"""Profile models."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, OptLevel, RunOnFeeds
from onnxsurgeon_lite.api.spelling import spelled

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.profiling import Profile, ProfileComparison
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.tensors.references import Tensors


@spelled
def profile(
    model: "ModelLike",
    feeds: "Tensors | None" = None,
    runs: int = 10,
    against: "ModelLike | None" = None,
    trace: str | PathLike[str] | None = None,
    opt: OptLevel = "all",
    force: bool = True,
    **how: Unpack[RunOnFeeds],
) -> "Profile | ProfileComparison":
    """Time every node with the runtime's own profiler; count multiply-accumulates, bytes moved and memory.

    Args:
        runs: How many runs are timed, after one that is not.
        against: The same of another model, to put both side by side; `model` is what comes after.
        trace: Where to write the runtime's own trace, for chrome://tracing or ui.perfetto.dev.
        force: Write over what stands at `trace`.

    Returns:
        The nodes that the runtime runs, each with the ids of those that it stands for. A fused node has the MACs of
        all that it covers, by their shapes.

    Raises:
        FeedsError: A feed of a wrong name, dtype or shape.
        RuntimeFailure: The runtime refuses the model, fails, dies or takes too long.

    Example:
        >>> profile = osl.profile("whole_model.onnx", runs=2, opt="none")
        >>> sorted(profile.by_operator())
        ['Add', 'Conv']
    """
    from onnxsurgeon_lite.model.sharing import require_replaceable

    place = None if trace is None else Path(trace)
    if place is not None:
        require_replaceable(place, force)
    with Call(opt=opt, **how) as call:
        after = _profiled(call, model, feeds, runs, place)
        if against is None:
            return call.done(after)
        from onnxsurgeon_lite.debug.profiling import ProfileComparison

        before = _profiled(call, against, feeds, runs, None)
        return call.done(ProfileComparison.of(before, after))


def _profiled(
    call: Call, model: "ModelLike", feeds: "Tensors | None", runs: int, trace: Path | None
) -> "Profile":
    child = call.child()
    from onnxsurgeon_lite.debug.profiling import profile as profiled

    index = call.index(model)
    runtime = call.started(child, lean=False)
    return profiled(index, call.feeds(index, feeds), runtime, runs, trace)
