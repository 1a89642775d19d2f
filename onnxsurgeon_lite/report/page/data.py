"""What a page shows, as plain data: whoever reads it can draw the page, or another one.

Nodes, values, modules and sources are numbers into lists, because a model may have tens of thousands. Nothing compares
or prints these classes; what would is left out, because it takes longer to import than a small page to draw.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

T = TypeVar("T")
Number = float | None
Node = int | str
"""A node of the main graph by its number, one in a body by its id."""

State = Literal["agrees", "mismatch", "unknown", "facts"]
MarkKind = Literal[
    "culprit",
    "cause",
    "region",
    "cleared",
    "mismatch",
    "added",
    "removed",
    "changed",
    "kept",
    "excluded",
    "peak",
    "asked",
    "unmatched",
    "fused",
]
BoxKind = Literal["node", "module", "in", "out"]


@dataclass_transform(field_specifiers=(field,))
def plain_record(kind: type[T]) -> type[T]:
    """Make a class a dataclass that nothing compares or prints."""
    return dataclass(eq=False, repr=False)(kind)


@plain_record
class Step:
    """A command to type, and what it is for."""

    what: str
    command: str


@plain_record
class Verdict:
    """What was found, before anything else.

    Attributes:
        headlines: the findings, the worst first. details: the text that the command prints.
        steps: what to type next.
    """

    state: State
    headlines: list[str]
    details: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@plain_record
class Layout:
    """Places of boxes, and the bends of the lines between them; several drawings may share one.

    Attributes:
        x, y: of each box, in columns and rows. bends: of each line, as (x, y).
    """

    x: list[float]
    y: list[float]
    bends: list[list[tuple[float, float]]]


@plain_record
class Drawing:
    """Boxes and lines.

    Attributes:
        boxes: (kind, number of the node, module or value).
        lines: (from box, to box, numbers of the values).
        layout: number of the layout.
    """

    boxes: list[tuple[BoxKind, int]]
    lines: list[tuple[int, int, list[int]]]
    layout: int


@plain_record
class ModulePart:
    """A module of the source program, or some neighboring nodes of one that has too many.

    Attributes:
        parent: number of the module that it lies in; -1 for the whole model.
        undrawn: how many values enter or leave without being drawn.
    """

    path: str
    label: str
    class_name: str
    parent: int
    drawing: Drawing
    undrawn: int


@plain_record
class CloseUp:
    """The nodes around one node, drawn open."""

    node: int
    drawing: Drawing


@plain_record
class GraphPart:
    """A model's graph, and the bodies of its nodes; the lists of nodes run in parallel, those in bodies last.

    Attributes:
        inner_ids: of the nodes in bodies, such as `@12/body/@3`; another node's id is its number.
        bodies: (node, the module that it opens to).
        op_types, sources, types, attributes: texts that nodes and values refer to.
        node_reads, node_makes: numbers of values, weights left out.
        inputs, outputs: numbers of values.
        left_out: how many bodies are not drawn, because there are too many nodes.
    """

    title: str
    op_types: list[str]
    sources: list[str]
    types: list[str]
    attributes: list[str]
    node_op: list[int]
    node_name: list[str]
    node_module: list[int]
    node_source: list[int]
    node_attributes: list[int]
    node_reads: list[list[int]]
    node_makes: list[list[int]]
    inner_ids: list[str]
    bodies: list[tuple[int, int]]
    values: list[str]
    value_type: list[int]
    inputs: list[int]
    outputs: list[int]
    modules: list[ModulePart]
    layouts: list[Layout]
    close_ups: list[CloseUp]
    left_out: int


@plain_record
class Measure:
    """Numbers along a model; the lists run in parallel, in the order of the graph.

    Attributes:
        graph: number of the graph. nodes: numbers of the nodes, ids of those in bodies; -1 for what is of none.
        names: what was measured, such as a value; none where that is the nodes themselves.
        numbers: None where there is none. limits: what the number may be.
        bad: what is over its limit, or differs in another way.
        combine: how a module's number follows from those of its nodes.
        worse: what is the worse number.
    """

    title: str
    unit: str
    limit: str
    graph: int
    nodes: list[Node]
    names: list[str]
    numbers: list[Number]
    limits: list[Number]
    bad: list[bool]
    combine: Literal["max", "min", "sum"] = "max"
    worse: Literal["high", "low"] = "high"
    log: bool = True


@plain_record
class Mark:
    """What is to be said of a node, and as which kind it is drawn."""

    graph: int
    node: Node
    kind: MarkKind
    text: str


@plain_record
class Picture:
    """Numbers as bytes: 0 is `low`, 254 is `high`, 255 is not finite; base64, row by row."""

    width: int
    height: int
    low: float
    high: float
    pixels: str


@plain_record
class Histogram:
    """Counts between edges, of both sides."""

    edges: list[float]
    actual: list[int]
    reference: list[int]


@plain_record
class WorstElement:
    """An element that differs much."""

    index: list[int]
    actual: float | str
    reference: float | str
    difference: float


@plain_record
class TensorPart:
    """A value: what the model computes, what it should be, and how they differ.

    Attributes:
        says: shape, dtype and verdict. shown: how the pictures follow from the tensor.
    """

    graph: int
    node: Node
    name: str
    says: str
    shown: str
    actual: Picture | None
    reference: Picture | None
    difference: Picture | None
    histogram: Histogram | None
    worst: list[WorstElement]


@plain_record
class Table:
    """Rows of text; each may belong to a node.

    Attributes:
        nodes: (graph, node) of each row, None where it belongs to none.
        left_out: how many rows are not shown.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    nodes: list[tuple[int, Node] | None]
    left_out: int = 0


@plain_record
class Page:
    """All that a page shows.

    Attributes:
        pairs: numbers of nodes of the first and the second graph that are the same.
        result: what `--json` prints.
    """

    command: str
    title: str
    verdict: Verdict
    graphs: list[GraphPart]
    measures: list[Measure] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    tensors: list[TensorPart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    result: object = None
