"""What the pages of rankings show."""

from collections.abc import Sequence

from onnxsurgeon_lite.debug.conversion.float16 import Float16Risks
from onnxsurgeon_lite.debug.ranking.bits import BitsPerLayer
from onnxsurgeon_lite.debug.ranking.leave_one_out import LeaveOneOut
from onnxsurgeon_lite.debug.ranking.rank import Ranking
from onnxsurgeon_lite.debug.shares import Blame
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import Point, Row, marks_of, of_nodes, table
from onnxsurgeon_lite.report.page.sight import Sight
from onnxsurgeon_lite.report.plain import size_text
from onnxsurgeon_lite.tensors.metrics import number_text

_WHERE = ["node", "operator", "name", "place"]
_LARGEST = 65504.0  # of float16


def page(result: Ranking, sight: Sight) -> data.Page:
    """Return what the page of a ranking shows."""
    below, nodes = result.below, result.nodes
    lossy = [(n.id, f"{n.own_db:.3g} dB by itself") for n in nodes if n.own_db < below]
    own = [Point(n.id, n.value, n.own_db, n.own_db < below) for n in nodes]
    total = [Point(n.id, n.value, n.total_db, n.total_db < below) for n in nodes]
    limit = "should be above", below
    rows = [
        Row([n.id, n.op_type, n.name, n.place, f"{n.own_db:.3g}", f"{n.total_db:.3g}"], n.id)
        for n in nodes
    ]
    first = nodes[0] if nodes else None
    worst = (
        []
        if first is None
        else [
            f"the lossiest is {first.op_type} {first.name!r} ({first.id}): {first.own_db:.3g} dB by itself"
        ]
    )
    return _page(
        sight,
        [f"{len(lossy)} of {len(nodes)} nodes lose more than {below:g} dB allow", *worst],
        result.exclude,
        [
            of_nodes("What each node loses by itself", "dB", own, limit=limit, combine="min"),
            of_nodes("What was lost up to each node", "dB", total, limit=limit, combine="min"),
        ],
        lossy,
        table("The lossiest nodes", [*_WHERE, "own dB", "total dB"], rows),
    )


def blame_page(result: Blame, sight: Sight) -> data.Page:
    """Return what the page of an output's shared error shows."""
    points = [Point(n.id, n.value, n.share) for n in result.nodes]
    rows = [Row([n.id, n.op_type, n.name, n.place, f"{n.share:.1%}"], n.id) for n in result.nodes]
    most = [(n.id, result.sentence(n)) for n in result.nodes[:1]]
    said = f"{result.output!r} has an SQNR of {result.output_db:.3g} dB"
    return _page(
        sight,
        [said, *(text for _, text in most)],
        [],
        [of_nodes("Share of each node in the error", "share", points, combine="sum")],
        most,
        table("Shares", [*_WHERE, "share"], rows),
    )


def risks_page(result: Float16Risks, sight: Sight) -> data.Page:
    """Return what the page of the risks of float16 shows."""
    kept = [(n.id, f"reaches {n.largest:.3g}") for n in result.nodes if n.keep]
    points = [Point(n.id, n.value, n.largest, n.keep) for n in result.nodes]
    rows = [
        Row(
            [
                n.id,
                n.op_type,
                n.name,
                n.place,
                f"{n.largest:.3g}",
                str(n.overflowing),
                str(n.vanishing),
            ],
            n.id,
        )
        for n in result.nodes
    ]
    measure = of_nodes(
        *("Largest magnitude of each node", "max |x|", points),
        limit=("float16's end", _LARGEST),
        log=True,
    )
    return _page(
        sight,
        [f"{len(kept)} of {len(result.nodes)} nodes should stay in float32"],
        result.exclude,
        [measure],
        kept,
        table("Nodes", [*_WHERE, "largest", "overflowing", "vanishing"], rows),
    )


def left_out_page(result: LeaveOneOut, sight: Sight) -> data.Page:
    """Return what the page of layers left out one by one shows."""
    points = [Point(n.id, n.name, n.gain_db) for n in result.nodes]
    rows = [
        Row([n.id, n.op_type, n.name, n.place, f"{n.gain_db:.3g}", f"{n.output_db:.3g}"], n.id)
        for n in result.nodes
    ]
    names = {*result.exclude}
    out = [(n.id, f"gains {n.gain_db:.3g} dB") for n in result.nodes if n.name in names]
    return _page(
        sight,
        [f"the outputs have {result.output_db:.3g} dB"],
        result.exclude,
        [of_nodes("What the outputs gain with one layer in float", "dB", points)],
        out,
        table("Layers", [*_WHERE, "gain dB", "then dB"], rows),
    )


def bits_page(result: BitsPerLayer, sight: Sight) -> data.Page:
    """Return what the page of bits per layer shows."""
    rows = [
        Row([layer.name, str(layer.bits), size_text(layer.bytes), f"{layer.share:.1%}"])
        for layer in result.layers
    ]
    reached = number_text(result.reached_db, 3)
    said = f"{size_text(result.bytes)} of {size_text(result.before)} reach {reached} dB"
    found = table("Weights", ["weight", "bits", "bytes", "share of the error"], rows)
    return _page(sight, [said], [], [], [], found)


def _page(
    sight: Sight,
    headlines: list[str],
    exclude: Sequence[str],
    measures: list[data.Measure],
    marked: list[tuple[str, str]],
    tables: list[data.Table],
) -> data.Page:
    marks = marks_of("excluded", marked)
    steps = [data.Step("exclude these", listed(exclude))] if exclude else []
    return data.Page(
        "rank",
        sight.title(),
        data.Verdict("facts", headlines, steps=steps),
        sight.graphs(1, marks),
        measures,
        marks,
        tables=tables,
    )
