"""Another opset version: what the converter changes, and that the rest is as it was."""

import re

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from onnxsurgeon_lite import Opset
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.runtime.session import run_model

X = np.array([[3, -1, 2]], np.float32)
REDUCING = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3] x, bool c) => (float[1,3] y) {
        [first] a = Add (x, x)
        [reduced] b = ReduceMax <axes = [0]> (a)
        [middle] d = Neg (b)
        e = If (c) <
            then_branch = then () => (float[1,3] t) { [inner] t = ReduceMin <axes = [0]> (d) },
            else_branch = else () => (float[1,3] f) { [other] f = Abs (d) }
        >
        [last] y = Mul (e, x)
    }"""


def test_nodes_that_are_converted_keep_their_names_and_metadata_and_the_others_all(model_of):
    model = model_of(REDUCING)
    for node in model.proto.graph.node:
        node.doc_string = f"about {node.name}"
        node.metadata_props.add(key="scope", value=node.name)
    feeds = {"x": X, "c": np.array(True)}

    result = Opset(18).apply(model)

    # a Constant, what reads it, the If
    assert result.changes == ("opset 17 -> 18: 3 nodes changed",)
    nodes = {node.name: node for node in result.model.proto.graph.node if node.name}
    before = {node.name: node for node in model.proto.graph.node if node.name}
    assert all(nodes[name] == before[name] for name in ("first", "middle", "last"))
    assert nodes["reduced"].doc_string == "about reduced"
    assert nodes["reduced"].metadata_props == before["reduced"].metadata_props
    assert np.array_equal(run_model(result.model, feeds)["y"], run_model(model, feeds)["y"])


def test_where_no_operator_is_defined_anew_the_version_alone_changes(model_of):
    header = '<ir_version: 10, opset_import: ["" : 21, "own" : 1]>'
    model = model_of(f"{header} g (float[2] x) => (float[2] y) {{ h = Relu (x) y = own.f (h) }}")

    result = Opset(22).apply(model)

    expected = model.copy().proto
    expected.opset_import[0].version = 22
    assert result.model.proto == expected
    assert result.changes == ("opset 21 -> 22: 0 nodes changed",)


def test_an_operator_that_is_not_in_the_version_and_has_no_function_is_refused(model_of):
    model = model_of("g (int32[1,4] x) => (int32[1,4] y) { y = BitwiseNot (x) }")

    with pytest.raises(
        EditError, match="opset 17 has no BitwiseNot \\('y'\\), which is new in opset 18"
    ):
        Opset(17).apply(model)


@pytest.mark.parametrize(
    ("node", "version"),
    [
        ("Gelu (x)", 19), ("Gelu <approximate = \"tanh\"> (x)", 18), ("Mish (x)", 17), ("Swish <alpha = 0.5> (x)", 23),
        ("LayerNormalization (x, s)", 16), ("LayerNormalization <axis = 0, epsilon = 0.1> (x, w, w)", 16),
        ("RMSNormalization (x, s)", 20), ("GroupNormalization <num_groups = 2> (x, s, s)", 20),
    ],
)  # fmt: skip
def test_on_the_way_down_an_operator_becomes_the_function_of_its_schema(
    node, version, model_of, runtime
):
    """The node stands in a body, too, and its name and metadata stay at what makes its output."""
    model = model_of(f"""<ir_version: 10, opset_import: ["" : 24]>
        g (float[2,4] x, float[4] s, float[2,4] w, bool c) => (float[2,4] y) {{
            [whole] h = {node}
            y = If (c) <
                then_branch = t () => (float[2,4] p) {{ p = {node} }},
                else_branch = e () => (float[2,4] q) {{ q = Neg (h) }}
            >
        }}""")
    model.proto.graph.node[0].metadata_props.add(key="scope", value="layer")
    rng = np.random.default_rng(0)
    feeds = {
        n: rng.normal(size=d).astype(np.float32)
        for n, d in (("x", (2, 4)), ("s", 4), ("w", (2, 4)))
    }

    result = Opset(version).apply(model)

    assert result.unproved
    kinds = {inner.op_type for inner in walk.with_inner(result.model.proto.graph.node)}
    assert node.split(" ")[0] not in kinds
    (made,) = (n for n in result.model.proto.graph.node if "h" in n.output)
    assert (made.name, made.metadata_props[0].value) == ("whole", "layer")
    for flag in (True, False):
        one, two = (_run(runtime, m, feeds | {"c": np.array(flag)}) for m in (model, result.model))
        assert np.allclose(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", [13, 11])
@pytest.mark.parametrize("source", [18, 20])
def test_what_both_versions_take_stays_where_the_converter_knows_no_way(
    source, version, model_of, runtime
):
    """Identity, Shape, ConstantOfShape and ReduceMean are what torch.onnx writes into every transformer."""
    model = model_of(
        f"""<ir_version: 8, opset_import: ["" : {source}]>
        g (float[n,4] x) => (float[n,1,1] y)
            <int64[3] dims = {{-1, 2, 2}}, int64[1] axes = {{-1}}, int64[1] one = {{1}}, int64[1] two = {{2}}> {{
            a = Identity (x)
            s = Shape <start = 0> (a)
            o = ConstantOfShape (s)
            r = Add (a, o)
            t = Reshape <allowzero = 1> (r, dims)
            m = ReduceMean (t, axes)
            c = Cast <saturate = 1, to = 1> (m)
            last = Slice (c, one, two, one)
            y = Mul (last, last)
        }}"""
    )
    if source == 18:
        del model.proto.graph.node[6].attribute[0]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)

    result = Opset(version).apply(model)

    assert result.unproved
    assert [n.op_type for n in result.model.proto.graph.node if n.op_type != "Constant"] == [
        node.op_type for node in model.proto.graph.node
    ]
    assert np.array_equal(*(_run(runtime, m, {"x": x}) for m in (model, result.model)))


@pytest.mark.parametrize(
    "part", ["start = 1", "start = 0, end = 1", "end = -1", "start = -2", "start = 3"]
)
def test_a_part_of_a_shape_is_a_slice_of_it_before_opset_15(part, model_of, runtime):
    """torch.onnx writes the size of every symbolic dimension so."""
    model = model_of(
        f"g (float[2,3,4] x) => (int64[s] y) {{ h = Shape (x) p = Shape <{part}> (x) y = Concat <axis = 0> (h, p) }}"
    )
    x = np.zeros((2, 3, 4), np.float32)

    for version in (13, 11):
        result = Opset(version).apply(model)

        onnx.checker.check_model(result.model.proto, full_check=True)
        assert result.unproved
        assert np.array_equal(*(_run(runtime, m, {"x": x}) for m in (model, result.model)))


@pytest.mark.parametrize("size", ["6", "7", "n"])
def test_a_split_into_parts_is_one_of_sizes_before_opset_18(size, model_of, runtime):
    """torch.onnx writes chunks so; the last part of 7 is shorter."""
    model = model_of(
        f"""<ir_version: 8, opset_import: ["" : 18]> g (float[2,{size}] x) => (float[p,m] y) {{
            a, b, c = Split <axis = 1, num_outputs = 3> (x) d = Concat <axis = 0> (a, b) e = Relu (c)
            y = Concat <axis = 1> (d, d) }}"""
    )
    x = np.arange(14, dtype=np.float32).reshape(2, 7)[:, : 7 if size == "7" else 6]

    for version in (17, 13):
        result = Opset(version).apply(model)

        onnx.checker.check_model(result.model.proto, full_check=True)
        assert result.unproved
        assert np.array_equal(*(_run(runtime, m, {"x": x}) for m in (model, result.model)))


@pytest.mark.parametrize(
    ("node", "version", "said"),
    [
        (
            "CumSum (x, a)",
            10,
            r"cannot take CumSum \('y'\) .* no way at opset 14.*stay at opset 14",
        ),
        (
            "Constant <value_floats = [3.0]> ()",
            11,
            r"cannot take Constant .*no way at opset 11 stay at opset 18",
        ),
        ("ReduceL2 (x, b)", 13, r"from opset 18 to 13: No initializer.*change: .*'ReduceL2'.*fold"),
    ],
)
def test_what_the_converter_does_not_know_is_said_with_what_to_do(node, version, said, model_of):
    model = model_of(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[4] x, int64 a, int64[1] b) => (float[n] y) {{ y = {node} }}"""
    )

    with pytest.raises(EditError) as caught:
        Opset(version).apply(model)

    assert re.search(said, f"{caught.value.message} {caught.value.hint}")


