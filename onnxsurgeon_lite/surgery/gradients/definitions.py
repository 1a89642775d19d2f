"""Operators that `definitions.onnxtxt` has as functions of others: their gradients follow from those."""

from collections.abc import Callable, Mapping
from pathlib import Path

from onnx import FunctionProto, TensorProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import assign, copied
from onnxsurgeon_lite.surgery.edits import clear_bodies
from onnxsurgeon_lite.surgery.expansion import add_defaults, needed
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.text_functions import Fact, attribute_facts, text_functions

DEFINED = text_functions(Path(__file__).with_name("definitions.onnxtxt"))
_ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_PLAIN = {name.lower(): name for name in ("Tanh", "Sigmoid", "Relu", "Softplus", "Softsign")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}  # how many gates are in the rows of the weights
_ASKED = 18, 20  # opsets that a text may ask for
_LENGTHS = 4  # slot of the lengths of sequences


def definition(s: GradientStep, name: str) -> FunctionProto:
    """Return a function of `definitions.onnxtxt` for a node.

    Raises:
        EditError: the node has something that the function does not do.
    """
    # the node with its defaults, and what the text may ask about it
    text, node = DEFINED[name], copied(s.node)
    add_defaults(node, s.tape.opset)
    types = [s.tape.type_of(name) if name else None for name in node.input]
    facts = attribute_facts(node.attribute) | text.facts(node, types) | {f"slot_{s.slot}": True}
    facts |= {f"opset_{version}": s.tape.opset >= version for version in _ASKED}
    if node.op_type in _MORE:
        facts |= _MORE[node.op_type](s)
    try:
        function = text.function(facts, f'<domain: "own", opset_import: ["" : {s.tape.opset}]>')
    except EditError as error:
        raise s.refused(error.message) from error
    # nothing in a body may hide a value of the model
    clear_bodies(function.node, s.tape.names.taken)
    # nodes that only omitted outputs, or unused lines, need are left out
    wanted = (name for name, given in zip(function.output, node.output, strict=False) if given)
    assign(function.node, needed(function.node, wanted))
    return function


def _recurrent(s: GradientStep) -> dict[str, Fact]:
    """Return the activations of a recurrent node, the sizes of its gates and the directions of its Scan.

    Raises:
        EditError: an activation has parameters.
    """
    op = s.node.op_type
    # 1 for a direction that begins with the last step
    ways = {"forward": [0], "reverse": [1]}.get(s.text("direction", "forward"), [0, 1])
    # names may have any case
    given = s.attributes.get("activations")
    names = [n.decode() for n in given.strings] if given else _ACTIVATIONS[op] * len(ways)
    odd = [name for name in names if name.lower() not in _PLAIN]
    if odd:
        raise s.refused(f"it has {', '.join(odd)}")
    # the activations of both directions are in one list, one after the other
    plain = [_PLAIN[name.lower()] for name in names]
    count = len(_ACTIVATIONS[op])
    first, second = plain[:count], plain[count : 2 * count] or plain[:count]
    size = s.integer("hidden_size")
    # the rows are read, and with lengths where a sequence goes on, each in the order of its direction
    directions = ways * (2 if s.has(_LENGTHS) else 1)
    return {
        **dict(zip("fgh", first, strict=False)),
        **dict(zip(("f_2", "g_2", "h_2"), second, strict=False)),
        "mixed": int(len(ways) > 1 and first != second),
        "bidirectional": len(ways) > 1,
        "clip": s.number("clip"),
        "both": 2 * size,
        "width": _GATES[op] * size,
        "ways": ways,
        "directions": directions,
        "scanned": len(directions),
        "element": TensorProto.DataType.Name(s.a.dtype).lower(),
    }


def _neighbors(s: GradientStep) -> dict[str, Fact]:
    """Return how many channels before and behind its own an LRN reads."""
    size = s.integer("size")
    return {"before": (size - 1) // 2, "behind": size // 2}


def _transformed(s: GradientStep) -> dict[str, Fact]:
    """Return whether a DFT is not the inverse of one side, which goes back in its own way."""
    return {"forward": not (s.integer("inverse") and s.integer("onesided"))}


_MORE: Mapping[str, Callable[[GradientStep], dict[str, Fact]]] = {
    **dict.fromkeys(_GATES, _recurrent),
    "DFT": _transformed,
    "LRN": _neighbors,
}
"""Operator -> what its text may ask besides."""
