"""Time and peak memory of whole processes, two commands in alternation, as ratios.

Peak memory is the largest resident set of any one process that a command starts. This process stays small and
imports little, because a new process's figure begins with what its parent held.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
PYTHON, ONNXDBG = sys.executable, str(BIN / "onnxdbg")

Command = list[str]

SIZES_GB = {"single": 1.95, "huge": 2.55, "external": 4.03, "chain": 0.01, "dpt": 2.0, "gpt2": 1.5}
SCRATCH_GB = 3.0

GRAPHSURGEON = """
import sys, numpy as np, onnx, onnx_graphsurgeon as gs
source, start, end, out, shape = sys.argv[1:]
graph = gs.import_onnx(onnx.load(source))
tensors = graph.tensors()
graph.inputs = [tensors[start].to_variable(np.float32, eval(shape))]
graph.outputs = [tensors[end].to_variable(np.float32, eval(shape))]
onnx.save(gs.export_onnx(graph.cleanup()), out)
"""
ONNX_UTILS = """
import sys, onnx.utils
source, start, end, out, _ = sys.argv[1:]
onnx.utils.extract_model(source, out, [start], [end])
"""
SESSION = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
SAVE = "import sys, onnxsurgeon_lite as osl; osl.save(osl.load(sys.argv[1]), sys.argv[2])"
MOVABLE = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
TYPER = """
import typer
app = typer.Typer()
@app.command()
def one(): "One."
@app.command()
def two(): "Two."
app()
"""


@dataclass
class Measured:
    """What one comparison gave: seconds, MB, and the median ratio with its range."""

    row: str
    ours: float
    theirs: float
    ratio: float
    low: float
    high: float
    our_mb: float
    their_mb: float
    target: str
    reached: bool


@dataclass
class Bench:
    """One run: where the models are, how often each pair is timed, what came out."""

    folder: Path
    rounds: int
    results: list[Measured] = field(default_factory=list)

    def model(self, name: str) -> Path:
        """A model, made when it is not there yet."""
        path = self.folder / f"{name}.onnx"
        done = self.folder / f"{name}.done"
        if not done.exists():
            print(f"making {path} ...", file=sys.stderr, flush=True)
            command = [PYTHON, str(HERE / "bench_models.py"), name, str(self.folder)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            done.touch()
        return path

    def pair(
        self,
        row: str,
        ours: Command,
        theirs: Command,
        time_ratio: float | None = None,
        memory_ratio: float | None = None,
        memory_mb: float | None = None,
        rounds: int | None = None,
        codes: tuple[int, int] = (0, 0),
    ) -> None:
        """Time both commands in alternation, print and keep the figures beside the target."""
        run(ours, codes[0])
        pairs = [(run(ours, codes[0]), run(theirs, codes[1])) for _ in range(rounds or self.rounds)]
        ratios = [a[0] / b[0] for a, b in pairs]
        middle = statistics.median
        our_mb, their_mb = (middle(p[i][1] for p in pairs) for i in (0, 1))
        ratio = middle(ratios)
        wants, reached = [], True
        for limit, actual, unit in (
            (time_ratio, ratio, "x time"),
            (memory_ratio, our_mb / their_mb, "x memory"),
            (memory_mb, our_mb, "MB"),
        ):
            if limit is not None:
                wants.append(f"<= {limit:.3g} {unit}")
                reached = reached and actual <= limit
        self.results.append(
            Measured(
                row,
                middle(p[0][0] for p in pairs),
                middle(p[1][0] for p in pairs),
                ratio,
                min(ratios),
                max(ratios),
                our_mb,
                their_mb,
                ", ".join(wants),
                reached,
            )
        )
        show(self.results[-1])


def run(command: Command, code: int = 0) -> tuple[float, float]:
    """(seconds, MB) of a whole process; MB is the largest resident set in its tree."""
    with tempfile.TemporaryFile() as log:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != code:
            log.seek(0)
            sys.exit(f"{command} ended with {process.returncode}:\n{log.read().decode()[-2000:]}")
    return seconds, usage.ru_maxrss / 1024


def show(m: Measured) -> None:
    """One line."""
    print(
        f"{m.row:<34} {m.ours:7.2f} s {m.theirs:7.2f} s  {m.ratio:6.3f}x ({m.low:.3f}-{m.high:.3f})"
        f"  {m.our_mb:6.0f} MB {m.their_mb:6.0f} MB {m.our_mb / m.their_mb:6.3f}x"
        f"  {m.target}{'' if not m.target else ' reached' if m.reached else ' MISSED'}",
        flush=True,
    )


def ours_extract(model: Path, start: str, end: str, out: Path) -> Command:
    """Our command for a cut."""
    words = ["extract", str(model), "--inputs", start, "--outputs", end, "-o", str(out), "--force"]
    return [ONNXDBG, *words]


def peer(script: str, model: Path, start: str, end: str, out: Path, shape: str) -> Command:
    """A peer's script for a cut."""
    return [PYTHON, "-c", script, str(model), start, end, str(out), shape]


