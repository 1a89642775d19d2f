"""What can replace the values that leave a part of a graph, when the part goes away."""

from collections.abc import Mapping, Sequence, Set
from itertools import chain

from onnx import NodeProto, TensorProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, constant, dims_of, is_complete
from onnxsurgeon_lite.model import attributes_of
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.surgery.types import contradicts

_COUNTING = frozenset((TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL))
"""Types of sizes, positions and masks: what a module makes of them for others stays."""
_SUM = 3  # the output of SkipLayerNormalization, and of its relatives, that is what they normalize


class Bypass:
    """A part of a graph that goes away: a node, a module or a match of a pattern.

    Attributes:
        entering: the values that its nodes read and do not make. leaving: those that they make for others.
    """

    def __init__(self, index: GraphIndex, positions: Sequence[int]) -> None:
        self.index = index
        self.positions = positions
        made = list(index.outputs_of(positions))
        reads = chain.from_iterable(index.nodes[position].input for position in positions)
        self._reads = dict.fromkeys(filter(None, reads))
        own = set(made)
        self.entering = [name for name in self._reads if name not in own]
        self._readers = index.readers(made + self.entering)
        self._inside = set(positions)
        self.leaving = [n for n in made if n in index.outputs or self._outside(n)]

    def around(self, bridge: str | None) -> tuple[list[int], dict[str, str]]:
        """Return the nodes that can go, and {value that leaves: the value that enters instead}.

        1. A value is replaced by the one of its type, such as the residual stream that enters a layer; a constant
           replaces the output of one node alone, where nothing else has its type.
        2. Of several, by the one that the part reads as others read the value: at the same input of the same operator.
        3. What no value replaces stays, with the nodes that it needs: a mask that later layers read, too.

        Raises:
            EditError: several values can replace one, or none can.
        """
        ends = dict.fromkeys((self.positions[0], self.positions[-1]))
        what = f"removing {' to '.join(map(self.index.describe, ends))}"
        if len(self.positions) == 1 < len(self.leaving):
            shown = ", ".join(map(self._read, self.leaving))
            raise EditError(
                f"{what} would leave these dangling: {shown}", "rewire their readers first"
            )
        # for each value that leaves the one that replaces it; more than one is a question
        found = dict[str, str]()
        for value in self.leaving:
            chosen = self._instead(value, bridge)
            if len(chosen) > 1:
                raise EditError(
                    f"{what}: {len(chosen)} inputs have the type of its output: {self._read(value)}, would dangle",
                    f"choose one of {listed(chosen)} with --bridge",
                )
            found.update((value, other) for other in chosen)
        # a part that nothing replaces cannot go
        stays = [name for name in self.leaving if name not in found]
        if stays and not found:
            raise EditError(
                f"{what}: no input has the type of its output: {self._read(stays[0])}, would dangle",
                "rewire its readers first: onnxdbg edit rewire MODEL OLD NEW",
            )
        kept = self.index.ancestors(stays, self.entering)
        return [position for position in self.positions if position not in kept], found

    def _instead(self, value: str, bridge: str | None) -> list[str]:
        """Return what can replace a value."""
        index = self.index
        is_node = len(self.positions) == 1
        needed = index.read_by(index.ancestors([value], self.entering))
        # a bridge that the node makes itself is taken, too: the removal then refuses it with its reason
        usable = self._reads if is_node else self.entering
        # what the value depends on and has the type of; constants are the last choice
        known = [bridge] if bridge in usable else self.entering
        fitting = [n for n in known if n in needed and self._fits(value, n, not is_node)]
        data = [n for n in fitting if constant(index, n) is None and n not in index.initializers]
        chosen = fitting if is_node and len(fitting) == 1 else data
        if is_node or len(chosen) < 2:
            return chosen
        roles = self._roles(value, self._outside(value))
        return [n for n in chosen if roles & self._roles(n, self._inside)] or chosen

    def _fits(self, value: str, other: str, exactly: bool) -> bool:
        """Return whether one value can replace another, as far as types are known."""
        one, two = self.index.type_of(value), self.index.type_of(other)
        if exactly:
            if one is None or one != two or not is_complete(one):
                return False
            # two sizes without a name are not known to be equal
            named = all(dim.WhichOneof("value") for dim in dims_of(one))
            return named and self.index.element_of(value) not in _COUNTING
        return one is None or two is None or not contradicts(one, two)

    def _outside(self, value: str) -> set[int]:
        return set(self._readers[value]) - self._inside

    def _roles(self, value: str, users: Set[int]) -> set[tuple[str, int]]:
        """Return (operator, input) of each place where some nodes read a value."""
        return {
            (self.index.nodes[user].op_type, slot)
            for user in users
            for slot, name in enumerate(self.index.nodes[user].input)
            if name == value
        }

    def _read(self, name: str) -> str:
        users = [self.index.describe(user) for user in self._readers[name][:4]]
        shown = ", ".join(users + (["the graph's output"] if name in self.index.outputs else []))
        return f"{name!r}, read by {shown}"


def without_skip(node: NodeProto, bypass: Mapping[str, str]) -> dict[str, str]:
    """Let a normalization of a sum whose two parts become one value normalize that value, in place.

    Returns:
        {the sum: the value that replaces it}, where it is an output.

    Raises:
        EditError: another operator would read one value twice, where it read two.
    """
    value = bypass[node.input[0]] if node.input and node.input[0] in bypass else ""
    simplified = node.op_type == "SkipSimplifiedLayerNormalization"
    is_skip = simplified or node.op_type == "SkipLayerNormalization"
    if not is_skip or bypass.get(node.input[1]) != value or len(node.input) > 4 - simplified:
        raise EditError(
            f"{node.op_type} {node.name!r} would read one value in the place of two",
            "rewire it first: onnxdbg edit rewire MODEL OLD NEW --to NODE",
        )
    # (x, skip, gamma, beta) -> (x, gamma, beta)
    sums = {name: value for name in node.output[_SUM:] if name}
    epsilon = attributes_of(node).get("epsilon", 1e-12)
    node.op_type, node.domain = node.op_type.removeprefix("Skip"), ""
    del node.input[1], node.output[1:], node.attribute[:]
    node.attribute.append(helper.make_attribute("epsilon", epsilon))
    return sums
