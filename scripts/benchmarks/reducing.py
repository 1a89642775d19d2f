"""`scripts/bench reduce`: the smallest failing model, beside Polygraphy's `debug reduce`, on the planted failures.

Both ask the same program whether a model fails; it counts how often it was asked. The program looks for a pattern of
operators in the model, as a converter that refuses it would, or runs it with onnxruntime on ones: a question takes the
same time for both. To onnxdbg `--says` gives the words that the program looks for.

`bisect` is Polygraphy's default mode; `linear` goes on from what that left, and tries each node at the ends: `both` has
the questions of the two. `as small` is our question that found as few nodes as Polygraphy left, or the fewest. Those
after it make inputs, numbers, names and attributes plainer, and show that nothing can be left out; the last one is the
proof in a new process. It ends with 1 where a result is larger than Polygraphy's, where it took as many questions as
`bisect` to be as small, or in all as many as `both` where these left as few nodes.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

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
SAYS = {f"run-{what}": what for what in RUN.values() if what not in ("crash", "nan", "inf")}
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


def main(names: Sequence[str]) -> int:
    """Measure; return 1 where a result is larger than Polygraphy's, or took more questions."""
    print(f"{'':46}   {'onnxdbg':24}   {'bisect':12}   both")
    print(f"{'case':40} nodes     left as small  asked     left  asked     left  asked")
    worse = 0
    for name in names or CASES:
        make, what = CASES[name]
        model = make()
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            onnx.save(model, folder / "model.onnx")
            ours = measure(folder, what)
            bisect = measure(folder, what, "bisect", "model.onnx")
            linear = measure(folder, what, "linear", "bisect.onnx") if bisect else None
        assert ours, f"{name}: nothing was found"
        both = (linear[0], [*bisect[1], *linear[1]]) if bisect and linear else None
        least = min((each[0] for each in (bisect, both) if each), default=ours[0])
        soon = 1 + next(i for i, (nodes, fails) in enumerate(ours[1]) if fails and nodes <= least)
        worse += ours[0] > least or bisect is not None and soon >= len(bisect[1])
        worse += both is not None and both[0] == ours[0] and len(ours[1]) >= len(both[1])
        cells = [f"{ours[0]:6} {soon:8} {len(ours[1]):6}"]
        cells += [f"{e[0]:6} {len(e[1]):6}" if e else f"{'-':>6} {'-':>6}" for e in (bisect, both)]
        print("   ".join([f"{name:40} {len(model.graph.node):5}", *cells]), flush=True)
    return int(worse > 0)


Asked = list[tuple[int, bool]]
"""How many nodes each question was about, and whether they failed."""


def measure(
    folder: Path, what: str, mode: str = "", model: str = "model.onnx"
) -> tuple[int, Asked] | None:
    """Return the nodes that onnxdbg leaves, or a mode of Polygraphy, and the questions; None where none fails."""
    log, left = folder / f"log{mode}", folder / (f"{mode}.onnx" if mode else "small/model.onnx")
    check = folder / "check.sh"
    check.write_text(
        f"ASKED={log} {sys.executable} {CHECK} '{what}' \"$1\"\n"
        f"code=$?\necho $code >> {log}\nexit $code\n"
    )
    if mode:
        program = Path(sys.executable).with_name("polygraphy")
        started = str(program) if program.exists() else shutil.which("polygraphy") or ""
        run = [started, "debug", "reduce", model, "-o", str(left), "--mode", mode]
        run += ["--check", "sh", str(check), "polygraphy_debug.onnx"]
    else:
        run = [sys.executable, "-m", "onnxsurgeon_lite", "reduce", model, "-o", "small"]
        run += ["--command", f"sh {check} {{model}}", "--says", SAYS.get(what, "")]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    asked = questions(log)
    if left.exists():
        subprocess.run(["sh", check, left], capture_output=True, check=False)
        ((nodes, fails),) = questions(log)[len(asked) :]
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
