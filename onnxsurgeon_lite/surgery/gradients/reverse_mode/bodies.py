"""If, Loop and Scan: the gradient of a body is a body.

A body runs once more in its gradient, so that no value of it must be kept; a loop's states at the start of each
iteration are kept by running it once more, and its gradient is a Loop from the last iteration to the first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import RANDOM, dims_of
from onnxsurgeon_lite.model import copied, integer, is_standard, scan_layout, walk
from onnxsurgeon_lite.surgery.edits import names_in
from onnxsurgeon_lite.surgery.gradients.expansion import written
from onnxsurgeon_lite.surgery.gradients.step import is_float
from onnxsurgeon_lite.surgery.gradients.tape import Tape, Term

Inner = Callable[[Tape, Sequence[NodeProto], Mapping[str, Term], Sequence[str]], dict[str, Term]]
"""(tape, nodes, seeds, values) -> the gradients of the values, written on the tape."""
Gradients = Iterator[tuple[str, Term]]


def through_if(
    tape: Tape, node: NodeProto, given: Sequence[Term | None], wanted: Sequence[str], inner: Inner
) -> Gradients:
    """Yield the gradients of what the branches capture, by an If with the gradient of each branch."""
    made = NodeProto(op_type="If", input=node.input)
    for name, branch in walk.bodies(node):
        body = tape.body()
        # name in the branch -> name on the tape, which all scopes share
        names = dict[str, str]()
        nodes = _written(body, branch, names)
        seeds = _seeds([
            (names.get(output.name, output.name), Term(body, term.name, term.dtype))
            for output, term in zip(branch.output, given, strict=False)
            if term is not None
        ])  # fmt: skip
        # both branches need the same outputs: a value that one of them does not read has zeros there
        found = inner(body, nodes, seeds, wanted)
        terms = [found.get(value) or _zeros(body, tape.value(value)) for value in wanted]
        made.attribute.append(helper.make_attribute(name, _graph(body, [], terms)))
    outputs = tape.add(made, len(wanted))
    for value, output in zip(wanted, outputs, strict=True):
        yield value, Term(tape, output, tape.value(value).dtype)


@dataclass(frozen=True)
class _Rows:
    """A value that each iteration reads or writes a row of.

    Attributes:
        outer: its name outside. slot: the number of the node's output. inner: the row's name in the body.
        backwards: the first iteration has the last row.
    """

    inner: str
    outer: str = ""
    slot: int = 0
    axis: int = 0
    backwards: bool = False


@dataclass(frozen=True)
class _Iteration:
    """What Loop and Scan have in common.

    Attributes:
        states: initial value, the state in the body, its next value, by the outputs of the node.
        count: the name in a Loop's body of the iteration's number.
    """

    body: GraphProto
    states: tuple[tuple[str, str, str], ...]
    reads: tuple[_Rows, ...]
    writes: tuple[_Rows, ...]
    count: str = ""

    @classmethod
    def of(cls, tape: Tape, node: NodeProto) -> "_Iteration":
        """Read a Loop or Scan."""
        body = next((body for _, body in walk.bodies(node)), GraphProto())
        inputs, outputs = ([value.name for value in values] for values in (body.input, body.output))
        _require_fit(node, inputs, outputs)
        # A Loop's inputs: count, condition, states; a body's inputs: number, condition, states; its outputs:
        # condition, states, rows.
        if node.op_type == "Loop":
            count, _, *formal = inputs
            states = tuple(zip(node.input[2:], formal, outputs[1:], strict=False))
            rest = outputs[1 + len(states) :]
            writes = tuple(_Rows(name, slot=len(states) + i) for i, name in enumerate(rest))
            return cls(body, states, (), writes, count)
        # a Scan: its first inputs are states, the last ones are read row by row
        number = integer(node, "num_scan_inputs")
        first = len(node.input) - number
        states = tuple(zip(node.input[:first], inputs, outputs, strict=False))
        layout = scan_layout(node, "input", number)
        reads = tuple(
            _Rows(name, outer, axis=axis, backwards=bool(direction))
            for name, outer, axis, direction in zip(
                inputs[first:], node.input[first:], *layout, strict=True
            )
        )
        layout = scan_layout(node, "output", len(outputs) - first)
        writes = tuple(
            _Rows(name, slot=first + i, axis=axis, backwards=bool(direction))
            for i, (name, axis, direction) in enumerate(zip(outputs[first:], *layout, strict=True))
        )
        return cls(body, states, reads, writes)

    def rows_of(self, wanted: Sequence[str]) -> list[_Rows]:
        """Return the rows of these values; equal rows, which are one value in the body, once."""
        read = [row for row in self.reads if row.outer in wanted]
        return list({(row.outer, row.axis, row.backwards): row for row in read}.values())

    def captured(self, wanted: Sequence[str]) -> list[str]:
        """Return those values that the body captures."""
        inside = names_in([self.body]) - {value.name for value in self.body.input}
        return [name for name in wanted if name in inside]


def _require_fit(node: NodeProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Raise `EditError` for a body that no runtime takes."""
    # count and condition of a Loop; a Scan has one input at least
    least = 2 if node.op_type == "Loop" else 1
    fits = len(inputs) == len(node.input) >= least and len(outputs) > len(node.output) + least - 2
    if not fits or not all(chain(inputs, outputs)):
        raise EditError(
            f"the body of {node.op_type} {node.name!r} does not have the inputs and outputs of the node",
            "check the model: onnxdbg check MODEL",
        )


