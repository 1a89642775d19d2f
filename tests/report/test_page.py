"""`--html`: what stands in the page of each command, and that it is refused where it cannot be written."""

import errno
import json
import random
import re
import sys
import threading
from collections import defaultdict

import jsonschema
import numpy as np
import onnx
import pytest
import schemas
from onnx import helper

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.causes import model, numbers
from onnxsurgeon_lite.errors import (
    OutputExistsError,
    UnknownNameError,
    UsageError,
    WriteError,
)
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.native import RejectedError
from onnxsurgeon_lite.report.page import Sight
from onnxsurgeon_lite.report.page.drawing import _layout
from onnxsurgeon_lite.report.page.graph import graph_parts
from onnxsurgeon_lite.report.page.tensors import tensor_part
from onnxsurgeon_lite.report.results import data as plain

FAULTY, WHOLE = FIXTURES / "faulty_attribute.onnx", FIXTURES / "whole_model.onnx"
REFERENCES = FIXTURES / "references/whole_model.npz"
MOST = 64 + 2 * 16  # boxes of a drawing, with what enters and leaves


def data_of(page):
    """The JSON inside a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    return json.loads(found[1])


WRITTEN = {
    "bisect": lambda page: osl.bisect(FAULTY, REFERENCES, html=page),
    "find": lambda page: osl.bisect(
        FIXTURES / "transformer_block.onnx", find="overflow:float16", html=page
    ),
    "compare": lambda page: osl.compare_sets(FAULTY, REFERENCES, every=True, html=page),
    "sets": lambda page: osl.compare_sets(REFERENCES, REFERENCES, html=page),
    "diff": lambda page: osl.diff(WHOLE, FAULTY, html=page),
    "match": lambda page: osl.match(WHOLE, FIXTURES / "whole_model_dynamo.onnx", html=page),
    "rank": lambda page: osl.rank(FAULTY, against=WHOLE, html=page),
    "blame": lambda page: osl.rank(FAULTY, against=WHOLE, by="output", html=page),
    "risks": lambda page: osl.rank(WHOLE, fp16_risk=True, html=page),
    "convert": lambda page: osl.convert(WHOLE, "float16", tolerance=0.1, report=True, html=page),
    "profile": lambda page: osl.profile(WHOLE, runs=1, html=page),
    "profiles": lambda page: osl.profile(WHOLE, runs=1, against=FAULTY, html=page),
    "inspect": lambda page: osl.inspect(WHOLE, html=page),
    "node": lambda page: osl.inspect(WHOLE, node="Add_7", html=page),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The data of the page of every kind of result, and what the function returned."""
    folder = tmp_path_factory.mktemp("pages")
    results = {name: write(folder / f"{name}.html") for name, write in WRITTEN.items()}
    return {name: (data_of(folder / f"{name}.html"), result) for name, result in results.items()}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_data_keeps_its_schema_and_holds_the_result(name, written):
    data, result = written[name]

    jsonschema.validate(data, schemas.schemas()["page"])
    assert data["result"] == json.loads(json.dumps(result.to_json()))
    assert data["verdict"]["headlines"]
    assert data["verdict"]["details"] == str(result).splitlines()


def test_a_bisection_shows_cause_repair_error_culprit_and_tensors(written):
    data, result = written["bisect"]
    measure = data["measures"][0]

    assert "Conv_6" in data["verdict"]["headlines"][0]
    assert data["verdict"]["steps"][0]["command"].startswith("onnxdbg edit set-attr")
    assert [mark["node"] for mark in data["marks"] if mark["kind"] == "culprit"] == [6]
    assert measure["nodes"] == list(range(11))
    assert measure["bad"] == [False] * 6 + [True] * 5
    assert measure["numbers"][10] == result.outputs["31"].max_abs
    assert data["graphs"][0]["close_ups"][0]["node"] == 6
    assert data["tensors"][0]["name"] == "27"
    assert data["tensors"][0]["worst"][0]["difference"] == pytest.approx(2.109, abs=0.01)


