"""Write the models and reference tensors in ``fixtures/``, or check that they are up to date.

``python scripts/make_fixtures.py`` writes every file; ``--check`` rebuilds them in a temporary
directory and fails when what is kept differs from what the script makes.

``whole_model.onnx``
    Four groups of convolutions with a fork and a join, with the value names of MMDeploy's tutorial
    on editing and debugging ONNX models: the model to cut, probe and bisect.
``whole_model_torchscript.onnx``, ``whole_model_dynamo.onnx``
    The same module and weights as PyTorch's two exporters write them, for names and metadata that
    real models have.
``whole_model.safetensors``
    Its weights, as a checkpoint holds them.
``faulty_attribute.onnx``, ``faulty_constant.onnx``
    ``whole_model.onnx`` with one wrong attribute (the node that makes ``27``) and one wrong weight
    (the node that makes ``25``): the faults to find.
``references/whole_model.npz``, ``references/test_data_set_0/``
    Every value of ``whole_model.onnx``, computed in float64 without a runtime, and its input and
    output again in the layout of ONNX's own test data.
``linear_func.onnx``
    ``y = a * x + b``: the smallest graph with an inner value.
``transformer_block.onnx``, ``references/transformer_block.npz``
    A transformer block with a symbolic batch dimension, and its values for a batch of two.
``control_flow.onnx``
    An If and a Loop whose bodies capture outer values and outer initializers, one of them from
    two scopes up.
``custom_op.onnx``
    An operator of an unknown domain between two known ones: loads in no runtime, must still edit.
``external.onnx``, ``external.data``
    Weights kept in a second file.
``low_precision.onnx``
    bfloat16, float8 and int4 weights, the last with an odd number of elements.
"""

import argparse
import contextlib
import io
import logging
import math
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file
from torch import nn

ROOT = Path(os.path.abspath(__file__)).parent.parent
FIXTURES = ROOT / "fixtures"
NOT_MADE_HERE = {"README.md", "onnxdbg.toml", "whole_model.py"}
MAX_TOTAL_BYTES = 2_000_000

Arrays = dict[str, np.ndarray]
Shape = Sequence[int | str]
FLOAT = TensorProto.FLOAT

IMAGE_SHAPE = (1, 3, 20, 20)
# (node input, node output, layer); a node without a layer adds its inputs.
WHOLE_MODEL_NODES: list[tuple[tuple[str, ...], str, str | None]] = [
    (("input.1",), "21", "convs1.0"),
    (("21",), "22", "convs1.1"),
    (("22",), "23", "convs1.2"),
    (("23",), "24", "convs2.0"),
    (("24",), "25", "convs2.1"),
    (("23",), "26", "convs3.0"),
    (("26",), "27", "convs3.1"),
    (("25", "27"), "28", None),
    (("28",), "29", "convs4.0"),
    (("29",), "30", "convs4.1"),
    (("30",), "31", "convs4.2"),
]


class WholeModel(nn.Module):
    """The PyTorch module of which ``whole_model.onnx`` is the graph."""

    # The exporter records this name; the default depends on how the script was started.
    __module__ = "make_fixtures"

    def __init__(self) -> None:
        super().__init__()
        self.convs1 = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(3)))
        self.convs2 = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(2)))
        self.convs3 = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(2)))
        self.convs4 = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(3)))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        x = self.convs1(input)
        x1 = self.convs2(x)
        x2 = self.convs3(x)
        x = x1 + x2
        return self.convs4(x)


# --- building blocks ---------------------------------------------------------------------------


def uniform(rng: np.random.Generator, shape: Sequence[int], bound: float) -> np.ndarray:
    """Float32 numbers in [-bound, bound); uniform ones need no libm, so no platform differs."""
    return rng.uniform(-bound, bound, size=shape).astype(np.float32)


def value(name: str, shape: Shape, elem_type: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem_type, shape)


