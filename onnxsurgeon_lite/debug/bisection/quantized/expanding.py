"""A model of quantized operators, written with quantizers around float operators."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.debug.result import BisectResult
from onnxsurgeon_lite.graph import GraphIndex, node_title, onnx_opset
from onnxsurgeon_lite.graph.block_quantized import PRODUCT, Blocks, blocks_of
from onnxsurgeon_lite.graph.quantizers import (
    DEQUANTIZE,
    PRODUCTS,
    QUANTIZE,
    Form,
    constant_of,
    weight_axis,
)
from onnxsurgeon_lite.model.messages import operand
from onnxsurgeon_lite.tensors.dtypes import from_array

_SUFFIX = "_quantized"
_OPERAND, _BIAS, _FLOAT = "\x01operand ", "\x01bias", "\x01float"
UNIT = "\x01scale"  # of 1, which stands for the one that the product gets


_HALVES = 19  # the first opset whose DequantizeLinear has half precision
_DROPPED = ("channels_last", "opset")


def expanded(index: GraphIndex) -> tuple[GraphIndex, list[int]] | None:
    """Return (the model with each quantized operator as a float one behind quantizers, the node behind each node).

    One that is not known here stays as it is. None if there is no other.
    """
    if not any(
        Form.of(node) or node.op_type in PRODUCTS or _blocks(index, node) for node in index.nodes
    ):
        return None
    # types of values would be wrong now, and are inferred again
    result = index.model.copy()
    del result.graph.node[:], result.graph.value_info[:]
    behind = list[int]()
    for position, node in enumerate(index.nodes):
        nodes = [node]
        form = Form.of(node)
        if form is not None:
            nodes = list(_parts(index, result.proto, node, form))
        elif node.op_type in PRODUCTS:
            nodes = list(_of_integers(index, result.proto, node))
        elif (blocks := _blocks(index, node)) is not None:
            nodes = list(_of_blocks(result.proto, node, blocks))
        result.graph.node.extend(nodes)
        behind += [position] * len(nodes)
    return GraphIndex.of(result), behind


def _of_blocks(model: ModelProto, node: NodeProto, blocks: Blocks) -> Iterator[NodeProto]:
    """Yield the nodes that compute the same: the blocks are dequantized, and joined to a matrix."""
    # MatMulNBits stores its weight [columns, rows] in blocks along the rows. Each block becomes a row of a matrix that
    # DequantizeLinear reads with one scale a row; then the blocks are joined, padding is cut, and the matrix
    # transposed.
    made, grid, (columns, rows) = node.output[0], blocks.grid, blocks.shape
    weight = f"{made}{_OPERAND}1"
    bias = operand(node, 5)
    padded = np.pad(blocks.integers, ((0, 0), (0, -rows % grid.block)))
    arrays = {
        1: padded.reshape(-1, grid.block),
        2: grid.scale.ravel().astype(blocks.dtype),
        3: grid.zero.ravel().astype(np.uint8),
    }
    given = [f"{operand(node, slot)}{_OPERAND}{slot} of {made}" for slot in arrays]
    ends = [np.array(n) for n in ([columns, -1], [0], [rows], [1])]
    shapes = [f"{weight} {what}" for what in ("shape", "start", "end", "axis")]
    for name, array in zip(chain(given, shapes), chain(arrays.values(), ends), strict=True):
        model.graph.initializer.append(from_array(array, name))
    joined = [f"{weight} {what}" for what in ("joined", "cut", "matrix")]
    yield helper.make_node(DEQUANTIZE, given, [weight], axis=0)
    yield helper.make_node("Reshape", [weight, shapes[0]], [joined[0]])
    yield helper.make_node("Slice", [joined[0]] + shapes[1:], [joined[1]])
    yield helper.make_node("Transpose", [joined[1]], [joined[2]], perm=[1, 0])
    product = f"{made}{_OPERAND}product" if bias else made
    yield helper.make_node("MatMul", [node.input[0], joined[2]], [product], name=node.name)
    if bias:
        yield helper.make_node("Add", [product, bias], [made], name=node.name)


def _blocks(index: GraphIndex, node: NodeProto) -> Blocks | None:
    """Return the weight of a MatMulNBits, if a DequantizeLinear can make it."""
    found = blocks_of(index, node) if node.op_type == PRODUCT and node.output else ""
    if isinstance(found, str) or (found.grid.zero != np.rint(found.grid.zero)).any():
        return None
    is_half = found.dtype != np.float32
    return None if is_half and index.opset < _HALVES else found


def _parts(
    index: GraphIndex, model: ModelProto, node: NodeProto, form: Form
) -> Iterator[NodeProto]:
    """Yield the nodes that compute what a quantized operator does."""
    made, operands = node.output[0], [node.input[slot] for slot in form.plain]
    for number, slot in enumerate(form.operands):
        name = f"{made}{_OPERAND}{number}"
        operands.append(name)
        # the first operand is the activation, whose channels are axis 1
        axis = weight_axis(node) if slot else 1
        given = node.input[slot : slot + 3]
        yield helper.make_node(DEQUANTIZE, given, [name], name=f"{made}\x01{slot}", axis=axis)
    if 0 <= form.bias < len(node.input) and node.input[form.bias]:
        name = f"{made}{_BIAS}"
        operands.append(name)
        # a bias of integers has the scale of input times weight, as the specification says
        scales = [node.input[slot + 1] for slot in reversed(form.operands)]
        yield helper.make_node("Mul", scales, [f"{name} scale"], name=f"{name} scale")
        given = [node.input[form.bias], f"{name} scale"]
        yield helper.make_node(DEQUANTIZE, given, [name], name=name, axis=0)
    # `y_quantized` comes of a float `y`: under this name the references have it
    result = made.removesuffix(_SUFFIX) if made.endswith(_SUFFIX) else f"{made}{_FLOAT}"
    result = f"{made}{_FLOAT}" if result in index else result
    float_node = helper.make_node(form.op_type, operands, [result], name=node.name)
    float_node.attribute.extend(a for a in node.attribute if a.name not in _DROPPED)
    float_node.metadata_props.extend(node.metadata_props)
    if form.op_type == "ReduceMean":
        _read_axes(model, float_node)
    yield float_node
    given = [result, *node.input[form.result : form.result + 2]]
    yield helper.make_node(QUANTIZE, given, [made], name=f"{made}\x01quantize")


def _of_integers(index: GraphIndex, model: ModelProto, node: NodeProto) -> Iterator[NodeProto]:
    """Yield the nodes that compute what an operator on integers does, in float: its operands have the scale 1."""
    made, operands = node.output[0], []
    for slot in (0, 1):
        name, scale = f"{made}{_OPERAND}{slot}", f"{node.input[slot]}{UNIT} in {made}"
        # MatMulInteger and ConvInteger: (a, b, zero of a, zero of b)
        zero = operand(node, slot + 2)
        number = constant_of(index, zero) if zero else None
        given = [node.input[slot], scale] + ([zero] if number is not None else [])
        ones = np.ones(() if number is None else number.shape, np.float32)
        model.graph.initializer.append(from_array(np.asarray(ones), scale))
        axis = 0 if node.op_type == "ConvInteger" else 1
        yield helper.make_node(DEQUANTIZE, given, [name], axis=axis)
        # a computed zero point is subtracted in float: DequantizeLinear would need a constant for the grid to be known
        if zero and number is None:
            shift, name = f"{name} zero", f"{name} shifted"
            yield helper.make_node("Cast", [zero], [shift], name=shift, to=TensorProto.FLOAT)
            yield helper.make_node("Sub", [f"{made}{_OPERAND}{slot}", shift], [name], name=name)
        operands.append(name)
    float_node = helper.make_node(PRODUCTS[node.op_type], operands, [made], name=node.name)
    float_node.attribute.extend(node.attribute)
    float_node.metadata_props.extend(node.metadata_props)
    yield float_node


def is_bias_scale(node: NodeProto) -> bool:
    """Return whether a node multiplies a weight's scale by an input's, which gives that of a bias."""
    return node.name.endswith(f"{_BIAS} scale")


def _read_axes(model: ModelProto, node: NodeProto) -> None:
    """Make an input of the axes of a ReduceMean where the opset has it so."""
    axes = next((a for a in node.attribute if a.name == "axes"), None)
    if axes is None or onnx_opset(model) < 18:
        return
    node.attribute.remove(axes)
    node.input.append(f"{node.output[0]}\x01axes")
    model.graph.initializer.append(from_array(np.array(axes.ints), node.input[1]))


def as_written(
    result: BisectResult, written: GraphIndex, index: GraphIndex, behind: Sequence[int]
) -> BisectResult:
    """Return a result on the expanded model with the nodes of the model as it is written."""
    result.body = index.model
    # messages name what the expansion made: `'y\x01operand 0'` -> `'x'`, which the operator of `y` reads
    read = {
        repr(node.output[0]): repr(node.input[0].split(_OPERAND)[0])
        for node in index.nodes
        if node.op_type == DEQUANTIZE and _OPERAND in node.output[0]
    }
    made = (name for name in index.producer if name.endswith(_FLOAT))
    read |= {repr(name): repr(name.removesuffix(_FLOAT)) for name in made}
    result.notes = [_renamed(note, read) for note in result.notes]
    for culprit in result.culprits:
        culprit.findings = [
            replace(finding, because=_renamed(finding.because, read), edits=())
            for finding in culprit.findings
        ]
        # ids of the expanded model -> ids of the model as written
        culprit.id = _behind(culprit.id, behind)
        culprit.op_type = written.nodes[culprit.position].op_type
        culprit.region = list(dict.fromkeys(_behind(node, behind) for node in culprit.region))
        culprit.nodes = {n: node_title(written.nodes[int(n[1:])]) for n in culprit.region}
    return result


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the names of what quantized operators read for those of their dequantized operands."""
    for name in filter(text.__contains__, names):
        text = text.replace(name, names[name])
    return text


def _behind(node_id: str, behind: Sequence[int]) -> str:
    return f"@{behind[int(node_id[1:])]}"