def polygraphy(model: Path, start: str, end: str, out: Path) -> Command:
    """Polygraphy's command for a cut."""
    words = ["surgeon", "extract", str(model), "--inputs", f"{start}:[1,4096]:float32"]
    return [str(BIN / "polygraphy"), *words, "--outputs", f"{end}:float32", "-o", str(out)]


def floor(bench: Bench, row: str, ours: Command, written: list[Path]) -> None:
    """The bytes that were written, copied and made durable: nothing can be faster."""
    target = bench.folder / "floor"
    target.mkdir(exist_ok=True)
    names = " ".join(f"'{path}'" for path in written)
    bench.pair(row, ours, ["sh", "-c", f"cp {names} '{target}' && sync '{target}'/*"])


def extract_single(bench: Bench) -> None:
    model, out, theirs = (
        bench.model("single"),
        bench.folder / "ours.onnx",
        bench.folder / "theirs.onnx",
    )
    ours = ours_extract(model, "h14", "h15", out)
    shape = "[1, 4096]"
    graphsurgeon = peer(GRAPHSURGEON, model, "h14", "h15", theirs, shape)
    bench.pair("extract 1.9 GB / graphsurgeon", ours, graphsurgeon, 1 / 12, memory_mb=200)
    floor(bench, "extract 1.9 GB / cp + sync", ours, [out])
    bench.pair(
        "extract 1.9 GB / onnx.utils",
        ours,
        peer(ONNX_UTILS, model, "h14", "h15", theirs, shape),
        rounds=1,
    )
    bench.pair(
        "extract 1.9 GB / polygraphy", ours, polygraphy(model, "h14", "h15", theirs), rounds=1
    )


def extract_external(bench: Bench) -> None:
    model, out, theirs = (
        bench.model("external"),
        bench.folder / "ours.onnx",
        bench.folder / "theirs.onnx",
    )
    ours = ours_extract(model, "h30", "h31", out)
    graphsurgeon = peer(GRAPHSURGEON, model, "h30", "h31", theirs, "[1, 4096]")
    bench.pair("extract 4 GB / graphsurgeon", ours, graphsurgeon, 1 / 20, memory_mb=200)
    floor(bench, "extract 4 GB / cp + sync", ours, [out, out.with_suffix(".data")])
    with tempfile.TemporaryDirectory(dir=bench.folder) as elsewhere:
        for path in (out, out.with_suffix(".data")):
            shutil.move(path, elsewhere)
        run([PYTHON, "-c", MOVABLE, str(Path(elsewhere) / out.name)])


def extract_chain(bench: Bench) -> None:
    model, out, theirs = (
        bench.model("chain"),
        bench.folder / "ours.onnx",
        bench.folder / "theirs.onnx",
    )
    ours = ours_extract(model, "h25000", "h25100", out)
    utils = peer(ONNX_UTILS, model, "h25000", "h25100", theirs, "[4]")
    bench.pair("extract 100 of 50 000 / onnx.utils", ours, utils, 1.0)
    graphsurgeon = peer(GRAPHSURGEON, model, "h25000", "h25100", theirs, "[4]")
    bench.pair("extract 100 of 50 000 / graphsurgeon", ours, graphsurgeon, rounds=1)


