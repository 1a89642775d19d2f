"""`infer`: the type of every value, with sizes in the symbols of the inputs, as the runtime finds them."""

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import Expose, GraphIndex, Model
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.index import serialized_part
from onnxsurgeon_lite.graph.text import type_text
from onnxsurgeon_lite.surgery.symbolic.expressions import Expressions

CHAIN = """sizes (float[batch,seq,8] x) => (float[a,b,c] y) <int64[1] first = {0}, int64[1] four = {4}> {
    s = Shape(x)
    b1 = Gather<axis = 0>(s, first)
    at = Constant<value_ints = [1]>()
    l1 = Gather<axis = 0>(s, at)
    l4 = Mul(l1, four)
    two = Constant<value_ints = [2]>()
    shape = Concat<axis = 0>(b1, l4, two)
    r = Reshape(x, shape)
    y = Relu(r)
}"""
IMAGES = """images (float[N,3,H,W] x) => (float[a,b,c] y) <float[4,3,3,3] w, float[4,4,3,3] v> {
    one = Conv<strides = [2,2], pads = [1,1,1,1]>(x, w)
    two = Conv<strides = [2,2], pads = [1,1,1,1]>(one, v)
    shape = Constant<value_ints = [0,4,-1]>()
    flat = Reshape(two, shape)
    y = Transpose<perm = [0,2,1]>(flat)
}"""
CACHE = """cache (float[batch,heads,past,8] old, float[batch,heads,seq,8] new) => (float[a,b,c,d] y) {
    all = Concat<axis = 2>(old, new)
    y = Softmax(all)
}"""
TABLE = """table (int64[1,seq] ids, float[batch,seq,4] x) => (float[a,b,c] y)
<float[77,4] weights, int64[1] zero = {0}, int64[1] one = {1}> {
    size = Shape<start = 1, end = 2>(ids)
    rows = Slice(weights, zero, size, zero)
    whole = Unsqueeze(rows, zero)
    y = Add(x, whole)
}"""
BODIES = """bodies (float[n,4] x, bool flag) => (float[m,k] y) {
    c = Concat<axis = 0>(x, x)
    y = If(flag) <
        then_branch = one () => (float[p,q] o) { t = Concat<axis = 0>(c, c) o = Relu(t) },
        else_branch = two () => (float[p,q] u) { u = Neg(c) }>
}"""


def declared(model: Model) -> dict[str, str]:
    """Value -> its declared type, in bodies too."""
    graphs = osl.model.walk.graphs(model.proto)
    return {
        info.name: type_text(info.type)
        for graph in graphs
        for info in (*graph.value_info, *graph.output)
    }


