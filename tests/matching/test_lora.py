"""A LoRA adapter that goes into a model: each weight becomes W + alpha / rank * B @ A, wherever the export put W."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from kit.packages import HEAD, HEADS, KV_HEADS, WIDTH
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError

RANK, ALPHA = 4, 16
SIZES = {
    "self_attn.q_proj": (HEADS * HEAD, WIDTH),
    "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH),
    "mlp.down_proj": (WIDTH, 2 * WIDTH),
}
PARAMETERS = packages.checkpoint()


def adapter(*left_out: str) -> dict[str, np.ndarray]:
    """An adapter of both layers, as peft stores it."""
    rng = np.random.default_rng(3)
    found = {}
    for layer in range(2):
        for module, (outputs, inputs) in SIZES.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            found[f"{name}.lora_A.weight"] = rng.standard_normal((RANK, inputs)).astype(np.float32)
            found[f"{name}.lora_B.weight"] = rng.standard_normal((outputs, RANK)).astype(np.float32)
    return {name: array for name, array in found.items() if not name.endswith(left_out or ("-",))}


def merged(scale: float) -> dict[str, np.ndarray]:
    """The checkpoint with the adapter, computed here."""
    found, parts = dict(PARAMETERS), adapter()
    for name in parts:
        if "lora_A" in name:
            weight = name.removeprefix("base_model.model.").replace(".lora_A", "")
            b = parts[name.replace("lora_A", "lora_B")].astype(np.float64)
            found[weight] = (found[weight] + scale * (b @ parts[name])).astype(np.float32)
    return found


@pytest.mark.parametrize(("config", "scale"), [({}, 4), ({"use_rslora": True}, 8)])
def test_a_package_with_an_adapter_is_that_of_the_merged_checkpoint(config, scale, tmp_path):
    save_file(adapter(), tmp_path / "adapter.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_alpha": ALPHA} | config))

    found = osl.weights(
        packages.decoder(PARAMETERS), PARAMETERS, lora=tmp_path / "adapter.safetensors"
    )

    assert len(found.updated) == 4  # q, k and v are one weight
    feeds = packages.feeds() | {
        f"past_key_values.1.{part}": np.ones((1, 2, 2, 16), np.float32) for part in ("key", "value")
    }
    actual = osl.run(found.model, feeds)
    for name, array in osl.run(packages.decoder(merged(scale)), feeds).items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


def test_an_adapter_goes_into_a_later_checkpoint_too():
    later = {name: array * np.float32(1.5) for name, array in PARAMETERS.items()}

    found = osl.weights(
        packages.decoder(PARAMETERS), PARAMETERS, update=later, lora=adapter(), alpha=ALPHA
    )

    weight = next(
        t
        for t in found.model.proto.graph.initializer
        if t.name.endswith("1.mlp.down_proj.MatMul.weight")
    )
    delta = (
        merged(4)["model.layers.1.mlp.down_proj.weight"]
        - PARAMETERS["model.layers.1.mlp.down_proj.weight"]
    )
    wanted = later["model.layers.1.mlp.down_proj.weight"] + delta
    np.testing.assert_allclose(found.model.array(weight), wanted.T, rtol=1e-4, atol=1e-4)


def test_what_is_no_adapter_of_the_checkpoint_is_refused():
    model = packages.decoder(PARAMETERS)

    with pytest.raises(UsageError, match="nothing says the alpha of"):
        osl.weights(model, PARAMETERS, lora=adapter())
    with pytest.raises(
        ReferenceSetError, match="lacks a part of 'model.layers.0.mlp.down_proj.weight'"
    ):
        osl.weights(model, PARAMETERS, lora=adapter("down_proj.lora_B.weight"), alpha=ALPHA)
    with pytest.raises(ReferenceSetError, match="is no plain LoRA of a Linear layer"):
        osl.weights(
            model, PARAMETERS, lora=adapter() | {"embed.lora_embedding_A": np.ones(3)}, alpha=1
        )
    wide = {
        name: np.ones((RANK, 3), np.float32) if "lora_A" in name else a
        for name, a in adapter().items()
    }
    with pytest.raises(ReferenceSetError, match=r"@ A \[4, 3\] does not fit 'model.layers.0"):
        osl.weights(model, PARAMETERS, lora=wide, alpha=ALPHA)


def test_an_adapter_is_merged_by_the_command(tmp_path):
    osl.save(packages.decoder(PARAMETERS), tmp_path / "model.onnx")
    save_file(PARAMETERS, tmp_path / "model.safetensors")
    save_file(adapter(), tmp_path / "adapter.safetensors")
    words = ["weights", "model.onnx", "--against", "model.safetensors"]
    files = [str(tmp_path / word) if "." in word else word for word in words]
    files += ["--lora", str(tmp_path / "adapter.safetensors"), "--alpha", "16"]

    done = CliRunner().invoke(app, [*files, "-o", str(tmp_path / "merged.onnx")])

    assert done.exit_code == 0, done.output
    save_file(merged(4), tmp_path / "merged.safetensors")
    assert osl.weights(tmp_path / "merged.onnx", tmp_path / "merged.safetensors", atol=1e-4).match
