"""`scripts/bench reduce`: the smallest failing model, beside Polygraphy's `debug reduce`, on the planted failures.

Both ask the same program whether a model fails; it counts how often it was asked. The program looks for a pattern of
operators in the model, as a converter that refuses it would: a question takes the same time for both.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import ModelProto

from failures import CHECK, branches, cnn, within

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
    "CNN of 200 nodes": (cnn, "both-Fonv"),
}
TOOLS = ("onnxdbg", "polygraphy")


def main() -> int:
    print(f"{'case':32} {'nodes':>5}   {'onnxdbg':>16}   {'polygraphy':>16}")
    print(f"{'':32} {'':>5}   {'nodes':>6} {'questions':>9}   {'nodes':>6} {'questions':>9}")
    for name, (make, what) in CASES.items():
        model = make()
        cells = [f"{name:32} {len(model.graph.node):5}"]
        for tool in TOOLS:
            nodes, asked = measure(tool, model, what)
            cells.append(f"{nodes:6} {asked:9}")
        print("   ".join(cells), flush=True)
    return 0


def measure(tool: str, model: ModelProto, what: str) -> tuple[int, int]:
    """Return (nodes left, Constant nodes not counted; questions)."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx.save(model, folder / "model.onnx")
        (folder / "check.sh").write_text(
            f'echo asked >> {folder}/log\nexec {sys.executable} {CHECK} {what} "$1"\n'
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
        if not left.exists():
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            return -1, -1
        kept = [node for node in onnx.load(left).graph.node if node.op_type != "Constant"]
        return len(kept), (folder / "log").read_text().count("asked")


if __name__ == "__main__":
    sys.exit(main())
