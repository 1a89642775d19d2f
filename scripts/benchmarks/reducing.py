"""`scripts/bench reduce`: the smallest failing model, beside Polygraphy's `debug reduce`, on the planted failures.

Both ask the same program whether a model fails; it counts how often it was asked. The program looks for a pattern of
operators in the model, as a converter that refuses it would, or runs it with onnxruntime on ones: a question takes the
same time for both. `as small` is the question that found as few nodes as Polygraphy left, or the fewest. Those after it
make inputs, numbers, names and attributes plainer, and show that nothing can be left out. It ends with 1 where a result
is larger than Polygraphy's, or took more questions to be as small.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import ModelProto

from failures import CHECK, FAILURES, branches, cnn, within

RUN = {
    "missing operator": "is not a registered",
    "missing operator, in a branch": "is not a registered",
    "missing kernel": "(Erf)",
    "kernel that crashes": "crash",
    "kernel that crashes, in a branch": "crash",
    "NaN": "nan",
    "infinity": "inf",
    "If whose branch has a missing operator": "is not a registered",
    "Scan whose body crashes": "crash",
    "shape error three functions deep": "Reshape",
    "index out of range": "out of data bounds",
    "sequence": "Invalid sequence index",
    "optional": "OptionalGetElement",
    "quantized model": "is not a registered",
    "attention block": "MultiHeadAttention",
}
"""Planted failures that a run on ones shows -> what its error says."""
CASES = {
    "chain, one operator": (lambda: within("out = Softplus (h)", "out"), "both-Softplus"),
    "two branches, one operator": (lambda: branches("out = Softplus (h)", "out"), "both-Softplus"),
    "chain, Clip without min": (
        lambda: within("top = Constant <value = float {1.0}> ()  out = Clip (h, , top)", "out"),
        "Clip-without-min",
    ),
    "chain, three in a row": (
        lambda: within("m = Mul (h, h)  e = Exp (m)  out = Sub (e, h)", "out"),
        "fused-Mul-Exp-Sub",
    ),
    "two branches, three in a row": (
        lambda: branches("m = Mul (h, h)  e = Exp (m)  out = Sub (e, h)", "out"),
        "fused-Mul-Exp-Sub",
    ),
    "two operators far apart": (FAILURES["two operators far apart"].make, "both-Softplus-Softsign"),
    "CNN of 200 nodes": (cnn, "both-Fonv"),
    **{name: (FAILURES[name].make, f"run-{what}") for name, what in RUN.items()},
}
TOOLS = ("onnxdbg", "polygraphy")


def main(names: Sequence[str]) -> int:
    """Measure; return 1 where a result is larger than Polygraphy's, or took more questions to be as small."""
    print(f"{'':40} {'':>5}   {'onnxdbg':>24}   {'polygraphy':>16}")
    print(
        f"{'case':40} {'nodes':>5}   {'nodes':>6} {'as small':>8} {'asked':>8}   {'nodes':>6} {'asked':>8}"
    )
    worse = 0
    for name in names or CASES:
        make, what = CASES[name]
        model = make()
        ours, theirs = (measure(tool, model, what) for tool in TOOLS)
        assert ours, f"{name}: nothing was found"
        least = theirs[0] if theirs else ours[0]
        soon = 1 + next(i for i, (nodes, fails) in enumerate(ours[1]) if fails and nodes <= least)
        worse += theirs is not None and (ours[0] > theirs[0] or soon > len(theirs[1]))
        cells = [f"{ours[0]:6} {soon:8} {len(ours[1]):8}"]
        cells += [f"{theirs[0]:6} {len(theirs[1]):8}" if theirs else f"{'-':>6} {'-':>8}"]
        print("   ".join([f"{name:40} {len(model.graph.node):5}", *cells]), flush=True)
    return int(worse > 0)


Asked = list[tuple[int, bool]]
"""How many nodes each question was about, and whether they failed."""


def measure(tool: str, model: ModelProto, what: str) -> tuple[int, Asked] | None:
    """Return the nodes left, and the questions; None where no model that fails is left."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx.save(model, folder / "model.onnx")
        (folder / "check.sh").write_text(
            f"ASKED={folder}/log {sys.executable} {CHECK} '{what}' \"$1\"\n"
            f"code=$?\necho $code >> {folder}/log\nexit $code\n"
        )
        run = [sys.executable, "-m", "onnxsurgeon_lite", "reduce", "model.onnx", "-o", "small"]
        run += ["--command", f"sh {folder}/check.sh {{model}}"]
        left = folder / "small" / "model.onnx"
        if tool == "polygraphy":
            left = folder / "left.onnx"
            program = Path(sys.executable).with_name("polygraphy")
            started = [str(program)] if program.exists() else [shutil.which("polygraphy") or ""]
            run = [*started, "debug", "reduce", "model.onnx", "-o", str(left)]
            run += ["--check", "sh", f"{folder}/check.sh", "polygraphy_debug.onnx"]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
        asked = questions(folder / "log")
        if left.exists():
            subprocess.run(["sh", folder / "check.sh", left], capture_output=True, check=False)
            ((nodes, fails),) = questions(folder / "log")[len(asked) :]
            if fails:
                return nodes, asked
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        return None


def questions(log: Path) -> Asked:
    """Read what was asked so far."""
    lines = log.read_text().splitlines() if log.exists() else []
    pairs = (line.split() for line in lines)
    return [(int(nodes), code != "0") for nodes, code in pairs]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
