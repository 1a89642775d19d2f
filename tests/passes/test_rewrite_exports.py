"""Attention as torch exports it is one node, with every kind of mask, and computes what it did."""

import warnings

import pytest

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.passes.build import parse_text

torch = pytest.importorskip("torch")

SDPA = torch.nn.functional.scaled_dot_product_attention
DYNAMO = """<ir_version: 10, opset_import: ["" : 23]>
g (float[B,4,S,8] q, float[B,4,S,8] k, float[B,4,S,8] v, bool[B,1,S,S] allowed) => (float[B,4,S,8] y)
    <int64[4] order = {0, 1, 3, 2}, int64[2] last = {2, 3},
    float root = {0.5}, float zero = {0}, float low = {-1e38}> {
    shape = Shape(k) deep = Gather(shape, order) size = Gather(shape, last)
    minus = Constant <value_ints = [-1]> () rows = Concat <axis = 0> (minus, size)
    a = Reshape(k, rows) b = Transpose <perm = [0, 2, 1]> (a) c = Reshape(b, deep)
    l = Mul(q, root) r = Mul(c, root) mask = Where(allowed, zero, low) p = MatMul(l, r) s = Add(p, mask)
    w = Softmax <axis = -1> (s) nan = IsNaN(w) sure = Where(nan, zero, w) y = MatMul(sure, v) }"""


class Eager(torch.nn.Module):
    """As the models of transformers write it."""

    def forward(self, q, k, v, mask):
        weights = torch.softmax(q @ k.transpose(-1, -2) * 0.5 + mask, dim=-1)
        return weights.type(v.dtype) @ v


class Fused(torch.nn.Module):
    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q, k, v, mask):
        turned = k.reshape(k.shape[0], -1, 4, 8).transpose(1, 2)  # as heads are made
        return SDPA(q, turned, v, attn_mask=mask, scale=self.scale)


@pytest.mark.parametrize(
    ("module", "mask", "dynamic"),
    [
        (Eager(), torch.randn(2, 1, 5, 5), False),
        (Eager(), torch.randn(2, 1, 1, 5), True),
        (Fused(0.25), torch.randn(2, 1, 5, 5), False),
        (Fused(None), torch.randn(5, 5), True),
        (Fused(0.25), torch.rand(2, 1, 5, 5) > 0.9, True),  # it empties rows
    ],
)
def test_attention_of_the_torchscript_exporter_is_one_node(module, mask, dynamic, tmp_path):
    q = torch.randn(2, 4, 5, 8)
    keys = torch.randn(2, 5, 32) if isinstance(module, Fused) else q
    axes = {"q": {0: "B"}, "k": {0: "B"}, "v": {0: "B"}} | (
        {"mask": {0: "B"}} if mask.ndim > 2 else {}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (q, keys, q, mask), tmp_path / "m.onnx", dynamo=False, opset_version=18,
            input_names=["q", "k", "v", "mask"], output_names=["y"], dynamic_axes=axes if dynamic else None,
        )  # fmt: skip

    model = osl.opset(tmp_path / "m.onnx", 23, unproved=True).model
    model = osl.infer(osl.fold(model).model).model
    result = osl.rewrite(model, "attention", verify=True)

    operators = [node.op_type for node in result.model.proto.graph.node]
    assert operators.count("Attention") == 1
    assert "Softmax" not in operators
    assert result.match


def test_attention_of_the_dynamo_exporter_is_one_node():
    model = parse_text(DYNAMO)

    before = osl.rewrite(model, "attention")
    result = osl.rewrite(osl.infer(model).model, "attention", verify=True)

    operators = [n.op_type for n in result.model.proto.graph.node if n.op_type != "Constant"]
    assert "edit infer declares shapes" in before.notes[0]
    assert operators[-3:] == ["Attention", "IsNaN", "Where"]
    assert result.match
