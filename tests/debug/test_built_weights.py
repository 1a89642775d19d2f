"""Weights of packages of onnxruntime-genai's own builder: adapters, other files, fewer bits, pairs of models."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

import onnxsurgeon_lite as osl
from kit.planted import HOW, TEXT

pytest.importorskip("onnxruntime_genai")

RANK, ALPHA = 4, 8
# names of the converter of llama.cpp, each in the place of the other
LLAMA_CPP = (
    ("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output"),
    ("model.layers", "blk"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"), ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"), ("post_attention_layernorm", "ffn_norm"),
    ("input_layernorm", "attn_norm"),
)  # fmt: skip


def source(folder):
    return folder / "checkpoint" / "model.safetensors"


def logits(model):
    """What a package says after a text, without a cache."""
    model = model if isinstance(model, osl.Model) else osl.load(model)
    caches = [each for each in model.proto.graph.input if each.name.startswith("past")]
    half = caches[0].type.tensor_type.elem_type == 10
    empty = np.zeros((1, 2, 0, 16), np.float16 if half else np.float32)
    fed = dict.fromkeys((each.name for each in caches), empty)
    return osl.run(model, {**TEXT, "attention_mask": np.ones((1, 7), np.int64), **fed})["logits"]


def off(made, right):
    """How far numbers are off, as a share of the largest."""
    return np.abs(made.astype(np.float64) - right).max() / np.abs(right).max()


@pytest.fixture
def adapter(built, tmp_path):
    """Return (the file of an adapter of all products of a checkpoint, what the module with it says)."""

    def made(name, left_out=()):
        rng, parts = np.random.default_rng(3), {}
        parameters = safetensors.numpy.load_file(source(built / name))
        for key, array in list(parameters.items()):
            module = key.removesuffix(".weight")
            if module.endswith("_proj") and not module.endswith(left_out or "-"):
                a, b = (
                    (0.2 * rng.standard_normal(shape)).astype(np.float32)
                    for shape in ((RANK, array.shape[1]), (array.shape[0], RANK))
                )
                parts[f"base_model.model.{module}.lora_A.weight"] = a
                parts[f"base_model.model.{module}.lora_B.weight"] = b
                parameters[key] = (array + ALPHA / RANK * (b @ a)).astype(array.dtype)
        safetensors.numpy.save_file(parts, tmp_path / "adapter.safetensors")
        module = transformers.AutoModelForCausalLM.from_pretrained(built / name / "checkpoint")
        adapted = {key: torch.from_numpy(array) for key, array in parameters.items()}
        module.eval().load_state_dict(adapted, strict=False)
        with torch.no_grad():
            right = module(torch.from_numpy(TEXT["input_ids"])).logits.numpy()
        return tmp_path / "adapter.safetensors", right

    return made


@pytest.mark.parametrize("form", ["weights", "branches", "inputs"])
@pytest.mark.parametrize("name", ["Llama fp32", "Mistral fp16", "Gemma2 fp32"])
def test_a_package_takes_an_adapter(name, form, built, adapter):
    path, right = adapter(name)
    folder = built / name / "package"

    found = osl.weights(folder, source(built / name), lora=path, lora_as=form, alpha=ALPHA)

    close = 0.02 if name.endswith("fp16") else 1e-4
    assert off(logits(folder), right) > 10 * close
    assert off(logits(found.model), right) < close


def test_an_adapter_of_a_packed_parameter_is_merged_into_its_parts(built, adapter):
    folder = built / "Phi3 fp32"
    path, right = adapter("Phi3 fp32")

    found = osl.weights(folder / "package", source(folder), lora=path, alpha=ALPHA)

    assert off(logits(found.model), right) < 1e-4
    # a branch beside a part would need a part of B
    with pytest.raises(osl.SurgeonError, match="gate_up_proj"):
        osl.weights(folder / "package", source(folder), lora=path, lora_as="inputs", alpha=ALPHA)
    path, right = adapter("Phi3 fp32", left_out=("gate_up_proj",))
    found = osl.weights(
        folder / "package", source(folder), lora=path, lora_as="branches", alpha=ALPHA
    )
    assert off(logits(found.model), right) < 1e-4


@pytest.mark.parametrize("name", ["Llama fp32", "Llama int4"])
def test_a_package_is_compared_with_a_file_of_llama_cpp(name, built, tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    heads = {"q_proj": 4, "k_proj": 2}
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_block_count(2)
    for key, array in safetensors.numpy.load_file(source(built / name)).items():
        for module, count in heads.items():
            if module in key:  # the converter moves the rows of each head
                halves = array.reshape(count, 2, -1, array.shape[1])
                array = halves.swapaxes(1, 2).reshape(array.shape)
        for old, new in LLAMA_CPP:
            key = key.replace(old, new)
        writer.add_tensor(key, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    found = osl.weights(built / name / "package", tmp_path / "m.gguf")

    assert found.match
    assert [set(found.only_model), found.only_checkpoint] == [{"cos_cache", "sin_cache"}, []]


@pytest.mark.parametrize("name", ["Llama int4", "Mistral fp16"])
def test_a_package_says_the_same_with_its_data_in_shards(name, built, tmp_path):
    target = tmp_path / "m.onnx"

    osl.data.external(
        built / name / "package", target, location="w.safetensors", max_shard="40KB", min_size=0
    )

    assert len(list(tmp_path.glob("w-*-of-*.safetensors"))) > 1
    assert np.array_equal(logits(target), logits(built / name / "package"))


@pytest.mark.parametrize("name", ["Llama fp32", "Qwen2 fp32", "Gemma2 fp32", "Phi3 fp32"])
def test_a_package_with_fewer_bits_is_rounded_from_its_checkpoint(name, built):
    small = osl.convert(built / name / "package", to="int4").model

    operators = [node.op_type for node in small.proto.graph.node]
    assert operators.count("MatMulNBits") == 11
    found = osl.weights(small, source(built / name))
    assert found.match
    assert sum(weight.how == "rounded with 4 bits" for weight in found.weights) >= 10
    assert off(logits(small), logits(built / name / "package")) < 0.4


@pytest.mark.parametrize("form", ["onnxdbg.toml", "genai_config.json"])
@pytest.mark.parametrize("name", ["Llama fp32", "Qwen2 int4", "Mistral fp16"])
def test_a_model_for_the_prompt_and_one_for_tokens_decode_as_the_package(
    name, form, built, tmp_path
):
    folder = tmp_path / "pair"
    shutil.copytree(built / name / "package", folder)
    shutil.copy(folder / "model.onnx", folder / "prompt.onnx")
    (folder / "model.onnx").rename(folder / "token.onnx")
    if form == "onnxdbg.toml":
        stage = '[[stage]]\nmodel = "KIND.onnx"\nruns = "KIND"\n'
        cache = 'cache = { "present.*" = "past_key_values.*" }\n'
        text = "".join((stage + cache).replace("KIND", kind) for kind in ("prompt", "token"))
        (folder / form).write_text(text)
    else:
        config = json.loads((folder / form).read_text())
        config["model"]["decoder"]["pipeline"] = [
            {"one": {"filename": "prompt.onnx", "run_on_token_gen": False}},
            {"other": {"filename": "token.onnx", "run_on_prompt": False}},
        ]
        (folder / form).write_text(json.dumps(config))

    found = osl.compare_sets(folder, built / name / "package", TEXT, steps=5, **HOW)

    assert found.match
    assert len(found.steps) == 5
