"""What the pages of profiles show."""

from collections.abc import Callable, Iterator

from onnxsurgeon_lite.debug.profiling.result import (
    HeldTensor,
    Profile,
    ProfileComparison,
    ProfiledNode,
)
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import NodeNumber, Sight, marks_of, of_nodes, table
from onnxsurgeon_lite.report.plain import Columns, Rows, size_text
from onnxsurgeon_lite.report.profile import (
    changes,
    drawn_at,
    milliseconds,
    nodes,
    operators,
    ratio,
)


def page(result: Profile, sight: Sight) -> data.Page:
    """Return what the page of a profile shows."""
    whole = result.total
    headlines = [f"{milliseconds(result.seconds)} ms a run, the median of {result.runs}"]
    longest = max(result.nodes, key=lambda node: node.cost.seconds, default=None)
    if longest is not None and whole.seconds:
        share = longest.cost.seconds / whole.seconds
        headlines.append(
            f"{longest.op_type} {longest.name!r} takes {share:.0%} of the time in nodes"
        )
        peak = result.nodes[result.peak]
        headlines.append(f"at most {size_text(peak.live_bytes)} of values live, at {peak.name!r}")
    marks = _peaks(result) + list(_fused(result, 0))
    sizes: Columns[HeldTensor] = {"value": "{0.value}", "size": lambda held: size_text(held.bytes)}
    held = Rows("Live at the peak", result.held, sizes)
    return data.Page(
        "profile",
        sight.title(),
        data.Verdict("facts", headlines),
        sight.graphs(1, marks),
        list(_measures(result, 0)),
        marks,
        tables=table(nodes(result), operators(result), held),
    )


def _measures(result: Profile, graph: int) -> Iterator[data.Measure]:
    def along(
        title: str, unit: str, number: Callable[[ProfiledNode], float], adds: bool = True
    ) -> data.Measure:
        # kernels that stand for no node of the model have no place along it
        points = [NodeNumber(drawn_at(n), n.name, number(n)) for n in result.nodes if n.covers]
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
    return marks_of("peak", ((drawn_at(node), text) for node, text in said))


def comparison_page(result: ProfileComparison, sight: Sight) -> data.Page:
    """Return what the page of two profiles shows, the one before as the first."""
    # the model of the page comes first in `sight`, and is the one after
    graphs = sight.graphs(2)[::-1]
    # one model under two settings: both graphs are the same, so each node has its partner
    same = [(node, node) for node in range(len(graphs[0].node_op))] if len(graphs) == 1 else []
    before, after = (milliseconds(side.seconds) for side in (result.before, result.after))
    return data.Page(
        "profile",
        f"{result.before.model} and {result.after.model}",
        data.Verdict("facts", [f"{before} ms before, {after} ms after{ratio(result)}"]),
        graphs if len(graphs) == 2 else graphs * 2,
        [*_measures(result.before, 0), *_measures(result.after, 1)],
        [*_fused(result.before, 0), *_fused(result.after, 1)],
        same,
        tables=table(*changes(result)),
    )
