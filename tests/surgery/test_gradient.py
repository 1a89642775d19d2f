"""Gradients as nodes: the rule of every operator, what is refused and said, functions and files."""

import shutil
import warnings
from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from gradient_checks import HEAD, PAGE, cases, measured, operator_of, status
from gradient_torch import TORCH, compared

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.graphs import run
from onnxsurgeon_lite import Gradient
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.model import walk

CASES = 2  # of an operator; the page has the figures of all


def row_of(line: str) -> tuple[str, str, str]:
    operator, said, figure, _ = (cell.strip() for cell in line.strip("|\n").split("|"))
    return operator, said, figure


def test_every_rule_agrees_with_central_differences_and_the_page_says_so():
    by_operator: dict[str, list[str]] = {}
    for name in cases():
        by_operator.setdefault(operator_of(name), []).append(name)
    found = measured(name for names in by_operator.values() for name in names[:CASES])
    rows = [row_of(line) for line in PAGE.read_text().partition(HEAD)[2].splitlines()]
    listed = {operator: (said, figure) for operator, said, figure in rows}

    assert sum(said == "exact" for said, _ in listed.values()) >= 110
    for operator, (said, figure) in listed.items():
        checked = found.get(operator)
        if said != "exact":
            assert status(operator, checked) == said, operator
        elif checked is not None and checked.cases:
            assert checked.worst <= max(2 * float(figure), 1e-6), operator


def test_rules_are_those_of_torch_on_the_cases_of_operators_that_it_has():
    first: dict[str, float] = {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in cases():
            operator = operator_of(name)
            if operator in TORCH and operator not in first:
                off = compared(name)
                first |= {} if off is None else {operator: off}

    assert len(first) >= 100
    assert max(first.values()) < 1e-5


def gradient_of(model, of: str, to: str, runtime, **feeds) -> np.ndarray:
    edited = Gradient(of, (to,)).apply(model).model
    return run(runtime, edited, feeds)[f"d({of})/d({to})"]


def test_values_on_several_paths_have_the_sum_of_their_gradients(model_of, runtime):
    model = model_of(
        "m (float[2] x) => (float[2] y) { a = Mul(x, x) b = Sin(x) c = Mul(a, b) y = Add(c, x) }"
    )
    x = np.array([0.5, -2], np.float32)

    found = gradient_of(model, "y", "x", runtime, x=x)

    np.testing.assert_allclose(found, 2 * x * np.sin(x) + x * x * np.cos(x) + 1, rtol=1e-6)


@pytest.mark.parametrize("shape", ["M,3", "M,K", "?,?", "1,3"])
def test_what_is_broadcast_at_sizes_that_are_not_known_is_summed(shape, model_of, runtime):
    text = f"m (float[{shape}] x, float[N,3] z) => (float[N,3] y) {{ y = Mul(x, z) }}"
    z = np.arange(6, dtype=np.float32).reshape(2, 3)

    for rows, columns in ((1, 3),) if shape == "1,3" else ((1, 3), (2, 3)):
        x = np.ones((rows, columns), np.float32)
        found = gradient_of(model_of(text), "y", "x", runtime, x=x, z=z)

        expected = z.sum(axis=tuple(a for a, n in enumerate(x.shape) if n == 1), keepdims=True)
        np.testing.assert_allclose(found, np.broadcast_to(expected, x.shape))


def test_functions_on_the_way_are_inlined_and_old_opsets_converted(model_of, runtime):
    text = """<ir_version: 8, opset_import: ["" : 13, "local" : 1]>
    m (float[2] x) => (float[2] y) { h = local.cube(x) y = local.cube(h) }
    <domain: "local", opset_import: ["" : 13]> cube (a) => (b) { s = Mul(a, a) b = Mul(s, a) }"""
    model = model_of(text)
    result = Gradient("y", ("x",)).apply(model)

    found = run(runtime, result.model, {"x": np.array([1, 2], np.float32)})

    assert found["d(y)/d(x)"].tolist() == [9, 9 * 2**8]
    assert [note.split(":")[0] for note in result.notes] == [
        "inlined 1 functions", "opset 13 -> 16, which gradients need",
        "the conversion was not run; onnxdbg edit opset, used before this, proves it"]  # fmt: skip


def refused(model, of: str, *to: str) -> str:
    with pytest.raises(EditError) as caught:
        Gradient(of, to).apply(model)
    return f"{caught.value.message}; {caught.value.hint}"


def test_what_has_no_gradient_is_named(model_of):
    text = """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
    m (float[2,2] x, float[2,2] z, int64[2] i) => (float[2,2] y, float[2,2] w, int64[2] k) {
        a = Tanh(x) d = own.Norm(a) y = Neg(d) w = Floor(z) k = Neg(i) }"""

    model = model_of(text)

    assert refused(model, "y", "x").startswith(
        "own::Norm has no gradient rule; the path needs it: Tanh @0 -> Norm @1 -> Neg @2"
    )
    assert refused(model, "y", "z") == "'y' does not depend on z; it depends on 'x'"
    assert refused(model, "w", "z").startswith("'w' depends on z only through Floor @3")
    assert refused(model, "k", "i").startswith("'k' is int64: only floats have a gradient")


def test_paths_that_do_not_change_smoothly_end_and_that_is_said(model_of, runtime):
    model = model_of("m (float[2] x) => (float[2] y) { a = Round(x) y = Mul(a, x) }")

    result = Gradient("y", ("x",)).apply(model)
    found = run(runtime, result.model, {"x": np.array([1.2, -2.6], np.float32)})

    assert found["d(y)/d(x)"].tolist() == [1, -3]
    assert result.notes == ("no gradient passes Round @0: what they make does not change smoothly",)


def test_weights_stay_where_they_are_and_have_gradients_of_their_own(tmp_path, runtime):
    for name in ("external.onnx", "external.data"):
        shutil.copy(FIXTURES / name, tmp_path)
    model = osl.load(tmp_path / "external.onnx")
    result = Gradient(model.proto.graph.output[0].name, (), wrt_weights=True).apply(model)

    result.save(tmp_path / "gradient.onnx")

    assert [file.name for file in tmp_path.glob("*.data")] == ["external.data"]
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.proto.graph.input
    }
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    found = run(runtime, osl.load(tmp_path / "gradient.onnx"), feeds)
    assert len(found) == 1 + len(result.changes)
    assert all(np.isfinite(value).all() for value in found.values())


