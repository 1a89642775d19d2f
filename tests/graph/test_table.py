"""What nodes read and make, found in their encoding, is what protobuf says of them."""

import random

import pytest
from onnx import GraphProto, NodeProto, helper

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph.index import GraphIndex, Indexed
from onnxsurgeon_lite.graph.table import FEW, NodeRow, NodeTable
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


def _encoded(nodes: list[NodeProto]) -> bytes:
    return GraphProto(node=nodes, name="after the nodes").SerializeToString()


def _table(nodes: list[NodeProto]) -> NodeTable:
    return NodeTable(_encoded(nodes))


@pytest.fixture(scope="module")
def nodes() -> list[NodeProto]:
    drawn = random.Random(0)
    names = ["", "a", "bé", "x" * 127, "x" * 128, "y" * 700, *(f"v{i}/out" for i in range(50))]
    return [_node(drawn, names) for _ in range(2 * FEW)]


def test_rows_are_what_protobuf_says(nodes):
    assert _table(nodes).rows == list(map(NodeRow.of, nodes))


def test_makers_and_bodies_are_what_protobuf_says(nodes):
    table = _table(nodes)

    bodied = [p for p, node in enumerate(nodes) if any(a.name == "body" for a in node.attribute)]
    assert table.bodied == bodied
    for name in ("a", "bé", "x" * 128, "y" * 700, "v7/out", "none"):
        assert table.makers(name) == [p for p, node in enumerate(nodes) if name in node.output]


def test_what_depends_on_values_is_what_protobuf_says():
    drawn = random.Random(1)
    names = ["x", "é", "", *(f"v{number}/é" for number in range(3 * FEW))]
    nodes = [
        helper.make_node(
            "Sum", drawn.choices(names[: place + 3], k=2), [names[place + 3], f"o{place}"]
        )
        for place in range(3 * FEW)
    ]
    asked = {"é", names[9], "o4", "none"}
    expected = set[str]()
    for node in nodes:
        if (asked | expected).intersection(node.input):
            expected.update(node.output)

    assert _table(nodes).downstream(asked) == expected


def test_nodes_that_are_unlike_differ_in_operator_numbers_of_values_or_attributes(nodes):
    first: dict[object, int] = {}
    for place, node in enumerate(nodes):
        attributes = [attribute.SerializeToString() for attribute in node.attribute]
        kind = node.op_type, node.domain, len(node.input), len(node.output), *attributes
        first.setdefault(kind, place)

    assert _table(nodes).unlike() == sorted(first.values())


def test_who_reads_makes_and_is_what_is_what_protobuf_says(nodes):
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        for name in filter(None, dict.fromkeys(node.input)):
            readers.setdefault(name, []).append(place)
    table = _table(nodes)

    assert table.readers(list(readers)) == readers
    some = range(1, len(nodes), 2)
    assert table.read_by(some) == {n for place in some for n in nodes[place].input if n}
    assert table.made_by(some) == {n for place in some for n in nodes[place].output if n}


def test_nodes_that_read_only_some_values_or_feed_others_are_what_protobuf_says(nodes):
    known = {"a", "bé", *(f"v{number}/out" for number in range(40))}
    table = _table(nodes)

    only = [
        place
        for place, node in enumerate(nodes)
        if any(node.input) and known.issuperset(filter(None, node.input))
    ]
    assert table.reading_only(known) == only
    readers = [place for place, node in enumerate(nodes) if known.intersection(node.input)]
    assert table.reading(known) == readers
    assert _table(nodes).reading({"a"}) == [p for p, node in enumerate(nodes) if "a" in node.input]
    chain = _table([helper.make_node("Relu", [f"{i}"], [f"{i + 1}"]) for i in range(FEW)])
    assert chain.feeding([0, 3, 7]) == [2, 6]


