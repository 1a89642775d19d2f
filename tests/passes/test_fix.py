"""What other tools leave is repaired, or named: a fixed model is valid, and computes what runtimes made of it."""

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.graphs import run
from onnxsurgeon_lite import Dedupe, Fix, Model
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph.check import check

X = {"x": np.array([1, -2], np.float32)}
WEIGHT = "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
HEADER = '<ir_version: 10, opset_import: ["" : 21]>'


def parsed(text: str, header: str = HEADER) -> Model:
    return Model(parser.parse_model(header + text))


def fixed(model: Model, join: bool = False) -> Model:
    """The repaired model; the checker accepts it, and it is repaired once."""
    result = Fix(join).apply(model)
    onnx.checker.check_model(result.model.proto, full_check=True)
    assert result.changed
    assert not Fix(join).apply(result.model).changed
    return result.model


@pytest.mark.parametrize("numbers", [[1.0, 2.0], [5.0, 6.0]])
def test_of_two_initializers_of_one_name_the_last_stays_as_in_runtimes(numbers, runtime):
    model = parsed(WEIGHT)
    model.proto.graph.initializer.append(helper.make_tensor("w", 1, [2], numbers))
    expected = run(runtime, model, X)["y"]
    for edit in (osl.SetConstant("w", 0), osl.Promote(("w",))):
        with pytest.raises(GraphError, match="value 'w' has 2 initializers"):
            edit.apply(model)

    assert (
        run(runtime, fixed(model), X)["y"].tolist()
        == expected.tolist()
        == (X["x"] + numbers).tolist()
    )
    assert Dedupe().apply(model).model.proto.graph.initializer


def test_of_two_constants_of_one_name_every_reader_gets_the_last_as_in_runtimes(runtime):
    model = parsed("""g (float[2] x) => (float[2] y) {
        c = Constant<value = float[2] {1, 1}>() b = Add(x, c) c = Constant<value = float[2] {5, 5}>() y = Mul(c, b)
    }""")
    expected = run(runtime, model, X)["y"].tolist()

    assert expected == ((X["x"] + 5) * 5).tolist()
    assert run(runtime, fixed(model), X)["y"].tolist() == expected


def test_two_producers_of_one_value_are_repaired_and_written(model_of, runtime):
    model = model_of(
        "g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) c = Exp(b) y = Add(c, b) }"
    )
    model.proto.graph.node[2].output[0] = model.proto.graph.node[3].input[0] = "a"
    path = model.path.with_name("two.onnx")
    onnx.save(model.proto, path)

    done = CliRunner().invoke(app, ["edit", "fix", str(path), "-o", f"{path}.fixed"])
    checked = CliRunner().invoke(app, ["check", str(path)])

    assert done.exit_code == 0, done.output
    assert np.allclose(
        run(runtime, osl.load(f"{path}.fixed"), X)["y"], np.exp(np.abs(X["x"])) + np.abs(X["x"])
    )
    assert checked.exit_code == 1
    said = (
        "invalid: value 'a' has two producers: Neg @0 and Exp @2; repair it: onnxdbg edit fix MODEL"
    )
    assert said in checked.output
    with pytest.raises(GraphError) as caught:
        osl.GraphIndex.of(osl.load(path))
    assert "onnxdbg edit fix" in caught.value.hint


@pytest.mark.parametrize(
    ("nodes", "ir", "version"),
    [
        ("y = Add(x, x)", 10, 22),
        ("y = Add(x, x)", 8, 18),
        ("y = Gelu(x)", 8, 20),
        ("y = Dropout<ratio = 0.5>(x)", 8, 11),
        ("y = Clip<max = 6.0>(x)", 10, 10),
    ],
)
def test_a_missing_import_gets_the_version_that_fits_the_nodes(nodes, ir, version):
    model = parsed(f"g (float[2] x) => (float[2] y) {{ {nodes} }}")
    del model.proto.opset_import[:]
    model.proto.ir_version = ir

    assert [(o.domain, o.version) for o in fixed(model).proto.opset_import] == [("", version)]