BRANCHES = """m (float[2] x, bool c) => (float[2] y) {
    y = If (c) <
        then_branch = t () => (float[2] a) { s = Sin(x) a = Mul(s, x) },
        else_branch = e () => (float[2] b) { b = Identity(x) }>
}"""
LOOP = """m (float[2] x, int64 n, float[2] w) => (float[2] y, float[k,2] r) {
    on = Constant <value = bool {1}> ()
    y, r = Loop (n, on, x) <body = b (int64 i, bool go, float[2] s) => (bool more, float[2] t, float[2] o) {
        more = Identity(go) p = Mul(s, w) t = Tanh(p) o = Mul(t, t)
    }>
}"""


def test_the_gradient_of_a_branch_is_that_of_the_branch_taken(model_of, runtime):
    x = np.array([0.5, 2], np.float32)

    for taken, expected in ((True, np.sin(x) + x * np.cos(x)), (False, np.ones(2))):
        found = gradient_of(model_of(BRANCHES), "y", "x", runtime, x=x, c=np.array(taken))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("output", ["y", "r"])
@pytest.mark.parametrize("by", ["x", "w"])
def test_a_loop_of_unknown_length_is_differentiated_by_a_loop_backwards(
    by, output, steps, model_of, runtime
):
    x, w = np.array([0.5, -0.25]), np.array([0.75, 1.5])

    def value(x: np.ndarray, w: np.ndarray) -> float:
        rows = []
        for _ in range(steps):
            x = np.tanh(x * w)
            rows.append(x * x)
        return float(np.sum(x if output == "y" else rows))

    feeds = {"x": x.astype(np.float32), "w": w.astype(np.float32), "n": np.array(steps)}
    found = gradient_of(model_of(LOOP), output, by, runtime, **feeds)

    h = 1e-5 * np.eye(2)
    given = [{"x": x, "w": w} | {by: {"x": x, "w": w}[by] + s * row} for s in (1, -1) for row in h]
    ends = np.array([value(**one) for one in given]).reshape(2, 2)
    np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "direction"), [("RNN", "forward"), ("GRU", "reverse"), ("LSTM", "bidirectional")]
)
def test_recurrent_operators_with_lengths_and_clips(kind, direction, model_of, runtime):
    ways, gates = 1 + (direction == "bidirectional"), {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    text = f"""m (float[4,3,2] x, float[{ways},{gates * 2},2] w, float[{ways},{gates * 2},2] r) => (
            float[4,{ways},3,2] y, float[{ways},3,2] h) {{
        lengths = Constant <value = int32[3] {{4, 2, 1}}> ()
        y, h = {kind} <hidden_size = 2, clip = 0.9, direction = "{direction}"> (x, w, r, , lengths)
    }}"""
    rng = np.random.default_rng(0)
    model = model_of(text)
    feeds = {
        v.name: rng.standard_normal([d.dim_value for d in v.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for v in model.proto.graph.input
    }

    for of in ("y", "h"):
        for to in feeds:
            found = gradient_of(model, of, to, runtime, **feeds)
            way = rng.standard_normal(found.shape)
            ends = [
                run(runtime, model, feeds | {to: (feeds[to] + h * way).astype(np.float32)})[of]
                for h in (1e-3, -1e-3)
            ]
            expected = (ends[0].astype(np.float64) - ends[1]).sum() / 2e-3
            assert (found * way).sum() == pytest.approx(expected, rel=1e-2, abs=1e-2)


def test_a_state_that_changes_its_shape_is_refused_with_the_loop(model_of):
    text = """m (float[2] x) => (float[k] y) {
        n = Constant <value = int64 {3}> ()
        on = Constant <value = bool {1}> ()
        [grow] y = Loop (n, on, x) <body = b (int64 i, bool go, float[m] s) => (bool more, float[o] t) {
            more = Identity (go)
            t = Concat <axis = 0> (s, s)
        }>
    }"""

    assert refused(model_of(text), "y", "x").startswith(
        "Loop 'grow' changes the shape of its state 's' from [2] to [4]"
    )


RANDOM = """m (float[4] x, float[4] z) => (float[4] y) {
    half = Constant <value = float {0.5}> ()
    on = Constant <value = bool {1}> ()
    n = RandomNormalLike (x)
    m = Mul (n, x)
    keep, mask = Dropout (m, half, on)
    y = Mul (keep, z)
}"""


def test_the_gradient_reads_what_random_nodes_drew_in_its_run(model_of, runtime):
    model = model_of(RANDOM)
    x, z = np.float32([1, 2, 3, 4]), np.float32([5, 6, 7, 8])

    edited = Gradient("y", ("x",)).apply(model).model
    found = run(runtime, edited, {"x": x, "z": z})

    np.testing.assert_allclose(found["d(y)/d(x)"], found["y"] / x, rtol=1e-5)


FUNCTIONS = {
    "Gelu (a)": """two = Constant <value = float {2}> ()
        one = Constant <value = float {1}> ()
        root = Sqrt (two)
        q = Div (a, root)
        e = Erf (q)
        p = Add (e, one)
        h = Mul (a, p)
        b = Div (h, two)""",
    "LayerNormalization (a, s)": """last = Constant <value = int64[1] {-1}> ()
        epsilon = Constant <value = float {1e-5}> ()
        mean = ReduceMean (a, last)
        c = Sub (a, mean)
        squares = Mul (c, c)
        v = ReduceMean (squares, last)
        w = Add (v, epsilon)
        d = Sqrt (w)
        n = Div (c, d)
        b = Mul (n, s)""",
}
CALLS = """<ir_version: 8, opset_import: ["" : 20, "own" : 1]>
m (float[3,4] x, float[4] s) => (float[3,4] y) {{ a = Sin (x) h = {node} y = Mul (h, h) }}
<domain: "own", opset_import: ["" : 20]> f (a, s) => (b) {{ {body} }}"""


@pytest.mark.parametrize(
    ("node", "to"), [(node, "x") for node in FUNCTIONS] + [("LayerNormalization (a, s)", "s")]
)
def test_a_function_has_the_gradient_of_the_operator_that_it_is(node, to, model_of, runtime):
    calls = [CALLS.format(node=used, body=FUNCTIONS[node]) for used in (node, "own.f (a, s)")]
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    feeds["s"] = np.float32([1, 2, 3, 4])

    found = [gradient_of(model_of(text), "y", to, runtime, **feeds) for text in calls]

    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


def sampled(image: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Read an image [channels, height, width] between its pixels, linearly; 0 outside."""
    height, width = image.shape[-2:]
    top, left = torch.floor(rows).detach(), torch.floor(columns).detach()
    found = torch.zeros(1, dtype=image.dtype)
    for y, x in ((top + i, left + j) for i in (0, 1) for j in (0, 1)):
        weight = (1 - (rows - y).abs()) * (1 - (columns - x).abs())
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        pixels = image[:, y.clamp(0, height - 1).long(), x.clamp(0, width - 1).long()]
        found = found + pixels * weight * inside
    return found


def test_a_deformed_convolution_has_the_gradient_that_torch_has_of_its_definition():
    random = np.random.default_rng(0)
    shapes = {
        "x": (1, 2, 5, 5),
        "w": (3, 2, 2, 2),
        "shift": (1, 8, 4, 4),
        "b": (3,),
        "mask": (1, 4, 4, 4),
    }
    feeds = {
        name: random.uniform(-0.9, 0.9, shape).astype(np.float32) for name, shape in shapes.items()
    }
    declared = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in shapes.items())
    model = osl.build(
        f"g ({declared}) => (float[1, 3, 4, 4] y) {{ y = DeformConv({', '.join(shapes)}) }}"
    )

    added = osl.gradient(model, of="y", to=list(shapes)).model
    found = osl.run(added, feeds, fetch=[f"d(y)/d({name})" for name in shapes])

    given = {n: torch.tensor(a, dtype=torch.float64, requires_grad=True) for n, a in feeds.items()}
    rows, columns = torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="ij")
    result = given["b"].sum() * 16
    for k, (i, j) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        down, right = given["shift"][0, 2 * k], given["shift"][0, 2 * k + 1]
        patch = sampled(given["x"][0], rows + i + down, columns + j + right) * given["mask"][0, k]
        result = result + torch.einsum("oc,chw->", given["w"][:, :, i, j], patch)
    result.backward()
    for name, tensor in given.items():
        np.testing.assert_allclose(
            found[f"d(y)/d({name})"], tensor.grad.numpy(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [False, True])
def test_samples_of_an_image_have_the_gradient_that_torch_has(mode, padding, aligned):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (2, 3, 5, 4)).astype(np.float32)
    grid = random.uniform(-1.4, 1.4, (2, 6, 3, 2)).astype(np.float32)
    model = osl.build(f"""<ir_version: 8, opset_import: ["" : 16]>
        g (float[2, 3, 5, 4] x, float[2, 6, 3, 2] grid) => (float[2, 3, 6, 3] z) {{
            y = GridSample <mode = "{mode}", padding_mode = "{padding}", align_corners = {int(aligned)}> (x, grid)
            z = Sin (y) }}""")
    # the nearest element does not change with small changes of the grid
    names = ["x"] if mode == "nearest" else ["x", "grid"]

    added = osl.gradient(model, of="z", to=names).model
    found = osl.run(added, {"x": x, "grid": grid}, fetch=[f"d(z)/d({name})" for name in names])

    given = {
        "x": torch.tensor(x, requires_grad=True),
        "grid": torch.tensor(grid, requires_grad=True),
    }
    sampled = torch.nn.functional.grid_sample(
        given["x"], given["grid"], mode=mode, padding_mode=padding, align_corners=aligned
    )
    sampled.sin().sum().backward()
    for name in names:
        np.testing.assert_allclose(
            found[f"d(z)/d({name})"], given[name].grad.numpy(), rtol=1e-4, atol=1e-4
        )


def test_determinants_of_matrices_of_unknown_sizes_have_a_gradient(model_of, runtime):
    x = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)

    found = gradient_of(
        model_of("m (float[n,c,c] x) => (float[n] y) { y = Det (x) }"), "y", "x", runtime, x=x
    )

    expected = np.linalg.det(x)[:, None, None] * np.linalg.inv(x).transpose(0, 2, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_gradient_has_no_node_and_no_constant_that_nothing_reads(model_of):
    model = model_of("""m (float[4,3,2] x, float[2,8,2] w, float[2,8,2] r, float[2,16] b) => (float[4,2,3,2] y) {
        y = LSTM <hidden_size = 2, direction = "bidirectional"> (x, w, r, b) }""")

    proto = Gradient("y", ("x", "w")).apply(model).model.proto

    read = {name for node in walk.with_inner(proto.graph.node) for name in node.input}
    read |= {value.name for value in proto.graph.output}
    assert all(read.intersection(node.output) for node in proto.graph.node)
    assert {tensor.name for tensor in proto.graph.initializer} <= read


def test_what_a_written_definition_leaves_out_is_refused_in_its_words(model_of):
    head = "m (float[1,2,4,4] x, float[1,4] r) => (float[a,b,c,d] y) { b = Constant <value_ints = [0]> ()"
    for given, why in (
        ('mode = "max"', "mode is 'max'"),
        ("sampling_ratio = 0", "sampling_ratio is 0"),
    ):
        model = model_of(f"{head} y = RoiAlign <{given}> (x, r, b) }}")
        assert refused(model, "y", "x").startswith(f"RoiAlign has no gradient rule where {why}")
    odd = """m (float[4,3,2] x, float[1,2,2] w, float[1,2,2] r) => (float[a,b,c,d] y) {
        y = RNN <hidden_size = 2, activations = ["LeakyRelu"]> (x, w, r) }"""
    assert refused(model_of(odd), "y", "x").startswith(
        "RNN has no gradient rule where it has LeakyRelu"
    )


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceProd", "ReduceMax", "ReduceL2"])
def test_a_reduction_over_all_axes_of_unknown_sizes_has_a_gradient_of_its_inputs_shape(
    operator, opset, model_of, runtime
):
    model = model_of(f"""<ir_version: 8, opset_import: ["" : {opset}]>
        m (float[n,3,4] x) => (float y) {{ y = {operator}<keepdims = 0>(x) }}""")

    result = Gradient("y", ("x",)).apply(model).model
    found = run(runtime, result, {"x": np.full((2, 3, 4), 2, np.float32)})["d(y)/d(x)"]

    onnx.checker.check_model(result.proto, full_check=True)
    assert found.shape == (2, 3, 4)
    expected = {"ReduceProd": 2.0**23, "ReduceL2": 24**-0.5}.get(operator, 1 / 24)
    assert np.allclose(found, expected)


def test_parts_of_unknown_sizes_are_cut_from_the_gradient_of_what_joins_them(model_of, runtime):
    model = model_of("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[a] u, float[b] v, float[c] w, float[d] x) => (float[e] y) {
            j = Concat<axis = 0>(u, v, w, x) y = Mul(j, j) }""")
    feeds = {name: np.full(size, size, np.float32) for size, name in enumerate("uvwx", 1)}

    result = Gradient("y", ("x",)).apply(model).model

    assert run(runtime, result, feeds)["d(y)/d(x)"].tolist() == [8] * 4


def test_a_body_may_declare_its_counter_as_one_element(model_of, runtime):
    model = model_of("""<ir_version: 8, opset_import: ["" : 17]>
        m (float[2] x) => (float[2] y) <int64 n = {3}, bool go = {1}> {
            y = Loop(n, go, x) <body = b (int64[1] i, bool c, float[2] s) => (bool c2, float[2] t) {
                c2 = Identity(c) f = Cast<to = 1>(i) p = Mul(s, f) t = Add(p, x) }> }""")

    result = Gradient("y", ("x",)).apply(model).model

    assert run(runtime, result, {"x": np.ones(2, np.float32)})["d(y)/d(x)"].tolist() == [5, 5]


def test_malformed_windows_are_refused_and_sizes_of_minus_one_are_unknown(model_of, runtime):
    malformed = model_of("""m (float[1,2,4,4] x) => (float[a,b,c,d] y) <float w = {1}> {
        y = ConvTranspose(x, w) }""")
    assert "the size of the kernel is not known" in refused(malformed, "y", "x")
    malformed = model_of("""m (float[1,2,4,4] x, float[2,2,2,2] w) => (float[a,b,c,d] y) {
        y = ConvTranspose<strides = [1]>(x, w) }""")
    assert "different ranks" in refused(malformed, "y", "w")
    model = model_of("m (float[n,4] x) => (float[n,4] y) { y = Softmax<axis = 0>(x) }")
    model.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1

    result = Gradient("y", ("x",)).apply(model).model

    found = run(runtime, result, {"x": np.eye(2, 4, dtype=np.float32)})["d(y)/d(x)"]
    assert found.shape == (2, 4)
    assert np.allclose(found, 0, atol=1e-6)


def test_layer_normalization_before_it_was_onnxs_has_a_gradient(model_of, runtime):
    model = model_of("""<ir_version: 7, opset_import: ["" : 13]>
        m (float[2,4] x) => (float[2,4] y) <float[4] s = {1,1,1,1}> { y = LayerNormalization(x, s) }""")

    result = Gradient("y", ("x",)).apply(model).model

    found = run(runtime, result, {"x": np.eye(2, 4, dtype=np.float32)})["d(y)/d(x)"]
    assert np.allclose(found, 0, atol=1e-5)


def test_no_two_nodes_of_a_gradient_have_one_name(model_of):
    model = model_of("""m (float[2] x, bool c) => (float[2] y) { a = Abs(x)
        y = If(c) <then_branch = t () => (float[2] u) { [n] u = Mul(a, a) },
                   else_branch = e () => (float[2] v) { [n] v = Exp(a) }> }""")
    model.proto.graph.node[0].name = "d(y)/d(x)"

    result = Gradient("y", ("x",)).apply(model).model

    names = Counter(n.name for g in walk.graphs(result.proto) for n in g.node if n.name)
    assert {name: count for name, count in names.items() if count > 1} == {"n": 2}
