"""Rules as ONNX text: where they match, what they leave, and that each that is shipped changes no number."""

import ast

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ml_dtypes import int4, uint4
from onnx import TensorProto, helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import GraphIndex, Model, Rewrite, save
from onnxsurgeon_lite.errors import BuildError, EditError, UnknownNameError, UsageError
from onnxsurgeon_lite.graph.bodies import bound_nodes
from onnxsurgeon_lite.graph.patterns import read_rules
from onnxsurgeon_lite.graph.patterns.match import COMMUTATIVE, attribute_of
from onnxsurgeon_lite.graph.patterns.rule import shipped
from onnxsurgeon_lite.graph.selecting.select import select_nodes, select_values
from onnxsurgeon_lite.passes.build import add_initializers, parse_text
from onnxsurgeon_lite.tensors.dtypes import from_array

NO_NEGATIONS = "pattern (x) => (y) { h = Neg(x) y = Neg(h) } replacement (x) => (x) {}"
X = np.array([-2, -1, 0, 3], np.float32)


def operators(model: Model) -> list[str]:
    return [node.op_type for node in model.proto.graph.node]


def rewritten(text: str, rule: str, reverse: bool = False):
    return Rewrite((rule,), reverse).apply(parse_text(text))


# --- what matches ---


def test_every_match_is_replaced_and_chains_until_nothing_is_left():
    four = (
        "g (float[4] x) => (float[4] y) { a = Neg(x) b = Neg(a) c = Neg(b) d = Neg(c) y = Abs(d) }"
    )

    result = rewritten(four, NO_NEGATIONS)

    assert operators(result.model) == ["Abs"]
    assert len(result.changes) == 2


def test_a_pattern_stands_for_each_choice_of_the_parts_that_it_calls():
    rule = """# where scale == factor
              scaled <factor> (x) => (s) { f = Constant <value_float: float = @factor> () s = Mul(x, f) }
              # where scale == 1 / divisor
              scaled <divisor> (x) => (s) { f = Constant <value_float: float = @divisor> () s = Div(x, f) }
              # where scale == 1.0
              scaled (x) => (x) {}
              # where rank(a) == 1
              inner (x, unread) => (y) { s = scaled(x) a = Neg(s) y = Abs(a) }
              pattern (x, unread) => (y) { a = inner(x, unread) y = Exp(a) }
              replacement <scale> (x) => (y) { y = LeakyRelu <alpha: float = @scale> (x) }"""
    text = (
        "g (float[4] x) => (float[4] y) <float f = {2}> { WHAT b = Neg(a) c = Abs(b) y = Exp(c) }"
    )
    found = {"a = Mul(x, f)": 2.0, "a = Div(x, f)": 0.5, "a = Sin(x)": 1.0, "a = Sub(x, f)": 1.0}

    for node, scale in found.items():
        last = rewritten(text.replace("WHAT", node), rule).model.proto.graph.node[-1]
        assert (last.op_type, last.attribute[0].f) == ("LeakyRelu", scale)
    assert [len(each.pattern.function.input) for each in read_rules(rule)] == [1, 1, 1]


def test_a_part_that_is_called_twice_is_the_same_one_at_both_places():
    rule = """turned (x) => (y) { y = Neg(x) } turned (x) => (y) { y = Abs(x) }
              pattern (x) => (y) { a = turned(x) b = Exp(a) y = turned(b) }
              replacement (x) => (y) { y = Relu(x) }"""
    text = "g (float[4] x) => (float[4] y) { a = FIRST(x) b = Exp(a) y = Abs(b) }"

    same, other = (rewritten(text.replace("FIRST", name), rule).changed for name in ("Abs", "Neg"))

    assert (same, other, len(read_rules(rule))) == (True, False, 2)


def test_a_batch_normalization_that_trains_is_none_that_a_convolution_takes_in():
    start = """<ir_version: 7, opset_import: ["" : OPSET]>
        g (float[2,2,3,3] x) => (float[2,2,3,3] y) <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {1, 2}>"""
    trains = (
        start.replace("OPSET", "13") + "{ c = Conv(x, w) y, m = BatchNormalization(c, s, s, s, s) }"
    )
    infers = trains.replace("y, m", "y")

    changed = [rewritten(text, "conv-batch-norm").changed for text in (trains, infers)]

    assert changed == [False, True]


