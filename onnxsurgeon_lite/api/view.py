"""Look at models in a browser."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from onnxsurgeon_lite.api.call import Call, ComparingOnFeeds
from onnxsurgeon_lite.api.page import require_libraries, require_page
from onnxsurgeon_lite.api.spelling import spelled

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.report.page.view import View
    from onnxsurgeon_lite.tensors.references import Tensors

_LARGEST = 50_000_000  # bytes of a page that a browser should open from a file


@spelled
def view(
    model: "ModelLike",
    result: "str | PathLike[str] | None" = None,
    reference: "Tensors | None" = None,
    feeds: "Tensors | None" = None,
    output: "str | PathLike[str] | None" = None,
    serve: bool = False,
    open: bool = True,
    force: bool = False,
    **how: Unpack[ComparingOnFeeds],
) -> "View":
    """Open a model in the browser: its graph, what a result says of it, and any tensor.

    The page is a file, or comes from a server for this machine alone: then the tensors of the chosen node are
    computed as they are looked at. That is so with `serve`, `reference` or `feeds`, and for pages above 50 MB.

    Args:
        result: A file with what a command printed with `--json`, of the same model: its culprits are marked, its
            numbers color the nodes.
        reference: Tensors that those of the model are compared with.
        feeds: Tensors for the inputs; those of the references, or made ones, by default.
        output: Where the page is written; by default a temporary file.
        serve: Serve it, whatever its size.
        open: Open it in the browser.
        force: Write over what stands at `output`.

    Returns:
        `address` is what to open; a context manager, which ends the server.

    Raises:
        UsageError: plotly or igraph is missing, or the result is no JSON of a command.
        OutputExistsError: Something stands at `output`.

    Example:
        >>> osl.view("whole_model.onnx", open=False).address.startswith("file://")
        True
    """
    from onnxsurgeon_lite.report.page.html import html
    from onnxsurgeon_lite.report.page.view import page_of_model, served, view_of_file

    place = None if output is None else Path(output)
    require_page(place, None, force)
    require_libraries()
    with Call(opt="none", **how) as call:
        index = call.index(model)
        page = page_of_model(index, None if result is None else Path(result))
        text = html(page)
        if serve or reference is not None or feeds is not None or len(text) > _LARGEST:
            found = served(
                index.model,
                html(page, live=True),
                call.options(),
                (feeds, reference, call.recipe(), call.allowed()),
            )
        else:
            found = view_of_file(text, place, page.title)
    if open:
        found.open()
    return found
