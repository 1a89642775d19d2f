"""Numbers along a model, tables, and marks: what most pages are made of.

`Sight` is what a page shows of the models beside the result: their drawings, numbers along them, pictures of tensors.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from onnxsurgeon_lite.graph import GraphIndex, begin_beside
from onnxsurgeon_lite.names import is_count
from onnxsurgeon_lite.report.page.data import (
    GraphPart,
    Mark,
    MarkKind,
    Measure,
    Node,
    Number,
    Table,
    TensorPart,
    plain_record,
)
from onnxsurgeon_lite.report.page.graph import graph_parts, is_alike
from onnxsurgeon_lite.report.page.types import Texts, begin_types, inferred
from onnxsurgeon_lite.report.plain import Rows

if TYPE_CHECKING:
    from onnxsurgeon_lite.tensors.comparison import Comparison

_ROWS = 200  # of a table


def position_of(node_id: Node) -> int:
    """Return the node of the main graph that an id belongs to, a body's node to the one around it; -1 for none."""
    if isinstance(node_id, int):
        return node_id
    # `@12` and `@12/body/@3` -> 12
    digits = node_id.removeprefix("@").partition("/")[0]
    return int(digits) if node_id.startswith("@") and is_count(digits) else -1


def node_of(node_id: Node) -> Node:
    """Return a node as a page has it: its number, or the id of one in a body; -1 for none."""
    if isinstance(node_id, int):
        return node_id
    position = position_of(node_id)
    return node_id if position >= 0 and "/" in node_id else position


def marks_of(kind: MarkKind, found: Iterable[tuple[Node, str]], graph: int = 0) -> list[Mark]:
    """Return the marks of nodes, given as (id, what is to be said)."""
    places = ((node_of(node_id), text) for node_id, text in found)
    return [Mark(graph, node, kind, text) for node, text in places if node != -1]


def against_references(
    compared: "Mapping[str, Comparison]",
    index: GraphIndex | None,
) -> Measure:
    """Return the errors of values, with what is allowed."""
    producer = {} if index is None else index.producer
    return Measure(
        title="Error along the model" if index is not None else "Errors",
        unit="max abs",
        limit="allowed",
        graph=0,
        nodes=[producer.get(name, -1) for name in compared],
        names=list(compared),
        numbers=[
            None if c.reason in ("shape", "dtype", "non-finite") else finite(c.max_abs)
            for c in compared.values()
        ],
        limits=[finite(c.allowed) for c in compared.values()],
        bad=[not c.match for c in compared.values()],
    )


@plain_record
class NodeNumber:
    """A number of a node."""

    node: Node
    name: str
    number: float | None
    bad: bool = False


def of_nodes(
    title: str,
    unit: str,
    points: Iterable[NodeNumber],
    *,
    limit: tuple[str, float] = ("", math.inf),
    combine: Literal["max", "min", "sum"] = "max",
    log: bool = False,
    graph: int = 0,
) -> Measure:
    """Return numbers of nodes, in the order of the graph; the smallest is the worst of what is combined so."""
    known = sorted(points, key=lambda point: position_of(point.node))
    return Measure(
        title=title,
        unit=unit,
        limit=limit[0],
        graph=graph,
        nodes=[node_of(point.node) for point in known],
        names=[point.name for point in known],
        numbers=[finite(point.number) for point in known],
        limits=[finite(limit[1])] * len(known),
        bad=[point.bad for point in known],
        combine=combine,
        worse="low" if combine == "min" else "high",
        log=log,
    )


def finite(number: float | None) -> Number:
    """Return a number, None for what is not finite."""
    return number if number is not None and math.isfinite(number) else None


def table(*lists: Rows[Any], graph: Callable[[Any], int] = lambda _: 0) -> list[Table]:
    """Return the first rows of each list as a table; none where there are no rows.

    Args:
        graph: number of the graph that has an item's node.
    """
    tables = []
    for rows in lists:
        # a page of all rows of a large model would be too long; the JSON in it has them
        first = rows.items[:_ROWS]
        places = zip(map(graph, first), map(node_of, rows.nodes(_ROWS)), strict=True)
        tables.append(
            Table(
                rows.title,
                list(rows.columns),
                [[str(cell) for cell in cells] for cells in rows.cells(_ROWS)],
                [place if place[1] != -1 else None for place in places],
                len(rows.items) - len(first),
            )
        )
    return [table for table in tables if table.rows]


_CLOSE = 4  # nodes whose neighborhood is drawn
_FAINT = ("region", "fused", "cleared")


@dataclass
class Sight:
    """What a page shows besides the result itself: drawings of models, pictures of tensors, numbers of all values.

    Attributes:
        models: the main graphs of the models that the result is about.
        compared: value of the first model -> its comparison with the reference, in order.
        tensors: pictures of some of these values.
        measures: numbers of the nodes, for charts.
        notes: what could not be measured.
        is_drawn: the graphs are laid out.
    """

    models: Sequence[GraphIndex] = ()
    compared: "dict[str, Comparison]" = field(default_factory=dict)
    tensors: list[TensorPart] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_drawn: bool = True
    _typed: Callable[[], Texts] | None = None
    _alike: list[tuple[GraphIndex, str, Callable[[], Texts]]] = field(default_factory=list)
    _others: list[Callable[[], GraphPart]] = field(default_factory=list)

    def title(self, between: str = "against") -> str:
        """Return what the models are called."""
        return f" {between} ".join(map(title_of, self.models)) or "tensors"

    def begin(self, most: int) -> None:
        """Begin, in processes of their own, with what takes long: types, drawings of graphs unlike the first."""
        if self._typed is None and self.models:
            first, *others = self.models[:most]
            self._typed = begin_types(first)
            for other in others:
                if is_alike(first, other):
                    self._alike.append((other, title_of(other), begin_types(other)))
                else:
                    self._others.append(_begin_drawing(other))

    def graphs(self, most: int, marks: Sequence[Mark] = ()) -> list[GraphPart]:
        """Return the graphs of the first models, laid out.

        Args:
            marks: the first nodes of the first graph that have one are drawn with their neighborhood.
        """
        if not (self.is_drawn and self.models):
            return []
        self.begin(most)
        first = self.models[0]
        # the nodes that matter most are drawn open; a graph that is drawn like the first shares its layout
        marked = dict.fromkeys(m.node for m in marks if not m.graph and m.kind not in _FAINT)
        close = list(marked)[:_CLOSE]
        drawn = graph_parts(first, title_of(first), close, self._typed, self._alike)
        drawn += (wait() for wait in self._others)
        return drawn


def _begin_drawing(index: GraphIndex) -> Callable[[], GraphPart]:
    def drawn() -> GraphPart:
        return graph_parts(index, title_of(index), typed=partial(inferred, index))[0]

    return begin_beside("a drawing", drawn, index.model.proto.ByteSize(), otherwise=drawn)


def title_of(index: GraphIndex) -> str:
    """Return what a page of a model is called."""
    return index.model.path.name if index.model.path else index.graph.name or "model"
