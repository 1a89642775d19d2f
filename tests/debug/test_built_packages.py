"""The everyday commands on packages of onnxruntime-genai's own builder: of each family and precision, all agree."""

import re

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from onnx import TensorProto, helper
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit.builder import PACKAGES
from kit.planted import FAULTS, HOW, TEXT, repaired
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.graph.index import GraphIndex

pytest.importorskip("onnxruntime_genai")

DIMS = {"sequence_length": 5, "past_sequence_length": 3}
CLOSE = {"fp16": 0.03, "int4": 0.03}  # of the largest logit; the rest is exact but for rounding
PARTS = ("key", "value")
every = pytest.mark.parametrize("name", PACKAGES)


def close(name):
    return CLOSE.get(PACKAGES[name][1], 1e-5)


def fed(model, **dims):
    return osl.make_feeds(GraphIndex.of(model), osl.Recipe(seed=1, dims=DIMS | dims))[0]


def held(made, right, share):
    """Assert that all outputs of two models are close, as a share of the largest number."""
    assert made.keys() == right.keys()
    for name, value in right.items():
        wide = value.astype(np.float64)
        np.testing.assert_allclose(
            made[name].astype(np.float64), wide, rtol=0, atol=share * np.abs(wide).max()
        )


def held_as_the_module(model, module, share=1e-4):
    """Assert that a package without a cache has the logits of a module, as a share of the largest."""
    empty = np.zeros((1, 2, 0, 16), np.float32)
    caches = {each.name: empty for each in model.proto.graph.input if each.name.startswith("past")}
    mask = np.ones((1, 7), np.int64)
    made = osl.run(model, {**TEXT, "attention_mask": mask, **caches})["logits"]
    with torch.no_grad():
        right = module(torch.from_numpy(TEXT["input_ids"])).logits.numpy()
    np.testing.assert_allclose(made, right, rtol=0, atol=share * np.abs(right).max())


def operators(model):
    return {node.op_type for node in model.proto.graph.node}


def attention(model):
    """The settings of each GroupQueryAttention, and what it reads beside queries: caches, lengths, tables."""
    kind = "GroupQueryAttention"
    return [
        (
            {a.name: round(helper.get_attribute_value(a), 6) for a in node.attribute},
            [*filter(None, node.input[3:])],
        )
        for node in model.proto.graph.node
        if node.op_type == kind
    ]


@every
def test_a_package_is_valid_and_agrees_with_its_own_configuration(name, built):
    found = osl.check(built / name / "package")

    assert found.valid
    assert found.match
    assert {"ai.onnx:SimplifiedLayerNormalization", "com.microsoft:GroupQueryAttention"} <= {
        *found.needs
    }
    assert ("com.microsoft:MatMulNBits" in found.needs) == name.endswith("int4")


@every
def test_a_package_agrees_with_the_configuration_of_its_source(name, built):
    found = osl.check(built / name / "package", config=built / name / "checkpoint")

    wrong = [field.field for field in found.config if field.agrees is False]
    # the builder writes -1 where the source has a window of 4
    assert wrong == (["sliding_window"] if name == "Mistral with a window" else [])
    assert len([field for field in found.config if field.agrees]) >= 12


@every
def test_a_package_runs_without_feeds(name, built):
    assert osl.run(built / name / "package")["logits"].shape == (1, 1, 99)

    found = osl.run(built / name / "package", dim=DIMS)

    # tokens are of the whole vocabulary, also where the head's weight is the table
    assert fed(osl.load(built / name / "package"), sequence_length=64)["input_ids"].max() > 50
    assert found["logits"].shape == (1, 5, 99)
    assert found["present.0.key"].shape == (1, 2, 8, 16)
    assert np.isfinite(found["logits"]).all()