def test_the_node_that_the_cause_names_is_marked(tmp_path):
    text = "g (float[4,8] x) => (float[4,8] y) { a = Mul(x, s) b = Tanh(a) y = MatMul(b, w) }"
    w, x = numbers(8, 8), {"x": numbers(4, 8, seed=1)}
    right, wrong = (model(text, s=np.float32(s), w=w) for s in (0.5, 0.3))
    known = {"y": osl.run(right, feeds=x)["y"]}

    result = osl.bisect(wrong, known, feeds=x, html=tmp_path / "page.html")

    marks = data_of(tmp_path / "page.html")["marks"]
    assert "'s' of Mul (@0) is 0.3" in result.culprits[0].causes[0].sentence
    assert [mark["node"] for mark in marks if mark["kind"] == "cause"] == [0]
    assert [mark["node"] for mark in marks if mark["kind"] == "culprit"] == [2]


def test_a_diff_pairs_the_nodes_and_marks_what_changed(written):
    data, _ = written["diff"]

    assert [graph["title"] for graph in data["graphs"]] == [WHOLE.name, FAULTY.name]
    assert data["pairs"] == [[node, node] for node in range(11)]
    assert [(m["graph"], m["node"], m["kind"]) for m in data["marks"]] == [
        (0, 6, "changed"),
        (1, 6, "changed"),
    ]


def test_a_profile_has_a_measure_for_time_memory_work_and_bytes(written):
    data, _ = written["profile"]

    assert [measure["unit"] for measure in data["measures"]] == ["ms", "MB", "MACs", "MB"]
    assert sum(data["measures"][2]["numbers"]) == 324000


def boxes(graph):
    """Every drawing of a graph."""
    return [module.drawing for module in graph.modules]


def chain(names, tmp_path):
    """A model in which each node reads the one before."""
    nodes = [
        helper.make_node("Neg", [a], [b], name=b)
        for a, b in zip(["x", *names], names, strict=False)
    ]
    ends = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", names[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, ir_version=10), tmp_path / "chain.onnx")
    return GraphIndex.of(osl.load(tmp_path / "chain.onnx"))


def test_no_drawing_of_a_flat_model_has_more_boxes_than_can_be_read(tmp_path):
    graph = graph_parts(chain([f"v{i}" for i in range(5000)], tmp_path), "chain")[0]

    assert max(len(drawing.boxes) for drawing in boxes(graph)) <= MOST
    drawn = [number for d in boxes(graph) for kind, number in d.boxes if kind == "node"]
    assert sorted(drawn) == list(range(5000))
    assert len(graph.layouts) < 10  # equal structures are laid out once


def test_modules_hold_their_nodes_and_lines_cross_their_borders(tmp_path):
    names = [f"/part{i}/Neg_output_0" for i in range(3)]
    graph = graph_parts(chain(names, tmp_path), "chain")[0]
    top, *layers = graph.modules

    assert [module.path for module in layers] == ["part0", "part1", "part2"]
    assert [kind for kind, _ in top.drawing.boxes] == ["module"] * 3 + ["in", "out"]
    middle = layers[1].drawing
    kinds = [(middle.boxes[a][0], middle.boxes[b][0]) for a, b, _ in middle.lines]
    assert sorted(kinds) == [("in", "node"), ("node", "out")]


LEAKY = (
    "leaky (float[N] x) => (float[N] y) { h = LeakyRelu<alpha = 0.1>(x) t = Tanh(h) y = Neg(t) }"
)