def built(text: str) -> Model:
    """A model of which nothing but the interface is typed; weights that the text has no numbers for are ones."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    for info in proto.graph.value_info:
        ones = np.ones([dim.dim_value for dim in dims(info)], np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(ones, info.name))
    del proto.graph.value_info[:]
    return Model(proto)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (CHAIN, "r", "float [batch, 4*seq, 2]"),
        (IMAGES, "one", "float [N, 4, (H + 1)//2, (W + 1)//2]"),
        (IMAGES, "two", "float [N, 4, (H + 3)//4, (W + 3)//4]"),
        (IMAGES, "flat", "float [N, 4, ((H + 3)//4)*((W + 3)//4)]"),
        (CACHE, "all", "float [batch, heads, past + seq, 8]"),
        (TABLE, "whole", "float [1, seq, 4]"),
        (BODIES, "c", "float [2*n, 4]"),
        (BODIES, "t", "float [4*n, 4]"),
        (BODIES, "u", "float [p, q]"),
    ],
)
def test_sizes_are_expressions_of_the_inputs(text, value, expected):
    result = osl.infer(built(text))

    assert declared(result.model)[value] == expected
    assert not osl.infer(result.model).changed
    assert not re.search("unk__", str(declared(result.model)))


@pytest.mark.parametrize("text", [CHAIN, IMAGES, CACHE])
def test_every_size_is_what_the_runtime_makes(text, runtime):
    model = osl.infer(built(text)).model
    index = GraphIndex.of(model)
    sizes = {"batch": 2, "seq": 5, "past": 3, "heads": 2, "N": 2, "H": 11, "W": 9}
    feeds = {
        name: np.ones([sizes.get(d.dim_param, d.dim_value) for d in dims(info)], np.float32)
        for name, info in index.inputs.items()
    }

    values = osl.run(Expose(tuple(index.producer)).apply(model).model, feeds)

    for name, info in index.declarations.items():
        if name in index.producer and name not in index.outputs:
            texts = (d.dim_param or str(d.dim_value) for d in dims(info))
            expected = [eval(text, {}, sizes) for text in texts]
            assert list(values[name].shape) == expected, name


def dims(info):
    return info.type.tensor_type.shape.dim


def test_a_limit_is_no_expression():
    seq = Expressions().size("seq")
    found = Expressions()
    found.size("seq")

    assert found.text(tuple(min(n, 512) for n in seq)) is None
    assert found.text(tuple(max(n, 512) for n in seq)) is None
    assert found.text(tuple(n // 2 for n in seq)) == "seq//2"
    assert found.text(tuple(3 * n - 1 for n in seq)) == "3*seq - 1"


def test_what_depends_on_numbers_gets_a_name_of_its_own():
    model = built("""found (float[n,4] x) => (int64[k,two] y) {
        at = NonZero(x) y = Transpose<perm = [1,0]>(at)
    }""")

    result = osl.infer(model)

    assert declared(result.model)["at"] == "int64 [2, at_dim1]"


EXPANDED = """sums (float[?,?,4] x, float[?,?,4] y, float[?,?,4] z, float[4] w, bool flag) => (float[a,b,4] out) {
    a = Add(x, y)
    b = Mul(a, x)
    c = Where(flag, y, x)
    d = Sub(c, z)
    e = Add(y, d)
    turned = Transpose<perm = [0,2,1]>(a)
    f = MatMul(b, turned)
    g = MatMul(f, z)
    h = MatMul(g, w)
    out = Relu(e) }"""


def test_sizes_that_are_expanded_to_each_other_are_one_size_however_often():
    model = built(EXPANDED)

    types = declared(osl.infer(model).model)

    assert types["a"] == "float [a_dim0, a_dim1, 4]"
    assert types["b"] == types["c"] == types["a"]
    assert types["d"] == types["e"] == "float [d_dim0, d_dim1, 4]"
    assert types["f"] == "float [a_dim0, a_dim1, a_dim1]"
    assert types["g"] == "float [d_dim0, a_dim1, 4]"
    assert types["h"] == "float [d_dim0, a_dim1]"


def test_equal_layers_behind_expanded_sizes_are_inferred_once(monkeypatch):
    asked = messages(monkeypatch)

    def questions(layers):
        asked.clear()
        steps = "".join(f"h{n + 1} = Add(h{n}, m) " for n in range(layers))
        osl.infer(
            built(
                f"g (float[?,?] h0, float[?,?] m) => (float[a,b] y) {{ {steps} y = Neg(h{layers}) }}"
            )
        )
        return len(asked)

    assert questions(20) < 2 * questions(4)


def test_what_a_node_makes_at_all_trials_is_asked_for_in_two_messages(monkeypatch):
    asked = messages(monkeypatch)
    model = built(
        "g (float[?,3,?] x) => (float[a,b,c] y) { p = Concat<axis = 2>(x, x) y = Relu(p) }"
    )

    osl.infer(model)

    assert len(asked) == 1 + 2


def messages(monkeypatch):
    """What is asked of the process of ONNX's own code, from now on."""
    asked, ask = [], native.apart

    def counted(*words):
        asked.append(words)
        return ask(*words)

    monkeypatch.setattr(native, "apart", counted)
    return asked


def test_a_declared_type_that_says_more_stays_and_a_wrong_one_goes():
    model = built(CHAIN)
    more = helper.make_tensor_value_info("r", TensorProto.FLOAT, ["b", 12, 2])
    wrong = helper.make_tensor_value_info("l4", TensorProto.FLOAT, [1])
    model.proto.graph.value_info.extend([more, wrong])

    result = osl.infer(model)

    assert declared(result.model)["r"] == "float [b, 12, 2]"
    assert declared(result.model)["l4"] == "int64 [1]"
    assert result.notes == ("'l4' was declared float [1], it is int64 [1]",)


def test_an_unknown_operator_is_named_and_what_follows_is_inferred():
    model = built(
        "custom (float[n] x) => (float[m] y) { h = some.Where(x) y = Relu(x) z = Neg(h) }"
    )
    model.proto.opset_import.add(domain="some", version=1)

    result = osl.infer(model)

    assert result.notes == ("no shape is known for 2 values: 'h', 'z'",)


