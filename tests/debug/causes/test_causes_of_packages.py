"""Mistakes in the attributes of onnxruntime's operators, as packages of language models have them."""

import onnx
import pytest
from onnx import helper, numpy_helper

import onnxsurgeon_lite as osl
from kit import packages
from kit.causes import found, numbers
from kit.versions import STURDY_ATTENTION

pytestmark = STURDY_ATTENTION

DIMS = {"past_sequence_length": 5, "sequence_length": 4, "total_sequence_length": 9}


def decoder(**attributes):
    """A package, with other attributes of the attention of its second layer."""
    model = packages.decoder(packages.checkpoint())
    node = [n for n in model.proto.graph.node if n.op_type == "GroupQueryAttention"][1]
    set_attributes(node, attributes)
    return model


def set_attributes(node, attributes):
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(n, v) for n, v in attributes.items())


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"softcap": 2.0}, {"softcap": 0.7}),
        ({"scale": 0.5}, {"scale": 0.31}),
        ({"local_window_size": -1}, {"local_window_size": 3}),
        ({"rotary_interleaved": 1}, {"rotary_interleaved": 0}),
        ({"do_rotary": 0}, {"do_rotary": 1}),
        ({"scale": 0.5, "softcap": 1.0}, {"scale": 0.31, "softcap": 3.0}),
    ],
)
def test_an_attribute_that_the_other_model_has_otherwise_is_the_cause(wrong, right):
    result = osl.bisect(decoder(**wrong), against=decoder(**right), dim=DIMS)

    (culprit,) = result.culprits
    sentence = culprit.causes[0].sentence
    for name, value in right.items():
        assert name in sentence
        assert f"{value:g}" in sentence.partition("; with")[2]


def test_the_same_attribute_of_every_layer_is_one_sentence():
    right, wrong = (packages.decoder(packages.checkpoint()) for _ in range(2))
    for node in wrong.proto.graph.node:
        if node.op_type == "SkipSimplifiedLayerNormalization":
            set_attributes(node, {"epsilon": 0.07})

    result = osl.bisect(wrong, against=right, dim=DIMS)

    assert "epsilon of all 4 SkipSimplifiedLayerNormalization nodes is 0.07; with 1e-06" in str(
        result
    )


def test_a_window_that_is_not_full_is_not_fed():
    wrong, right = (
        decoder(sliding_window_cache=1, local_window_size=4, softcap=cap) for cap in (2.0, 0.0)
    )
    for model in (wrong, right):
        for info in (*model.proto.graph.input, *model.proto.graph.output):
            if ".1." in info.name:
                info.type.tensor_type.shape.dim[2].dim_param = f"sliding_{info.name[:4]}"

    result = osl.bisect(wrong, against=right)

    assert [c.findings[0].verdict for c in result.culprits] == ["wrong node"]
    assert result.culprits[0].causes[0].sentence.startswith("softcap of ")


def test_the_epsilon_of_norms_with_and_without_a_residual_is_one_sentence():
    """No module returns a sum of residuals, so what a norm of sums should read is not known."""
    right, wrong = (packages.decoder(packages.checkpoint()) for _ in range(2))
    for node in wrong.proto.graph.node:
        if node.op_type.endswith("SimplifiedLayerNormalization"):
            set_attributes(node, {"epsilon": 0.1})
    feeds, _ = osl.make_feeds(osl.GraphIndex.of(right), osl.Recipe(dims=DIMS))
    layer = ("attended", "gate", "up", "product", "down")
    names = [f"{name}_{n}" for n in (0, 1) for name in layer]
    known = osl.run(right, feeds, fetch=["residual_0", "normed_0", *names, "normed_2", "logits"])

    found = osl.bisect(wrong, known, feeds=feeds)

    sentences = {culprit.causes[0].sentence for culprit in found.culprits}
    assert sentences == {
        "epsilon of all 5 SimplifiedLayerNormalization and SkipSimplifiedLayerNormalization nodes is 0.1; with 1e-06"
        " the node agrees (max abs 0), and so do all values"
    }


def test_a_normalization_without_its_mean_is_another_operator():
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[2,3,16] x, float[2,3,16] r) => (float[2,3,16] y) {
        n = NORM <axis = -1, epsilon = 0.00001> (x, w)
        y = com.microsoft.SkipNORM <epsilon = 0.00001> (n, r, w)
    }"""
    wrong, right = (
        onnx.parser.parse_model(text.replace("NORM", norm))
        for norm in ("SimplifiedLayerNormalization", "LayerNormalization")
    )
    for each in (wrong, right):
        each.graph.initializer.append(numpy_helper.from_array(numbers(16), "w"))

    result = found(wrong, right, x=numbers(2, 3, 16, seed=1), r=numbers(2, 3, 16, seed=2))

    causes = [culprit.causes[0].sentence for culprit in result.culprits]
    assert "SimplifiedLayerNormalization (@0) should be LayerNormalization" in causes[0]
    assert "SkipSimplifiedLayerNormalization (@1) should be SkipLayerNormalization" in causes[1]