def test_a_graph_that_differs_in_attributes_alone_shares_the_drawing(tmp_path):
    right = osl.build(LEAKY)
    wrong = osl.set_attr(right, "@0", {"alpha": 0.2}).model
    sight = Sight([GraphIndex.of(right), GraphIndex.of(wrong)])

    one, other = sight.graphs(2)

    assert other.modules is one.modules
    assert plain(other) == plain(graph_parts(sight.models[1], other.title)[0])
    osl.diff(right, wrong, html=tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["graphs"] == json.loads(json.dumps(plain([one, other])))


@pytest.mark.parametrize(
    "other",
    [
        LEAKY.replace("Neg(t)", "Neg(h)"),
        LEAKY.replace("Tanh", "Sin"),
        LEAKY.replace("x", "z"),
        LEAKY.replace("y = Neg", "[n] y = Neg"),
    ],
    ids=["edge", "operator", "value", "name"],
)
def test_a_graph_of_another_structure_has_its_own_drawing(other):
    sight = Sight([GraphIndex.of(osl.build(LEAKY)), GraphIndex.of(osl.build(other))])

    _, drawn = sight.graphs(2)

    assert plain(drawn) == plain(graph_parts(sight.models[1], drawn.title)[0])


WITH_BODIES = """g (float[4] x, int64 n, bool c) => (float[4] y) {
    w = Relu(x) yes = Constant<value = bool {1}>()
    l = Loop(n, yes, x) <body = b (int64 i, bool k0, float[4] s) => (bool k, float[4] t) {
        k = Identity(k0) e = Elu<alpha = 1.5>(s) t = Add(e, w) }>
    y = If(c) <then_branch = p () => (float[4] q) { q = Sin(l) },
        else_branch = p () => (float[4] q) { q = Cos(w) }> }"""


def test_bodies_are_modules_that_captured_values_enter():
    graph = graph_parts(GraphIndex.of(osl.build(WITH_BODIES)), "bodies")[0]
    ids = [f"@{n}" for n in range(4)] + graph.inner_ids

    assert graph.inner_ids[:3] == ["@2/body/@0", "@2/body/@1", "@2/body/@2"]
    opened = {node: graph.modules[module] for node, module in graph.bodies}
    body, branches = opened[2].drawing, opened[3].drawing
    assert {ids[n] for kind, n in body.boxes if kind == "node"} == {*graph.inner_ids[:3]}
    entering = [graph.values[n] for kind, n in body.boxes if kind == "in"]
    assert sorted(entering) == ["k0", "s", "w"]
    within = [graph.modules[n] for kind, n in branches.boxes if kind == "module"]
    assert [module.label for module in within] == ["then_branch", "else_branch"]
    assert {graph.values[n] for kind, n in branches.boxes if kind == "in"} == {"l", "w"}
    whole = graph.modules[0].drawing
    ends = {(whole.boxes[a], whole.boxes[b]) for a, b, _ in whole.lines}
    assert (("node", 0), ("node", 2)) in ends  # w is captured


def test_bodies_that_are_too_many_are_counted(monkeypatch):
    monkeypatch.setattr("onnxsurgeon_lite.report.page.graph._MOST_INNER", 2)

    graph = graph_parts(GraphIndex.of(osl.build(WITH_BODIES)), "bodies")[0]

    assert len(graph.bodies) == 1
    assert graph.left_out == 2


def test_the_culprit_in_a_body_is_marked_there(tmp_path):
    right = osl.build(WITH_BODIES)
    wrong = osl.set_attr(right, "@2/body/@1", {"alpha": 1.7}).model
    feeds = {"x": np.float32([-1, 2, -3, 4]), "n": np.int64(2), "c": np.array(True)}

    osl.bisect(wrong, against=right, feeds=feeds, html=tmp_path / "page.html", cause=False)

    marks = data_of(tmp_path / "page.html")["marks"]
    assert [m["node"] for m in marks if m["kind"] == "culprit"] == ["@2/body/@1", 2]


def test_boxes_that_no_line_connects_stand_side_by_side():
    layout = _layout(6, [(0, 1), (1, 2), (3, 4), (4, 5), (3, 5)])

    assert [len(bends) for bends in layout.bends] == [0, 0, 0, 0, 1]
    assert max(layout.x[:3]) < min(layout.x[3:])


def test_no_box_is_drawn_over_another():
    chosen = random.Random(1)
    for _ in range(400):
        count = chosen.randint(4, 25)
        reads = [chosen.sample(range(box), min(box, chosen.randint(0, 3))) for box in range(count)]
        lines = [(start, end) for end, starts in enumerate(reads) for start in starts]

        layout = _layout(count, lines)

        levels = defaultdict(list)
        for x, y in zip(layout.x, layout.y, strict=True):
            levels[y].append(x)
        for xs in levels.values():
            assert np.all(np.diff(sorted(xs)) > 0.9), (count, lines)


@pytest.mark.parametrize(
    "shape", [(), (1,), (300,), (2, 3), (500, 3), (1, 5, 40, 30), (2, 3, 4, 5, 6), (1, 64, 1, 1)]
)
def test_a_tensor_of_any_shape_fits_a_small_picture(shape):
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)

    part = tensor_part(0, "x", array, np.asarray(array + 1))

    for picture in (part.actual, part.reference, part.difference):
        assert 1 <= picture.width <= 136
        assert 1 <= picture.height <= 136
    assert part.worst[0].difference == 1


