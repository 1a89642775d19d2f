"""Dimensions changed all the way through: what depends on them, what only seems to, what blocks it; proved by runs."""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxsurgeon_lite import build
from onnxsurgeon_lite.errors import RuntimeFailure, ShapeError, UnknownNameError
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.prove import prove
from onnxsurgeon_lite.passes import Opset, Rebatch, SetShape
from onnxsurgeon_lite.runtime.feeds import Recipe
from onnxsurgeon_lite.runtime.session import run_model
from onnxsurgeon_lite.surgery.resizing.sizes import Refolding, product

CONVOLUTIONS = """
    conv (float[1,3,10,10] x) => (float[1,3,10,10] y) {
        h = Conv <pads = [1,1,1,1]> (x, w)
        y = Relu(h)
    }
"""

# Two samples; two heads, so that a second 2 stands beside the batch; a slice of two features, and a table of two rows
DECOY = """
    decoy (float[2,6] x) => (float[2,6] y)
    <int64[3] heads = {2,2,3}, int64[2] flat = {2,6}, float[2,1] table = {1.5,2.5},
     int64[1] from = {0}, int64[1] two = {2}, int64[1] last = {1}, int64[1] four = {4}> {
        h = Reshape(x, heads)
        t = Mul(h, table)
        z = Reshape(t, flat)
        a = Slice(z, from, two, last)
        b = Slice(z, two, four, last)
        six = Constant <value_ints = [6]> ()
        c = Slice(z, four, six, last)
        y = Concat <axis = 1> (b, a, c)
    }
"""


def changed(runtime, model, step):
    """The pass's result, after it was proved."""
    before = model.proto.SerializeToString()
    result = step.apply(model)
    shapes = step.shapes if isinstance(step, SetShape) else step.shapes(GraphIndex.of(model))
    prove(model, result.model, shapes, runtime, Recipe(seed=1))
    assert model.proto.SerializeToString() == before
    assert check(result.model, full=True).valid
    assert not step.apply(result.model).changed
    return result


def constant(model, name):
    tensors = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    return numpy_helper.to_array(tensors[name]).tolist()


