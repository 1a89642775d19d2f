"""What nodes read and make, found in their encoding, is what protobuf says of them."""

import random

import pytest
from onnx import NodeProto, helper

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.table import FEW, NodeTable, Row, SharedRows
from onnxsurgeon_lite.model import Model

_FOREIGN = b"\xf8\x06\x05\xa2\x0d\x03abc"  # fields that no version of ONNX knows


def _node(drawn: random.Random, names: list[str]) -> NodeProto:
    """A node of any kind: with many inputs, with a body, of another domain, with foreign fields."""
    inputs = drawn.choices(names, k=drawn.choice([0, 1, 2, 3, 100]))
    outputs = drawn.choices(names, k=drawn.choice([1, 2]))
    domain = drawn.choice(["", "ai.onnx", "other"])
    node = helper.make_node("Relu", inputs, outputs, domain=domain, name=drawn.choice(names))
    if drawn.random() < 0.3:
        node.attribute.append(helper.make_attribute("axis", 1_000_003))
    if drawn.random() < 0.1:
        inner = helper.make_node("Add", [drawn.choice(names), "own"], ["own"])
        body = helper.make_graph([inner], "g", [], [helper.make_empty_tensor_value_info("own")])
        node.attribute.append(helper.make_attribute("body", body))
    if drawn.random() < 0.05:
        node.MergeFromString(_FOREIGN)
    return node


@pytest.fixture(scope="module")
def nodes() -> list[NodeProto]:
    drawn = random.Random(0)
    names = ["", "a", "bé", "x" * 127, "x" * 128, "y" * 700, *(f"v{i}/out" for i in range(50))]
    return [_node(drawn, names) for _ in range(2 * FEW)]


def test_rows_are_what_protobuf_says(nodes):
    assert NodeTable(nodes).rows() == list(map(Row.of, nodes))


def test_makers_and_bodies_are_what_protobuf_says(nodes):
    table = NodeTable(nodes)

    bodied = [p for p, node in enumerate(nodes) if any(a.name == "body" for a in node.attribute)]
    assert table.bodied == bodied
    for name in ("a", "bé", "x" * 128, "y" * 700, "v7/out", "none"):
        assert table.makers(name) == [p for p, node in enumerate(nodes) if name in node.output]


def test_what_no_node_makes_is_what_protobuf_says(nodes):
    made = {name for node in nodes[:300] for name in node.output}

    read = {name for node in nodes[:300] for name in node.input}
    assert NodeTable(nodes[:300]).outside() == read - made - {""}
    few = NodeTable([helper.make_node("Relu", [name], ["b"]) for name in ("a", "b", "bé")])
    assert few.outside() == {"a", "bé"}


def test_rows_of_another_version_are_those_of_its_nodes(nodes):
    shared = SharedRows()
    edited = [*nodes[:9], *nodes[10:200], nodes[5], *nodes[200:]]

    assert shared.of(NodeTable(nodes)) == list(map(Row.of, nodes))
    assert shared.of(NodeTable(edited)) == list(map(Row.of, edited))


def _chain(swapped: tuple[int, int] = (0, 0), doubled: str = "") -> Model:
    count = 2 * FEW
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    one, two = swapped
    nodes[one], nodes[two] = nodes[two], nodes[one]
    nodes += [helper.make_node("Relu", ["v1"], [doubled])] if doubled else []
    ends = (helper.make_tensor_value_info(name, 1, [1]) for name in ("v0", f"v{count}"))
    start, end = ends
    return Model(helper.make_model(helper.make_graph(nodes, "chain", [start], [end])))


def test_a_large_graph_is_known_to_be_sorted_or_not():
    assert NodeTable(list(_chain().proto.graph.node)).is_sorted()
    assert not NodeTable(list(_chain((3, 400)).proto.graph.node)).is_sorted()
    assert GraphIndex.of(_chain((3, 400))).order.index(3) > 300


def test_a_large_graph_with_two_producers_of_a_value_is_refused():
    with pytest.raises(GraphError, match="value 'v9' has two producers: Relu @8 and Relu @512"):
        GraphIndex.of(_chain(doubled="v9"))


def test_a_large_graph_says_who_makes_and_reads_a_value_before_it_indexes_all():
    index = GraphIndex.of(_chain())

    assert (index.maker("v300"), index.maker("v0"), index.maker("")) == (299, None, None)
    assert index.readers(["v300"]) == {"v300": [300]}
    assert "v511" in index
    assert "v513" not in index
    assert "producer" not in vars(index)
