"""Write weights of MatMul in blocks: integers for onnxruntime's MatMulNBits, any narrow dtype for DequantizeLinear."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import starmap
from typing import ClassVar

import numpy as np
from onnx import NodeProto, TensorProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import DEQUANTIZE, INTEGERS, GraphIndex
from onnxsurgeon_lite.graph.block_quantized import PRODUCT
from onnxsurgeon_lite.graph.operators import RUNTIME_DOMAIN
from onnxsurgeon_lite.graph.quantizers import limits_of
from onnxsurgeon_lite.model import Model, drop, is_external, operand, walk
from onnxsurgeon_lite.model.narrowed import computed
from onnxsurgeon_lite.surgery import describe_like, fresh, importing, settle, value_names
from onnxsurgeon_lite.surgery.exposing.wires import NewNodes
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, Wide, largest, narrowed
from onnxsurgeon_lite.tensors.in_file import Rows

_BLOCK = 32  # rows that have one scale
_STEP = 4 * _BLOCK  # rows that are read together, at least: their zero points fill whole bytes
_TOGETHER = 1 << 18  # elements
_REACH = 448.0  # of float8e4m3fn; with that of float8e5m2, 57344, scales would be too small for half precision
_OPSETS = {"float4e2m1": 23, "int2": 25, "uint2": 25}
_OLDEST = 21  # the opset since which DequantizeLinear has blocks
_FREE = 4  # the IR version since which an initializer need not be an input
_FLOATS = TensorProto.FLOAT, TensorProto.FLOAT16
_KINDS = "int2", "int4", "int8", "uint2", "uint4", "uint8", "float4e2m1", "float8e4m3fn"
_ENDS = INTEGERS, "_scale", "_zero_point"  # of names


@dataclass(frozen=True)
class Narrow:
    """A matrix [K, N] as numbers of a narrow dtype, with a scale for each 32 rows of a column.

    Attributes:
        kind: the dtype; integers without a sign have a zero point for each block, too.
        is_linear: for DequantizeLinear, and not for MatMulNBits.
    """

    rows: Rows
    kind: str
    is_linear: bool

    @property
    def bits(self) -> int:
        """Of a number."""
        return _bits(self.kind)

    def parts(self) -> Iterator[tuple[Array, Wide, Wide]]:
        """Yield (numbers [B, 32, N], scales [B, N], zero points [B, N]) of rows that are read together."""
        (count, columns), dtype = self.rows.shape, _dtype(self.kind)
        limits, has_zeros = limits_of(dtype), self.kind.startswith("u")
        step = max(1, _TOGETHER // (_STEP * columns)) * _STEP
        for start in range(0, count, step):
            part = self.rows[start : start + step].astype(np.float32)
            # the last block may be shorter: it is filled up with zeros
            part = np.pad(part, ((0, -len(part) % _BLOCK), (0, 0))).reshape(-1, _BLOCK, columns)
            low, high = part.min(1), part.max(1)
            if limits is None:
                scale = np.maximum(high, -low) / min(largest(dtype), _REACH)
            elif has_zeros:
                low = np.minimum(low, 0)
                scale = (np.maximum(high, 0) - low) / limits[1]
            else:
                # what is farthest from 0 becomes the lowest integer, which reaches farther than the highest
                scale = np.where(-low > high, low, high) / limits[0]
            # as the model has it; a block of zeros has the scale 0
            scale = scale.astype(self.rows.dtype).astype(np.float32)
            inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
            zero = np.rint(-low * inverse) * has_zeros
            steps = part * inverse[:, None]
            if limits is None:
                yield narrowed(steps, dtype), scale, zero
            else:
                yield np.clip(np.rint(steps) + zero[:, None], *limits), scale, zero

    def restored(self) -> Array:
        """Return the numbers that the blocks mean."""
        made = [(n.astype(np.float32) - z[:, None]) * s[:, None] for n, s, z in self.parts()]
        return np.concatenate(made).reshape(-1, self.rows.shape[1])[: len(self.rows)]

    def tensors(self) -> Iterator[tuple[TensorProto, Callable[[], Iterator[bytes]]]]:
        """Yield numbers, scales and zero points, each with what makes its bytes.

        DequantizeLinear: [K, N], and [blocks, N]. MatMulNBits: bytes [N, blocks, 4 * bits], scales [N, blocks], bytes.
        """
        # the last block may be shorter than the others
        rows, columns = self.rows.shape
        count = -(-rows // _BLOCK)
        shapes: list[Shape] = [(rows, columns), (count, columns), (count, columns)]
        if not self.is_linear:
            sizes = 4 * self.bits, -(-count * self.bits // 8)
            shapes = [(columns, count, sizes[0]), (columns, count), (columns, sizes[1])]
        for at, end in enumerate(_ENDS[: 2 + self.kind.startswith("u")]):
            dtype = _dtype(self.kind if self.is_linear else "uint8") if at != 1 else self.rows.dtype
            kind = dtypes.data_type_of_numpy(dtype)
            yield (
                TensorProto(name=end, data_type=kind, dims=shapes[at]),
                partial(self._bytes, at, dtype),
            )

    def _bytes(self, at: int, dtype: DType) -> Iterator[bytes]:
        made = (each[at] for each in self.parts())
        if self.is_linear:
            # rows that fill the last block are not written
            typed = [each.astype(dtype).reshape(-1, self.rows.shape[1]) for each in made]
            yield dtypes.encode(np.concatenate(typed)[: len(self.rows)])
            return
        # each column by itself: [N, blocks, 32]
        turned = (np.moveaxis(each, -1, 0) for each in made)
        pack = self._packed if at != 1 else lambda scales: scales.astype(dtype)
        yield np.concatenate([pack(each) for each in turned], axis=1).tobytes()

    def _packed(self, numbers: Array) -> Array:
        """Return integers without a sign as bytes, the lowest bits first; a column begins with a byte of its own."""
        spare = [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % (8 // self.bits))]
        # integers with a sign are stored from 0 on
        lowest, _ = limits_of(_dtype(self.kind)) or (0, 0)
        whole = np.pad(numbers - lowest, spare).astype(_dtype(f"uint{self.bits}"))
        return np.frombuffer(dtypes.encode(whole), np.uint8).reshape(numbers.shape[:-1] + (-1,))


@dataclass(frozen=True)
class InBlocks:
    """Models with the weights of some MatMul nodes in blocks.

    Attributes:
        model: in float, each node with a name of its own.
        to: the dtype of the numbers.
        bits: of weights that have others.
        qdq: integers have DequantizeLinear, too, and not MatMulNBits.
    """

    model: Model
    to: str
    bits: Mapping[str, int]
    qdq: bool
    calibrate: ClassVar[str] = ""

    @cached_property
    def index(self) -> GraphIndex:
        """Of the float model."""
        return GraphIndex.of(self.model)

    def narrow(self, node: NodeProto) -> Narrow | None:
        """Return the blocks of a node's weight; None where it has none, or needs more than 8 bits."""
        name = operand(node, 1)
        tensor = None if self.index.is_default(name) else self.index.dense(name)
        if node.op_type != "MatMul" or tensor is None or tensor.data_type not in _FLOATS:
            return None
        # the dtype that has as many bits, among those that are alike
        kinds = {_bits(each): each for each in _KINDS + (self.to,) if each[0] == self.to[0]}
        kind = kinds.get(self.bits.get(name, _bits(self.to)))
        if kind is None or len(tensor.dims) != 2:
            return None
        return Narrow(self.model.rows(tensor), kind, self.qdq or self.to.startswith("float"))

    def quantized(self, nodes: Sequence[str]) -> Model:
        """Return the model with these nodes quantized, by name.

        Raises:
            EditError: the model's opset has no blocks of such numbers.
        """
        result = self.model.copy()
        graph = result.graph
        # the float weights that nothing else reads go
        gone = self._narrowed(nodes, result).difference(walk.inputs(walk.with_inner(graph.node)))
        for values in (graph.initializer, graph.input):
            drop(values, lambda value: value.name in gone)
        # MatMulNBits is an operator of the runtime
        result.proto.ir_version = max(result.proto.ir_version, _FREE)
        is_linear = not any(node.op_type == PRODUCT for node in graph.node)
        result = importing(result, "" if is_linear else RUNTIME_DOMAIN, [])
        settle(self.index, result)
        return result

    def _narrowed(self, nodes: Sequence[str], result: Model) -> set[str]:
        """Let nodes of a model read their weights in blocks; return the weights that they read before."""
        made = dict[str, list[str]]()
        graph = result.graph
        added = NewNodes(value_names(self.index), graph.node)
        for node in list(graph.node):
            narrow = self.narrow(node) if node.name in nodes else None
            if narrow is None:
                continue
            weight = node.input[1]
            # several nodes may read a weight
            made[weight] = made.get(weight) or self._operands(weight, narrow, result, added)
            node.input[1:] = made[weight]
            if not narrow.is_linear:
                node.op_type, node.domain = PRODUCT, RUNTIME_DOMAIN
                rows, columns = narrow.rows.shape
                sizes = {"K": rows, "N": columns, "bits": narrow.bits, "block_size": _BLOCK}
                node.attribute.extend(starmap(helper.make_attribute, sizes.items()))
        return made.keys() - self.index.outputs.keys()

    def _operands(self, weight: str, narrow: Narrow, result: Model, added: NewNodes) -> list[str]:
        """Add the blocks of a weight to a model; return what a node reads in its place."""
        source, names = self.index.initializers[weight], list[str]()
        assert isinstance(source, TensorProto)
        # what is on disk stays there until the model is saved
        for tensor, make in narrow.tensors():
            tensor.name = fresh(weight + tensor.name, added.taken)
            names.append(tensor.name)
            describe_like(tensor, source)
            if is_external(source):
                computed(result, source, tensor, make)
            else:
                tensor.raw_data = b"".join(make())
            result.graph.initializer.append(tensor)
        # MatMulNBits reads the blocks itself
        if not narrow.is_linear:
            return names
        needed = _OPSETS.get(narrow.kind, _OLDEST)
        if self.index.opset < needed:
            raise EditError(
                f"{narrow.kind} in blocks needs opset {needed}, the model imports {self.index.opset}",
                f"onnxdbg edit opset MODEL {needed}",
            )
        return [added.add(DEQUANTIZE, names, f"{weight}_float", axis=0, block_size=_BLOCK)]


def _bits(kind: str) -> int:
    return dtypes.bits_of(_dtype(kind))


def _dtype(kind: str) -> DType:
    return dtypes.numpy_dtype(dtypes.data_type_of(kind))
