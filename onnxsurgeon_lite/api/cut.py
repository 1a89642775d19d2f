"""Cut models: split; extract and expose are verbs."""

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, OptLevel, RunOnFeeds, as_names
from onnxsurgeon_lite.api.spelling import spelled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from onnxsurgeon_lite.matching.split import Split
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.tensors.references import Tensors


@spelled
def split(
    model: "ModelLike",
    at: "str | Sequence[str]" = (),
    output: "str | PathLike[str] | None" = None,
    feeds: "Tensors | None" = None,
    force: bool = False,
    opt: OptLevel = "none",
    *,
    by_device: bool = False,
    **how: Unpack[RunOnFeeds],
) -> "Split":
    """Split a model at values into parts, and run the parts, one after another, against the whole.

    Args:
        at: The values to split at.
        by_device: Split by the devices that the nodes are configured for (IR 11), not at values.
        output: The folder for the parts; without it nothing is written or run.
        force: Write into a folder that is not empty.

    Returns:
        The parts in an order in which they can run, and how their outputs compare with the whole's.

    Raises:
        UnknownNameError: The main graph has no such value.
        CutError: A value comes from no node.
        OutputExistsError: The folder is not empty.

    Example:
        >>> print(osl.split("whole_model.onnx", ["23", "28"]))
        part 1: input.1 -> 23 (3 nodes)
        part 2: 23 -> 28 (5 nodes)
        part 3: 28 -> 31 (3 nodes)
    """
    with Call(opt=opt, **how) as call:
        from onnxsurgeon_lite.atomic import require_free
        from onnxsurgeon_lite.matching import split as splitting

        index = call.index(model)
        found = splitting.split(index, as_names(at), by_device)
        if output is None:
            return call.done(found)
        folder = Path(output)
        require_free(folder, force)
        given = call.feeds(index, feeds)
        runtime = call.started()
        found = splitting.write_parts(index, found, folder)
        return call.done(splitting.compare_chain(index, found, given, runtime))
