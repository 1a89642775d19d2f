"""Models for scripts/bench, written block by block so that none is ever in memory.

bench_models.py {single|huge|external|chain|dpt|gpt2} FOLDER
"""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

SIDE = 4096  # a weight is SIDE x SIDE float32, 64 MiB
WEIGHT = SIDE * SIDE * 4


def structure(blocks: int) -> onnx.ModelProto:
    """x -> MatMul -> Relu -> ... ; weights are declared, not held."""
    nodes = []
    for i in range(blocks):
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"], f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"h{i + 1}"], f"relu{i}"))
    row = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, SIDE]) for n in ("h0", f"h{blocks}")
    ]
    graph = helper.make_graph(nodes, "blocks", row[:1], row[1:])
    for i in range(blocks):
        for name in (f"m{i}", f"h{i}")[: 2 if i else 1]:
            graph.value_info.append(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE])
            )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def noise() -> bytes:
    """One weight's bytes."""
    rng = np.random.default_rng(0)
    return rng.normal(0, 1 / 64, SIDE * SIDE).astype(np.float32).tobytes()


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def single_file(path: Path, blocks: int) -> None:
    """Weights inside the file: protobuf's own library would hold them all, so the wire format is written here."""
    model = structure(blocks)
    graph = model.graph.SerializeToString()
    heads = []
    for i in range(blocks):
        tensor = TensorProto(name=f"w{i}", dims=[SIDE, SIDE], data_type=TensorProto.FLOAT)
        head = tensor.SerializeToString() + b"\x4a" + varint(WEIGHT)  # field 9, raw_data
        heads.append(b"\x2a" + varint(len(head) + WEIGHT) + head)  # field 5, initializer
    total = len(graph) + sum(map(len, heads)) + blocks * WEIGHT
    model.ClearField("graph")
    weight = noise()
    with path.open("wb") as file:
        file.write(model.SerializeToString() + b"\x3a" + varint(total) + graph)  # field 7, graph
        for head in heads:
            file.write(head)
            file.write(weight)


def external(path: Path, blocks: int) -> None:
    """Weights in one data file beside the model."""
    model = structure(blocks)
    weight = noise()
    with path.with_suffix(".data").open("wb") as file:
        for i in range(blocks):
            tensor = model.graph.initializer.add(
                name=f"w{i}", dims=[SIDE, SIDE], data_type=TensorProto.FLOAT, data_location=1
            )
            entries = {
                "location": path.with_suffix(".data").name,
                "offset": file.tell(),
                "length": WEIGHT,
            }
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(weight)
    path.write_bytes(model.SerializeToString())


def chain(path: Path) -> None:
    """50 000 Add nodes in a row."""
    nodes = [helper.make_node("Add", [f"h{i}", "w"], [f"h{i + 1}"]) for i in range(50_000)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("h0", "h50000")]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0] * 4)
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def exported(path: Path) -> None:
    """DPT or GPT-2 with random weights; references of every value; a copy with one wrong node mid-network."""
    import torch
    import transformers

    torch.manual_seed(0)
    if path.stem == "dpt":
        config = transformers.DPTConfig(
            hidden_size=384,
            intermediate_size=1536,
            num_attention_heads=6,
            attn_implementation="eager",
        )
        model, name = transformers.DPTForDepthEstimation(config), "predicted_depth"
        given = torch.randn(1, 3, 384, 384)
    else:
        config = transformers.GPT2Config(use_cache=False, attn_implementation="eager")
        model, name = transformers.GPT2LMHeadModel(config), "logits"
        given = torch.randint(0, 50257, (1, 64))

    class Output(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return getattr(self.model(given), name)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Output().eval(),
            (given,),
            path,
            dynamo=path.stem == "gpt2",  # the TorchScript exporter lacks an operator that it uses
            opset_version=18,
            external_data=False,
            input_names=["given"],
            verbose=False,
        )
    record(path, given.numpy())
    plant(path)


def record(path: Path, given: np.ndarray) -> None:
    """Every value as onnxruntime computes it, as the script that everybody writes would read it."""
    import onnxruntime

    model = onnx.load(path)
    names = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    values = dict(zip(names, session.run(names, {"given": given}), strict=True))
    np.savez(path.with_suffix(".npz"), given=given, **values)


def plant(path: Path) -> None:
    """One LayerNormalization in the middle gets another epsilon; its output's name goes to a text file."""
    model = onnx.load(path)
    norms = [node for node in model.graph.node if node.op_type == "LayerNormalization"]
    node = norms[len(norms) // 2]
    next(a for a in node.attribute if a.name == "epsilon").f = 0.5
    path.with_suffix(".planted").write_text(node.output[0])
    onnx.save(model, path.with_suffix(".wrong.onnx"))


MAKERS: dict[str, Callable[[Path], None]] = {
    "single": lambda path: single_file(path, 29),
    "huge": lambda path: single_file(path, 38),
    "external": lambda path: external(path, 60),
    "chain": chain,
    "dpt": exported,
    "gpt2": exported,
}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]) / f"{sys.argv[1]}.onnx")