def test_a_folder_shows_the_model_that_its_configuration_names(built):
    shown = CliRunner().invoke(app, ["inspect", str(built / "Llama fp32" / "package")])

    assert shown.exit_code == 0
    assert "onnxruntime-genai" in shown.stdout
    assert "past_key_values.1.value   float [batch_size, 2, past_sequence_length" in shown.stdout


@every
def test_inferred_types_are_those_of_a_run(name, built):
    model = osl.infer(built / name / "package").model
    index = GraphIndex.of(model)
    known = {info.name: info.type.tensor_type for info in model.proto.graph.value_info}

    found = osl.run(osl.expose(model, sorted(known)).model, dim=DIMS)

    assert set(index.producer) <= known.keys() | {each.name for each in model.proto.graph.output}
    for value, kind in known.items():
        sizes = [dim.dim_value or None for dim in kind.shape.dim]
        assert osl.tensors.dtypes.data_type_of_numpy(found[value].dtype) == kind.elem_type, value
        assert all(a in (None, b) for a, b in zip(sizes, found[value].shape, strict=True)), value


@every
def test_what_is_printed_is_built_again(name, built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(built / name / "package" / "model.onnx")

    printed = CliRunner().invoke(app, ["print", path, "--weights", "w.safetensors"])
    (tmp_path / "model.txt").write_text(printed.stdout)
    words = ["build", "model.txt", "--weights", "w.safetensors", "-o", "built.onnx"]

    assert CliRunner().invoke(app, words).exit_code == 0
    assert osl.diff(path, "built.onnx").same


@every
def test_a_package_decodes_the_same_in_standard_operators_and_fused_again(name, built):
    model = osl.load(built / name / "package")

    standard = osl.standardize(model)
    fused = osl.fuse(osl.simplify(standard.model).model)

    assert {node.domain for node in standard.model.proto.graph.node} <= {"", "com.microsoft"}
    kernels = {"GroupQueryAttention", "SkipSimplifiedLayerNormalization"}
    assert kernels <= operators(model)
    assert not kernels & operators(standard.model)
    # in half precision, a cast stands between a sum and its normalization
    skips = "" if name.endswith("fp16") else "Skip"
    assert f"{skips}SimplifiedLayerNormalization" in operators(fused.model)
    assert attention(fused.model) == attention(model)
    assert not {"Softmax", "RotaryEmbedding"} & operators(fused.model)
    given = fed(model)
    for edited in (standard, fused):
        assert not [note for note in edited.notes if "not proved" in note]
        held(osl.run(edited.model, given), osl.run(model, given), close(name))


@pytest.mark.parametrize("name", [name for name in PACKAGES if not name.endswith("fp16")])
def test_a_package_in_half_precision_has_no_node_in_float(name, built):
    model = osl.load(built / name / "package")
    half = osl.convert(model, to="float16").model

    index = GraphIndex.of(half)
    index.learn_types(index.producer)
    single = [
        node.op_type
        for node in index.nodes
        if node.op_type != "Cast" and index.element_of(node.output[0]) == TensorProto.FLOAT
    ]
    assert single == []
    held(osl.run(half, fed(model)), osl.run(model, fed(model)), 0.03)


@pytest.mark.parametrize("name", [name for name in PACKAGES if name.endswith("int4")])
def test_integers_in_blocks_become_floats(name, built):
    model = osl.load(built / name / "package")

    plain = osl.dequantize(model)

    assert "MatMulNBits" not in operators(plain.model)
    assert not [note for note in plain.notes if "not proved" in note]
    held(osl.run(plain.model, fed(model)), osl.run(model, fed(model)), 0.03)


@every
def test_all_weights_are_those_of_the_checkpoint(name, built):
    folder = built / name
    found = osl.weights(folder / "package", folder / "checkpoint" / "model.safetensors")

    assert found.match
    assert [weight.finding for weight in found.weights if weight.finding] == []
    assert found.only_checkpoint == []
    assert set(found.only_model) <= {"cos_cache", "sin_cache"}


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_nothing_of_healthy_integers_is_blamed(family, built):
    small, whole = (built / f"{family} {kind}" / "package" for kind in ("int4", "fp32"))

    assert osl.bisect(small, against=whole).culprits == []
    ranked = osl.rank(small, against=whole).nodes
    assert {node.op_type for node in ranked if node.own_db < 90} == {"MatMulNBits"}
    assert min(node.own_db for node in ranked) > 17


def test_a_package_is_compared_token_by_token_with_its_integers(built):
    small, whole = (built / f"Llama {kind}" / "package" for kind in ("int4", "fp32"))

    same = osl.compare_sets(whole, whole, TEXT, steps=6, **HOW)
    found = osl.compare_sets(small, whole, TEXT, steps=6, **HOW)

    assert same.match
    assert [step.wanted for step in same.steps] == [step.wanted for step in found.steps]
    assert 0 < max(step.kl for step in found.steps) < 1
    assert found.agreement == np.mean([step.token == step.wanted for step in found.steps])
    # the first step, computed here
    empty = np.zeros((1, 2, 0, 16), np.float32)
    cache = {f"past_key_values.{layer}.{part}": empty for layer in (0, 1) for part in PARTS}
    given = {**TEXT, "attention_mask": np.ones((1, 7), np.int64), **cache}
    q, p = (
        torch.log_softmax(torch.from_numpy(osl.run(path, given)["logits"][0, -1]).double(), 0)
        for path in (small, whole)
    )
    assert found.steps[0].kl == pytest.approx(float((p.exp() * (p - q)).sum()), rel=1e-3)
    assert (found.steps[0].token, found.steps[0].wanted) == (int(q.argmax()), int(p.argmax()))
    others = float(p[int(q.argmax())]) if q.argmax() != p.argmax() else float(p.topk(2).values[1])
    assert found.steps[0].margin == pytest.approx(float(p.max()) - others, rel=1e-3)


def test_a_layer_is_dropped_as_if_the_source_had_not_had_it(built):
    folder = built / "Llama fp32"
    module = transformers.AutoModelForCausalLM.from_pretrained(folder / "checkpoint")
    module.model.layers = module.model.layers[:1]

    found = osl.drop_layer(folder / "package", 1)

    held_as_the_module(found.model, module)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["Llama fp32", "Qwen2 fp32", "Mistral fp16", "Gemma2 fp32"])
