"""Shared by the edits of outputs: append nodes to a graph, pad ragged tensors."""

import numpy as np
from onnx import TypeProto

from onnxsurgeon_lite.errors import ShapeError, UsageError
from onnxsurgeon_lite.graph import GraphIndex, dims_of, onnx_opset, shape_text
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import key_text
from onnxsurgeon_lite.surgery import fresh, value_names
from onnxsurgeon_lite.surgery.exposing.wires import NewNodes
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

COUNT = "num_detections"

_CONSTANT_OF_SHAPE, _INPUTS_OF_SLICE, _INPUTS_OF_UNSQUEEZE = 9, 10, 13  # first opsets with them


def ragged_type(index: GraphIndex, name: str) -> TypeProto:
    """Return the type of an output that can be padded along dimension 0."""
    kind = index.type_of(name) or TypeProto()
    if not kind.tensor_type.HasField("shape") or not dims_of(kind):
        what = f"is {shape_text(kind)}" if kind.HasField("tensor_type") else "is not a tensor"
        raise ShapeError(
            f"output {name!r} {what} and has no dimension 0 to pad", "leave it out of the list"
        )
    return kind


class Appender(NewNodes):
    """Adds nodes to the end of a model's main graph."""

    def __init__(self, model: Model) -> None:
        super().__init__(value_names(GraphIndex.of(model)), model.graph.node)
        self.opset = onnx_opset(model.proto)
        if self.opset < _CONSTANT_OF_SHAPE:
            raise ShapeError(
                f"padding needs ConstantOfShape, which opset {self.opset} does not have",
                "convert the model first: onnxdbg edit opset MODEL 9",
            )

    def first(self, value: str, count: int, name: str) -> str:
        """Add a Slice of the first `count` elements, or fewer, along dimension 0."""
        # before opset 10, Slice has its bounds as attributes
        if self.opset < _INPUTS_OF_SLICE:
            return self.named("Slice", [value], name, starts=[0], ends=[count], axes=[0])
        bounds = [
            self.constant([number], f"{name}.{what}")
            for what, number in (("start", 0), ("end", count), ("axis", 0))
        ]
        return self.named("Slice", [value] + bounds, name)

    def unsqueezed(self, value: str, base: str) -> str:
        """Add a dimension before the others."""
        if self.opset < _INPUTS_OF_UNSQUEEZE:
            return self.add("Unsqueeze", [value], base, axes=[0])
        return self.add("Unsqueeze", [value, self.constant([0], f"{base}.axis")], base)

    def length(self, value: str, most: int, name: str) -> str:
        """Add a tensor with one element: the size of dimension 0, at most `most`."""
        # cut to at most `most` rows, then count
        kept = self.first(value, most, fresh(f"{value}.kept", self.taken))
        shape = self.add("Shape", [kept], f"{value}.shape")
        place = self.constant([0], f"{value}.dimension")
        return self.named("Gather", [shape, place], name, axis=0)

    def padded(self, value: str, kind: TypeProto, most: int, fill: float, name: str) -> str:
        """Pad or cut dimension 0 to `most`: append `most` rows of filler, keep the first `most` rows."""
        scalar = _fill_tensor(kind, fill, value)
        # all dimensions but the first; with open ones the shape is computed when the model runs
        dims = dims_of(kind)[1:]
        if all(dim.HasField("dim_value") for dim in dims):
            shape = self.constant([most] + [dim.dim_value for dim in dims], f"{value}.filler.shape")
        else:
            whole = self.add("Shape", [value], f"{value}.shape")
            places = self.constant(range(1, 1 + len(dims)), f"{value}.dimensions")
            rest = self.add("Gather", [whole, places], f"{value}.rest", axis=0)
            length = self.constant([most], f"{value}.length")
            shape = self.add("Concat", [length, rest], f"{value}.filler.shape", axis=0)
        filled = dtypes.from_array(scalar)
        filler = self.add("ConstantOfShape", [shape], f"{value}.filler", value=filled)
        # `most` rows of padding after the value; then the first `most` rows are kept
        both = self.add("Concat", [value, filler], f"{value}.filled", axis=0)
        return self.first(both, most, name)


def _fill_tensor(kind: TypeProto, fill: float, name: str) -> Array:
    dtype = dtypes.numpy_dtype(kind.tensor_type.elem_type)
    if dtype.kind == "O":
        raise ShapeError(f"output {name!r} holds strings, which cannot be padded", "leave it out")
    scalar = np.asarray(fill).reshape(1).astype(dtype)
    # an integer cannot hold 0.5, nor uint8 -1
    if dtype.kind in "iub" and float(scalar.item()) != fill:
        raise UsageError(
            f"output {name!r} is {dtypes.dtype_name(kind.tensor_type.elem_type)}, "
            f"which cannot represent {fill:g}",
            f"give it another fill: --fill {key_text(name)}=0",
        )
    return scalar


def padded_type(kind: TypeProto, leading: list[int]) -> TypeProto:
    """Return the type with `leading` in place of dimension 0."""
    result = TypeProto()
    result.tensor_type.elem_type = kind.tensor_type.elem_type
    for size in leading:
        result.tensor_type.shape.dim.add(dim_value=size)
    result.tensor_type.shape.dim.extend(dims_of(kind)[1:])
    return result


def require_length(most: int) -> None:
    """Raise `UsageError` unless the length is positive, and ONNX holds it."""
    if not 0 < most < 1 << 63:
        raise UsageError(f"--max is {most}", "give a number above 0 that fits in int64")


def is_ragged(index: GraphIndex, name: str) -> bool:
    """Return whether an output's dimension 0 is open."""
    dims = (index.type_of(name) or TypeProto()).tensor_type.shape.dim
    return bool(dims) and not dims[0].HasField("dim_value")
