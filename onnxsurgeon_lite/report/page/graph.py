"""A model's graph as a page shows it: module by module, none with more boxes than can be read."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain

from onnxsurgeon_lite.graph import GraphIndex, InnerGraph, attribute_text, node_id
from onnxsurgeon_lite.graph.bodies import bodies
from onnxsurgeon_lite.graph.scopes import Provenance
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.page.data import BoxKind, CloseUp, GraphPart, ModulePart, plain_record
from onnxsurgeon_lite.report.page.drawing import Box, Draftsman, Numbers, Sketch, sketched
from onnxsurgeon_lite.report.page.types import Texts, begin_types, has_bodies, learn_types, texts

_MOST = 64  # boxes in a drawing, besides what enters and leaves
_ENDS = 16  # values that are drawn entering a module, and as many leaving it
_NEAR = 32  # nodes of a close-up
_MOST_INNER = 20_000  # nodes in bodies, at which no further one is drawn
_TYPED = 64  # bodies whose types are inferred


def graph_parts(
    index: GraphIndex,
    title: str,
    close: Iterable[int | str] = (),
    typed: Callable[[], Texts] | None = None,
    alike: Iterable[tuple[GraphIndex, str, Callable[[], Texts]]] = (),
) -> list[GraphPart]:
    """Return a graph, laid out, with the bodies of its nodes; then graphs that are drawn alike.

    Args:
        close: nodes whose neighborhood is drawn open, those in bodies by their ids.
        typed: waits for the types of its values; by default they are inferred.
        alike: graphs that differ in weights and attributes alone, with their titles and types.
    """
    # texts are stored once: nodes and values hold numbers into these lists
    op_types = Numbers[str]()
    sources = Numbers[str]()
    types = Numbers[str]()
    attributes = Numbers[str]()
    typed = typed or begin_types(index)
    places, left_out = _places(index)
    edges = _Edges(places)
    # modules with their boxes, then the lines between these
    tree = _Tree.of(places)
    tree.connect(edges)
    draftsman = Draftsman()
    # nodes in bodies follow those of the main graph; their ids -> their numbers
    inner = [place.node_id(at) for place in places[1:] for at in range(len(place.index.nodes))]
    numbers = {node: number for number, node in enumerate(inner, len(index.nodes))}
    part = GraphPart(
        title=title,
        node_op=[op_types[row.op_type] for place in places for row in place.index.rows],
        node_name=[shown(node.name) for place in places for node in place.index.nodes],
        node_module=tree.holder,
        node_source=[sources[origin.source] for place in places for origin in place.index.origins],
        node_attributes=[attributes[text] for text in _attributes(places)],
        node_reads=edges.reads,
        node_makes=edges.makes,
        inner_ids=inner,
        bodies=[(module.around, n) for n, module in enumerate(tree.modules) if module.around >= 0],
        inputs=edges.inputs,
        outputs=edges.outputs,
        modules=[module.part(draftsman) for module in tree.modules],
        close_ups=[
            _close_up(places, number, edges, draftsman)
            for node in dict.fromkeys(close)
            if (number := node if isinstance(node, int) else numbers.get(node, -1)) >= 0
        ],
        values=[shown(name) for _, name in edges.values],
        value_type=[],
        layouts=draftsman.layouts,
        op_types=list(op_types),
        sources=list(sources),
        types=[],
        attributes=list(attributes),
        left_out=left_out,
    )
    # types come last: they are inferred in another process meanwhile
    known = [typed()] + [texts(place.index) for place in places[1:]]
    part.value_type.extend(types[known[place].get(name, "")] for place, name in edges.values)
    part.types.extend(types)
    names = [name for _, name in edges.values]
    return [part] + [_alike_part(part, names, *other) for other in alike]


def is_alike(one: GraphIndex, other: GraphIndex) -> bool:
    """Return whether two graphs are surely drawn alike: they differ in weights and attributes alone."""
    if has_bodies(one) or has_bodies(other) or len(one.nodes) != len(other.nodes):
        return False
    ends = ((each.inputs, each.outputs, each.initializers) for each in (one, other))
    # first what is cheap to compare, then nodes one by one, but for those at both ends whose bytes are the same
    if not all(list(a) == list(b) for a, b in zip(*ends, strict=True)) or one.rows != other.rows:
        return False
    head, tail = one.table.encoded.same(other.table.encoded)
    between = slice(head, len(one.nodes) - tail)
    pairs = zip(one.nodes[between], other.nodes[between], strict=True)
    return all(a.name == b.name and a.metadata_props == b.metadata_props for a, b in pairs)


def _alike_part(
    part: GraphPart,
    names: Sequence[str],
    index: GraphIndex,
    title: str,
    typed: Callable[[], Texts],
) -> GraphPart:
    """Return a graph that is drawn as another one, which has values of these names."""
    types = Numbers[str]()
    attributes = Numbers[str]()
    known = typed()
    node_attributes = [attributes[text] for text in _attributes([_Place(index)])]
    value_type = [types[known.get(name, "")] for name in names]
    return replace(
        part,
        title=title,
        close_ups=[],
        node_attributes=node_attributes,
        value_type=value_type,
        types=list(types),
        attributes=list(attributes),
    )


@plain_record
class _Place:
    """The main graph or a body, whose nodes are numbered one after the other.

    Attributes:
        number: among the places. path: such as `@12/body`; '' is the main graph. body: its name in the node.
        first: number of its first node. around: number of the node whose body it is; -1 for none.
        outer: the place around it. captured: its values from there.
    """

    index: GraphIndex
    number: int = 0
    path: str = ""
    body: str = ""
    first: int = 0
    around: int = -1
    outer: "_Place | None" = None
    captured: frozenset[str] = frozenset()

    def node_id(self, position: int) -> str:
        """Return a node's id as results have it."""
        return node_id(self.path, position)


