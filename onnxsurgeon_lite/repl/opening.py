"""Open a session from a model's file, feeds and references."""

from pathlib import Path

from onnxsurgeon_lite.debug.stepping import Debugger
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.repl.session import Session
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, required_inputs
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.tensors.comparison import Tolerance
from onnxsurgeon_lite.tensors.references import ReferenceSet, open_references


def open_session(
    model: Path,
    feeds: str | None = None,
    reference: Path | None = None,
    how: RuntimeOptions | None = None,
    child: Child | None = None,
    recipe: Recipe | None = None,
    tolerance: Tolerance | None = None,
    budget: int = 1 << 28,
    mapping: str | None = None,
) -> Session:
    """Open a session; feeds are those given, else those that the references hold, else made ones.

    Args:
        mapping: how references get the model's names; see `match.aligned`.

    Raises:
        SurgeonError: a file cannot be read, or does not fit the model.
    """
    loaded = load(model)
    options = how or RuntimeOptions(opt="none", lean=True)
    made = None if feeds is not None else recipe or Recipe()
    runtime = Runtime(options, child)
    dbg = Debugger(loaded, runtime=runtime, recipe=made, tolerance=tolerance, budget=budget)
    index = dbg.index
    inputs, outputs = required_inputs(index), list(index.outputs)
    stored = None if reference is None else open_references(reference, inputs, outputs)
    given = stored if feeds is None else open_references(feeds, inputs, outputs)
    fed = {name: given.read(name) for name in index.inputs if given is not None and name in given}
    if stored is not None:
        dbg.references, fed = _fitted(stored, given or stored, fed, index, options, mapping)
        plain.show_notes(dbg.references.notes)
    for name, value in fed.items():
        dbg.feed(name, value)
    return Session(loaded, dbg)


def _fitted(
    stored: ReferenceSet,
    given: ReferenceSet,
    fed: Feeds,
    index: GraphIndex,
    options: RuntimeOptions,
    mapping: str | None,
) -> tuple[ReferenceSet, Feeds]:
    """Return the references under the model's names, and the feeds."""
    from onnxsurgeon_lite.matching.values import aligned, feeds_in_order, needs_alignment

    if not needs_alignment(stored, index, mapping):
        return stored, fed
    fed = feeds_in_order(index, given)
    with Runtime(options) as runtime, progress("matching") as tell:
        return aligned(stored, index, fed, runtime, mapping, tell), fed
