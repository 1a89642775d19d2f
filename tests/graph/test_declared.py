"""Declarations of many values are what the graph says of them."""

import random

import pytest
from onnx import GraphProto, TypeProto, helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.declared import declare_anew, declared_types
from onnxsurgeon_lite.graph.table import FEW
from onnxsurgeon_lite.surgery.types import begin_infer, infer

_FOREIGN = b"\xf8\x06\x05\xa2\x0d\x03abc"  # fields that no version of ONNX knows
_SMALL, _NAMED = (helper.make_tensor_type_proto(1, sizes) for sizes in ([2, 3], ["n"]))
_KINDS = [
    None,
    TypeProto(),
    _SMALL,
    _NAMED,
    helper.make_tensor_type_proto(7, range(60)),  # longer than a size of one byte tells
    helper.make_sequence_type_proto(_SMALL),
]


@pytest.fixture
def drawn() -> random.Random:
    return random.Random(0)


@pytest.fixture
def graph(drawn: random.Random) -> GraphProto:
    """Declarations of any kind: long, without a name, with more than a type, with foreign fields."""
    graph = GraphProto(name="v" * 200)
    for place in range(4 * FEW):
        info = graph.value_info.add()
        if drawn.random() < 0.9:
            info.name = drawn.choice(["é", "n" * 200, "v"]) + str(place)
        kind = drawn.choice(_KINDS)
        if kind is not None:
            info.type.CopyFrom(kind)
        if drawn.random() < 0.2:
            info.doc_string = "what it is " * drawn.randrange(20)
            info.metadata_props.add(key="k", value="v")
        if drawn.random() < 0.1:
            info.MergeFromString(_FOREIGN)
    graph.output.add(name="v1").type.CopyFrom(_NAMED)
    graph.metadata_props.add(key="k", value="v")
    return graph


def test_types_are_what_the_graph_says_and_equal_ones_are_one_object(graph):
    types = declared_types(graph, ["value_info"])

    said = {info.name: info.type for info in graph.value_info if info.HasField("type")}
    assert types == said
    assert len(set(map(id, types.values()))) == len(set(map(str, said.values())))


def test_the_declaration_of_an_output_counts_unless_it_says_nothing(graph):
    graph.output.add(name="v" * 3)
    graph.value_info.add(name="v" * 3).type.CopyFrom(_SMALL)

    types = declared_types(graph)

    assert types["v1"] == _NAMED
    assert types["vvv"] == _SMALL


def test_new_types_leave_everything_else_as_it_is(graph, drawn):
    names = [info.name for info in graph.value_info]
    types = {name: drawn.choice(_KINDS[1:]) for name in names if drawn.random() < 0.4}
    gone = {name for name in names if drawn.random() < 0.5}
    expected = GraphProto()
    expected.CopyFrom(graph)
    kept = [info for info in expected.value_info if info.name in types or info.name not in gone]
    for info in kept:
        if info.name in types:
            info.type.CopyFrom(types[info.name])

    declare_anew(graph, types, gone)

    assert list(graph.value_info) == kept
    assert list(graph.output) == list(expected.output)


def test_two_inferences_at_a_time_are_answered_each():
    nodes = "".join(f"v{i + 1} = Relu(v{i}) " for i in range(2 * FEW))
    last = f"v{2 * FEW}"
    text = "g (float[SIZE] v0) => (float[N] LAST) { NODES }".replace("NODES", nodes)
    models = [
        osl.build(text.replace("SIZE", size).replace("LAST", last)) for size in ("2", "3", "n")
    ]

    waiting = [begin_infer(model, {last}) for model in models]
    assert len(native._forks.begun) == 2  # the first one is given up, and asked for anew
    found = [wait({last})[last] for wait in waiting]

    assert found == [infer(model, {last})[last] for model in models]
    assert [kind.tensor_type.shape.dim[0].dim_value for kind in found] == [2, 3, 0]
