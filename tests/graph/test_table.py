"""What the lists of a table and the index of a large graph say of nodes is what protobuf says of them."""

import random

import pytest
from onnx import GraphProto, NodeProto, helper

from onnxsurgeon_lite.errors import EditError, GraphError
from onnxsurgeon_lite.graph.index import GraphIndex, Indexed
from onnxsurgeon_lite.graph.schemas import checked, has_dangling
from onnxsurgeon_lite.graph.table import FEW, NodeTable, every_read
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.surgery.types import downstream

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


def _table(nodes: list[NodeProto], like: NodeTable | None = None) -> NodeTable:
    return NodeTable(nodes, _encoded(nodes), like)


def _index(nodes: list[NodeProto]) -> GraphIndex:
    return GraphIndex.of(Model(helper.make_model(helper.make_graph(nodes, "many", [], []))))


@pytest.fixture(scope="module")
def nodes() -> list[NodeProto]:
    drawn = random.Random(0)
    names = ["", "a", "bé", "x" * 127, "x" * 128, "y" * 700, *(f"v{i}/out" for i in range(50))]
    return [_node(drawn, names) for _ in range(2 * FEW)]


@pytest.fixture(scope="module")
def valid(nodes) -> list[NodeProto]:
    """The same nodes, each with values of its own."""
    made = []
    for place, node in enumerate(nodes):
        made.append(NodeProto())
        made[-1].CopyFrom(node)
        made[-1].output[:] = [f"v{place}/é" if name else "" for name in node.output]
        for slot, name in enumerate(node.input):
            made[-1].input[slot] = name.replace("/out", "/é")
    return made


def test_rows_are_what_protobuf_says(nodes):
    table = _table(nodes)

    assert [row.op_type for row in table.rows] == [node.op_type for node in nodes]
    assert [row.needs for row in table.rows] == list(map(every_read, nodes))
    assert [row.outputs for row in table.rows] == [list(node.output) for node in nodes]
    domains = ["" if node.domain == "ai.onnx" else node.domain for node in nodes]
    assert [row.domain for row in table.rows] == domains
    assert (table.operators, table.domains) == ({"Relu"}, {"", "other"})


def test_makers_and_bodies_are_what_protobuf_says(nodes):
    table = _table(nodes)

    bodied = [p for p, node in enumerate(nodes) if any(a.name == "body" for a in node.attribute)]
    assert table.bodied == NodeTable(nodes).bodied == bodied
    first, again = table.made
    for name in ("a", "bé", "x" * 128, "y" * 700, "v7/out"):
        makers = [p for p, node in enumerate(nodes) if name in node.output]
        assert [first[name], *dict.fromkeys(p for n, p in again if n == name)] == makers
    assert "none" not in first
    assert "" not in first


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

    assert downstream(_index(nodes), asked) == asked | expected


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (helper.make_node("Relu", ["v0", "v0"], ["own"]), "Relu"),
        (helper.make_node("LeakyRelu", ["v0"], ["own"], alpha="no number"), "LeakyRelu"),
    ],
)
def test_each_kind_of_node_of_a_large_graph_is_checked(wrong, said):
    alpha = helper.make_node("LeakyRelu", ["v0"], ["usual"], alpha=0.1)
    nodes = [*_chain().proto.graph.node, alpha, wrong]
    model = _chain()
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(nodes[:-1])
    model.proto.opset_import[0].version = 16
    assert checked(model)

    model.proto.graph.node.append(wrong)

    with pytest.raises(EditError, match=said):
        checked(model)


def test_who_reads_makes_and_is_what_is_what_protobuf_says(valid):
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(valid):
        for name in filter(None, dict.fromkeys(every_read(node))):
            readers.setdefault(name, []).append(place)
    index = _index(valid)

    assert index.readers(list(readers)) == readers
    assert index.consumers == readers
    some = range(1, len(valid), 2)
    assert index.read_by(some) == {n for place in some for n in every_read(valid[place]) if n}
    assert index.made_by(some) == {n for place in some for n in valid[place].output if n}


def test_nodes_that_read_only_some_values_are_what_protobuf_says(valid):
    known = {"a", "bé", *(f"v{number}/é" for number in range(40))}
    index = _index(valid)

    only = [
        place
        for place, node in enumerate(valid)
        if any(every_read(node)) and known.issuperset(filter(None, every_read(node)))
    ]
    assert index.reading_only(known) == only
    readers = [place for place, node in enumerate(valid) if known.intersection(every_read(node))]
    assert index.reading(known) == readers


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


def test_what_no_node_makes_is_known():
    complete = _chain()

    assert not has_dangling(GraphIndex.of(complete))
    complete.proto.graph.node[300].input[0] = "bé"
    assert has_dangling(GraphIndex.of(complete))


@pytest.mark.parametrize("edit", ["inserted", "removed", "replaced", "at the ends", "all", "same"])
def test_what_is_known_of_another_version_is_what_its_nodes_say(nodes, edit):
    named = [node for node in nodes if any(node.output)]
    known = _table(named)
    _ = known.kinds, known.reads, known.makes
    edited = {
        "inserted": [*named[:200], *nodes[3:9], *named[200:]],
        "removed": [*named[:9], *named[10:]],
        "replaced": [*named[:200], helper.make_node("Neg", ["a"], ["own"]), *named[203:]],
        "at the ends": [named[5], *named[1:-1]],
        "all": named[::-1],
        "same": named,
    }[edit]

    table, fresh = _table(edited, known), _table(edited)

    assert table.kinds == fresh.kinds == [(node.op_type, node.domain) for node in edited]
    assert table.reads == fresh.reads == [list(node.input) for node in edited]
    assert table.makes == fresh.makes == [list(node.output) for node in edited]
    assert table.bodied == fresh.bodied
    assert table.needs == fresh.needs


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
    assert NodeTable.of(graph).is_sorted

    graph.node[place].input[:], graph.node[place].output[:] = [reads], [makes]

    assert NodeTable.of(graph).is_sorted is NodeTable(graph.node).is_sorted is is_sorted


def test_a_large_graph_with_two_producers_of_a_value_is_refused():
    with pytest.raises(GraphError, match="value 'v9' has two producers: Relu @8 and Relu @512"):
        GraphIndex.of(_chain(doubled="v9"))


def test_a_large_graph_says_who_reads_a_value_before_it_indexes_all():
    index = GraphIndex.of(_chain())

    assert all(index.readers([f"v{i}"]) == {f"v{i}": [i]} for i in range(300, 304))
    assert "v511" in index
    assert "v513" not in index
    assert "consumers" not in vars(index)


def test_an_indexed_model_keeps_its_index_and_its_copies_do_not():
    model = Indexed(GraphIndex.of(_chain((3, 40)))).index.model

    assert GraphIndex.of(model) is GraphIndex.of(model)
    assert GraphIndex.of(model.copy()) is not GraphIndex.of(model)
