"""Diffs: a shuffled, renamed copy is the same model, one edit is one difference, and weights are read only if they must be."""

import random
from pathlib import Path

import numpy as np
import onnx
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxsurgeon_lite import diff
from onnxsurgeon_lite.differing import Difference
from onnxsurgeon_lite.model import Model

FIXTURES = Path(__file__).parent.parent / "fixtures"
HEADER = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>\n'


def parsed(text: str) -> Model:
    return Model(onnx.parser.parse_model(HEADER + text))


def lines(first: Model, second: Model, **options) -> list[str]:
    """Each difference as `status kind subject: what, what`."""
    return [line(difference) for difference in diff(first, second, **options).differences]


def line(difference: Difference) -> str:
    changes = ", ".join(change.what for change in difference.changes)
    return f"{difference.status} {difference.kind} {difference.subject}: {changes}"


# one random graph, shuffled, renamed, and edited once

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


def disguised(proto: ModelProto, seed: int, *, keep_ends: bool = True) -> ModelProto:
    """The same model with other names and another order."""
    rng = random.Random(seed)
    copy = ModelProto()
    copy.CopyFrom(proto)
    graph = copy.graph
    ends = {value.name for value in (*graph.input, *graph.output)} if keep_ends else set()
    numbers = iter(rng.sample(range(100_000), 2 * len(graph.node) + 2 * len(graph.initializer) + 9))
    names: dict[str, str] = {"": ""}

    def renamed(name: str) -> str:
        return name if name in ends else names.setdefault(name, f"r{next(numbers)}")

    for node in graph.node:
        node.name = f"k{next(numbers)}"
        node.input[:] = map(renamed, node.input)
        node.output[:] = map(renamed, node.output)
    for named in (*graph.initializer, *graph.value_info, *graph.input, *graph.output):
        named.name = renamed(named.name)
    for repeated in (graph.node, graph.initializer):
        order = list(repeated)
        rng.shuffle(order)
        del repeated[:]
        repeated.extend(order)
    return copy


many = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@many
@given(models(), st.integers(0, 99), st.booleans())
def test_a_shuffled_renamed_copy_is_the_same(proto, seed, keep_ends):
    found = diff(Model(proto), Model(disguised(proto, seed, keep_ends=keep_ends)))

    assert found.same
    assert found.differences == []


@many
@given(models(), st.integers(0, 99), st.data())
def test_one_changed_attribute_is_one_difference(proto, seed, data):
    leaky = [i for i, node in enumerate(proto.graph.node) if node.op_type == "LeakyRelu"]
    assume(leaky)
    edited = ModelProto()
    edited.CopyFrom(proto)
    position = data.draw(st.sampled_from(leaky))
    edited.graph.node[position].attribute[0].f = 0.7

    found = lines(Model(proto), Model(disguised(edited, seed)))

    name = f"LeakyRelu 'n{position}' (@{position})"
    assert found == [f"changed node {name}: attribute alpha"]


@many
@given(models(), st.integers(0, 99), st.data())
def test_one_changed_weight_is_one_difference(proto, seed, data):
    assume(proto.graph.initializer)
    edited = ModelProto()
    edited.CopyFrom(proto)
    tensor = data.draw(st.sampled_from(list(edited.graph.initializer)))
    tensor.CopyFrom(numpy_helper.from_array(np.array([5, 6, 7, 8], np.float32), tensor.name))

    (found,) = diff(Model(proto), Model(disguised(edited, seed))).differences

    assert (found.status, found.kind, found.before) == ("changed", "initializer", tensor.name)
    assert found.contents.differing == 4


@many
@given(models(), st.integers(0, 99), st.data())
def test_one_inserted_node_is_one_difference_and_so_is_its_removal(proto, seed, data):
    edited = ModelProto()
    edited.CopyFrom(proto)
    node = data.draw(st.sampled_from(list(edited.graph.node)))
    new = helper.make_node("Exp", [node.input[0]], ["new"], "new")
    node.input[0] = "new"
    edited.graph.node.insert(0, new)
    copy = Model(disguised(edited, seed))

    added, removed = diff(Model(proto), copy), diff(copy, Model(proto))

    assert [(d.status, d.kind) for d in added.differences] == [("added", "node")]
    assert [(d.status, d.kind) for d in removed.differences] == [("removed", "node")]


@many
@given(models(), st.integers(0, 99), st.data())
def test_another_operator_in_the_same_place_is_one_difference(proto, seed, data):
    edited = ModelProto()
    edited.CopyFrom(proto)
    position = data.draw(st.integers(0, len(proto.graph.node) - 1))
    node = edited.graph.node[position]
    node.op_type = "Pow" if len(node.input) == 2 else "Exp"
    del node.attribute[:]

    (found,) = diff(Model(proto), Model(disguised(edited, seed))).differences

    assert (found.status, found.before) == ("changed", f"@{position}")
    assert found.changes[0].what == "operator"