def with_weights(text: str) -> onnx.ModelProto:
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 17]>\n' + text)
    weights = np.random.default_rng(0).normal(size=(3, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return proto


def accepts(model, *shape: int) -> bool:
    try:
        run_model(model, {"x": np.ones(shape, np.float32)})
    except RuntimeFailure:
        return False
    return True


@pytest.mark.parametrize(
    ("shape", "accepted"),
    [
        (None, [True, False, False]),
        (("N", 3, 10, 10), [True, True, False]),
        ((1, 3, "H", "W"), [True, False, True]),
        (("N", 3, "H", "W"), [True, True, True]),
    ],
)
def test_a_static_model_made_open_accepts_what_it_should(model_of, runtime, shape, accepted):
    model = model_of(with_weights(CONVOLUTIONS))
    if shape:
        model = changed(runtime, model, SetShape({"x": shape})).model

    shapes = [(1, 3, 10, 10), (2, 3, 10, 10), (1, 3, 20, 20)]
    assert [accepts(model, *given) for given in shapes] == accepted


@pytest.mark.parametrize("to", ["N", 5, 1])
def test_a_constant_that_equals_the_batch_by_chance_stays(model_of, runtime, to):
    model = model_of(DECOY)

    result = changed(runtime, model, Rebatch(to))

    entry = -1 if to == "N" else to
    assert constant(result.model, "heads") == [entry, 2, 3]
    assert constant(result.model, "flat") == [entry, 6]
    assert constant(result.model, "two") == [2]
    assert np.shape(constant(result.model, "table")) == (2, 1)
    assert len([line for line in result.changes if line.startswith("constant")]) == 2
    assert any("kept 2 at" in note and "'heads'" in note for note in result.notes)


def test_changing_the_decoy_instead_is_not_proved(model_of, runtime):
    model = model_of(DECOY)
    step = Rebatch("N")
    wrong = step.apply(model).model
    heads = next(t for t in wrong.proto.graph.initializer if t.name == "heads")
    heads.CopyFrom(numpy_helper.from_array(np.array([2, -1, 3]), "heads"))

    with pytest.raises(ShapeError, match="not proved: .*'y'"):
        prove(model, wrong, step.shapes(GraphIndex.of(model)), runtime, Recipe())


@pytest.mark.parametrize("own", [1, 2])
@pytest.mark.parametrize("to", ["N", 5])
def test_an_index_that_counts_the_rows_counts_all_that_there_are(own, to, model_of, runtime):
    rows = ",".join(f"{row},{column}" for row in range(own) for column in range(300))
    flat = ",".join(map(str, range(300)))
    model = model_of(f"""g (int64[{own},300] mask) => (int64[{own},1,300,2] y, int64[{own},3] picked, int64[{own}] last)
        <int64[{own},1,300,2] index = {{{rows}}}, int64[1,1,300] columns = {{{flat}}},
         int64[{own},1,1] places = {{{",".join(map(str, range(own)))}}}, int64[3] some = {{4, 0, 4}},
         int64[{own},1] batch = {{{",".join(map(str, range(own)))}}}, int64[1] one = {{1}}, int64[1] three = {{3}},
         int64[2] rest = {{-1, 1}}, int64[3] shape = {{{own}, 1, 300}}, int64[1] all = {{-1}}> {{
            a = GatherND(mask, index)
            flat = Flatten<axis = 2>(mask)
            size = Shape<start = 1>(mask)
            scaled = Mul(places, size)  at = Add(columns, scaled)
            taken = Gather(flat, at)  line = Reshape(taken, all)  b = Reshape(line, shape)
            both = Unsqueeze(b, all)  wide = Concat<axis = -1>(both, both)  a4 = Unsqueeze(a, all)
            y = Mul(wide, a4)
            picked = Gather<axis = 1>(mask, some)
            top = ArgMax<axis = 1>(mask)  pair = {"Concat<axis = 1>(batch, top)" if own > 1 else "Identity(top)"}
            last = {"GatherND(mask, pair)" if own > 1 else "ReduceMax<keepdims = 0>(mask, one)"}
        }}""")

    result = changed(runtime, model, Rebatch(to))

    counted = [line for line in result.changes if "it counts the rows" in line]
    assert len(counted) == own + 1
    assert all(("a Range of N" if to == "N" else "the numbers of 5") in line for line in counted)


def test_what_is_not_proved_names_the_first_value_that_differs(model_of, runtime):
    text = """g (float[OWN,3] x) => (float[OWN,3] y) <int64 zero = {0}> {
        a = Relu(x)  h = Neg(a)  b = CumSum(h, zero)  z = Add(b, a)  y = Exp(z) }"""
    model, other = (model_of(text.replace("OWN", own), f"{own}.onnx") for own in "12")
    shapes, opened = {"x": ("N", 3)}, Rebatch().apply(model).model

    errors = []
    for second in (None, other):
        with pytest.raises(
            ShapeError, match="'y' of sample .*value that differs is 'b' of CumSum"
        ) as caught:
            prove(model, opened, shapes, runtime, Recipe(), second=second)
        errors.append(caught.value)

    assert ["--two-exports" in str(error.hint) for error in errors] == [True, False]


def test_samples_that_depend_on_each_other_are_not_proved(model_of, runtime):
    model = model_of(
        """
        mixed (float[2,4] x) => (float[2,4] y) {
            mean = ReduceMean <axes = [0], keepdims = 1> (x)
            y = Sub(x, mean)
        }
    """.replace("mixed", '<ir_version: 10, opset_import: ["" : 17]> mixed', 1)
    )

    with pytest.raises(ShapeError, match="'y' of sample 0, 1 differs"):
        changed(runtime, model, Rebatch("N"))


def test_a_shared_constant_is_copied_for_the_one_that_follows(model_of, runtime):
    model = model_of("""
        shared (float[2,6] x) => (float[2,2,3] y, float[2,2,3] z)
        <int64[3] shape = {2,2,3}, float[12] table = {1,2,3,4,5,6,7,8,9,10,11,12}> {
            y = Reshape(x, shape)
            z = Reshape(table, shape)
        }
    """)

    result = changed(runtime, model, Rebatch("N"))

    assert constant(result.model, "shape") == [2, 2, 3]
    assert "a copy: 1 more read the original" in result.changes[0]


def test_sizes_that_nothing_can_hold_are_computed(model_of, runtime):
    model = model_of("""
        expanded (float[1,3] x) => (float[1,4] y)
        <float[1,1] token = {7}, int64[2] shape = {1,1}> {
            t = Expand(token, shape)
            y = Concat <axis = 1> (t, x)
        }
    """)

    result = changed(runtime, model, Rebatch("N"))

    assert any("shape' [1, 1] -> [N, 1]" in line for line in result.changes)
    y = run_model(result.model, {"x": np.zeros((3, 3), np.float32)})["y"]
    assert y[:, 0].tolist() == [7, 7, 7]


def test_a_constant_folded_by_the_exporter_is_expanded(model_of, runtime):
    model = model_of("""
        folded (float[2,3] x) => (float[2,4] y) <float[2,1] token = {7,7}> {
            y = Concat <axis = 1> (token, x)
        }
    """)

    y = run_model(changed(runtime, model, Rebatch(3)).model, {"x": np.zeros((3, 3), np.float32)})

    assert y["y"][:, 0].tolist() == [7, 7, 7]


def test_a_constant_that_differs_by_sample_is_in_the_way(model_of):
    model = model_of("""
        table (float[2,3] x) => (float[2,3] y) <float[2,3] table = {1,2,3,4,5,6}> {
            y = Add(x, table)
        }
    """)

    with pytest.raises(
        ShapeError, match="Add @0 blocks the change: constant 'table' has different values"
    ) as caught:
        Rebatch("N").apply(model)
    assert "export the model with this dimension dynamic" in (caught.value.hint or "")


def test_a_sample_that_fills_the_original_is_named_once(model_of, runtime):
    model = model_of(
        "sums (float[4,2] x) => (float[4,2] y) <int64 axis = {0}> { y = CumSum(x, axis) }"
    )

    with pytest.raises(ShapeError, match="with N = 1, output 'y' of sample 0 differs"):
        changed(runtime, model, Rebatch("N"))


def test_equal_nodes_that_read_equal_sizes_are_inferred_once(model_of, monkeypatch):
    nodes = " ".join(f"v{i + 1} = Relu (v{i})" for i in range(40))
    model = model_of(f"chain (float[2,3] v0) => (float[2,3] v40) {{ {nodes} }}")
    asked = []
    infer = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(
        onnx.shape_inference, "infer_shapes", lambda *a, **k: asked.append(a) or infer(*a, **k)
    )

    result = Rebatch("N").apply(model).model

    declared = [*result.proto.graph.value_info, *result.proto.graph.output]
    assert {info.type.tensor_type.shape.dim[0].dim_param for info in declared} == {"N"}
    assert len(declared) == 40
    assert len(asked) < 10


def test_the_bodies_of_if_are_reached(model_of, runtime):
    model = model_of("""
        branches (float[1,6] x, bool c) => (float[1,2,3] y) {
            y = If(c) <
                then_branch = t () => (float[1,2,3] a) {
                    s = Constant <value = int64[3] {1,2,3}> ()
                    a = Reshape(x, s)
                },
                else_branch = e () => (float[1,2,3] b) {
                    s2 = Constant <value = int64[3] {1,2,-1}> ()
                    n = Neg(x)
                    b = Reshape(n, s2)
                }>
        }
    """)
    for flag in (True, False):
        step = Rebatch("N", ("x",))
        result = step.apply(model)
        outputs = run_model(result.model, {"x": np.ones((4, 6), np.float32), "c": np.array(flag)})
        assert outputs["y"].shape == (4, 2, 3)
    assert check(result.model, full=True).valid


def test_declarations_follow_and_everything_else_is_kept(model_of, runtime):
    proto = with_weights(CONVOLUTIONS)
    proto.metadata_props.add(key="author", value="me")
    proto.graph.node[0].doc_string = "kept"
    model = model_of(onnx.shape_inference.infer_shapes(proto))

    result = changed(runtime, model, Rebatch("batch")).model

    graph = result.proto.graph
    assert [d.dim_param or d.dim_value for d in graph.value_info[0].type.tensor_type.shape.dim] == [
        "batch", 3, 10, 10,
    ]  # fmt: skip
    back = Rebatch(1).apply(result).model
    assert back.proto == model.proto


def test_an_open_dimension_can_be_fixed(model_of, runtime):
    model = model_of("""
        opened (float[batch,4] x, float[batch,4] z) => (float[batch,4] y) { y = Add(x, z) }
    """)

    fixed = SetShape({"x": (3, 4)}).apply(model).model

    shapes = [info.type.tensor_type.shape.dim[0].dim_value for info in fixed.proto.graph.input]
    assert shapes == [3, 3]
    assert fixed.proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value == 3


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (SetShape({"z": (1, 4)}), UnknownNameError, "no input 'z'"),
        (SetShape({"x": (1,)}), ShapeError, r"'x' is \[2, 4\], but the requested shape has 1"),
        (SetShape({"x": ("N", "N")}), ShapeError, "'N' means 2 in 'x' and 4 in 'x'"),
        (Rebatch("N"), ShapeError, "differ in dimension 0: 'x' 2, 'c' 3"),
        (Rebatch("N", ("x",), axis=5), ShapeError, "has no dimension 5"),
        (Rebatch("N", ("x",), axis=-3), ShapeError, "has no dimension -3"),
        (Rebatch("N", ("x", "y")), UnknownNameError, "no input 'y'"),
    ],
)
def test_what_has_no_meaning_is_refused(model_of, step, error, message):
    model = model_of("two (float[2,4] x, float[3] c) => (float[2,4] y) { y = Relu(x) }")

    with pytest.raises(error, match=message):
        step.apply(model)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 4, 8, 8), "Conv @0 blocks the change: its weight 'w' needs 3 in axis 1 of 'x'"),
        (("n", "c", 8, 8), "Conv @0 blocks the change: its weight 'w' needs 3 in axis 1 of 'x'"),
        ((1, 3, 2, 2), r"Conv @0 blocks the change: 'h' would have shape \[1, 2, 0, 0\]"),
    ],
)
def test_sizes_that_a_weight_or_a_window_excludes_are_refused_before_a_run(
    model_of, shape, message
):
    ones = ", ".join(["1"] * 54)  # nothing to be stretched, equal as it is
    model = model_of(
        f"g (float[1,3,8,8] x) => (float[1,2,6,6] y) <float[2,3,3,3] w = {{{ones}}}> {{"
        " h = Conv(x, w) y = Relu(h) }"
    )

    with pytest.raises(ShapeError, match=message):
        SetShape({"x": shape}).apply(model)


