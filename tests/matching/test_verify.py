"""Verifying proves something: sizes, counts and flags that tell models apart, and a word where nothing was proved."""

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import FeedsError, RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.trials import run_trials
from onnxsurgeon_lite.runtime.feeds import Recipe
from onnxsurgeon_lite.runtime.session import Runtime

SOFTMAX = "g (float[n, c, h, w] x) => (float[n, c, h, w] y) { y = Softmax<axis = -1>(x) }"
LOOP = """
    g (float[2] x, int64 trips) => (float[2] y) <bool yes = {1}> {
        y = Loop(trips, yes, x) <body = b (int64 i, bool going, float[2] s) => (bool on, float[2] t) {
            on = Identity(going) t = Add(s, s)
        }>
    }
"""
BRANCHES = """
    g (float[2] x, bool flag) => (float[2] y) {
        y = If(flag) <then_branch = t () => (float[2] a) { a = Neg(x) },
                      else_branch = e () => (float[2] b) { b = Abs(x) }>
    }
"""


def test_symbolic_dimensions_have_distinct_sizes_above_1(model_of):
    model = model_of(SOFTMAX)

    changed = osl.set_attr(model, "op:Softmax", {"axis": 2}, verify=True)

    assert not changed.match
    assert changed.ran == (
        "made x: float [2, 3, 4, 5] normal, seed 0",
        "made x: float [4, 6, 8, 10] normal, seed 1",
    )


def test_diff_runs_on_such_sizes_too(model_of):
    model = model_of(SOFTMAX)
    changed = osl.set_attr(model, "op:Softmax", {"axis": 2}).model

    assert not osl.diff(model, changed, run=True).outputs["y"].match
    assert osl.diff(model, changed, run=True, dim={"w": 1, "h": 1}).outputs["y"].match


def test_a_model_that_runs_at_other_sizes_only_gets_those(model_of):
    convolution = """
        g (float[n, 1, h, w] x) => (float[n, 1, p, q] y) <float[1, 1, 9, 9] k = {%s}> { y = Conv(x, k) }
    """
    wide = model_of(convolution % ", ".join(["0.5"] * 81), "wide.onnx")
    equal = model_of("g (float[a, 2] x, float[b, 2] z) => (float[c, 2] y) { y = Add(x, z) }")
    one = model_of(
        "g (float[a, 2] x) => (float[1, 2] y) <int64[2] s = {1, 2}> { y = Reshape(x, s) }",
        "one.onnx",
    )

    assert osl.verify(wide, wide).told[0] == "made x: float [2, 1, 96, 128] normal, seed 0"
    assert "made x: float [2, 2] normal, seed 0" in osl.verify(equal, equal).told
    assert "symbolic dimensions have size 1" in osl.verify(one, one).told[1]


def test_dimensions_that_must_be_equal_leave_the_others_distinct(model_of):
    cache = model_of(
        "g (float[n, 1, s] x, float[n, 1, p, 2] k, float[n, 1, r, 2] v) => (float[n, 1, p, 2] y, float[n, 1, s] z)"
        "{ y = Add(k, v) z = Neg(x) }"
    )

    assert osl.verify(cache, cache).told == (
        "made x: float [2, 1, 3] normal, seed 0",
        "made k: float [2, 1, 4, 2] normal, seed 0",
        "made v: float [2, 1, 4, 2] normal, seed 0",
        "made x: float [4, 1, 6] normal, seed 1",
        "made k: float [4, 1, 8, 2] normal, seed 1",
        "made v: float [4, 1, 8, 2] normal, seed 1",
    )


def test_a_dimension_that_must_be_a_sum_of_two_others_is_found(model_of):
    masked = model_of("""g (float[n, s] x, float[n, t] mask, float[n, p] past) => (float[n, u] y) {
        all = Concat<axis = 1>(past, x)
        sizes = Shape(all)
        m = Reshape(mask, sizes)
        y = Add(all, m)
    }""")

    told = osl.verify(masked, masked).told

    assert [line.partition(" normal")[0] for line in told] == [
        "made x: float [2, 3]",
        "made mask: float [2, 8]",
        "made past: float [2, 5]",
        "made x: float [4, 6]",
        "made mask: float [4, 16]",
        "made past: float [4, 10]",
    ]


def test_where_no_sizes_fit_the_error_asks_for_them(model_of):
    model = model_of(
        "g (float[a, b] x) => (float[7, b] y) <int64[2] s = {7, 1}> { y = Reshape(x, s) }"
    )

    with pytest.raises(RuntimeFailure) as raised:
        osl.verify(model, model)

    assert "--dim a=... --dim b=..." in raised.value.hint


