"""RNN, GRU and LSTM as a Scan over time: their gradient is that of the Scan.

`unrolled` writes a Scan for each direction (`_direction`). Its body computes one step of the cell (`_rnn`, `_gru`,
`_lstm`) from the weights of that direction (`_Weights`).
"""

from dataclasses import dataclass, replace

from onnx import GraphProto, TensorProto, ValueInfoProto, helper

from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Term

_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_PLAIN = {name.lower(): name for name in ("Tanh", "Sigmoid", "Relu", "Softplus", "Softsign")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}  # how many gates are in the rows of the weights
_BIAS, _LENGTHS, _HIDDEN, _CELL, _PEEPHOLES = 3, 4, 5, 6, 7  # slots of the inputs

OPERATORS = frozenset(_GATES)


def unrolled(s: GradientStep) -> list[Term]:
    """Write the nodes that compute a recurrent node's outputs; return Y, Y_h and, for LSTM, Y_c.

    Raises:
        EditError: an activation of the node has parameters.
    """
    _require_plain(s)
    t, rows = s.tape, s.integer("layout")  # `layout` 1: the batch is the first axis, not the steps
    x = t.transposed(s.a, [1, 0, 2]) if rows else s.a
    directions = {"forward": [False], "reverse": [True]}.get(
        s.text("direction", "forward"), [False, True]
    )
    # for each direction: all hidden states, the last one and, for LSTM, the last cell
    parts = [_direction(s, x, number, backwards) for number, backwards in enumerate(directions)]
    steps = t.concat(*(t.op("Unsqueeze", part[0], [1]) for part in parts), axis=1)
    last = [
        t.concat(*(t.op("Unsqueeze", part[i], [0]) for part in parts))
        for i in range(1, len(parts[0]))
    ]
    if rows:
        return [t.transposed(steps, [2, 0, 1, 3])] + [
            t.transposed(term, [1, 0, 2]) for term in last
        ]
    return [steps] + last


def _require_plain(s: GradientStep) -> None:
    odd = [name for name in _names(s) if name.lower() not in _PLAIN]
    if odd:
        raise s.refused(f"it has {', '.join(odd)}")


