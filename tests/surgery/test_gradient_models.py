"""Gradients of whole models, by their input and by their weights, against torch.autograd."""

import io
import warnings

import numpy as np
import onnx
import pytest
import torch
import transformers
from torch import nn

from kit.graphs import run
from onnxsurgeon_lite import Gradient, Model

SMALL = {
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
}


class Net(nn.Module):
    """A model of one input and one output."""

    def __init__(self, model: nn.Module, field: str, name: str = "") -> None:
        super().__init__()
        self.model, self.field, self.name = model, field, name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.model(**{self.name: x}) if self.name else self.model(x)
        return found[0] if self.field == "0" else getattr(found, self.field)


def resnet() -> tuple[Net, torch.Tensor]:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4}
    config = transformers.ResNetConfig(**sizes, layer_type="bottleneck")
    model = transformers.ResNetForImageClassification(config)
    return Net(model, "logits"), torch.randn(2, 3, 32, 32)


def bert() -> tuple[Net, torch.Tensor]:
    model = transformers.BertModel(transformers.BertConfig(vocab_size=20, **SMALL))
    return Net(model, "last_hidden_state", "inputs_embeds"), torch.randn(2, 6, 16)


def vit() -> tuple[Net, torch.Tensor]:
    model = transformers.ViTModel(transformers.ViTConfig(image_size=16, patch_size=4, **SMALL))
    return Net(model, "last_hidden_state"), torch.randn(2, 3, 16, 16)


def gpt2() -> tuple[Net, torch.Tensor]:
    sizes = {"vocab_size": 20, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
    model = transformers.GPT2Model(transformers.GPT2Config(**sizes, use_cache=False))
    return Net(model, "last_hidden_state", "inputs_embeds"), torch.randn(2, 6, 16)


def recurrent(kind: type[nn.RNNBase]) -> tuple[Net, torch.Tensor]:
    return Net(kind(4, 3, num_layers=2, bidirectional=True), "0"), torch.randn(5, 2, 4)


MODELS = {
    "resnet": resnet,
    "bert": bert,
    "vit": vit,
    "gpt2": gpt2,
    "rnn": lambda: recurrent(nn.RNN),
    "gru": lambda: recurrent(nn.GRU),
    "lstm": lambda: recurrent(nn.LSTM),
}


def exported(net: Net, x: torch.Tensor, dynamo: bool) -> onnx.ModelProto:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            return torch.onnx.export(net, (x,), dynamo=True, verbose=False).model_proto
        torch.onnx.export(net, (x,), file, dynamo=False, input_names=["x"], output_names=["y"])
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_a_model_are_those_of_torch(name, runtime):
    torch.manual_seed(0)
    net, x = MODELS[name]()
    net.eval()
    for parameter in net.parameters():  # what is equal at first is one initializer in the file
        parameter.data += 0.05 * torch.randn_like(parameter)
    proto = exported(net, x, dynamo=name == "gpt2")
    of, to = proto.graph.output[0].name, proto.graph.input[0].name

    edited = Gradient(of, (to,), wrt_weights=True, vector="v").apply(Model(proto)).model
    vector = torch.randn(*net(x).shape)
    (net(x.requires_grad_()) * vector).sum().backward()
    found = run(runtime, edited, {to: x.detach().numpy(), "v": vector.numpy()})

    expected = {to: x.grad.numpy()} | {
        n: p.grad.numpy() for n, p in net.named_parameters() if p.grad is not None
    }
    for value, gradient in expected.items():
        actual = found.get(f"d({of})/d({value})")
        if actual is not None and actual.shape == gradient.shape:
            scale = max(np.abs(gradient).max(), np.abs(expected[to]).max())
            np.testing.assert_allclose(actual, gradient, rtol=1e-5, atol=1e-5 * scale)
    assert f"d({of})/d({to})" in found
