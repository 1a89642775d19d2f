"""The models that are measured on, made once. Weights are noise that depends on the tensor's name alone; they are
written block by block, never held."""

import multiprocessing
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from measuring import POLYGRAPHY, BenchError, err
from tf_bert import tf_bert

MODELS_VERSION = 1  # part of the folders' names: raise it when what is made here changes
SIDE = 4096
WEIGHT_BYTES = 4 * SIDE * SIDE
BIAS_BYTES = 4 * SIDE
BLOCK_BYTES = WEIGHT_BYTES + BIAS_BYTES
WEIGHT_RANGE = (24 / SIDE) ** 0.5  # keeps the size of the activations from block to block
NOISE_BLOCK = 1 << 22  # elements in memory at a time
CHAIN_NODES = 50_000
DPT_IMAGE = 384
TWIN_BLOCKS = 750

_LOADER = """
from pathlib import Path
import numpy as np

def load_data():
    with np.load(Path(__file__).with_name("feeds.npz")) as feeds:
        yield dict(feeds)
"""

_FACTORY = """
import torch
from transformers import GPT2Config, GPT2Model

def factory():
    torch.manual_seed(0)
    config = GPT2Config(use_cache=False, attn_implementation="eager")
    return GPT2Model(config), (torch.arange(512).reshape(1, 512),)
"""


def noise(tensor: TensorProto) -> Iterator[np.ndarray]:
    """The elements of a tensor, in blocks."""
    rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
    count = elements(tensor)
    for start in range(0, count, NOISE_BLOCK):
        block = rng.random(min(NOISE_BLOCK, count - start), dtype=np.float32)
        yield (block - np.float32(0.5)) * np.float32(WEIGHT_RANGE)


def elements(tensor: TensorProto) -> int:
    """How many there are; they are float32 here."""
    return int(np.prod(tensor.dims))


def block_model(blocks: int) -> tuple[onnx.ModelProto, list[TensorProto]]:
    """A chain of MatMul, Add, Relu on [1, 4096], and its initializers without their payloads."""
    nodes, weights = [], []
    for i in range(blocks):
        nodes += [
            helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"], f"matmul{i}"),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], f"add{i}"),
            helper.make_node("Relu", [f"a{i}"], [f"h{i + 1}"], f"relu{i}"),
        ]
        weights += [
            TensorProto(name=f"w{i}", dims=[SIDE, SIDE], data_type=TensorProto.FLOAT),
            TensorProto(name=f"b{i}", dims=[SIDE], data_type=TensorProto.FLOAT),
        ]
    # every value's type is declared, as an exporter does: cutting tools ask for them
    inner = (name for i in range(blocks) for name in (f"m{i}", f"a{i}", f"h{i + 1}"))
    value_info = [_row(name) for name in inner][:-1]
    graph = helper.make_graph(
        nodes, "blocks", [_row("h0")], [_row(f"h{blocks}")], value_info=value_info
    )
    return _model(graph), weights


def _row(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE])


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make_single(folder: Path, blocks: int) -> None:
    """One file of any size: protobuf writes none of 2 GiB, so the messages around the weights are written here."""
    model, weights = block_model(blocks)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    heads = []
    for tensor in weights:
        size = 4 * elements(tensor)
        head = tensor.SerializeToString() + _field(9, size)  # TensorProto.raw_data
        heads.append(_field(5, len(head) + size) + head)  # GraphProto.initializer
    payloads = sum(4 * elements(tensor) for tensor in weights)
    length = len(graph) + sum(map(len, heads)) + payloads
    with (folder / "model.onnx").open("wb") as file:
        file.write(model.SerializeToString() + _field(7, length) + graph)  # ModelProto.graph
        for tensor, head in zip(weights, heads, strict=True):
            file.write(head)
            _write_noise(file, tensor)


def make_external(folder: Path, blocks: int) -> None:
    """A model and one file of external data."""
    model, weights = block_model(blocks)
    with (folder / "weights.data").open("wb") as file:
        for tensor in weights:
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", "weights.data"),
                ("offset", file.tell()),
                ("length", 4 * elements(tensor)),
            ):
                tensor.external_data.add(key=key, value=str(value))
            _write_noise(file, tensor)
    model.graph.initializer.extend(weights)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def make_chain(folder: Path) -> None:
    """Fifty thousand nodes, one after another, hardly any weights."""
    nodes = [
        helper.make_node("Add", [f"v{i}", "one"], [f"v{i + 1}"], f"add{i}")
        for i in range(CHAIN_NODES)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])
        for name in ("v0", f"v{CHAIN_NODES}")
    ]
    one = numpy_helper.from_array(np.ones(4, np.float32), "one")
    model = _model(helper.make_graph(nodes, "chain", ends[:1], ends[1:], [one]))
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def make_tf_bert(folder: Path) -> None:
    """A BERT of 3179 nodes and 440 MB, as tf2onnx writes it."""
    onnx.save(tf_bert(), folder / "model.onnx")