def test_missing_imports_of_other_domains_and_of_functions_are_added():
    model = parsed("""
        g (float[2] x) => (float[2] y) {
            h = com.microsoft.Gelu(x)
            s = ai.onnx.ml.Scaler<offset = [0.0], scale = [1.0]>(h)
            y = local.twice(s)
        }
        <domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, a) }
    """)
    del model.proto.functions[0].opset_import[:]

    result = fixed(model).proto

    assert {o.domain for o in result.opset_import} == {"", "com.microsoft", "ai.onnx.ml", "local"}
    assert [(o.domain, o.version) for o in result.functions[0].opset_import] == [("", 21)]


def test_the_type_of_an_input_follows_its_default(runtime):
    model = parsed(WEIGHT)
    model.proto.graph.input.append(helper.make_tensor_value_info("w", 1, [3]))

    assert run(runtime, fixed(model), X)["y"].tolist() == [2, 0]


def test_a_graph_without_a_name_and_an_output_without_a_type_get_them():
    model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    model.proto.graph.name = ""
    model.proto.graph.output[0].ClearField("type")

    result = fixed(model).proto

    onnx.checker.check_model(result, full_check=True)
    assert result.graph.output[0].type == result.graph.input[0].type


def test_an_output_without_a_shape_is_named_and_gets_it():
    model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    model.proto.graph.output[0].type.tensor_type.ClearField("shape")

    assert check(model).problem == "output 'y' declares no shape"
    assert fixed(model).proto.graph.output[0].type == model.proto.graph.input[0].type


def test_an_input_without_a_shape_gets_the_dimensions_that_alone_fit_its_readers():
    image = parsed("g (float[1,3,8,8] x, float[2,3,3,3] w) => (float[N] y) { y = Conv(x, w) }")
    anything = parsed("g (float[2] x) => (float[N] y) { y = Neg(x) }")
    default = parsed("g (float[2] x) => (float[2] y) <float[2] x = {1, 2}> { y = Neg(x) }")
    for model in (image, anything, default):
        model.proto.graph.input[0].type.tensor_type.ClearField("shape")
    anything.proto.graph.output[0].type.tensor_type.ClearField("shape")
    image.proto.graph.output[0].type.tensor_type.ClearField("shape")

    dims = fixed(image).proto.graph.input[0].type.tensor_type.shape.dim

    assert [dim.dim_param for dim in dims] == ["x_dim0", "x_dim1", "x_dim2", "x_dim3"]
    assert fixed(default).proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    with pytest.raises(GraphError, match="'x' declares no shape, and several fit") as left:
        fixed(anything)
    assert "set-shape" in left.value.hint
    given = osl.set_shape(anything, {"x": ["N", 4]}, unproved=True).model.proto.graph.input[0]
    assert [dim.dim_param for dim in given.type.tensor_type.shape.dim] == ["N", ""]


def test_a_model_without_an_import_is_told_so_and_not_to_import_what_one_node_needs():
    model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    del model.proto.opset_import[:]

    assert check(model).problem == "the model imports no version of 'ai.onnx': onnxdbg edit fix"


def test_constants_that_are_no_inputs_need_ir_4(runtime):
    model = parsed(WEIGHT, '<ir_version: 3, opset_import: ["" : 8]>')

    assert fixed(model).proto.ir_version == 4


DANGLING = (
    "g (float[2] x) => (float[2] y) <float[2] weight = {1, 2}> { h = Neg(x) y = Add(h, weigth) }"
)


def test_a_value_that_nothing_produces_is_named_and_joined_only_when_asked(runtime):
    model = parsed(DANGLING)

    with pytest.raises(GraphError, match="Add @1 reads 'weigth', which nothing produces") as caught:
        Fix().apply(model)

    assert "--join" in caught.value.hint
    assert run(runtime, fixed(model, join=True), X)["y"].tolist() == [0, 4]
    (finding,) = (f for f in osl.check(model).findings if f.kind == "dangling")
    assert finding.places == ("@1", "weigth")