def _places(index: GraphIndex) -> tuple[list[_Place], int]:
    """Return the main graph and the bodies in it, outer ones first, and how many are left out as too many."""
    places = [_Place(index)]
    count = len(index.nodes)
    left_out = 0
    if has_bodies(index):
        learn_types(index)  # a body's inputs are typed as what they are given
    # `places` grows while it is read: breadth first
    for outer in places:
        for position, body in _bodies(outer.index):
            if count > len(index.nodes) + _MOST_INNER:
                left_out += 1
                continue
            inner = InnerGraph.of(outer.index, position, body)
            path = f"{outer.node_id(position)}/{body}"
            around = outer.first + position
            places.append(
                _Place(inner.index, len(places), path, body, count, around, outer, inner.captured)
            )
            count += len(inner.index.nodes)
            if len(places) < _TYPED:
                learn_types(inner.index)
    return places, left_out


def _bodies(index: GraphIndex) -> Iterator[tuple[int, str]]:
    """Yield (node, name of a body of it)."""
    # where there are functions, every node may call one
    possible = range(len(index.nodes)) if index.model.proto.functions else index.bodied
    for position in possible:
        yield from ((position, name) for name in bodies(index, position))


def _attributes(places: Iterable[_Place]) -> Iterator[str]:
    """Yield the attributes of each node as text."""
    known = dict[bytes, str]()  # many nodes have the same
    for index in (place.index for place in places):
        for node in index.nodes:
            if not node.attribute:
                yield ""
                continue
            texts = []
            for attribute in node.attribute:
                encoded = attribute.SerializeToString()
                if encoded not in known:
                    known[encoded] = f"{attribute.name}={attribute_text(attribute)}"
                texts.append(known[encoded])
            yield ", ".join(texts)


class _Names(dict[str, int]):
    """Values that the nodes of a place know, each with its number among those of all places."""

    def __init__(
        self, place: _Place, outer: "_Names | None", values: list[tuple[int, str]]
    ) -> None:
        super().__init__()
        self._place = place
        self._outer = outer
        self._values = values

    def __missing__(self, name: str) -> int:
        # a captured value is the same value as outside
        if self._outer is not None and name in self._place.captured:
            number = self._outer[name]
        else:
            number = len(self._values)
            self._values.append((self._place.number, name))
        self[name] = number
        return number


