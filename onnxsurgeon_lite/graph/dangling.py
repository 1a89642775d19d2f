"""Find values that are read and that nothing produces, in any scope."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from itertools import chain

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from onnxsurgeon_lite.graph.index import MAIN, Body, described, function_path
from onnxsurgeon_lite.model import walk

_Scopes = tuple[set[str], ...]


@dataclass(frozen=True)
class Dangling:
    """A name that a node reads, or that a graph declares as an output, and that no visible value has.

    Attributes:
        reader: the text of who needs it; `node` is its message, None for an output.
        node_id: the node, or the output itself.
        closest: visible values with the closest spelling, the best first.
    """

    name: str
    reader: str
    node_id: str
    node: NodeProto | None = field(compare=False, repr=False)
    closest: tuple[str, ...]

    def __str__(self) -> str:
        closest = f"; closest: {', '.join(map(repr, self.closest))}" if self.closest else ""
        return f"{self.reader} {self.name!r}, which nothing produces{closest}"

    @property
    def meant(self) -> str | None:
        """The only value of the closest spelling, if there is one."""
        likeness = [SequenceMatcher(None, self.name, other).ratio() for other in self.closest]
        # no second one that is as near
        unique = likeness and (len(likeness) == 1 or likeness[0] > likeness[1])
        return self.closest[0] if unique else None


def dangling(model: ModelProto) -> Iterator[Dangling]:
    """Yield the dangling reads of the main graph, of bodies, and of functions."""
    pending: list[tuple[str, GraphProto | FunctionProto, _Scopes]] = [(MAIN, model.graph, ())]
    pending += [(function_path(function), function, ()) for function in model.functions]
    while pending:
        path, graph, outer = pending.pop()
        own = _own(graph)
        # what a body sees: its own values, and those of the graphs around it
        visible = (own,) + outer
        body = Body(path, graph.node)
        for position, node in enumerate(graph.node):
            missing = [name for name in node.input[:] if name and name not in own]
            # most nodes: everything is there, and there is no body
            if not (missing or node.attribute):
                continue
            node_id = body.node_id(position)
            for name in missing:
                if not any(name in scope for scope in outer):
                    reader = f"{described(node, node_id)} reads"
                    yield Dangling(name, reader, node_id, node, _closest(name, visible))
            for attribute, inner in walk.bodies(node) if node.attribute else ():
                pending.append((f"{node_id}/{attribute}", inner, visible))
        for name in walk.output_names(graph):
            if not any(name in scope for scope in visible):
                reader = f"graph {graph.name!r} has the output"
                yield Dangling(name, reader, name, None, _closest(name, visible))


def _own(graph: GraphProto | FunctionProto) -> set[str]:
    given = graph.input if isinstance(graph, FunctionProto) else walk.sources(graph)
    return set(given).union(walk.outputs(graph.node))


def _closest(name: str, visible: _Scopes) -> tuple[str, ...]:
    known = list(filter(None, chain.from_iterable(visible)))
    # of a huge model, the first names are enough
    return tuple(get_close_matches(name, known[:20_000], n=3, cutoff=0.5))
