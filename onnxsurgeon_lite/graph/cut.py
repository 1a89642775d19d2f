"""Close a cut (inputs, outputs) by value name: which nodes lie between, and which inputs are missing."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from onnxsurgeon_lite.errors import CutError, GraphError, OpenCutError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import RANDOM
from onnxsurgeon_lite.names import command, listed

_Vertex = tuple[str, bool]  # (value, True for its exit and False for its entry)
_SOURCE: _Vertex = ("", True)  # where all values come from
_NODES = 8  # nodes in the part that cost as much as one more input
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Cut:
    """A closed cut: its inputs determine its outputs.

    Attributes:
        nodes: the nodes between, in file order.
        unused: the inputs that no output depends on.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[int, ...]
    unused: tuple[str, ...]


def close(index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str]) -> Cut:
    """Return the cut with the nodes that compute the outputs from the inputs.

    Raises:
        UnknownNameError: a name is not a value of the main graph.
        CutError: an output is also an input, as it is not in the graph itself, or lies upstream of the inputs.
        OpenCutError: the inputs do not determine the outputs.
    """
    for name in chain(inputs, outputs):
        index.require(name)
    for name in outputs:
        if name in inputs and not (name in index.inputs and name in index.outputs):
            raise CutError(
                f"value {name!r} is both an input and an output of the cut",
                "remove it from one of the two",
            )
    # `needed_by` leads from each value back to the output that needs it; `leaves` are inputs of the graph that were
    # not cut.
    nodes, needed_by, leaves = _walk_back(index, outputs, set(inputs))
    unused = tuple(name for name in inputs if name not in needed_by)
    if leaves:
        # no output depends on a given input: perhaps the two are exchanged
        if len(unused) == len(inputs) and inputs:
            _refuse_upstream(index, inputs, outputs)
        for name in outputs:
            if name in leaves:
                raise CutError(f"output {name!r} is an input of the graph: no node computes it")
        raise _open_cut(index, inputs, outputs, needed_by)
    return Cut(tuple(inputs), tuple(outputs), tuple(sorted(nodes)), unused)


def boundary(index: GraphIndex, nodes: Collection[int]) -> tuple[list[str], list[str]]:
    """Return what some nodes read that depends on the graph's inputs, and what they make that others read.

    Raises:
        CutError: nothing outside reads what they make.
    """
    inside = set(nodes)
    # dict.fromkeys: each once, in order
    made = dict.fromkeys(index.outputs_of(sorted(inside)))
    read = dict.fromkeys(n for n in index.inputs_of(sorted(inside)) if n not in made)
    # what inputs and random numbers determine: constants need not be inputs of the part
    moving = set(index.required_inputs)
    for position in index.order:
        node = index.nodes[position]
        if node.op_type in RANDOM or not moving.isdisjoint(index.needs[position]):
            moving.update(filter(None, node.output))
    users = index.readers(made)
    # read outside, or a result of the graph
    outputs = [n for n in made if n in index.outputs or not inside.issuperset(users[n])]
    if not outputs:
        raise CutError("nothing reads what these nodes make", "name values with --outputs")
    return [name for name in read if name in moving], outputs