def tensors(arrays: Arrays) -> list[TensorProto]:
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def make_model(
    graph: onnx.GraphProto, opset: int, ir_version: int, domains: Sequence[str] = ()
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=ir_version, producer_name="make_fixtures"
    )


def write_model(path: Path, model: onnx.ModelProto) -> None:
    """Write and check by path, so that the checker finds external data."""
    path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path))


def write_arrays(path: Path, arrays: Arrays) -> None:
    np.savez(path, **{name: array.astype(np.float32) for name, array in arrays.items()})


# --- reference values --------------------------------------------------------------------------


def conv(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    """A direct convolution; of the attributes only ``pads`` varies in the reference models."""
    x, weight, bias = inputs
    top, left, bottom, right = attributes["pads"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]


def layer_normalization(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    x, scale, bias = inputs
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered**2).mean(axis=-1, keepdims=True)
    return centered / np.sqrt(variance + attributes["epsilon"]) * scale + bias


def softmax(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    exponential = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
    return exponential / exponential.sum(axis=-1, keepdims=True)


def gelu(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    return inputs[0] * 0.5 * (1 + np.vectorize(math.erf)(inputs[0] / math.sqrt(2)))


def reshape(inputs: list[np.ndarray], attributes: dict[str, Any]) -> np.ndarray:
    x, shape = inputs
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])


OPERATORS: dict[str, Callable[[list[np.ndarray], dict[str, Any]], np.ndarray]] = {
    "Add": lambda inputs, _: inputs[0] + inputs[1],
    "Conv": conv,
    "Gelu": gelu,
    "LayerNormalization": layer_normalization,
    "MatMul": lambda inputs, _: inputs[0] @ inputs[1],
    "Mul": lambda inputs, _: inputs[0] * inputs[1],
    "Reshape": reshape,
    "Softmax": softmax,
    "Transpose": lambda inputs, attributes: inputs[0].transpose(attributes["perm"]),
}


def in_float64(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def evaluate(model: onnx.ModelProto, feeds: Arrays) -> Arrays:
    """Every value from the inputs on, in float64: no runtime is its own reference."""
    constants = {t.name: in_float64(numpy_helper.to_array(t)) for t in model.graph.initializer}
    values = {name: in_float64(array) for name, array in feeds.items()}
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [values[name] if name in values else constants[name] for name in node.input]
        values[node.output[0]] = OPERATORS[node.op_type](inputs, attributes)
    return values


# --- whole_model -------------------------------------------------------------------------------


def whole_model_weights() -> Arrays:
    """Weights of variance 1/27, one over the fan-in, which keeps the values of order one."""
    rng = np.random.default_rng(20)
    weights: Arrays = {}
    for _, _, layer in WHOLE_MODEL_NODES:
        if layer is not None:
            weights[f"{layer}.weight"] = uniform(rng, (3, 3, 3, 3), 1 / 3)
            weights[f"{layer}.bias"] = uniform(rng, (3,), 0.1)
    return weights


def whole_model() -> onnx.ModelProto:
    nodes = []
    for index, (inputs, output, layer) in enumerate(WHOLE_MODEL_NODES):
        if layer is None:
            nodes.append(helper.make_node("Add", inputs, [output], name=f"Add_{index}"))
            continue
        nodes.append(
            helper.make_node(
                "Conv",
                [*inputs, f"{layer}.weight", f"{layer}.bias"],
                [output],
                name=f"Conv_{index}",
                dilations=[1, 1],
                group=1,
                kernel_shape=[3, 3],
                pads=[1, 1, 1, 1],
                strides=[1, 1],
            )
        )
    graph = helper.make_graph(
        nodes,
        "whole_model",
        [value("input.1", IMAGE_SHAPE)],
        [value("31", IMAGE_SHAPE)],
        initializer=tensors(whole_model_weights()),
        value_info=[value(output, IMAGE_SHAPE) for _, output, _ in WHOLE_MODEL_NODES[:-1]],
    )
    return make_model(graph, opset=17, ir_version=8)


def node_making(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if name in node.output)


def faulty_attribute() -> onnx.ModelProto:
    """Dilate one convolution; the pads follow so that no shape tells."""
    model = whole_model()
    for attribute in node_making(model, "27").attribute:
        if attribute.name in ("dilations", "pads"):
            attribute.ints[:] = [2] * len(attribute.ints)
    return model


def faulty_constant() -> onnx.ModelProto:
    """Scale one weight by one percent."""
    model = whole_model()
    name = node_making(model, "25").input[1]
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    scaled = numpy_helper.to_array(weight) * np.float32(1.01)
    weight.CopyFrom(numpy_helper.from_array(scaled, name))
    return model


def write_whole_model_references(directory: Path) -> None:
    image = uniform(np.random.default_rng(21), IMAGE_SHAPE, 1.0)
    values = evaluate(whole_model(), {"input.1": image})
    write_arrays(directory / "whole_model.npz", values)
    data_set = directory / "test_data_set_0"
    data_set.mkdir(parents=True, exist_ok=True)
    for file, name in (("input_0.pb", "input.1"), ("output_0.pb", "31")):
        tensor = numpy_helper.from_array(values[name].astype(np.float32), name)
        (data_set / file).write_bytes(tensor.SerializeToString(deterministic=True))


# --- exports -----------------------------------------------------------------------------------


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporters' progress, deprecations and remarks on absent packages to themselves."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def torch_module() -> WholeModel:
    module = WholeModel().eval()
    weights = whole_model_weights()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    return module


def export_torchscript() -> onnx.ModelProto:
    buffer = io.BytesIO()
    example = (torch.zeros(IMAGE_SHAPE),)
    with quiet():
        torch.onnx.export(
            torch_module(), example, buffer, dynamo=False, opset_version=17, verbose=False
        )
    return portable(onnx.load_from_string(buffer.getvalue()))


def export_dynamo() -> onnx.ModelProto:
    example = (torch.zeros(IMAGE_SHAPE),)
    with quiet():
        program = torch.onnx.export(
            torch_module(),
            example,
            dynamo=True,
            external_data=False,
            opset_version=20,
            verbose=False,
        )
    assert program is not None
    return portable(program.model_proto)


def portable(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drop what depends on the checkout, the environment or the build of PyTorch."""
    model.producer_version = model.producer_version.partition("+")[0]
    graph = model.graph
    for owner in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info):
        for entry in owner.metadata_props:
            entry.value = re.sub(r'(?<=File ")[^"]+', relative_path, entry.value)
    return model


def relative_path(match: re.Match[str]) -> str:
    """Cut a source path at the package or at the repository, whichever holds it."""
    # Not resolved: packages may be links into a cache, whose own path says nothing.
    path = Path(os.path.abspath(match[0]))
    # PyTorch first, since its environment may lie inside the checkout.
    for base in (Path(os.path.abspath(torch.__file__)).parent.parent, ROOT):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return path.name


# --- other models ------------------------------------------------------------------------------


def linear_func() -> onnx.ModelProto:
    shape = (10, 10)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["a", "x"], ["c"]), helper.make_node("Add", ["c", "b"], ["y"])],
        "linear_func",
        [value("a", shape), value("x", shape), value("b", shape)],
        [value("y", shape)],
    )
    return make_model(graph, opset=17, ir_version=8)


SEQ, HIDDEN, HEADS, FFN = 8, 16, 2, 32
HEAD = HIDDEN // HEADS
STATES: Shape = ("batch", SEQ, HIDDEN)
Step = tuple[str, list[str], str, Shape, dict[str, Any]]


def transformer_weights() -> Arrays:
    rng = np.random.default_rng(30)
    weights: Arrays = {}
    for norm in ("norm_1", "norm_2"):
        weights[f"{norm}.weight"] = 1 + uniform(rng, (HIDDEN,), 0.1)
        weights[f"{norm}.bias"] = uniform(rng, (HIDDEN,), 0.1)
    layers = dict.fromkeys(("query", "key", "value", "attention"), (HIDDEN, HIDDEN))
    for layer, shape in {**layers, "up": (HIDDEN, FFN), "down": (FFN, HIDDEN)}.items():
        weights[f"{layer}.weight"] = uniform(rng, shape, math.sqrt(3 / shape[0]))
        weights[f"{layer}.bias"] = uniform(rng, shape[1:], 0.1)
    weights["scale"] = np.array(1 / math.sqrt(HEAD), np.float32)
    weights["heads_shape"] = np.array([0, SEQ, HEADS, HEAD], np.int64)
    weights["states_shape"] = np.array([0, SEQ, HIDDEN], np.int64)
    return weights


def norm_step(source: str, name: str) -> Step:
    inputs = [source, f"{name}.weight", f"{name}.bias"]
    return ("LayerNormalization", inputs, name, STATES, {"axis": -1, "epsilon": 1e-5})


def linear_steps(source: str, name: str, width: int = HIDDEN) -> list[Step]:
    shape = ("batch", SEQ, width)
    return [
        ("MatMul", [source, f"{name}.weight"], f"{name}_matmul", shape, {}),
        ("Add", [f"{name}_matmul", f"{name}.bias"], f"{name}_linear", shape, {}),
    ]


def heads_steps(name: str, perm: list[int]) -> list[Step]:
    split = ("batch", SEQ, HEADS, HEAD)
    turned = [split[axis] for axis in perm]
    return [
        ("Reshape", [f"{name}_linear", "heads_shape"], f"{name}_split", split, {}),
        ("Transpose", [f"{name}_split"], f"{name}_heads", turned, {"perm": perm}),
    ]


def attention_steps() -> list[Step]:
    scores, heads = ("batch", HEADS, SEQ, SEQ), ("batch", HEADS, SEQ, HEAD)
    turned, perm = ("batch", SEQ, HEADS, HEAD), [0, 2, 1, 3]
    steps: list[Step] = [norm_step("hidden_states", "norm_1")]
    for name in ("query", "key", "value"):
        steps += linear_steps("norm_1", name)
        steps += heads_steps(name, [0, 2, 3, 1] if name == "key" else perm)
    return [
        *steps,
        ("MatMul", ["query_heads", "key_heads"], "scores", scores, {}),
        ("Mul", ["scores", "scale"], "scaled_scores", scores, {}),
        ("Softmax", ["scaled_scores"], "probabilities", scores, {"axis": -1}),
        ("MatMul", ["probabilities", "value_heads"], "context_heads", heads, {}),
        ("Transpose", ["context_heads"], "context_split", turned, {"perm": perm}),
        ("Reshape", ["context_split", "states_shape"], "context", STATES, {}),
        *linear_steps("context", "attention"),
        ("Add", ["hidden_states", "attention_linear"], "residual", STATES, {}),
    ]


def feed_forward_steps() -> list[Step]:
    return [
        norm_step("residual", "norm_2"),
        *linear_steps("norm_2", "up", FFN),
        ("Gelu", ["up_linear"], "activation", ("batch", SEQ, FFN), {}),
        *linear_steps("activation", "down"),
        ("Add", ["residual", "down_linear"], "output", STATES, {}),
    ]


def transformer_block() -> onnx.ModelProto:
    steps = attention_steps() + feed_forward_steps()
    graph = helper.make_graph(
        [
            helper.make_node(op, inputs, [output], name=f"{op}_{index}", **attributes)
            for index, (op, inputs, output, _, attributes) in enumerate(steps)
        ],
        "transformer_block",
        [value("hidden_states", STATES)],
        [value("output", STATES)],
        initializer=tensors(transformer_weights()),
        value_info=[value(output, shape) for _, _, output, shape, _ in steps[:-1]],
    )
    return make_model(graph, opset=20, ir_version=9)


def write_transformer_references(directory: Path) -> None:
    states = uniform(np.random.default_rng(31), (2, SEQ, HIDDEN), 1.0)
    values = evaluate(transformer_block(), {"hidden_states": states})
    write_arrays(directory / "transformer_block.npz", values)


CONTROL_SHAPE = (2, 3)


def if_branches() -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """Both capture the computed ``doubled`` and the initializer ``offset`` of the main graph."""
    node = helper.make_node
    then_branch = helper.make_graph(
        [
            node("Add", ["doubled", "offset"], ["then/sum"], name="then/Add"),
            node("Relu", ["then/sum"], ["then/out"], name="then/Relu"),
        ],
        "then_branch",
        [],
        [value("then/out", CONTROL_SHAPE)],
        value_info=[value("then/sum", CONTROL_SHAPE)],
    )
    else_branch = helper.make_graph(
        [
            node("Neg", ["doubled"], ["else/neg"], name="else/Neg"),
            node("Sub", ["else/neg", "offset"], ["else/out"], name="else/Sub"),
        ],
        "else_branch",
        [],
        [value("else/out", CONTROL_SHAPE)],
        value_info=[value("else/neg", CONTROL_SHAPE)],
    )
    return then_branch, else_branch


def loop_if() -> onnx.NodeProto:
    """An If inside the Loop: captures from the Loop's body and from the main graph."""
    node = helper.make_node
    out = "loop/then/out", "loop/else/out"
    then_branch = helper.make_graph(
        [node("Sub", ["loop/sum", "doubled"], [out[0]], name="loop/then/Sub")],
        "loop_then_branch",
        [],
        [value(out[0], CONTROL_SHAPE)],
    )
    else_branch = helper.make_graph(
        [node("Mul", ["loop/sum", "decay"], [out[1]], name="loop/else/Mul")],
        "loop_else_branch",
        [],
        [value(out[1], CONTROL_SHAPE)],
    )
    return node(
        "If",
        ["loop/is_first"],
        ["loop/state_out"],
        name="loop/If",
        then_branch=then_branch,
        else_branch=else_branch,
    )


def loop_body() -> onnx.GraphProto:
    """Carries one state, scans its mean per row, and captures ``doubled`` and ``decay``."""
    node = helper.make_node
    return helper.make_graph(
        [
            node("Identity", ["loop/cond_in"], ["loop/cond_out"], name="loop/Identity"),
            node("Add", ["loop/state_in", "doubled"], ["loop/sum"], name="loop/Add"),
            node("Equal", ["loop/iteration", "zero"], ["loop/is_first"], name="loop/Equal"),
            loop_if(),
            node(
                "ReduceMean",
                ["loop/state_out"],
                ["loop/mean"],
                name="loop/ReduceMean",
                axes=[1],
                keepdims=0,
            ),
        ],
        "loop_body",
        [
            value("loop/iteration", (), TensorProto.INT64),
            value("loop/cond_in", (), TensorProto.BOOL),
            value("loop/state_in", CONTROL_SHAPE),
        ],
        [
            value("loop/cond_out", (), TensorProto.BOOL),
            value("loop/state_out", CONTROL_SHAPE),
            value("loop/mean", CONTROL_SHAPE[:1]),
        ],
        value_info=[
            value("loop/sum", CONTROL_SHAPE),
            value("loop/is_first", (), TensorProto.BOOL),
        ],
    )


def control_flow() -> onnx.ModelProto:
    then_branch, else_branch = if_branches()
    node = helper.make_node
    constants = {
        "two": np.array(2, np.float32),
        "offset": np.array([0.5, -0.25, 1.0], np.float32),
        "decay": np.array(0.5, np.float32),
        "zero": np.array(0, np.int64),
        "always": np.array(True),
    }
    graph = helper.make_graph(
        [
            node("Mul", ["x", "two"], ["doubled"], name="Mul"),
            node(
                "If",
                ["cond"],
                ["chosen"],
                name="If",
                then_branch=then_branch,
                else_branch=else_branch,
            ),
            node(
                "Loop",
                ["steps", "always", "chosen"],
                ["state", "means"],
                name="Loop",
                body=loop_body(),
            ),
            node("Add", ["state", "x"], ["y"], name="Add"),
        ],
        "control_flow",
        [
            value("x", CONTROL_SHAPE),
            value("cond", (), TensorProto.BOOL),
            value("steps", (), TensorProto.INT64),
        ],
        [value("y", CONTROL_SHAPE), value("means", ("iterations", CONTROL_SHAPE[0]))],
        initializer=tensors(constants),
        value_info=[value(name, CONTROL_SHAPE) for name in ("doubled", "chosen", "state")],
    )
    return make_model(graph, opset=17, ir_version=8)


def custom_op() -> onnx.ModelProto:
    """The custom operator's output has no value_info: nothing can infer its type."""
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["input"], ["before"], name="Relu_0"),
            helper.make_node(
                "Thing", ["before"], ["thing"], name="Thing_1", domain="my.domain", strength=0.5
            ),
            helper.make_node("Relu", ["thing"], ["output"], name="Relu_2"),
        ],
        "custom_op",
        [value("input", (2, 3))],
        [value("output", (2, 3))],
        value_info=[value("before", (2, 3))],
    )
    return make_model(graph, opset=17, ir_version=8, domains=["my.domain"])


