"""Print and build: the model comes back, and edits of the text are all that changes."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.rich import rich
from onnxsurgeon_lite.errors import BuildError
from onnxsurgeon_lite.matching.diff import diff
from onnxsurgeon_lite.model import walk


def payloads(model: osl.Model) -> list[bytes]:
    return [model.raw(tensor) for tensor in walk.tensors(model.proto)]


@pytest.mark.parametrize(
    "name",
    [
        "whole_model",
        "whole_model_dynamo",
        "external",
        "control_flow",
        "low_precision",
        "linear_func",
    ],
)
def test_a_printed_model_is_built_again(name, tmp_path):
    model = osl.load(FIXTURES / f"{name}.onnx")

    text = osl.text(model, tmp_path / "w.safetensors")
    built = osl.build(text, weights=tmp_path / "w.safetensors")

    assert diff(model, built).differences == []
    assert payloads(model) == payloads(built)


def test_what_text_cannot_say_comes_back_too_and_edits_are_all_that_changes(tmp_path):
    model = rich()
    text = osl.text(model, tmp_path / "w.safetensors")

    same = osl.build(text, weights=tmp_path / "w.safetensors")
    edited = osl.build(text.replace("= 0.5>", "= 0.25>"), weights=tmp_path / "w.safetensors")

    assert same.materialize() == model.materialize()
    (changed,) = diff(model, edited).differences
    assert "alpha" in str(changed)


DOCUMENTED = """<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
g (float[n,2] x, bool c) => (float[n,2] y) <float[2] w = {1, 2}, float[n,2] h> {
    [first] h = Relu(x)
    a = Add(h, w)
    b = own.f(a)
    y = If (c) <then_branch = t () => (float[n,2] p) { p = Exp(b) },
                else_branch = e () => (float[n,2] q) { k = Neg(b) q = Abs(k) }> }
<domain: "own", opset_import: ["" : 21]> f (u) => (v) { m = Neg(u) v = Abs(m) }"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("Relu", "Sigmoid"), (r"\bh\b", "r"), (r"\ba\b", "z"), ("Exp", "Sin"), ("k = Neg", "k = Cos")]
    + [
        ("m = Neg", "m = Tan"),
        (r"float\[n,2\] x", "float[n,4] x"),
        (r"\bw\b", "v"),
        (r"\{1,2\}", "{3,4}"),
    ],
)
def test_what_is_edited_in_the_text_keeps_its_documentation(before, after, tmp_path):
    model = osl.build(DOCUMENTED)
    for number, message in enumerate(described(model)):
        message.doc_string = f"line\n{number}"
        message.metadata_props.add(key="number", value=str(number))
    model.proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "BATCH"
    text = osl.text(model, tmp_path / "w.safetensors")
    edited = re.sub(before, after, text)
    assert edited != text

    built = osl.build(edited, weights=tmp_path / "w.safetensors")

    assert [m.doc_string for m in described(built)] == [m.doc_string for m in described(model)]
    assert [len(m.metadata_props) for m in described(built)] == [1] * len(described(model))
    assert built.proto.graph.input[0].type.tensor_type.shape.dim[0].denotation == "BATCH"


def described(model: osl.Model) -> list[NodeProto | ValueInfoProto | TensorProto]:
    """Every message of a model that has documentation which text cannot hold."""
    graphs = list(walk.graphs(model.proto))
    nodes = [*walk.nodes(graphs), *model.proto.functions[0].node]
    infos = [info for graph in graphs for info in (*graph.input, *graph.output, *graph.value_info)]
    return [*nodes, *infos, *model.proto.graph.initializer]


def test_a_header_of_several_lines_comes_back_beside_an_edit(tmp_path):
    model = osl.build("g (float[2] x) => (float[2] y) { h = Relu(x) y = Neg(h) }")
    proto = model.proto
    for field in ("doc_string", "producer_name", "producer_version", "domain"):
        setattr(proto, field, f"{field}:\na line")
    for key, value in (("classes", '{\n  "0": "cat"\n}'), ("plain", "yes")):
        proto.metadata_props.add(key=key, value=value)

    text = osl.text(model, tmp_path / "w.safetensors")
    same = osl.build(text, weights=tmp_path / "w.safetensors")
    edited = osl.build(text.replace("Relu", "Abs"), weights=tmp_path / "w.safetensors").proto
    cleared = text.replace(',\n   metadata_props: ["plain": "yes"]', "")

    assert same.proto == proto
    edited.graph.node[0].op_type = "Relu"
    assert sorted(edited.metadata_props, key=str) == sorted(proto.metadata_props, key=str)
    del edited.metadata_props[:], proto.metadata_props[:]
    assert edited == proto
    built = osl.build(cleared.replace("Relu", "Abs"), weights=tmp_path / "w.safetensors").proto
    assert cleared != text
    assert [entry.key for entry in built.metadata_props] == ["classes"]


