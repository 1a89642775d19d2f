"""What the pages of profiles show."""

from collections.abc import Callable, Iterator

from onnxsurgeon_lite.debug.profiling import Profile, ProfileComparison, TimeChange
from onnxsurgeon_lite.debug.profiling.result import ProfiledNode
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import Point, Row, marks_of, of_nodes, table
from onnxsurgeon_lite.report.page.sight import Sight
from onnxsurgeon_lite.report.plain import size_text


def page(result: Profile, sight: Sight) -> data.Page:
    """Return what the page of a profile shows."""
    whole = result.total
    headlines = [f"{1e3 * result.seconds:.3g} ms a run, the median of {result.runs}"]
    longest = max(result.nodes, key=lambda node: node.cost.seconds, default=None)
    if longest is not None and whole.seconds:
        share = longest.cost.seconds / whole.seconds
        headlines.append(
            f"{longest.op_type} {longest.name!r} takes {share:.0%} of the time in nodes"
        )
        peak = result.nodes[result.peak]
        headlines.append(f"at most {size_text(peak.live_bytes)} of values live, at {peak.name!r}")
    marks = [*_peaks(result), *_fused(result, 0)]
    return data.Page(
        "profile",
        sight.title(),
        data.Verdict("facts", headlines),
        sight.graphs(1, marks),
        [*_measures(result, 0)],
        marks,
        tables=[
            *table("Nodes", ["operator", "name", *_COLUMNS, "place"], [*_nodes(result)]),
            *table(
                "Operators",
                ["operator", *_COLUMNS],
                [
                    Row(
                        [
                            name,
                            f"{1e3 * cost.seconds:.3g}",
                            f"{cost.seconds / (whole.seconds or 1):.1%}",
                            f"{cost.macs:,}",
                            size_text(cost.moved_bytes),
                        ]
                    )
                    for name, cost in result.by_operator().items()
                ],
            ),
            *table(
                "Live at the peak",
                ["value", "size"],
                [Row([h.value, size_text(h.bytes)]) for h in result.held],
            ),
        ],
    )


_COLUMNS = ["ms", "share", "MACs", "moved"]


def _nodes(result: Profile) -> Iterator[Row]:
    whole = result.total.seconds or 1.0
    for node in sorted(result.nodes, key=lambda node: -node.cost.seconds):
        cost = node.cost
        numbers = [f"{1e3 * cost.seconds:.3g}", f"{cost.seconds / whole:.1%}", f"{cost.macs:,}"]
        cells = [node.op_type, node.name, *numbers, size_text(cost.moved_bytes), node.place]
        yield Row(cells, _drawn_at(node))


def _drawn_at(node: ProfiledNode) -> str:
    """Return the node of the model that a fused one is drawn at: the last that it stands for."""
    return node.covers[-1] if node.covers else ""


def _measures(result: Profile, graph: int) -> Iterator[data.Measure]:
    def along(
        title: str, unit: str, number: Callable[[ProfiledNode], float], adds: bool = True
    ) -> data.Measure:
        points = [Point(_drawn_at(n), n.name, number(n)) for n in result.nodes if n.covers]
        return of_nodes(title, unit, points, combine="sum" if adds else "max", graph=graph)

    yield along("Time along the model", "ms", lambda n: 1e3 * n.cost.seconds)
    yield along("Memory of live values", "MB", lambda n: 1e-6 * n.live_bytes, adds=False)
    yield along("Multiply-accumulates", "MACs", lambda n: n.cost.macs)
    yield along("Bytes moved", "MB", lambda n: 1e-6 * n.cost.moved_bytes)


def _fused(result: Profile, graph: int) -> Iterator[data.Mark]:
    for node in result.nodes:
        said = f"runs in {node.op_type} {node.name!r}"
        yield from marks_of("fused", ((each, said) for each in node.covers[:-1]), graph)


def _peaks(result: Profile) -> list[data.Mark]:
    """Mark the nodes that take most time and most memory."""
    if not result.nodes:
        return []
    longest = max(result.nodes, key=lambda node: node.cost.seconds)
    fullest = result.nodes[result.peak]
    said = (longest, "takes the most time"), (fullest, "runs where the most memory is taken")
    return marks_of("peak", ((_drawn_at(node), text) for node, text in said))


def comparison_page(result: ProfileComparison, sight: Sight) -> data.Page:
    """Return what the page of two profiles shows, the one before as the first."""
    graphs = sight.graphs(2)[::-1]
    same = [(node, node) for node in range(len(graphs[0].node_op))] if len(graphs) == 1 else []
    before, after = result.before.seconds, result.after.seconds
    ratio = f" ({after / before:.2f}x)" if before else ""
    columns = ["before ms", "after ms", "difference ms"]
    return data.Page(
        "profile",
        f"{result.before.model} and {result.after.model}",
        data.Verdict("facts", [f"{1e3 * before:.3g} ms before, {1e3 * after:.3g} ms after{ratio}"]),
        graphs if len(graphs) == 2 else graphs * 2,
        [*_measures(result.before, 0), *_measures(result.after, 1)],
        [*_fused(result.before, 0), *_fused(result.after, 1)],
        same,
        tables=[
            *table("Operators", ["operator", *columns], [*map(_changed, result.operators)]),
            *table("Modules", ["module", *columns], [*map(_changed, result.modules)]),
        ],
    )


def _changed(change: TimeChange) -> Row:
    numbers = (change.before, change.after, change.difference)
    return Row(
        [change.name or "the model", *("-" if n is None else f"{1e3 * n:.3g}" for n in numbers)]
    )
