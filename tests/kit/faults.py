"""Real architectures with random weights, and faults to plant in their exports."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import ModelProto, helper, numpy_helper


class Output(torch.nn.Module):
    """A transformers model that returns one of its outputs."""

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(given), self.name)


def resnet(small: bool) -> tuple[torch.nn.Module, torch.Tensor]:
    sizes = {"embedding_size": 8, "hidden_sizes": [16, 24, 32, 40]} if small else {}
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes))
    for module in model.modules():  # untrained, a deep network sends its signal to zero
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.2, 0.2)
    return Output(model, "logits"), torch.randn(1, 3, *([64, 64] if small else [224, 224]))


def vit(small: bool) -> tuple[torch.nn.Module, torch.Tensor]:
    sizes = (
        {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 4, "image_size": 64}
        if small
        else {}
    )
    config = transformers.ViTConfig(
        **sizes, attn_implementation="eager", initializer_range=0.2 if small else 0.05
    )
    size = config.image_size
    return Output(transformers.ViTForImageClassification(config), "logits"), torch.randn(
        1, 3, size, size
    )


def gpt2(small: bool) -> tuple[torch.nn.Module, torch.Tensor]:
    sizes = {"n_embd": 48, "n_head": 4, "vocab_size": 128} if small else {}
    config = transformers.GPT2Config(
        n_layer=12, **sizes, use_cache=False, attn_implementation="eager"
    )
    return Output(transformers.GPT2LMHeadModel(config), "logits"), torch.arange(
        16 if small else 64
    ).reshape(1, -1)


def dpt(small: bool) -> tuple[torch.nn.Module, torch.Tensor]:
    sizes = (
        {
            "hidden_size": 48,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "image_size": 96,
            "fusion_hidden_size": 16,
            "neck_hidden_sizes": [16, 16, 16, 16],
        }
        if small
        else {"image_size": 224}
    )
    config = transformers.DPTConfig(
        **sizes, initializer_range=0.2 if small else 0.05, attn_implementation="eager"
    )
    size = config.image_size
    return Output(transformers.DPTForDepthEstimation(config), "predicted_depth"), torch.randn(
        1, 3, size, size
    )


ARCHITECTURES = {"ResNet-50": resnet, "ViT": vit, "GPT-2": gpt2, "DPT": dpt}


def export(name: str, folder: Path, small: bool = True, dynamo: bool | None = None) -> Path:
    """Export an architecture; by default TorchScript for the vision models, dynamo for GPT-2."""
    torch.manual_seed(0)
    module, given = ARCHITECTURES[name](small)
    dynamo = name == "GPT-2" if dynamo is None else dynamo
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (given,),
            folder / "model.onnx",
            dynamo=dynamo,
            opset_version=18,
            external_data=False,
            input_names=["given"],
            verbose=False,
        )
    return folder / "model.onnx"


Fault = Callable[[ModelProto], Iterator[tuple[str, ModelProto]]]
"""A model -> (name of the value that goes wrong first, faulty copy), several ways."""


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _constants(model: ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def wrong_attribute(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """Another epsilon, another padding, another alpha."""
    for i, node in enumerate(model.graph.node):
        for j, attribute in enumerate(node.attribute):
            wrong = _copy(model)
            changed = wrong.graph.node[i].attribute[j]
            if attribute.name == "epsilon":
                changed.f = 3.0
            elif attribute.name == "pads" and sum(attribute.ints) and node.op_type == "Conv":
                axes = len(attribute.ints) // 2  # one up and left: the shape stays
                changed.ints[:] = [p + 1 for p in attribute.ints[:axes]] + [
                    p - 1 for p in attribute.ints[axes:]
                ]
            else:
                continue
            yield node.output[0], wrong


def wrong_constant(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """One weight a little larger."""
    constants = _constants(model)
    for i, node in enumerate(model.graph.node):
        if node.op_type not in ("LayerNormalization", "Conv", "Gemm", "MatMul", "Add"):
            continue
        for slot, name in enumerate(node.input):
            if slot and name in constants and np.prod(constants[name].dims) > 1:
                wrong = _copy(model)
                array = numpy_helper.to_array(constants[name])
                if np.abs(array).max() > 1e30:
                    continue  # a mask
                wrong.graph.initializer.append(
                    numpy_helper.from_array((array * 1.05 + 0.01).astype(array.dtype), "planted")
                )
                wrong.graph.node[i].input[slot] = "planted"
                yield node.output[0], wrong
                break


def missing_node(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """An activation left out: its consumers read its input; the first of them goes wrong."""
    outputs = {value.name for value in model.graph.output}
    for i, node in enumerate(model.graph.node):
        if node.op_type in ("Relu", "Erf", "Tanh", "Sigmoid") and node.output[0] not in outputs:
            wrong = _copy(model)
            del wrong.graph.node[i]
            readers = [n for n in wrong.graph.node if node.output[0] in n.input]
            for reader in readers:
                reader.input[:] = [
                    node.input[0] if name == node.output[0] else name for name in reader.input
                ]
            yield readers[0].output[0], wrong


def wrong_axis(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """Softmax or reduction over another axis, a transposition of equal sizes."""
    for i, node in enumerate(model.graph.node):
        if node.op_type == "Softmax":
            wrong = _copy(model)
            next(a for a in wrong.graph.node[i].attribute if a.name == "axis").i = 2
            yield node.output[0], wrong
        elif node.op_type in ("MaxPool", "Conv"):
            attributes = {a.name: j for j, a in enumerate(node.attribute)}
            dilations = attributes.get("strides")
            if dilations is not None and list(node.attribute[dilations].ints) == [1, 1]:
                yield from _flipped(model, i)


def _flipped(model: ModelProto, position: int) -> Iterator[tuple[str, ModelProto]]:
    """Height and width of a kernel exchanged."""
    constants = _constants(model)
    node = model.graph.node[position]
    weight = constants.get(node.input[1]) if len(node.input) > 1 else None
    if weight is None or len(weight.dims) != 4 or weight.dims[2] < 2:
        return
    wrong = _copy(model)
    array = numpy_helper.to_array(weight).swapaxes(2, 3)
    wrong.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), "planted"))
    wrong.graph.node[position].input[1] = "planted"
    yield node.output[0], wrong


def wrong_cast(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """A value that passes through an integer on its way."""
    for i, node in enumerate(model.graph.node):
        if node.op_type not in ("MatMul", "Gemm", "Conv", "LayerNormalization", "Softmax"):
            continue
        wrong = _copy(model)
        value = node.output[0]
        wrong.graph.node[i].output[0] = "planted_before"
        down = helper.make_node(
            "Cast", ["planted_before"], ["planted_low"], to=onnx.TensorProto.INT8
        )
        up = helper.make_node("Cast", ["planted_low"], [value], to=onnx.TensorProto.FLOAT)
        wrong.graph.node.insert(i + 1, down)
        wrong.graph.node.insert(i + 2, up)
        yield value, wrong


FAULTS: dict[str, Fault] = {
    "attribute": wrong_attribute,
    "constant": wrong_constant,
    "missing node": missing_node,
    "axis": wrong_axis,
    "cast": wrong_cast,
}


def every_node(model: ModelProto, step: int) -> Iterator[tuple[str, ModelProto]]:
    """Each `step`-th node in turn computes something else of the same inputs and the same shape."""
    other = {"Relu": "Abs", "Add": "Sub", "GlobalAveragePool": "GlobalMaxPool"}
    for position in range(0, len(model.graph.node), step):
        node = model.graph.node[position]
        wrong = _copy(model)
        if node.op_type in other:
            wrong.graph.node[position].op_type = other[node.op_type]
        elif node.op_type in ("Conv", "Gemm"):
            weight = numpy_helper.to_array(_constants(model)[node.input[1]])
            planted = numpy_helper.from_array((weight * 1.05).astype(weight.dtype), "planted")
            wrong.graph.initializer.append(planted)
            wrong.graph.node[position].input[1] = "planted"
        else:
            continue  # what only changes the shape has no other way to do it
        yield node.output[0], wrong