def test_what_is_not_finite_is_shown_and_counts_as_the_worst():
    actual = np.float32([[1, np.nan], [np.inf, 2]])

    part = tensor_part(0, "x", actual, np.float32([[1, 3], [np.inf, 2.5]]))

    assert [each.index for each in part.worst] == [[0, 1], [1, 1]]
    assert part.difference.high == 0.5


def test_a_tensor_is_not_called_right_where_its_picture_shows_that_it_is_not():
    """What a node of a quantized model makes is compared for its own scale, and drawn beside the float model's."""
    wanted, made = np.float32([0, 12]), np.float32([0, 3])
    as_quantized = osl.compare(made, made)

    says = [tensor_part(0, "x", made, each, as_quantized).says for each in (wanted, made)]

    assert says[0] == "float32 [2], off by up to 9"
    assert "max abs 0" in says[1]


def test_the_texts_of_metadata_of_a_changed_node_are_counted(tmp_path):
    one = osl.load(WHOLE)
    other = one.copy()
    for key in ("a", "b", "c"):
        other.proto.graph.node[3].metadata_props.add(key=key, value=key * 400)
    osl.diff(one, osl.set_attr(other, "@3", {"group": 1}).model, html=tmp_path / "page.html")

    rows = data_of(tmp_path / "page.html")["tables"][0]["rows"]
    assert [row[3] for row in rows if "(@3)" in row[2]] == ["3 texts of metadata"]


def test_a_diff_that_ran_says_how_the_outputs_compare(tmp_path):
    osl.diff(WHOLE, FAULTY, run=True, html=tmp_path / "page.html")

    assert "outputs mismatch: '31'" in data_of(tmp_path / "page.html")["verdict"]["headlines"]


def test_a_graph_is_drawn_here_where_a_fork_fails(monkeypatch, written):
    def refuse():
        raise RejectedError("no memory")

    monkeypatch.setattr("onnxsurgeon_lite.graph.native.begin_together", lambda *_, **__: refuse)
    indexes = [GraphIndex.of(osl.load(path)) for path in (WHOLE, FAULTY)]

    parts = Sight(indexes).graphs(2)

    drawn = [json.loads(json.dumps(plain(part))) for part in parts]
    shown = written["diff"][0]["graphs"]
    assert [part["modules"] for part in drawn] == [part["modules"] for part in shown]
    assert {*drawn[0]["types"]} <= {*shown[0]["types"]}  # those declared


def test_forks_are_made_by_the_thread_that_asks(monkeypatch):
    """Another would fork while this one holds locks, such as that of a cached property, which the fork waits for."""
    made, forked = [], native._forked

    def counted():
        made.append(threading.get_ident())
        return forked()

    monkeypatch.setattr(native, "_forked", counted)
    Sight([GraphIndex.of(osl.load(path)) for path in (WHOLE, FAULTY)]).graphs(2)

    assert made == [threading.get_ident()] * 2


def test_sequences_texts_and_empty_tensors_have_no_picture():
    for value in ([np.ones(2)], np.array(["a"]), np.empty((0, 2)), None):
        assert tensor_part(0, "x", value, None) is None


def test_the_page_runs_nothing_but_its_own_scripts_and_loads_nothing(tmp_path):
    osl.inspect(WHOLE, html=tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()

    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'nonce-")
    assert "script-src 'unsafe" not in policy
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", text.split("<style>")[0])


def test_a_page_is_refused_before_the_work_where_something_stands(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("mine")

    with pytest.raises(OutputExistsError):
        osl.diff(WHOLE, FAULTY, html=page)
    assert page.read_text() == "mine"
    osl.diff(WHOLE, FAULTY, html=page, force=True)
    assert page.read_text() != "mine"


def test_a_page_that_is_begun_leaves_nothing_where_the_command_fails(tmp_path):
    with pytest.raises(UnknownNameError):
        osl.inspect(WHOLE, node="nowhere", html=tmp_path / "page.html")

    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_told_and_leaves_nothing(monkeypatch, tmp_path):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(WriteError, match="No space left"):
        osl.inspect(WHOLE, html=tmp_path / "page.html")

    assert not [*tmp_path.iterdir()]


def test_a_missing_library_is_one_line_that_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)

    with pytest.raises(UsageError, match="a page needs igraph") as error:
        osl.inspect(WHOLE, html=tmp_path / "page.html")
    assert "onnxsurgeon-lite[html]" in error.value.hint
