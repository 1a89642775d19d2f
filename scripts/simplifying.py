"""Measure `onnxdbg edit simplify` side by side with onnxsim and OnnxSlim: nodes left, right or not, seconds.

``python scripts/simplifying.py --peers PYTHON MODEL...``: PYTHON is an interpreter that has onnxsim, onnxslim and
onnxruntime. Without models, those of OnnxSlim's and onnxsim's own tests, rebuilt. Each tool runs in a process of its
own, on the same file, the tools one after another. Nodes that hold constants do not count. A result is right when
onnxruntime gives the same outputs for the same feeds, at two sizes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

_TOOLS = {
    "onnxdbg": "import onnxsurgeon_lite as osl; osl.save(osl.simplify({source!r}, limit=1 << 31).model, {target!r})",
    "onnxdbg, unproved": "import onnxsurgeon_lite as osl\n"
    "osl.save(osl.simplify({source!r}, limit=1 << 31, unproved=True).model, {target!r})",
    "onnxsim": "import onnx, onnxsim; onnx.save(onnxsim.simplify({source!r})[0], {target!r})",
    "onnxslim": "import onnx, onnxslim; onnx.save(onnxslim.slim({source!r}), {target!r})",
}
_CONV = "float[1,3,16,16] x) => (float[1,4,14,14] y) <float[4,3,3,3] w = {W}, "
_EXAMPLES = {
    "conv_mul": _CONV + "float[1,4,1,1] k = {S}> { c = Conv (x, w) y = Mul (c, k) }",
    "conv_add": _CONV + "float[1,4,1,1] k = {S}> { c = Conv (x, w) y = Add (c, k) }",
    "conv_bn": _CONV
    + "float[4] k = {S}> { c = Conv (x, w) y = BatchNormalization (c, k, k, k, k) }",
    "pad_conv": "float[1,3,14,14] x) => (float[1,4,14,14] y) "
    "<float[4,3,3,3] w = {W}, int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> "
    "{ c = Pad (x, p) y = Conv (c, w) }",
    "matmul_add": "float[1,4] x) => (float[1,4] y) <float[4,4] w = {M}, float[4] k = {S}> "
    "{ c = MatMul (x, w) y = Add (c, k) }",
    "concat_concat": "float[1,3] x) => (float[1,3] y) { c = Concat <axis = 1> (x) y = Concat <axis = 1> (c) }",
    "reshape_reshape": "float[1,3,4,4] x) => (float[1,12,2,2] y) <int64[3] p = {1, 12, 4}, int64[4] q = {1, 12, 2, 2}> "
    "{ c = Reshape (x, p) y = Reshape (c, q) }",
    "reshape_output": "float[2,3] x) => (float[3,2] c, float[6] y) <int64[2] p = {3, 2}, int64[1] q = {6}> "
    "{ c = Reshape (x, p) y = Reshape (c, q) }",
    "slice_slice": "float[9,9] x) => (float[5,5] y) "
    "<int64[1] a = {1}, int64[1] b = {6}, int64[1] o = {0}, int64[1] i = {1}> "
    "{ c = Slice (x, a, b, o) y = Slice (c, a, b, i) }",
    "unsqueeze_squeeze": "float[3,4] x) => (float[3,4] y) <int64[1] o = {0}> "
    "{ c = Unsqueeze (x, o) y = Squeeze (c, o) }",
    "unsqueeze_unsqueeze": "float[3,4] x) => (float[3,4,1,1] y) <int64[1] o = {-1}> "
    "{ c = Unsqueeze (x, o) y = Unsqueeze (c, o) }",
    "reduce_unsqueeze": "float[3,4] x) => (float[3,1] y) <int64[1] o = {1}> "
    "{ c = ReduceSum <keepdims = 0> (x, o) y = Unsqueeze (c, o) }",
    "transpose_view": "float[2,3,4] x) => (float[2,3,1,4] y) <int64[1] o = {1}> "
    "{ t = Transpose <perm = [0, 2, 1]> (x) u = Unsqueeze (t, o) y = Transpose <perm = [0, 3, 1, 2]> (u) }",
    "equal_nodes": "float[3] x) => (float[3] y) { a = Exp (x) b = Exp (x) y = Mul (a, b) }",
    "shape_chain": "float[n,3,4] x) => (float[a,b] y) <int64[1] o = {0}, int64[1] m = {-1}> "
    "{ s = Shape (x) g = Gather (s, o) t = Concat <axis = 0> (g, m) y = Reshape (x, t) }",
    "identity_cast": "float[3] x) => (float[3] y) "
    "{ a = Identity (x) b = Cast <to = 1> (a) d = Dropout (b) y = Neg (d) }",
    "if_constant": "float[3] x) => (float[3] y) <bool k = {1}> "
    "{ y = If (k) <then_branch = t () => (float[3] u) { u = Neg (x) }, "
    "else_branch = e () => (float[3] v) { v = Exp (x) }> }",
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


def examples(folder: Path) -> list[Path]:
    """Write the models of the peers' tests, with numbers for W, M and S."""
    rng = np.random.default_rng(0)
    numbers = {
        key: ", ".join(f"{n:.4f}" for n in rng.uniform(0.5, 1, size))
        for key, size in (("W", 108), ("M", 16), ("S", 4))
    }
    for name, graph in _EXAMPLES.items():
        for key, written in numbers.items():
            graph = graph.replace("{" + key + "}", "{" + written + "}")
        text = f'<ir_version: 8, opset_import: ["" : 17]> {name} ({graph}'
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
    return [folder / f"{name}.onnx" for name in _EXAMPLES]


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
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--peers", default=sys.executable, help="interpreter that has the peers")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models or examples(Path(folder)):
            rows = [
                measured(sys.executable, given.peers, tool, model, Path(folder)) for tool in _TOOLS
            ]
            sys.stdout.write(f"{model.name}\n")
            for tool, nodes, right, seconds in rows:
                sys.stdout.write(f"  {tool:18} {nodes:>6} nodes  {seconds:>7} s  {right}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