class _Edges:
    """The edges of graphs: (value, its maker, a reader); None for what feeds the model, or is its output.

    Attributes:
        values: (number of the place that it belongs to, name) of each.
        reads, makes: values of each node. makers: value -> the node that makes it.
        constants: values that depend on no input.
    """

    def __init__(self, places: Sequence[_Place]) -> None:
        self.places = places
        self.values = list[tuple[int, str]]()
        self.names = list[_Names]()
        for place in places:
            outer = None if place.outer is None else self.names[place.outer.number]
            self.names.append(_Names(place, outer, self.values))
        ends = list(map(self._inputs, places, self.names))
        self.inputs = ends[0]
        self.makes = list[list[int]]()
        self.reads = list[list[int]]()
        self.constants = set[int]()
        for place, names in zip(places, self.names, strict=True):
            index = place.index
            number = names.__getitem__
            known = place.index.initializers
            self.makes += ([number(n) for n in row.outputs if n] for row in index.rows)
            self.reads += (
                [number(n) for n in dict.fromkeys(needs) if n and n not in known]
                for needs in index.needs
            )
            # in topological order: what reads constants alone is one
            for node in (place.first + position for position in index.order):
                if self.constants.issuperset(self.reads[node]):
                    self.constants.update(self.makes[node])
        self.makers = {value: node for node, made in enumerate(self.makes) for value in made}
        self.given = {
            value: place.around
            for place, fed in zip(places[1:], ends[1:], strict=True)
            for value in fed
        }
        self.outputs = list(map(self.names[0].__getitem__, places[0].index.outputs))

    def _inputs(self, place: _Place, names: _Names) -> list[int]:
        """Return what a graph is fed with; captured values are not."""
        known = place.index.initializers.keys() | place.captured
        return [names[name] for name in place.index.inputs if name not in known]

    def __iter__(self) -> Iterator[tuple[int, int | None, int | None]]:
        sources = self.given | self.makers  # a body is given its inputs by the node around it
        for reader, needed in enumerate(self.reads):
            for value in needed:
                yield value, sources.get(value), reader
        for place, names in zip(self.places, self.names, strict=True):
            for value in map(names.__getitem__, place.index.outputs):
                yield value, sources.get(value), None if place.outer is None else place.around

    def around(self, node: int, place: _Place, radius: int) -> list[int]:
        """Return the nodes of a place at most so many edges away, in topological order."""
        near = edge = {node}
        # bodies and what is around them are drawn elsewhere
        own = range(place.first, place.first + len(place.index.nodes))
        for _ in range(radius):
            values = {value for each in edge for value in chain(self.reads[each], self.makes[each])}
            ends = (
                end for v in values for end in chain([self.makers.get(v)], self.readers.get(v, ()))
            )
            edge = {end for end in ends if end is not None and end in own} - near
            near = near | edge
        return sorted(near, key=lambda each: place.index.places[each - place.first])

    @cached_property
    def readers(self) -> Mapping[int, Sequence[int]]:
        """Value -> the nodes that read it."""
        found = defaultdict[int, list[int]](list)
        for reader, needed in enumerate(self.reads):
            for value in needed:
                found[value].append(reader)
        return found