def test_a_package_agrees_with_the_module_of_its_source(name, built, tmp_path):
    folder = built / name / "package"
    module = transformers.AutoModelForCausalLM.from_pretrained(built / name / "checkpoint").eval()
    with torch.no_grad():
        # the steps write into one cache: the second has what the first left
        cache = module(torch.from_numpy(TEXT["input_ids"])).past_key_values
    steps = [
        (torch.tensor([[t]]), torch.ones(1, 8 + n).long(), None, cache) for n, t in ((0, 5), (1, 9))
    ]

    osl.record(module, tmp_path / "refs", args=steps, names_of=folder)
    found = osl.bisect(folder, tmp_path / "refs", cause=False)

    assert (found.verdict, found.culprits) == ("agrees", [])


@pytest.mark.filterwarnings("ignore")
def test_a_cache_is_compared_by_layers_where_integers_change_all_its_numbers(built, tmp_path):
    module = transformers.AutoModelForCausalLM.from_pretrained(
        built / "Gemma2 int4" / "checkpoint"
    ).eval()
    with torch.no_grad():
        cache = module(torch.from_numpy(TEXT["input_ids"])).past_key_values
    steps = [(torch.tensor([[5]]), torch.ones(1, 8).long(), None, cache)]
    folder = built / "Gemma2 int4" / "package"

    osl.record(module, tmp_path / "refs", args=steps, names_of=folder)
    found = osl.bisect(folder, tmp_path / "refs", cause=False)

    # the package returns the keys of all layers first, the module keys and values by layer
    placed = [note.split("'")[1::2] for note in found.notes if "place and shape" in note]
    assert all(re.findall(r"(\d)\W+(key|value)", one) == re.findall(r"(\d)\W+(key|value)", other)
               for one, other in placed)  # fmt: skip
    assert found.culprits == []


