"""The examples of onnxscript's rewriter tutorial, by its rules and by ours: the same nodes are left."""

import onnx
import pytest
from onnxscript import ir
from onnxscript.rewriter import pattern, rewrite

from onnxsurgeon_lite import Rewrite
from onnxsurgeon_lite.passes.build import parse_text

ERF = """g (float[64,128] x) => (float[64,128] y) {
    root = Constant <value_float = 1.4142135> () half = Constant <value_float = 0.5> ()
    one = Constant <value_float = 1.0> ()
    a = Div(x, root) b = Erf(a) c = Add(ONE) d = Mul(x, c) y = Mul(half, d) }"""
CONV = (
    "g (float[1,2,8,8] x, float[2,2,3,3] w, float[2] b) => (float[1,2,6,6] y) { y = Conv(x, w, b) }"
)
SCALED = """g (float[2,2] x, float[2,2] z) => (float[2,2] y) {
    f = Constant <value_float = 2.0> () m = MatMul(x, z) s = OP(m, f) y = Relu(s) }"""
SPLIT = "g (float[4,4] x) => (float[2,4] a, float[2,4] b) { a, b = Split <num_outputs = 2> (x) }"
RESHAPED = """g (float[1,4,8,8] x, float[1,4,8,2] z) => (float[n,m,k,l] y) {
    p = Constant <value_ints = [4, 8, 8]> () q = Constant <value_ints = [4, 8, 2]> ()
    r = Constant <value_ints = LAST> ()
    a = Reshape(x, p) b = Reshape(z, q) m = MatMul(a, b) y = Reshape(m, r) }"""
CONSTANTS = """g (float[N] x) => (float[N] a, float[N] b) {
    p = Constant <value_float = 2.5> () n = Constant <value_float = -1.5> () a = Add(p, x) b = Add(n, x) }"""
DROPPED = "g (float[4] x) => (float[4] y) { y = LeakyRelu <alpha = 0.3> (x) }"

CUSTOM = """<ir_version: 10, opset_import: ["" : 18, "custom.domain" : 1]>
    g (float[2,2] x) => (float[2,2] y) { h = custom.domain.Relu(x) y = Relu(h) }"""
SHAPES = """g (float[N,M] x) => (int64[2] a, int64[2] b, int64[1] c) {
    a = Shape(x) b = Shape <start = 0> (x) c = Shape <start = 1> (x) }"""


def erf(op, x):
    return op.Mul(0.5, op.Mul(x, op.Add(op.Erf(op.Div(x, 1.4142135)), 1.0)))


def gelu(op, x):
    return op.Gelu(x, _domain="com.microsoft")


def or_scaled(op, x, y, factor):
    xy = op.MatMul(x, y)
    either = [op.Mul(xy, factor), op.Div(xy, factor)]
    return op.Relu(pattern.OrValue(either, tag_var="op_type", tag_values=["Mul", "Div"]))


def or_replaced(op, x, y, factor, op_type):
    return getattr(op, f"MatMul{op_type}Relu")(x, y, factor, _domain="some.domain")


def reshaped(op, a, b, shape_a, shape_b, shape_c):
    return op.Reshape(op.MatMul(op.Reshape(a, shape_a), op.Reshape(b, shape_b)), shape_c)


def is_broadcast(context, shape_c, **_):
    return shape_c.const_value is None or list(shape_c.const_value.numpy()) == [1, 4, 8, 2]


def positive(context, value: ir.Value):
    const = ir.convenience.get_const_tensor(value)
    return const is not None and float(const.numpy()) > 0


GELU = """pattern (x) => (y) { root = Constant <value_float: float = 1.4142135> () a = Div(x, root) b = Erf(a)
        one = Constant <value_float: float = 1.0> () c = Add(b, one) d = Mul(x, c)
        half = Constant <value_float: float = 0.5> () y = Mul(half, d) }
    replacement (x) => (y) { y = com.microsoft.Gelu(x) }"""
EITHER = "".join(f"""pattern (x, z, f) => (y) {{ m = MatMul(x, z) s = {op}(m, f) y = Relu(s) }}
    replacement (x, z, f) => (y) {{ y = some.domain.MatMul{op}Relu(x, z, f) }}
    """ for op in ("Mul", "Div"))  # fmt: skip
CHECKED = """# where list(c) == shape(a)[:-1] + shape(b)[-1:], shape(a)[:-2] == shape(b)[:-2], len(p) == 3, len(q) == 3
    pattern (a, b, p, q, c) => (y) { s = Reshape(a, p) t = Reshape(b, q) m = MatMul(s, t) y = Reshape(m, c) }
    replacement (a, b) => (y) { y = MatMul(a, b) }"""