def _field(number: int, length: int) -> bytes:
    """Tag and length of a length-delimited protobuf field."""
    head = bytearray()
    for value in (number << 3 | 2, length):
        while value > 127:
            head.append(value & 127 | 128)
            value >>= 7
        head.append(value)
    return bytes(head)


def _write_noise(file: BinaryIO, tensor: TensorProto) -> None:
    for block in noise(tensor):
        file.write(block.data)


def make_dpt(folder: Path) -> None:
    """A small DPT (depth from an image) with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import DPTConfig, DPTForDepthEstimation

    torch.manual_seed(0)
    config = DPTConfig(
        hidden_size=384,
        intermediate_size=1536,
        num_attention_heads=6,
        image_size=DPT_IMAGE,
        attn_implementation="eager",
    )
    module = DPTForDepthEstimation(config).eval()
    image = torch.randn(1, 3, DPT_IMAGE, DPT_IMAGE)
    _export(module, "predicted_depth", image, "pixel_values", folder / "good.onnx")
    _plant_and_record(folder, {"pixel_values": image.numpy()})


def make_gpt2(folder: Path) -> None:
    """GPT-2 in its default size with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(use_cache=False, attn_implementation="eager")
    module = GPT2LMHeadModel(config).eval()
    tokens = torch.randint(0, config.vocab_size, (1, 64))
    _export(module, "logits", tokens, "input_ids", folder / "good.onnx")
    _plant_and_record(folder, {"input_ids": tokens.numpy()})


def make_resnet(folder: Path) -> None:
    """ResNet-50 in its default size with random weights, a faulty copy, and references for every value."""
    _plant_and_record(folder, {"pixel_values": make_resnet_alone(folder)})


def make_resnet_alone(folder: Path) -> np.ndarray:
    """ResNet-50 in its default size with random weights; return an image for it."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    module = ResNetForImageClassification(ResNetConfig()).eval()
    for norm in (m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)  # untrained, the signal dies on its way
    image = torch.randn(1, 3, 224, 224)
    _export(module, "logits", image, "pixel_values", folder / "good.onnx")
    return image.numpy()


def make_vit(folder: Path) -> None:
    """ViT-B/16 with random weights, a faulty copy, and references for every value."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(attn_implementation="eager", initializer_range=0.05)
    module = ViTForImageClassification(config).eval()
    image = torch.randn(1, 3, 224, 224)
    _export(module, "logits", image, "pixel_values", folder / "good.onnx")
    _plant_and_record(folder, {"pixel_values": image.numpy()})


def make_twins(folder: Path) -> None:
    """Three thousand nodes, and the same under other names, with the products' weights transposed."""
    rng, side, rows = np.random.default_rng(0), 128, 256
    for name, prefix, turned in (("a", "", False), ("b", "other_", True)):
        nodes, weights, last = [], [], "x"
        rng = np.random.default_rng(0)
        for i in range(TWIN_BLOCKS):
            weight = rng.normal(size=(side, side)).astype(np.float32) / np.float32(side**0.5)
            bias = rng.normal(size=side).astype(np.float32)
            w, b, m, s, t, r = (f"{prefix}{letter}{i}" for letter in "wbmstr")
            stored = weight.T.copy() if turned else weight
            weights += [numpy_helper.from_array(stored, w), numpy_helper.from_array(bias, b)]
            product = (
                helper.make_node("Gemm", [last, w], [m], transB=1)
                if turned
                else helper.make_node("MatMul", [last, w], [m])
            )
            nodes += [
                product,
                helper.make_node("Add", [m, b], [s]),
                helper.make_node("Tanh", [s], [t]),
                helper.make_node("Add", [last, t] if i % 2 else [t, t], [r]),
            ]
            last = r
        ends = [
            helper.make_tensor_value_info(end, TensorProto.FLOAT, [rows, side])
            for end in ("x", last)
        ]
        graph = helper.make_graph(nodes, name, ends[:1], ends[1:], weights)
        onnx.save(_model(graph), folder / f"{name}.onnx")
    np.savez(folder / "feeds.npz", x=rng.normal(size=(rows, side)).astype(np.float32))


def make_gpt2_module(folder: Path) -> None:
    """A factory of GPT-2 in its default size, and how many bytes its modules return."""
    from onnxsurgeon_lite.recording.torch_recorder import load_factory, record_module

    (folder / "factory.py").write_text(_FACTORY)
    module, args, _ = load_factory(f"{folder / 'factory.py'}:factory")
    record_module(module, args, folder=folder / "refs")
    (folder / "size.txt").write_text(str((folder / "refs" / "values.bin").stat().st_size))
    shutil.rmtree(folder / "refs")


