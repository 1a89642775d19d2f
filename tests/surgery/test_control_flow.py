"""`freeze --fold` writes out what a frozen input decides: the branch of an If that runs, the iterations of a Loop."""

import numpy as np
import onnx
import pytest

from kit.bodies import X, same
from onnxsurgeon_lite import Fold, Freeze
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.run import run

BRANCHES = """g (float[2] x, bool flag, bool other) => (float[2] y, float[2] z, float[2] u) {
    h = Relu(x)
    no = Not(flag)
    y = If(flag) <
        then_branch = a () => (float[2] o) <float[2] w = {1,2}> {
            q = Add(h, w)
            o = If(no) <
                then_branch = c () => (float[2] p) { p = Neg(q) },
                else_branch = d () => (float[2] p) { p = Clip(q, , top) }
            >
        },
        else_branch = b () => (float[2] o) { q = Abs(x) o = Neg(q) }
    >
    z = If(no) <
        then_branch = a () => (float[2] o) <float[2] w = {3,4}> { q = Add(h, w) o = Neg(q) },
        else_branch = b () => (float[2] o) { o = Identity(x) }
    >
    u = If(other) <
        then_branch = a () => (float[2] o) { o = Neg(q1) },
        else_branch = b () => (float[2] o) { q = Exp(x) o = Neg(q) }
    >
}"""


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_the_branch_that_runs_takes_the_place_of_an_if(flag, other, model_of, runtime):
    text = BRANCHES.replace(
        "h = Relu(x)", "h = Relu(x) q1 = Sqrt(h) top = Constant<value_float = 2.5>()"
    )
    model = model_of(text)
    feeds = {"x": X, "flag": np.array(flag), "other": np.array(other)}

    frozen = Freeze((("flag", flag),), fold=True).apply(model).model

    onnx.checker.check_model(frozen.proto, full_check=True)
    del feeds["flag"]
    same(
        run(GraphIndex.of(frozen), feeds, runtime),
        run(GraphIndex.of(model), feeds | {"flag": np.array(flag)}, runtime),
    )
    assert [node.output[0] for node in frozen.proto.graph.node if node.op_type == "If"] == ["u"]
    assert "flag" not in GraphIndex.of(frozen)


LOOP = """g (float[2] x, int64 n, bool go) => (float[2] y, float[k,2] rows) {{
    h = Relu(x)
    y, rows = Loop(n, {going}, x) <body = b (int64 i, bool c, float[2] a)
                                    => (bool on, float[2] o, float[2] z) <float[2] w = {{1,2}}> {{
        f = Cast<to = 1>(i) g = Mul(w, f) q = Add(a, h) o = Sub(q, g) on = {on} z = Mul(o, o)
    }}>
}}"""


@pytest.mark.parametrize("opset", [12, 21])
@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_a_loop_of_few_iterations_is_written_out_when_that_is_asked_for(
    count, opset, model_of, runtime
):
    header = f'<ir_version: 7, opset_import: ["" : {opset}]>'
    model = model_of(header + LOOP.format(going="", on="Identity(c)"))
    feeds = {"x": X, "go": np.array(True)}

    kept = Freeze((("n", count),), fold=True).apply(model).model
    written = Freeze((("n", count),), fold=True, unroll=4).apply(model).model

    onnx.checker.check_model(written.proto, full_check=True)
    expected = run(GraphIndex.of(model), feeds | {"n": np.array(count)}, runtime)
    same(run(GraphIndex.of(written), feeds, runtime), expected)
    loops = ["Loop" in {node.op_type for node in m.proto.graph.node} for m in (kept, written)]
    assert loops == [True, count in (0, 5)]  # without a row its shape is unknown


@pytest.mark.parametrize(
    ("going", "on", "count", "why"),
    [
        (
            "go",
            "Identity(c)",
            3,
            "'go' is no constant (onnxdbg edit fold computes what is constant)",
        ),
        ("", "Less(i, n)", 3, "'on' in its body may end it earlier"),
        ("", "Identity(c)", 5, "it runs 5 times, at most 4 are unrolled"),
        ("", "Identity(c)", 0, "it has no iteration, so nothing says which shape its rows have"),
    ],
)
def test_a_loop_that_cannot_be_written_out_stays_and_that_is_said(going, on, count, why, model_of):
    model = model_of(LOOP.format(going=going, on=on))

    result = Freeze((("n", count),), fold=True, unroll=4).apply(model)

    assert "Loop" in {node.op_type for node in result.model.proto.graph.node}
    assert result.notes == (f"Loop @1 stays: {why}",)
    assert not Freeze((("n", count),), fold=True).apply(model).notes


