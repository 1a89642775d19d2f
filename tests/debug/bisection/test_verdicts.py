"""One scenario a verdict: what a practitioner meets, and what bisect says of it."""

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

import onnxsurgeon_lite as osl
from kit import causes
from kit.bisecting import Case, altered, parsed, random, verdicts
from onnxsurgeon_lite import open_references, save_tensors
from onnxsurgeon_lite.debug.bisection.bisect import Search, bisect
from onnxsurgeon_lite.debug.bisection.find import find
from onnxsurgeon_lite.debug.bisection.verdicts import Evidence, judge
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.float64 import Float64
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.tensors.references import ReferenceSet


@pytest.fixture(scope="module")
def optimized():
    with Runtime(RuntimeOptions(opt="all")) as runtime:
        yield runtime


LAYERS = 8


def transformerish(head: bool = False) -> ModelProto:
    """Eight residual layers of LayerNormalization, MatMul, Relu; on demand an independent head."""
    lines, constants, stream = [], {}, "x"
    for i in range(LAYERS):
        constants |= {
            f"w{i}": random(16, 16, seed=i) / 4,
            f"g{i}": 1 + 0.1 * random(16, seed=50 + i),
            f"b{i}": 0.1 * random(16, seed=80 + i),
        }
        lines += [
            f"n{i} = LayerNormalization ({stream}, g{i}, b{i})",
            f"m{i} = MatMul (n{i}, w{i})",
            f"r{i} = Relu (m{i})",
            f"s{i} = Add ({stream}, r{i})",
        ]
        stream = f"s{i}"
    lines += [f"y = Identity ({stream})"]
    outputs = "float[4,16] y"
    if head:
        constants["h"] = random(16, 3, seed=99)
        lines += ["h0 = MatMul (x, h)", "h1 = Tanh (h0)", "z = Neg (h1)"]
        outputs += ", float[4,3] z"
    return parsed(f"net (float[4,16] x) => ({outputs}) {{ {chr(10).join(lines)} }}", **constants)


def test_a_layernorm_weight_scaled_by_one_percent_is_a_wrong_constant(tmp_path, runtime):
    right = transformerish()
    case = Case(tmp_path, right, runtime)
    g5 = numpy_helper.to_array(next(t for t in right.graph.initializer if t.name == "g5"))

    result = case.bisect(altered(right, g5=(g5 * 1.01).astype(np.float32)))

    (culprit,) = result.culprits
    assert culprit.value == "n5"
    assert verdicts(culprit)[0] == "wrong constant"
    assert (
        culprit.findings[0].because == "'g5' is wrong, or a factor is missing: the effect is x1.01"
    )


def test_a_second_fault_in_an_independent_head_is_named_as_well(tmp_path, runtime):
    right = transformerish(head=True)
    case = Case(tmp_path, right, runtime)
    g5 = numpy_helper.to_array(next(t for t in right.graph.initializer if t.name == "g5"))
    wrong = altered(right, g5=(g5 * 1.01).astype(np.float32))
    next(node for node in wrong.graph.node if node.output[0] == "h1").op_type = "Sigmoid"

    result = case.bisect(wrong)

    assert {culprit.value for culprit in result.culprits} == {"n5", "h1"}
    assert all(0 < culprit.healed < 1 for culprit in result.culprits)


def test_every_one_of_three_faults_in_a_chain_is_an_origin(tmp_path, runtime):
    right = transformerish()
    case = Case(tmp_path, right, runtime)
    wrong = ModelProto()
    wrong.CopyFrom(right)
    for node in wrong.graph.node:
        if node.output[0] in ("r1", "r4", "r6"):
            node.op_type = "Abs"

    result = case.bisect(wrong)

    assert [culprit.value for culprit in result.culprits] == ["r1", "r4", "r6"]


