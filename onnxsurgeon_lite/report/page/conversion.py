"""What the page of a conversion shows: the original model, and which of its nodes stay as they are."""

from onnxsurgeon_lite.debug.conversion.result import Conversion
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import Point, Row, marks_of, of_nodes, table
from onnxsurgeon_lite.report.page.sight import Sight
from onnxsurgeon_lite.tensors.metrics import number_text


def page(result: Conversion, sight: Sight) -> data.Page:
    """Return what the page shows."""
    states: dict[bool | None, data.State] = {True: "agrees", False: "mismatch", None: "facts"}
    introduced = [Point(n.id, n.name, n.error, n.kept) for n in result.report]
    measure = of_nodes("Error that each node introduces alone", "error", introduced, log=True)
    where = ["node", "operator", "name", "place"]
    kept = [Row([k.id, k.op_type, k.name, k.place, k.why], k.id) for k in result.kept]
    report = [
        Row([n.id, n.op_type, n.name, n.place, number_text(n.error, 3)], n.id)
        for n in result.report
    ]
    curve = [Row([str(n), f"{share:.1%}", f"{error:.4g}"]) for n, share, error in result.curve]
    return data.Page(
        "convert",
        f"{sight.title()} to {result.to}",
        data.Verdict(states[result.met], [result.sentence, *filter(None, [result.ran])]),
        sight.graphs(1),
        [measure] if result.report else [],
        marks_of("kept", ((k.id, k.why) for k in result.kept)),
        tables=[
            *table("Nodes that stay in float32", [*where, "why"], kept),
            *table("Error of the outputs by each node alone", [*where, "error"], report),
            *table("Choices that were tried", ["nodes in float", "bytes", "measured"], curve),
        ],
    )
