"""How the cost grows: `scripts/bench scaling` measures sizes a factor of ten apart, and fits exponents.

Chains and other graphs by their nodes, weights by their bytes (files with holes), references by their values, samples
by their number. Beside each figure stands its limit: process start, bytes and inferences without this program.
"""

import argparse
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from measuring import ONNXDBG, BenchError, Command, Run, err, launch, python

_STEEPEST = 1.1
_WIDTH = 64  # elements of a value
_BLOCK = 1 << 26  # bytes of a weight
_LOAD = "import sys, onnx; onnx.load(sys.argv[1], load_external_data=False)"
_RUN = """
import sys, pathlib, numpy as np, onnx, onnxruntime as ort
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
for path in sorted(pathlib.Path(sys.argv[2]).rglob("input_0.pb")):
    session.run(None, {"v0": onnx.numpy_helper.to_array(onnx.load_tensor(path))})
"""


@dataclass(frozen=True)
class Series:
    """One axis: `make` writes a model of a size into a folder, and returns our command and its limit."""

    axis: str
    sizes: Sequence[float]
    make: Callable[[Path, float], tuple[Command, Command]]


@dataclass(frozen=True)
class Point:
    """What a size took."""

    size: float
    ours: Run
    limit: Run


def chain(count: int) -> list[NodeProto]:
    """Each node reads the one before it."""
    return [helper.make_node("Add", [f"v{i}", "one"], [f"v{i + 1}"]) for i in range(count)]


def graph(count: int) -> list[NodeProto]:
    """Each node reads the one before it, and one further up."""
    back = np.random.default_rng(0).integers(1, 50, count)
    return [
        helper.make_node("Mul", [f"v{i}", f"v{max(0, i - int(back[i]))}"], [f"v{i + 1}"])
        for i in range(count)
    ]


def _model(nodes: Sequence[NodeProto], initializers: Iterable[TensorProto] = ()) -> ModelProto:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [_WIDTH])
        for name in ("v0", nodes[-1].output[0])
    ]
    one = numpy_helper.from_array(np.full(_WIDTH, 0.5, np.float32), "one")
    made = helper.make_graph(nodes, "scaling", ends[:1], ends[1:], [one, *initializers])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _cut(
    nodes: Callable[[int], list[NodeProto]],
) -> Callable[[Path, float], tuple[Command, Command]]:
    """Ten nodes from the middle."""

    def make(folder: Path, size: float) -> tuple[Command, Command]:
        path, middle = folder / "model.onnx", int(size) // 2
        path.write_bytes(_model(nodes(int(size))).SerializeToString())
        argv = [ONNXDBG, "extract", path, "--outputs", f"v{middle}"]
        for i in range(middle - 60, middle - 9):
            argv += ["--inputs", f"v{i}"]
        ours = Command("extract", [*argv, "-o", folder / "out" / "cut.onnx"], folder / "out")
        return ours, Command("onnx.load", python(_LOAD, path))

    return make


def _weights(folder: Path, size: float) -> tuple[Command, Command]:
    """Cut one product out of many; the data file has holes, and takes no room."""
    count = max(1, round(size * 1e9 / _BLOCK))
    side = _BLOCK // 4 // _WIDTH
    weights, nodes = [], []
    for i in range(count):
        weight = TensorProto(name=f"w{i}", dims=[_WIDTH, side], data_type=TensorProto.FLOAT)
        weight.data_location = TensorProto.EXTERNAL
        place = {"location": "model.data", "offset": i * _BLOCK, "length": _BLOCK}
        for key, value in place.items():
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
        nodes += [
            helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"m{i}"]),
            helper.make_node("ReduceSum", [f"m{i}"], [f"s{i}"]),
            helper.make_node("Add", [f"s{i}", f"v{i}"], [f"v{i + 1}"]),
        ]
    path, last = folder / "model.onnx", count - 1
    path.write_bytes(_model(nodes, weights).SerializeToString())
    with (folder / "model.data").open("wb") as file:
        file.truncate(count * _BLOCK)
    argv = [ONNXDBG, "extract", path, "--inputs", f"v{last}", "--outputs", f"m{last}"]
    ours = Command("extract", [*argv, "-o", folder / "out" / "cut.onnx"], folder / "out")
    block = f"open(sys.argv[1][:-4] + 'data', 'rb').read({_BLOCK})"
    return ours, Command("onnx.load, read a block", python(f"{_LOAD}; {block}", path))


