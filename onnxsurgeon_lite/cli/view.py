"""Look: view."""

from pathlib import Path
from typing import Annotated, Unpack

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import ComparingOnFeeds
from onnxsurgeon_lite.cli import options
from onnxsurgeon_lite.cli.options import Typed


@options.command
def view(
    model: Path,
    result: Path | None = None,
    *,
    reference: str | None = None,
    feeds: str | None = None,
    output: Annotated[Path | None, Typed(("--output", "-o"))] = None,
    serve: bool = False,
    open: Annotated[bool, Typed(("--open/--no-open",))] = True,
    force: bool = False,
    **how: Unpack[ComparingOnFeeds],
) -> None:
    """Open a model in the browser: its graph, what a result says of it, and any tensor.

    $ onnxdbg view model.onnx --no-open -o view.html
    $ onnxdbg view faulty.onnx result.json --no-open

    Args:
        result: What a command printed with --json for this model: marks its culprits, colors its nodes.
        output: Where to write the page; a temporary file by default.
        serve: Serve the page to this machine alone, to see the tensors of any node; so do --reference, --feeds,
            and a page above 50 MB.
        open: Open it in the browser; else print where it is, no more.
    """
    with osl.view(
        *(model, result, reference, feeds, output, serve), open=open, force=force, **how
    ) as shown:
        options.show(shown)
        shown.wait()