def external_tensors(arrays: Arrays, location: str) -> tuple[list[TensorProto], bytes]:
    """Tensors that point into one data file, and the bytes of that file."""
    data = b""
    result = []
    for name, array in arrays.items():
        raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
        tensor = TensorProto(name=name, data_type=FLOAT, dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, entry in (("location", location), ("offset", len(data)), ("length", len(raw))):
            tensor.external_data.add(key=key, value=str(entry))
        result.append(tensor)
        data += raw
    return result, data


def write_external(directory: Path) -> None:
    """A two-layer perceptron of which the data file holds every weight."""
    rng = np.random.default_rng(40)
    weights = {
        "layer1.weight": uniform(rng, (32, 64), 0.3),
        "layer1.bias": uniform(rng, (64,), 0.1),
        "layer2.weight": uniform(rng, (64, 32), 0.3),
        "layer2.bias": uniform(rng, (32,), 0.1),
    }
    initializers, data = external_tensors(weights, "external.data")
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("MatMul", ["x", "layer1.weight"], ["layer1_matmul"], name="MatMul_0"),
            node("Add", ["layer1_matmul", "layer1.bias"], ["layer1_out"], name="Add_1"),
            node("Relu", ["layer1_out"], ["activation"], name="Relu_2"),
            node("MatMul", ["activation", "layer2.weight"], ["layer2_matmul"], name="MatMul_3"),
            node("Add", ["layer2_matmul", "layer2.bias"], ["y"], name="Add_4"),
        ],
        "external",
        [value("x", ("batch", 32))],
        [value("y", ("batch", 32))],
        initializer=initializers,
        value_info=[
            *(value(name, ("batch", 64)) for name in ("layer1_matmul", "layer1_out", "activation")),
            value("layer2_matmul", ("batch", 32)),
        ],
    )
    (directory / "external.data").write_bytes(data)
    write_model(directory / "external.onnx", make_model(graph, opset=17, ir_version=8))


