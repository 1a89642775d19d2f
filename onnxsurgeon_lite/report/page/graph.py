"""A model's graph as a page shows it: module by module, none with more boxes than can be read."""

import contextlib
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.browse import Graph
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.text import attribute_texts, type_text
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.page.data import BoxKind, CloseUp, GraphPart, ModulePart
from onnxsurgeon_lite.report.page.drawing import Box, Draftsman, Lines

_MOST = 64  # boxes in a drawing, besides what enters and leaves
_ENDS = 16  # values that are drawn entering a module, and as many leaving it
_NEAR = 32  # nodes of a close-up

Item = TypeVar("Item", bound=Hashable)


class Numbers(dict[Item, int], Generic[Item]):
    """Items in the order in which they were asked for, each with its number."""

    def __missing__(self, item: Item) -> int:
        self[item] = len(self)
        return self[item]


def graph_part(index: GraphIndex, title: str, close: Iterable[int] = ()) -> GraphPart:
    """Return a graph, laid out.

    Args:
        close: nodes whose neighborhood is drawn open.
    """
    values, op_types, sources = Numbers[str](), Numbers[str](), Numbers[str]()
    types, attributes = Numbers[str](), Numbers[str]()
    edges = _Edges(index, values)
    tree = _Tree.of(index)
    for value, maker, reader in edges:
        tree.connect(value, maker, reader, value not in edges.constants)
    draftsman = Draftsman()
    return GraphPart(
        title=title,
        node_op=[op_types[row.op_type] for row in index.rows],
        node_name=[shown(node.name) for node in index.nodes],
        node_module=tree.holder,
        node_source=[sources[origin.source] for origin in index.origins],
        node_attributes=[attributes[_attributes(index, p)] for p in range(len(index.nodes))],
        node_reads=edges.reads,
        node_makes=edges.makes,
        inputs=edges.inputs,
        outputs=edges.outputs,
        modules=[module.part(draftsman) for module in tree.modules],
        close_ups=[_close_up(index, node, edges, draftsman) for node in dict.fromkeys(close)],
        values=[*map(shown, values)],
        value_type=[types[text] for text in _type_texts(index, values)],
        layouts=draftsman.layouts,
        op_types=[*op_types],
        sources=[*sources],
        types=[*types],
        attributes=[*attributes],
    )


def _attributes(index: GraphIndex, position: int) -> str:
    node = index.nodes[position]
    if not index.rows[position].attributed:
        return ""
    return ", ".join(f"{name}={text}" for name, text in attribute_texts(node).items())


def _type_texts(index: GraphIndex, names: Iterable[str]) -> Iterator[str]:
    """Yield the types of values, '' for what ONNX's inference does not know."""
    with contextlib.suppress(RuntimeFailure):  # a page without types is a page
        index.learn_types(names)
    for name in names:
        kind = index.types.get(name)
        yield "" if kind is None else type_text(kind)


@dataclass
class _Edges:
    """The edges of a graph: (value, its maker, a reader); None for what feeds the model, or is its output."""

    index: GraphIndex
    values: Numbers[str]

    def __post_init__(self) -> None:
        index, values = self.index, self.values
        fed = (name for name in index.inputs if name not in index.initializers)
        self.inputs = [values[name] for name in fed]
        self.makes = [[values[name] for name in row.outputs if name] for row in index.rows]
        self.reads = [
            [values[n] for n in dict.fromkeys(needs) if n and n not in index.initializers]
            for needs in index.needs
        ]
        self.outputs = [values[name] for name in index.outputs]
        self.constants = self._constants()

    def _constants(self) -> set[int]:
        """Return the values that depend on no input; they are drawn only beside what makes them."""
        found: set[int] = set()
        for position in self.index.order:
            if found.issuperset(self.reads[position]):
                found.update(self.makes[position])
        return found

    @cached_property
    def makers(self) -> dict[int, int]:
        """Value -> its node."""
        return {value: node for node, made in enumerate(self.makes) for value in made}

    def __iter__(self) -> Iterator[tuple[int, int | None, int | None]]:
        for reader, needed in enumerate(self.reads):
            for value in needed:
                yield value, self.makers.get(value), reader
        for value in self.outputs:
            yield value, self.makers.get(value), None


@dataclass
class _Module:
    """A module that is being filled.

    Attributes:
        ends: what enters and leaves -> its number among these; only the first are drawn.
    """

    path: str
    label: str
    parent: int = -1
    class_name: str = ""
    boxes: list[Box] = field(default_factory=list)
    lines: Lines = field(default_factory=Lines)
    ends: dict[BoxKind, dict[int, int]] = field(default_factory=lambda: {"in": {}, "out": {}})

    def enter(self, box: Box, value: int) -> None:
        """Let a value come in from elsewhere."""
        if self._is_drawn("in", value):
            self.lines.add(("in", value), box, value)

    def leave(self, box: Box, value: int) -> None:
        """Let a value go elsewhere."""
        if self._is_drawn("out", value):
            self.lines.add(box, ("out", value), value)

    def _is_drawn(self, kind: BoxKind, value: int) -> bool:
        ends = self.ends[kind]
        return ends.setdefault(value, len(ends)) < _ENDS

    def part(self, draftsman: Draftsman) -> ModulePart:
        """Return it, drawn."""
        undrawn = sum(max(0, len(ends) - _ENDS) for ends in self.ends.values())
        drawing = draftsman.draw(self.boxes, self.lines)
        return ModulePart(self.path, self.label, self.class_name, self.parent, drawing, undrawn)


