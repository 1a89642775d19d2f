"""`fold`, `cse`, `skip-noops` and `simplify`: fewer nodes, the same numbers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxsurgeon_lite as osl
from kit.graphs import run
from onnxsurgeon_lite import Model, load, passes
from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.runtime import session
from onnxsurgeon_lite.surgery.symbolic import shapes
from onnxsurgeon_lite.system import end_with_descendants

HEADS = """heads (float[batch,seq,8] x) => (float[b,h,s,d] y)
<int64 first = {0}, int64 second = {1}, int64[1] axes = {0}, int64[1] heads = {2}, int64[1] size = {4}> {
    s = Shape(x)
    b = Gather<axis = 0>(s, first) b1 = Unsqueeze(b, axes)
    again = Shape(x)
    l = Gather<axis = 0>(again, second) l1 = Unsqueeze(l, axes)
    shape = Concat<axis = 0>(b1, l1, heads, size)
    split = Reshape(x, shape)
    y = Transpose<perm = [0,2,1,3]>(split)
}"""
CHANNELS = """channels (float[N,6,H,W] x) => (float[a,b,c,d] y)
<int64 one = {1}, int64[1] axes = {0}, int64[1] zero = {0}, int64[1] rest = {-1}, float[2] scale = {2, 3}> {
    s = Shape(x)
    c = Gather<axis = 0>(s, one) c1 = Unsqueeze(c, axes)
    two = Add(scale, scale)
    sum = ReduceSum<keepdims = 0>(two)
    many = Cast<to = 1>(c1)
    factor = Mul(many, sum)
    y = Mul(x, factor)
}"""
NOOPS = """noops (float[n,4] x) => (float[m,4] y)
<float one = {1}, float[4] zero = {0,0,0,0}, int64[2] same = {0,-1}, int64[2] pads = {0,0}, int64[1] last = {1},
 float[1,4] wide = {0,0,0,0}> {
    a = Identity(x)
    b = Cast<to = 1>(a)
    c = Mul(b, one)
    d = Add(zero, c)
    e = Reshape(d, same)
    f = Transpose<perm = [0,1]>(e)
    g = Pad(f, pads, , last)
    h = Concat<axis = 0>(g)
    k = Relu(h)
    y = Identity(k)
}"""
NOT_NOOPS = """stay (float[n,4] x, float[1] small) => (float[m,4] y, float[a,b] w, float[c] u)
<float[4] zero = {0,0,0,0}, float[2,4] rows = {0,0,0,0,0,0,0,0}> {
    b = Cast<to = 11>(x) c = Cast<to = 1>(b)
    d = Transpose<perm = [1,0]>(c) w = Relu(d)
    y = Neg(c)
    u = Add(small, zero)
}"""
TWICE = """twice (float[4] x, bool flag) => (float[4] y, float[4] z) <float[1] one = {1}, float[1] uno = {1}> {
    a = Add(x, one) b = Add(x, uno)
    c = Neg(a) d = Neg(b)
    r = RandomNormalLike<seed = 1.0>(x) s = RandomNormalLike<seed = 1.0>(x)
    rs = Sub(r, s)
    e = Mul(c, d)
    y = Add(e, rs)
    z = If(flag) <then_branch = t () => (float[4] o) { n = Neg(b) o = Abs(n) },
                  else_branch = f () => (float[4] o2) { m = Add(x, uno) m2 = Add(x, one) o2 = Mul(m, m2) }>
}"""
BODY = """body (float[4] x, bool flag) => (float[4] y) <float[4] w = {1,2,3,4}> {
    y = If(flag) <then_branch = t () => (float[4] o) { v = Add(w, w) k = Mul(v, v) o = Mul(x, k) },
                  else_branch = f () => (float[4] u) { u = Neg(x) }>
}"""


LATER = """later (float[4] x) => (float[4] y, float[4] z) <float[1] one = {1}, float[1] uno = {1}> {
    a = Relu(x)
    c = Neg(a)
    b = Relu(x)
    d = Neg(b)
    e = Add(c, one) f = Add(d, uno)
    y = Mul(e, f)
    z = Relu(x)
}"""
TURNS = """turns (float[2,3] x) => (float[3,1,2] y, float[2,3] z) <int64[1] axes = {1}> {
    a = Transpose<perm = [1,0]>(x) b = Transpose<perm = [1,0]>(a) c = Transpose<perm = [1,0]>(b)
    w = Unsqueeze(c, axes)
    y = Transpose<perm = [0,1,2]>(w)
    d = Transpose<perm = [1,0]>(x) e = Relu(d) f = Transpose<perm = [1,0]>(d)
    z = Neg(f)
}"""


def built(text: str) -> Model:
    return Model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}'))


def operators(model: Model) -> list[str]:
    """The operators of every graph, without those that hold constants."""
    nodes = [node.op_type for graph in walk.graphs(model.proto) for node in graph.node]
    return sorted(operator for operator in nodes if operator != "Constant")


def agree(runtime, before: Model, after: Model, feeds: dict[str, np.ndarray]) -> bool:
    one, two = (run(runtime, model, feeds) for model in (before, after))
    return all(np.array_equal(one[name], two[name]) for name in one)


def ones(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_shape_that_only_copies_sizes_becomes_constant(runtime):
    model = built(HEADS)

    result = osl.simplify(model)

    assert operators(result.model) == ["Reshape", "Transpose"]
    assert result.proof == ("agrees with the original in 2 runs",)
    assert agree(runtime, model, result.model, {"x": ones(1, 1, 8)})
    assert agree(runtime, model, result.model, {"x": ones(0, 3, 8)})


def test_a_known_size_is_folded_where_others_are_open(runtime):
    model = built(CHANNELS)

    result = osl.fold(model)

    assert operators(osl.clean(result.model).model) == ["Mul"]
    assert agree(runtime, model, result.model, {"x": ones(2, 6, 3, 5)})


@pytest.mark.parametrize("axes", ["0", "0, 1", "0, 1, 2"])
def test_a_size_gets_as_many_axes_as_are_asked_for(axes, runtime):
    text = """wide (float[3,n] x) => (int64[ONES] y) <int64 i = {0}, int64[COUNT] axes = {AXES}> {
        s = Shape(x) g = Gather(s, i) u = Unsqueeze(g, axes) h = Gather(s, i) v = Unsqueeze(h, axes) y = Add(u, v) }"""
    count = len(axes.split(","))
    text = text.replace("ONES", ", ".join("1" * count)).replace("COUNT", str(count))
    model = built(text.replace("AXES", axes))

    result = osl.fold(model)

    assert result.changed
    assert agree(runtime, model, result.model, {"x": ones(3, 2)})


def test_sizes_in_a_matrix_keep_their_rank(runtime):
    model = built("""matrix (float[3,n] x) => (int64[1] y) <int64[1,1] i = {0}, int64[1] first = {0}> {
        s = Shape(x) g = Gather(s, i) q = Squeeze(g, first) y = Add(q, q) }""")

    result = osl.fold(model)

    assert agree(runtime, model, result.model, {"x": ones(3, 2)})


def test_constants_of_bodies_are_folded(runtime):
    model = built(BODY)

    result = osl.fold(model)

    assert operators(result.model) == ["If", "Mul", "Neg"]
    assert agree(runtime, model, result.model, {"x": ones(4), "flag": np.array(True)})


IN_FUNCTION = """called (float[n,4] x, bool flag) => (float[n,4] y) {
    h = f.block <to = 1>(x, flag) y = f.block <to = 11>(h, flag) }
