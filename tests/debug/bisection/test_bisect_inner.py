"""A fault inside a branch, a loop or a function: named there, with the first iteration at which it shows."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import parser

import onnxsurgeon_lite as osl
from kit.bodies import BRANCH, CALLS, LOOP, PLANTED, loaded
from onnxsurgeon_lite import Model, SetOp, load, open_references
from onnxsurgeon_lite.debug.bisection.bisect import bisect
from onnxsurgeon_lite.debug.bisection.body_search import BodySearch
from onnxsurgeon_lite.debug.bisection.find import find
from onnxsurgeon_lite.debug.bisection.reproducer import finished, reproducing
from onnxsurgeon_lite.debug.causes.finding import Finder
from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.passes.targets import chosen_nodes
from onnxsurgeon_lite.recording.from_model import record
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.surgery.exposing import exposable

X = np.array([-1, 2], np.float32)


def recorded(model: Model, feeds, runtime, folder, inner: bool = True):
    index = GraphIndex.of(model)
    names = [*index.producer, *(exposable(index)[0] if inner else ())]
    record(index, feeds, runtime, folder / "refs", names)
    return open_references(folder / "refs")


def innermost(culprit):
    return innermost(culprit.inside[0]) if culprit.inside else culprit


@pytest.mark.parametrize("against", [False, True], ids=["stored", "against"])
@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_fault_is_named_inside(runtime, tmp_path, case, against):
    text, node, operator, culprit_id, value = PLANTED[case]
    good, feeds = loaded(text, tmp_path), {"x": X, "c": np.array(True)}
    faulty = SetOp((node,), operator).apply(good).model

    if against:
        with (
            Runtime(RuntimeOptions(opt="none")) as other,
            computed_references(GraphIndex.of(good), feeds, other) as references,
        ):
            result = bisect(faulty, references, feeds, runtime)
    else:
        references = recorded(good, feeds, runtime, tmp_path)
        result = bisect(faulty, references, feeds, runtime)

    every = {found.id: found for found in map(innermost, result.culprits)}  # each call is one
    found = every[culprit_id]
    assert found.value == value
    assert found.op_type == operator
    report = next(v for v in found.values if v.name == value)
    assert not report.comparison.match
    assert all(
        v.comparison is None or v.comparison.match for v in found.values if v.role == "input"
    )


def test_the_reproducer_is_of_the_innermost_culprit(runtime, tmp_path):
    text, node, operator, culprit_id, value = PLANTED["second branch"]
    good, feeds = loaded(text, tmp_path), {"x": X, "c": np.array(True)}
    faulty = SetOp((node,), operator).apply(good).model
    result = bisect(faulty, recorded(good, feeds, runtime, tmp_path), feeds, runtime)

    made = finished(reproducing(faulty, result, tmp_path / "out"))

    assert [n.op_type for n in load(made.folder / "model.onnx").proto.graph.node] == [operator]
    report = (made.folder / "report.md").read_text()
    assert report.startswith(f"# Mismatch at `{value}`\n")
    assert f"`{culprit_id}`" in report
    done = subprocess.run([sys.executable, "repro.py"], cwd=made.folder, capture_output=True)
    assert done.returncode == 1


def test_without_inner_references_the_node_is_named_and_how_to_get_them(runtime, tmp_path):
    good, feeds = loaded(BRANCH, tmp_path), {"x": X, "c": np.array(True)}
    references = recorded(good, feeds, runtime, tmp_path, inner=False)
    faulty = SetOp(("@1/then_branch/@1",), "Add").apply(good).model

    result = bisect(faulty, references, feeds, runtime)

    assert [c.id for c in result.culprits] == ["@1"]
    assert not result.culprits[0].inside
    assert (
        "the references have no values inside @1; to search there: onnxdbg record --inner"
        in result.notes
    )


def test_a_branch_that_should_not_be_taken_has_nothing_to_compare(runtime, tmp_path):
    good, feeds = loaded(BRANCH, tmp_path), {"x": X, "c": np.array(True)}
    references = recorded(good, feeds, runtime, tmp_path)
    faulty = good.copy()
    for attribute in chosen_nodes(GraphIndex.of(faulty), ["@1"])["@1"].attribute:
        other = {"then_branch": "else_branch", "else_branch": "then_branch"}
        attribute.name = other[attribute.name]

    result = bisect(faulty, references, feeds, runtime)

    assert [c.id for c in result.culprits] == ["@1"]
    assert "inside @1: no value computed by both sides mismatches" in result.notes


MAKES_NAN = {
    "branch": (BRANCH, "@1/then_branch/@1", "Div", {"x": X * 0, "c": np.array(True)},
               "@1/then_branch/r"),
    "loop": (LOOP, "@1/body/@3/else_branch/@0", "Div", {"x": X * 0, "c": np.array(True)},
             "@1/body/@3/else_branch/t[2]"),
    "function": (CALLS, "fn:local::inner/@1", "Div", {"x": X * 0, "c": np.array(True)},
                 "@0/function/@1/function/b"),
}  # fmt: skip


@pytest.mark.parametrize("case", MAKES_NAN)
def test_what_makes_nan_is_found_inside(runtime, tmp_path, case):
    text, node, operator, feeds, value = MAKES_NAN[case]
    model = SetOp((node,), operator).apply(loaded(text, tmp_path)).model

    result = find(model, "nan", feeds, runtime)

    found = innermost(result.culprits[0])
    assert (found.op_type, found.value) == (operator, value)
    assert "computed from" in found.findings[0].because
    made = finished(reproducing(model, result, tmp_path / "out"))
    assert [n.op_type for n in load(made.folder / "model.onnx").proto.graph.node] == [operator]


def test_where_what_makes_nan_cannot_be_reached_it_says_why(runtime, tmp_path):
    text = BRANCH.replace("Sub(q, x)", "Div(x, h)").replace("p = Abs(x)", "p = Div(h, h)")
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 12]>{text}'), tmp_path / "m")

    for which in (True, False):
        feeds = {"x": X * 0, "c": np.array(which)}
        result = find(load(tmp_path / "m"), "nan", feeds, runtime)

        assert result.culprits[0].id == "@1"
        assert not result.culprits[0].inside
        assert any(note.startswith("not searched inside: ") for note in result.notes)
        assert "opset 12" in result.notes[0]


def both(tmp_path, wrong: str, right: str, **how):
    """Bisect one model against another."""
    for name, text in (("wrong", wrong), ("right", right)):
        onnx.save(loaded(text, tmp_path).proto, tmp_path / f"{name}.onnx")
    return osl.bisect(tmp_path / "wrong.onnx", against=tmp_path / "right.onnx", **how)


def test_a_body_is_searched_that_reads_a_constant_of_one_model_alone(tmp_path):
    """The nodes of the two models count otherwise, and so do the values inside."""
    right = """
