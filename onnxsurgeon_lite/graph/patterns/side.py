"""One function of a rule, and the parts that it is written with: functions of the file that it calls.

Several parts of one name are alternatives: a pattern that calls them is one pattern with each.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from onnx import FunctionProto, NodeProto

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.model import assign, copied, walk

_MOST_CALLS = 100


@dataclass
class CopyBudget:
    """How much may still be copied for the rules of a file, whose alternatives multiply.

    Attributes:
        left: nodes of functions, and of conditions; `attention`, with 576 rules, takes 12,440.
    """

    name: str
    left: int = 200_000

    def spend(self, size: int) -> None:
        """Take what a copy needs.

        Raises:
            UsageError: that is more than is left.
        """
        self.left -= size
        if self.left < 0:
            raise UsageError(
                f"{self.name!r} has too many nodes with its alternatives, which multiply",
                "write several files",
            )


@dataclass(frozen=True)
class PatternGraph:
    """One function of a rule, and what its comments ask.

    Attributes:
        where: the conditions, as Python expressions.
        optional: inputs that a node may omit.
        keep: inner values that nodes outside may read.
    """

    function: FunctionProto
    where: tuple[ast.expr, ...]
    optional: frozenset[str]
    keep: frozenset[str]

    @cached_property
    def size(self) -> int:
        """How many nodes it has, those of conditions among them."""
        return len(self.function.node) + len(list(chain.from_iterable(map(ast.walk, self.where))))

    @property
    def variables(self) -> set[str]:
        """The attribute variables that the nodes mention."""
        attributes = chain.from_iterable(node.attribute for node in self.function.node)
        return {attribute.ref_attr_name for attribute in attributes} - {""}

    def with_operator(self, word: str, operator: str) -> "PatternGraph":
        """Return the side with an operator for a word."""
        function = copied(self.function)
        for node in function.node:
            node.op_type = operator if node.op_type == word else node.op_type
        return replace(self, function=function)

    def renamed(self, names: Mapping[str, str]) -> "PatternGraph":
        """Return the side with other names for values."""
        if all(name == other for name, other in names.items()):
            return self
        function = copied(self.function)
        for holder in chain([function], function.node):  # the function itself and all of its nodes
            holder.input[:] = [names.get(name, name) for name in holder.input]
            holder.output[:] = [names.get(name, name) for name in holder.output]
        # parsed anew, because renaming changes the tree
        again = (ast.parse(ast.unparse(condition), mode="eval").body for condition in self.where)
        where = tuple(map(_Renaming(names).visit, again))
        optional, keep = (
            frozenset(names.get(name, name) for name in known)
            for known in (self.optional, self.keep)
        )
        return PatternGraph(function, where, optional, keep)

    def without_unread(self) -> "PatternGraph":
        """Return the side without the inputs that nothing reads: the chosen parts may do without."""
        function = copied(self.function)
        read = set(function.output).union(walk.inputs(function.node))
        function.input[:] = [name for name in function.input if name in read]
        return replace(self, function=function)


def written_out(
    side: PatternGraph,
    parts: Mapping[str, Sequence[PatternGraph]],
    budget: CopyBudget,
    calls: int = _MOST_CALLS,
) -> Iterator[PatternGraph]:
    """Yield a side with the nodes of parts in the place of their calls, once for each choice of parts, in their order.

    A part that is called twice is the same one at both places.

    Raises:
        UsageError: a part is called with other operands than it has, there are more than so many calls, or too many
            alternatives.
    """
    nodes = side.function.node
    called = (  # the first call of a part
        place for place, node in enumerate(nodes) if not node.domain and node.op_type in parts
    )
    place = next(called, None)
    if place is None:
        yield side
        return
    if not calls:
        raise UsageError(
            f"{side.function.name!r} calls parts more than {_MOST_CALLS} times",
            "write the nodes out",
        )
    name = nodes[place].op_type
    for part in parts[name]:
        budget.spend(side.size + part.size)
        inserted = _inserted(side, place, part)
        # further calls of this part take the same alternative
        yield from written_out(inserted, {**parts, name: [part]}, budget, calls - 1)


def _inserted(side: PatternGraph, place: int, part: PatternGraph) -> PatternGraph:
    """Return the side with the nodes of a part in the place of its call."""
    call = side.function.node[place]
    own = part.function
    if (len(call.input), len(call.output)) != (len(own.input), len(own.output)) or call.attribute:
        raise UsageError(
            f"the part {own.name!r} is called with other operands than it has",
            f"write: {', '.join(own.output)} = {own.name}({', '.join(own.input)})",
        )
    names, same = _names(side, call, own)
    new = part.renamed(names)
    function = copied(side.function)
    nodes = [*function.node[:place], *new.function.node, *function.node[place + 1 :]]
    assign(function.node, nodes)
    for known, added in (  # attribute variables of the part become those of the side
        (function.attribute, own.attribute),
        (function.attribute_proto, own.attribute_proto),
    ):
        known.extend(each for each in added if each not in known)
    joined = replace(
        side,
        function=function,
        where=side.where + new.where,
        optional=side.optional | new.optional,
        keep=side.keep | new.keep,
    )
    return joined.renamed(same)


def _names(
    side: PatternGraph, call: NodeProto, own: FunctionProto
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of a part's values in the side, and the outputs of the call that are one of its inputs."""
    names = dict(zip(own.input, call.input, strict=True))
    same = {}
    for name, result in zip(own.output, call.output, strict=True):
        # an output of the part that is an input: the caller's two names are one value
        if name in names:
            same[result] = names[name]
        else:
            names[name] = result
    # inner names that the side has already get the name of the call's result in front
    taken = set(walk.names(side.function.node))
    for name in (name for name in walk.outputs(own.node) if name not in names):
        names[name] = name if name not in taken else f"{call.output[0]}_{name}"
    return names, same


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node
