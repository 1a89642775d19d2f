"""Put a LoRA adapter beside the weights of a model: y = x @ W becomes y = x @ W + x @ A^T @ B^T * scale."""

from collections.abc import Mapping
from itertools import chain

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex, tensor_type
from onnxsurgeon_lite.matching.weights.belonging import products
from onnxsurgeon_lite.matching.weights.compare import Weight, WeightsResult
from onnxsurgeon_lite.model import Model, by_name
from onnxsurgeon_lite.model.messages import attributes_of, operand
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.recording.lora import Lora
from onnxsurgeon_lite.surgery.constants import make_tensor
from onnxsurgeon_lite.surgery.edits import fresh, settle, value_names
from onnxsurgeon_lite.surgery.exposing.wires import NewNodes
from onnxsurgeon_lite.tensors.dtypes import Array, is_float
from onnxsurgeon_lite.tensors.references import ReferenceSet

_PLAIN = {"alpha": 1, "transA": 0}  # attributes of x @ W, where it has them


def add_branches(
    index: GraphIndex,
    found: WeightsResult,
    base: ReferenceSet,
    adapted: Mapping[str, Lora],
    are_inputs: bool,
) -> None:
    """Put a copy of the model that has an adapter beside its weights into the result.

    A and B keep the names and layouts that they have in the adapter. A packed weight, such as q, k and v, gets a branch
    for each adapted part, with a B that is padded to the width of the whole.

    Args:
        base: the checkpoint whose numbers the weights have.
        are_inputs: A, B and the scale are inputs of the graph as well, so that others can be fed.

    Raises:
        ReferenceSetError: no weight is known to hold an adapted parameter as it is, or something other than a matrix
            product reads that weight.
    """
    model, left = (found.model or index.model).copy(), set(adapted)
    graph = model.proto.graph
    nodes = NewNodes(value_names(index), graph.node)
    for weight in found.weights:
        parts = weight.parts or (weight.parameter,)
        if not adapted.keys().isdisjoint(parts):
            stored = {part: np.asarray(base.read(part)) for part in parts}
            _adapt(index, model, nodes, weight, stored, adapted)
            found.branches.append(weight.name)
            left.difference_update(parts)
    if left:
        raise _refusal(f"no weight is known to hold {few(sorted(left))}")
    tensors = by_name(graph.initializer)
    for name in chain.from_iterable(adapted.values() if are_inputs else ()):
        graph.input.add(name=name).type.CopyFrom(tensor_type(tensors[name]))
    settle(index, model)
    found.model = model


def _adapt(
    index: GraphIndex,
    model: Model,
    nodes: NewNodes,
    weight: Weight,
    stored: Mapping[str, Array],
    adapted: Mapping[str, Lora],
) -> None:
    """Add branches to what reads a weight.

    Args:
        stored: the parameters that it joins.
    """
    graph = model.proto.graph
    array = model.array(by_name(graph.initializer)[weight.name])
    readers = _readers(index, weight, array, np.concatenate(list(stored.values())))
    # a weight in blocks has the dtype of its scales; a bias has that of the weight, too
    first = index.nodes[readers[0]]
    element = index.element_of(operand(first, 2) or first.input[1])
    ends = np.cumsum([len(each) for each in stored.values()])
    for part, end in zip(stored, ends, strict=True):
        lora = adapted.get(part, {})
        # two weights with one parameter cannot share its tensors, nor a second adapter those of the first
        if not nodes.taken.isdisjoint(lora):
            raise _refusal(f"the model has {few(list(lora))} already")
        nodes.taken.update(lora)
        graph.initializer.extend(make_tensor(n, a, element) for n, a in lora.items())
        for position in readers if lora else ():
            _add_branch(nodes, graph.node[position], lora, end, ends[-1])


def _readers(index: GraphIndex, weight: Weight, array: Array, whole: Array) -> list[int]:
    """Return the products x @ W that read a weight, which must be whole parameters in a row."""
    made = whole.astype(array.dtype)
    is_transposed = np.array_equal(made.T, array)
    # integers in blocks are compared already, and are [out, in]
    is_whole = is_transposed or not is_float(array.dtype) or np.array_equal(made, array)
    readers = list(products(index, weight.name, is_transposed))
    is_plain = all(
        slot == 1
        and sense == "out x in"
        and _PLAIN.items() <= (_PLAIN | attributes_of(index.nodes[position])).items()
        for position, slot, sense in readers
    )
    # equal parameters are no longer equal with an adapter
    is_known = weight.is_placed or not weight.equal[1:]
    if not (readers and is_whole and is_plain and is_known):
        raise _refusal(f"{weight.name!r} is no whole parameter, or no factor of products alone")
    return [position for position, *_ in readers]


def _add_branch(nodes: NewNodes, node: NodeProto, lora: Lora, end: int, total: int) -> None:
    """Add a branch to a product.

    Args:
        end: of its outputs among all `total` outputs.
    """
    a, b, scale = lora
    x = nodes.add("MatMul", [node.input[0], nodes.add("Transpose", [a], f"{a}.T")], f"{a}.x")
    turned = nodes.add("Transpose", [b], f"{b}.T")
    rows = len(lora[b])
    if rows < total:
        pads = nodes.constant([0, end - rows, 0, total - end], f"{b}.pads")
        turned = nodes.add("Pad", [turned, pads], f"{b}.padded")
    x = nodes.add("MatMul", [x, turned], f"{b}.x")
    # the sum takes the name of the product's result
    result = node.output[0]
    node.output[0] = fresh(f"{result}.alone", nodes.taken)
    nodes.named("Add", [node.output[0], nodes.add("Mul", [x, scale], f"{scale}.x")], result)


def _refusal(why: str) -> ReferenceSetError:
    return ReferenceSetError(why, "merge the adapter into the weights: leave out --lora-as")
