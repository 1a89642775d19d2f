"""Profile models."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, OptLevel, RunOnFeeds
from onnxsurgeon_lite.api.debug import require_optimizers
from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.api.spelling import spelled
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.options import RuntimeOptions, Settings, require_ort, with_settings

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.profiling.result import Profile, ProfileComparison
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.runtime.child import Child
    from onnxsurgeon_lite.runtime.feeds import Feeds
    from onnxsurgeon_lite.tensors.references import Tensors


@spelled
def profile(
    model: "ModelLike",
    feeds: "Tensors | None" = None,
    runs: int = 10,
    against: "ModelLike | None" = None,
    a: Settings | None = None,
    b: Settings | None = None,
    trace: Place = None,
    html: Place = None,
    *,
    layers: Place = None,
    node_data: Place = None,
    opt: OptLevel = "all",
    force: bool = True,
    **how: Unpack[RunOnFeeds],
) -> "Profile | ProfileComparison":
    """Time every node with the runtime's own profiler; count multiply-accumulates, bytes moved and memory.

    Args:
        runs: How many runs are timed, after one that is not.
        against: The same of another model, to put both side by side; `model` is what comes after. Or the file of
            `trtexec --exportProfile`: TensorRT's times of the same model.
        layers: The file of `trtexec --exportLayerInfo`: it names the nodes of each TensorRT layer.
        a: Settings of what comes before: `"opt=none,threads=1"`, or the same as a dict.
        b: Settings of what comes after; both are the same model's without `against`.
        trace: Where to write the runtime's own trace, for chrome://tracing or ui.perfetto.dev.
        node_data: Where to write the times of nodes for model-explorer; of one profile.
        html: Where to write the result as a page for a browser.
        force: Write over what stands at `trace` and `html`.

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
    from onnxsurgeon_lite.model import require_replaceable

    if node_data is not None and (against or a or b):
        raise UsageError(
            "node data are the numbers of one profile", "leave out --against, --a and --b"
        )
    place = None if trace is None else Path(trace)
    if place is not None:
        require_replaceable(place, force)
    with Call(opt=opt, html=html, node_data=node_data, force=force, **how) as call:
        usual = call.options(lean=False)
        before = with_settings(usual, a)
        after = with_settings(usual, b)
        require_ort("profile", before, after, any_python=True)
        child = call.start(after)
        index = call.index(model)
        require_optimizers(index, before, after, call)
        # `against` is a profile of TensorRT, a model, or (with a and b) the same model under other settings
        earlier = _of_tensorrt(index, against, layers, call)
        given = call.feeds(index, feeds)
        found = _profiled(index, given, after, child, runs, place)
        if not (against or a or b):
            return call.done(found)
        from onnxsurgeon_lite.debug.profiling.result import ProfileComparison

        if earlier is not None:
            call.models.append(index)
            return call.done(ProfileComparison.of(earlier, found))
        # two settings of one model: it is drawn twice
        if against is None:
            call.models.append(index)
        else:
            given = call.feeds(call.index(against), feeds)
        earlier = _profiled(index, given, before, call.start(before), runs, None)
        return call.done(ProfileComparison.of(earlier, found))


def _of_tensorrt(
    index: "GraphIndex", against: "ModelLike | None", layers: Place, call: Call
) -> "Profile | None":
    """Return TensorRT's times where a file has them; None where it is a model."""
    from onnxsurgeon_lite.debug.profiling.tensorrt import is_profile, read_profile

    if not isinstance(against, str | PathLike) or not is_profile(Path(against)):
        if layers is not None:
            raise UsageError("layers are those of a profile", "write --against PROFILE.json, too")
        return None
    found = read_profile(Path(against), index, None if layers is None else Path(layers))
    covered = {each for node in found.nodes for each in node.covers}
    if missing := len(index.nodes) - len(covered):
        call.notes.append(f"{missing} of {len(index.nodes)} nodes are in no layer's name")
    if alone := sum(node.cost.seconds for node in found.nodes if not node.covers):
        call.notes.append(f"layers without a node of the model take {1e3 * alone:.3g} ms")
    return found


def _profiled(
    index: "GraphIndex",
    feeds: "Feeds",
    options: RuntimeOptions,
    child: "Child",
    runs: int,
    trace: Path | None,
) -> "Profile":
    from onnxsurgeon_lite.debug.profiling.profile import profile as profiled
    from onnxsurgeon_lite.runtime.session import Runtime

    with child, Runtime(options, child) as runtime:
        return profiled(index, feeds, runtime, runs, trace)