def _export(module, result: str, sample, name: str, path: Path) -> None:
    """With the TorchScript exporter, or with the other one where that one cannot."""
    import torch

    class OneOutput(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, value):
            return getattr(self.module(value), result)

    settings = {"input_names": [name], "output_names": ["out"], "opset_version": 18}
    try:
        torch.onnx.export(OneOutput().eval(), (sample,), path, dynamo=False, **settings)
    except Exception as error:  # noqa: BLE001  exporters raise what they like
        print(f"the TorchScript exporter failed, taking the other one: {type(error).__name__}")
        settings["external_data"] = False
        torch.onnx.export(OneOutput().eval(), (sample,), path, dynamo=True, **settings)


def _plant_and_record(folder: Path, feeds: dict[str, np.ndarray]) -> None:
    """References from the good model with optimization off, then one wrong epsilon in the middle of a copy."""
    import onnxruntime as ort

    model = onnx.load(folder / "good.onnx")
    names = [name for node in model.graph.node for name in node.output if name]
    declared = [output.name for output in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in declared)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    values = dict(zip(names, session.run(names, feeds), strict=True))
    np.savez(folder / "references.npz", **values, **feeds)

    np.savez(folder / "feeds.npz", **feeds)

    del model.graph.output[len(declared) :]
    (folder / "planted.txt").write_text(_plant(model))
    onnx.save(model, folder / "faulty.onnx")
    _save_for_polygraphy(folder)
    (folder / "good.onnx").unlink()


def _plant(model: onnx.ModelProto) -> str:
    """Make the normalization in the middle wrong, or the convolution where there is none; the value it gives."""
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    if norms:
        node = norms[len(norms) // 2]
        next(a for a in node.attribute if a.name == "epsilon").f = 0.05
        return node.output[0]
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    node = convolutions[len(convolutions) // 2]
    weight = next(t for t in model.graph.initializer if t.name == node.input[1])
    planted = numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.05), "planted")
    model.graph.initializer.append(planted)
    node.input[1] = "planted"
    return node.output[0]


def _save_for_polygraphy(folder: Path) -> None:
    """What its users compare with: every value of the good model, saved by polygraphy itself."""
    loader = folder / "loader.py"
    loader.write_text(_LOADER)
    argv = [POLYGRAPHY, "run", folder / "good.onnx", "--onnxrt", "--onnx-outputs", "mark", "all"]
    argv += ["--data-loader-script", loader, "--save-outputs", folder / "outputs.json"]
    subprocess.run(list(map(str, argv)), check=True)


MAKERS: dict[str, tuple[int, Callable[..., None], tuple[int, ...]]] = {
    # name: (bytes on disk while it is made, function, arguments)
    "single": (30 * BLOCK_BYTES, make_single, (30,)),
    "external": (64 * BLOCK_BYTES, make_external, (64,)),
    "huge": (40 * BLOCK_BYTES, make_single, (40,)),
    "chain": (6_000_000, make_chain, ()),
    "tf-bert": (450_000_000, make_tf_bert, ()),
    "dpt": (3_500_000_000, make_dpt, ()),
    "gpt2": (2_500_000_000, make_gpt2, ()),
    "resnet": (900_000_000, make_resnet, ()),
    "resnet-alone": (110_000_000, make_resnet_alone, ()),
    "vit": (2_000_000_000, make_vit, ()),
    "twins": (100_000_000, make_twins, ()),
    "gpt2-module": (500_000_000, make_gpt2_module, ()),
}


def model_folder(root: Path, name: str) -> Path:
    """Where a model is, or will be."""
    return root / "models" / f"{name}-{MODELS_VERSION}"


def make_model(root: Path, name: str) -> None:
    """Make a model that is not there yet, in a process of its own: exporters are large, and print."""
    folder = model_folder(root, name)
    err.print(f"making model '{name}' ...")
    unfinished = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    process = multiprocessing.get_context("spawn").Process(target=_make, args=(name, unfinished))
    process.start()
    process.join()
    if process.exitcode:
        log = (unfinished / "log.txt").read_text(errors="replace")
        raise BenchError(f"model {name!r} could not be made: {log[-1500:].strip()}")
    unfinished.rename(folder)


def _make(name: str, folder: Path) -> None:
    """In the process of its own; what exporters print goes to a file, shown if they fail."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # configurations are made here, nothing is to be looked up
    log = folder / "log.txt"
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    _, function, arguments = MAKERS[name]
    function(folder, *arguments)
    log.unlink()