@dataclass
class _Tree:
    """Modules, the whole model first, and where each node is in them.

    Attributes:
        holder: node -> the module that it is drawn in.
    """

    modules: list[_Module]
    holder: list[int]

    @classmethod
    def of(cls, index: GraphIndex) -> "_Tree":
        """Find where each node is."""
        modules, holder = _modules(index), [0] * len(index.nodes)
        for number, module in enumerate(modules):
            for kind, position in module.boxes:
                if kind == "node":
                    holder[position] = number
        return cls(modules, holder)

    def connect(self, value: int, maker: int | None, reader: int | None, far: bool) -> None:
        """Add a value's lines, in the module that holds both ends and in those around one of them.

        Args:
            far: draw it in modules around one end, too.
        """
        up, down = self._boxes(maker), self._boxes(reader)
        both = 0
        while both < min(len(up), len(down)) and up[both][0] == down[both][0]:
            both += 1
        if both and up[both - 1][1] != down[both - 1][1]:
            module, box = up[both - 1]
            self.modules[module].lines.add(box, down[both - 1][1], value)
        if not far and both:
            return
        for module, box in up[both:]:
            self.modules[module].leave(box, value)
        for module, box in down[both:]:
            self.modules[module].enter(box, value)

    def _boxes(self, node: int | None) -> list[tuple[int, Box]]:
        """Return the modules around a node, the outermost first, each with the box that the node is in there."""
        if node is None:
            return []
        number, found = self.holder[node], list[tuple[int, Box]]()
        box: Box = ("node", node)
        while number >= 0:
            found.append((number, box))
            number, box = self.modules[number].parent, ("module", number)
        return found[::-1]


def _modules(index: GraphIndex) -> list[_Module]:
    """Return the modules, each with its boxes."""
    modules = [_Module("", "the model")]
    known = {"": 0}
    for position in index.order:
        origin = index.origins[position]
        classes, parent = dict(origin.modules), 0
        for path in origin.around():
            if path not in known:
                known[path] = len(modules)
                modules[parent].boxes.append(("module", known[path]))
                label = path.removeprefix(f"{modules[parent].path}.")
                modules.append(_Module(path, label, parent))
            parent = known[path]
            module = modules[parent]
            module.class_name = module.class_name or classes.get(path, "").rpartition(".")[2]
        modules[parent].boxes.append(("node", position))
    for number in range(len(modules)):
        _split(modules, number)
    return modules


def _split(modules: list[_Module], number: int) -> None:
    """Put the boxes of a module that has too many into groups of neighbors."""
    module = modules[number]
    while len(module.boxes) > _MOST:
        size = min(_MOST, 2 * math.isqrt(len(module.boxes)))
        groups = [module.boxes[at : at + size] for at in range(0, len(module.boxes), size)]
        module.boxes = []
        for boxes in groups:
            for kind, each in boxes:
                if kind == "module":
                    modules[each].parent = len(modules)
            module.boxes.append(("module", len(modules)))
            modules.append(_Module(module.path, _label(modules, boxes), number, "", boxes))


def _label(modules: Sequence[_Module], boxes: Sequence[Box]) -> str:
    """`@0 to @63`, or the labels of the first and the last module in it."""
    first, last = (
        f"@{number}" if kind == "node" else modules[number].label
        for kind, number in (boxes[0], boxes[-1])
    )
    return f"{first.split(' to ')[0]} to {last.split(' to ')[-1]}"


def _close_up(index: GraphIndex, node: int, edges: _Edges, draftsman: Draftsman) -> CloseUp:
    """Draw the nodes around one, as far as they are few."""
    graph, near = Graph(index), [node]
    for radius in (1, 2):
        wider = graph.around(index.node_id(node), radius).positions
        if len(wider) <= _NEAR:
            near = [*wider]
    lines, chosen = Lines(), {*near}
    read: set[int] = set()
    for reader in near:
        for value in edges.reads[reader]:
            read.add(value)
            maker = edges.makers.get(value)
            start: Box = ("node", maker) if maker in chosen and maker is not None else ("in", value)
            lines.add(start, ("node", reader), value)
    for maker in near:
        for value in edges.makes[maker]:
            if value not in read:
                lines.add(("node", maker), ("out", value), value)
    return CloseUp(node, draftsman.draw([("node", each) for each in near], lines))
