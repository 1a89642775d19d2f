"""From a model's file, feeds and references to a session."""

from pathlib import Path

from onnxsurgeon_lite.comparison import Tolerance
from onnxsurgeon_lite.debugger import Debugger
from onnxsurgeon_lite.feeds import Feeds, Recipe, required_inputs
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.references import ReferenceSet, open_references
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
    index = GraphIndex.of(loaded)
    inputs, outputs = required_inputs(index), list(index.outputs)
    references = open_references(reference, inputs, outputs) if reference else None
    given = references if feeds is None else open_references(feeds, inputs, outputs)
    for stored in filter(None, (references, given if feeds else None)):
        lines.show_notes(stored.notes)
    runtime = Runtime(how or RuntimeOptions(opt="none", lean=True), child)
    fed = _inputs(index, given) if given is not None else {}
    made = None if feeds is not None else recipe or Recipe()
    return Session(loaded, Debugger(loaded, fed, references, runtime, made, tolerance, budget))


def _inputs(index: GraphIndex, stored: ReferenceSet) -> Feeds:
    return {name: stored.read(name) for name in index.inputs if name in stored}