def test_two_exports_tell_what_tracing_cannot(model_of, runtime):
    def export(size: int, name: str):
        return model_of(
            f"""
            resized (float[1,1,{size},4] x) => (float[1,1,{2 * size},4] y)
            <float empty = {{1}}, int64[4] sizes = {{1,1,{2 * size},4}}> {{
                y = Resize <mode = "nearest"> (x, , , sizes)
            }}
            """,
            name,
        )

    first, second = export(3, "a.onnx"), export(5, "b.onnx")
    shapes = {"x": (1, 1, "H", 4)}

    told = SetShape(shapes, second).apply(first).model
    lines = prove(first, told, shapes, runtime, Recipe(), second=second)

    assert f"agrees with {str(second.path)!r}" in lines
    assert run_model(told, {"x": np.ones((1, 1, 8, 4), np.float32)})["y"].shape == (1, 1, 16, 4)
    untold = SetShape(shapes).apply(first).model
    assert run_model(untold, {"x": np.ones((1, 1, 8, 4), np.float32)})["y"].shape == (1, 1, 6, 4)


def test_exports_of_one_size_or_of_other_networks_tell_nothing(model_of):
    one = model_of("a (float[1,4] x) => (float[1,4] y) { y = Relu(x) }", "a.onnx")
    other = model_of("a (float[2,4] x) => (float[2,4] y) { h = Relu(x) y = Neg(h) }", "b.onnx")

    with pytest.raises(ShapeError, match="same sizes"):
        Rebatch("N", second=one).apply(one)
    with pytest.raises(ShapeError, match="more than sizes: 1 and 2 nodes"):
        Rebatch("N", second=other).apply(one)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_reshape_never_mixes_samples(data):
    """numpy reshapes at both sizes; refolding must find the shape that keeps every sample where it was."""
    inner = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    place = data.draw(st.integers(0, len(inner)))
    own, new = data.draw(st.sampled_from([(1, 3), (2, 6), (3, 6)]))
    shape = [*inner[:place], own, *inner[place:]]
    cuts = data.draw(st.sets(st.integers(1, max(1, len(shape) - 1))))
    borders = sorted({0, len(shape), *(c for c in cuts if c < len(shape))})
    target = [int(np.prod(shape[a:b])) for a, b in zip(borders, borders[1:], strict=False)]
    axes = [((n, n),) for n in shape]
    axes[place] = ((own, new),)

    folded = Refolding(axes, target, None, (), 2).axes()

    assert folded is not None
    sizes = [product(axis) for axis in folded]
    assert [size[0] for size in sizes] == target
    grown = np.arange(np.prod(shape) // own * new).reshape([*inner[:place], new, *inner[place:]])
    moved = grown.reshape([size[1] for size in sizes])
    factors = [factor[1] for axis in folded for factor in axis]
    where = [factor for axis in folded for factor in axis].index((own, new))
    for sample in range(new):
        before = grown.take(sample, place).reshape(-1)
        after = moved.reshape(factors).take(sample, where).reshape(-1)
        assert np.array_equal(before, after)


def test_a_custom_operator_keeps_the_place_of_its_axes(model_of):
    graph = helper.make_graph(
        [
            helper.make_node("Twice", ["x"], ["h"], domain="custom"),
            helper.make_node("Reshape", ["h", "shape"], ["y"]),
        ],
        "custom",
        [helper.make_tensor_value_info("x", 1, [2, 6])],
        [helper.make_tensor_value_info("y", 1, [2, 2, 3])],
        [numpy_helper.from_array(np.array([2, 2, 3]), "shape")],
        value_info=[helper.make_tensor_value_info("h", 1, [2, 6])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("custom", 1)]
    model = model_of(helper.make_model(graph, ir_version=8, opset_imports=opsets))

    result = Rebatch("N").apply(model)

    assert constant(result.model, "shape") == [-1, 2, 3]


def random_model(data, batch: int) -> onnx.ModelProto:
    """Reshapes with frozen shapes, transposes and additions, in any order; the batch may end up inside an axis."""
    # row-major factors of each axis; the batch is the first list that changes place
    axes = [[batch], [2], [3], [2]]
    nodes, constants = [], []
    value = "x"

    def add(op, inputs, **attributes):
        nonlocal value
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, [value, *inputs], [name], **attributes))
        value = name

    def reshape():
        name = f"s{len(nodes)}"
        shape = [int(np.prod(axis)) for axis in axes]
        if data.draw(st.booleans()):
            shape[data.draw(st.integers(0, len(shape) - 1))] = -1
        constants.append(numpy_helper.from_array(np.array(shape), name))
        add("Reshape", [name])

    for _ in range(data.draw(st.integers(1, 6))):
        match data.draw(st.sampled_from(["merge", "split", "transpose", "relu"])):
            case "merge" if len(axes) > 1:
                place = data.draw(st.integers(0, len(axes) - 2))
                axes[place : place + 2] = [axes[place] + axes[place + 1]]
                reshape()
            case "split":
                place = data.draw(st.integers(0, len(axes) - 1))
                axes[place : place + 1] = [[factor] for factor in axes[place]]
                reshape()
            case "transpose":
                order = data.draw(st.permutations(range(len(axes))))
                axes = [axes[i] for i in order]
                add("Transpose", [], perm=list(order))
            case _:
                add("Relu", [])
    shape = [int(np.prod(axis)) for axis in axes]
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", 1, [batch, 2, 3, 2])],
        [helper.make_tensor_value_info(value, 1, shape)],
        constants,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@given(st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_reshapes_follow_a_batch_beside_equal_sizes(model_of, runtime, data):
    model = model_of(random_model(data, batch=2))

    step = Rebatch(data.draw(st.sampled_from(["N", 1, 5])))
    result = step.apply(model)

    prove(model, result.model, step.shapes(GraphIndex.of(model)), runtime, Recipe())


def test_the_body_of_a_loop_is_reached(model_of, runtime):
    model = model_of("""
        looped (float[1,6] x) => (float[1,6] y) <int64 times = {3}, bool always = {1}> {
            y = Loop(times, always, x) <body = b (int64 i, bool c, float[1,6] s) => (bool c2, float[1,6] t) {
                c2 = Identity(c)
                split = Constant <value = int64[3] {1,2,3}> ()
                flat = Constant <value = int64[2] {1,6}> ()
                h = Reshape(s, split)
                g = Softmax(h)
                t = Reshape(g, flat)
            }>
        }
    """)

    result = changed(runtime, model, Rebatch("N"))

    assert any("@0/body/@" in line for line in result.changes)


@pytest.mark.parametrize(("opset", "ir_version"), [(9, 3), (9, 4), (11, 6), (13, 7)])
def test_sizes_are_computed_in_every_opset(model_of, runtime, opset, ir_version):
    arrays = {"shape": np.array([1, 1]), "token": np.ones((1, 1), np.float32)}
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    inputs = [helper.make_tensor_value_info("x", 1, [1, 3])]
    if ir_version == 3:
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in constants]
    graph = helper.make_graph(
        [
            helper.make_node("Expand", ["token", "shape"], ["t"]),
            helper.make_node("Concat", ["t", "x"], ["y"], axis=1),
        ],
        "old",
        inputs,
        [helper.make_tensor_value_info("y", 1, [1, 4])],
        constants,
    )
    opsets = [helper.make_opsetid("", opset)]
    model = model_of(helper.make_model(graph, ir_version=ir_version, opset_imports=opsets))

    changed(runtime, model, Rebatch("N"))


