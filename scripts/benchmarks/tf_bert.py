"""A BERT as tf2onnx writes it: inputs of unnamed sizes, every shape computed, dense layers as tensordots."""

import numpy as np
import onnx
from numpy.typing import DTypeLike
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, INNER, WORDS, PLACES = 768, 12, 3072, 30522, 512


class _Writer:
    """Nodes and constants in the order in which they are written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.noise = np.random.default_rng(0)

    def op(self, operator: str, *reads: str, **attributes: object) -> str:
        name = f"{operator}__{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, reads, [f"{name}:0"], name, **attributes))
        return f"{name}:0"

    def constant(self, numbers: object, dtype: DTypeLike = np.int64) -> str:
        name = f"const__{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(numbers, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.noise.random(shape, np.float32) * 0.1, np.float32)

    def cast(self, value: str, dtype: int) -> str:
        return self.op("Cast", value, to=dtype)

    def size(self, value: str, axis: int) -> str:
        shape = self.cast(self.cast(self.op("Shape", value), TensorProto.INT32), TensorProto.INT64)
        ends = (self.constant([number]) for number in (axis, axis + 1, 0))
        part = self.cast(self.op("Slice", shape, *ends), TensorProto.INT32)
        return self.op("Squeeze", part, self.constant([0]))

    def packed(self, *sizes: str | int) -> str:
        read = [self.constant(s, np.int32) if isinstance(s, int) else s for s in sizes]
        listed = [self.op("Unsqueeze", size, self.constant([0])) for size in read]
        return self.op("Concat", *(self.cast(s, TensorProto.INT64) for s in listed), axis=0)

    def dense(self, value: str, inner: int, outer: int) -> str:
        shape = self.cast(self.op("Shape", value), TensorProto.INT32)
        free = self.op("Gather", shape, self.constant([0, 1]), axis=0)
        summed = self.op("Gather", shape, self.constant([2]), axis=0)
        products = [
            self.cast(
                self.op("ReduceProd", self.cast(sizes, TensorProto.FLOAT), axes=[0], keepdims=0),
                TensorProto.INT32,
            )
            for sizes in (free, summed)
        ]
        flat = self.op("Reshape", value, self.packed(*products))
        made = self.op("MatMul", flat, self.weight(inner, outer))
        whole = self.op("Concat", free, self.constant([outer], np.int32), axis=0)
        shaped = self.op("Reshape", made, self.cast(whole, TensorProto.INT64))
        return self.op("Add", shaped, self.weight(outer))

    def norm(self, value: str) -> str:
        mean = self.op("ReduceMean", value, axes=[2], keepdims=1)
        gap = self.op("Sub", value, mean)
        variance = self.op("ReduceMean", self.op("Mul", gap, gap), axes=[2], keepdims=1)
        safe = self.op("Add", variance, self.constant(1e-6, np.float32))
        scale = self.op("Mul", self.op("Reciprocal", self.op("Sqrt", safe)), self.weight(HIDDEN))
        offset = self.op("Sub", self.weight(HIDDEN), self.op("Mul", mean, scale))
        return self.op("Add", self.op("Mul", value, scale), offset)

    def heads(self, value: str) -> str:
        sizes = self.size(value, 0), self.size(value, 1), HEADS, HIDDEN // HEADS
        return self.op(
            "Transpose", self.op("Reshape", value, self.packed(*sizes)), perm=[0, 2, 1, 3]
        )

    def gelu(self, value: str) -> str:
        numbers = (self.constant(n, np.float32) for n in (3.0, 0.044715, 0.7978845, 1.0, 0.5))
        three, factor, root, one, half = numbers
        cube = self.op("Mul", self.op("Pow", value, three), factor)
        bent = self.op("Tanh", self.op("Mul", self.op("Add", value, cube), root))
        return self.op("Mul", value, self.op("Mul", self.op("Add", bent, one), half))

    def layer(self, value: str, mask: str) -> str:
        query, key, values = (self.heads(self.dense(value, HIDDEN, HIDDEN)) for _ in range(3))
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.constant(0.125, np.float32))
        shares = self.op("Softmax", self.op("Add", scaled, mask), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, values), perm=[0, 2, 1, 3])
        sizes = self.size(mixed, 0), self.size(mixed, 1), HIDDEN
        joined = self.op("Reshape", mixed, self.packed(*sizes))
        value = self.norm(self.op("Add", self.dense(joined, HIDDEN, HIDDEN), value))
        inner = self.gelu(self.dense(value, HIDDEN, INNER))
        return self.norm(self.op("Add", self.dense(inner, INNER, HIDDEN), value))


def tf_bert(layers: int = 12) -> onnx.ModelProto:
    """Return the model; each layer has 256 nodes."""
    w = _Writer()
    ids, mask, kinds = names = ("input_ids:0", "input_mask:0", "segment_ids:0")
    batch, length = w.size(ids, 0), w.size(ids, 1)
    flat = w.cast(w.op("Reshape", ids, w.constant([-1])), TensorProto.INT64)
    words = w.op("Gather", w.weight(WORDS, HIDDEN), flat, axis=0)
    value = w.op("Reshape", words, w.packed(batch, length, HIDDEN))
    flat = w.cast(w.op("Reshape", kinds, w.constant([-1])), TensorProto.INT64)
    hot = w.op("OneHot", flat, w.constant(2), w.constant([0, 1], np.float32), axis=-1)
    sides = w.op(
        "Reshape", w.op("MatMul", hot, w.weight(2, HIDDEN)), w.packed(batch, length, HIDDEN)
    )
    first, end = w.constant([0]), w.packed(length)
    places = w.op("Slice", w.weight(PLACES, HIDDEN), first, end, first)
    added = w.op("Add", w.op("Add", value, sides), w.op("Unsqueeze", places, first))
    value = w.norm(added)
    row = w.op("Reshape", mask, w.packed(w.size(mask, 0), 1, w.size(mask, 1)))
    one = w.constant(1.0, np.float32)
    ones = w.op("Expand", one, w.packed(batch, length, 1))
    seen = w.op("Mul", ones, w.cast(row, TensorProto.FLOAT))
    hidden = w.op("Sub", one, w.op("Unsqueeze", seen, w.constant([1])))
    hides = w.op("Mul", hidden, w.constant(-10000.0, np.float32))
    for _ in range(layers):
        value = w.layer(value, hides)
    logits = w.dense(value, HIDDEN, 2)
    given = [helper.make_tensor_value_info(n, TensorProto.INT32, [None, None]) for n in names]
    made = [helper.make_tensor_value_info(logits, TensorProto.FLOAT, [None, None, 2])]
    graph = helper.make_graph(w.nodes, "tf_bert", given, made, w.constants)
    imports = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="tf2onnx")