def test_what_follows_a_declared_shape_is_inferred_from_it():
    model = built("""g (float[n] x, int64[k] s) => (float[m] y) {
        r = Reshape(x, s) t = Transpose<perm = [1,0,2]>(r) u = Neg(t)
        w = Reshape(u, s) y = Flatten<axis = 0>(u)
    }""")
    for name, shape in (("r", [2, 3, 4]), ("t", ["a", "b", 4])):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        model.proto.graph.value_info.append(info)

    result = osl.infer(model)

    types = declared(result.model)
    assert {types["t"], types["u"]} == {"float [3, 2, 4]"}
    assert result.notes[-1] == "no shape is known for 1 values: 'w'"


def test_a_node_that_refuses_what_it_reads_is_noted():
    model = built("g (float[2,3] x, float[4,5] w) => (float[m] y) { h = MatMul(x, w) y = Neg(h) }")

    note, unknown = osl.infer(model).notes

    assert note.startswith("MatMul @0: ")
    assert unknown.startswith("no shape is known for")


def test_long_vectors_of_integers_are_not_followed_element_by_element(model_of):
    """At the sizes that are tried, that took gigabytes."""
    parts = ", ".join(["s", "e"] * 50)
    model = model_of(
        "long (int64[N] s, int64[M] e, float[A,B] x) => (float[a,b] z) {"
        f"all = Concat<axis = 0>({parts}) z = Expand(x, all) }}"
    )

    assert declared(osl.infer(model).model)["all"] == "int64 [50*N + 50*M]"


def test_sizes_that_missing_data_decides_are_unknown(model_of, tmp_path):
    complete = model_of("""flat (float[batch,4,2] x) => (float[a,b] y) <int64[2] shape = {0, 8}> {
        r = Reshape(x, shape)
        y = Relu(r)
    }""")
    path = tmp_path / "flat.onnx"
    del complete.proto.graph.value_info[:]
    shape = complete.proto.graph.initializer[0]
    shape.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(shape), "shape"))
    onnx.save(
        complete.proto, path, save_as_external_data=True, location="flat.data", size_threshold=0
    )
    here = osl.infer(path).model
    (tmp_path / "flat.data").unlink()
    gone = osl.infer(path).model

    assert declared(here)["r"] == "float [batch, 8]"
    assert declared(gone)["r"] == "float [r_dim0, r_dim1]"


ELEMENTS = """elements (float[n,6] x, int64[2] parts) => (float[a,b] y, float[c,d] z) <int64 i = {0}, int64 j = {1}> {
    s = SplitToSequence<axis = 0>(x, parts)
    a = SequenceAt(s, i) b = SequenceAt(s, j)
    size = Shape(b) e = Expand(a, size)
    y = Relu(e) z = Relu(b)
}"""
OPTIONAL = """optional (float[n] x, bool c) => (float[q] y) <int64[1] flat = {-1}> {
    o = If(c)<
        then_branch = one () => (optional(float[n]) t) {
            at = NonZero(x) k = Cast<to = 1>(at) f = Reshape(k, flat) t = Optional(f) },
        else_branch = two () => (optional(float[n]) e) { e = Optional(x) }>
    a = OptionalGetElement(o)
    size = Shape(x) wide = Expand(a, size) y = Relu(wide)
}"""
BRANCHES = """branches (float[n] x, bool c) => (float[q] y) <int64[1] flat = {-1}> {
    a = If(c)<
        then_branch = one () => (float[n] t) { at = NonZero(x) k = Cast<to = 1>(at) t = Reshape(k, flat) },
        else_branch = two () => (float[n] e) { e = Identity(x) }>
    size = Shape(x) wide = Expand(a, size) y = Relu(wide)
}"""


LOOP = """loop (float[n] x, int64 trips, bool on) => (float[q] y, float[a,b] z) {
    a, s = Loop(trips, on, x)<body = one (int64 i, bool c, float[n] t) => (bool k, float[n] u, float[n] v) {
        k = Identity(c) u = Concat<axis = 0>(t, t) v = Concat<axis = 0>(t, t) }>
    size = Shape(x) e = Expand(a, size) y = Relu(e) z = Relu(s)
}"""


def parsed(text: str) -> Model:
    """A model as its text declares it, without the types that the fixture adds."""
    return Model(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))


@pytest.mark.parametrize(
    ("text", "one", "other"),
    [(ELEMENTS, "a", "b"), (OPTIONAL, "a", "x"), (BRANCHES, "a", "x"), (LOOP, "a", "x")],
)
def test_sizes_out_of_a_sequence_an_optional_a_branch_or_a_loop_are_not_taken_as_equal(
    text, one, other
):
    model = parsed(text)

    types = declared(osl.infer(model).model) | {"x": "float [n]"}

    assert types[one] != types[other]
    assert "Expand" in [node.op_type for node in osl.skip_noops(model).model.proto.graph.node]