def test_a_missing_value_in_a_body_or_a_function_is_found():
    model = parsed("""
        g (float[2] x, bool c) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] a) { a = Neg(missing) }, else_branch = e () => (float[2] x) { }>
        }
        <domain: "local", opset_import: ["" : 21]> twice (a) => (b) { b = Add(a, gone) }
    """)

    found = [f.message for f in osl.check(model).findings if f.kind == "dangling"]

    assert sorted(text.partition(",")[0] for text in found) == [
        "Add fn:local::twice/@0 reads 'gone'", "Neg @0/then_branch/@0 reads 'missing'",
    ]  # fmt: skip


def test_two_values_of_the_same_likeness_are_not_guessed_between():
    model = parsed(DANGLING.replace("h = Neg(x)", "weigtha = Neg(x) weigthb = Neg(x) h = Neg(x)"))

    with pytest.raises(GraphError, match="'weigth', which nothing produces"):
        Fix(join=True).apply(model)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("g (float[2] x) => (float[2] y) { a = Neg(b) b = Abs(a) y = Add(x, b) }", "cycle of 2 nodes"),
        ("g (float[2] x) => (float[2] y) { y = NoSuchOperator(x) }", "NoSuchOperator"),
        ("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) }", "output 'z', which nothing"),
        (
            """g (float[2] x) => (float[2] y) { y = local.f(x) }
            <domain: "local", opset_import: ["" : 21, "local" : 1]> f (a) => (b) { b = local.f(a) }""",
            "functions call themselves, directly or indirectly: 'local::f'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_fixed_is_named_and_nothing_is_written(text, problem, tmp_path):
    onnx.save(parsed(text).proto, tmp_path / "model.onnx")

    with pytest.raises(GraphError, match=problem):
        Fix().apply(osl.load(tmp_path / "model.onnx"))
    words = ["edit", "fix", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "fixed.onnx")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "nothing to change" not in done.output
    assert ("edit remove-output MODEL z" in done.output) == ("output 'z'" in problem)
    assert not (tmp_path / "fixed.onnx").exists()


def test_unused_inputs_and_initializers_are_findings():
    model = parsed(
        "g (float[2] x, float[2] z) => (float[2] y) <float[2] w = {1, 2}> { y = Neg(x) }"
    )

    found = [f.message for f in osl.check(model).findings if f.kind == "unused"]

    assert found == ["no node reads initializer 'w'", "no node reads input 'z'"]


@pytest.mark.parametrize("stale", ["float[7,7] h", "int64[2] h"])
@pytest.mark.parametrize("output", ["float[2] p", "int64[2] p", "float[7,7] p"])
def test_stale_types_in_a_body_are_corrected(stale, output):
    model = parsed(f"""g (float[2] x, bool c) => (float[2] y) {{
        y = If (c) <then_branch = t () => ({output}) <{stale}> {{ h = Exp(x) p = Neg(h) }},
                    else_branch = e () => (float[2] q) {{ q = Abs(x) }}> }}""")

    then = fixed(model).proto.graph.node[0].attribute[0].g

    types = [value.type.tensor_type for value in (*then.value_info, *then.output)]
    assert [(kind.elem_type, len(kind.shape.dim)) for kind in types] == [(1, 1), (1, 1)]


def test_a_body_does_not_follow_a_stale_type_outside():
    model = parsed("""g (float[2] x, bool c) => (float[2] y) <float[7,7] a> {
        a = Exp(x)
        y = If (c) <then_branch = t () => (float[2] p) <float[2] h> { h = Exp(a) p = Neg(h) },
                    else_branch = e () => (float[2] q) { q = Abs(a) }> }""")

    result = Fix().apply(model)

    assert [change for change in result.changes if "branch" in change] == []
    onnx.checker.check_model(result.model.proto, full_check=True)
