"""What causes cost: the time of their search as a share of the bisection, and memory, on GPT-2 and ResNet-50.

    python scripts/causes/costs.py FOLDER [gpt2] [resnet]

FOLDER keeps the models (1 GB). Needs the test extra (torch, transformers).
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import onnxsurgeon_lite as osl

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from measuring import Command, launch

EXPORT = """
import sys, torch, transformers as t
torch.manual_seed(0)
if sys.argv[1] == "gpt2":
    config = t.GPT2Config(use_cache=False, attn_implementation="eager")
    module, given, out = t.GPT2LMHeadModel(config), torch.randint(0, 50257, (1, 64)), "logits"
else:
    module = t.ResNetForImageClassification(t.ResNetConfig())
    given, out = torch.randn(1, 3, 224, 224), "logits"
class One(torch.nn.Module):
    def forward(self, given):
        return getattr(module(given), out)
one = One()
one.module = module
torch.onnx.export(one.eval(), (given,), sys.argv[2], dynamo=True, external_data=False, input_names=["given"],
                  output_names=["made"], opset_version=18)
"""


def middle(model: osl.Model, op_type: str) -> str:
    """The name of the node of an operator in the middle of a model."""
    names = [node.name for node in model.proto.graph.node if node.op_type == op_type]
    return names[len(names) // 2]


def epsilon(model: osl.Model) -> osl.Model:
    return osl.set_attr(model, middle(model, "LayerNormalization"), {"epsilon": 0.05}).model


def dilation(model: osl.Model) -> osl.Model:
    nodes = [n for n in model.proto.graph.node if n.op_type == "Conv"]
    node = [n for n in nodes if any(a.name == "pads" and max(a.ints) == 1 for a in n.attribute)]
    wrong = {"dilations": [2, 2], "pads": [2, 2, 2, 2]}
    return osl.set_attr(model, node[len(node) // 2].name, wrong).model


def noise(op_type: str) -> Callable[[osl.Model], osl.Model]:
    """Numbers that no known mistake explains, and that need all families to be tried, under a name of their own."""

    def plant(model: osl.Model) -> osl.Model:
        name = middle(model, op_type)
        node = next(n for n in model.proto.graph.node if n.name == name)
        tensor = next(t for t in model.proto.graph.initializer if t.name == node.input[1])
        right = model.array(tensor)
        wrong = right + np.random.default_rng(0).normal(0, right.std(), right.shape)
        noisy = osl.set_constant(model, node.input[1], wrong.astype(right.dtype)).model
        return osl.rename(noisy, {node.input[1]: "noise"}).model

    return plant


FAULTS = {
    "gpt2": {"epsilon": epsilon, "noise in a weight": noise("Gemm")},
    "resnet": {"dilation": dilation, "noise in a weight": noise("Conv")},
}


def main(folder: Path, networks: Sequence[str]) -> None:
    for network in networks:
        faults = FAULTS[network]
        good = folder / f"{network}.onnx"
        if not good.exists():
            launch(Command("export", [sys.executable, "-c", EXPORT, network, good]))
        for fault, plant in faults.items():
            wrong = folder / f"{network}_wrong.onnx"
            osl.save(plant(osl.load(good)), wrong, force=True)
            argv = [sys.executable, "-m", "onnxsurgeon_lite", "bisect", wrong, "--against", good]
            argv += ["-o", folder / "culprit", "--force"]
            plain, _ = launch(Command("without", [*argv, "--no-cause"], exit_code=1))
            full, log = launch(Command("with", argv, exit_code=1))
            time = (full.seconds - plain.seconds) / plain.seconds
            memory = full.megabytes / plain.megabytes
            print(
                f"{network}, {fault}: bisection {plain.seconds:.1f} s, its causes {time:.2f} times that;"
                f" memory {memory:.2f} times {plain.megabytes:.0f} MB",
                flush=True,
            )
            print(*(line for line in log.splitlines() if line.startswith("  cause:")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or [*FAULTS])
