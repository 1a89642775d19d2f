"""Operators as the nodes that define them: their gradient follows from those of the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import FunctionProto, ModelProto, NodeProto, TypeProto, defs, helper

from onnxsurgeon_lite.graph import RANDOM, bound_nodes, constant_of, every_read, has_shape
from onnxsurgeon_lite.model import copied, is_standard
from onnxsurgeon_lite.surgery import expansion
from onnxsurgeon_lite.surgery.edits import rename_uses
from onnxsurgeon_lite.surgery.expansion import add_defaults
from onnxsurgeon_lite.surgery.gradients.definitions import DEFINED, definition
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Tape, Term
from onnxsurgeon_lite.surgery.relax import of_rank
from onnxsurgeon_lite.surgery.resizing.inference import (
    MOST_ELEMENTS,
    InferenceFailed,
    SizeInference,
    State,
)
from onnxsurgeon_lite.tensors import dtypes


@dataclass(frozen=True)
class Expansion:
    """The nodes that compute a node's outputs once more.

    Attributes:
        outputs: the names under which they compute them.
    """

    nodes: Sequence[NodeProto]
    outputs: Sequence[str]


def expanded(tape: Tape, node: NodeProto) -> Expansion | None:
    """Write the nodes that define an operator; return None if ONNX does not define it by nodes, or by random ones."""
    # our own text comes before what ONNX says
    if is_standard(node) and node.op_type in DEFINED:
        function: FunctionProto | None = definition(GradientStep(tape, node, []), node.op_type)
    else:
        function = definition_of(tape, node)
    if function is None or any(inner.op_type in RANDOM for inner in function.node):
        return None
    given = dict(zip(function.input, node.input, strict=False))  # inputs that the node omits are ''
    names = {name: given.get(name, "") for name in function.input}
    # The function's nodes refer to all attributes of the operator, those with defaults too.
    complete = copied(node)
    add_defaults(complete, tape.opset)
    nodes = written(tape, bound_nodes(function, complete), names)
    return Expansion(nodes, [names.get(name, "") for name in function.output])


def backward(s: GradientStep) -> Term:
    """Write the gradient of an input as the text says that has the operator's name and `_gradient`."""
    function = definition(s, f"{s.node.op_type}_gradient")
    # after the node's own inputs come its output and the gradient of that
    names = dict(zip(function.input, s.node.input, strict=False))
    names |= {"y": s.node.output[0], "dy": s.dy.name}
    written(s.tape, function.node, names)
    return Term(s.tape, names["dx"], s.x.dtype)


def definition_of(tape: Tape, node: NodeProto) -> FunctionProto | None:
    """Return the function by which ONNX defines an operator, for the types of a node's inputs."""
    if not is_standard(node) or not defs.has(node.op_type):
        return None
    return expansion.definition(node, tape.opset, lambda: list(map(tape.type_of, node.input)))


def written(tape: Tape, nodes: Sequence[NodeProto], names: dict[str, str]) -> list[NodeProto]:
    """Write nodes under new names, and learn the types of what they make; of equal ones, return one.

    What is known without running, such as a shape, becomes a constant.

    Args:
        names: old name -> new name of what they read; takes what they make.
    """
    made = dict[str, NodeProto]()
    for node in nodes:
        if not node.output:
            continue  # nothing reads it
        # what a node makes gets a new name, unless an equal node makes it already
        rename_uses([node], names)
        # its readers read its input instead
        if node.op_type == "Identity":
            names[node.output[0]] = node.input[0]
            continue
        node = _cast(tape, node) if node.op_type == "CastLike" else node
        states = _states(tape, node)
        outputs = list(node.output)
        # a Constant is a tensor of the main graph, whatever body it is in
        tensor = constant_of(node)
        if tensor is not None:
            names[outputs[0]] = tape.tensor(tensor).name
            tape.names.arrays[names[outputs[0]]] = dtypes.to_array(tensor)
            continue
        # a shape of known sizes, and what is computed from it
        if len(states) == 1 and states[0].data is not None:
            names[outputs[0]] = tape.array(states[0].data[0]).name
            continue
        # an equal node may be there already, under its own names
        del node.output[:]
        node.output[:] = tape.add(node, len(outputs))
        names.update(zip(outputs, node.output, strict=True))
        made[node.output[0]] = node
        _learn(tape, node, states)
    return list(made.values())


def _cast(tape: Tape, like: NodeProto) -> NodeProto:
    """Return a Cast in the place of a CastLike where the dtype is known: by that alone, a constant can be cast here."""
    kind = tape.type_of(like.input[1])
    if kind is None or not kind.tensor_type.elem_type:
        return like
    return helper.make_node("Cast", like.input[:1], like.output, to=kind.tensor_type.elem_type)


def _learn(tape: Tape, node: NodeProto, states: Sequence[State]) -> None:
    """Note what is known of a node's outputs, which serves the nodes behind it."""
    for name, state in zip(node.output, states, strict=False):
        tape.names.types[name] = state.types[0]
        if state.data is not None:
            tape.names.arrays[name] = state.data[0]
        elif node.op_type == "Split":  # inference leaves out its rank where sizes are not known
            whole = _state(tape, node.input[0]).types[0]
            kind = state.types[0]
            tape.names.types[name] = kind if has_shape(kind) else of_rank(whole)


def _states(tape: Tape, node: NodeProto) -> Sequence[State]:
    """Return what inference knows of a node's outputs: their types, and the numbers of small tensors."""
    names = tape.names
    # A model without nodes, which says the opset: inference is asked node by node.
    if names.inference is None:
        opset = [helper.make_opsetid("", tape.opset)]
        names.inference = SizeInference(ModelProto(ir_version=10, opset_import=opset), 1)
    given = {name: _state(tape, name) for name in every_read(node) if name}
    try:
        return names.inference.states(node, given)
    except InferenceFailed:  # the types stay unknown: a rule that needs one says so
        return ()


def _state(tape: Tape, name: str) -> State:
    array = tape.array_of(name)
    # inference computes with small tensors only
    few = array is not None and array.size <= MOST_ELEMENTS
    known = (array,) if few and array is not None else None
    return State((tape.type_of(name) or TypeProto(),), data=known)