EXAMPLES = {
    "erf gelu": (ERF.replace("ONE", "b, one"), GELU, (erf, gelu)),
    "commuted": (ERF.replace("ONE", "one, b"), GELU, (erf, gelu)),
    "or, first": (SCALED.replace("OP", "Mul"), EITHER, (or_scaled, or_replaced)),
    "or, second": (SCALED.replace("OP", "Div"), EITHER, (or_scaled, or_replaced)),
    "other inputs": (
        CONV,
        """pattern (x, w) => (y) { y = Conv(x, w, _) }
           replacement (x, w) => (y) { y = custom.domain.OptimizedConv(x, w) }""",
        (
            lambda op, x, w: op.Conv(x, w, _allow_other_inputs=True),
            lambda op, x, w, **_: op.OptimizedConv(x, w, _domain="custom.domain"),
        ),
    ),
    "other attributes": (
        DROPPED,
        "pattern (x) => (y) { y = LeakyRelu <_ = 1> (x) } replacement (x) => (y) { y = Relu(x) }",
        (lambda op, x: op.LeakyRelu(x, _allow_other_attributes=True), lambda op, x: op.Relu(x)),
    ),
    "other attributes refused": (
        DROPPED,
        "pattern (x) => (y) { y = LeakyRelu(x) } replacement (x) => (y) { y = Relu(x) }",
        (lambda op, x: op.LeakyRelu(x, _allow_other_attributes=False), lambda op, x: op.Relu(x)),
    ),
    "domain": (
        CUSTOM,
        "pattern (x) => (y) { y = custom.domain.Relu(x) } replacement (x) => (y) { y = Neg(x) }",
        (lambda op, x: op.Relu(x, _domain="custom.domain"), lambda op, x, **_: op.Neg(x)),
    ),
    "domain, another one put there": (
        CUSTOM,
        """pattern (x) => (y) { y = custom.domain.Relu(x) }
           replacement (x) => (y) { y = com.microsoft.OptimizedRelu(x) }""",
        (
            lambda op, x: op.Relu(x, _domain="custom.domain"),
            lambda op, x, **_: op.OptimizedRelu(x, _domain="com.microsoft"),
        ),
    ),
    "domain refused": (
        DROPPED.replace("LeakyRelu <alpha = 0.3>", "Relu"),
        "pattern (x) => (y) { y = custom.domain.Relu(x) } replacement (x) => (y) { y = Neg(x) }",
        (lambda op, x: op.Relu(x, _domain="custom.domain"), lambda op, x, **_: op.Neg(x)),
    ),
    "checked node": (
        SHAPES,
        "pattern (x) => (y) { y = Shape <start = 0> (x) } replacement (x) => (y) { y = local.Sizes(x) }",
        (
            lambda op, x: op.Shape(
                x, _check=lambda _, node: node.attributes.get_int("start", 0) == 0
            ),
            lambda op, x, **_: op.Sizes(x, _domain="local"),
        ),
    ),
    "outputs": (
        SPLIT,
        """pattern (x) => (a, b) { a, b = Split <num_outputs = 2, axis = 0> (x) }
           replacement (x) => (a, b) { a, b = custom.domain.CustomSplit(x) }""",
        (
            lambda op, x: op.Split(x, num_outputs=2, _outputs=2),
            lambda op, x, **_: op.CustomSplit(x, _domain="custom.domain", _outputs=["a", "b"]),
        ),
    ),
    "condition holds": (
        RESHAPED.replace("LAST", "[1, 4, 8, 2]"),
        CHECKED,
        (reshaped, lambda op, a, b, **_: op.MatMul(a, b), is_broadcast),
    ),
    "condition refuses": (
        RESHAPED.replace("LAST", "[4, 1, 8, 2]"),
        CHECKED,
        (reshaped, lambda op, a, b, **_: op.MatMul(a, b), is_broadcast),
    ),
    "checked value": (
        CONSTANTS,
        "# where c > 0\npattern (c, x) => (y) { y = Add(c, x) } replacement (c, x) => (y) { y = Mul(c, x) }",
        (lambda op, x: op.Add(positive, x), lambda op, x, **_: op.Abs(x)),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_tutorial_leaves_the_nodes_that_the_peer_leaves(name):
    text, ours, theirs = EXAMPLES[name]
    model = parse_text(text)
    rules = pattern.RewriteRuleSet([pattern.RewriteRule(*theirs)], commute=name == "commuted")

    expected = rewrite(onnx.ModelProto.FromString(model.encoded()), pattern_rewrite_rules=rules)
    result = Rewrite((ours,)).apply(model)

    assert _operators(result.model.proto) == _operators(expected)
    assert result.changed == (not name.endswith(("refused", "refuses")))


def _operators(proto: onnx.ModelProto) -> list[str]:
    """The operators, those alone that count; what the peer's last example puts in is another."""
    kinds = (node.op_type for node in proto.graph.node if node.op_type != "Constant")
    return sorted("Mul" if kind == "Abs" else kind for kind in kinds)
