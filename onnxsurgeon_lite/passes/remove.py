"""Remove nodes and connect their readers to their inputs."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import NodeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_nodes, select_parts, split_names
from onnxsurgeon_lite.model import Model, drop_at
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import one_value
from onnxsurgeon_lite.surgery import drop_declarations, rename_uses, rename_values, settle
from onnxsurgeon_lite.surgery.bypass import Bypass, without_skip


@dataclass(frozen=True)
class Remove:
    """Remove nodes; readers of a node's output read its input of the same type instead.

    A module (`scope:encoder.layer.4`), each module of a class and each match of a pattern are removed as a whole:
    readers of what leaves it read what enters it; what has no replacement stays, with the nodes that compute it.

    A graph output keeps its name: the value that replaces it is renamed. Unused constants stay; `clean` removes
    them. Only nodes of the main graph can be removed.

    Attributes:
        bridge: the input that replaces the output, where several have its type.

    Example:
        >>> osl.remove("whole_model.onnx", "Add_7", bridge="25").changes
        ("removed node Add 'Add_7' (@7)", "'25' replaces '28'")
    """

    nodes: tuple[str, ...]
    bridge: str | None = None
    name: ClassVar[str] = "remove"

    @in_bodies(values=("bridge",), nodes=("nodes",), each="nodes")
    def apply(self, model: Model) -> PassResult:
        """Remove the nodes.

        Raises:
            UnknownNameError: no such node.
            EditError: an output would have no producer: no input fits, or several fit and `bridge` selects none.
        """
        index = GraphIndex.of(model)
        notes = list[str]()
        wanted = split_names(index, self.nodes)
        parts = list(chain.from_iterable(_parts(index, name) for name in wanted))
        inside = set(chain.from_iterable(parts))
        # types decide which value can replace which
        typed = index.made_by(inside).union(*(index.nodes[p].input for p in inside)) - {""}
        index.foresee(typed)
        index.learn_types(typed)
        bridge = None if self.bridge is None else one_value(index, self.bridge, notes)
        # each value that leaves a removed part -> the one that takes its place
        bypass, chosen, together = dict[str, str](), dict[int, None](), set[str]()
        for part in parts:
            goes, found = Bypass(index, part).around(bridge)
            chosen |= dict.fromkeys(goes)
            bypass |= found
            together.update(found if len(part) > 1 else ())
        positions = list(chosen)
        # a chain of removed nodes: to its end
        bypass = {value: _end(bypass, value) for value in bypass}
        result = model.copy()
        graph = result.graph
        _join([graph.node[p] for p in set(index.reading(together)) - inside], bypass, together)
        rename_uses((graph.node[p] for p in set(index.reading(bypass)) - inside), bypass)
        drop_at(graph.node, positions)
        drop_declarations(graph, index.made_by(positions) - index.outputs.keys())
        outputs = {value: name for name, value in bypass.items() if name in index.outputs}
        _require_free(index, bypass, outputs)
        rename_values(result.proto, graph, outputs)
        after = settle(index, result)
        changes = [f"removed node {index.describe(position)}" for position in positions]
        changes += (f"{new!r} replaces {old!r}" for old, new in bypass.items())
        return PassResult.of(model, result, changes, notes + _unused(index, positions, after))


def _parts(index: GraphIndex, name: str) -> list[list[int]]:
    """Return the parts that a selector means: modules and matches are one each, other nodes are alone."""
    if name.startswith(("scope:", "class:", "pattern:")):
        return select_parts(index, name)
    return [[position] for position in select_nodes(index, name)]


def _end(bypass: dict[str, str], value: str) -> str:
    """Return what replaces a value after all removed nodes in sequence."""
    passed = {value}
    end = bypass[value]
    while end in bypass:
        if end in passed:
            raise EditError(
                f"{end!r} would dangle: the removed nodes read what they make",
                "rewire one of them first: onnxdbg edit rewire MODEL OLD NEW --to NODE",
            )
        passed.add(end)
        end = bypass[end]
    return end


def _join(readers: Iterable[NodeProto], bypass: dict[str, str], together: set[str]) -> None:
    """Let nodes that read several of the values that one value replaces now read that, in place."""
    for node in readers:
        # SkipLayerNormalization(a, b) of two values that become one: it normalizes that value alone
        replaced = together.intersection(node.input)
        if len({bypass[name] for name in replaced}) < len(replaced):
            bypass |= without_skip(node, bypass)


def _require_free(index: GraphIndex, bypass: dict[str, str], outputs: dict[str, str]) -> None:
    """Raise `EditError` if a value that must take an output's name has to keep its own."""
    for name, value in bypass.items():
        if name not in index.outputs:
            continue
        # an input or another output cannot give up its name; and one value cannot have two names
        if value in index.inputs or value in index.outputs or outputs[value] != name:
            kind = "input" if value in index.inputs else "output"
            raise EditError(
                f"output {name!r} would dangle: its replacement {value!r} is an {kind} of the graph and keeps its name",
                "replace the node by an Identity instead: onnxdbg edit set-op MODEL NODE Identity",
            )


def _unused(index: GraphIndex, removed: list[int], after: GraphIndex) -> list[str]:
    read = dict.fromkeys(index.inputs_of(removed))
    # inputs, outputs and captured values may stay unread
    ends = after.outputs.keys() | after.inputs.keys() | after.model.enclosing.names
    left = after.unread(name for name in read if name in after and name not in ends)
    idle = [name for name in read if name in left]
    if not idle:
        return []
    shown = ", ".join(map(repr, idle[:6]))
    return [f"nothing reads {shown} any more: onnxdbg edit clean removes what is not used"]