def _names(s: GradientStep) -> list[str]:
    given = s.attributes.get("activations")
    count = 2 if s.text("direction") == "bidirectional" else 1
    return [n.decode() for n in given.strings] if given else _ACTIVATIONS[s.node.op_type] * count


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction.

    Attributes:
        size: the length of the state.
        rows: the input times its weights, a row for each step.
        recurrence: the transposed weights of the state.
        bias: the bias of the state; None without one.
        functions: the activations.
        before_reset: a GRU multiplies by the weights before it resets.
        clip: the activations take numbers from -clip to clip; 0 for any.
        coupled: the forget gate is 1 minus the input gate.
    """

    size: int
    rows: Term
    recurrence: Term
    bias: Term | None
    peepholes: Term | None
    functions: list[str]
    before_reset: bool
    clip: float
    coupled: bool

    def activated(self, term: Term, place: int) -> Term:
        """Return an activation of clipped numbers."""
        if self.clip:
            term = term.tape.op("Clip", term, -self.clip, self.clip)
        return term.function(self.functions[place])

    def gate(self, term: Term, first: int, last: int) -> Term:
        """Return the columns of some gates."""
        # The gates are side by side, each as wide as the state.
        t = term.tape
        return t.op("Slice", term, [first * self.size], [last * self.size], [-1])

    def of_state(self, state: Term, first: int, last: int) -> Term:
        """Return a state times its weights, for some gates."""
        made = state @ self.gate(self.recurrence, first, last)
        return made if self.bias is None else made + self.gate(self.bias, first, last)

    def peephole(self, gate: Term, cell: Term, place: int) -> Term:
        """Return a gate that sees the cell, too."""
        if self.peepholes is None:
            return gate
        return gate + cell * self.gate(self.peepholes, place, place + 1)


def _rnn(w: _Weights, row: Term, states: list[Term]) -> list[Term]:
    return [w.activated(row + w.of_state(states[0], 0, 1), 0)]


def _gru(w: _Weights, row: Term, states: list[Term]) -> list[Term]:
    # Gates in the order of ONNX: update, reset, candidate.
    gates = w.activated(w.gate(row, 0, 2) + w.of_state(states[0], 0, 2), 0)
    update, reset = w.gate(gates, 0, 1), w.gate(gates, 1, 2)
    if w.before_reset:  # `linear_before_reset`: reset after the product with the weights
        candidate = w.gate(row, 2, 3) + reset * w.of_state(states[0], 2, 3)
    else:
        candidate = w.gate(row, 2, 3) + w.of_state(reset * states[0], 2, 3)
    return [(1 - update) * w.activated(candidate, 1) + update * states[0]]


def _lstm(w: _Weights, row: Term, states: list[Term]) -> list[Term]:
    hidden, cell = states
    # Gates in the order of ONNX: input, output, forget, cell.
    gates = row + w.of_state(hidden, 0, 4)
    kinds = [w.gate(gates, place, place + 1) for place in range(4)]
    inward = w.activated(w.peephole(kinds[0], cell, 0), 0)
    forget = 1 - inward if w.coupled else w.activated(w.peephole(kinds[2], cell, 2), 0)
    later = forget * cell + inward * w.activated(kinds[3], 1)
    # the output gate sees the new cell, the others the old one
    outward = w.activated(w.peephole(kinds[1], later, 1), 0)
    return [outward * later.function(w.functions[2]), later]


_CELLS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def _direction(s: GradientStep, x: Term, number: int, backwards: bool) -> list[Term]:
    """Write one direction; return all hidden states, the last one and, for LSTM, the last cell."""
    t = s.tape
    # a Scan reads a row for each step, and keeps the states
    weights = _weights(s, x, number)
    slots = [_HIDDEN, _CELL] if s.node.op_type == "LSTM" else [_HIDDEN]
    starts = [_start(s, slot, x, number, weights.size) for slot in slots]
    read = [weights.rows]
    if s.has(_LENGTHS):
        read.append(_running(s, x))
    body = t.body()
    # names in the body: its states, then a row of each scanned input
    *states, row = (Term(body, t.names.fresh(), x.dtype) for _ in (*starts, weights.rows))
    running = [Term(body, t.names.fresh(), term.dtype) for term in read[1:]]
    new_states = _CELLS[s.node.op_type](weights, row, states)
    # behind the end of a sequence the states stay, and the output is zero
    output = new_states[0]
    for goes_on in running:
        pairs = zip(new_states, states, strict=True)
        new_states = [goes_on.where(new, old) for new, old in pairs]
        output = goes_on.where(output, 0)
    made = [body.op("Identity", term) for term in new_states]
    made.append(body.op("Identity", output))
    graph = GraphProto(name=s.node.op_type, node=body.nodes)
    for term in (*states, row, *running):
        graph.input.append(_matrix(term))
    graph.output.extend(map(_matrix, made))
    node = helper.make_node(
        "Scan",
        [term.name for term in starts + read],
        [],
        body=graph,
        num_scan_inputs=len(read),
        scan_input_directions=[1] * len(read) if backwards else None,
        scan_output_directions=[1] if backwards else None,
    )
    *last, steps = (Term(t, name, x.dtype) for name in t.add(node, len(made)))
    return [steps] + last


def _matrix(term: Term) -> ValueInfoProto:
    return helper.make_tensor_value_info(term.name, term.dtype, [None, None])


def _running(s: GradientStep, x: Term) -> Term:
    """Return for each step and sample whether the sequence goes on there, [steps, samples, 1]."""
    t = s.tape
    steps = t.op("Squeeze", t.shape_of(x, 0, 1))
    lengths = t.op("Unsqueeze", s.input(_LENGTHS).cast(TensorProto.INT64), [1])
    places = steps.up_to()
    return t.op("Unsqueeze", places, [1, 2]) < lengths


def _weights(s: GradientStep, x: Term, number: int) -> _Weights:
    """Return the weights of a direction: its slices of the node's inputs."""
    t = s.tape
    op = s.node.op_type

    def of_direction(slot: int) -> Term | None:
        place = t.number(number, TensorProto.INT64)
        return t.op("Gather", s.input(slot), place, axis=0) if s.has(slot) else None

    # Activations of both directions are in one list, one after the other.
    each, width = len(_ACTIVATIONS[op]), _GATES[op]
    functions = [_PLAIN[n.lower()] for n in _names(s)[number * each : (number + 1) * each]]
    # the weights of the input, those of the state, both biases
    inward = of_direction(1)
    recurrence = of_direction(2)
    bias = of_direction(_BIAS)
    assert inward is not None  # a recurrent node has weights
    assert recurrence is not None
    rows = x @ t.transposed(inward, [1, 0])
    peepholes, before_reset = of_direction(_PEEPHOLES), bool(s.integer("linear_before_reset"))
    transposed = t.transposed(recurrence, [1, 0])
    clip = s.number("clip")
    coupled = bool(s.integer("input_forget"))
    size = s.integer("hidden_size")
    parts = _Weights(
        size, rows, transposed, None, peepholes, functions, before_reset, clip, coupled
    )
    # the bias has two halves: for the inputs, whose product gets it here, and for the state
    if bias is None:
        return parts
    rows += parts.gate(bias, 0, width)
    return replace(parts, rows=rows, bias=parts.gate(bias, width, 2 * width))


def _start(s: GradientStep, slot: int, x: Term, number: int, size: int) -> Term:
    """Return the initial state of a direction: zeros where none is given."""
    t = s.tape
    if not s.has(slot):
        samples = t.shape_of(x, 1, 2)
        return t.zeros(t.concat(samples, [size]), x.dtype)
    place = t.number(number, TensorProto.INT64)
    return t.op("Gather", s.input(slot), place, axis=s.integer("layout"))
