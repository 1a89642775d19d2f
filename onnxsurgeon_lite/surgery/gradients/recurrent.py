"""RNN, GRU and LSTM as a Scan over time: their gradient is that of the Scan."""

from dataclasses import dataclass, replace

from onnx import GraphProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.surgery.gradients.step import Step
from onnxsurgeon_lite.surgery.gradients.tape import Term

_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_PLAIN = {name.lower(): name for name in ("Tanh", "Sigmoid", "Relu", "Softplus", "Softsign")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_BIAS, _LENGTHS, _HIDDEN, _CELL, _PEEPHOLES = 3, 4, 5, 6, 7  # inputs

OPERATORS = frozenset(_GATES)


def unrolled(s: Step) -> list[Term]:
    """Write the nodes that compute a recurrent node's outputs; return Y, Y_h and, for LSTM, Y_c.

    Raises:
        EditError: the node has sequence lengths, clips, or an activation with parameters.
    """
    _require_plain(s)
    t, rows = s.tape, s.integer("layout")
    x = t.transposed(s.a, [1, 0, 2]) if rows else s.a
    ways = {"forward": [False], "reverse": [True]}.get(
        s.text("direction", "forward"), [False, True]
    )
    parts = [_direction(s, x, number, way) for number, way in enumerate(ways)]
    steps = t.concat(*(t.op("Unsqueeze", part[0], t.integers([1])) for part in parts), axis=1)
    last = [
        t.concat(*(t.op("Unsqueeze", part[i], t.integers([0])) for part in parts))
        for i in range(1, len(parts[0]))
    ]
    if rows:
        return [
            t.transposed(steps, [2, 0, 1, 3]),
            *(t.transposed(term, [1, 0, 2]) for term in last),
        ]
    return [steps, *last]


def _require_plain(s: Step) -> None:
    lengths = s.has(_LENGTHS)
    odd = [name for name in _names(s) if name.lower() not in _PLAIN]
    if lengths or odd or "clip" in s.attributes or s.integer("input_forget"):
        what = "sequence_lens is given" if lengths else f"it has {', '.join(odd) or 'clip'}"
        raise s.refused(what)


def _names(s: Step) -> list[str]:
    given = s.attributes.get("activations")
    count = 2 if s.text("direction") == "bidirectional" else 1
    return [n.decode() for n in given.strings] if given else _ACTIVATIONS[s.node.op_type] * count


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction.

    Attributes:
        rows: the input times its weights, a row for each step. recurrence: the transposed weights of the state.
        bias: that of the state; None without one. functions: the activations.
    """

    size: int
    rows: Term
    recurrence: Term
    bias: Term | None
    peepholes: Term | None
    functions: list[str]
    before_reset: bool

    def gate(self, term: Term, first: int, last: int) -> Term:
        """Return the columns of some gates."""
        t = term.tape
        bounds = t.integers([first * self.size]), t.integers([last * self.size])
        return t.op("Slice", term, *bounds, t.integers([-1]))

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
    return [(row + w.of_state(states[0], 0, 1)).function(w.functions[0])]


def _gru(w: _Weights, row: Term, states: list[Term]) -> list[Term]:
    gates = (w.gate(row, 0, 2) + w.of_state(states[0], 0, 2)).function(w.functions[0])
    update, reset = w.gate(gates, 0, 1), w.gate(gates, 1, 2)
    if w.before_reset:
        candidate = w.gate(row, 2, 3) + reset * w.of_state(states[0], 2, 3)
    else:
        candidate = w.gate(row, 2, 3) + w.of_state(reset * states[0], 2, 3)
    return [(1 - update) * candidate.function(w.functions[1]) + update * states[0]]


def _lstm(w: _Weights, row: Term, states: list[Term]) -> list[Term]:
    hidden, cell = states
    gates = row + w.of_state(hidden, 0, 4)
    kinds = [w.gate(gates, place, place + 1) for place in range(4)]
    inward = w.peephole(kinds[0], cell, 0).function(w.functions[0])
    forget = w.peephole(kinds[2], cell, 2).function(w.functions[0])
    later = forget * cell + inward * kinds[3].function(w.functions[1])
    outward = w.peephole(kinds[1], later, 1).function(w.functions[0])
    return [outward * later.function(w.functions[2]), later]


_CELLS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


def _direction(s: Step, x: Term, number: int, backwards: bool) -> list[Term]:
    """Write one direction; return all hidden states, the last one and, for LSTM, the last cell."""
    t = s.tape
    weights = _weights(s, x, number)
    slots = [_HIDDEN, _CELL] if s.node.op_type == "LSTM" else [_HIDDEN]
    starts = [_start(s, slot, x, number, weights.size) for slot in slots]
    body = t.body()
    *states, row = (Term(body, t.names.fresh(), x.dtype) for _ in (*starts, weights.rows))
    later = _CELLS[s.node.op_type](weights, row, states)
    made = [body.op("Identity", term) for term in later]
    made.append(body.op("Identity", made[0]))
    kind = helper.make_tensor_type_proto(x.dtype, [None, None])
    graph = GraphProto(name=s.node.op_type, node=body.nodes)
    graph.input.extend(helper.make_value_info(term.name, kind) for term in (*states, row))
    graph.output.extend(helper.make_value_info(term.name, kind) for term in made)
    node = NodeProto(op_type="Scan", input=[term.name for term in (*starts, weights.rows)])
    attributes: dict[str, object] = {"body": graph, "num_scan_inputs": 1}
    if backwards:
        attributes |= {"scan_input_directions": [1], "scan_output_directions": [1]}
    node.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
    *last, steps = (Term(t, name, x.dtype) for name in t.add(node, len(made)))
    return [steps, *last]


def _weights(s: Step, x: Term, number: int) -> _Weights:
    t, op, size = s.tape, s.node.op_type, s.integer("hidden_size")

    def of_direction(slot: int) -> Term | None:
        place = t.number(number, TensorProto.INT64)
        return t.op("Gather", s.input(slot), place, axis=0) if s.has(slot) else None

    each, width = len(_ACTIVATIONS[op]), _GATES[op]
    functions = [_PLAIN[n.lower()] for n in _names(s)[number * each : (number + 1) * each]]
    inward, recurrence, bias = of_direction(1), of_direction(2), of_direction(_BIAS)
    assert inward is not None  # a recurrent node has weights
    assert recurrence is not None
    rows = x @ t.transposed(inward, [1, 0])
    peepholes, before_reset = of_direction(_PEEPHOLES), bool(s.integer("linear_before_reset"))
    turned = t.transposed(recurrence, [1, 0])
    parts = _Weights(size, rows, turned, None, peepholes, functions, before_reset)
    if bias is None:
        return parts
    inner = replace(parts, rows=rows + parts.gate(bias, 0, width))
    return replace(inner, bias=parts.gate(bias, width, 2 * width))


def _start(s: Step, slot: int, x: Term, number: int, size: int) -> Term:
    """Return the initial state of a direction: zeros where none is given."""
    t = s.tape
    if not s.has(slot):
        samples = t.op("Shape", x, start=1, end=2).typed(TensorProto.INT64)
        return t.zeros(t.concat(samples, t.integers([size])), x.dtype)
    place = t.number(number, TensorProto.INT64)
    return t.op("Gather", s.input(slot), place, axis=s.integer("layout"))