def low_precision() -> onnx.ModelProto:
    shape = (3, 5)
    rng = np.random.default_rng(50)
    constants = {
        "w_bfloat16": uniform(rng, shape, 1.0).astype(ml_dtypes.bfloat16),
        "w_float8": uniform(rng, shape, 16.0).astype(ml_dtypes.float8_e4m3fn),
        "w_int4": rng.integers(-8, 8, size=shape).astype(ml_dtypes.int4),
        "float8_scale": np.array(0.0625, np.float32),
        "int4_scale": np.array(0.125, np.float32),
        "int4_zero_point": np.array(1).astype(ml_dtypes.int4),
    }
    node = helper.make_node
    names = ("bfloat16", "float8", "int4", "sum_0", "sum_1")
    graph = helper.make_graph(
        [
            node("Cast", ["w_bfloat16"], ["bfloat16"], name="Cast_0", to=FLOAT),
            node("DequantizeLinear", ["w_float8", "float8_scale"], ["float8"], name="Dequant_1"),
            node(
                "DequantizeLinear",
                ["w_int4", "int4_scale", "int4_zero_point"],
                ["int4"],
                name="Dequant_2",
            ),
            node("Add", ["x", "bfloat16"], ["sum_0"], name="Add_3"),
            node("Add", ["sum_0", "float8"], ["sum_1"], name="Add_4"),
            node("Add", ["sum_1", "int4"], ["y"], name="Add_5"),
        ],
        "low_precision",
        [value("x", shape)],
        [value("y", shape)],
        initializer=tensors(constants),
        value_info=[value(name, shape) for name in names],
    )
    return make_model(graph, opset=21, ir_version=10)