def through_loop(
    tape: Tape, node: NodeProto, given: Sequence[Term | None], wanted: Sequence[str], inner: Inner
) -> Gradients:
    """Yield the gradients of the initial states, of what rows are read of, and of what the body captures."""
    loop = _Iteration.of(tape, node)
    saved, count = _saved(tape, node, loop)
    # only floats have gradients
    smooth = [state for state in loop.states if is_float(tape.value(state[0]).dtype)]
    first = {state: given[place] for place, state in enumerate(loop.states)}
    rows = loop.rows_of(wanted)
    captures = loop.captured(wanted)

    # The body of the gradient has as states: the gradients of the loop's states, then a sum for each captured value.
    body = tape.body()
    number, going, *carried = (
        Term(body, tape.names.fresh(), dtype)
        for dtype in (
            TensorProto.INT64,
            TensorProto.BOOL,
            *(tape.value(name).dtype for name in chain((state[0] for state in smooth), captures)),
        )
    )
    # the loop runs once more in its gradient, from its saved states
    back = _Backwards(body, number, body.op("Squeeze", count) - 1 - number, going)
    names = back.formals(loop, saved)
    nodes = _written(body, loop.body, names)
    # What each value in the body is worth: a next state as the state's gradient, a row as the row of the output's
    # gradient.
    pairs = [(state[2], term) for state, term in zip(smooth, carried, strict=False)]
    written_rows = [(write, given[write.slot]) for write in loop.writes]
    pairs += [(w.inner, back.row(term, w)) for w, term in written_rows if term is not None]
    seeds = _seeds([(names.get(name, name), term) for name, term in pairs])
    formals = [names[state[1]] for state in smooth]
    # each iteration gives the gradient of its own row; the loop stacks them
    inner_rows = [names[row.inner] for row in rows]
    found = inner(body, nodes, seeds, formals + inner_rows + captures)

    def made(name: str) -> Term:
        return found.get(name) or _zeros(body, body.value(name))

    # what the body captures is a state that sums up
    sums = zip(carried[len(smooth) :], captures, strict=True)
    totals = [total + found[name] if name in found else total for total, name in sums]
    results = [going, *map(made, formals), *totals, *map(made, inner_rows)]
    graph = _graph(body, [number, going] + carried, results)
    # a state begins with the gradient of its last value, a sum with zeros
    starts = [first[state] or _zeros(tape, tape.value(state[0])) for state in smooth]
    starts += [_zeros(tape, tape.value(name)) for name in captures]
    trips, on = tape.op("Squeeze", count), tape.array(np.array(True))
    read = [term.name for term in chain([trips, on], starts)]
    reverse = helper.make_node("Loop", read, [], body=graph)
    values = [state[0] for state in smooth] + captures + [row.outer for row in rows]
    if not values:  # nothing that is asked for goes through this loop
        return
    outputs = tape.add(reverse, len(values))
    terms = [
        Term(tape, name, tape.value(value).dtype)
        for name, value in zip(outputs, values, strict=True)
    ]
    # rows are stacked in the order of the reversed loop
    stacked = len(terms) - len(rows)
    terms[stacked:] = [_in_order(tape, *pair) for pair in zip(terms[stacked:], rows, strict=True)]
    yield from (pair for pair in zip(values, terms, strict=True) if pair[0] in wanted)


