"""Write a folder that reproduces the mismatch with the culprit alone, to attach to a bug report.

`model.onnx` contains only the culprit; `test_data_set_0/` its inputs, expected outputs and actual outputs in ONNX's
layout; `repro.py` runs it with only onnx, onnxruntime and numpy; `report.md` describes it.
"""

import shutil
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from onnxsurgeon_lite.atomic import NewFolder, write_text
from onnxsurgeon_lite.debug.result import BisectResult, Culprit
from onnxsurgeon_lite.graph import GraphIndex, at, iterations_of
from onnxsurgeon_lite.graph.cut import close
from onnxsurgeon_lite.guard import guarded
from onnxsurgeon_lite.limits import memory_of_children
from onnxsurgeon_lite.matching.judge import LARGEST
from onnxsurgeon_lite.model import Model, load, movable, save
from onnxsurgeon_lite.model.storage import strip
from onnxsurgeon_lite.names import command, python, shown
from onnxsurgeon_lite.passes.extract import submodel
from onnxsurgeon_lite.runtime.float64 import Float64
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.runtime.script import run_to_end, running_script
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import made_with
from onnxsurgeon_lite.system import crashed
from onnxsurgeon_lite.tensors.comparison import Tolerance, texts, titles
from onnxsurgeon_lite.tensors.dtypes import Stored, is_array, numpy_dtype, present, type_of
from onnxsurgeon_lite.tensors.references import open_references, write_test_data
from onnxsurgeon_lite.tensors.statistics import magnitude

_Made = TypeVar("_Made")

_SCRIPT = '''\
"""Run model.onnx on test_data_set_0; exit with 1 if its outputs differ from the expected ones."""
import glob, os, sys, threading
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import numpy as np, onnx, onnxruntime as ort
os.chdir(os.path.dirname(os.path.abspath(__file__)))
def read(kind):
    files = sorted(glob.glob(f"test_data_set_0/{{kind}}_*.pb"))
    return {{t.name: onnx.numpy_helper.to_array(t) for t in map(onnx.load_tensor, files)}}
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.{level}
session = ort.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
expected = read("output")
names = list(expected) or [output.name for output in session.get_outputs()]
{limit}actual = dict(zip(names, session.run(names, read("input"))))
same = {same}
print("agrees" if all(same) else "MISMATCH")
sys.exit(not all(same))
'''
_LIMIT = """\
def late():
    print("it does not end within {seconds:g} seconds", flush=True)
    os._exit(1)
timer = threading.Timer({seconds:g}, late)
timer.daemon = True
timer.start()
"""
_SAME = "[a.shape == expected[n].shape and np.allclose(a, expected[n], {rtol}, {atol}) for n, a in actual.items()]"
# `repro.py` of a search without references: an expression that is True for what was searched
_FREE = {"nan": "np.isnan(a)", "inf": "np.isinf(a)"}  # of what a search without references finds
_COMMAND = Path(__file__).parents[2] / "__main__.py"
_SECONDS = 120.0  # time limit of the script
_HANGS = 5.0  # time limit when the culprit is known to hang
_LATE = 30.0  # the time after which such a script ends by itself


_FILES = r"model\.(onnx|data)|repro\.py|report\.md|test_data_set_0/(input|output|actual)_\d+\.pb|reduced/.*"


@dataclass
class Reproducer:
    """A written reproducer.

    Attributes:
        words: the command that was run and reproduced it; empty if none does.
        shows: True when `repro.py` was run and reproduced it.
    """

    folder: Path
    words: list[str]
    shows: bool


def finished(begun: Generator[None, None, _Made]) -> _Made:
    """Go on to the end, and return what was made."""
    # `reproducing` yields while its script runs, so that a caller can work meanwhile; here nothing else is to be done
    while True:
        try:
            next(begun)
        except StopIteration as stop:
            made: _Made = stop.value
            return made