# --- writing and checking ----------------------------------------------------------------------


def frozen_batch() -> onnx.ModelProto:
    """Two samples and two heads: reshapes in which one 2 is the batch and the other is not."""
    node = helper.make_node
    graph = helper.make_graph(
        [
            node("Reshape", ["x", "heads"], ["split"], name="split_heads"),
            node("Transpose", ["split"], ["keys"], name="keys", perm=[0, 1, 3, 2]),
            node("MatMul", ["split", "keys"], ["products"], name="products"),
            node("Softmax", ["products"], ["weights"], name="softmax", axis=-1),
            node("MatMul", ["weights", "split"], ["mixed"], name="mixed"),
            node("Reshape", ["mixed", "flat"], ["y"], name="join_heads"),
        ],
        "frozen_batch",
        [value("x", (2, 4, 6))],
        [value("y", (2, 4, 6))],
        initializer=tensors({"heads": np.array([2, 2, 4, 3]), "flat": np.array([2, 4, 6])}),
    )
    return make_model(graph, opset=17, ir_version=8)


def detector() -> onnx.ModelProto:
    """What is found on three images, ragged tensors; the outputs of the first alone have names."""
    node = helper.make_node
    found: Arrays = {
        "candidate_boxes": np.arange(20, dtype=np.float32).reshape(5, 4),
        "candidate_labels": np.arange(1, 6),
        "zero": np.array(0, np.float32),
        **{f"image{i}": np.array(i) for i in range(3)},
    }
    nodes, outputs = [], []
    for i in range(3):
        names = ["boxes", "labels", "scores"] if i == 0 else [str(30 + 3 * i + j) for j in range(3)]
        nodes += [
            node("Gather", ["logits", f"image{i}"], [f"logits{i}"], axis=0),
            node("Greater", [f"logits{i}", "zero"], [f"above{i}"]),
        ]
        sources = ("candidate_boxes", "candidate_labels", f"logits{i}")
        for source, name in zip(sources, names, strict=True):
            nodes.append(node("Compress", [source, f"above{i}"], [name], axis=0))
        outputs += [
            value(names[0], (f"n{i}", 4)),
            value(names[1], (f"n{i}",), TensorProto.INT64),
            value(names[2], (f"n{i}",)),
        ]
    graph = helper.make_graph(
        nodes, "detector", [value("logits", (3, 5))], outputs, initializer=tensors(found)
    )
    return make_model(graph, opset=17, ir_version=8)


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "whole_model.onnx": whole_model,
    "whole_model_torchscript.onnx": export_torchscript,
    "whole_model_dynamo.onnx": export_dynamo,
    "faulty_attribute.onnx": faulty_attribute,
    "faulty_constant.onnx": faulty_constant,
    "linear_func.onnx": linear_func,
    "transformer_block.onnx": transformer_block,
    "control_flow.onnx": control_flow,
    "custom_op.onnx": custom_op,
    "low_precision.onnx": low_precision,
    "frozen_batch.onnx": frozen_batch,
    "detector.onnx": detector,
}