def test_a_negative_size_is_an_unknown_one():
    model = parsed("""negative (float[n,3,h,w] x) => (float[a,b,c] y) <int64[3] shape = {0,3,-1}> {
        p = Concat<axis = 2>(x, x) r = Reshape(p, shape) y = Relu(r) }""")
    for dim in model.proto.graph.input[0].type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.dim_value = -1

    types = declared(osl.infer(model).model)

    assert types["p"] == "float [x_dim0, 3, 2*x_dim2, x_dim3]"


def test_a_shape_of_unknown_length_makes_no_type_with_thousands_of_axes():
    model = parsed("long (float[a,b] x, int64[k] shape) => (float y) { y = Expand(x, shape) }")
    model.proto.graph.output[0].type.tensor_type.ClearField("shape")

    assert osl.infer(model).notes == ("no shape is known for 1 values: 'y'",)


def layer(n: int, read: str, made: str) -> str:
    """Attention with a mask, as a converter writes it: sizes are computed as floats."""
    return f"""s{n} = Shape({read}) f{n} = Cast<to = 1>(s{n}) b{n} = Slice(f{n}, zero, one, zero)
        c{n} = Concat<axis = 0>(b{n}, heads) h{n} = Cast<to = 7>(c{n}) r{n} = Reshape({read}, h{n})
        q{n} = Transpose<perm = [0,2,1,3]>(r{n}) k{n} = Transpose<perm = [0,2,3,1]>(r{n}) p{n} = MatMul(q{n}, k{n})
        a{n} = Add(p{n}, m) t{n} = MatMul(a{n}, q{n}) u{n} = Transpose<perm = [0,2,1,3]>(t{n})
        d{n} = Concat<axis = 0>(b{n}, whole) w{n} = Cast<to = 7>(d{n}) {made} = Reshape(u{n}, w{n}) """


MASKED = f"""masked (float[unk__1,unk__2,8] x, float[unk__3,unk__4] mask) => (float[a,b,c] y)
<int64[1] zero = {{0}}, int64[1] one = {{1}}, float[3] heads = {{-1,2,4}}, float[2] whole = {{-1,8}},
 int64[2] middle = {{1,2}}> {{
    m = Unsqueeze(mask, middle) {layer(1, "x", "v")} {layer(2, "v", "y")}
}}"""


@pytest.mark.parametrize("mask", [(1, 1), (3, 5), (1, 5), (3, 1)])
def test_sizes_that_may_be_one_or_equal_are_told_apart_and_what_follows_them_is_known(mask):
    model = osl.infer(built(MASKED)).model
    feeds = {"x": np.ones((3, 5, 8), np.float32), "mask": np.ones(mask, np.float32)}

    values = osl.run(Expose(tuple(GraphIndex.of(model).producer)).apply(model).model, feeds)

    types = declared(model)
    assert types["v"] == "float [x_dim0, v_dim1, 8]"
    assert types["r2"] == "float [x_dim0, v_dim1, 2, 4]"
    known: dict[str, int] = {}
    for name, info in GraphIndex.of(model).declarations.items():
        if name in values and name != "y":
            texts = [d.dim_param or str(d.dim_value) for d in dims(info)]
            assert len(texts) == values[name].ndim
            for text, size in zip(texts, values[name].shape, strict=True):
                assert known.setdefault(text, int(text) if text.isdigit() else size) == size


def test_sizes_without_names_keep_the_names_that_a_first_step_gave_them():
    result = osl.simplify(built(MASKED))

    assert result.match
    assert len(result.model.proto.graph.node) == 27  # of 31


@pytest.mark.parametrize("nodes", [1, 300])
def test_the_numbers_of_a_large_weight_in_memory_are_not_sent_to_inference(nodes):
    """Types need the shape alone; a process of its own would hold the numbers once more."""
    adds = [helper.make_node("Add", [f"h{i}", "w"], [f"h{i + 1}"]) for i in range(nodes)]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 500])
        for name in ("h0", f"h{nodes}")
    ]
    graph = helper.make_graph(adds, "g", ends[:1], ends[1:])
    model = Model(helper.make_model(graph, ir_version=10))
    weight = np.ones((4, 500), np.float32)
    model.proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))

    sent = serialized_part(model, None, lambda _: None)

    assert len(sent) < 1000 + 60 * nodes
    assert weight.tobytes() not in sent
    types = osl.infer(model).model.proto.graph.value_info
    assert [info.name for info in types] == [f"h{i}" for i in range(1, nodes)]