def test_a_slice_of_the_whole_batch_follows_and_its_first_sample_does_not(model_of, runtime):
    text = """
        sliced (float[2,4] x) => (float[{size},4] y)
        <int64[1] from = {{0}}, int64[1] to = {{{size}}}, int64[1] axis = {{0}}> {{
            y = Slice(x, from, to, axis)
        }}
    """

    whole = changed(runtime, model_of(text.format(size=2)), Rebatch("N"))

    assert constant(whole.model, "to") == [np.iinfo(np.int64).max]
    with pytest.raises(ShapeError, match="not proved"):
        changed(runtime, model_of(text.format(size=1)), Rebatch("N"))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("to", ["N", 3])
def test_equal_parts_of_what_follows_follow(model_of, runtime, size, to):
    model = model_of(f"""
        guided (float[{size},4] x) => (float[{size},4] y) <int64[2] halves = {{{size},{size}}}> {{
            n = Neg(x)
            both = Concat <axis = 0> (x, n)
            e = Exp(both)
            a, b = Split <axis = 0> (e, halves)
            y = Sub(a, b)
        }}
    """)

    result = changed(runtime, model, Rebatch(to))

    assert f"'halves' [{size}, {size}] -> [{to}, {to}] at Split" in result.changes[0]


@pytest.mark.parametrize("parts", ["1,1", "1,3"])
def test_parts_that_hold_samples_are_not_taken_from_another_number_of_them(
    model_of, runtime, parts
):
    size = sum(map(int, parts.split(",")))
    model = model_of(f"""
        apart (float[{size},4] x) => (float[n,4] y, float[m,4] z) <int64[2] parts = {{{parts}}}> {{
            y, z = Split <axis = 0> (x, parts)
        }}
    """)

    with pytest.raises(ShapeError, match="not proved|Split @0 blocks the change"):
        changed(runtime, model, Rebatch("N"))