@pytest.mark.parametrize("opset", [7, 8])
def test_below_opset_9_a_convolution_takes_its_batch_normalization_in(opset):
    model = osl.build(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {{1, 2, 3, 4}}, float[2] s = {{1, 2}}>
        {{ c = Conv(x, w) n = BatchNormalization(c, s, s, s, s) y = Relu(n) }}""")

    result = osl.simplify(model)

    assert [node.op_type for node in result.model.proto.graph.node] == ["Conv", "Relu"]
    assert result.match


def test_a_replacement_of_another_type_corrects_what_the_outputs_declare():
    rule = "pattern (x) => (y) { y = Neg(x) } replacement (x) => (y) { y = Shape(x) }"
    text = """g (float[N,3] x) => (float[N,3] y, float[N,3] z)
              { h = Exp(x) y = Neg(h) k = Exp(h) z = Neg(k) }"""

    outputs = rewritten(text, rule).model.proto.graph.output

    assert [output.type.tensor_type.elem_type for output in outputs] == [TensorProto.INT64] * 2


def test_a_replacement_of_another_type_is_refused_in_a_body():
    rule = "pattern (x) => (y) { y = Neg(x) } replacement (x) => (y) { y = Shape(x) }"
    text = """g (float[3] x, bool c) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] p) { p = Neg(x) },
                    else_branch = e () => (float[3] q) { q = Abs(x) }> }"""

    with pytest.raises(EditError, match="'p' in '@0/then_branch' would have type int64"):
        rewritten(text, rule)


def test_a_value_inside_that_is_used_elsewhere_keeps_the_match_as_it_is():
    read = "g (float[4] x) => (float[4] y, float[4] z) { h = Neg(x) y = Neg(h) z = Abs(h) }"
    given_out = "g (float[4] x) => (float[4] y, float[4] h) { h = Neg(x) y = Neg(h) }"

    results = [rewritten(text, NO_NEGATIONS) for text in (read, given_out)]

    assert not any(result.changed for result in results)
    assert (
        "all 2 nodes match, up to Neg @1, but value 'h' inside is used elsewhere: Abs @2"
        in results[0].notes[0]
    )
    assert "used elsewhere: an output of the graph" in results[1].notes[0]


def test_what_an_author_lets_others_read_stays():
    rule = "# keep h\npattern (x) => (y) { h = Neg(x) y = Neg(h) } replacement (x) => (y) { y = Identity(x) }"

    result = rewritten("g (float[4] x) => (float[4] y, float[4] h) { h = Neg(x) y = Neg(h) }", rule)

    assert operators(result.model) == ["Neg", "Identity"]


def test_operands_of_commutative_operators_come_in_any_order():
    rule = "pattern (x) => (y) { a = Sigmoid(x) y = Mul(x, a) } replacement (x) => (y) { y = Swish(x) }"
    text = '<ir_version: 10, opset_import: ["" : 24]> g (float[4] x) => (float[4] y) { a = Sigmoid(x) y = Mul(a, x) }'

    assert operators(rewritten(text, rule).model) == ["Swish"]


def test_attributes_are_variables_and_those_not_named_must_be_defaults():
    rule = """pattern <slope> (x) => (y) { h = LeakyRelu <alpha: float = @slope> (x) y = Neg(h) }
              replacement (x) => (y) { h = Neg(x) y = LeakyRelu <alpha: float = @slope> (h) }"""
    plain = "pattern (x) => (y) { y = LeakyRelu(x) } replacement (x) => (y) { y = Relu(x) }"
    any_slope = plain.replace("LeakyRelu(", "LeakyRelu <_ = 1> (")
    text = "g (float[4] x) => (float[4] y) { h = LeakyRelu <alpha = 0.5> (x) y = Neg(h) }"

    result = rewritten(text, rule)

    assert result.model.proto.graph.node[1].attribute[0].f == 0.5
    assert not rewritten(text, plain).changed
    assert rewritten(text.replace("0.5", "0.01"), plain).changed  # the default, written out
    assert operators(rewritten(text, any_slope).model) == ["Relu", "Neg"]


def test_an_optional_operand_goes_over_where_it_is_given():
    rule = """# optional low, high
              pattern (x, low, high) => (y) { h = Clip(x, low, high) y = Neg(h) }
              replacement (x, low, high) => (y) { h = Neg(x) y = Clip(h, low, high) }"""
    text = "g (float[4] x, float high) => (float[4] y) { h = Clip(x, WHAT) y = Neg(h) }"

    first, second = (
        rewritten(text.replace("(x, WHAT)", given), rule) for given in ("(x)", '(x, "", high)')
    )

    assert len(first.model.proto.graph.node[1].input) == 1
    assert list(second.model.proto.graph.node[1].input)[1:] == ["", "high"]


def test_conditions_on_constants_and_shapes_decide_and_what_is_unknown_is_no_match():
    rule = """# where epsilon < 1e-3, rank(x) == 2, shape(x)[1] == 4, dtype(x) == "float"
              pattern <epsilon> (x) => (y) { e = Constant <value_float: float = @epsilon> () y = Add(x, e) }
              replacement (x) => (y) { y = Identity(x) }"""
    text = "g (float[N,4] x) => (float[N,4] y) <float small = {0.0001}> { y = Add(small, x) }"
    anything = """g (float[N,4] x, int64[k] s) => (float[n,m] y) <float small = {0.0001}> {
        r = Reshape(x, s) y = Add(r, small) }"""

    assert rewritten(text, rule).changed
    for other, reason in (
        (text.replace("0.0001", "0.01"), "'epsilon < 0.001' does not hold"),
        (text.replace("N,4", "N,5"), "'shape(x)[1] == 4' does not hold"),
        (text.replace("N,4", "4"), "'rank(x) == 2' does not hold"),
        (anything, "the shape of 'r' is unknown"),
    ):
        result = rewritten(other, rule)
        assert not result.changed
        assert reason in result.notes[0]


def test_a_pattern_whose_condition_is_unknown_is_nearer_than_one_whose_is_false():
    rule = """# where perm == [1, 0]
              pattern <perm> (x) => (y) { h = Transpose <perm: ints = @perm> (x) g = Neg(h) y = Abs(g) }
              replacement (x) => (y) { y = Identity(x) }
              # where rank(x) == 3
              pattern (x) => (y) { h = Neg(x) y = Abs(h) }
              replacement (x) => (y) { y = Identity(x) }"""
    text = """g (float[2,3] x, int64[k] s) => (float[n,m] y) {
        r = Reshape(x, s) t = Transpose<perm = [0, 1]>(r) h = Neg(t) y = Abs(h) }"""

    (note,) = rewritten(text, rule).notes

    assert "'rank(x) == 3' is not known" in note
    assert "edit infer" in note


def test_a_layer_norm_whose_axes_are_two_constants_is_one():
    """The converter to opset 18 gives each ReduceMean a constant of its own."""
    text = """g (float[2,4] x) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}, int64[1] a = {-1}, int64[1] b = {-1}> {
        m = ReduceMean(x, a) c = Sub(x, m) p = Constant<value = float {2.0}>() s = Pow(c, p)
        v = ReduceMean(s, b) e = Constant<value = float {0.001}>() f = Add(v, e) d = Sqrt(f) n = Div(c, d)
        y = Mul(n, w) }"""
    model = parse_text(f'<ir_version: 8, opset_import: ["" : 18]> {text}')

    assert operators(osl.rewrite(model, "layer-norm", verify=True).model) == ["LayerNormalization"]


def test_declared_types_of_a_pattern_are_checks_and_equal_dimensions_are_equal():
    rule = """pattern (float[A, B] x, float[B] w) => (y) { y = Add(x, w) }
              replacement (x, w) => (y) { y = Add(w, x) }"""
    text = "g (float[3,SIZE] x, float[4] w) => (float[n,m] y) { y = Add(x, w) }"

    assert rewritten(text.replace("SIZE", "4"), rule).changed
    assert "'w' has a dimension 4, not 1" in rewritten(text.replace("SIZE", "1"), rule).notes[0]


def test_a_pattern_has_several_outputs_and_a_path_around_it_refuses_it():
    rule = """pattern (x) => (a, b) { a = Neg(x) h = Abs(x) b = Exp(h) }
              replacement (x) => (a, b) { a, b = own.Both(x) }"""
    text = "g (float[4] x) => (float[4] a, float[4] b) { h = Abs(x) b = Exp(h) a = Neg(x) }"

    result = rewritten(text, rule)

    assert operators(result.model) == ["Both"]
    assert list(result.model.proto.graph.node[0].output) == ["a", "b"]
    assert ("own", 1) in {(o.domain, o.version) for o in result.model.proto.opset_import}


def test_the_domain_of_an_operator_of_onnx_ml_is_imported_by_its_whole_name():
    model = osl.build("g (float[4] x) => (float[4] y) { y = Ceil(x) }")
    rule = (
        "pattern (x) => (y) { y = Ceil(x) } replacement (x) => (y) { y = ai.onnx.ml.Binarizer(x) }"
    )

    imported = osl.rewrite(model, rule).model.proto.opset_import

    assert "ai.onnx.ml" in {opset.domain for opset in imported}

    circle = """pattern (x, z) => (a, b) { a = Neg(x) b = Add(x, z) }
                replacement (x, z) => (a, b) { a, b = own.Both(x, z) }"""
    around = "g (float[4] x) => (float[4] b) { a = Neg(x) z = Abs(a) b = Add(x, z) }"
    assert "a path leaves the match and enters it again" in rewritten(around, circle).notes[0]


BODIES = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[4] x, bool c) => (float[4] y) <float one = {1}> {
    y = If (c) <
        then_branch = t () => (float[4] p) { a = Neg(x) b = Neg(a) i = Add(b, one) p = local.f(i) },
        else_branch = e () => (float[4] q) { q = Neg(x) }
    >
}
<domain: "local", opset_import: ["" : 21]> f (u) => (w) { v = Neg(u) w = Neg(v) }"""


