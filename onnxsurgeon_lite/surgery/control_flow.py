"""Replace an If by the branch that runs, and a Loop by its iterations, where constants decide that.

The body becomes a function, and the node calls of it, which are inlined.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, helper

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, InnerGraph, captured_by, constant
from onnxsurgeon_lite.model import (
    Model,
    assign,
    copied,
    drop,
    function_key,
    is_standard,
    operand,
    walk,
)
from onnxsurgeon_lite.surgery.edits import drop_declarations, fresh, value_names
from onnxsurgeon_lite.surgery.inlining import inline
from onnxsurgeon_lite.surgery.open_body import OpenBody
from onnxsurgeon_lite.tensors import dtypes

_DOMAIN = "onnxsurgeon_lite.body"  # of functions that exist only until they are inlined
_AXES_ARE_INPUT = 13  # opset: the axes of Unsqueeze

Straightened = tuple[Model, list[str], list[str], set[str]]
"""The model, the changes, why loops stay, and the constants that decided something."""


def straighten(model: Model, most: int) -> Straightened:
    """Replace what constants decide, in bodies too.

    Args:
        most: the iterations of a Loop that are written out at most; 0 keeps loops.
    """
    model, changes, kept, deciding = _graph_straightened(model, most)
    # The main graph first, then every body: each is opened as a model of its own, and put back if it changed.
    index = GraphIndex.of(model)
    paths = [f"@{p}/{name}" for p in index.bodied for name, _ in walk.bodies(index.nodes[p])]
    for path in paths:
        body = OpenBody.of(index, path)
        inner, made, left, read = straighten(body.model, most)
        kept += left
        if made:
            model, _ = body.put_back(inner, ())
            _drop_unread(model, read)
            changes += made
            deciding |= read
            index = GraphIndex.of(model)
    return model, changes, kept, deciding


def _graph_straightened(model: Model, most: int) -> Straightened:
    changes = list[str]()
    deciding = set[str]()
    # A body that takes the place of its If can hold other Ifs: repeat until nothing is decided any more.
    while True:
        index = GraphIndex.of(model)
        straight = _Straight(index, most, value_names(index))
        nodes = list(chain.from_iterable(map(straight.written, range(len(index.nodes)))))
        if not straight.functions:
            return model, changes, straight.kept, deciding  # nothing was replaced
        changes += straight.changes
        deciding |= straight.deciding
        # The body becomes a function and the node a call: inlining gives its values free names.
        result = model.copy()
        assign(result.graph.node, nodes)
        result.graph.initializer.extend(straight.constants.initializer)
        result.graph.sparse_initializer.extend(straight.constants.sparse_initializer)
        result.proto.functions.extend(straight.functions)
        model = inline(result, [function_key(function) for function in straight.functions])
        _drop_unread(model, straight.deciding | {t.name for t in straight.constants.initializer})


def _drop_unread(model: Model, names: Set[str]) -> None:
    """Remove those constants of a graph itself that nothing reads any more."""
    # What a body captured from the graphs around it belongs to them, not to this graph.
    index = GraphIndex.of(model)
    unread = index.unread(names - model.enclosing.names) - index.outputs.keys()
    drop(index.graph.initializer, lambda tensor: tensor.name in unread)
    drop(
        index.graph.node, lambda node: node.op_type == "Constant" and unread.issuperset(node.output)
    )
    drop_declarations(index.graph, unread)


@dataclass
class _Straight:
    """The nodes of a graph, written without the control flow that constants decide.

    Attributes:
        most: the iterations of a Loop at most.
        taken: names of values; new ones are added.
        constants: new ones of the graph.
        functions: the bodies that run.
        deciding: the constants that decide it.
        kept: a line for each Loop that stays.
    """

    index: GraphIndex
    most: int
    taken: set[str]
    constants: GraphProto = field(default_factory=GraphProto)
    functions: list[FunctionProto] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    deciding: set[str] = field(default_factory=set)
    kept: list[str] = field(default_factory=list)

    def written(self, position: int) -> list[NodeProto]:
        """Return a node, or the nodes that replace it."""
        node = self.index.nodes[position]
        what = self.index.describe(position)
        if is_standard(node) and node.op_type == "If":
            # then_branch or else_branch, if the condition is constant
            chosen = self._number(node.input[0])
            if chosen is not None:
                branch = "then_branch" if chosen else "else_branch"
                self.changes.append(f"{what}: replaced by its {branch}")
                self.deciding.add(node.input[0])
                call = self._called(dict(walk.bodies(node))[branch])
                call.output.extend(node.output)
                return [call]
        if is_standard(node) and node.op_type == "Loop" and self.most:
            count = self._count(position)
            if isinstance(count, int):  # otherwise it is the reason why the loop stays
                self.changes.append(f"{what}: replaced by its {count} iterations")
                self.deciding.update(filter(None, node.input[:2]))
                return list(self._iterations(node, count))
            self.kept.append(f"{what} stays: {count}")
        return [node]

    def _called(self, body: GraphProto) -> NodeProto:
        """Return a call of a body, without its own inputs and outputs; its constants become those of the graph."""
        named = f"body_{len(self.functions)}"
        # Inputs of the function: what the body captures, its constants (under new names outside), its own inputs.
        given = {name: name for name in captured_by(body)} | self._hoisted(body)
        inputs, outputs = ([value.name for value in values] for values in (body.input, body.output))
        imports = self.index.model.proto.opset_import
        made = helper.make_function(
            _DOMAIN, named, list(given) + inputs, outputs, body.node, imports
        )
        made.value_info.extend(body.value_info)
        self.functions.append(made)
        return helper.make_node(named, list(given.values()), [], domain=_DOMAIN)

    def _hoisted(self, body: GraphProto) -> dict[str, str]:
        # An initializer of the body becomes one of the graph: name inside -> name outside.
        names = {}
        for tensor in map(copied, body.initializer):
            names[tensor.name] = tensor.name = fresh(tensor.name, self.taken)
            self.constants.initializer.append(tensor)
        for sparse in map(copied, body.sparse_initializer):
            values = sparse.values
            names[values.name] = values.name = fresh(values.name, self.taken)
            self.constants.sparse_initializer.append(sparse)
        return names

    def _iterations(self, node: NodeProto, count: int) -> Iterator[NodeProto]:
        """Yield the iterations of a loop, and what stacks their results."""
        body = self._called(walk.bodies(node)[0][1])
        # Inputs of a Loop: count, condition, states. Outputs: the last states, then the stacked values.
        states = list(node.input[2:])
        stacked = node.output[len(node.input) - 2 :]
        rows: list[list[str]] = [[] for _ in stacked]
        going = self._constant(f"{node.output[0]}_going", np.array(True))  # the condition
        for number in range(count):
            at = self._constant(f"{node.output[0]}_at", np.array(number, np.int64))
            call = copied(body)
            call.input.extend(chain([at, going], states))
            # The last iteration makes the outputs of the node; the others make new states.
            states = list(node.output[: len(states)])
            if number < count - 1:
                states = [fresh(name or "state", self.taken) for name in states]
            made = [fresh(name or "row", self.taken) for name in stacked]
            call.output.extend(chain([""], states, made))  # '' for the condition, which is known
            yield call
            for row, name in zip(rows, made, strict=True):
                row.append(name)
        for name, state in zip(node.output, states, strict=False):
            if name and name != state:  # no iteration: the output is the initial state
                yield helper.make_node("Identity", [state], [name])
        for name, row in zip(stacked, rows, strict=True):
            if name:
                yield from self._stack(row, name)

    def _stack(self, row: list[str], name: str) -> Iterator[NodeProto]:
        # Each value of a row gets a new first axis; along it, they are concatenated.
        late = self.index.opset >= _AXES_ARE_INPUT
        axes = [self._constant(f"{name}_axes", np.array([0]))] if late else []
        wide = [fresh(f"{each}_row", self.taken) for each in row]
        for each, made in zip(row, wide, strict=True):
            given = None if late else [0]
            yield helper.make_node("Unsqueeze", [each] + axes, [made], axes=given)
        yield helper.make_node("Concat", wide, [name], axis=0)

    def _constant(self, base: str, value: dtypes.Array) -> str:
        name = fresh(base, self.taken)
        self.constants.initializer.append(dtypes.from_array(value, name))
        return name

    def _count(self, position: int) -> int | str:
        """Return how often a loop runs; why it stays if that is not known, or not few."""
        node = self.index.nodes[position]
        count = self._number(node.input[0])
        on = self._number(node.input[1]) if operand(node, 1) else 1
        if count is None or on is None:
            name = node.input[count is not None]  # the one that is not constant
            if not name:
                return "it has no number of iterations"
            return f"{name!r} is no constant (onnxdbg edit fold computes what is constant)"
        if not on or not 0 <= count <= self.most:
            return f"it runs {count} times, at most {self.most} are unrolled" if on else "it is off"
        if not count and any(node.output[len(node.input) - 2 :]):
            return "it has no iteration, so nothing says which shape its rows have"
        body = InnerGraph.of(self.index, position, "body")
        inner = body.index
        # The body returns whether to go on. That must be the condition that it got, through Identities, or a constant
        # that is true: of the graph itself, or of the body.
        given, name = inner.graph.input[1].name, inner.graph.output[0].name
        while (made := inner.node_of(name)) is not None and made.op_type == "Identity":
            name = made.input[0]
        holder = self if name in body.captured else _Straight(inner, 0, set())
        goes_on = name == given or holder._number(name)
        return count if goes_on else f"{name!r} in its body may end it earlier"

    def _number(self, name: str) -> int | None:
        """Return the number that a value always is; None if it is not known."""
        tensor = constant(self.index, name) if name else None
        if tensor is None:
            return None
        try:
            array = self.index.model.array(tensor)
        except (SurgeonError, OSError):
            return None
        return int(array.item()) if array.size == 1 else None
