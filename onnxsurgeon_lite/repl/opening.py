"""Open a session from a model's file, feeds and references."""

from pathlib import Path

from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.repl.session import PromptSession
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Recipe
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.tensors.comparison import Tolerance


def open_session(
    model: Path,
    feeds: str | None = None,
    reference: Path | None = None,
    *,
    how: RuntimeOptions | None = None,
    child: Child | None = None,
    recipe: Recipe | None = None,
    tolerance: Tolerance | None = None,
    budget: int = 1 << 28,
    mapping: str | None = None,
) -> PromptSession:
    """Open a session; feeds are those given, else those that the references hold, else made ones.

    Args:
        mapping: how references get the model's names; see `match.aligned`.

    Raises:
        SurgeonError: a file cannot be read, or does not fit the model.
    """
    loaded = load(model)
    runtime = runtime_of(how or RuntimeOptions(opt="none", lean=True), child)
    # given feeds are all there are: a missing input is an error, not made
    made = None if feeds is not None else recipe or Recipe()
    try:
        with progress("matching"):
            dbg = Debugger(loaded, feeds, reference, runtime, made, tolerance, budget, map=mapping)
    except SurgeonError:
        runtime.__exit__()
        raise
    if dbg.references is not None:
        plain.show_notes(dbg.references.notes)
    return PromptSession(loaded, dbg)
