"""What the pages of rankings show, and of a conversion: which nodes stay as they are."""

from collections.abc import Sequence

from onnxsurgeon_lite.debug.conversion.float16 import Float16Risks
from onnxsurgeon_lite.debug.conversion.result import Conversion
from onnxsurgeon_lite.debug.ranking.bits import BitsPerLayer
from onnxsurgeon_lite.debug.ranking.leave_one_out import LeaveOneOut
from onnxsurgeon_lite.debug.ranking.rank import Ranking
from onnxsurgeon_lite.debug.shares import Blame
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.report import ranking
from onnxsurgeon_lite.report.conversion import introduced, kept, tried
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import NodeNumber, Sight, marks_of, of_nodes, table
from onnxsurgeon_lite.report.plain import size_text
from onnxsurgeon_lite.tensors.metrics import number_text

_LARGEST = 65504.0  # of float16


def page(result: Ranking, sight: Sight) -> data.Page:
    """Return what the page of a ranking shows."""
    below = result.below
    nodes = result.nodes
    lossy = [(n.id, f"{n.own_db:.3g} dB by itself") for n in nodes if n.own_db < below]
    headlines = [f"{len(lossy)} of {len(nodes)} nodes lose more than {below:g} dB allow"]
    if nodes:
        worst = f"{nodes[0].op_type} {nodes[0].name!r} ({nodes[0].id})"
        headlines.append(f"the lossiest is {worst}: {nodes[0].own_db:.3g} dB by itself")
    own = [NodeNumber(n.id, n.value, n.own_db, n.own_db < below) for n in nodes]
    total = [NodeNumber(n.id, n.value, n.total_db, n.total_db < below) for n in nodes]
    limit = "should be above", below
    measures = [
        of_nodes("What each node loses by itself", "dB", own, limit=limit, combine="min"),
        of_nodes("What was lost up to each node", "dB", total, limit=limit, combine="min"),
    ]
    tables = table(ranking.ranked(result))
    return _page(sight, headlines, tables, lossy, measures, result.exclude)


def blame_page(result: Blame, sight: Sight) -> data.Page:
    """Return what the page of an output's shared error shows."""
    most = [(n.id, result.sentence(n)) for n in result.nodes[:1]]
    said = f"{result.output!r} has an SQNR of {result.output_db:.3g} dB"
    points = [NodeNumber(n.id, n.value, n.share) for n in result.nodes]
    measure = of_nodes("Share of each node in the error", "share", points, combine="sum")
    headlines = [said] + [text for _, text in most]
    return _page(sight, headlines, table(ranking.shares(result)), most, [measure])


def risks_page(result: Float16Risks, sight: Sight) -> data.Page:
    """Return what the page of the risks of float16 shows."""
    kept = [(n.id, f"reaches {n.largest:.3g}") for n in result.nodes if n.keep]
    points = [NodeNumber(n.id, n.value, n.largest, n.keep) for n in result.nodes]
    title = "Largest magnitude of each node"
    limit = ("float16's end", _LARGEST)
    measure = of_nodes(title, "max |x|", points, limit=limit, log=True)
    headlines = [f"{len(kept)} of {len(result.nodes)} nodes should stay in float32"]
    tables = table(ranking.in_danger(result))
    return _page(sight, headlines, tables, kept, [measure], result.exclude)


def left_out_page(result: LeaveOneOut, sight: Sight) -> data.Page:
    """Return what the page of layers left out one by one shows."""
    points = [NodeNumber(n.id, n.name, n.gain_db) for n in result.nodes]
    measure = of_nodes("What the outputs gain with one layer in float", "dB", points)
    names = set(result.exclude)
    out = [(n.id, f"gains {n.gain_db:.3g} dB") for n in result.nodes if n.name in names]
    headlines = [f"the outputs have {result.output_db:.3g} dB"]
    tables = table(ranking.gains(result))
    return _page(sight, headlines, tables, out, [measure], result.exclude)


def bits_page(result: BitsPerLayer, sight: Sight) -> data.Page:
    """Return what the page of bits per layer shows."""
    reached = number_text(result.reached_db, 3)
    said = f"{size_text(result.bytes)} of {size_text(result.before)} reach {reached} dB"
    return _page(sight, [said], table(ranking.chosen_bits(result)))


def _page(
    sight: Sight,
    headlines: list[str],
    tables: list[data.Table],
    marked: Sequence[tuple[str, str]] = (),
    measures: Sequence[data.Measure] = (),
    exclude: Sequence[str] = (),
) -> data.Page:
    marks = marks_of("excluded", marked)
    steps = [data.Step("exclude these", listed(exclude))] if exclude else []
    return data.Page(
        "rank",
        sight.title(),
        data.Verdict("facts", headlines, steps=steps),
        sight.graphs(1, marks),
        list(measures),
        marks,
        tables=tables,
    )


_STATES: dict[bool | None, data.State] = {True: "agrees", False: "mismatch", None: "facts"}


def conversion_page(result: Conversion, sight: Sight) -> data.Page:
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