def missing_inputs(index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Return further values that close the cut: beside or upstream of the given inputs, never computed from them.

    They are as late as possible, so that the part holds what depends on the given inputs and little else: it computes a
    few more nodes only where that saves an input. An input of the graph is taken if no other value closes the cut.
    """
    _, needed_by, leaves = _walk_back(index, outputs, set(inputs))
    # Candidates: what depends on the uncovered inputs and leads to an output, but is not computed from the given
    # inputs (`inside`). The cut must separate `last`, what the part reads of them, from all sources.
    missing = _computed_from(index, leaves, needed_by.keys() - set(inputs))
    used = [name for name in inputs if name in needed_by]
    inside = _computed_from(index, used, set(needed_by)).difference(inputs).union(outputs)
    users = set(index.makers(inside))
    read = index.read_by(users)
    return _minimum_vertex_cut(_Network(index, missing - inside, read & missing - inside))


def _computed_from(index: GraphIndex, sources: Iterable[str], values: set[str]) -> set[str]:
    """Return the sources, and those of `values` that depend on them through `values`; constants excluded."""
    found = set[str]()
    pending = list(sources)
    while pending:
        name = pending.pop()
        if name in values and name not in found:
            found.add(name)
            pending += _results(index, name)
    return found


def _results(index: GraphIndex, name: str) -> list[str]:
    """Return the values that are computed directly from a value."""
    return list(index.outputs_of(index.users(name)))


def _walk_back(
    index: GraphIndex, outputs: Iterable[str], stop: set[str]
) -> tuple[set[int], dict[str, str], list[str]]:
    """Return (nodes, value -> the value that needs it, graph inputs reached that are not in `stop`)."""
    nodes = set[int]()
    needed_by = {name: name for name in outputs}
    leaves = []
    pending = list(outputs)
    while pending:
        name = pending.pop()
        if name in stop:
            continue  # a value of the cut: nothing upstream of it is needed
        position = index.producer.get(name)
        if position is None:
            # an initializer is a leaf that needs nothing
            if name in index.inputs and name not in index.initializers:
                leaves.append(name)
            elif name not in index.initializers:
                user = index.describe(index.consumers[name][0])
                raise GraphError(f"{user} reads {name!r}, which nothing produces")
            continue
        if position in nodes:
            continue
        nodes.add(position)
        for read in index.reads[position]:
            if read not in needed_by:
                needed_by[read] = name
                pending.append(read)
    return nodes, needed_by, leaves


def _refuse_upstream(index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    above = index.ancestors(inputs)
    before = (index.read_by(above) | index.made_by(above)).difference(inputs, index.initializers)
    for name in outputs:
        if name in before:
            raise CutError(
                f"output {name!r} lies upstream of the inputs {', '.join(map(repr, inputs))}",
                f"swap them: {_extract_command(index, outputs, inputs)}",
            )


def _open_cut(
    index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str], needed_by: dict[str, str]
) -> OpenCutError:
    missing = missing_inputs(index, inputs, outputs)
    path = [missing[0]]  # from the missing input to the output that needs it
    while needed_by[path[-1]] != path[-1]:
        path.append(needed_by[path[-1]])
    shown = path if len(path) < 8 else [*path[:4], "...", *path[-3:]]
    return OpenCutError(
        f"the inputs do not determine {', '.join(map(repr, outputs))}: "
        f"{', '.join(map(repr, missing))} also needed, by {' -> '.join(shown)}",
        f"add --auto-inputs, or try: {_extract_command(index, list(inputs) + missing, outputs)}",
        missing,
        path,
    )


def _extract_command(index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the command line for a cut; it uses `=` because a name can begin with a dash."""
    around = index.model.enclosing.path
    sources, targets = (listed(around + name for name in names) for names in (inputs, outputs))
    model = str(index.model.path or "MODEL")
    dashed = sources.startswith("-") or targets.startswith("-")
    if dashed:
        return command("onnxdbg", "extract", model, f"--inputs={sources}", f"--outputs={targets}")
    return command("onnxdbg", "extract", model, "--inputs", sources, "--outputs", targets)


@dataclass
class _Network:
    """Values as edges from an entry to an exit, and the flow through them from all values to the last ones.

    Flow from the source into a value means that the part computes it, flow through it that it is an input of the part.
    """

    index: GraphIndex
    values: set[str]
    last: set[str]
    flow: Counter[tuple[_Vertex, _Vertex]] = field(default_factory=Counter)

    def into(self, vertex: _Vertex) -> Iterator[tuple[_Vertex, int]]:
        """Yield the vertices from which more flow can come to this vertex, and how much."""
        name, is_exit = vertex
        # Edges, seen from their ends. entry -> exit costs what the value costs as an input of the part.
        if is_exit:
            # an input of the graph costs more than all others together
            cost = _NODES * (1 if name in self.index.producer else 1 + len(self.values))
            yield (name, False), cost - self.flow[(name, False), vertex]
            # flow that can be taken back from the results
            for result in self.values.intersection(_results(self.index, name)):
                yield (result, False), self.flow[vertex, (result, False)]
            return
        position = self.index.producer.get(name)
        # computing a node costs 1; an input of the graph cannot be computed
        computing = _UNLIMITED if position is None else 1
        yield _SOURCE, computing - self.flow[_SOURCE, vertex]
        yield (name, True), self.flow[vertex, (name, True)]
        # what the node reads flows into what it makes, without a limit
        reads = self.index.reads[position] if position is not None else ()
        for read in self.values.intersection(reads):
            yield (read, True), _UNLIMITED

    def path(self) -> dict[_Vertex, _Vertex | None]:
        """Search backward, breadth first, up to the source; return vertex -> the next one, None for a last value."""
        # breadth first: the shortest path, as Edmonds-Karp needs
        leads_to: dict[_Vertex, _Vertex | None] = dict.fromkeys((name, True) for name in self.last)
        pending = deque(leads_to)
        while pending:
            vertex = pending.popleft()
            for other, room in self.into(vertex):
                if room > 0 and other not in leads_to:
                    leads_to[other] = vertex
                    if other == _SOURCE:
                        return leads_to
                    pending.append(other)
        return leads_to

    def push(self, leads_to: dict[_Vertex, _Vertex | None]) -> None:
        """Send as much flow as the path from the source can take."""
        edges = []
        vertex = _SOURCE
        while (after := leads_to[vertex]) is not None:
            edges.append((vertex, after))
            vertex = after
        # the narrowest edge
        amount = min(dict(self.into(after))[before] for before, after in edges)
        for before, after in edges:
            back = min(amount, self.flow[after, before])  # cancel the opposite flow first
            self.flow[after, before] -= back
            self.flow[before, after] += amount - back


def _minimum_vertex_cut(network: _Network) -> list[str]:
    """Return the cheapest values that separate the last ones from the graph's inputs, the latest of several sets.

    Edmonds-Karp maximum flow over split vertices; from the last values backward, because the cut is near to them.
    """
    while _SOURCE in (leads_to := network.path()):
        network.push(leads_to)
    # reached at its exit, but not through it to its entry: that edge is full
    cut = [name for name, is_exit in leads_to if is_exit and (name, False) not in leads_to]
    return sorted(cut, key=lambda name: network.index.rank.get(name, -1))