def test_bodies_and_functions_are_rewritten_and_captured_values_stay(runtime):
    model = parse_text(BODIES)

    result = Rewrite((NO_NEGATIONS,)).apply(model)

    assert len(result.changes) == 2
    assert "fn:local::f/@0" in result.changes[0]
    assert "@0/then_branch/@0" in result.changes[1]
    function = result.model.proto.functions[0]
    assert [node.op_type for node in function.node] == ["Identity"]
    for flag in (True, False):
        feeds = {"x": X, "c": np.array(flag)}
        one, two = (_run(runtime, m, feeds) for m in (model, result.model))
        assert np.array_equal(one, two)


def test_function_attributes_flow_through_variables():
    text = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
        g (float[4] x) => (float[4] y) { y = local.f <slope = 0.25> (x) }
        <domain: "local", opset_import: ["" : 21]> f <slope> (u) => (w) {
            h = LeakyRelu <alpha: float = @slope> (u) w = Neg(h) }"""
    rule = """pattern <a> (x) => (y) { h = LeakyRelu <alpha: float = @a> (x) y = Neg(h) }
              replacement (x) => (y) { h = Neg(x) y = LeakyRelu <alpha: float = @a> (h) }"""

    (function,) = rewritten(text, rule).model.proto.functions

    assert function.node[1].attribute[0].ref_attr_name == "slope"


def test_where_nothing_matches_the_nearest_is_told_with_its_first_differing_node():
    text = """g (float[4] x) => (float[4] y) <float r = {1.4142135}, float one = {1}, float half = {0.5}> {
        a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Sub(d, half) }"""

    result = Rewrite(("gelu-erf",)).apply(parse_text(text))

    assert not result.changed
    assert result.notes == (
        "gelu-erf: no match; nearest: 4 of 5 nodes match, up to Mul @3; then the pattern has Mul, the graph Sub @4",
    )


def test_a_pattern_is_a_selector(tmp_path):
    (tmp_path / "two.onnxtxt").write_text("pattern (x) => (y) { h = Neg(x) y = Abs(h) }")
    selector = f"pattern:{tmp_path}/two.onnxtxt"
    text = (
        "g (float[4] x) => (float[4] y) { a = Neg(x) b = Abs(a) c = Neg(b) d = Abs(c) y = Exp(d) }"
    )
    index = GraphIndex.of(parse_text(text))

    assert select_nodes(index, selector) == [0, 1, 2, 3]
    assert select_nodes(index, f"{selector}[1]") == [2, 3]
    assert select_values(index, [selector]).names == ["b", "d"]
    with pytest.raises(UnknownNameError, match="no match of 'gelu-erf'"):
        select_nodes(index, "pattern:gelu-erf")


def test_constants_that_only_the_match_read_go_and_others_stay():
    text = """g (float[4] x) => (float[4] y, float[4] z) <float r = {1.4142135}, float one = {1}, float half = {0.5}> {
        a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) z = Add(x, one) }"""
    model = osl.build(text.replace("g (", '<ir_version: 10, opset_import: ["" : 20]> g (', 1))

    result = Rewrite(("gelu-erf",)).apply(model)

    assert [tensor.name for tensor in result.model.proto.graph.initializer] == ["one"]


def test_no_weight_is_read_but_what_a_rule_needs(tmp_path, monkeypatch):
    text = "g (float[1,3,8,8] x) => (float[1,N,6,6] y) { c = Conv(x, w) h = Relu(c) a = Neg(h) y = Neg(a) }"
    model = add_initializers(parse_text(text), {"w": np.ones((64, 3, 3, 3), np.float32)})
    save(model, tmp_path / "m.onnx", external=True)
    read = []
    monkeypatch.setattr(Model, "raw", lambda self, tensor: read.append(tensor.name))

    assert (
        Rewrite((NO_NEGATIONS, "gelu-erf", "conv-batch-norm"))
        .apply(osl.load(tmp_path / "m.onnx"))
        .changed
    )
    assert read == []


@pytest.mark.parametrize(
    ("rule", "error", "says"),
    [
        ("pattern (x) => (y) { y = Neg(x }", BuildError, "not ONNX text"),
        ("replacement (x) => (y) { y = Neg(x) }", UsageError, "no function 'pattern'"),
        ("pattern (x) => (y) { y = Neg(x) }", UsageError, "no replacement"),
        ("pattern (x) => (z) { y = Neg(x) } replacement (x) => (x) {}", UsageError, "makes no 'z'"),
        ("pattern (x) => (y) { y = Neg(x) } replacement (x) => (y) { y = Neg(z) }", UsageError, "reads 'z'"),
        ("pattern (x) => (y) { y = Neg(x) } replacement (x) => (z) { y = Neg(x) }", UsageError, "reads 'z'"),
        (
            "pattern (x) => (y) { y = Neg(x) } replacement (x) => (y) { y = Neg(a) a = Abs(x) }",
            UsageError,
            "the replacement reads 'a'",
        ),
        ("pattern (x) => (y) { y = part(x) } part (x) => (y) { y = Neg(x) }", UsageError, "does not stand above it"),
        ("part (x) => (y) { y = part(x) } pattern (x) => (y) { y = part(x) }", UsageError, "calls the part 'part'"),
        ("part (x) => (y) { y = Neg(x) } pattern (x) => (y) { y = part(x, x) }", UsageError, "with other operands"),
        ("# where __import__('os')\n" + NO_NEGATIONS, UsageError, "conditions do not have"),
        ("# where x.real\n" + NO_NEGATIONS, UsageError, "conditions do not have"),
        ("# where 1 +\n" + NO_NEGATIONS, UsageError, "is no expression"),
        ("pattern (x, z) => (a, b) { a = Neg(x) b = Neg(z) } replacement (x, z) => (x, z) {}", UsageError, "parts"),
        ("nowhere.onnxtxt", UnknownNameError, "no rule or file 'nowhere.onnxtxt'"),
        ("pattern (x) => (y) { h = Neg(x) y = Neg(h) } replacement (x) => (y) { y = Swish(x) }",
         UnknownNameError, "no operator 'Swish'"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_in_words(rule, error, says):
    text = "g (float[4] x) => (float[4] y, float[4] z) { h = Neg(x) y = Neg(h) z = Neg(x) }"

    with pytest.raises(error, match=says) as raised:
        rewritten(text.replace(", float[4] z", "").replace(" z = Neg(x)", ""), rule)

    assert raised.value.hint


# --- both ways ---


def test_no_axes_are_all_axes_to_what_takes_them_away():
    reduced = "h = ReduceSum <keepdims = 0> (x, none) y = Unsqueeze(h, none)"
    one = "h = ReduceSum <keepdims = 0> (x, one) y = Unsqueeze(h, none)"
    squeezed = "h = Unsqueeze(x, none) y = Squeeze(h, none)"
    text = "g (float[2, 3] x) => (float[N] y) <int64[0] none = {}, int64[1] one = {1}> "

    for nodes, rule in (
        (reduced, "reduce-unsqueeze"),
        (one, "reduce-unsqueeze"),
        (squeezed, "unsqueeze-pairs"),
    ):
        assert not rewritten(f"{text} {{ {nodes} }}", rule).changed


def test_a_reversed_rule_brings_the_parts_back():
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[2,4] x, float[4] s, float[4] b) => (float[2,4] y) {
        h = LayerNormalization <axis = 1, epsilon = 0.01> (x, s, b) y = LayerNormalization(h, s) }"""
    model = parse_text(text)

    parts = Rewrite(("layer-norm",), reverse=True).apply(model).model
    whole = Rewrite(("layer-norm",)).apply(parts).model

    assert "LayerNormalization" not in operators(parts)
    assert operators(parts).count("ReduceMean") == 4
    assert [len(node.input) for node in whole.proto.graph.node] == [3, 2]
    assert [node.attribute[0].i for node in whole.proto.graph.node] == [1, -1]