def reproducing(
    model: Model,
    result: BisectResult,
    folder: Path,
    verify: bool = True,
    runtime: Sequence[str] = (),
) -> Generator[None, None, Reproducer]:
    """Write a reproducer, and yield once while `repro.py` runs.

    With the options of another runtime it takes the command of this package: `repro.py` runs onnxruntime.

    Inputs are the references if they have the model's dtype and the culprit fails on them, else this run's values.
    """
    # a culprit in a body is reproduced by the body as a model
    result, place = result.innermost()
    culprit = result.culprits[0]
    index = GraphIndex.of(result.body or model)
    inputs = {name: result.input_of(culprit, name) for name in culprit.inputs}
    outputs = {
        name: stored
        for name in (culprit.value, *culprit.outputs)
        if (stored := result.tensors[name][0]) is not None and name in index
    }
    # the model may not declare the types of the values that become inputs and outputs
    for name, (_, actual) in result.tensors.items():
        if is_array(actual):
            index.types.setdefault(name, type_of(actual))
    part = submodel(index, close(index, tuple(inputs), tuple(outputs) or (culprit.value,)))
    part.graph.name = f"culprit {culprit.id}"
    given = present(inputs)
    actuals = {n: v for n in outputs if (v := result.tensors[n][1]) is not None}
    with NewFolder(folder, _FILES) as new:
        save(part, new.path / "model.onnx", movable(part))
        write_test_data(new.path / "test_data_set_0", given, outputs, actuals)
        write_text(new.path / "repro.py", _script(result, culprit, outputs))
        # prefer the script that needs no onnxdbg; if it does not show the failure, try the command
        shows = (
            verify and not runtime and (yield from _showing(new.path, "crash" in culprit.verdicts))
        )
        words = ["python", str(folder / "repro.py")]
        if not shows:
            words = _compare(result, folder) + list(runtime)
            if verify and not _mismatches(_compare(result, new.path) + list(runtime)):
                words = []
        made = Reproducer(folder, words, shows)
        write_text(new.path / "report.md", _report(result, culprit, made, place))
        new.commit()
    return made


def strip_weights(made: Reproducer, result: BisectResult) -> str:
    """Replace the weights of a reproducer by noise with the same statistics, if the failure persists.

    Expected outputs for noise cannot come from the references: float64 computes them for a kernel verdict, the
    unoptimized nodes for an optimizer verdict. A crash needs none.

    Returns:
        A sentence on the result; the reproducer does not change when the failure does not persist.
    """
    leading = result.innermost()[0].culprits[0].verdict
    if leading not in ("kernel", "optimizer", "crash"):
        return "kept the weights: for this verdict, noise has no expected outputs"
    with NewFolder(made.folder, _FILES) as new:
        noise, data = new.path / "model.onnx", new.path / "test_data_set_0"
        strip(load(made.folder / "model.onnx"), noise)
        kept = open_references(made.folder / data.name)
        index = GraphIndex.of(load(noise))
        inputs = {name: kept.read(name) for name in index.inputs if name in kept}
        expected = _expected(index, inputs, leading)
        if expected is None:
            return "kept the weights: the expected outputs for noise cannot be computed"
        write_test_data(data, inputs, expected)
        for name in ("repro.py", "report.md"):
            shutil.copy(made.folder / name, new.path / name)
        if not finished(_showing(new.path, leading == "crash")):
            return "kept the weights: with noise the failure disappears"
        new.commit()
    return "replaced the weights by noise of the same statistics; the failure persists"


def _expected(
    index: GraphIndex, inputs: Mapping[str, Stored], leading: str
) -> dict[str, Stored] | None:
    """Compute the expected outputs without the failing component."""
    if leading == "crash":
        return {}
    with Runtime(RuntimeOptions(opt="none", lean=True)) as runtime:
        observer = Observer(index, runtime)
        # with optimization off the nodes are right
        if leading == "optimizer":
            observer.feed(dict(inputs))
            return present(observer.fetch(list(index.outputs)))
        expected = dict[str, Stored]()
        with Float64(observer) as float64:
            for name in index.outputs:
                exact, _ = float64.evaluate(range(len(index.nodes)), inputs, name)
                kind = index.type_of(name)
                if exact is None or kind is None:
                    return None
                expected[name] = exact.astype(numpy_dtype(kind.tensor_type.elem_type))
        return expected


