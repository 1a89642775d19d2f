"""A package against the configuration of its source, field by field."""

import json

import numpy as np
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.passes.build import parse_text

CONFIG = {
    "model_type": "mistral",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "vocab_size": 48,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_theta": 100.0, "rope_type": "default"},
}


@pytest.fixture
def checked(tmp_path):
    """Ask for the fields that agree, that differ and that are not known."""

    def check(model=None, **config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(CONFIG | config))
        result = osl.check(model or decoder(), config=path)
        kinds = {True: [], False: [], None: []}
        for field in result.config:
            kinds[field.agrees].append(field.field)
        assert result.match is (not kinds[False])
        return kinds

    return check


def decoder(operator="", **attributes):
    model = packages.decoder(packages.checkpoint())
    for node in model.proto.graph.node:
        if node.op_type == operator:
            kept = [a for a in node.attribute if a.name not in attributes]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.attribute.extend(helper.make_attribute(n, v) for n, v in attributes.items())
    return model


def test_every_field_of_a_healthy_package_agrees(checked):
    found = checked()

    assert found[False] == found[None] == []
    assert len(found[True]) == 13


@pytest.mark.parametrize(
    ("field", "config"),
    [
        ("sliding_window", {"sliding_window": 4}),
        ("sliding_window", {"sliding_window": 4, "layer_types": ["sliding_attention", "full"]}),
        ("attn_logit_softcapping", {"attn_logit_softcapping": 50.0}),
        ("final_logit_softcapping", {"final_logit_softcapping": 30.0}),
        ("rms_norm_eps", {"rms_norm_eps": 1e-5}),
        ("num_hidden_layers", {"num_hidden_layers": 3}),
        ("num_attention_heads", {"num_attention_heads": 8}),
        ("num_key_value_heads", {"num_key_value_heads": 4}),
        ("attention scale", {"query_pre_attn_scalar": 64}),
        ("rotary frequencies", {"rope_parameters": {"rope_theta": 1e4}}),
        ("rotary frequencies", {"rope_theta": 100.0, "rope_parameters": None,
            "rope_scaling": {"type": "linear", "factor": 2}}),
        ("rotary frequencies", {"rope_parameters": {"rope_theta": 100.0, "rope_type": "llama3", "factor": 8.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}),
        ("embedding scale", {"embedding_multiplier": 12.0}),
        ("vocab_size", {"vocab_size": 50}),
        ("tie_word_embeddings", {"tie_word_embeddings": True}),
    ],
)  # fmt: skip
def test_a_field_that_the_graph_has_otherwise_differs(field, config, checked):
    found = checked(**config)

    if field == "embedding scale":  # a table may hold the factor
        assert found[None] == [field]
    else:
        assert found[False] == [field]


@pytest.mark.parametrize(
    ("field", "model"),
    [
        ("sliding_window", lambda: decoder("GroupQueryAttention", local_window_size=4)),
        ("attn_logit_softcapping", lambda: decoder("GroupQueryAttention", softcap=5.0)),
        ("attention scale", lambda: decoder("GroupQueryAttention", scale=1.0)),
        ("rms_norm_eps", lambda: decoder("SkipSimplifiedLayerNormalization", epsilon=1e-5)),
    ],
)
def test_an_attribute_that_the_configuration_has_otherwise_differs(field, model, checked):
    assert checked(model())[False] == [field]


def test_gemma_s_factor_of_the_embedding_and_its_final_cap_are_read_from_the_nodes(checked):
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (int64[b, s] input_ids) => (float[b, s, 8] logits) <float scale = {2.0}, float cap = {30.0}> {
        rows = Gather(table, input_ids) scaled = Mul(rows, scale) head = MatMul(scaled, weight)
        small = Div(head, cap) bent = Tanh(small) logits = Mul(bent, cap) }"""
    model = parse_text(text)
    table = np.arange(32, dtype=np.float32).reshape(8, 4)
    for name, array in (("table", table), ("weight", table.T.copy())):
        model.proto.graph.initializer.append(numpy_helper.from_array(array, name))

    found = checked(model, model_type="gemma2", hidden_size=4, vocab_size=8, tie_word_embeddings=True,
                    final_logit_softcapping=30.0)  # fmt: skip

    known = {"embedding scale", "final_logit_softcapping", "hidden_size", "vocab_size"}
    assert set(found[True]) == known | {"tie_word_embeddings"}
    assert found[False] == []
    assert "sliding_window" in found[None]  # no node attends
    assert checked(model, hidden_size=4, vocab_size=8)[False] == [
        "final_logit_softcapping",
        "embedding scale",
    ]


def test_the_command_says_what_differs_and_exits_with_1(tmp_path):
    osl.save(decoder(), tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"sliding_window": 4}))

    result = CliRunner().invoke(
        app, ["check", str(tmp_path / "model.onnx"), "--config", str(tmp_path)]
    )

    assert result.exit_code == 1
    assert (
        "differs: sliding_window 4, local_window_size of 2 GroupQueryAttention is -1"
        in result.stdout
    )


@pytest.mark.parametrize(
    "config",
    [
        {"head_dim": 1e300},
        {"head_dim": -4, "query_pre_attn_scalar": -1},
        {"rope_parameters": {"rope_theta": -1.0}},
        {"vocab_size": "64", "num_hidden_layers": [2], "rope_parameters": [1]},
        {"num_attention_heads": 0, "head_dim": 0},
        {"rms_norm_eps": float("nan"), "head_dim": float("inf")},
    ],
)
def test_a_configuration_that_anybody_wrote_is_no_error_of_ours(config, checked):
    found = checked(**config)

    assert found[True]
    assert "vocab_size" not in found[False]


@pytest.mark.parametrize("lacks", ["outputs", "inputs"])
def test_a_model_that_lacks_what_is_read_is_no_error_of_ours(lacks, tmp_path):
    model = decoder()
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"tie_word_embeddings": True}))
    if lacks == "outputs":
        del model.proto.graph.output[:]
    for node in model.proto.graph.node if lacks != "outputs" else ():
        del node.input[9 if node.op_type == "Gather" else 1 :]

    result = osl.check(osl.Model(model.proto), config=tmp_path / "config.json")

    assert any("lacks" in field.where for field in result.config)


def test_nothing_that_can_be_compared_is_no_agreement(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "list.json").write_text("[1]")
    model = parse_text(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )

    (tmp_path / "unrelated.json").write_text('{"hidden_size": 64}')

    for name in ("config.json", "unrelated.json"):
        with pytest.raises(UsageError, match="nothing of"):
            osl.check(model, config=tmp_path / name)
    with pytest.raises(ReferenceSetError, match="no JSON object"):
        osl.check(model, config=tmp_path / "list.json")