def test_allowzero_stays_where_the_result_is_declared_to_be_empty(model_of):
    model = model_of("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[0,3,4] x, int64[3] shape) => (float[3,4,0] y) { y = Reshape <allowzero = 1> (x, shape) }""")

    with pytest.raises(EditError, match="cannot take Reshape"):
        Opset(13).apply(model)


def test_allowzero_goes_where_a_shape_is_computed_and_that_is_said(model_of, runtime):
    model = model_of("""
        g (float[n,4] x) => (float[m] y) <int64[1] rest = {-1}> {
            s = Shape <start = 0, end = 1> (x)
            t = Concat <axis = 0> (s, rest)
            h = Reshape <allowzero = 1> (x, t)
            y = Reshape <allowzero = 1> (h, rest)
        }
    """)

    result = Opset(13).apply(model)

    assert result.unproved
    assert result.notes == ("1 Reshape lose allowzero: no size in their computed shapes may be 0",)
    x = np.zeros((2, 4), np.float32)
    assert np.array_equal(*(_run(runtime, m, {"x": x}) for m in (model, result.model)))


def _run(runtime, model, feeds):
    runtime.open(model)
    for name, value in feeds.items():
        runtime.put(name, value)
    return runtime.run([v.name for v in model.proto.graph.input], ["y"]).values["y"]


