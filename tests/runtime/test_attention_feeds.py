"""Made feeds of a language model make sense: it runs, at the sizes that it has and that are asked for."""

import json

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit.packages import HEAD, KV_HEADS, VOCABULARY, checkpoint, decoder, package, quantized


def made(model: osl.Model, **dims: int) -> dict[str, np.ndarray]:
    feeds, _ = osl.make_feeds(osl.GraphIndex.of(model), osl.Recipe(dims=dims))
    return feeds


@pytest.mark.parametrize("kind", [package, quantized], ids=["float", "int4"])
@pytest.mark.parametrize(
    "dims",
    [
        {},
        {"sequence_length": 5},
        {"sequence_length": 4, "past_sequence_length": 0},
        {"batch_size": 2, "past_sequence_length": 7},
    ],
    ids=str,
)
def test_a_package_runs_on_made_feeds(kind, dims):
    past, tokens = dims.get("past_sequence_length", 1), dims.get("sequence_length", 1)

    found = osl.run(kind(), dim=dims)

    batch = dims.get("batch_size", 1)
    assert found["logits"].shape == (batch, tokens, VOCABULARY)
    assert found["present.0.key"].shape == (batch, KV_HEADS, past + tokens, HEAD)
    assert np.isfinite(found["logits"]).all()


def test_tokens_are_of_the_vocabulary_and_the_mask_is_ones():
    feeds = made(package(), sequence_length=200, past_sequence_length=3)

    assert 2 < feeds["input_ids"].max() < VOCABULARY
    assert feeds["input_ids"].min() >= 0
    assert feeds["attention_mask"].shape == (1, 203)
    assert (feeds["attention_mask"] == 1).all()


def test_positions_follow_the_cache():
    model = package()
    positions = model.proto.graph.input.add()
    positions.CopyFrom(model.proto.graph.input[0])
    positions.name = "position_ids"

    feeds = made(model, batch_size=2, sequence_length=3, past_sequence_length=5)

    assert feeds["position_ids"].tolist() == [[5, 6, 7], [5, 6, 7]]


def test_a_cache_that_slides_is_as_long_as_its_window():
    model = package()
    node = next(n for n in model.proto.graph.node if n.op_type == "GroupQueryAttention")
    next(a for a in node.attribute if a.name == "local_window_size").i = 6
    node.attribute.add(name="sliding_window_cache", type=2, i=1)

    assert made(model)["past_key_values.0.key"].shape == (1, KV_HEADS, 6, HEAD)


def test_a_cache_that_is_concatenated_has_the_sizes_of_what_comes_after_it():
    model = osl.build(
        '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>\n'
        "g (float[b, 2, past, d] cache, float[1, 2, 3, 8] new) => (float[b, 2, t, d] y) {\n"
        "    all = Concat<axis = 2>(cache, new)\n    y = com.microsoft.FastGelu(all)\n}"
    )

    assert made(model)["cache"].shape == (1, 2, 1, 8)


@pytest.mark.parametrize("text", ["", "{", '{"model": {"decoder": [1]}}'])
def test_sizes_that_the_graph_does_not_say_are_those_of_the_configuration_beside_it(text, tmp_path):
    model = package()
    for node in model.proto.graph.node:
        if "qkv_proj" in node.input:  # what this operator makes has no type before it runs
            node.op_type, node.domain = "FusedMatMul", "com.microsoft"
    osl.save(model, tmp_path / "model.onnx")
    (tmp_path / "genai_config.json").write_text(text)

    with pytest.raises(osl.SurgeonError, match="past_key"):
        osl.run(tmp_path / "model.onnx")

    decoder = {"num_key_value_heads": KV_HEADS, "head_size": HEAD}
    (tmp_path / "genai_config.json").write_text(json.dumps({"model": {"decoder": decoder}}))
    found = osl.run(tmp_path / "model.onnx", dim={"sequence_length": 3})
    assert found["present.0.key"].shape == (1, KV_HEADS, 4, HEAD)


def test_the_mask_of_an_export_covers_its_cache_and_what_is_new():
    model = osl.build(
        """g (int64[1, s] input_ids, int64[1, t] attention_mask, float[1, 2, p, 4] cache) => (float[1, 2, n, 4] y) {
        depth = Constant <value_ints = [4]> () ends = Constant <value_floats = [0.0, 1.0]> ()
        hot = OneHot(input_ids, depth, ends) two = Constant <value_ints = [1, 2, 1, 1]> ()
        flat = Constant <value_ints = [1, 1, -1, 4]> () rows = Reshape(hot, flat) new = Tile(rows, two)
        all = Concat<axis = 2>(cache, new) size = Constant <value_ints = [1, 1, -1, 1]> ()
        given = Cast<to = 1>(attention_mask) mask = Reshape(given, size) y = Mul(all, mask) }"""
    )

    assert osl.run(model, dim={"s": 3, "p": 5})["y"].shape == (1, 2, 8, 4)


def test_an_edit_of_a_package_is_proved():
    model = osl.rename(package(), {"logits": "scores"}, verify=True)

    assert not [note for note in model.notes if "not proved" in note]
    # the mask covers the cache and what is new
    assert "made attention_mask: int64 [1, 7] ones, seeds 0, 1" in model.ran
    assert "made past_key_values.0.key: float [1, 2, 4, 16] normal, seeds 0, 1" in model.ran


def test_what_the_caches_of_all_layers_are_fed_is_one_note():
    found = osl.compare_sets(decoder(checkpoint(layers=3)), decoder(checkpoint(layers=3)))

    assert [note for note in found.told if "past" in note] == [
        "made past_key_values.0.key and 5 more: float [1, 2, 1, 16] normal, seed 0"
    ]


def test_a_cache_that_a_cast_reads_first_has_the_sizes_of_its_attention():
    """A float16 model whose inputs stay float32 casts its caches."""
    half = osl.convert(package(), to="float16").model

    found = osl.run(half, dim={"sequence_length": 3})

    assert found["present.0.key"].shape == (1, KV_HEADS, 4, HEAD)


def test_a_table_without_rows_tells_no_vocabulary():
    model = package()
    index = osl.GraphIndex.of(model)
    (reader, *_) = index.consumers["input_ids"]
    table = index.initializers[index.nodes[reader].input[0]]
    table.ClearField("dims")

    assert made(model)["input_ids"].shape == (1, 1)
