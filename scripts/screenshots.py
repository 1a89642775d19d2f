"""Make five reports of real architectures, and pictures of them: `python scripts/screenshots.py [NAME...]`.

The reports stay in build/reports; the pictures go to docs/assets.
"""

import os
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import onnxsurgeon_lite as osl
from kit.browsing import Visit, started
from kit.faults import Output, export

ROOT = Path(__file__).parents[1]
REPORTS, PICTURES = ROOT / "build" / "reports", ROOT / "docs" / "assets"
"""Reports are made in their folder: its place is on no picture."""
_SIZE = {"width": 1200, "height": 1300}
_LARGEST = 300_000  # bytes of a picture


def exported(name: str, folder: str, **how: bool) -> Path:
    """An export, once."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    known = place / "model.onnx"
    return known if known.exists() else export(name, place, **how)


def saved(proto: onnx.ModelProto, name: str) -> Path:
    """A changed model in a file."""
    onnx.save(proto, name)
    return Path(name)


def faulty_gpt2(html: Path) -> None:
    """A LayerNormalization in the middle has another epsilon."""
    model = exported("GPT-2", "gpt2")
    wrong = onnx.load(model)
    norms = [node for node in wrong.graph.node if node.op_type == "LayerNormalization"]
    next(a for a in norms[11].attribute if a.name == "epsilon").f = 1e-2
    osl.bisect(saved(wrong, "gpt2-export.onnx"), against=model, html=html, force=True)


def quantized_resnet(html: Path) -> None:
    """One scale of an activation is four times too small."""
    model = exported("ResNet-50", "resnet")
    given = np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)
    np.savez("given.npz", given=given)
    right = osl.convert(model, "int8", feeds="given.npz", calibrate="minmax")
    right.save("resnet-right.onnx", force=True)
    wrong = onnx.load("resnet-right.onnx")
    scales = {node.input[1] for node in wrong.graph.node if node.op_type == "QuantizeLinear"}
    known = [tensor for tensor in wrong.graph.initializer if tensor.name in scales]
    chosen = known[len(known) // 2]
    array = numpy_helper.to_array(chosen) / 4
    chosen.CopyFrom(numpy_helper.from_array(array.astype(np.float32), chosen.name))
    faulty = saved(wrong, "resnet-int8.onnx")
    osl.bisect(faulty, against=model, feeds="given.npz", html=html, force=True)


def overflow(html: Path) -> None:
    """A projection in the middle makes numbers that half precision does not have."""
    model = onnx.load(exported("GPT-2", "gpt2"))
    weights = [t for t in model.graph.initializer if "h.6.mlp.c_fc.weight" in t.name]
    array = numpy_helper.to_array(weights[0]) * 3e5
    weights[0].CopyFrom(numpy_helper.from_array(array, weights[0].name))
    osl.bisect(saved(model, "gpt2-large.onnx"), find="overflow:float16", html=html, force=True)


def two_exports(html: Path) -> None:
    """The same module by both exporters."""
    sides = {name: Path(f"resnet-{name}.onnx") for name in ("torchscript", "dynamo")}
    for name, path in sides.items():
        shutil.copy(exported("ResNet-50", name, dynamo=name == "dynamo"), path)
    osl.diff(*sides.values(), run=True, map="auto", html=html, force=True)


def profiled_bert(html: Path) -> None:
    """Where the time goes."""
    place = Path("bert.onnx")
    if not place.exists():
        config = transformers.BertConfig(
            num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024
        )
        module = Output(
            transformers.BertModel(config, add_pooling_layer=False), "last_hidden_state"
        )
        given = (torch.ones(1, 64, dtype=torch.int64),)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module.eval(), given, place, dynamo=False, opset_version=17)
    osl.profile(place, runs=20, html=html, force=True)


REPORTED: dict[str, Callable[[Path], None]] = {
    "faulty-gpt2": faulty_gpt2,
    "quantized-resnet": quantized_resnet,
    "fp16-overflow": overflow,
    "two-exports": two_exports,
    "profile-bert": profiled_bert,
}


def main(names: list[str]) -> None:
    """Make what is named, or everything."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    os.chdir(REPORTS)
    with started() as browser:
        for name in names or REPORTED:
            page = Path(f"{name}.html")
            REPORTED[name](page)
            with Visit(browser) as visit:
                shown = visit.open(page)
                shown.set_viewport_size(_SIZE)
                shown.reload()
                shown.wait_for_selector("body[data-ready]")
                shown.wait_for_timeout(1000)  # the charts fade in
                picture = PICTURES / f"report-{name}.png"
                shown.screenshot(path=picture)
            size = picture.stat().st_size
            print(f"{picture.relative_to(ROOT)}: {size / 1e3:.0f} KB", *visit.complaints)
            assert size < _LARGEST


if __name__ == "__main__":
    main(sys.argv[1:])