@dataclass(frozen=True)
class _Backwards:
    """An iteration of a loop from the last iteration to the first.

    Attributes:
        number: its own number. place: that of the iteration that it differentiates.
    """

    body: Tape
    number: Term
    place: Term
    going: Term

    def row(self, term: Term, like: _Rows) -> Term:
        """Return the row of the iteration that is differentiated."""
        # A scan that goes backwards has made its last row first, so both orders agree.
        at = self.number if like.backwards else self.place
        return self.body.op("Gather", term, at, axis=like.axis)

    def formals(self, loop: _Iteration, saved: Sequence[Term]) -> dict[str, str]:
        """Return the new names of what the loop's body reads, and tell their types."""
        types, body = self.body.names.types, self.body
        names = dict[str, str]()
        for (initial, formal, _), term in zip(loop.states, saved, strict=True):
            names[formal] = self.row(term, _Rows(formal)).name
            types[names[formal]] = body.type_of(initial) or TypeProto()
        for read in loop.reads:
            names[read.inner] = self.row(body.value(read.outer), read).name
            types[names[read.inner]] = _row_type(body.type_of(read.outer), read.axis)
        for term, value in zip((self.place, self.going), loop.body.input, strict=False):
            if loop.count:  # runtimes give a scalar, or one element where the body declares it so
                dims = [1] * len(dims_of(value.type))
                types[term.name] = helper.make_tensor_type_proto(term.dtype, [])
                given = body.op("Reshape", term, body.integers(dims)) if dims else term
                types[given.name] = helper.make_tensor_type_proto(term.dtype, dims)
                names[value.name] = given.name
        return names


def _in_order(tape: Tape, stacked: Term, read: _Rows) -> Term:
    """Return rows, which a loop from the last to the first has made, in the layout of what they are rows of."""
    if not read.backwards:
        bounds = ([-1], [np.iinfo(np.int64).min], [0], [-1])
        stacked = tape.op("Slice", stacked, *map(tape.integers, bounds))
    # from the first axis to its own
    rank = tape.rank(tape.value(read.outer))
    axis = tape.axis(tape.value(read.outer), read.axis)
    return tape.transposed(stacked, [*range(1, axis + 1), 0, *range(axis + 1, rank)])


def _saved(tape: Tape, node: NodeProto, loop: _Iteration) -> tuple[list[Term], Term]:
    """Run a loop once more; return each state at the start of each iteration, and the number of iterations."""
    # The body once more, under new names, with more outputs: every state and, for a Loop, the number of the
    # iteration.
    names = {value.name: tape.names.fresh() for value in loop.body.input}
    _type_inputs(tape, node, loop, names)
    formals = [names[value.name] for value in loop.body.input]
    body = tape.body()
    _written(body, loop.body, names)
    results = [names.get(value.name, value.name) for value in loop.body.output]
    _require_shapes(body, node, loop, names)
    kept = [names[formal] for _, formal, _ in loop.states]
    kept += [names[loop.count]] if loop.count else []
    # the same node with more outputs: each state, and the number of the iteration
    again = NodeProto(op_type=node.op_type, input=node.input)
    for attribute in map(copied, node.attribute):
        if attribute.name == "body":
            attribute.g.CopyFrom(_saving(body, formals, results + kept))
        if attribute.name.startswith("scan_output_"):
            attribute.ints.extend([0] * len(kept))
        again.attribute.append(attribute)
    first = len(results) - bool(loop.count)  # the condition is no output of the node
    outputs = tape.add(again, first + len(kept))[first:]
    initial = [tape.value(name).dtype for name, *_ in loop.states]
    saved = [Term(tape, *pair) for pair in zip(outputs, initial, strict=False)]
    # A Loop's count is how many numbers were kept; a Scan's is the size of what it reads.
    if loop.count:
        return saved, tape.shape_of(Term(tape, outputs[-1], TensorProto.INT64), 0, 1)
    return saved, tape.dim(tape.value(loop.reads[0].outer), loop.reads[0].axis)