def _script(result: BisectResult, culprit: Culprit, outputs: Mapping[str, Stored]) -> str:
    if result.kind and "crash" not in culprit.verdicts:
        over = f"np.abs(a) > {LARGEST.get(result.kind.partition(':')[2])}"
        same = f"[not ({_FREE.get(result.kind, over)}).any() for a in actual.values()]"
        return _SCRIPT.format(level="ORT_DISABLE_ALL", same=same, limit="")
    # run it as the look did that found the culprit
    level = "ORT_ENABLE_ALL" if result.look == "optimized" else "ORT_DISABLE_ALL"
    compared = culprit.comparison
    allowed = compared.tolerance if compared is not None else Tolerance(0.0, 0.0)
    atol = allowed.absolute(magnitude(outputs.get(culprit.value)))
    same = _SAME.format(rtol=python(allowed.rtol), atol=python(atol))
    limit = _LIMIT.format(seconds=_LATE) if "crash" in culprit.verdicts else ""
    return _SCRIPT.format(level=level, same=same, limit=limit)


def _compare(result: BisectResult, folder: Path) -> list[str]:
    """Return the command that compares a reproducer's outputs with the expected ones."""
    words = ["onnxdbg", "compare", str(folder / "model.onnx"), str(folder / "test_data_set_0")]
    return words if result.look == "optimized" else words + ["--opt", "none"]


def _mismatches(words: Sequence[str]) -> bool:
    """Return whether a command of this package, run in a process of its own, tells a mismatch."""
    command = guarded(str(_COMMAND), *words[1:], memory_limit=memory_of_children())
    try:
        return run_to_end(command, _SECONDS)[0] == 1
    except TimeoutError:
        return False


def _showing(folder: Path, crash: bool) -> Generator[None, None, bool]:
    """Return whether the script reproduces the mismatch or crash; it cannot feed some dtypes."""
    with running_script(folder / "repro.py", _HANGS if crash else _SECONDS) as ended:
        yield
        try:
            code, output = ended()
        except TimeoutError:
            return crash
        return crashed(code) if crash else code == 1 and output.endswith(b"MISMATCH\n")


def _report(result: BisectResult, culprit: Culprit, made: Reproducer, place: str) -> str:
    """Describe the finding for a bug report; names are code, so that they cannot be markup.

    Args:
        place: the body of the culprit with its iteration; '' for the main graph.
    """
    path, iterations = iterations_of(place)
    wrong = at(f"{path}/{culprit.value}", iterations) if place else culprit.value
    node_id = f"{path}/{culprit.id}" if place else culprit.id
    shown = titles(every=True)
    lines = [
        f"# Mismatch at {_code(wrong)}",
        "",
        f"- node: {_code(' '.join(filter(None, (culprit.op_type, culprit.name))))} {_code(node_id)}",
        *(["- the names below are local to the body, as in `model.onnx`"] if place else []),
        *([f"- scope: {_code(culprit.scope)}"] if culprit.scope else []),
        *(f"- {finding.verdict}: {_code(finding.because)}" for finding in culprit.findings),
        *(f"- attribute {_code(name)}: {_code(text)}" for name, text in culprit.attributes.items()),
        *([f"- float64: {_code(culprit.evaluated)}"] if culprit.evaluated else []),
        f"- look: {result.look}",
        f"- versions: {made_with()}",
        "",
        f"| role | value | match | {' | '.join(shown)} | own error |",
        "|---" * (4 + len(shown)) + "|",
    ]
    for value in culprit.values:
        c, own = value.comparison, value.introduced
        cells = [value.role, _code(value.name)]
        if c is None:
            cells += ["no reference"]
        else:
            cells += ["yes" if c.match else f"no ({c.reason})"] + texts(c, every=True)
            cells += [""] * (3 + len(shown) - len(cells))
            cells += [] if own is None else [texts(own)[0]]
        cells += [""] * (4 + len(shown) - len(cells))
        lines.append(f"| {' | '.join(cells)} |")
    if not made.words:
        return "\n".join(lines + ["", "Run alone, it does not show the failure.", ""])
    does = "reproduces it" if made.shows else "compares it"
    options = command(*made.words[4:])
    compared = f"onnxdbg compare model.onnx test_data_set_0 {options}".rstrip()
    in_folder = "python repro.py" if made.shows else compared
    lines += ["", f"`{in_folder}`, run in this folder, {does}.", ""]
    return "\n".join(lines)


def _code(text: str) -> str:
    return f"`{shown(text).replace('`', chr(39)).replace('|', '/')}`"