def test_an_input_that_must_have_the_batch_too_is_named(model_of):
    model = model_of("""
        masked (float[2,4] x, float[2,4] mask) => (float[2,4] y) { y = Mul(x, mask) }
    """)

    with pytest.raises(ShapeError, match="'mask' must change too, but it comes from input 'mask'"):
        Rebatch("N", ("x",)).apply(model)


FUNCTIONS = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    calls (float[2,6] x) => (float[2,2,3] y) {
        a = local.halves (x)
        h = local.scaled <by = 2.0> (a)
        y = local.halves (h)
    }
    <domain: "local", opset_import: ["" : 17]>
    scaled <by> (p) => (q) { c = Constant <value_float: float = @by> () q = Mul(p, c) }
    <domain: "local", opset_import: ["" : 17, "local" : 1]>
    halves (p) => (q) { q = local.split(p) }
    <domain: "local", opset_import: ["" : 17]>
    split (a) => (b) { s = Constant <value = int64[3] {2,2,3}> () b = Reshape(a, s) }
"""


@pytest.mark.parametrize("to", ["N", 5])
def test_a_function_that_holds_what_follows_is_inlined_and_no_other(model_of, runtime, to):
    result = changed(runtime, model_of(FUNCTIONS), Rebatch(to))

    assert [function.name for function in result.model.proto.functions] == ["scaled"]
    assert result.changes[:2] == (
        "inlined function 'local::split': it contains values that change",
        "inlined function 'local::halves': it contains values that change",
    )


def test_what_is_in_the_way_inside_a_function_is_told(model_of):
    model = model_of("""
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        calls (float[2,2] x) => (float[2,2] y) { y = local.add(x) }
        <domain: "local", opset_import: ["" : 17]>
        add (a) => (b) { s = Constant <value = float[2,2] {1,2,3,4}> () b = Add(a, s) }
    """)

    with pytest.raises(ShapeError, match="Add .* blocks the change") as caught:
        Rebatch("N").apply(model)

    assert "edit inline of local::add" in caught.value.__notes__[-1]


SCAN = """
    scanned (float[2,5,6] x) => (float[2,6] last, float[2,5,2,3] y) <float[2,6] zero = {0,0,0,0,0,0,0,0,0,0,0,0}> {
        last, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
            body = step (float[2,6] state, float[2,6] e) => (float[2,6] next, float[2,2,3] part) {
                split = Constant <value = int64[3] {2,2,3}> ()
                flat = Constant <value = int64[2] {2,6}> ()
                sum = Add(state, e)
                part = Reshape(sum, split)
                soft = Softmax(part)
                next = Reshape(soft, flat)
            }> (zero, x)
    }