@plain_record
class _Module:
    """A module that is being filled.

    Attributes:
        sketch: the boxes with the lines between them, and what enters and leaves.
        ends: what enters and leaves -> its number among these; only the first are drawn.
        around: the node that opens to it; -1 for none.
    """

    path: str
    label: str
    parent: int = -1
    class_name: str = ""
    around: int = -1
    boxes: list[Box] = field(default_factory=list)
    sketch: Sketch = field(init=False)
    ends: dict[BoxKind, dict[int, int]] = field(default_factory=lambda: {"in": {}, "out": {}})

    def enter(self, box: Box, value: int) -> None:
        """Let a value come in from elsewhere."""
        if self._is_drawn("in", value):
            self.sketch.add(("in", value), box, value)

    def leave(self, box: Box, value: int) -> None:
        """Let a value go elsewhere."""
        if self._is_drawn("out", value):
            self.sketch.add(box, ("out", value), value)

    def _is_drawn(self, kind: BoxKind, value: int) -> bool:
        ends = self.ends[kind]
        # count all that enter or leave, draw the first
        return ends.setdefault(value, len(ends)) < _ENDS

    def part(self, draftsman: Draftsman) -> ModulePart:
        """Return it, drawn."""
        undrawn = sum(max(0, len(ends) - _ENDS) for ends in self.ends.values())
        drawing = draftsman.draw(self.sketch)
        return ModulePart(self.path, self.label, self.class_name, self.parent, drawing, undrawn)


@plain_record
class _Tree:
    """Modules, the whole model first, and where each node is in them.

    Attributes:
        holder: node -> the module that it is drawn in. box: node -> the number of its box there.
    """

    modules: list[_Module]
    holder: list[int]
    box: list[int]
    _chains: dict[int, list[tuple[int, Box]]] = field(default_factory=dict)

    @classmethod
    def of(cls, places: Sequence[_Place]) -> "_Tree":
        """Find where each node is."""
        modules = _modules(places)
        holder = [0] * (places[-1].first + len(places[-1].index.nodes))
        own = list(holder)
        for number, module in enumerate(modules):
            module.sketch = Sketch(module.boxes)
            for box, (kind, position) in enumerate(module.boxes):
                if kind == "node":
                    holder[position], own[position] = number, box
        for module in modules:
            if module.around >= 0:
                module.parent = holder[module.around]
        return cls(modules, holder, own)

    def connect(self, edges: _Edges) -> None:
        """Add the lines of edges, in the modules that hold both ends and in those around one of them."""
        holders = self.holder
        box = self.box
        lines = [module.sketch.lines for module in self.modules]
        for value, maker, reader in edges:
            if maker is not None and reader is not None and maker != reader:
                holder = holders[maker]
                if holder == holders[reader]:  # most of them, and soon told
                    lines[holder].setdefault((box[maker], box[reader]), {})[value] = None
                    continue
            self._connect(value, maker, reader, value not in edges.constants)

    def _connect(self, value: int, maker: int | None, reader: int | None, far: bool) -> None:
        """Add the lines of an edge.

        Args:
            far: draw it in modules around one end, too.
        """
        # the modules around both ends, from the outside in: as far as they are the same modules, the edge lies inside
        up = self._boxes(maker)
        down = self._boxes(reader)
        both = 0
        for above, below in zip(up, down, strict=False):
            if above[0] != below[0]:
                break
            both += 1
        # in the innermost common module, a line between the two boxes
        if both and up[both - 1][1] != down[both - 1][1]:
            module, box = up[both - 1]
            self.modules[module].sketch.add(box, down[both - 1][1], value)
        # below it, the value leaves the modules of its maker, and enters those of its reader
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
        holder = self.holder[node]
        return self._chain(holder) + [(holder, ("node", node))]

    def _chain(self, number: int) -> list[tuple[int, Box]]:
        """Return the modules around a module, each with the box that it is in there."""
        known = self._chains.get(number)
        if known is None:
            known = []
            module = self.modules[number]
            if module.parent >= 0:
                box: Box = ("node", module.around) if module.around >= 0 else ("module", number)
                known = self._chain(module.parent) + [(module.parent, box)]
            self._chains[number] = known
        return known