def _require_shapes(
    body: Tape, node: NodeProto, loop: _Iteration, names: Mapping[str, str]
) -> None:
    """Refuse a state that surely has another shape after an iteration: those of all iterations are one tensor."""
    for _, formal, later in loop.states:  # what is not known is not refused
        before, after = (body.shape(names.get(name, name)) for name in (formal, later))
        if before is None or after is None:
            continue
        pairs = zip(before, after, strict=False)
        sizes = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
        if sizes or len(before) != len(after):
            raise EditError(
                f"{node.op_type} {node.name!r} changes the shape of its state {formal!r} from {before} to {after}, and "
                "its gradient keeps the states of all iterations in one tensor",
                "choose values after the loop",
            )


def _type_inputs(tape: Tape, node: NodeProto, loop: _Iteration, names: Mapping[str, str]) -> None:
    """Tell the types of what a body reads, under its new names."""
    types = tape.names.types
    # what the body itself declares, then what is known from outside
    types.update((names[value.name], value.type) for value in loop.body.input)
    for initial, formal, _ in loop.states:
        kind = tape.type_of(initial)
        if kind is None or not kind.HasField("tensor_type"):
            raise EditError(
                f"a state of {node.op_type} {node.name!r} is not a tensor, and its gradient must keep it",
                "choose values after the loop",
            )
        types[names[formal]] = kind
    for read in loop.reads:
        types[names[read.inner]] = _row_type(tape.type_of(read.outer), read.axis)


def _saving(body: Tape, inputs: Sequence[str], outputs: Sequence[str]) -> GraphProto:
    """Return a body; each output is a value of its own with a declared dtype."""
    graph = GraphProto(name="saving", node=body.nodes)
    for name in inputs:
        graph.input.add(name=name, type=body.type_of(name))
    for name in outputs:
        # a subgraph may not have one value as two outputs, or an input as an output
        copy = body.names.fresh()
        graph.node.add(op_type="Identity", input=[name], output=[copy])
        output = graph.output.add(name=copy)
        kind = body.type_of(name)
        if kind is not None and kind.tensor_type.elem_type:
            output.type.tensor_type.elem_type = kind.tensor_type.elem_type
    return graph


def _written(tape: Tape, body: GraphProto, names: dict[str, str]) -> list[NodeProto]:
    """Write a body's nodes under new names; its initializers become constants of the main graph."""
    for tensor in body.initializer:
        names[tensor.name] = tape.tensor(tensor).name
    for node in walk.with_inner(body.node):
        if node.op_type in RANDOM and is_standard(node):
            raise EditError(
                f"{node.op_type} {node.name!r} draws random numbers in a body, and would draw others in the gradient",
                "choose values after it",
            )
    return written(tape, [copied(node) for node in body.node], names)


def _seeds(pairs: Sequence[tuple[str, Term]]) -> dict[str, Term]:
    """Return the gradient of each value; that of a value which is two outputs is the sum."""
    found = dict[str, Term]()
    for name, term in pairs:
        found[name] = found[name] + term if name in found else term
    return found


def _zeros(tape: Tape, value: Term) -> Term:
    return tape.zeros(tape.dims(value), value.dtype)


def _graph(body: Tape, inputs: Sequence[Term], outputs: Sequence[Term]) -> GraphProto:
    """Return a subgraph; each output is a value of its own."""
    graph = GraphProto(name="gradient", node=body.nodes)
    for term in inputs:
        # iteration and condition are scalars; of the others, the shape is not declared
        shape: list[int] | None = [] if term.name in (inputs[0].name, inputs[1].name) else None
        graph.input.add(name=term.name, type=helper.make_tensor_type_proto(term.dtype, shape))
    for term in outputs:
        name = body.names.fresh()
        graph.node.add(op_type="Identity", input=[term.name], output=[name], name=name)
        graph.output.add(name=name, type=helper.make_tensor_type_proto(term.dtype, None))
    return graph


def _row_type(kind: TypeProto | None, axis: int) -> TypeProto:
    made = copied(kind) if kind is not None else TypeProto()
    if made.tensor_type.HasField("shape") and dims_of(made):
        del made.tensor_type.shape.dim[axis]
    return made
