"""Causes where the references are recordings of PyTorch modules."""

import warnings

import pytest
import torch

import onnxsurgeon_lite as osl
from kit.causes import model, numbers
from onnxsurgeon_lite.recording.torch_recorder import record_module


def test_what_follows_the_last_node_is_missing(tmp_path):
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(8, 5)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return self.fc(x).sigmoid()

    net, feeds = Net(), {"x": numbers(4, 8)}
    record_module(net, (torch.tensor(feeds["x"]),), folder=tmp_path / "refs", input_names=["x"])
    weights = {"w": net.fc.weight.detach().numpy(), "b": net.fc.bias.detach().numpy()}
    wrong = model(
        "g (float[4,8] x) => (float[4,5] y) { y = Gemm <transB = 1> (x, w, b) }", **weights
    )

    result = osl.bisect(wrong, tmp_path / "refs", feeds=feeds)

    assert result.verdict == "mismatch"
    assert "Sigmoid is missing behind Gemm" in result.culprits[0].causes[0].sentence


def test_the_states_are_those_of_a_module_that_no_value_was_matched_with(tmp_path):
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(5, 5, 3, padding=1)
            self.rnn = torch.nn.LSTM(5, 6, batch_first=True, bidirectional=True)
            self.fc = torch.nn.Linear(12, 3)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return self.fc(self.rnn(self.conv(x).relu().transpose(1, 2))[0])

    torch.manual_seed(0)
    net, x = Net().eval(), torch.tensor(numbers(4, 5, 9))
    osl.record((net, (x,)), tmp_path / "refs")
    net.rnn.weight_hh_l0_reverse.data.zero_()
    path = tmp_path / "wrong.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an exporter that is deprecated
        torch.onnx.export(net, (x,), path, dynamo=False, opset_version=17)

    result = osl.bisect(path, tmp_path / "refs")

    sentence = result.culprits[0].causes[0].sentence
    assert "is zero everywhere in direction 1; solved for" in sentence


def test_normalizations_of_query_and_key_are_missing_at_once(tmp_path):
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = torch.nn.LayerNorm(6), torch.nn.LayerNorm(6)

        def forward(self, q: "torch.Tensor", k: "torch.Tensor") -> "torch.Tensor":
            return (self.query(q) @ self.key(k).transpose(1, 2)).softmax(-1)

    net = Net()
    for number, weight in enumerate(net.parameters()):
        weight.data += torch.tensor(numbers(6, seed=number)) / 3
    feeds = {"q": numbers(2, 7, 6), "k": numbers(2, 7, 6, seed=1)}
    folder = tmp_path / "refs"
    given = tuple(map(torch.tensor, feeds.values()))
    record_module(net, given, folder=folder, input_names=["q", "k"])
    nodes = "t = Transpose <perm = [0,2,1]> (k) s = MatMul(q, t) y = Softmax(s)"
    wrong = model(f"g (float[2,7,6] q, float[2,7,6] k) => (float[2,7,7] y) {{ {nodes} }}")

    result = osl.bisect(wrong, folder, feeds=feeds)

    sentence = result.culprits[0].causes[0].sentence
    assert "LayerNormalization is missing behind 'q', where the references have 'query'" in sentence
    assert "LayerNormalization is missing behind 'k', where the references have 'key'" in sentence


@pytest.mark.filterwarnings("ignore")
def test_a_normalization_that_is_folded_is_told_where_its_shift_differs(tmp_path):
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 3, bias=False), torch.nn.BatchNorm2d(5))
    given, norm = torch.randn(2, 3, 6, 6), module.eval()[1]
    torch.nn.init.normal_(norm.running_mean)
    torch.nn.init.normal_(norm.bias)
    osl.record((module, (given,)), tmp_path / "refs")
    norm.running_mean.zero_()
    torch.onnx.export(module, (given,), tmp_path / "m.onnx", dynamo=False, verbose=False)

    result = osl.bisect(tmp_path / "m.onnx", tmp_path / "refs")

    how = "differs, into which a normalization is folded: its mean, its bias or the bias before it"
    assert how in result.culprits[0].causes[0].sentence
