"""From a model's file, feeds and references to a session."""

from pathlib import Path

from onnxsurgeon_lite.comparison import Tolerance
from onnxsurgeon_lite.debugger import Debugger
from onnxsurgeon_lite.feeds import Recipe, required_inputs
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.references import open_references
from onnxsurgeon_lite.repl.session import Session
from onnxsurgeon_lite.report import lines
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions


def open_session(
    model: Path,
    feeds: str | None = None,
    reference: Path | None = None,
    how: RuntimeOptions | None = None,
    child: Child | None = None,
    recipe: Recipe | None = None,
    tolerance: Tolerance | None = None,
    budget: int = 1 << 28,
) -> Session:
    """A session; feeds are those given, else what the references hold of them, else made.

    Raises:
        SurgeonError: a file cannot be read, or does not fit the model.
    """
    loaded = load(model)
    runtime = Runtime(how or RuntimeOptions(opt="none", lean=True), child)
    made = None if feeds is not None else recipe or Recipe()
    dbg = Debugger(loaded, runtime=runtime, recipe=made, tolerance=tolerance, budget=budget)
    index = dbg.index
    inputs, outputs = required_inputs(index), list(index.outputs)
    if reference is not None:
        dbg.references = open_references(reference, inputs, outputs)
        lines.show_notes(dbg.references.notes)
    given = dbg.references if feeds is None else open_references(feeds, inputs, outputs)
    for name in index.inputs:
        if given is not None and name in given:
            dbg.feed(name, given.read(name))
    return Session(loaded, dbg)