@pytest.mark.parametrize(
    "mask", ["Relu (a)", "Clip (a, low, high)", "ArgMax (a)", "QuantizeLinear (a, scale)"]
)
def test_a_fault_that_is_masked_downstream_is_an_origin_too(mask, tmp_path, runtime):
    right = parsed(
        f"""net (float[4] x) => (float[4] y, float[4] q) {{
            a = Mul (x, w)
            masked = {mask}
            back = Cast <to = 1> (masked)
            y = Mul (back, back)
            p = Neg (x)
            q = Exp (p)
        }}""".replace("float[4] y", "float[n] y"),
        w=np.float32([1, 1, 1, 1]),
        low=np.float32(-5),
        high=np.float32(-4),
        scale=np.float32(1e6),
    )
    case = Case(tmp_path, right, runtime, {"x": np.float32([-1, -2, -3, -4])})
    wrong = altered(right, w=np.float32([1, 1.05, 1.04, 1]))
    next(node for node in wrong.graph.node if node.output[0] == "p").op_type = "Sin"

    result = case.bisect(wrong)

    assert {culprit.value for culprit in result.culprits} == {"a", "p"}


def test_random_operators_are_replayed_and_the_fault_behind_them_named(tmp_path, runtime):
    for seed in range(5):
        right = parsed(
            """net (float[8] x) => (float[8] y) {
                noise = RandomNormalLike (x)
                a = Add (x, noise)
                u = RandomUniformLike (a)
                b = Mul (a, u)
                c = Tanh (b)
                y = Neg (c)
            }"""
        )
        case = Case(tmp_path, right, runtime, {"x": random(8, seed=seed)})
        wrong = ModelProto()
        wrong.CopyFrom(right)
        wrong.graph.node[4].op_type = "Sigmoid"

        result = case.bisect(wrong)

        assert [culprit.value for culprit in result.culprits] == ["c"]
        assert any("'noise' is random" in note for note in result.notes)


