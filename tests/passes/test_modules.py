"""Modules as units: cut out, exposed, and outlined once for all that are equal."""

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import CutError, UnknownNameError
from onnxsurgeon_lite.passes.build import parse_text

LAYER = """
    [mN] m_N = MatMul(IN, wN)
    [sN] s_N = Add(m_N, mask)
    [rN] OUT = Relu(s_N)"""
PREFIX = "pkg.torch.onnx."


def layers(third: str = "Relu") -> osl.Model:
    """Three layers of a class in a row, each with a weight of its own; the last can have another operator."""
    values = ["x", "h1", "h2", "y"]
    body = "".join(
        LAYER.replace("IN", values[n]).replace("OUT", values[n + 1]).replace("N", str(n))
        for n in range(3)
    )
    weights = ", ".join(f"float[2,2] w{n} = {{1, {n}, 2, 3}}" for n in range(3))
    text = (
        f"g (float[2,2] x, float[2] raw) => (float[2,2] y) <{weights}> {{ mask = Neg(raw) {body} }}"
    )
    model = parse_text(text.replace("y = Relu", f"y = {third}"))
    for node in model.proto.graph.node[1:]:
        path = f"layer.{node.name[-1]}"
        node.metadata_props.add(key=f"{PREFIX}name_scopes", value=f"['', '{path}', '{node.name}']")
        node.metadata_props.add(
            key=f"{PREFIX}class_hierarchy", value="['net.Net', 'net.Layer', 'aten']"
        )
    return osl.rename(model, {f"w{n}": f"layer.{n}.w" for n in range(3)}).model


def names(values) -> list[str]:
    return [value.name for value in values]


def test_a_module_is_cut_out_by_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    osl.save(layers(), "m.onnx")

    cut = CliRunner().invoke(app, ["extract", "m.onnx", "scope:layer.1", "-o", "part.onnx"])
    none = CliRunner().invoke(app, ["extract", "m.onnx", "scope:layer.7", "-o", "none.onnx"])

    assert cut.exit_code == 0
    assert names(osl.load("part.onnx").proto.graph.output) == ["h2"]
    assert none.exit_code == 2
    assert not (tmp_path / "none.onnx").exists()


def test_a_module_is_cut_out_between_what_it_reads_and_what_it_makes():
    graph = osl.extract(layers(), part="scope:layer.1").model.proto.graph

    assert (names(graph.input), names(graph.output)) == (["h1", "mask"], ["h2"])
    assert names(graph.node) == ["m1", "s1", "r1"]
    assert names(graph.initializer) == ["layer.1.w"]


def test_values_that_are_named_take_the_place_of_the_modules_own():
    graph = osl.extract(layers(), inputs="m_1,mask", part="scope:layer.1").model.proto.graph

    assert (names(graph.input), names(graph.output)) == (["m_1", "mask"], ["h2"])


def test_a_constant_outside_comes_along_and_a_part_that_nobody_reads_is_refused():
    model = parse_text(
        "g (float[2] x) => (float[2] y) { c = Constant <value_float = 2.0> () h = Add(x, c) y = Neg(h) d = Abs(h) }"
    )

    part = osl.extract(model, part="op:Add").model.proto.graph

    assert (names(part.input), [node.op_type for node in part.node]) == (["x"], ["Constant", "Add"])
    with pytest.raises(CutError, match="nothing reads what these nodes make"):
        osl.extract(model, part="op:Abs")


def test_expose_of_a_module_is_its_inputs_and_outputs_and_all_of_it_when_asked():
    model = layers()

    def exposed(place: str, every: bool = False) -> list[str]:
        return names(osl.expose(model, place, every).model.proto.graph.output)[1:]

    assert exposed("scope:layer.1") == ["h1", "mask", "h2"]
    assert exposed("class:Layer") == ["mask", "h1", "h2"]
    assert exposed("scope:layer.1", every=True) == ["m_1", "s_1", "h2"]


def test_equal_modules_of_a_class_become_one_function_whose_inputs_their_weights_are(runtime):
    model = layers()

    result = osl.outline(model, "class:Layer")

    (function,) = result.model.proto.functions
    graph = result.model.proto.graph
    assert function.name == "Layer"
    assert list(function.input) == ["x", "w", "mask"]
    assert [node.op_type for node in graph.node] == ["Neg", "Layer", "Layer", "Layer"]
    assert [list(node.input) for node in graph.node[1:3]] == [
        ["x", "layer.0.w", "mask"],
        ["h1", "layer.1.w", "mask"],
    ]
    assert names(graph.node)[1:] == ["layer.0", "layer.1", "layer.2"]
    feeds = {"x": np.array([[1, -2], [3, 4]], np.float32), "raw": np.array([5, -6], np.float32)}
    results = []
    for each in (model, result.model, osl.inline(result.model).model):
        runtime.open(each)
        for name, value in feeds.items():
            runtime.put(name, value)
        results.append(runtime.run(list(feeds), ["y"]).values["y"])
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])