def test_what_was_taken_apart_is_proved_unless_that_is_forbidden(model_of):
    model = model_of("g (float[1,4] x) => (float[1,4] y) { y = Gelu (x) }")

    assert osl.opset(model, 19).verified.match
    assert osl.opset(model, 19, unproved=True).verified is None
    assert osl.opset(model, 20).verified is None


BODIES = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[n,2] x, bool flag, int64 times) => (float[n,2] y, float[n,2] z) {
    y = If(flag) <then_branch = a () => (float[n,2] o) { h = local.f<alpha = 2.0>(x) o = Relu(h) },
                  else_branch = b () => (float[n,2] o) { o = Neg(x) }>
    go = Constant<value = bool {1}>()
    z = Loop(times, go, x) <body = l (int64 i, bool c, float[n,2] s) => (bool c2, float[n,2] s2) {
        c2 = Identity(c) s2 = Add(s, x) }>
}
<domain: "local", opset_import: ["" : 17]>
f <alpha: float = 1.0> (a) => (r) { c = Constant<value_float: float = @alpha>() r = %s }
"""


@pytest.mark.parametrize("version", [13, 21])
def test_bodies_and_functions_whose_nodes_mean_the_same_change_the_opset_too(model_of, version):
    result = osl.opset(model_of(BODIES % "Mul(a, c)"), version, verify=True)

    onnx.checker.check_model(result.model.proto, full_check=True)
    assert result.verified.match
    assert [o.version for o in result.model.proto.functions[0].opset_import] == [version]


def test_an_attribute_that_a_function_takes_from_its_call_stays_so(model_of):
    text = """<ir_version: 9, opset_import: ["" : 18, "f" : 1]>
    m (float[4] x) => (float[4] y) { y = f.act <alpha: float = 0.3> (x) }
    <domain: "f", opset_import: ["" : 18]>
    act <alpha: float = 0.1> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"""

    result = osl.opset(model_of(text), 13, verify=True)

    assert result.verified.match
    assert result.model.proto.functions[0].node[0].attribute[0].ref_attr_name == "alpha"


def test_a_function_whose_nodes_differ_is_refused_until_it_is_inlined(model_of):
    model = model_of(BODIES % "ReduceMean<axes = [1]>(a)")

    with pytest.raises(EditError, match="fn:local::f has nodes that opset 21 defines differently"):
        osl.opset(model, 21)

    assert osl.opset(osl.inline(model).model, 21, verify=True).verified.match


def test_constants_that_are_lists_are_converted_too_and_come_back_as_they_were():
    model = osl.build("""<ir_version: 8, opset_import: ["" : 18]> g (float[2,3] x) => (float[2] y) {
        axes = Constant <value_ints = [1]> () two = Constant <value_float = 2.0> ()
        h = Mul(x, two) y = ReduceMean <keepdims = 0> (h, axes) }""")

    older = Opset(17).apply(model).model
    newer = Opset(21).apply(model).model

    two, _, mean = older.proto.graph.node
    assert two == model.proto.graph.node[1]
    assert {a.name: list(a.ints) for a in mean.attribute if a.ints} == {"axes": [1]}
    assert newer.proto.graph == model.proto.graph


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_an_axis_that_is_not_the_last_means_the_same_before_opset_13(operator, model_of, runtime):
    model = model_of(f"""<ir_version: 8, opset_import: ["" : 13]>
        g (float[2,3,4] x) => (float[2,3,4] y) {{ [soft] y = {operator}<axis = 1>(x) }}""")

    result = osl.opset(model, 12)

    onnx.checker.check_model(result.model.proto, full_check=True)
    assert result.verified.match


def test_a_conversion_that_redefines_a_node_is_proved_or_says_that_it_was_not(model_of):
    wrong = model_of("""<ir_version: 8, opset_import: ["" : 13]>
        g (float[2,3,4] x) => (float[2,3,4] y) { y = Hardmax<axis = 1>(x) }""")

    assert not osl.opset(wrong, 12).match
    assert osl.opset(wrong, 12, unproved=True).ran == (
        "this was not proved: neither model was run",
    )

    strange = model_of("""<ir_version: 8, opset_import: ["" : 13, "own" : 1]>
        g (float[2] x) => (float[2] y) { h = own.f(x) y = Relu(h) }""")
    (line,) = osl.opset(strange, 14).ran
    assert line.startswith("this was not proved: the original does not run")


def test_a_version_that_does_not_take_the_types_is_refused(model_of):
    model = model_of("""<ir_version: 8, opset_import: ["" : 14]>
        g (int8[2] x) => (int8[2] y) { y = Add(x, x) }""")

    with pytest.raises(EditError, match=r"opset 13 does not take .*tensor\(int8\)"):
        Opset(13).apply(model)


@pytest.mark.parametrize("version", [11, 13, 17])
def test_an_operator_that_a_runtime_had_before_onnx_stays(version, model_of):
    model = model_of("""<ir_version: 7, opset_import: ["" : 12]>
        g (float[2,4] x) => (float[2,4] y) <float[4] s = {1,2,3,4}> {
            h = LayerNormalization<axis = -1>(x, s) y = Dropout(h) }""")

    result = osl.opset(model, version)

    assert result.verified.match
    assert result.model.proto.graph.node[0] == model.proto.graph.node[0]


def test_a_function_whose_softmax_takes_another_axis_below_opset_13_is_refused_until_it_is_inlined(
    model_of,
):
    text = """<ir_version: 8, opset_import: ["" : 13, "l" : 1]> g (float[2,3,4] x) => (float[2,3,4] y) { y = l.f(x) }
        <domain: "l", opset_import: ["" : 13]> f (a) => (b) { b = Softmax<axis = 1>(a) }"""
    model = model_of(text)

    with pytest.raises(EditError, match="defines differently: 'Softmax'"):
        osl.opset(model, 12, unproved=True)

    assert osl.opset(osl.inline(model).model, 12).verified.match


def test_a_model_with_data_of_its_own_runs_as_far_as_operators_are_defined_anew(tmp_path):
    graph = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 4] x) => (float[2, 4] y, int32[2] small) {
            size = Shape (x) small = Cast <to = 6> (size) y = MatMul (x, w) }"""
    proto = onnx.parser.parse_model(graph)
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    osl.save(osl.Model(proto), tmp_path / "whole.onnx")
    onnx.save(proto, tmp_path / "apart.onnx", save_as_external_data=True, size_threshold=0)

    whole, apart = (osl.opset(tmp_path / f"{name}.onnx", 23) for name in ("whole", "apart"))

    assert apart.verified.compared.keys() == {"size", "small"}
    assert whole.verified.compared.keys() == {"y", "small"}
    assert apart.verified.match
    assert apart.model.proto.graph.output[0].name == "y"
