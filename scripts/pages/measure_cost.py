"""Measure what `--html` adds to each command: `python scripts/pages/measure_cost.py FOLDER [COMMAND...]`.

The model is a BERT of 3,000 nodes, whose copy has another epsilon in one LayerNormalization. Each command runs with and
without a page in turns; medians are told. FOLDER keeps the models.
"""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median

import onnx
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import onnxsurgeon_lite as osl
from kit.faults import Output

COMMANDS = {
    "inspect": "inspect right.onnx",
    "diff": "diff right.onnx wrong.onnx",
    "diff --run": "diff right.onnx wrong.onnx --run",
    "profile": "profile right.onnx",
    "compare": "compare wrong.onnx refs",
    "match": "match right.onnx wrong.onnx",
    "rank": "rank wrong.onnx --against right.onnx",
    "convert": "convert right.onnx --to float16 -o half.onnx",
    "bisect": "bisect wrong.onnx --reference refs",
    "bisect --against": "bisect wrong.onnx --against right.onnx",
}
LAYERS, RUNS = 55, 7


def make(folder: Path) -> None:
    """Write the models and the references, once."""
    if (folder / "refs").exists():
        return
    config = transformers.BertConfig(
        num_hidden_layers=LAYERS, hidden_size=64, num_attention_heads=4, intermediate_size=256
    )
    module = Output(transformers.BertModel(config, add_pooling_layer=False), "last_hidden_state")
    given = (torch.arange(64)[None],)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), given, folder / "right.onnx", dynamo=False, opset_version=17
        )
    wrong = onnx.load(folder / "right.onnx")
    norms = [node for node in wrong.graph.node if node.op_type == "LayerNormalization"]
    next(a for a in norms[LAYERS].attribute if a.name == "epsilon").f = 1e-2
    onnx.save(wrong, folder / "wrong.onnx")
    osl.record(folder / "right.onnx", output=folder / "refs")
    print(f"{len(wrong.graph.node):,} nodes")


def seconds(folder: Path, words: list[str]) -> float:
    """Run a command; return how long it took."""
    start = time.perf_counter()
    line = [sys.executable, "-m", "onnxsurgeon_lite", *words]
    ended = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    if ended.returncode not in (0, 1):
        sys.exit(ended.stderr)
    return time.perf_counter() - start


def main(folder: Path, names: list[str]) -> None:
    """Print a line for each command."""
    make(folder)
    for name in names or COMMANDS:
        words = [*COMMANDS[name].split(), "--force"]
        page = folder / "page.html"
        seconds(folder, [*words, "--html", page.name])  # compiles
        without, with_page = [], []
        for _ in range(RUNS):
            without.append(seconds(folder, words))
            with_page.append(seconds(folder, [*words, "--html", page.name]))
        a, b = median(without), median(with_page)
        size = page.stat().st_size / 1e6
        print(f"{name:18} {a:6.2f} s -> {b:6.2f} s  {b / a - 1:+5.0%}  {size:.1f} MB", flush=True)


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    place.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    os.environ["PYTHONPYCACHEPREFIX"] = str(place / "cache")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    main(place, sys.argv[2:])