def _modules(places: Sequence[_Place]) -> list[_Module]:
    """Return the modules, each with its boxes; a node with bodies opens to them."""
    modules = [_Module("", "the model")]
    _fill(modules, 0, places[0])
    # node -> the module that it opens to. A node with one body opens to it; one with several to a module that holds
    # them.
    doors = dict[int, int]()
    several = Counter(place.around for place in places[1:])
    for place in places[1:]:
        assert place.outer is not None
        position = place.around - place.outer.first
        node = place.outer.index.nodes[position]
        label = f"{node.op_type} {shown(node.name)}".strip()
        if several[place.around] == 1:
            modules.append(_Module(place.path, label, -1, place.body, place.around))
        else:
            if place.around not in doors:
                doors[place.around] = len(modules)
                path = place.outer.node_id(position)
                modules.append(_Module(path, label, -1, "bodies", place.around))
            door = doors[place.around]
            modules[door].boxes.append(("module", len(modules)))
            modules.append(_Module(place.path, place.body, door, "body"))
        _fill(modules, len(modules) - 1, place)
    for number in range(len(modules)):
        _split(modules, number)
    return modules


def _fill(modules: list[_Module], root: int, place: _Place) -> None:
    """Put the nodes of a graph into a module, and into new ones in it."""
    index = place.index
    known = {"": root}
    if place.outer is not None:  # its nodes lie in the modules of the node around it
        origin = place.outer.index.origins[place.around - place.outer.first]
        known |= dict.fromkeys(origin.around(), root)
    holders = dict[tuple[object, ...], list[Box]]()  # the boxes beside nodes of one origin
    origins = list(index.origins)
    for position in index.order:
        origin = origins[position]
        # most nodes share their origin with the one before
        key = origin.scope, origin.modules
        boxes = holders.get(key)
        if boxes is None:
            boxes = holders[key] = modules[_holder(modules, root, known, origin)].boxes
        boxes.append(("node", place.first + position))


def _holder(modules: list[_Module], root: int, known: dict[str, int], origin: Provenance) -> int:
    """Return the module of an origin; make those around it that are not known."""
    new = list[str]()
    path = origin.scope
    # "a.b.c" -> ["a.b.c", "a.b", "a"], up to one that is known; "" always is
    while path not in known:
        new.append(path)
        path = path.rpartition(".")[0]
    parent = known[path]
    for path in reversed(new):
        known[path] = len(modules)
        modules[parent].boxes.append(("module", known[path]))
        label = path.removeprefix(f"{modules[parent].path}.")
        modules.append(_Module(path, label, parent))
        parent = known[path]
    for path, name in origin.modules:
        if path and (number := known.get(path, root)) != root:
            modules[number].class_name = modules[number].class_name or name.rpartition(".")[2]
    return parent


def _split(modules: list[_Module], number: int) -> None:
    """Put the boxes of a module that has too many into groups of neighbors."""
    module = modules[number]
    while len(module.boxes) > _MOST:
        # groups of about the square root: about as many groups as boxes in each; again while there are too many groups
        size = min(_MOST, 2 * math.isqrt(len(module.boxes)))
        groups = [module.boxes[at : at + size] for at in range(0, len(module.boxes), size)]
        module.boxes = []
        for boxes in groups:
            for kind, each in boxes:
                if kind == "module":
                    modules[each].parent = len(modules)
            module.boxes.append(("module", len(modules)))
            modules.append(_Module(module.path, _label(modules, boxes), number, boxes=boxes))


def _label(modules: Sequence[_Module], boxes: Sequence[Box]) -> str:
    """`@0 to @63`, or the labels of the first and the last module in it."""
    first, last = (
        f"@{number}" if kind == "node" else modules[number].label
        for kind, number in (boxes[0], boxes[-1])
    )
    return f"{first.split(' to ')[0]} to {last.split(' to ')[-1]}"


def _close_up(places: Sequence[_Place], node: int, edges: _Edges, draftsman: Draftsman) -> CloseUp:
    """Draw the nodes around one, as far as they are few."""
    place = next(each for each in reversed(places) if each.first <= node)
    near = [node]
    # two edges around the node, if that is not too much, else one, else the node alone
    for radius in (1, 2):
        wider = edges.around(node, place, radius)
        if len(wider) <= _NEAR:
            near = wider
    reads, makes = ({each: ends[each] for each in near} for ends in (edges.reads, edges.makes))
    return CloseUp(node, draftsman.draw(sketched(reads, makes)))
