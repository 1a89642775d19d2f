"""Models drawn at random, for hypothesis, and running them."""

import numpy as np
import onnx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.session import Runtime

OPS = ("Add", "Mul", "Relu", "Neg", "Split", "Clip", "If")


ODD = (
    "a,b",
    "a b",
    "a:b",
    "a/b",
    "it's",
    'say "x"',
    "new\nline",
    "-dash",
    "[red]",
    "naïve",
    "a\\b",
)


@st.composite
def random_models(draw) -> onnx.ModelProto:
    """Dags of small float ops: bodies with captures, omitted inputs, odd names, any order."""
    nodes, values = [], ["x0", "x1"]
    for i in range(draw(st.integers(3, 14))):
        one, two = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        name = f"{draw(st.sampled_from(ODD))}{i}"
        match draw(st.sampled_from(OPS)):
            case "Split":
                nodes.append(
                    helper.make_node(
                        "Split", [one], [f"{name}l", f"{name}r"], axis=0, num_outputs=2
                    )
                )
                nodes.append(helper.make_node("Concat", [f"{name}r", f"{name}l"], [name], axis=0))
            case "Clip":
                nodes.append(helper.make_node("Clip", [one, "", "six"], [name]))
            case "If":
                branch = _branch(one, two)
                nodes.append(
                    helper.make_node("If", ["yes"], [name], then_branch=branch, else_branch=branch)
                )
            case "Relu" | "Neg" as unary:
                nodes.append(helper.make_node(unary, [one], [name]))
            case binary:
                nodes.append(helper.make_node(binary, [one, two], [name]))
        values.append(name)
    vector = helper.make_tensor_type_proto(1, [4])
    graph = helper.make_graph(
        draw(st.permutations(nodes)),
        "random",
        [helper.make_value_info(name, vector) for name in ("x0", "x1")],
        [helper.make_value_info(values[-1], vector)],
        [helper.make_tensor("six", 1, [], [6.0]), helper.make_tensor("yes", 9, [], [True])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _branch(one: str, two: str) -> onnx.GraphProto:
    """A body that captures two values."""
    vector = helper.make_tensor_type_proto(1, [4])
    nodes = [
        helper.make_node("Add", [one, two], ["inner"]),
        helper.make_node("Neg", ["inner"], ["out"]),
    ]
    return helper.make_graph(nodes, "branch", [], [helper.make_value_info("out", vector)])


FEEDS = {"x0": np.array([1, -2, 3, 0.5], np.float32), "x1": np.array([-1, 4, 0.25, 2], np.float32)}


def run(runtime: Runtime, model: Model, feeds) -> dict:
    runtime.open(model)
    for name, value in feeds.items():
        runtime.put(name, value)
    return runtime.run(list(feeds), [o.name for o in model.proto.graph.output]).values


SLOW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


UNARY = ("Relu", "Neg", "LeakyRelu", "Tanh")


BINARY = ("Add", "Mul", "Sub")


@st.composite
def models(draw: st.DrawFn) -> ModelProto:
    """Nodes that read whatever came before, some through constants, some twice; every value has a reader."""
    count = draw(st.integers(2, 14))
    values, nodes, constants = ["in0", "in1"], [], []
    for i in range(count):
        source = draw(st.sampled_from(values[-4:]))
        if draw(st.booleans()):
            operator = draw(st.sampled_from(UNARY))
            options = (
                {"alpha": draw(st.sampled_from([0.1, 0.2]))} if operator == "LeakyRelu" else {}
            )
            node = helper.make_node(operator, [source], [f"v{i}"], f"n{i}", **options)
        else:
            operator = draw(st.sampled_from(BINARY))
            other = draw(st.sampled_from([*values[-4:], "constant"]))
            if other == "constant":
                other = f"w{i}"
                number = draw(st.sampled_from([1.0, 2.0]))
                constants.append(numpy_helper.from_array(np.full(4, number, np.float32), other))
            node = helper.make_node(operator, [source, other], [f"v{i}"], f"n{i}")
        nodes.append(node)
        values.append(f"v{i}")
    read = {name for node in nodes for name in node.input}
    ends = [name for name in values if name not in read and name.startswith("v")]
    return model_of(nodes, ["in0", "in1"], ends, constants)


def model_of(nodes, inputs, outputs, constants=()) -> ModelProto:
    vector = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_value_info(name, vector) for name in inputs],
        [helper.make_value_info(name, vector) for name in outputs],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