"""


@pytest.mark.parametrize("to", ["N", 3])
def test_the_body_of_a_scan_is_reached(model_of, runtime, to):
    result = changed(runtime, model_of(SCAN), Rebatch(to))

    assert any("@0/body/@" in line for line in result.changes)
    shapes = [o.type.tensor_type.shape for o in result.model.proto.graph.output]
    first = [[d.dim_param or d.dim_value for d in shape.dim] for shape in shapes]
    assert first == [[to, 6], [to, 5, 2, 3]]


def test_a_state_that_begins_with_zeros_of_the_batch_follows(model_of, runtime):
    zeros = """zeros = Constant <value = int64[2] {2,6}> ()
        zero = ConstantOfShape(zeros)
        last, y = Scan"""
    text = SCAN.replace("last, y = Scan", zeros, 1)
    head, _, rest = text.partition("<float[2,6] zero")
    model = model_of(head + rest.partition(">")[2])

    result = changed(runtime, model, Rebatch("N"))

    assert any("at ConstantOfShape" in line for line in result.changes)
    assert not any("expanded" in line for line in result.changes)


def test_a_value_that_a_loop_captures_follows_in_its_body(model_of, runtime):
    model = model_of("""
        looped (float[2,6] x) => (float[2,6] y, float[t,2,2,3] all) <int64 times = {3}, bool always = {1}> {
            zero = Sub(x, x)
            y, all = Loop(times, always, zero) <
                body = b (int64 i, bool c, float[2,6] s) => (bool c2, float[2,6] t, float[2,2,3] p) {
                    c2 = Identity(c)
                    split = Constant <value = int64[3] {2,2,3}> ()
                    flat = Constant <value = int64[2] {2,6}> ()
                    p = Reshape(x, split)
                    g = Softmax(p)
                    h = Reshape(g, flat)
                    t = Add(s, h)
                }>
        }
    """)

    result = changed(runtime, model, Rebatch("N"))

    dims = result.model.proto.graph.output[1].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["t", "N", 2, 3]


@pytest.mark.parametrize(
    ("opset", "text", "attribute"),
    [
        (9, "(float[4,3] y) { y = Slice<starts = [0,0], ends = [4,3]>(x) }", "ends"),
        (4, "(float[4,2,3] y) { y = Reshape<shape = [4,2,3]>(x) }", "shape"),
        (11, "(float[2,6] y) { y, z = Split<axis = 0, split = [2,2]>(x) }", "split"),
    ],
)
def test_a_size_in_an_attribute_of_an_older_opset_is_said_and_follows_in_a_newer_one(
    model_of, opset, text, attribute
):
    header = f'<ir_version: 7, opset_import: ["" : {opset}]>'
    model = model_of(f"{header} g (float[4,6] x) => {text}")

    with pytest.raises(ShapeError, match=f"its attribute '{attribute}' holds a size") as caught:
        SetShape({"x": ("N", 6)}).apply(model)

    assert "edit opset MODEL 13" in caught.value.hint
    newer = SetShape({"x": ("N", 6)}).apply(Opset(13).apply(model).model).model
    x = np.arange(48, dtype=np.float32).reshape(8, 6)
    whole = run_model(newer, {"x": x})["y"]
    assert np.array_equal(whole[:2], run_model(newer, {"x": x[:4]})["y"][:2])
    assert len(whole) == (4 if attribute == "split" else 8)


def test_a_slice_of_an_older_opset_that_takes_a_part_stays(model_of):
    header = '<ir_version: 7, opset_import: ["" : 9]>'
    text = (
        "g (float[4,6] x) => (float[2,6] y) { y = Slice<axes = [0], starts = [0], ends = [2]>(x) }"
    )

    result = SetShape({"x": ("N", 6)}).apply(model_of(f"{header} {text}"))

    assert result.changed
    x = np.ones((8, 6), np.float32)
    assert run_model(result.model, {"x": x})["y"].shape == (2, 6)


def test_a_gather_of_one_row_follows_a_size_that_changes():
    model = build(
        """g (float[3,5] x) => (float[5] y, float[3,5] z) {
            i = Constant<value_int = 0>()
            y = Gather<axis = 0>(x, i)
            z = Relu(x)
        }"""
    )

    made = Rebatch("N").apply(model)

    shapes = [
        value.type.tensor_type.shape.dim[0].dim_param for value in made.model.proto.graph.output
    ]
    assert shapes == ["", "N"]


@pytest.mark.parametrize("own", [1, 2])
@pytest.mark.parametrize("operator", ["GatherElements", "ScatterElements"])
def test_rows_that_are_picked_or_put_in_are_as_many_as_the_others(own, operator, model_of, runtime):
    rows = ", ".join(["7, 8, 9, 6"] * own)
    put = ", x" if operator == "ScatterElements" else ""
    model = model_of(f"""g (float[{own},3] x) => (float[{own},{4 if put else 3}] y)
        <float[{own},4] table = {{{rows}}}> {{
            positive = Abs(x)  none = Sub(positive, positive)  at = Cast<to = 7>(none)
            y = {operator}<axis = -1>(table, at{put}) }}""")

    result = changed(runtime, model, Rebatch("N"))

    assert any("'table' is read" in line for line in result.changes)
