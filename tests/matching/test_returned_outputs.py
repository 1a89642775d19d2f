"""What a whole module returns under a name is the model's output of that name."""

import numpy as np
import torch
from onnx import numpy_helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.passes.build import parse_text

MODEL = """<ir_version: 10, opset_import: ["": 21]>
g (float[3, 8] x) => (float[3, 8] logits, float[3, 8] present) <float cap = {3.0}> {
    ["/body/MatMul"] h = MatMul (x, "body.weight") ["/keep/Neg"] present = Neg (h)
    ["/lm_head/MatMul"] scores = MatMul (h, "lm_head.weight")
    ["/lm_head/softcap/Div"] small = Div (scores, cap) ["/lm_head/softcap/Tanh"] bent = Tanh (small)
    ["/lm_head/softcap/Mul"] logits = Mul (bent, cap)
}"""


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(8, 8, bias=False)
        self.lm_head = torch.nn.Linear(8, 8, bias=False)

    def forward(self, x):
        return {"logits": 3 * torch.tanh(self.lm_head(self.body(x)) / 3)}


def recorded(folder):
    """(the values of the module, feeds, its weights as the model has them)"""
    torch.manual_seed(0)
    net, x = Net().eval(), 3 * torch.randn(3, 8)
    with torch.no_grad():
        net.lm_head.weight *= 5
    osl.record(net, folder / "refs", args=(x,))
    weights = {n: np.ascontiguousarray(t.numpy().T) for n, t in net.state_dict().items()}
    return folder / "refs", {"x": x.numpy()}, weights


def model_of(text, weights):
    model = parse_text(text)
    tensors = (numpy_helper.from_array(array, name) for name, array in weights.items())
    model.proto.graph.initializer.extend(tensors)
    return model


def test_a_healthy_final_cap_is_not_blamed_where_something_before_it_is_wrong(tmp_path):
    references, feeds, weights = recorded(tmp_path)
    wrong = model_of(MODEL, weights | {"body.weight": weights["body.weight"] * np.float32(1.5)})

    result = osl.bisect(wrong, references, feeds=feeds)

    (culprit,) = result.culprits
    assert culprit.nodes == {"@0": "MatMul '/body/MatMul'"}
    assert "scaled, by 1.5" in culprit.causes[0].sentence


def test_a_final_cap_that_is_missing_is_a_mismatch(tmp_path):
    references, feeds, weights = recorded(tmp_path)
    head = MODEL.partition('    ["/lm_head/MatMul"]')[0]
    text = head + '["/lm_head/MatMul"] logits = MatMul (h, "lm_head.weight") }'

    result = osl.bisect(model_of(text, weights), references, feeds=feeds)

    assert result.verdict == "mismatch"
    (culprit,) = result.culprits
    assert "MatMul '/lm_head/MatMul'" in culprit.nodes.values()
