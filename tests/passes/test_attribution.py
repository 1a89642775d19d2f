"""Heat maps in the file: what Captum computes for the same model in torch."""

import io
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from kit.graphs import run
from onnxsurgeon_lite import Attribution, Model
from onnxsurgeon_lite.errors import SurgeonError

LAYER = 5
RUN = """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
np.save(sys.argv[3], session.run(["heatmap"], dict(np.load(sys.argv[2])))[0])
assert not {"onnx", "torch", "onnxsurgeon_lite"} & sys.modules.keys()
"""


@pytest.fixture(scope="module")
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def model(net) -> Model:
    file = io.BytesIO()
    names = {"input_names": ["image"], "output_names": ["logits"]}
    axes = {"image": {0: "N"}, "logits": {0: "N"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (torch.zeros(1, 3, 12, 12),), file, dynamo=False, dynamic_axes=axes, **names
        )
    return Model(onnx.load_from_string(file.getvalue()))


IMAGES = np.random.default_rng(0).normal(size=(2, 3, 12, 12)).astype(np.float32)
NOISE = np.random.default_rng(1).normal(size=(4, 2, 3, 12, 12)).astype(np.float32)


def of_captum(net, method: str, target) -> np.ndarray:
    with warnings.catch_warnings():  # imported late, as it takes a second
        warnings.simplefilter("ignore")
        from captum import attr as captum

    images = torch.from_numpy(IMAGES).requires_grad_()
    made = {
        "saliency": lambda: captum.Saliency(net).attribute(images, target=target),
        "input-x-gradient": lambda: captum.InputXGradient(net).attribute(images, target=target),
        "integrated-gradients": lambda: captum.IntegratedGradients(net).attribute(
            images, target=target
        ),
        "smoothgrad": lambda: captum.NoiseTunnel(captum.Saliency(net)).attribute(
            images, nt_samples=len(NOISE), target=target
        ),
        "gradcam": lambda: captum.LayerGradCam(net, net[LAYER]).attribute(images, target=target),
    }[method]
    return made().detach().numpy()


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("saliency", "input"),
        ("input-x-gradient", 3),
        ("integrated-gradients", "input"),
        ("smoothgrad", 3),
        ("gradcam", 3),
    ],
)
def test_a_heat_map_is_captums(method, target, net, model, runtime, monkeypatch):
    drawn = torch.from_numpy(NOISE.swapaxes(0, 1).reshape(-1, 3, 12, 12).copy())
    monkeypatch.setattr(torch, "normal", lambda mean, std: drawn)
    classes = torch.tensor([1, 4]) if target == "input" else target
    expected = of_captum(net, method, classes)
    smooth = {"steps": len(NOISE), "noise": "noise"} if method == "smoothgrad" else {}
    feeds = {"image": IMAGES} | ({"noise": NOISE} if smooth else {})
    feeds |= {"target": np.array([1, 4])} if target == "input" else {}

    edited = Attribution(method, target, **smooth).apply(model).model
    found = run(runtime, edited, feeds)["heatmap"]

    onnx.checker.check_model(edited.proto, full_check=True)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_a_file_with_a_heat_map_runs_in_a_process_that_has_only_onnxruntime(net, model, tmp_path):
    words = [tmp_path / name for name in ("map.onnx", "feeds.npz", "map.npy")]

    Attribution("integrated-gradients", 3).apply(model).save(words[0])
    np.savez(words[1], image=IMAGES)
    subprocess.run([sys.executable, "-c", RUN, *words], check=True)

    expected = of_captum(net, "integrated-gradients", 3)
    np.testing.assert_allclose(np.load(words[2]), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": 5}, "'logits' has 5 classes, not 5"),
        ({"target": "dog"}, "target 'dog' is not a class"),
        ({"to": "logits", "of": "image"}, "'image' does not depend on logits"),
        ({"target": 1, "of": "image"}, "'image' does not have the shape [samples, classes]"),
        ({"steps": 0}, "--steps is 0"),
    ],
)
def test_what_gives_no_heat_map_is_said(options, said, model):
    with pytest.raises(SurgeonError) as caught:
        Attribution("saliency", **options).apply(model)

    assert caught.value.message.startswith(said)