def test_numbers_come_back_in_the_field_that_held_them(tmp_path):
    """Tools that quantize write scales and zero points as numbers, others as raw data."""
    kinds = ("FLOAT", "DOUBLE", "INT8", "UINT16", "INT32", "INT64", "UINT64", "BOOL", "FLOAT16", "BFLOAT16", "INT4",
             "FLOAT8E4M3FN", "COMPLEX64")  # fmt: skip
    model = osl.build("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    for kind in kinds:
        numbers = [number % 2 for number in range(200)]
        tensor = helper.make_tensor(kind, TensorProto.DataType.Value(kind), [200], numbers)
        assert not tensor.raw_data
        model.proto.graph.initializer.append(tensor)

    text = osl.text(model, tmp_path / "w.safetensors")
    built = osl.build(text, weights=tmp_path / "w.safetensors")

    assert built.proto == model.proto


def attributes() -> Iterator[AttributeProto]:
    """What ONNX's printer drops, or writes so that its parser refuses it."""
    yield helper.make_attribute("value", numpy_helper.from_array(np.ones(200, np.float32)))
    yield helper.make_attribute("value", numpy_helper.from_array(np.ones(2, np.float16)))
    values = helper.make_tensor("", TensorProto.FLOAT, [1], [5.0])
    at = helper.make_tensor("", TensorProto.INT64, [1], [3])
    yield helper.make_attribute("sparse_value", helper.make_sparse_tensor(values, at, [4]))
    yield helper.make_attribute("text", "two\nlines")
    yield helper.make_attribute("text", b"\xff")
    yield AttributeProto(name="texts", type=AttributeProto.STRINGS)


@pytest.mark.parametrize("attribute", [*attributes()], ids=lambda a: f"{a.name} {a.type}")
def test_an_attribute_that_text_cannot_hold_comes_back(attribute, tmp_path):
    model = osl.load(FIXTURES / "linear_func.onnx").copy()
    model.proto.opset_import.add(domain="own", version=1)
    node = model.proto.graph.node.add(op_type="Own", domain="own", output=["own"])
    node.attribute.append(attribute)

    text = osl.text(model, tmp_path / "w.safetensors")
    built = osl.build(text, weights=tmp_path / "w.safetensors")

    assert built.materialize() == model.materialize()
    if "text cannot hold" in text:
        other = osl.build(text.replace("own.Own", "own.Other"), weights=tmp_path / "w.safetensors")
        assert other.proto.graph.node[-1].attribute[0] == attribute
        with pytest.raises(BuildError, match="'own' has an attribute that text cannot hold"):
            osl.build(osl.text(model))


def test_the_defaults_of_a_function_are_printed():
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]> g (float[2] x) => (float[2] y) { y = own.f (x) }
    <domain: "own", opset_import: ["" : 18]> f <a, b: float = 0.5, c: ints = [1, 2], d: string = "q>"> (x) => (y) {
        y = LeakyRelu <alpha: float = @b> (x) }"""

    printed = osl.text(osl.build(text))

    assert 'f <a,b: float = 0.5, c: ints = [1, 2], d: string = "q>">(x) => (y)' in printed
    assert osl.build(printed).proto == osl.build(text).proto


@pytest.mark.parametrize("kept", [True, False])
def test_a_text_without_its_weights_says_how_to_keep_them(kept, tmp_path):
    text = osl.text(FIXTURES / "whole_model.onnx", tmp_path / "w.safetensors" if kept else None)

    with pytest.raises(BuildError, match="elides the numbers of 10 tensors") as refused:
        osl.build(text)

    assert "--weights" in refused.value.hint


def test_a_file_of_another_text_is_refused(tmp_path):
    text = osl.text(FIXTURES / "whole_model.onnx", tmp_path / "w.safetensors")
    osl.save_tensors(tmp_path / "other.safetensors", {"x": np.ones(2, np.float32)})

    with pytest.raises(BuildError, match="has no tensor 'convs1"):
        osl.build(text, weights=tmp_path / "other.safetensors")


def test_names_in_attributes_that_text_takes_no_quotes_for_come_back(tmp_path):
    model = osl.build("""g (float[2] x, bool c) => (float[2] y) {
        k = Constant <value = float[2] {1, 2}> ()
        y = If (c) <then_branch = t () => (float[2] p) { p = Add(x, k) },
                    else_branch = e () => (float[2] q) { q = Abs(k) }> }""")
    constant, branch = model.proto.graph.node
    constant.attribute[0].t.name = "scope/const:0"
    branch.attribute[0].g.name = "2 of/a.branch"

    text = osl.text(model, tmp_path / "w.safetensors")
    same = osl.build(text, weights=tmp_path / "w.safetensors")
    edited = osl.build(text.replace("Abs (", "Neg ("), weights=tmp_path / "w.safetensors")

    assert same.proto == model.proto
    assert edited.proto.graph.node[0] == constant