g (float[2] x, bool c) => (float[2] y) {
    n = Constant <value = int64 {4}> ()
    two = Constant <value = float {2.0}> ()
    h = Neg(x)
    y = Loop(n, c, h) <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] o) {
        on = Identity(go)
        o = Add(a, two)
    }>
}"""
    other = "    other = Constant <value = float {3.0}> ()\n    two ="
    wrong = right.replace("    two =", other).replace("Add(a, two)", "Add(a, other)")

    result = both(
        tmp_path, wrong, right, feeds={"x": X, "c": np.array(True)}, map="auto", cause=False
    )

    assert result.culprits[0].id == "@4"
    assert innermost(result.culprits[0]).id == "@4/body/@1"


def test_the_cause_in_a_function_that_a_function_calls_repairs_it(tmp_path):
    wrong = CALLS.replace("k = Add(a, a)", "k = Mul(a, a)")

    result = both(tmp_path, wrong, CALLS, feeds={"x": X, "c": np.array(True)})

    cause = innermost(result.culprits[0]).causes[0]
    assert cause.steps == (SetOp(("@0/function/@1/function/@0",), "Add"),)


@pytest.mark.parametrize(
    ("part", "told"),
    [(BodySearch, "not searched inside: no"), (Finder, "not known: its search failed: no")],
)
def test_what_fails_inside_or_in_the_search_of_causes_leaves_the_culprit(
    part, told, tmp_path, monkeypatch
):
    def refused(*_):
        raise RuntimeFailure("no", "look at it")

    monkeypatch.setattr(part, "_opened" if part is BodySearch else "explain", refused)

    feeds = {"x": X, "c": np.array(True)}
    result = both(tmp_path, BRANCH.replace("r = Sub", "r = Add"), BRANCH, feeds=feeds)

    assert result.culprits[0].id == "@1"
    assert told in "\n".join([str(result), *result.notes])


def test_a_report_keeps_an_operators_name_from_being_markup(runtime, tmp_path):
    def named(operator):
        net = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
            net (float[2] x) => (float[2] y) { y = local.F (x) }
            <domain: "local", opset_import: ["": 21]> F (x) => (y) { y = %s (x) }"""
        model = Model(parser.parse_model(net % operator))
        model.proto.graph.node[0].op_type = model.proto.functions[0].name = "<b>F</b>"
        return model

    good, faulty = named("Relu"), named("Abs")
    references = recorded(good, {"x": X}, runtime, tmp_path, inner=False)
    result = bisect(faulty, references, {"x": X}, runtime)

    made = finished(reproducing(faulty, result, tmp_path / "out", verify=False))

    assert "- float64: `<b>F</b> is a custom operator" in (made.folder / "report.md").read_text()