def test_what_draws_within_a_function_that_a_function_calls_is_replayed_too(tmp_path, runtime):
    right = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "local": 1]>
        net (float[8] x) => (float[8] y) { n = local.Noisy (x) y = Add (x, n) }
        <domain: "local", opset_import: ["local": 1]> Noisy (x) => (n) { n = local.Draw (x) }
        <domain: "local", opset_import: ["": 21]> Draw (x) => (n) { n = RandomNormalLike (x) }"""
    )
    case = Case(tmp_path, right, runtime)

    result = case.bisect(right)

    assert result.verdict == "agrees"
    assert any("'n' is random" in note for note in result.notes)


def test_a_value_that_comes_out_otherwise_the_second_time_is_random():
    ones = np.ones(4, np.float32)
    evidence = Evidence(
        nodes=[helper.make_node("Draw", ["x"], ["y"], domain="custom")],
        actual=2 * ones,
        reference=ones,
        tolerance=None,
        inputs={"x": (ones, ones)},
        local=3 * ones,
        varies=True,
    )

    assert judge(evidence)[0].verdict == "random"


def test_random_operators_without_a_recording_are_refused(tmp_path, runtime):
    right = parsed("net (float[8] x) => (float[8] y) { n = RandomNormalLike (x) y = Add (x, n) }")
    case = Case(tmp_path, right, runtime)
    save_tensors(tmp_path / "few", {k: v for k, v in case.values.items() if k != "n"})

    with pytest.raises(ReferenceSetError, match="draws random numbers"):
        case.bisect(right, references=open_references(tmp_path / "few"))


def test_dropout_in_training_mode_counts_as_random(tmp_path, runtime):
    right = parsed(
        "net (float[8] x) => (float[8] y) { y = Dropout (x, ratio, training) }",
        ratio=np.float32(0.5),
        training=np.array(True),
    )
    case = Case(tmp_path, right, runtime)
    save_tensors(tmp_path / "few.npz", {"x": case.feeds["x"], "y": case.values["y"]})

    result = case.bisect(right, references=open_references(tmp_path / "few.npz"))

    assert result.verdict == "agrees"
    assert result.notes == ["'y' is random: its recorded value is replayed"]


def overflowing() -> ModelProto:
    """sqrt((x*x)*s) in float16: x*x overflows where each value is rounded, not where float32 computes on."""
    return parsed(
        """net (float16[4] x) => (float16[4] y) {
            square = Mul (x, x)
            small = Mul (square, s)
            y = Sqrt (small)
        }""",
        s=np.float16(1e-4),
    )


def test_an_overflow_that_only_looking_makes_is_an_observer_effect(tmp_path, runtime, optimized):
    right = overflowing()
    feeds = {"x": np.float16([1, 2, 300, 400])}
    exact = np.float16(np.sqrt(np.float64(feeds["x"]) ** 2 * 1e-4))
    case = Case(tmp_path, right, runtime, feeds)
    references = case.references(
        square=np.float64(feeds["x"]) ** 2, small=np.float64(feeds["x"]) ** 2 * 1e-4, y=exact
    )

    unoptimized = case.bisect(right, optimized, references)
    node = case.bisect(right, optimized, references, look="node")

    assert unoptimized.verdict == "agrees"
    assert node.culprits[0].value == "square"
    assert verdicts(node.culprits[0])[0] == "overflow"
    assert [finding.verdict for finding in node.findings] == ["observer effect"]


def test_an_overflow_is_found_without_references(tmp_path, runtime):
    model = (
        Case(tmp_path, overflowing(), runtime, {"x": np.float16([1, 2, 3, 4])})
        .index(overflowing(), "model.onnx")
        .model
    )
    feeds = {"x": np.float16([1, 2, 300, 400])}

    result = find(model, "inf", feeds, runtime, Search(look="node"))

    assert [culprit.value for culprit in result.culprits] == ["square"]
    assert "inf at [2], computed from 'x' = 300" in result.culprits[0].findings[0].because


def test_nan_is_led_to_the_operands_that_made_it(tmp_path, runtime):
    right = parsed(
        "net (float[4] x) => (float[4] y) { a = Add (x, w) b = Log (a) y = Neg (b) }",
        w=np.float32([1, 1, 1, 1]),
    )
    case = Case(tmp_path, right, runtime, {"x": np.float32([1, 2, 3, 4])})
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.node[1].input[0] = "minus"
    wrong.graph.node.insert(1, helper.make_node("Neg", ["a"], ["minus"]))

    result = case.bisect(wrong)

    assert result.culprits[0].value == "b"
    assert verdicts(result.culprits[0])[0] == "non-finite"
    assert "computed from" in result.culprits[0].findings[0].because


@pytest.mark.parametrize(
    ("wrong_node", "said"),
    [
        (("Transpose", {"perm": [0, 2, 1]}), "transposed"),
        (("Identity", {}), "the same data with shape"),
    ],
)
def test_the_same_data_in_another_arrangement_is_a_layout_fault(
    wrong_node, said, tmp_path, runtime
):
    right = parsed(
        """net (float[2,4,4] x) => (float[2,4,4] y) {
            t = Transpose <perm = [1, 0, 2]> (x)
            a = Reshape (t, shape)
            y = Neg (a)
        }""",
        shape=np.int64([2, 4, 4]),
    )
    case = Case(tmp_path, right, runtime)
    references = case.references(
        a=case.values["a"] if wrong_node[0] == "Transpose" else case.values["a"].reshape(4, 2, 4)
    )
    wrong = ModelProto()
    wrong.CopyFrom(right)
    op_type, attributes = wrong_node
    if op_type == "Transpose":
        wrong.graph.node[1].CopyFrom(helper.make_node(op_type, ["x"], ["a"], **attributes))

    result = case.bisect(wrong, references=references, look="unoptimized")

    culprits = [c for c in result.culprits if c.value == "a"]
    if op_type == "Transpose":
        assert verdicts(culprits[0])[0] in ("shape or layout", "wrong node")
    else:
        assert result.verdict == "agrees" or verdicts(culprits[0])[0] == "shape or layout"


def test_a_shifted_result_is_a_layout_fault(tmp_path, runtime):
    right = parsed("net (float[3,5] x) => (float[3,5] y) { a = Tanh (x) y = Identity (a) }")
    case = Case(tmp_path, right, runtime)
    references = case.references(
        a=np.roll(case.values["a"], 2, 1), y=np.roll(case.values["y"], 2, 1)
    )

    result = case.bisect(right, references=references)

    assert verdicts(result.culprits[0])[0] == "shape or layout"
    assert "shifted by 2 along axis 1" in result.culprits[0].findings[0].because


def detector() -> ModelProto:
    """Boxes and scores, the best two by score; a class per box."""
    return parsed(
        """net (float[n,4] boxes, float[n] scores) => (float[k,4] best, float[k] sizes) {
            top, at = TopK (scores, k)
            best = Gather (boxes, at)
            sums = ReduceSum <keepdims = 0> (best, axis)
            sizes = Mul (sums, top)
        }""",
        k=np.int64([2]),
        axis=np.int64([1]),
    )


def test_tied_scores_are_a_tie_and_the_search_goes_on_past_it(tmp_path, runtime):
    right = detector()
    boxes = np.float32([[0, 0, 1, 1]] * 4)
    case = Case(
        tmp_path,
        right,
        runtime,
        {
            "boxes": boxes + np.float32([[0], [0], [0], [1]]),
            "scores": np.float32([0.5, 0.9, 0.9, 0.9]),
        },
    )
    other = np.int64([3, 1])
    best = case.feeds["boxes"][other]
    sums = best.sum(1)
    wrong_mul = sums * case.values["top"] * 2
    references = case.references(at=other, best=best, sums=sums, sizes=wrong_mul)

    result = case.bisect(right, references=references)

    assert [verdicts(c)[0] for c in result.cleared] == ["tie"]
    assert [c.value for c in result.culprits] == ["sizes"]


def test_an_image_without_detections_agrees(tmp_path, runtime):
    right = parsed(
        """net (float[n,4] boxes, float[n] scores) => (float[m,4] best) {
            sure = Greater (scores, limit)
            at = NonZero (sure)
            rows = Transpose (at)
            best = GatherND (boxes, rows)
        }""",
        limit=np.float32(0.5),
    )
    case = Case(
        tmp_path, right, runtime, {"boxes": random(3, 4), "scores": np.float32([0.1, 0.2, 0.3])}
    )

    result = case.bisect(right)

    assert result.verdict == "agrees"
    assert result.outputs["best"].shapes == ((0, 4), (0, 4))


def quantized() -> ModelProto:
    """Six convolutions between QuantizeLinear and DequantizeLinear."""
    lines, constants, stream = [], {}, "x"
    for i in range(6):
        constants |= {
            f"s{i}": np.float32(0.05),
            f"z{i}": np.uint8(128),
            f"w{i}": np.clip(random(4, 4, 3, 3, seed=i) * 25, -127, 127).astype(np.int8),
            f"ws{i}": np.float32(0.01),
            f"wz{i}": np.int8(0),
        }
        lines += [
            f"q{i} = QuantizeLinear ({stream}, s{i}, z{i})",
            f"d{i} = DequantizeLinear (q{i}, s{i}, z{i})",
            f"dw{i} = DequantizeLinear (w{i}, ws{i}, wz{i})",
            f"c{i} = Conv <pads = [1, 1, 1, 1]> (d{i}, dw{i})",
        ]
        stream = f"c{i}"
    constants |= {"so": np.float32(0.05), "zo": np.uint8(128)}
    lines += [f"qo = QuantizeLinear ({stream}, so, zo)", "y = DequantizeLinear (qo, so, zo)"]
    text = f"net (float[1,4,8,8] x) => (float[1,4,8,8] y) {{ {chr(10).join(lines)} }}"
    return parsed(text, **constants)


def test_a_quantized_stack_optimized_differs_by_rounding_and_has_no_culprit(
    tmp_path, runtime, optimized
):
    right = quantized()
    case = Case(tmp_path, right, runtime)

    result = case.bisect(right, optimized)

    assert not result.culprits
    if result.verdict == "mismatch":
        assert result.look == "optimized"
        assert [finding.verdict for finding in result.findings] == ["optimizer"]
        assert all("rounding" in verdicts(c) for c in result.cleared)


def test_a_wrong_output_scale_of_a_quantized_stack_is_named(tmp_path, runtime, optimized):
    right = quantized()
    case = Case(tmp_path, right, runtime)

    result = case.bisect(altered(right, s3=np.float32(0.08)), optimized)

    assert result.culprits[0].value in ("q3", "d3")
    assert {c.value for c in result.culprits} <= {"q3", "d3"}


def test_a_loop_that_never_ends_is_named_and_the_search_goes_on_around_it(tmp_path, runtime):
    """Around the output without a reference, too: what reads it has one."""
    text = """net (float[4] x) => (float[4] y, float[4] z) {{
            a = Neg (x)
            n = Constant <value_int = 4611686018427387904> ()
            go = Constant <value = bool {{1}}> ()
            b, d = Loop (n, go, a, a) <body = turn (int64 i, bool c, float[4] s, float[4] t) =>
                (bool c2, float[4] s2, float[4] t2) {{
                c2 = {go} (c)
                s2 = Cos (s)
                t2 = Sin (t)
            }}>
            e = Exp (d)
            y = Mul (b, e)
            z = {last} (y)
        }}"""
    right = parsed(text.format(go="Not", last="Neg"))
    case = Case(tmp_path, right, runtime)
    wrong = parsed(text.format(go="Identity", last="Abs"))
    options = RuntimeOptions(opt="none", lean=True, timeout=2)

    with Runtime(options) as impatient:
        model = case.index(wrong, "wrong.onnx").model
        stored = ReferenceSet.of({name: case.values[name] for name in "xabeyz"})
        result = bisect(model, stored, case.feeds, impatient)

    assert [(c.op_type, verdicts(c)[0]) for c in result.culprits] == [
        ("Loop", "crash"),
        ("Abs", "wrong node"),
    ]
    assert any("not compared, but replayed: 'e'" in note for note in result.notes)


def test_a_difference_that_optimization_makes_is_blamed_on_it(tmp_path, runtime, optimized):
    right = transformerish()
    case = Case(tmp_path, right, runtime)

    result = case.bisect(right, optimized, look="optimized", tolerance=None)

    assert result.verdict == "agrees"


def test_a_journal_is_resumed_with_the_same_answer(tmp_path, runtime):
    right = transformerish(head=True)
    case = Case(tmp_path, right, runtime)
    wrong = ModelProto()
    wrong.CopyFrom(right)
    for node in wrong.graph.node:
        if node.output[0] in ("r1", "r6", "h1"):
            node.op_type = "Abs"
    whole = case.bisect(wrong, journal=tmp_path / "journal")
    lines = (tmp_path / "journal").read_text().splitlines(keepends=True)

    for kept in (1, 5, len(lines) // 2, len(lines)):
        (tmp_path / "cut").write_text("".join(lines[:kept])[:-3] if kept > 1 else lines[0])
        again = case.bisect(wrong, journal=tmp_path / "cut", resume=True)

        assert [c.id for c in again.culprits] == [c.id for c in whole.culprits]
        assert [c.findings for c in again.culprits] == [c.findings for c in whole.culprits]


def test_a_right_node_that_blows_up_small_errors_is_an_amplification(tmp_path, runtime):
    right = parsed(
        "net (float[16] x) => (float[16] y) { a = Mul (x, w) b = Sub (a, x) y = Tanh (b) }",
        w=np.float32([1.001]),
    )
    case = Case(tmp_path, right, runtime, {"x": 1 + np.abs(random(16))})

    result = case.bisect(altered(right, w=np.float32([1.00105])))

    assert [culprit.value for culprit in result.culprits] == ["b"]
    assert verdicts(result.culprits[0])[0] == "amplification"
    assert result.culprits[0].values[-1].introduced.match


def test_errors_that_add_up_over_many_nodes_are_gradual(tmp_path, runtime):
    lines = [f"h{i} = Mul ({f'h{i - 1}' if i else 'x'}, w)" for i in range(40)]
    text = f"net (float[8] x) => (float[8] h39) {{ {chr(10).join(lines)} }}"
    right = parsed(text, w=np.float32([0.99]))
    case = Case(tmp_path, right, runtime)
    drift = {f"h{i}": case.values[f"h{i}"] * np.float32(1 + 5e-6 * (i + 1)) for i in range(40)}

    result = case.bisect(right, references=case.references(**drift))

    assert result.culprits
    assert all(verdicts(culprit) == ["gradual"] for culprit in result.culprits)


def test_a_kernel_that_leaves_the_definition_is_told_from_a_wrong_node():
    exact = np.float32([1, 2, 3, 4])
    evidence = Evidence(
        nodes=[helper.make_node("Tanh", ["x"], ["y"])],
        actual=exact * np.float32(1.01),
        reference=exact,
        tolerance=None,
        inputs={"x": (exact, exact)},
        local=exact * np.float32(1.01),
        exact_local=exact.astype(np.float64),
        exact=exact.astype(np.float64),
    )

    assert [finding.verdict for finding in judge(evidence)] == ["kernel"]


def test_sequences_and_numbers_below_a_byte_are_compared_too(tmp_path, runtime):
    right = parsed(
        """net (float[4] x) => (float[4] y) {
            q = QuantizeLinear <output_dtype = 22> (x, scale)
            d = DequantizeLinear (q, scale)
            parts = SplitToSequence (d, two)
            first = SequenceAt (parts, zero)
            second = SequenceAt (parts, one)
            y = Concat <axis = 0> (second, first)
        }""",
        scale=np.float32(0.5),
        two=np.int64([2, 2]),
        zero=np.int64(0),
        one=np.int64(1),
    )
    case = Case(tmp_path, right, runtime, {"x": np.float32([1, -1, 2, 0.5])})

    coarse = case.bisect(altered(right, scale=np.float32(0.25)))
    swapped = case.bisect(altered(right, two=np.int64([1, 3])))

    assert [(culprit.value, culprit.seen) for culprit in coarse.culprits] == [("q", ["d"])]
    assert str(case.values["q"].dtype) == "int4"
    assert swapped.culprits[0].value == "parts"


def test_a_search_keeps_to_its_budget(tmp_path, runtime):
    right = transformerish()
    case = Case(tmp_path, right, runtime)
    wrong = ModelProto()
    wrong.CopyFrom(right)
    wrong.graph.node[-3].op_type = "Abs"

    roomy = case.bisect(wrong)
    narrow = case.bisect(wrong, memory=600)

    assert [c.id for c in narrow.culprits] == [c.id for c in roomy.culprits]
    assert narrow.sessions > roomy.sessions


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_no_constant_is_blamed_for_a_reference_that_is_not_finite(number):
    text = "g (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }"
    model, x = osl.build(text), np.ones((2, 3), np.float32)

    found = osl.bisect(model, {"x": x, "y": np.full((2, 3), number, np.float32)})

    assert found.verdict == "mismatch"
    assert "wrong constant" not in {f.verdict for f in found.culprits[0].findings}


def test_float64_of_a_model_that_calls_the_domain_of_onnx_by_its_name(optimized, model_of):
    model = model_of(
        "g (float[2, 3] x, float[3] w) => (float[2, 3] y) { y = LayerNormalization(x, w) }"
    )
    model.proto.opset_import[0].domain = "ai.onnx"
    feeds = {"x": np.eye(2, 3, dtype=np.float32), "w": np.ones(3, np.float32)}
    observer = Observer(GraphIndex.of(model), optimized)

    _, how = Float64(observer).evaluate([0], feeds, "y")

    assert how == "onnxruntime in float64"


def test_a_scale_and_a_shift_of_numbers_that_are_alike_blame_no_constant(tmp_path, runtime):
    constants = {"w": np.float32(1e-7), "c": random(8, 2, seed=1), "a": random(2, seed=2)}
    right = parsed(
        """net (float[2,8] x) => (float[2,2] y) {
            h = Mul (x, w)
            t = Tanh (h)
            m = MatMul (t, c)
            s = Add (m, a)
            e = Exp (s)
            y = Add (e, b)
        }""",
        **constants,
        b=random(2, seed=3),
    )
    case = Case(tmp_path, right, runtime)
    wrong = altered(right, b=np.zeros(2, np.float32))

    found = osl.bisect(wrong, {"x": case.feeds["x"], "y": case.values["y"]}, cause=False)

    (culprit,) = found.culprits
    assert "wrong constant" not in verdicts(culprit)


def test_an_axis_is_no_wrong_constant_where_a_term_is_missing():
    text = (
        "g (float[4,6] x) => (float[4] y)"
        " {{ axes = Add (a, b) s = ReduceSum <keepdims = 0> (x, axes) y = {} }}"
    )
    axes = {"a": np.int64([0]), "b": np.int64([1])}
    wrong = causes.model(text.format("Identity (s)"), **axes)
    right = causes.model(text.format("Add (s, t)"), t=np.float32(0.5), **axes)
    x = causes.numbers(4, 6)

    (culprit,) = osl.bisect(wrong, {"x": x, "y": osl.run(right, {"x": x})["y"]}).culprits

    assert "'a'" not in culprit.findings[0].because
    assert "'b'" not in culprit.findings[0].because
