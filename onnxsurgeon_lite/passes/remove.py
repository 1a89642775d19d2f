"""Remove nodes and connect their readers to their inputs."""

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.graph.selecting.select import select_nodes, split_names
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import drop_at
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import one_value
from onnxsurgeon_lite.surgery.edits import drop_declarations, rename_uses, rename_values, settle
from onnxsurgeon_lite.surgery.types import contradicts


@dataclass(frozen=True)
class Remove:
    """Remove nodes; readers of a node's output read its input of the same type instead.

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
        notes: list[str] = []
        wanted = split_names(index, self.nodes)
        positions = list(dict.fromkeys(p for name in wanted for p in select_nodes(index, name)))
        gone = index.made_by(positions)
        # their types decide what can replace what
        typed = gone.union(*(index.nodes[p].input for p in positions)) - {""}
        index.foresee(typed)
        readers, result = index.readers(gone), model.copy()
        index.learn_types(typed)
        bridge = None if self.bridge is None else one_value(index, self.bridge, notes)
        bypass: dict[str, str] = {}
        # each output of a removed node -> the input that takes its place
        for position in positions:
            bypass.update(_bypass(index, position, bridge, readers))
        # a chain of removed nodes: to its end
        for value in bypass:
            bypass[value] = _end(bypass, value)
        graph = result.proto.graph
        rename_uses((graph.node[p] for users in readers.values() for p in users), bypass)
        drop_at(graph.node, positions)
        drop_declarations(graph, gone - index.outputs.keys())
        # a graph output keeps its name, so its replacement is renamed
        outputs = {value: name for name, value in bypass.items() if name in index.outputs}
        _require_free(index, bypass, outputs)
        rename_values(result.proto, graph, outputs)
        after = settle(index, result)
        changes = [f"removed node {index.describe(position)}" for position in positions]
        changes += (f"{new!r} replaces {old!r}" for old, new in bypass.items())
        return PassResult.of(model, result, changes, notes + _unused(index, positions, after))


def _end(bypass: dict[str, str], value: str) -> str:
    """Return what replaces a value behind all removed nodes in sequence."""
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


def _bypass(
    index: GraphIndex, position: int, bridge: str | None, readers: dict[str, list[int]]
) -> dict[str, str]:
    """Return {output: the input that replaces it}; empty when nothing reads the node."""
    node = index.nodes[position]
    used = [name for name in node.output if name in index.outputs or readers.get(name)]
    if not used:
        return {}
    what = f"removing {index.describe(position)}"
    if len(used) > 1:
        shown = ", ".join(f"{name!r}, read by {_who(index, name, readers)}" for name in used)
        raise EditError(f"{what} would leave these dangling: {shown}", "rewire their readers first")
    value = used[0]
    reads = [name for name in dict.fromkeys(node.input) if name]
    # the user's choice
    if bridge in reads and bridge is not None:
        reads = [bridge]
    fitting = [name for name in reads if _fits(index, name, value)]
    # data before constants: x, not the 2 of x + 2
    data = [
        name for name in fitting if constant(index, name) is None and name not in index.initializers
    ]
    # of several that fit, the only one that is not constant
    chosen = fitting if len(fitting) == 1 else data
    if len(chosen) == 1:
        return {value: chosen[0]}
    dangles = f"{value!r}, read by {_who(index, value, readers)}, would dangle"
    if not chosen:
        raise EditError(
            f"{what}: no input has the type of its output: {dangles}",
            "rewire its readers first: onnxdbg edit rewire MODEL OLD NEW",
        )
    raise EditError(
        f"{what}: {len(chosen)} inputs have the type of its output: {dangles}",
        f"choose one of {listed(chosen)} with --bridge",
    )


def _fits(index: GraphIndex, value: str, other: str) -> bool:
    """Return whether one value can replace another, as far as types are known."""
    one, two = index.type_of(value), index.type_of(other)
    return one is None or two is None or not contradicts(one, two)


def _who(index: GraphIndex, value: str, readers: dict[str, list[int]]) -> str:
    users = [index.describe(user) for user in readers[value][:4]]
    return ", ".join(chain(users, ["the graph's output"] if value in index.outputs else []))


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
    read = dict.fromkeys(name for position in removed for name in index.reads[position])
    # inputs, outputs and captured values may stay unread
    ends = after.outputs.keys() | after.inputs.keys() | after.model.enclosing.names
    left = after.unread(name for name in read if name in after and name not in ends)
    idle = [name for name in read if name in left]
    if not idle:
        return []
    shown = ", ".join(map(repr, idle[:6]))
    return [f"nothing reads {shown} any more: onnxdbg edit clean removes what is not used"]
