"""Bisect onnxruntime against other runtimes, right ones and one that gets a node wrong, and count the answers.

`python scripts/runtimes.py [--faults 10] [--only PATTERN] [--seed 0]` needs the test extra (torch, openvino).

The models are a ResNet, a BERT and one with a loop and a branch. The wrong runtime is a program that computes with
onnxruntime, and perturbs the output of one node, drawn by a seed: once with inner values, once without.
"""

import argparse
import contextlib
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch

import onnxsurgeon_lite as osl

PROGRAM = """#!{python}
import json, sys
from pathlib import Path
import numpy as np, onnx, onnxruntime as ort
import onnxsurgeon_lite as osl

folder = Path(sys.argv[1])
wanted = json.loads((folder / "request.json").read_text())["wanted"]
feeds = osl.open_references(folder / "feeds")
model = onnx.load(folder / "model.onnx")

def perturb(graph):
    for number, node in enumerate(list(graph.node)):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                perturb(attribute.g)
        if {value!r} in node.output:
            node.output[list(node.output).index({value!r})] = "right"
            graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1.05), "factor"))
            graph.node.insert(number + 1, onnx.helper.make_node("Mul", ["right", "factor"], [{value!r}]))

perturb(model.graph)
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
values = session.run(wanted, {{i.name: feeds.read(i.name) for i in session.get_inputs()}})
np.savez(folder / "values.npz", **dict(zip(wanted, values)))
"""


class Steps(torch.nn.Module):
    """A loop and a branch between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 4)

    def forward(self, image: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        found = torch.relu(self.before(image)).mean((2, 3))
        for _ in range(int(times)):
            found = torch.tanh(found * 1.25) + found
        found = torch.sigmoid(found) * 2 if bool(times > 2) else found - 1
        return torch.softmax(self.after(found), -1)


def models(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Yield (name, model, feeds)."""
    from transformers import BertConfig, BertModel, ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    image, ids = torch.randn(1, 3, 64, 64), torch.randint(0, 500, (1, 16))
    resnet = ResNetForImageClassification(ResNetConfig(return_dict=False))
    sizes = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=256, vocab_size=500, return_dict=False)
    given: list[tuple[str, torch.nn.Module, tuple[torch.Tensor, ...]]] = [
        ("ResNet-50", resnet, (image,)),
        ("BERT", BertModel(config), (ids,)),
        ("control flow", torch.jit.script(Steps().eval()), (image, torch.tensor(4))),
    ]
    for name, module, args in given:
        path = folder / f"{name.replace(' ', '_')}.onnx"
        names = [f"given{number}" for number in range(len(args))]
        dynamo = not isinstance(module, torch.jit.ScriptModule)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            torch.onnx.export(
                module.eval(), args, path, input_names=names, dynamo=dynamo, verbose=False
            )  # fmt: skip
        feeds = path.with_suffix(".npz")
        np.savez(feeds, **{n: a.numpy() for n, a in zip(names, args, strict=True)})
        yield name, path, feeds


def faults(path: Path, feeds: Path, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (value, operator) of drawn nodes: of floats that are not constant, and reach an output."""
    inside = [
        (node, name)
        for graph in _graphs(osl.load(path).proto.graph)
        for node in graph.node
        for name in node.output
        if node.op_type not in ("Constant", "If", "Loop", "Shape", "Relu", "Identity")
    ]
    rng = random.Random(f"{seed} {path.name}")
    rng.shuffle(inside)
    for node, name in inside:
        if count and _matters(path, feeds, name):
            count -= 1
            yield name, node.op_type


def _matters(path: Path, feeds: Path, value: str) -> bool:
    """Return whether an output differs by more than a tolerance with the value perturbed."""
    program = write(path.with_suffix(".tried"), value)
    try:
        wrong = osl.run(path, feeds, runtime=program)
    except osl.SurgeonError:  # not a float
        return False
    right = osl.run(path, feeds)
    return not all(osl.compare(wrong[name], right[name]).match for name in right)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def write(path: Path, value: str) -> str:
    """Write a runtime that gets a value wrong; return its name."""
    path.write_text(PROGRAM.format(python=sys.executable, value=value))
    path.chmod(0o755)
    return f"command:{path}"


def named(found: osl.BisectResult, path: Path, value: str) -> bool:
    """Return whether the first culprit, or the innermost in its body, makes the value."""
    if found.verdict != "mismatch" or not found.culprits:
        return False
    innermost, _ = found.innermost()
    return innermost.culprits[0].value == value or value in innermost.culprits[0].outputs


def main() -> None:
    """Print a line for each bisection, and the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, path, feeds in models(Path(folder)):
            if not re.search(given.only, name):
                continue
            for right in ("reference", "openvino,INFERENCE_PRECISION_HINT=f32"):
                begun = time.perf_counter()
                found = osl.bisect(
                    path, a="runtime=ort", b=f"runtime={right}", feeds=feeds, quick=True
                )
                print(
                    f"{name}: {right}: {found.verdict} {time.perf_counter() - begun:.1f} s",
                    flush=True,
                )
            good, total = 0, 0
            for value, op_type in faults(path, feeds, given.faults, given.seed):
                program = write(path.with_suffix(".wrong"), value)
                for how in ("", ",inner=no"):
                    begun = time.perf_counter()
                    found = osl.bisect(
                        path, a="runtime=ort", b=f"runtime={program}{how}", feeds=feeds, cause=False
                    )
                    right_one = named(found, path, value)
                    good, total = good + right_one, total + 1
                    seen = "named" if right_one else f"NOT NAMED: {found}"
                    took = time.perf_counter() - begun
                    print(f"{name}: {op_type} {value!r}{how}: {seen} {took:.1f} s", flush=True)
            print(f"{name}: {good} of {total} named first", flush=True)


if __name__ == "__main__":
    main()