def _planted(folder: Path, count: int) -> np.ndarray:
    """Write a chain whose middle node subtracts; return what its values add to the input."""
    nodes = chain(count)
    nodes[count // 2].op_type = "Sub"
    (folder / "model.onnx").write_bytes(_model(nodes).SerializeToString())
    return np.arange(count + 1, dtype=np.float32) / 2


def _bisect(folder: Path, references: Path) -> tuple[Command, Command]:
    model = folder / "model.onnx"
    argv = [ONNXDBG, "bisect", model, "--reference", references, "-o", folder / "out", "--force"]
    ours = Command("bisect", argv, folder / "out", exit_code=1)
    return ours, Command("session, runs", python(_RUN, model, folder))


def _references(folder: Path, size: float) -> tuple[Command, Command]:
    """Every value of a chain has a reference."""
    added = _planted(folder, int(size))
    x = np.linspace(0, 1, _WIDTH, dtype=np.float32)
    np.savez(folder / "references.npz", **{f"v{i}": x + more for i, more in enumerate(added)})
    _write_sample(folder / "test_data_set_0", x, added[-1], f"v{int(size)}")
    return _bisect(folder, folder / "references.npz")


def _samples(folder: Path, size: float) -> tuple[Command, Command]:
    """Every sample has its input and its output."""
    added = _planted(folder, 100)
    for i in range(int(size)):
        x = np.linspace(i, i + 1, _WIDTH, dtype=np.float32)
        _write_sample(folder / "sets" / f"test_data_set_{i}", x, added[-1], "v100")
    return _bisect(folder, folder / "sets")


def _write_sample(folder: Path, x: np.ndarray, more: float, output: str) -> None:
    folder.mkdir(parents=True)
    for kind, name, array in (("input", "v0", x), ("output", output, x + more)):
        onnx.save_tensor(numpy_helper.from_array(array, name), folder / f"{kind}_0.pb")


SERIES = {
    "chain": Series("nodes of a chain", (1e3, 1e4, 1e5, 1e6), _cut(chain)),
    "graph": Series("nodes of a graph", (1e3, 1e4, 1e5, 1e6), _cut(graph)),
    "weights": Series("GB of weights", (0.1, 1, 10, 20), _weights),
    "references": Series("values with references", (10, 100, 1e3, 1e4), _references),
    "samples": Series("samples", (1, 10, 100), _samples),
}


def measure(series: Series, root: Path, rounds: int, most: float) -> Iterator[Point]:
    """Measure every size; ours and the limit alternate, the fastest run of each counts."""
    for size in series.sizes:
        if size > most:
            continue
        with _folder(root) as folder:
            ours, limit = series.make(folder, size)
            launch(ours)  # compiles what is not compiled yet, and fills the page cache
            runs = [[launch(command)[0] for command in (ours, limit)] for _ in range(rounds)]
            best = [min(column, key=lambda run: run.cpu) for column in zip(*runs, strict=True)]
            err.print(f"{series.axis}: {size:g}", style="dim")
            yield Point(size, *best)


@contextlib.contextmanager
def _folder(root: Path) -> Iterator[Path]:
    folder = root / "scaling"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def exponents(points: Sequence[Point], what: str) -> list[float]:
    """Return the slopes between neighbors, in a drawing with two logarithmic axes."""
    return [
        float(np.log(getattr(b.ours, what) / getattr(a.ours, what)) / np.log(b.size / a.size))
        for a, b in pairwise(points)
    ]


def table(name: str, points: Sequence[Point]) -> list[str]:
    """Return the lines of a Markdown table."""
    steps = [
        ("", ""),
        *zip(*(exponents(points, what) for what in ("cpu", "megabytes")), strict=True),
    ]
    lines = [
        f"| {SERIES[name].axis} | s | exponent | limit s | MB | exponent | limit MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for point, slopes in zip(points, steps, strict=True):
        time, memory = (f"{slope:.2f}" if slope != "" else "" for slope in slopes)
        ours, limit = point.ours, point.limit
        lines.append(
            f"| {point.size:g} | {ours.cpu:.2f} | {time} | {limit.cpu:.2f} "
            f"| {ours.megabytes:.0f} | {memory} | {limit.megabytes:.0f} |"
        )
    return lines


def draw(found: dict[str, list[Point]], path: Path) -> None:
    """Draw processor time and memory, a column a series."""
    from matplotlib import pyplot

    pyplot.rcParams["svg.fonttype"] = "none"
    figure, rows = pyplot.subplots(
        2, len(found), figsize=(3 * len(found), 5), sharey="row", squeeze=False
    )
    for what, unit, axes in (("cpu", "s", rows[0]), ("megabytes", "MB", rows[1])):
        for axis, (name, points) in zip(axes, found.items(), strict=True):
            sizes = [point.size for point in points]
            for side, style in (("ours", "o-"), ("limit", "x--")):
                values = [getattr(getattr(point, side), what) for point in points]
                axis.loglog(sizes, values, style, label=side)
            axis.set_xlabel(SERIES[name].axis)
        axes[0].set_ylabel(unit)
        axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Measure and show; 1 when something grows faster than it should."""
    parser = argparse.ArgumentParser(prog="scripts/bench scaling", description=__doc__)
    parser.add_argument("series", nargs="*", metavar="SERIES", help=f"of {', '.join(SERIES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=float, default=float("inf"), help="the largest size")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw it, too")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/onnxsurgeon-bench"))
    given = parser.parse_args()
    if unknown := [name for name in given.series if name not in SERIES]:
        parser.error(f"no series {unknown[0]!r}; there are: {', '.join(SERIES)}")
    found = {}
    try:
        for name in given.series or SERIES:
            found[name] = [*measure(SERIES[name], given.folder, given.rounds, given.most)]
            print("\n".join([*table(name, found[name]), ""]), flush=True)
    except BenchError as error:
        err.print(f"error: {error}", markup=False)
        return 2
    if given.plot:
        draw(found, given.plot)
    steep = [
        n
        for n, p in found.items()
        for w in ("cpu", "megabytes")
        if max(exponents(p, w), default=0) > _STEEPEST
    ]
    return int(bool(steep))


if __name__ == "__main__":
    sys.exit(main())
