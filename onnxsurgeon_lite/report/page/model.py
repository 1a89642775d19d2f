"""What the page of an inspected model shows."""

import math

from onnxsurgeon_lite.debug.profiling.placement import Placement
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.summary import ModelSummary, NodeSummary, ValueSummaries
from onnxsurgeon_lite.report import results
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.measures import NodeNumber, Sight, marks_of, of_nodes, table
from onnxsurgeon_lite.report.profile import placed, providers
from onnxsurgeon_lite.report.summary import counts, ends
from onnxsurgeon_lite.shown import Shown


def page(result: Shown, sight: Sight) -> data.Page:
    """Return what the page shows: the graph, and what was asked for."""
    index = sight.models[0] if sight.models else None
    asked = [] if index is None else _asked(result, index)
    marks = marks_of("asked", asked)
    return data.Page(
        "inspect",
        sight.title(),
        data.Verdict("facts", _headlines(result)),
        sight.graphs(1, marks),
        [] if index is None else _placed(result) + [_parameters(index)],
        marks,
        tensors=sight.tensors,
        tables=_tables(result),
    )


def _headlines(result: Shown) -> list[str]:
    if isinstance(result, ModelSummary):
        size = f"{result.nodes:,} nodes, {result.parameters:,} parameters"
        return [
            size,
            " ".join(filter(None, ["made by", result.producer])) if result.producer else "",
        ]
    return results.text(result).splitlines()[:1]


def _tables(result: Shown) -> list[data.Table]:
    if isinstance(result, Placement):
        return table(providers(result), placed(result))
    return table(ends(result), counts(result)) if isinstance(result, ModelSummary) else []


def _placed(result: Shown) -> list[data.Measure]:
    """Number the providers, the one that was asked for with 0: the graph gets its colors from that."""
    if not isinstance(result, Placement):
        return []
    # the number of a provider is its place in this list
    known = list(
        dict.fromkeys([result.provider] + [n.provider for n in result.nodes if n.provider])
    )
    points = [
        NodeNumber(n.id, n.provider, known.index(n.provider), n.provider != result.provider)
        for n in result.nodes
        if n.provider
    ]
    said = ", ".join(f"{number} {name}" for number, name in enumerate(known))
    return [of_nodes("Provider along the model", said, points)]


def _asked(result: Shown, index: GraphIndex) -> list[tuple[str, str]]:
    """Return the nodes that were asked for."""
    if isinstance(result, NodeSummary):
        return [(result.id, "asked for")]
    if isinstance(result, Placement):
        return [(node.id, f"runs on {node.provider}") for node in result.fell_back]
    if isinstance(result, ValueSummaries):
        makers = ((value.name, index.producer.get(value.name)) for value in result)
        return [(f"@{node}", f"makes {name!r}") for name, node in makers if node is not None]
    return []


def _parameters(index: GraphIndex) -> data.Measure:
    """Count the parameters of each node; one that several read counts at the first."""
    points = []
    # each initializer is taken by the first node that needs it
    left = {name: math.prod(tensor.dims) for name, tensor in index.initializers.items()}
    for position in index.order:
        count = sum([left.pop(name) for name in index.needs[position] if name in left])
        points.append(NodeNumber(position, "", count))
    made = of_nodes("Parameters along the model", "parameters", points, combine="sum")
    made.names = []  # those of the nodes
    return made
