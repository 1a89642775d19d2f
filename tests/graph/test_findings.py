"""What `check` finds in models that the ONNX checker finds valid, and does not find in sound ones."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import GraphIndex, load
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.graph.check import check
from onnxsurgeon_lite.graph.lint import find
from onnxsurgeon_lite.model import Model

HEADER = '<ir_version: 10, opset_import: ["" : 21, "custom" : 1]>\n'


def found(text: str, *constants: onnx.TensorProto) -> list[str]:
    proto = onnx.parser.parse_model(HEADER + text)
    proto.graph.initializer.extend(constants)
    return [f"{f.kind}: {f.message}" for f in find(GraphIndex.of(Model(proto)))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "g (float[2] x) => (float[2] y) { a = Relu(x) b = Neg(a) y = Abs(x) }",
            "unreachable: no output depends on Relu @0",
        ),
        (
            "g (float[2] x) => (float[2] y) { a = custom.Thing(x) y = custom.Other(a) }",
            "unknown type: the type of 'a', made by Thing @0, is unknown",
        ),
        (
            "g (float[2] x) => (float[2] y, float[1] z) "
            "{ y = Relu(x) k = Constant<value = float[1] {1}>() z = Neg(k) }",
            "frozen output: output 'z' depends on no input: was it frozen by tracing?",
        ),
        (
            "g (float[n,2] x) => (float[n,2] y, float[n,2] z) "
            "{ y = Relu(x) s = Shape(x) k = ConstantOfShape(s) z = Neg(k) }",
            "frozen output: output 'z' depends on the shape of inputs alone: was it frozen by tracing?",
        ),
        (
            "g (float[n,2] x) => (float[1,2] y) { y = Relu(x) }",
            "frozen shape: output 'y' is declared [1, 2], inputs make it [n, 2]",
        ),
        (
            "g (float[n,4] x) => (float[n,2,2] y) "
            "{ s = Constant<value_ints = [1, 2, 2]>() y = Reshape(x, s) }",
            "frozen shape: output 'y' is declared [n, 2, 2], inputs make it [1, 2, 2]",
        ),
        (
            "g (float[2] x) => (int64[2] y) { y = Relu(x) }",
            "wrong type: output 'y' is declared int64 [2], inputs make it float [2]",
        ),
        (
            "g (float[2] x, int64[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }",
            "wrong type: input 'w' is declared int64 [2], its default is float [2]: onnxdbg edit fix",
        ),
        (
            "g (float[3,2] x) => (float[1,2] y) { y = Relu(x) }",
            "wrong shape: output 'y' is declared [1, 2], inputs make it [3, 2]",
        ),
        (
            "g (float[1,2] x, float[2] s) => (float[1,2] y) "
            "{ y, m, v = BatchNormalization<training_mode = 1>(x, s, s, s, s) }",
            "training mode: BatchNormalization @0 is in training mode: "
            "exported in train()? onnxdbg edit inference",
        ),
        (
            "g (float[2] x) => (float[2] y) "
            "{ t = Constant<value = bool {1}>() y = Dropout(x, , t) }",
            "training mode: Dropout @1 is in training mode: exported in train()? onnxdbg edit inference",
        ),
        (
            "g (float[2] x) => (float[2] y) { [n] a = Relu(x) [n] y = Neg(a) }",
            "duplicate name: nodes @0, @1 have the same name 'n'",
        ),
    ],
)
def test_what_is_suspicious_is_found(text, message):
    assert message in found(text)


def test_before_opset_14_the_outputs_of_a_batch_normalization_say_that_it_trains():
    text = """<ir_version: 7, opset_import: ["" : 13]> g (float[1,2] x, float[2] s) => (float[1,2] y)
        { MADE = BatchNormalization(x, s, s, s, s) }"""

    kinds = [
        {
            f.kind
            for f in find(GraphIndex.of(Model(onnx.parser.parse_model(text.replace("MADE", m)))))
        }
        for m in ("y, m, v", "y")
    ]

    assert ["training mode" in found for found in kinds] == [True, False]


def test_a_value_defined_twice_is_told_with_both_definitions():
    text = "g (float[2] x) => (float[2] y) { h = Relu(x) y = Neg(h) }"
    constant = numpy_helper.from_array(np.ones(2, np.float32), "h")

    (message,) = found(text, constant)

    assert message == "duplicate name: value 'h' is an initializer, and made by Relu @0"


def test_a_node_that_makes_an_input_is_named_and_no_cycle():
    model = Model(
        onnx.parser.parse_model(HEADER + "g (float[2] x) => (float[2] y) { x = Neg(x) y = Abs(x) }")
    )

    assert check(model).problem.startswith("value 'x' is an input, and Neg @0 makes it; repair it")


def test_branches_may_use_the_same_names_but_not_those_outside():
    text = """g (float[2] x, bool c) => (float[2] y) {
        h = Relu(x)
        y = If(c) <
            then_branch = yes () => (float[2] p) { p = Add(h, x) },
            else_branch = no () => (float[2] p) { p = Sub(h, x) }
        >
    }"""

    assert found(text) == []
    assert found(text.replace("(float[2] p) { p = Sub", "(float[2] h) { h = Sub")) == [
        "duplicate name: value 'h' is made by Relu @0, and made by Sub @1/else_branch/@0"
    ]


def test_training_mode_is_found_in_bodies():
    text = """g (float[2] x, bool c) => (float[2] y) {
        t = Constant<value = bool {1}>()
        y = If(c) <
            then_branch = yes () => (float[2] p) { p = Dropout(x, , t) },
            else_branch = no () => (float[2] q) { q = Neg(x) }
        >
    }"""

    (message,) = found(text)

    assert "Dropout @1/then_branch/@0" in message


@pytest.mark.parametrize("declared", ["float[m,2]", "float[?,2]"])
def test_a_symbol_of_an_output_alone_is_a_name_and_no_finding(declared):
    assert found(f"g (float[n,2] x) => ({declared} y) {{ y = Relu(x) }}") == []


def test_dropout_and_an_input_with_a_default_are_fine():
    text = "g (float[2] x, float[2] w) => (float[2] y) { h = Add(x, w) y = Dropout(h) }"

    assert found(text, numpy_helper.from_array(np.ones(2, np.float32), "w")) == []


@pytest.mark.parametrize(
    "name",
    ["whole_model", "whole_model_dynamo", "transformer_block", "control_flow", "low_precision"],
)
def test_nothing_is_found_in_a_sound_model(name):
    assert check(load(FIXTURES / f"{name}.onnx")).findings == ()


def test_many_findings_are_counted(tmp_path):
    nodes = [helper.make_node("Relu", ["x"], [f"h{i}"]) for i in range(20)]
    nodes.append(helper.make_node("Relu", ["x"], ["y"]))
    vector = helper.make_tensor_type_proto(1, [4])
    ends = ([helper.make_value_info(name, vector)] for name in ("x", "y"))
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ends)), tmp_path / "m.onnx")

    done = CliRunner().invoke(app, ["check", str(tmp_path / "m.onnx")])

    assert done.exit_code == 0
    assert "unreachable: no output depends on Relu @7\n" in done.output
    assert "unreachable: 12 more (all with --json)\n" in done.output


REFUSED = """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
g (float[2] x, bool c, string[2] s) => (float[2] y, string[2] z) {
    h = local.twice(x)
    y = If(c) <
        then_branch = yes () => (float[2] o) {
            d = Cast<to = 11>(h) e = BitShift<direction = "LEFT">(d, d) o = Cast<to = 1>(e)
        },
        else_branch = no () => (float[2] o) { o = Neg(x) }
    >
    [relu] z = Relu(s)
    k = NotThere(x)
}
<domain: "local", opset_import: ["" : 21]> twice (a) => (b) { k = Exp(a) b = Add(k, a) }"""


def test_check_with_a_run_names_each_node_that_the_runtime_refuses():
    result = osl.check(onnx.parser.parse_model(REFUSED), run=True)

    refused = {f.places: f.message for f in result.findings if f.kind == "refused"}
    assert not result.valid
    assert [*refused] == [("@1/then_branch/@1",), ("@2",), ("@3",)]
    assert "BitShift @1/then_branch/@1: " in refused["@1/then_branch/@1",]
    assert "Relu 'relu' (@2): " in refused["@2",]


def test_check_with_a_run_says_where_a_run_ends(model_of):
    fails = model_of("""g (float[2] x) => (float[n] y) {
        s = Constant<value_ints = [3]>() y = Reshape(x, s)
    }""")

    result = osl.check(fails, run=True)

    assert not result.valid
    assert osl.check(fails).valid
    assert result.findings[0].places == ("@1",)
    assert osl.check(model_of("g (float[2] x) => (float[2] y) { y = Neg(x) }"), run=True).valid