@pytest.mark.parametrize(
    ("name", "fault", "said"),
    [
        (
            "Llama fp32",
            "rotary halves for pairs",
            "rotary_interleaved of all 2 GroupQueryAttention nodes is 1; with 0",
        ),
        ("Llama int4", "scale of a layer's attention", "scale of GroupQueryAttention"),
        ("Mistral with a window", "window of attention", "local_window_size"),
        ("Qwen2 fp32", "K and V exchanged", "parts along axis 1 in another order"),
        ("Qwen2 int4", "cache of another layer", "past_key_values.1.key"),
        (
            "Gemma2 fp32",
            "softcap of attention",
            "softcap of all 2 GroupQueryAttention nodes is 0; with 50",
        ),
        ("Gemma2 fp32", "no final cap", "Tanh"),
        ("Gemma2 fp32", "epsilon of all norms", "epsilon of "),
    ],
)
def test_a_fault_is_named_and_its_repair_decodes_fresh_texts(name, fault, said, built, tmp_path):
    found = repaired(fault, built / name / "package" / "model.onnx", tmp_path)

    assert said in found.culprits[0].causes[0].sentence


@pytest.mark.parametrize("name", ["Llama fp32", "Qwen2 int4", "Gemma2 fp32"])
def test_exchanged_keys_and_values_differ_from_the_checkpoint(name, built):
    planted = osl.load(built / name / "package").materialize()
    assert any([fault.plant(planted) for fault in FAULTS if fault.name == "K and V exchanged"])

    found = osl.weights(planted, built / name / "checkpoint" / "model.safetensors")

    (wrong,) = (weight for weight in found.weights if weight.finding)
    assert "v_proj.weight' where 'model.layers.1.self_attn.k_proj.weight' belongs" in wrong.finding


@pytest.mark.parametrize("name", ["Llama int4", "Phi3 fp32", "Phi3 int4"])
def test_exchanged_gate_and_up_differ_from_the_checkpoint(name, built):
    planted = osl.load(built / name / "package").materialize()
    tensors = {tensor.name: tensor for tensor in planted.graph.initializer}
    for own, tensor in tensors.items():
        if "layers.1.mlp.gate_proj" in own:
            other = own.replace("gate_proj", "up_proj")
            tensors[other].name, tensor.name = own, other

    # the checkpoint of Phi-3 has both as one
    found = osl.weights(planted, built / name / "checkpoint" / "model.safetensors")

    wrong = {weight.name for weight in found.weights if weight.finding}
    assert {name.split(".MatMul")[0] for name in wrong} == {
        f"model.layers.1.mlp.{part}_proj" for part in ("gate", "up")
    }
    assert all("where 'model.layers.1.mlp." in w.finding for w in found.weights if w.finding)


@pytest.mark.parametrize("name", ["Llama fp32", "Phi3 fp32"])
def test_a_package_has_the_numbers_of_a_later_checkpoint(name, built, tmp_path):
    folder = built / name
    source = folder / "checkpoint" / "model.safetensors"
    old = safetensors.numpy.load_file(source)
    later = {
        key: (array * 1.25 + 0.01).astype(array.dtype) if array.ndim == 2 else array
        for key, array in old.items()
    }
    safetensors.numpy.save_file(later, tmp_path / "later.safetensors")

    found = osl.weights(folder / "package", source, update=tmp_path / "later.safetensors")

    module = transformers.AutoModelForCausalLM.from_pretrained(folder / "checkpoint").eval()
    module.load_state_dict({key: torch.from_numpy(array) for key, array in later.items()})
    held_as_the_module(found.model, module)