def write_fixtures(directory: Path) -> None:
    references = directory / "references"
    references.mkdir(parents=True, exist_ok=True)
    for name, build in MODELS.items():
        write_model(directory / name, build())
    save_file(whole_model_weights(), directory / "whole_model.safetensors")
    write_external(directory)
    write_whole_model_references(references)
    write_transformer_references(references)


def files_in(directory: Path) -> dict[str, Path]:
    found = (
        path for path in sorted(directory.rglob("*")) if path.is_file() and path.suffix != ".pyc"
    )
    named = {path.relative_to(directory).as_posix(): path for path in found}
    return {name: path for name, path in named.items() if name not in NOT_MADE_HERE}


def read_arrays(path: Path) -> Arrays:
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    tensor = TensorProto.FromString(path.read_bytes())
    return {tensor.name: numpy_helper.to_array(tensor)}


def within_one_ulp(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(np.all(np.abs(a - b) <= np.spacing(np.maximum(np.abs(a), np.abs(b)))))


def array_differences(name: str, made: Arrays, kept: Arrays) -> list[str]:
    if list(made) != list(kept):
        return [f"{name}: holds {list(kept)}, the script makes {list(made)}"]
    return [
        f"{name}: {key} differs by more than one ulp"
        for key in made
        if not within_one_ulp(made[key], kept[key])
    ]


def differences(made: dict[str, Path], kept: dict[str, Path]) -> list[str]:
    """What the script makes against what is kept; references may differ by one ulp."""
    found = [f"{name}: missing" for name in made if name not in kept]
    found += [f"{name}: not made by this script" for name in kept if name not in made]
    for name in sorted(made.keys() & kept.keys()):
        # The last bit of a sum in float64 depends on numpy's build, and may survive the rounding.
        if made[name].suffix in (".npz", ".pb"):
            found += array_differences(name, read_arrays(made[name]), read_arrays(kept[name]))
        elif made[name].read_bytes() != kept[name].read_bytes():
            found.append(f"{name}: bytes differ")
    return found


def path_leaks(kept: dict[str, Path]) -> list[str]:
    roots = {ROOT, Path(sys.prefix), Path.home()}
    # A home directory of "/" would be found in every file.
    needles = sorted(str(root) for root in roots if root != Path(root.anchor))
    return [
        f"{name}: holds the path {needle}"
        for name, path in kept.items()
        for needle in needles
        if needle.encode() in path.read_bytes()
    ]


def size_problems(paths: Iterable[Path]) -> list[str]:
    total = sum(path.stat().st_size for path in paths)
    if total < MAX_TOTAL_BYTES:
        return []
    return [f"fixtures hold {total} bytes, not less than {MAX_TOTAL_BYTES}"]


# What the fuzzers found worth keeping, and what ExecuTorch stored of a run: tests/tensors/test_etdump.py.
FOREIGN = ("fuzzing/", "executorch/")


def check() -> list[str]:
    kept = {n: path for n, path in files_in(FIXTURES).items() if not n.startswith(FOREIGN)}
    with tempfile.TemporaryDirectory() as directory:
        write_fixtures(Path(directory))
        found = differences(files_in(Path(directory)), kept)
    return found + path_leaks(kept) + size_problems(kept.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Write or check the files in fixtures/.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    if not parser.parse_args().check:
        write_fixtures(FIXTURES)
        print(f"wrote {len(files_in(FIXTURES))} files to {FIXTURES.name}/")
        return 0
    found = check()
    print("\n".join(found) if found else "fixtures are up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