def test_twins_read_the_same_or_constants_with_one_content():
    drawn = random.Random(2)
    names = ["", "a", "b", "one", "uno", "zero"]
    nodes = [
        helper.make_node(
            drawn.choice(["Add", "Sub"]),
            drawn.choices(names, k=drawn.choice([0, 2, 3])),
            [f"{place}"],
            domain=drawn.choice(["", "ai.onnx"]),
        )
        for place in range(40)
    ]
    alike = {"one": b"1", "uno": b"1", "zero": b"0"}
    kinds = [(node.op_type, *(alike.get(name, name) for name in node.input)) for node in nodes]

    twins = [place for place, kind in enumerate(kinds) if kinds.count(kind) > 1]
    assert _table(nodes).twins(alike) == twins
    assert 0 < len(twins) < len(nodes)


def test_what_no_node_makes_is_what_protobuf_says(nodes):
    made = {name for node in nodes[:300] for name in node.output}

    read = {name for node in nodes[:300] for name in node.input}
    assert _table(nodes[:300]).outside() == read - made - {""}
    few = _table([helper.make_node("Relu", [name], ["b"]) for name in ("a", "b", "bé")])
    assert few.outside() == {"a", "bé"}


@pytest.mark.parametrize("edit", ["inserted", "removed", "replaced", "at the ends", "all", "same"])
def test_what_is_known_of_another_version_is_what_its_nodes_say(nodes, edit):
    named = [node for node in nodes if any(node.output)]
    known = _table(named)
    _ = known.rows, known.made, known.outside(), known.bodied, known.is_sorted
    edited = {
        "inserted": [*named[:200], *nodes[3:9], *named[200:]],
        "removed": [*named[:9], *named[10:]],
        "replaced": [*named[:200], helper.make_node("Neg", ["a"], ["own"]), *named[203:]],
        "at the ends": [named[5], *named[1:-1]],
        "all": named[::-1],
        "same": named,
    }[edit]

    table, fresh = NodeTable(_encoded(edited), known), _table(edited)

    assert table.rows == fresh.rows == list(map(NodeRow.of, edited))
    names = {name for node in edited for name in node.input} - {""}
    assert table.readers(names) == fresh.readers(names)
    assert [each.tolist() for each in table.made] == [each.tolist() for each in fresh.made]
    assert table.readers(["a", "bé"]) == fresh.readers(["a", "bé"])
    assert table.outside() == fresh.outside()
    assert table.bodied == fresh.bodied
    assert table.is_used(["a"]) == fresh.is_used(["a"])


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
    assert NodeTable.of(_chain().proto.graph).is_sorted
    assert not NodeTable.of(_chain((3, 400)).proto.graph).is_sorted
    assert GraphIndex.of(_chain((3, 400))).order.index(3) > 300


@pytest.mark.parametrize(
    ("place", "reads", "makes", "is_sorted"),
    [
        (300, "v7", "v301", True),
        (300, "v300", "v301", True),
        (300, "v400", "v301", False),
        (300, "v300", "v9", False),
        (300, "v300", "v300", False),
        (0, "v500", "v0", False),
    ],
)
def test_another_version_of_a_sorted_graph_is_known_to_be_sorted_or_not(
    place, reads, makes, is_sorted
):
    graph = _chain().proto.graph
    known = NodeTable(graph.SerializeToString())
    assert known.is_sorted

    graph.node[place].input[:], graph.node[place].output[:] = [reads], [makes]
    edited = graph.SerializeToString()

    assert NodeTable(edited, known).is_sorted is NodeTable(edited).is_sorted is is_sorted


def test_a_large_graph_with_two_producers_of_a_value_is_refused():
    with pytest.raises(GraphError, match="value 'v9' has two producers: Relu @8 and Relu @512"):
        GraphIndex.of(_chain(doubled="v9"))


def test_a_large_graph_says_who_makes_and_reads_a_value_before_it_indexes_all():
    index = GraphIndex.of(_chain())

    assert (index.maker("v300"), index.maker("v0"), index.maker("")) == (299, None, None)
    assert all(index.readers([f"v{i}"]) == {f"v{i}": [i]} for i in range(300, 310))
    assert "v511" in index
    assert "v513" not in index
    assert "producer" not in vars(index)


def test_an_indexed_model_keeps_its_index_and_its_copies_do_not():
    model = Indexed(GraphIndex.of(_chain((3, 40)))).index.model

    assert GraphIndex.of(model) is GraphIndex.of(model)
    assert GraphIndex.of(model.copy()) is not GraphIndex.of(model)