def test_inline_gives_each_layer_its_names_docs_and_metadata_back():
    model = osl.infer(layers()).model
    graph = model.proto.graph
    for number, message in enumerate((*graph.node, *graph.value_info)):
        message.doc_string = f"doc {number}"
        message.metadata_props.add(key="line", value=f"net.py:{number}")

    back = osl.inline(osl.outline(model, "class:Layer").model).model

    assert list(back.proto.graph.node) == list(graph.node)
    declared = {info.name: info for info in graph.value_info}
    assert {info.name: info for info in back.proto.graph.value_info} == declared
    assert osl.diff(model, back).same


def test_a_function_that_was_edited_is_inlined_as_it_is_now(runtime):
    outlined = osl.outline(layers(), "class:Layer").model
    (function,) = outlined.proto.functions
    function.node[-1].op_type = "Abs"

    flat = osl.inline(outlined).model.proto.graph

    assert [node.op_type for node in flat.node].count("Abs") == 3
    assert len({node.name for node in flat.node}) == len(flat.node)


def test_a_module_that_differs_gets_a_function_of_its_own():
    result = osl.outline(layers(third="Abs"), "class:Layer")

    assert names(result.model.proto.functions) == ["Layer", "Layer_1"]
    assert [node.op_type for node in result.model.proto.graph.node][1:] == [
        "Layer",
        "Layer",
        "Layer_1",
    ]
    assert any("edit simplify" in note for note in result.notes)
    with pytest.raises(UnknownNameError, match="class 'Laier'"):
        osl.outline(layers(), "class:Laier")


def test_a_glob_of_paths_makes_one_function_where_no_classes_are_known():
    model = layers()
    for node in model.proto.graph.node:
        del node.metadata_props[1:]

    result = osl.outline(model, "layer.*")

    assert names(result.model.proto.functions) == ["layer"]
    assert [node.op_type for node in result.model.proto.graph.node] == ["Neg", *["layer"] * 3]
    with pytest.raises(UnknownNameError, match="class 'Layer'") as refused:
        osl.outline(model, "class:Layer")
    assert "encoder.layer.*" in refused.value.hint


def test_a_function_has_a_name_and_nodes_of_a_module_whatever_the_pattern():
    model = osl.build("g (float[4] x) => (float[4] y) { h = Neg(x) y = Abs(h) }")

    (function,) = osl.outline(layers(), "*").model.proto.functions

    assert function.name == "module"
    for pattern in ("", "*"):
        with pytest.raises(UnknownNameError):
            osl.outline(model, pattern)


def test_a_node_that_an_exporter_computes_once_for_all_modules_stays_outside():
    model = layers()
    first, second = model.proto.graph.node[:2]
    # the mask is the first layer's, and all read it
    first.metadata_props.extend(second.metadata_props)

    result = osl.outline(model, "class:Layer")

    assert [node.op_type for node in result.model.proto.graph.node] == ["Neg", *["Layer"] * 3]
    assert result.notes[0] == "a node that several of the modules read stays outside: Neg @0"


@pytest.mark.parametrize("kept", ["zz", "0a0100", ""])
def test_what_a_call_keeps_is_read_only_where_it_fits(kept):
    outlined = osl.outline(layers(), "class:Layer").model
    plain = osl.outline(layers(), "class:Layer").model
    for call in outlined.proto.graph.node[2:]:
        (entry,) = call.metadata_props
        entry.value = kept
    for call in plain.proto.graph.node[2:]:
        del call.metadata_props[:]

    flat = osl.inline(outlined).model

    assert flat.proto.graph == osl.inline(plain).model.proto.graph


def test_names_that_a_call_keeps_never_change_what_nodes_compute():
    outlined = osl.outline(layers(), "class:Layer").model
    call = outlined.proto.graph.node[2]
    kept = onnx.GraphProto.FromString(bytes.fromhex(call.metadata_props[0].value))
    for node in kept.node:
        node.input.append("raw")
        node.attribute.add(name="axis", i=1, type=onnx.AttributeProto.INT)
    for value in kept.value_info:
        value.name = "x"
    call.metadata_props[0].value = kept.SerializeToString().hex()

    flat = osl.inline(outlined).model

    assert [list(node.attribute) for node in flat.proto.graph.node] == [[]] * 10
    assert osl.diff(layers(), flat).same


@pytest.mark.parametrize("edit", [
    lambda model: osl.extract(model, "layer.1"),
    lambda model: osl.extract(model, outputs="layer.1"),
    lambda model: osl.expose(model, "layer.1"),
    lambda model: osl.remove(model, "layer.1"),
])  # fmt: skip
def test_a_path_without_its_prefix_is_told_to_be_a_module(edit):
    with pytest.raises(UnknownNameError) as refused:
        edit(layers())

    assert refused.value.hint.startswith("it is a module: give scope:layer.1; ")


def test_long_metadata_of_a_node_is_shown_in_part():
    model = layers()
    model.proto.graph.node[0].metadata_props.add(key="long", value="ab" * 50_000)

    text = str(osl.inspect(model, node="@0"))

    assert "(100,000 characters)" in text
    assert len(text) < 10_000