def test_a_dimension_that_is_a_sum_has_its_value(model_of):
    model = model_of("""
        g (float[p] x, float[q] z, float[r] m) => (float[c] y) { h = Concat<axis = 0>(x, z) y = Add(h, m) }
    """)
    model.proto.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "p + q"

    assert osl.verify(model, model).told[-1] == "made m: float [10] normal, seed 1"
    assert osl.run(model)["y"].shape == (2,)


def test_loops_run_more_than_once(model_of):
    model = model_of(LOOP)
    once = model.copy()
    once.proto.graph.node[0].input[0] = "one"
    once.proto.graph.initializer.add(name="one", data_type=7, int64_data=[1])

    found = osl.diff(model, once, run=True)

    assert "made trips: int64 [] 3" in found.told
    assert not found.outputs["y"].match


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_flags_are_on_and_off(branch, model_of):
    model = model_of(BRANCHES)
    wrong = model.copy()
    body = next(a.g for a in wrong.proto.graph.node[0].attribute if a.name == branch)
    body.node[0].op_type = "Exp"

    assert not osl.verify(model, wrong).match


def test_a_fault_that_one_seed_hides_is_found(model_of):
    model = model_of("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    identity = osl.set_op(model, "op:Relu", "Identity").model

    made = [osl.make_feeds(GraphIndex.of(model), osl.Recipe(seed))[0]["x"][0] for seed in range(9)]
    hidden = next(seed for seed in range(8) if made[seed] > 0 > made[seed + 1])

    assert not osl.verify(model, identity, seed=hidden).match


def test_outputs_and_inputs_that_swapped_names_are_compared_by_position(model_of):
    model = model_of(
        "g (float[2] a, float[2] b) => (float[2] y, float[2] z) { y = Sub(a, b) z = Exp(b) }"
    )

    assert osl.rename(model, {"y": "z", "z": "y"}, verify=True).match
    assert osl.rename(model, {"a": "b", "b": "a"}, verify=True).match
    assert osl.rename(model, {"y": "z", "z": "other", "a": "b", "b": "a"}, verify=True).match
    assert osl.verify(model, osl.extract(model, outputs="z,y").model).match
    wrong = osl.set_op(model, "op:Exp", "Neg").model
    assert not osl.verify(model, osl.rename(wrong, {"y": "z", "z": "y"}).model).match


def test_a_promoted_value_is_fed_its_old_content(model_of):
    model = model_of("g (float[2] x) => (float[2] y) <float[2] w = {3, 4}> { y = Mul(x, w) }")
    promoted = osl.promote(model, "w", verify=True)

    assert promoted.match
    assert osl.diff(model, promoted.model, run=True).outputs["y"].match
    assert osl.diff(promoted.model, model, run=True).outputs["y"].match
    assert osl.freeze(promoted.model, {"w": [3, 4]}, verify=True).match


def test_a_frozen_value_is_fed_to_the_original_where_folding_leaves_no_constant(model_of):
    model = model_of(BRANCHES)

    assert osl.freeze(model, {"flag": False}, fold=True, verify=True).match
    steps = [osl.Freeze((("flag", False),), fold=True), osl.Rename((("y", "z"),))]
    assert osl.apply(steps, model, verify=True).match


def test_a_fill_takes_numbers(model_of):
    model = model_of(
        "g (float[1, 1, 2, 2] x, float[4] scales) => (float[a, b, c, d] y) { y = Resize(x, , scales) }"
    )

    assert osl.run(model, fill={"scales": "[1,1,2,2]"})["y"].shape == (1, 1, 4, 4)
    assert osl.run(model, fill={"scales": "1"})["y"].shape == (1, 1, 2, 2)
    with pytest.raises(FeedsError, match="shape"):
        osl.run(model, fill={"scales": "[1,2]"})
    with pytest.raises(FeedsError, match="'many', the fill of input 'scales', is not a known fill"):
        osl.run(model, fill={"scales": "many"})
    words = ["run", str(model.path), "--fill", "scales=[1,1,2,2]"]
    assert "[1, 1, 4, 4]" in CliRunner().invoke(app, words).output


def test_where_every_feed_leaves_an_output_the_same_nothing_was_proved(model_of):
    model = model_of("""
        g (float[2, 1] x) => (float[2, 1] y, float[2, 1] z) { y = Softmax<axis = 1>(x) z = Neg(x) }
    """)
    alone = str(model.path.with_name("alone.onnx"))
    osl.extract(model, outputs="y").save(alone)
    note = "nothing was proved for output 'y': it is the same for all feeds"

    both = osl.set_attr(model, "op:Softmax", {"axis": -1}, verify=True)
    words = ["edit", "set-attr", alone, "op:Softmax", "axis=-1", "--verify", "--dry-run"]
    shown = CliRunner().invoke(app, words).output

    assert note in both.ran
    assert "verified: 1 output agrees" in str(both)
    assert note in shown
    assert "not verified: no output depends on the feeds" in shown
    assert note in osl.diff(model, both.model, run=True).notes


def test_feeds_that_are_given_are_the_only_ones(model_of):
    model = model_of(SOFTMAX)
    given = {"x": np.zeros((1, 2, 2, 2), np.float32)}

    compared = osl.verify(model, model, feeds=given)

    assert compared.told == ("nothing was proved for output 'y': it is the same for all feeds",)


def test_a_model_without_inputs_is_compared_whole(model_of):
    model = model_of("g () => (float[2] y) { y = Constant<value = float[2] {1, 2}>() }")

    assert not osl.verify(model, model).unmoved


def test_an_input_of_another_type_is_fed_the_same_numbers_or_the_misfit_is_said(model_of):
    model = model_of("g (int64[2] i) => (float[2] y) { y = Cast<to = 1>(i) }")
    image = model_of(
        "g (float[1, 3, 4, 5] x) => (float[1, 3, 4, 5] y) { y = Neg(x) }", "image.onnx"
    )

    feeds = {"x": np.full((1, 3, 4, 5), 0.5, np.float32)}

    assert osl.set_type(model, {"i": "int32"}, verify=True).match
    with pytest.raises(
        FeedsError, match="input 'x' is float .* takes uint8 .* cannot take the same numbers"
    ):
        osl.set_type(image, {"x": "uint8"}, feeds=feeds, verify=True)


@pytest.mark.parametrize("kind", ["uint8", "int8", "float16", "bool"])
def test_feeds_are_made_such_that_an_input_of_another_type_takes_them(kind, model_of):
    model = model_of("g (float[5, 7] x) => (float[5, 7] y) { y = Exp(x) }")

    verified = osl.set_type(model, {"x": kind}, verify=True)

    assert verified.match
    assert verified.ran == (f"made x: float [5, 7] normal as {kind} holds them, seeds 0, 1",)


def test_another_layout_is_verified_with_the_numbers_transposed(model_of):
    model = model_of("""
        g (float[1, 3, 4, 5] x) => (float[1, 3, 4, 5] y) <float[5] c = {1, 2, 3, 4, 5}> { y = Mul(x, c) }
    """)
    layouts = {"x": "NHWC", "y": "NCHW->NWHC"}
    there = osl.SetLayout(layouts)

    verified = osl.set_layout(model, layouts, verify=True)
    both = [
        osl.Rename((("x", "image"),)),
        osl.SetLayout({"image": "NHWC"}),
        osl.SetLayout({"y": "NHWC"}),
    ]
    back = osl.set_layout(verified.model, {"x": "NCHW", "y": "NWHC->NCHW"}, verify=True)

    assert verified.match
    assert verified.ran[-1] == (
        "'y' of the original was transposed by [0, 3, 2, 1]: the edit gave it another layout"
    )
    assert osl.apply(both, model, verify=True).match
    assert osl.apply([there, osl.Rename((("y", "out"),))], model, verify=True).match
    assert back.match
    wrong = osl.apply([there, osl.SetOp(("op:Mul",), "Add")], model, verify=True)
    assert not wrong.match


def test_an_input_of_unknown_rank_has_several_ranks(model_of):
    model = model_of("g (float x, float z) => (float y) { y = Add(x, z) }")
    for info in (*model.proto.graph.input, *model.proto.graph.output):
        info.type.tensor_type.ClearField("shape")

    told = osl.verify(model, model).told

    shapes = {line.partition(" normal")[0] for line in told}
    assert shapes >= {"made x: float [2, 3]", "made x: float []", "made z: float [2, 3, 4]"}


def test_sizes_stay_small_where_many_of_them_are_unknown(model_of):
    rankless = model_of(
        "g (float x, float w, float v) => (float y) { h = Mul(x, w) y = MatMul(h, v) }"
    )
    for info in (*rankless.proto.graph.input, *rankless.proto.graph.output):
        info.type.tensor_type.ClearField("shape")

    with Runtime() as runtime:
        trials, _ = run_trials(GraphIndex.of(rankless), Recipe(), runtime)

    assert max(value.size for trial in trials for value in trial.feeds.values()) <= 1 << 22
    assert any(value.ndim == 4 for trial in trials for value in trial.feeds.values())
