"""A LoRA adapter that goes into a model: each weight becomes W + alpha / rank * B @ A, wherever the export put W.

Or it stays beside the weights: as branches of initializers, or of inputs.
"""

import json

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper
from safetensors.numpy import save_file
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import packages
from kit.packages import HEAD, HEADS, KV_HEADS, WIDTH
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.passes.build import parse_text

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


def merged(scale: float, parts: dict[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The checkpoint with the adapter, computed here."""
    found, parts = dict(PARAMETERS), parts or adapter()
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


def feeds() -> dict[str, np.ndarray]:
    return packages.feeds() | {
        f"past_key_values.1.{part}": np.ones((1, 2, 2, 16), np.float32) for part in ("key", "value")
    }


@pytest.mark.parametrize("form", ["branches", "inputs"])
def test_a_package_with_branches_is_that_of_the_merged_checkpoint(form):
    model = packages.decoder(PARAMETERS)

    found = osl.weights(model, PARAMETERS, lora=adapter(), lora_as=form, alpha=ALPHA)

    assert len(found.branches) == 4
    assert found.updated is None
    result = {tensor.name: tensor for tensor in found.model.proto.graph.initializer}
    assert all(result[t.name] == t for t in model.proto.graph.initializer)
    assert all(np.array_equal(found.model.array(result[name]), a) for name, a in adapter().items())
    inputs = {value.name for value in found.model.proto.graph.input}
    assert (inputs >= adapter().keys()) == (form == "inputs")
    actual = osl.run(found.model, feeds())
    for name, array in osl.run(packages.decoder(merged(4)), feeds()).items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


def test_another_adapter_is_fed_to_the_inputs():
    other = {name: array[::-1] * np.float32(0.5) for name, array in adapter().items()}

    found = osl.weights(
        packages.decoder(PARAMETERS), PARAMETERS, lora=adapter(), lora_as="inputs", alpha=ALPHA
    )

    actual = osl.run(found.model, feeds() | other)
    for name, array in osl.run(packages.decoder(merged(4, other)), feeds()).items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


LINEAR = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3,4] x, float[5,6] z) => (float[n,k] y) {
    turned = Transpose<perm = [1, 0]> ("a.weight")
    h = MatMul (x, turned)
    shape = Constant<value_ints = [6, 5]> ()
    flat = Reshape (h, shape)
    bent = Gemm<transB = 1, beta = 0.5> (flat, "b.weight", bias)
    y = LAST
}"""


def linear(
    last: str, dtype: str = "float"
) -> tuple[osl.Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A model of three Linear layers, its checkpoint, and an adapter of all; c is square and stored transposed."""
    rng = np.random.default_rng(1)
    sizes = {"a": (5, 4), "b": (6, 5), "c": (6, 6)}
    noise = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    held = {"a.weight": noise["a"], "b.weight": noise["b"], "c": noise["c"].T}
    text = LINEAR.replace("LAST", last).replace("float", dtype)
    model = parse_text(text)
    held = {name: array for name, array in held.items() if f'"{name}"' in text}
    for name, array in {**held, "bias": np.arange(6)}.items():
        stored = np.ascontiguousarray(array, {"float": "float32"}.get(dtype, dtype))
        tensor = numpy_helper.from_array(stored, name)
        model.proto.graph.initializer.append(tensor)
    parts = {}
    for name, (outputs, inputs) in sizes.items():
        parts[f"{name}.lora_A.weight"] = rng.standard_normal((2, inputs)).astype(np.float32)
        parts[f"{name}.lora_B.weight"] = rng.standard_normal((outputs, 2)).astype(np.float32)
    return model, {f"{name}.weight": array for name, array in noise.items()}, parts


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_transposed_weights_and_gemm_get_branches(dtype):
    model, parameters, parts = linear('MatMul (bent, "c")', dtype)
    kind = {"float": np.float32, "float16": np.float16}[dtype]
    feeds = {"x": np.random.default_rng(2).standard_normal((2, 3, 4)).astype(kind)}
    feeds["z"] = np.ones((5, 6), kind)

    both = [
        osl.weights(model, parameters, lora=parts, lora_as=form, alpha=6).model
        for form in ("branches", "weights")
    ]

    actual, wanted = (osl.run(each, feeds)["y"] for each in both)
    allowed = np.abs(wanted).max() * {"float": 1e-5, "float16": 1e-2}[dtype]
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=allowed)
    assert np.abs(wanted - osl.run(model, feeds)["y"]).max() > 10 * allowed


def exported(place, tensors):
    """The file that onnxruntime writes of an adapter."""
    file = onnxruntime.AdapterFormat()
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        for name, array in tensors.items()
    }
    file.set_parameters(values)
    file.export_adapter(str(place))
    return place


@pytest.mark.parametrize("form", [{}, {"lora_as": "branches"}, {"lora_as": "inputs"}])
def test_an_adapter_that_onnxruntime_wrote_is_that_of_the_tensors_in_it(form, tmp_path):
    place = exported(tmp_path / "a.onnx_adapter", adapter())
    assert (
        onnxruntime.AdapterFormat.read_adapter(str(place)).get_parameters().keys()
        == adapter().keys()
    )

    found = osl.weights(packages.decoder(PARAMETERS), PARAMETERS, lora=place, alpha=ALPHA, **form)

    actual, right = osl.run(found.model, feeds()), packages.decoder(merged(ALPHA / RANK))
    for name, array in osl.run(right, feeds()).items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-3, err_msg=name)


def test_the_command_takes_the_file_of_onnxruntime_and_its_alpha(tmp_path):
    save_file(PARAMETERS, tmp_path / "model.safetensors")
    osl.save(packages.decoder(PARAMETERS), tmp_path / "model.onnx")
    exported(tmp_path / "a.onnx_adapter", adapter())
    words = ["weights", "model.onnx", "--against", "model.safetensors", "--lora", "a.onnx_adapter"]
    words = [str(tmp_path / word) if "." in word else word for word in words]

    refused = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "made.onnx")])
    made = CliRunner().invoke(
        app, [*words, "--alpha", str(ALPHA), "-o", str(tmp_path / "made.onnx")]
    )

    assert refused.exit_code == 2
    assert "nothing says the alpha" in refused.output
    assert made.exit_code == 0, made.output
    actual = osl.run(tmp_path / "made.onnx", feeds())["logits"]
    wanted = osl.run(packages.decoder(merged(ALPHA / RANK)), feeds())["logits"]
    np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-3)


def test_onnxruntime_takes_another_adapter_for_the_inputs(tmp_path):
    model, parameters, parts = linear('MatMul (bent, "c")')
    other = {name: np.ascontiguousarray(array * 2) for name, array in parts.items()}
    place = exported(tmp_path / "other.onnx_adapter", other)

    found = osl.weights(model, parameters, lora=parts, lora_as="inputs", alpha=6)

    adapter, options = onnxruntime.LoraAdapter(), onnxruntime.RunOptions()
    adapter.Load(str(place))
    options.add_active_adapter(adapter)
    session = onnxruntime.InferenceSession(found.model.materialize().SerializeToString())
    feeds = {"x": np.ones((2, 3, 4), np.float32), "z": np.ones((5, 6), np.float32)}
    merged_in = osl.weights(model, parameters, lora=other, alpha=6).model
    wanted = osl.run(merged_in, feeds)["y"]
    np.testing.assert_allclose(session.run(None, feeds, options)[0], wanted, rtol=1e-4, atol=1e-1)
    assert np.abs(session.run(None, feeds)[0] - wanted).max() > 1


@pytest.mark.parametrize(
    "last",
    [
        'Gemm<alpha = 0.5> (bent, "c")',
        'Gemm<transB = 1> (bent, "c")',
        'Gemm<transA = 1> (z, "c")',
        'MatMul ("c", bent)',
        'MatMul ("b.weight", z)',
        'Add (bent, "c")',
    ],
)
def test_what_is_no_plain_product_gets_no_branch(last):
    model, parameters, parts = linear(last)

    with pytest.raises(ReferenceSetError, match="is no whole parameter, or no factor of products"):
        osl.weights(model, parameters, lora=parts, lora_as="branches", alpha=1)


def test_a_second_adapter_of_the_same_names_is_refused():
    model, parameters, parts = linear('MatMul (bent, "c")')
    once = osl.weights(model, parameters, lora=parts, lora_as="branches", alpha=1).model

    with pytest.raises(ReferenceSetError, match="the model has 'a.lora_A.weight', .* already"):
        osl.weights(once, parameters, lora=parts, lora_as="branches", alpha=1)


def test_a_parameter_that_no_weight_holds_gets_no_branch():
    model, parameters, parts = linear("Relu (bent)")

    with pytest.raises(ReferenceSetError, match=r"no weight is known to hold 'c\.weight'"):
        osl.weights(model, parameters, lora=parts, lora_as="branches", alpha=1)


def test_equal_parameters_without_a_place_get_no_branch():
    model, parameters, parts = linear('MatMul (bent, "c")')
    parameters["d.weight"] = parameters["c.weight"]

    with pytest.raises(ReferenceSetError, match="'c' is no"):
        osl.weights(model, parameters, lora=parts, lora_as="branches", alpha=1)


def test_a_weight_in_blocks_gets_a_branch():
    rng = np.random.default_rng(5)
    weight, a, b, x = (
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((24, 32), (2, 32), (24, 2), (3, 32))
    )
    source = parse_text("""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[3,32] x) => (float[3,24] y) { y = MatMul (x, w) }""")
    source.proto.graph.initializer.append(numpy_helper.from_array(weight.T.copy(), "w"))
    model, parts = packages.quantized(source=source), {"w.lora_A.weight": a, "w.lora_B.weight": b}
    with pytest.raises(ReferenceSetError, match="holds integers in blocks"):
        osl.weights(model, {"w.weight": weight}, lora=parts, alpha=6)

    found = osl.weights(model, {"w.weight": weight}, lora=parts, lora_as="branches", alpha=6)

    change = osl.run(found.model, {"x": x})["y"] - osl.run(model, {"x": x})["y"]
    np.testing.assert_allclose(change, 3 * x @ a.T @ b.T, rtol=1e-3, atol=1e-3)


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
