"""What the page of a conversion shows: the original model, and which of its nodes stay as they are."""

from onnxsurgeon_lite.debug.conversion.result import Conversion
from onnxsurgeon_lite.report.conversion import introduced, kept, tried
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import NodeNumber, marks_of, of_nodes, table
from onnxsurgeon_lite.report.page.sight import Sight

_STATES: dict[bool | None, data.State] = {True: "agrees", False: "mismatch", None: "facts"}


def page(result: Conversion, sight: Sight) -> data.Page:
    """Return what the page shows."""
    points = [NodeNumber(n.id, n.name, n.error, n.kept) for n in result.report]
    measure = of_nodes("Error that each node introduces alone", "error", points, log=True)
    marks = marks_of("kept", ((node.id, node.why) for node in result.kept))
    return data.Page(
        "convert",
        f"{sight.title()} to {result.to}",
        data.Verdict(_STATES[result.met], [result.sentence, *filter(None, [result.ran])]),
        sight.graphs(1, marks),
        [measure] if result.report else [],
        marks,
        tables=table(kept(result), introduced(result), tried(result)),
    )