def huge(bench: Bench) -> None:
    model, out = bench.model("huge"), bench.folder / "ours.onnx"
    importing = [PYTHON, "-c", "import onnx"]
    bench.pair("inspect 2.5 GB / import onnx", [ONNXDBG, "inspect", str(model)], importing, 3.0)
    ours = ours_extract(model, "h14", "h15", out)
    bench.pair("extract from 2.5 GB / import onnx", ours, importing)
    copy = [
        "sh",
        "-c",
        f"cp '{model}' '{bench.folder}/copy.onnx' && sync '{bench.folder}/copy.onnx'",
    ]
    bench.pair(
        "save 2.5 GB / cp + sync", [PYTHON, "-c", SAVE, str(model), str(out)], copy, rounds=2
    )
    (bench.folder / "copy.onnx").unlink()
    out.unlink()


def session(bench: Bench) -> None:
    model = bench.model("single")
    theirs = [PYTHON, "-c", SESSION, str(model)]
    bench.pair("run 1.9 GB / session", [ONNXDBG, "run", str(model)], theirs, 0.6, 0.6, rounds=3)


def bisect(bench: Bench, name: str, time_ratio: float) -> None:
    model, out = bench.model(name), bench.folder / "culprit"
    wrong, references = model.with_suffix(".wrong.onnx"), model.with_suffix(".npz")
    ours = [
        ONNXDBG,
        "bisect",
        str(wrong),
        "--reference",
        str(references),
        "-o",
        str(out),
        "--force",
    ]
    theirs = [PYTHON, str(HERE / "mark_all.py"), str(wrong), str(references)]
    bench.pair(f"bisect {name} / mark all", ours, theirs, time_ratio, 0.4, codes=(1, 1))
    answer = subprocess.run([*ours, "--json"], capture_output=True, text=True, check=False).stdout
    named, planted = (
        json.loads(answer)["culprits"][0]["value"],
        model.with_suffix(".planted").read_text(),
    )
    if named != planted:
        sys.exit(f"bisect named {named!r}, planted was {planted!r}")


def help_page(bench: Bench) -> None:
    bench.pair(
        "--help / typer's", [ONNXDBG, "--help"], [PYTHON, "-c", TYPER, "--help"], 1.3, rounds=9
    )


ROWS: dict[str, tuple[Callable[[Bench], None], tuple[str, ...]]] = {
    "extract-single": (extract_single, ("single",)),
    "extract-external": (extract_external, ("external",)),
    "extract-chain": (extract_chain, ("chain",)),
    "huge-single": (huge, ("huge",)),
    "session": (session, ("single",)),
    "bisect-dpt": (lambda bench: bisect(bench, "dpt", 0.75), ("dpt",)),
    "bisect-gpt2": (lambda bench: bisect(bench, "gpt2", 0.3), ("gpt2",)),
    "help": (help_page, ()),
}


def main() -> None:
    """Parse, say what disk it takes, measure."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS), default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5, help="pairs to time (default 5)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/onnxsurgeon-bench"))
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    unknown = set(options.rows) - set(ROWS)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(ROWS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    models = {model for row in options.rows for model in ROWS[row][1]}
    missing = [m for m in models if not (options.folder / f"{m}.done").exists()]
    needed = sum(SIZES_GB[m] for m in missing) + SCRATCH_GB
    free = shutil.disk_usage(options.folder).free / 1e9
    print(f"models in {options.folder}: {needed:.1f} GB more are needed, {free:.1f} GB are free")
    if free < needed:
        sys.exit("not enough disk: choose another --folder, or fewer rows")
    print("row, ours, theirs, time ratio (range), our and their peak memory, its ratio, target")
    bench = Bench(options.folder, options.rounds)
    for row in options.rows:
        ROWS[row][0](bench)
    if options.json:
        options.json.write_text(json.dumps([asdict(m) for m in bench.results], indent=2))
    sys.exit(not all(m.reached for m in bench.results))


if __name__ == "__main__":
    main()
