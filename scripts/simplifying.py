"""Measure `onnxdbg edit simplify` side by side with onnxsim and OnnxSlim: nodes left, right or not, seconds.

``python scripts/simplifying.py --peers PYTHON MODEL...``: PYTHON is an interpreter that has onnxsim, onnxslim and
onnxruntime. Each tool runs in a process of its own, on the same file, the tools one after another. Nodes that hold
constants do not count. A result is right when onnxruntime gives the same outputs for the same feeds, at two sizes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

_TOOLS = {
    "onnxdbg": "import onnxsurgeon_lite as osl; osl.save(osl.simplify({source!r}, limit=1 << 31).model, {target!r})",
    "onnxdbg, unproved": "import onnxsurgeon_lite as osl\n"
    "osl.save(osl.simplify({source!r}, limit=1 << 31, unproved=True).model, {target!r})",
    "onnxsim": "import onnx, onnxsim; onnx.save(onnxsim.simplify({source!r})[0], {target!r})",
    "onnxslim": "import onnx, onnxslim; onnx.save(onnxslim.slim({source!r}), {target!r})",
}
_TIMED = "import time; start = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
_COMPARE = """
import json, sys
import numpy as np, onnx, onnxruntime
one, two = sys.argv[1:]
nodes = [node.op_type for node in onnx.load(two, load_external_data=False).graph.node]
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
options.log_severity_level = 4
sessions = [onnxruntime.InferenceSession(path, options) for path in (one, two)]
kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": bool, "tensor(int32)": np.int32}
worst, ran = 0.0, 0
for number, step in enumerate((1, 32)):
    rng, sizes = np.random.default_rng(number), {}
    feeds = {}
    for info in sessions[0].get_inputs():
        shape = [d if isinstance(d, int) else sizes.setdefault(d, step * (len(sizes) + 2)) for d in info.shape]
        numbers = rng.normal(size=shape) if "float" in info.type else rng.integers(0, 2, shape)
        feeds[info.name] = numbers.astype(kinds[info.type])
    try:
        expected = sessions[0].run(None, feeds)
    except Exception:
        continue
    ran += 1
    for a, b in zip(expected, sessions[1].run(None, feeds)):
        scale = max(float(np.abs(a.astype(np.float64)).max(initial=0)), 1e-9)
        gap = np.abs(a.astype(np.float64) - b).max(initial=0) if a.shape == b.shape else np.inf
        worst = max(worst, float(gap) / scale)
print(json.dumps([len(nodes) - nodes.count("Constant"), worst if ran else None]))
"""


def measured(python: str, peers: str, tool: str, model: Path, folder: Path) -> list[str]:
    """Return the row of one tool: nodes left, what it says of being right, seconds."""
    target = str(folder / f"{model.stem}.{tool.partition(',')[0]}.onnx")
    Path(target).unlink(missing_ok=True)
    code = _TIMED.format(code=_TOOLS[tool].format(source=str(model), target=target))
    own = python if tool.startswith("onnxdbg") else peers
    done = subprocess.run([own, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        return [tool, "-", f"fails: {done.stderr.strip().splitlines()[-1][:80]}", "-"]
    seconds = float(done.stdout.strip().splitlines()[-1])
    compared = subprocess.run(
        [peers, "-c", _COMPARE, str(model), target], capture_output=True, text=True, check=False
    )
    if compared.returncode:
        return [tool, "-", "does not run", f"{seconds:.2f}"]
    nodes, worst = json.loads(compared.stdout.strip().splitlines()[-1])
    right = (
        "not run" if worst is None else "right" if worst < 1e-4 else f"WRONG: off by {worst:.2g}"
    )
    return [tool, str(nodes), right, f"{seconds:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has the peers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models:
            rows = [
                measured(sys.executable, given.peers, tool, model, Path(folder)) for tool in _TOOLS
            ]
            sys.stdout.write(f"{model.name}\n")
            for tool, nodes, right, seconds in rows:
                sys.stdout.write(f"  {tool:18} {nodes:>6} nodes  {seconds:>7} s  {right}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