def test_float16_gets_constants_of_its_own():
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float16[4] x) => (float16[4] y) { y = Gelu(x) }'

    parts = rewritten(text, "gelu-erf", reverse=True).model

    constants = [
        node.attribute[0].t for node in parts.proto.graph.node if node.op_type == "Constant"
    ]
    assert {tensor.data_type for tensor in constants} == {TensorProto.FLOAT16}
    assert operators(Rewrite(("gelu-erf",)).apply(parts).model) == ["Gelu"]


# --- the shipped rules, proved ---

KINDS = [(int4, -8, 8), (uint4, 0, 16), (np.int8, -128, 128), (np.uint8, 0, 256)]


def _inputs(
    name: str, draw, used: set[str]
) -> tuple[dict[str, np.ndarray], dict[str, object], set[str]]:
    """Return arrays for the inputs of a pattern of some operators, its variables, and the inputs that are constants."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    n, m, k = (draw(st.integers(2, 4)) for _ in range(3))

    def made(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    if name.endswith("-pairs") or name == "reduce-unsqueeze":
        return _pair_inputs(name, draw, made, "Unsqueeze" in used)
    if "conv" in name:
        return _convolution_inputs(name, draw, made)
    match name:
        case "layer-norm" | "rms-norm" | "contrib-rms-norm" | "contrib-skip-norm":
            axis = draw(st.sampled_from([-1, 2]))
            arrays = {"x": made(n, m, k), "scale": made(k), "bias": made(k), "skip": made(n, m, k)}
            epsilon = draw(st.sampled_from([1e-5, 1e-3]))
            return arrays, {"epsilon": epsilon, "axes": [axis], "axis": axis}, {"scale"}
        case "matmul-add":
            return {"x": made(n, m), "w": made(m, k), "b": made(k)}, {}, {"w", "b"}
        case "attention" | "contrib-attention":
            perm = draw(st.sampled_from([[0, 1, 3, 2], [0, 2, 3, 1]]))
            perm = [0, 1, 3, 2] if "Reshape" in used else perm
            key = (2, m, 5, 4) if perm[1] == 1 else (2, 5, m, 4)
            arrays = {
                "q": made(2, m, n, 4),
                "k": made(*key),
                "v": made(2, m, 5, k),
                "mask": made(1, 1, draw(st.sampled_from([1, n])), 5),
                "flat": np.array([-1, 5, 4]),
                "deep": np.array([2, m, 4, 5]),
            }
            number = draw(st.sampled_from([0.5, 2.0]))
            scales = ("divisor", "factor", "root", "ahead", "below")
            return (
                arrays,
                {"perm": perm, "axis": 3, "to": 1, **dict.fromkeys(scales, number)},
                {"flat", "deep"},
            )
        case "contrib-grouped-attention":
            heads, groups, new = draw(st.sampled_from([(4, 2, 3), (2, 1, 1), (2, 2, 4)]))
            sizes = {"q": heads, "k": groups, "v": groups}
            flat = draw(st.booleans())
            arrays = {
                name: made(1, new, 8 * count) if flat else made(1, count, new, 8)
                for name, count in sizes.items()
            }
            arrays |= {name: made(1, groups, 0, 8) for name in ("past_key", "past_value")}
            arrays["mask"] = made(1, draw(st.sampled_from([1, heads])), new, new)
            variables = {
                "is_causal": 1,
                "scale": 0.3,
                "softcap": draw(st.sampled_from([0.0, 1.5])),
                "mode": 0,
            }
            return (
                arrays,
                {**variables, "q_num_heads": heads * flat, "kv_num_heads": groups * flat},
                set(),
            )
        case "contrib-matmul-nbits":
            kind, low, high = draw(st.sampled_from(KINDS))
            axis, blocks = int("Transpose" in used), draw(st.integers(1, 3))
            w, zero = (
                rng.integers(low, high, (rows, n)).astype(kind) for rows in (16 * blocks, blocks)
            )
            w, zero = (array.T if axis else array for array in (w, zero))
            scale = np.abs(made(blocks, n)).T if axis else np.abs(made(blocks, n))
            arrays = {
                "a": made(2, m, 16 * blocks),
                "w": w,
                "zero": zero,
                "scale": np.ascontiguousarray(scale),
            }
            return arrays, {"axis": axis, "block": 16}, {"w", "zero", "scale"}
        case "rotary" | "contrib-rotary":
            angles = made(draw(st.sampled_from([1, 2])), n, 3)
            both = np.concatenate([angles, angles], -1)[:1, None]
            # of heads that are wider than a row of the tables, a part is turned
            width = draw(st.sampled_from([6, 8])) if "Gather" in used else 6
            arrays = {
                "x": made(2, m, n, width),
                "positions": rng.integers(0, 5, (2, n)),
                "cosine": made(5, 3),
                "sine": made(5, 3),
                "angles": angles,
                "cos": np.cos(both),
                "sin": np.sin(both),
            }
            variables = {"axes": [3], "start": [0], "middle": [3], "end": [1 << 62], "steps": [1], "across": -1,
                         "ahead": [1], "joined": -1, "whole": [6]}  # fmt: skip
            return arrays, variables, {"cos", "sin", "cosine", "sine"}
    return {"x": made(n, m), "bias": made(m)}, {"alpha": 1 / 6, "beta": 0.5}, {"bias"}


def _repeated_inputs(
    name: str, draw, used: set[str]
) -> tuple[dict[str, np.ndarray], dict[str, object], set[str]]:
    rng, n = np.random.default_rng(draw(st.integers(0, 99))), draw(st.integers(2, 4))

    def made(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    heads, groups, past = draw(st.sampled_from([(4, 2, 3), (2, 1, 1), (2, 2, 0)]))
    total = past + n
    arrays = {name: made(1, groups, n, 8) for name in "kv"}
    arrays |= {name: made(1, groups, past, 8) for name in ("past_key", "past_value", "first")}
    arrays |= {"query": made(1, n, 8 * heads), "new": np.array(n)}
    arrays["other"] = np.arange(total)[None, None, None] != 1
    for part in "kv":
        arrays[f"often_{part}"] = np.array([1, groups, heads // groups, total, 8])
        arrays[f"size_{part}"] = np.array([1, heads, total, 8])
    places = {"before": [0, 1, 3], "behind": [0, 1, 2], "none": 0, "step": 1, "zero": 0.0}
    attributes = {
        "axes": [2],
        "split": [0, 0, -1],
        "axis": 2,
        "heads": heads,
        "scale": 0.3,
        "allowzero": 0,
    }
    fixed = {name for name in arrays if "_" in name and "past" not in name}
    return arrays, {**places, **attributes, "least": -3.4e38}, fixed | {"new", "other"}


def _cached_inputs(
    name: str, draw, used: set[str]
) -> tuple[dict[str, np.ndarray], dict[str, object], set[str]]:
    rng, n = np.random.default_rng(draw(st.integers(0, 99))), draw(st.integers(1, 4))

    def made(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    heads, groups = draw(st.sampled_from([(4, 2), (2, 1), (2, 2)]))
    past = draw(st.sampled_from([3, 0, 5]))
    is_packed, half = "Split" in used, draw(st.sampled_from([8, 16]))
    arrays = {
        "query": made(1, n, 32 * (heads + 2 * groups if is_packed else heads)),
        "key": made(1, n, 32 * groups),
        "value": made(1, n, 32 * groups),
        "past_key": made(1, groups, past, 32),
        "past_value": made(1, groups, past, 32),
        "seqlens_k": np.array([past + n - 1], np.int32),
        "total_sequence_length": np.array(past + n, np.int32),
        "cos_cache": made(12, half),
    }
    arrays["sin_cache"] = made(*arrays["cos_cache"].shape)
    attributes = {
        "columns": [0, 0, heads + 2 * groups if is_packed else heads, -1],
        "columns_kv": [0, 0, groups, -1],
        "counts": [heads, groups, groups],
        "shares": [0, groups, heads // groups],
        "interleaved": draw(st.sampled_from([0, 1])),
        "turned": 0 if half == 16 else heads,
        "turned_k": 0 if half == 16 else groups,
        "width": 0 if half == 16 else 16,
        "head": [32],
        "scale": 0.3,
        "softcap": 2.0,
        "nearest": 2,
        "lowest": -3.4e38,
        "to": 10,
    }
    return arrays, attributes, {"cos_cache", "sin_cache"}


def _pair_inputs(
    name: str, draw, made, wide: bool
) -> tuple[dict[str, np.ndarray], dict[str, object], set[str]]:
    n, m, k = (draw(st.integers(2, 4)) for _ in range(3))
    match name:
        case "transpose-pairs":
            first, second = (draw(st.permutations([0, 1, 2])) for _ in range(2))
            variables: dict[str, object] = {"first": first, "second": second}
            if wide:
                axes = draw(st.sampled_from([[1], [-1], [0, 3], [-2, 1]]))
                variables |= {"axes": axes, "second": draw(st.permutations(range(3 + len(axes))))}
            return {"x": made(n, m, k)}, variables, set()
        case "reduce-unsqueeze":
            axes = draw(st.sampled_from([[1], [-1], [0, 2]]))
            arrays = {"x": np.abs(made(n, m, k)), **dict.fromkeys(("axes", "same"), np.array(axes))}
            return arrays, {"axes": axes, "same": axes}, {"axes", "same"}
        case "reshape-pairs":
            shapes = {"first": np.array([-1]), "last": np.array([k, -1])}
            return {"x": made(n, m, k), **shapes}, {}, {*shapes}
        case "unsqueeze-pairs":
            first = draw(st.sampled_from([[0], [2], [-3], [0, -1], [-2, 1]]))
            second = draw(st.sampled_from([[0], [2], [-3], [-1, 0], [1, 2]]))
            return {"x": made(n, m)}, {"first": first, "second": second}, set()
    raise AssertionError(name)


def _convolution_inputs(
    name: str, draw, made
) -> tuple[dict[str, np.ndarray], dict[str, object], set[str]]:
    n = draw(st.integers(2, 4))
    match name:
        case "conv-add" | "conv-mul":
            added = made(n, 1, 1)[None] if draw(st.booleans()) else made(n, 1, 1)
            arrays = {"x": made(1, 3, 8, 8), "w": made(n, 3, 3, 3), "b": made(n), "added": added}
            arrays["factor"] = added
            return arrays, {"group": 1, "strides": [2, 1]}, {*arrays} - {"x"}
        case "pad-conv":
            ahead, behind, pads = ([draw(st.integers(0, 2)) for _ in range(2)] for _ in range(3))
            variables = {
                "amounts": [0, 0, *ahead, 0, 0, *behind],
                "pads": [*pads, 1, 0],
                "group": 1,
            }
            return {"x": made(1, 3, 8, 8), "w": made(n, 3, 3, 3), "b": made(n)}, variables, set()
        case "conv-batch-norm":
            rank = draw(st.integers(1, 2))
            arrays = {
                "x": made(1, 3, *[8] * rank),
                "w": made(n, 3, *[3] * rank),
                "variance": abs(made(n)) + 0.1,
            }
            arrays |= {key: made(n) for key in ("b", "scale", "shift", "mean")}
            variables = {
                "epsilon": 1e-3,
                "momentum": 0.9,
                "group": 1,
                "pads": [draw(st.integers(0, 1))] * 2 * rank,
            }
            return arrays, variables, {*arrays} - {"x"}
    raise AssertionError(name)


_HALF = "dtype(query) == 'float16' or dtype(query) == 'bfloat16'"


@st.composite
def models(draw, name: str) -> tuple[Model, dict[str, np.ndarray]]:
    """A random graph in which one of the rule's patterns stands once or twice, among other nodes."""
    # these graphs are in float: what is for half precision alone cannot match
    rules = [rule for rule in read_rules(name) if _HALF not in _conditions(rule)]
    rule = draw(st.sampled_from(rules))
    function = rule.pattern.function
    used_operators = {node.op_type for node in function.node}
    of_attention = {
        "contrib-repeated-attention": _repeated_inputs,
        "contrib-standard-attention": _cached_inputs,
    }
    inputs = of_attention.get(name, _inputs)
    arrays, variables, constants = inputs(name, draw, used_operators)
    # it has no attribute then
    assume(not ("ReduceSum" in used_operators and "opset() < 18" in _conditions(rule)))
    if "first == second" in _conditions(rule):
        variables["second"] = variables["first"]
    call = helper.make_node("call", [], [])
    call.attribute.extend(attribute_of(key, value) for key, value in variables.items())
    proto = helper.make_model(helper.make_graph([], "random", [], []), ir_version=10)
    graph, feeds = proto.graph, {}
    used = [key for key in function.input if key in arrays]
    for key in used:
        if key in constants:
            graph.initializer.append(from_array(arrays[key], key))
        else:
            feeds[key] = arrays[key]
            graph.input.append(
                helper.make_tensor_value_info(
                    key, helper.np_dtype_to_tensor_dtype(arrays[key].dtype), arrays[key].shape
                )
            )
    for copy in range(draw(st.integers(1, 2))):
        start = used[0]
        if draw(st.booleans()):
            graph.node.append(helper.make_node("Relu", [used[0]], [start := f"relu{copy}"]))
        names = {"": ""} | {key: key for key in used} | {used[0]: start}
        for node in bound_nodes(function, call):
            names |= {key: f"{key}{copy}" for key in node.output}
            inputs = [names[key] for key in node.input]
            if node.op_type in COMMUTATIVE and draw(st.booleans()):
                inputs.reverse()
            node.input[:], node.output[:] = inputs, [names[key] for key in node.output]
            graph.node.append(node)
        for number, result in enumerate(function.output):
            made = f"out{copy}_{number}"
            graph.node.append(helper.make_node("Neg", [f"{result}{copy}"], [made]))
            graph.output.append(helper.make_tensor_value_info(made, TensorProto.FLOAT, None))
    if any(node.domain for node in function.node):
        proto.opset_import.add(domain="com.microsoft", version=1)
    below = [int(c.rpartition(" ")[2]) for c in _conditions(rule) if c.startswith("opset() < ")]
    proto.opset_import[0].version = below[0] - 1 if below else 24
    return Model(proto), feeds


def _conditions(rule) -> list[str]:
    return [ast.unparse(condition) for condition in rule.where]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_rule_leaves_the_numbers_of_random_graphs(name, runtime):
    replaced = 0

    # they compute constants
    examples = (
        5 if name in ("conv-add", "conv-batch-norm", "conv-mul", "rotary", "contrib-rotary") else 12
    )

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None,
              suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    @given(models(name))
    def holds(drawn):
        nonlocal replaced
        model, feeds = drawn
        result = Rewrite((name,)).apply(model)
        replaced += result.changed
        for one, two in zip(
            _run(runtime, model, feeds), _run(runtime, result.model, feeds), strict=True
        ):
            assert one.shape == two.shape
            assert np.allclose(one, two, rtol=1e-4, atol=1e-5)

    holds()
    assert replaced >= examples / 2


def _run(runtime, model: Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    runtime.open(model)
    for name, value in feeds.items():
        runtime.put(name, value)
    outputs = [output.name for output in model.proto.graph.output]
    return [*runtime.run(list(feeds), outputs).values.values()]