<domain: "f", opset_import: ["": 21]> block <to> (i, flag) => (o) {
    a = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() b = Add(a, a)
    c = Cast<to: int = @to>(b) d = Cast<to = 1>(c)
    k = Identity(i) t = Mul(k, d)
    r = If(flag) <then_branch = p () => (u) { v = Mul(b, b) w = Mul(t, v) u = Identity(w) },
                  else_branch = q () => (u2) { u2 = Neg(t) }>
    o = Identity(r)
}"""


def test_functions_are_simplified_for_all_their_calls(runtime):
    """What the call decides stays: a Cast to the dtype that an attribute of the call names."""
    text = f'<ir_version: 10, opset_import: ["": 21, "f": 1]>\n{IN_FUNCTION}'
    model = Model(onnx.parser.parse_model(text))

    result = passes.SkipNoops().apply(passes.Fold().apply(model).model).model

    onnx.checker.check_model(result.materialize())
    nodes = [node.op_type for node in walk.with_inner(result.proto.functions[0].node)]
    assert sorted(set(nodes)) == ["Cast", "Constant", "If", "Mul", "Neg"]
    assert nodes.count("Cast") == nodes.count("Mul") == 2
    for flag in (True, False):
        feeds = {"x": np.float32(np.arange(8).reshape(2, 4)), "flag": np.array(flag)}
        assert agree(runtime, model, result, feeds)


def test_what_is_larger_than_the_limit_stays_and_is_counted():
    model = built("large (float[4] x) => (float[n] y) { z = Constant<value_ints = [100000]>() "
                  "o = ConstantOfShape(z) k = Neg(o) y = Concat<axis = 0>(x, k) }")  # fmt: skip

    result = osl.fold(model, limit=1000)

    assert not result.changed
    assert result.notes == (
        "kept 1 constant nodes: an input or result is over 1000 bytes or of unknown size",
    )
    assert operators(osl.fold(model).model) == ["Concat"]


def test_a_runtime_that_dies_is_started_again_for_the_other_nodes(monkeypatch):
    model = built("""two (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> {
        a = Add(w, w) y = Add(x, a)
        b = Mul(w, w) z = Mul(x, b)
    }""")
    run_model, runs = session.run_model, []

    def dies_first(part: Model, feeds: object, runtime: session.Runtime) -> object:
        runs.append(len(part.proto.graph.node))
        if len(runs) == 1:
            end_with_descendants(runtime._child._process)
        return run_model(part, feeds, runtime=runtime)

    monkeypatch.setattr(session, "run_model", dies_first)
    result = passes.Fold().apply(model)

    assert runs == [2, 1, 1]
    assert result.notes == ()
    assert operators(result.model) == ["Add", "Mul"]


def test_quantization_and_random_numbers_are_not_folded():
    model = built("""kept (float[4] x) => (float[4] y, float[4] z) <int8[4] w = {1,2,3,4}, float s = {0.5}> {
        d = DequantizeLinear(w, s) y = Mul(x, d)
        shape = Constant<value_ints = [4]>() r = RandomUniform<shape = [4]>() z = Add(x, r)
    }""")

    assert not osl.fold(model).changed


def test_only_what_is_folded_is_read(tmp_path, monkeypatch):
    big = np.ones((64, 64), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["small", "small"], ["two"]), helper.make_node("Mul", ["two", "x"], ["m"]),
         helper.make_node("MatMul", ["m", "big"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(big, "big"), numpy_helper.from_array(big[:8].reshape(8, 64)[:1], "small")],
    )  # fmt: skip
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    (tmp_path / "m.onnx").rename(tmp_path / "model.onnx")
    model = load(tmp_path / "model.onnx")
    read: list[str] = []
    raw = Model.raw
    monkeypatch.setattr(
        Model, "raw", lambda self, tensor: read.append(tensor.name) or raw(self, tensor)
    )

    result = osl.simplify(model, unproved=True)

    assert operators(result.model) == ["MatMul", "Mul"]
    assert "big" not in read


def test_nodes_that_return_their_input_go(runtime):
    model = built(NOOPS)

    result = osl.skip_noops(model)

    assert operators(result.model) == ["Relu"]
    assert agree(runtime, model, result.model, {"x": ones(3, 4)})


def test_nodes_that_change_type_order_or_shape_stay():
    assert not osl.skip_noops(built(NOT_NOOPS)).changed


def test_equal_nodes_are_merged_in_bodies_too_and_random_ones_are_not(runtime):
    model = built(TWICE)

    result = osl.cse(model)

    assert operators(result.model) == [
        "Abs", "Add", "Add", "If", "Mul", "Mul", "Neg",
        "RandomNormalLike", "RandomNormalLike", "Sub",
    ]  # fmt: skip
    for flag in (True, False):
        assert agree(runtime, model, result.model, {"x": ones(4), "flag": np.array(flag)})


def test_a_constant_node_is_what_an_initializer_of_its_content_is():
    model = built("""same (float[4] x) => (float[4] y) <float[1] one = {1}> {
        k = Constant<value = float[1] {1}>()
        a = Add(x, one) b = Add(x, k)
        y = Mul(a, b)
    }""")

    assert operators(passes.Cse().apply(model).model) == ["Add", "Mul"]


def _copies(model: Model, numbers: range) -> Model:
    """A model of several copies of another one, each with a prefix of its own."""
    result = onnx.ModelProto()
    result.CopyFrom(model.proto)
    result.graph.CopyFrom(onnx.GraphProto(name=model.proto.graph.name))
    for number in numbers:
        copy = onnx.compose.add_prefix(model.proto, f"{number}/").graph
        copy.ClearField("name")
        result.graph.MergeFrom(copy)
    return Model(result)


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        (passes.Fold(), HEADS),
        (passes.Fold(), CHANNELS),
        (passes.SkipNoops(), NOOPS),
        (passes.SkipNoops(), NOT_NOOPS),
        (passes.Cse(), LATER),
        (passes.Rewrite(("transpose-pairs",)), TURNS),
    ],
)
def test_a_large_graph_becomes_what_its_parts_become(verb, text):
    model = built(text)

    part = verb.apply(model).model
    whole = verb.apply(_copies(model, range(60))).model.proto.graph
    expected = _copies(part, range(60)).proto.graph
    sides = [
        {(n.op_type, *n.input, "->", *n.output, *map(str, n.attribute)) for n in graph.node}
        | {tensor.name for tensor in graph.initializer}
        for graph in (whole, expected)
    ]
    assert sides[0] == sides[1]


@pytest.mark.parametrize("opset", [21, 13, 8, 7])
def test_a_convolution_takes_its_normalization(opset):
    text = """conv (float[N,3,8,8] x) => (float[N,4,a,b] y) <float[4] s = {1,2,3,4}, float[4] v = {1,2,1,2}> {
        c = Conv(x, w) y = BatchNormalization(c, s, s, s, v)
    }"""
    model = built(text)
    model.proto.opset_import[0].version = opset
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    model.proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))

    result = osl.simplify(model)

    onnx.checker.check_model(result.model.proto, full_check=True)
    assert operators(result.model) == ["Conv"]
    assert result.proof


def test_a_step_that_is_not_proved_is_left_out_by_name(monkeypatch):
    def broken(self: passes.Cse, index: osl.GraphIndex) -> PassResult:
        model, result = index.model, index.model.copy()
        for node in result.proto.graph.node:
            if node.op_type == "Relu":
                node.op_type = "Neg"
        return PassResult.of(model, result, ["merged what is not equal"])

    monkeypatch.setattr(passes.Cse, "edit", broken)

    result = osl.simplify(built(NOOPS))

    assert operators(result.model) == ["Relu"]
    assert "left out 'cse', which is not proved: output 'y' differs by up to" in result.notes[0]
    assert result.proof == ("agrees with the original in 2 runs",)


def test_a_step_can_be_left_out():
    result = osl.simplify(built(NOOPS), without="skip-noops")

    assert "Identity" in operators(result.model)
    with pytest.raises(UnknownNameError, match="no step 'shrink'"):
        osl.simplify(built(NOOPS), without="shrink")


def test_annotations_keep_their_values():
    model = built(
        "q (float[4] x) => (float[4] y) { a = Identity(x) b = Neg(a) c = Neg(a) y = Add(b, c) }"
    )
    for name in ("a", "b", "c"):
        model.proto.graph.quantization_annotation.add(tensor_name=name)

    assert not osl.simplify(model, without="infer").changed


def test_the_proof_speaks_of_outputs_that_no_feed_changes():
    model = built("fixed (float[4] x) => (float[4] y, float[1] k) <float[1] o = {1}> "
                  "{ i = Identity(x) y = Neg(i) k = Neg(o) }")  # fmt: skip

    result = osl.simplify(model)

    assert result.notes == ("nothing was proved for output 'k': it is the same for all feeds",)


def test_a_shape_of_copied_sizes_and_a_rest_becomes_constant(runtime):
    model = built("""flat (float[n,c,h,w] x) => (float[a,b,d] y)
    <int64[1] zero = {0}, int64[1] two = {2}, int64[1] rest = {-1}> {
        s = Shape(x) kept = Slice(s, zero, two) shape = Concat<axis = 0>(kept, rest) y = Reshape(x, shape)
    }""")

    result = osl.simplify(model)

    assert operators(result.model) == ["Reshape"]
    assert agree(runtime, model, result.model, {"x": ones(2, 3, 4, 5)})


def test_a_mask_that_masks_nothing_goes_whatever_its_size(runtime):
    model = built("""masked (float[2,1,32,32] x) => (float[2,1,32,32] y) <int64[4] sizes = {1,1,32,32}> {
        mask = ConstantOfShape(sizes) s = Add(x, mask) y = Exp(s)
    }""")

    result = osl.simplify(model)

    assert operators(result.model) == ["Exp"]
    assert agree(runtime, model, result.model, {"x": ones(2, 1, 32, 32)})


PEERS = {
    "reshape of sizes": ("""g (float[2,3,4,5] x) => (float[2,3,20] y)
        <int64 i = {2}, int64 j = {3}, int64[1] a = {0}, int64[1] one = {1}, int64[1] two = {2}> {
        s = Shape(x) h = Gather(s, i) w = Gather(s, j) p = Mul(w, h) b = Gather(s, a) c = Slice(s, one, two)
        q = Unsqueeze(p, a) t = Concat<axis = 0>(b, c, q) y = Reshape(x, t) }""", 1),
    "nothing to do": ("g (float[2,3,4,5] x) => (float[2,3,4,5] y) { y = Add(x, x) }", 1),
    "concats of one": ("""g (float[1,3,4,4] x) => (float[1,3,4,4] y) {
        m = Concat<axis = 1>(x) y = Concat<axis = 1>(m) }""", 1),
    "two reshapes": ("""g (float[1,3,8,8] x) => (float[1,12,4,4] y) <int64[3] a = {1,24,8}, int64[4] b = {1,12,4,4}> {
        m = Reshape(x, a) y = Reshape(m, b) }""", 1),
    "two reshapes, both outputs": ("""g (float[2,3] x) => (float[3,2] m, float[6] y)
        <int64[2] a = {3,2}, int64[1] b = {6}> {
        m = Reshape(x, a) y = Reshape(m, b) }""", 2),
    "unsqueezed and squeezed": ("""g (float[3,4,5] x) => (float[3,4,5] y) <int64[1] a = {0}, int64[1] b = {0}> {
        m = Unsqueeze(x, a) k = Squeeze(m, b) y = Neg(k) }""", 1),
    "two unsqueezes": ("""g (float[3,4] x) => (float[3,4,1,1] y) <int64[1] a = {-1}, int64[1] b = {-1}> {
        m = Unsqueeze(x, a) y = Unsqueeze(m, b) }""", 1),
    "two unsqueezes by attribute": ("""g (float[3,4] x) => (float[3,4,1,1] y) {
        m = Unsqueeze<axes = [-1]>(x) y = Unsqueeze<axes = [-1]>(m) }""", 1),
    "two unsqueezes of several axes": ("""g (float[3,4] x) => (float[1,3,1,4,1] y)
        <int64[2] a = {0,-1}, int64[1] b = {2}> {
        m = Unsqueeze(x, a) y = Unsqueeze(m, b) }""", 1),
    "unsqueezes of one that is unsqueezed": ("""g (float[3,4] x) => (float[1,1,3,4] y, float[1,3,1,4] z)
        <int64[1] a = {0}, int64[1] b = {2}> {
        m = Unsqueeze(x, a) k = Unsqueeze(m, a) l = Unsqueeze(m, b) y = Neg(k) z = Neg(l) }""", 4),
    "reduced and unsqueezed": ("""g (float[3,4] x) => (float[3,1] y) <int64[1] a = {1}> {
        m = ReduceSum<keepdims = 0>(x, a) y = Unsqueeze(m, a) }""", 1),
    "reduced by attribute and unsqueezed": ("""g (float[3,4] x) => (float[3,1] y) {
        m = ReduceMean<axes = [1], keepdims = 0>(x) y = Unsqueeze<axes = [1]>(m) }""", 1),
    "transposed around an unsqueeze": ("""g (float[2,3,4] x) => (float[2,3,1,4] y) <int64[1] a = {1}> {
        t = Transpose<perm = [0,2,1]>(x) u = Unsqueeze(t, a) y = Transpose<perm = [0,3,1,2]>(u) }""", 1),
    "true and": ("""g (float[2] x) => (bool[2] y) <bool[1] t = {1}, bool[1] f = {0}> {
        b = Cast<to = 9>(x) m = And(t, b) k = Or(m, f) l = Xor(f, k) y = Not(l) }""", 2),
    "convolution and add": ("""g (float[1,2,4,4] x) => (float[1,2,2,2] y)
        <float[2,2,1,1] w = {1,2,3,4}, float[1,2,1,1] b = {5,6}> {
        m = Conv<strides = [2,2]>(x, w) y = Add(m, b) }""", 1),
    "convolution and factor": ("""g (float[1,2,4,4] x) => (float[1,2,2,2] y)
        <float[2,2,1,1] w = {1,2,3,4}, float[2] b = {1,2}, float[1,2,1,1] f = {5,6}> {
        m = Conv<strides = [2,2]>(x, w, b) y = Mul(m, f) }""", 1),
    "product and row": ("""g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,2,3,4}, float[2] b = {5,6}> {
        m = MatMul(x, w) y = Add(m, b) }""", 1),
    "padded convolution": ("""g (float[1,1,4,4] x) => (float[1,1,4,4] y)
        <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}, int64[8] p = {0,0,1,1,0,0,1,1}, float z = {0}> {
        m = Pad<mode = "constant">(x, p, z) y = Conv<kernel_shape = [3,3], pads = [0,0,0,0]>(m, w) }""", 1),
}  # fmt: skip
"""Models of onnxsim's and OnnxSlim's own tests -> the nodes that they leave."""


@pytest.mark.parametrize("name", PEERS)
def test_no_more_nodes_are_left_than_peers_leave_in_their_own_tests(name):
    text, nodes = PEERS[name]
    version = 11 if "axes =" in text or "Conv" in text else 13
    header = f'<ir_version: 7, opset_import: ["" : {version}]>'

    result = osl.simplify(Model(onnx.parser.parse_model(f"{header} {text}")))

    assert len(operators(result.model)) == nodes
    assert result.proof == (("agrees with the original in 2 runs",) if result.changes else ())


@pytest.mark.parametrize("node", ["Expand(x, k)", "Reshape(x, k)"])
def test_a_scalar_is_not_taken_for_a_value_of_unknown_rank(node):
    model = built(f"scalar (float x, int64[n] k) => (float y) {{ h = {node} y = Relu(h) }}")
    model.proto.graph.output[0].type.tensor_type.ClearField("shape")

    assert operators(osl.skip_noops(model).model) == sorted([node.partition("(")[0], "Relu"])


def test_what_is_not_read_after_folding_keeps_its_declaration():
    model = built("""g (float[n,4] x) => (float[m,4] y) <int64 one = {1}> {
        s = Shape(x) c = Gather(s, one) f = Cast<to = 1>(c) y = Mul(x, f) }""")
    model.proto.graph.value_info.add(
        name="s", doc_string="kept", type=osl.infer(model).model.proto.graph.value_info[0].type
    )

    folded = osl.fold(model).model

    assert operators(folded) == ["Mul", "Shape"]
    assert [info.name for info in folded.proto.graph.value_info] == ["s"]


def test_what_an_earlier_step_knows_of_types_is_not_inferred_again(monkeypatch):
    heads = "".join(
        f"""s{n} = Shape(h{n}) f{n} = Cast<to = 1>(s{n}) p{n} = ReduceProd<keepdims = 1>(f{n})
        d{n} = Cast<to = 7>(p{n}) r{n} = Reshape(h{n}, d{n}) i{n} = Identity(r{n}) g{n} = Relu(i{n})
        h{n + 1} = Reshape(g{n}, s{n}) """
        for n in range(6)
    )
    model = built(f"""g (float[b,s,8] h0) => (float[b,s,8] y) {{ {heads} y = Neg(h6) }}""")
    visited = []
    visit = shapes._Resolving._visit
    monkeypatch.setattr(
        shapes._Resolving, "_visit", lambda self, *how: visited.append(how) or visit(self, *how)
    )

    osl.infer(model)
    once = len(visited)
    result = osl.simplify(model, unproved=True)

    assert "Identity" not in operators(result.model)
    # inferred alone, and in the first step; nothing after an edit
    assert 0 < len(visited) <= 2 * once