def test_an_if_in_a_body_that_stays_is_replaced_too_with_constants_from_outside(model_of, runtime):
    model = model_of("""g (float[2] x, int64 n, bool flag) => (float[2] y) {
        y = Loop(n, , x) <body = b (int64 i, bool c, float[2] a) => (bool on, float[2] o) {
            on = Identity(c)
            q = Abs(a)
            o = If(flag) <
                then_branch = t () => (float[2] p) <float[2] w = {1,2}> { r = Add(q, w) p = Neg(r) },
                else_branch = e () => (float[2] p) { p = Mul(q, x) }
            >
        }>
    }""")
    feeds = {"x": X, "n": np.array(3)}

    for flag in (True, False):
        frozen = Freeze((("flag", flag),), fold=True).apply(model)

        (loop,) = frozen.model.proto.graph.node
        assert "If" not in {node.op_type for node in loop.attribute[0].g.node}
        assert not frozen.model.proto.graph.initializer
        onnx.checker.check_model(frozen.model.proto, full_check=True)
        same(
            run(GraphIndex.of(frozen.model), feeds, runtime),
            run(GraphIndex.of(model), feeds | {"flag": np.array(flag)}, runtime),
        )


def test_a_loop_that_a_constant_outside_keeps_going_is_written_out(model_of, runtime):
    """torch.jit.script exports `for i in range(n)` so."""
    model = model_of("""g (float[2] x, int64 n) => (float[2] y) {
        always = Constant <value = bool {1}> ()
        y = Loop(n, always, x) <body = b (int64 i, bool c, float[2] a) => (bool on, float[2] o) {
            on = Identity(always) o = Add(a, a) }> }""")

    written = Freeze((("n", 3),), fold=True, unroll=4).apply(model).model

    assert "Loop" not in {node.op_type for node in written.proto.graph.node}
    assert not written.proto.graph.initializer  # no number of an iteration that nothing reads
    expected = run(GraphIndex.of(model), {"x": X, "n": np.array(3)}, runtime)
    same(run(GraphIndex.of(written), {"x": X}, runtime), expected)


def test_fold_takes_the_branch_that_a_computed_constant_decides_and_folds_on(model_of, runtime):
    model = model_of("""g (float[2,3] x, bool open) => (float[2,3] y, float[2,3] z) <bool open = {1}> {
        s = Shape(x) one = Constant <value_int = 1> () n = Gather(s, one)
        three = Constant <value_int = 3> () c = Equal(n, three)
        y = If(c) <then_branch = t () => (float[2,3] p) <float[1] w = {2}> { v = Neg(w) p = Mul(x, v) },
                   else_branch = e () => (float[2,3] q) { q = Neg(x) }>
        z = If(open) <then_branch = t () => (float[2,3] p) { p = Abs(x) },
                      else_branch = e () => (float[2,3] q) { q = Neg(x) }>
    }""")
    feeds = {"x": np.ones((2, 3), np.float32), "open": np.array(True)}

    folded = Fold().apply(model).model

    # a default may change
    assert [node.op_type for node in folded.proto.graph.node] == ["Mul", "If"]
    same(run(GraphIndex.of(folded), feeds, runtime), run(GraphIndex.of(model), feeds, runtime))


def test_a_body_that_hides_outer_names_computes_the_same_without_its_if(model_of, runtime):
    model = model_of("""g (float[2] x, int64 n) => (float[2] y, float[2] z) <bool yes = {1}> {
        y = Loop(n, yes, x) <body = b (int64 i, bool c, float[2] a) => (bool on, float[2] o) {
            on = Identity(c) z = Abs(a)
            o = If(yes) <then_branch = t () => (float[2] p) { p = Neg(z) },
                         else_branch = e () => (float[2] q) { q = Exp(z) }> }>
        z = Exp(y)
    }""")
    feeds = {"x": X, "n": np.array(3)}

    folded = Fold().apply(model).model

    same(run(GraphIndex.of(folded), feeds, runtime), run(GraphIndex.of(model), feeds, runtime))
