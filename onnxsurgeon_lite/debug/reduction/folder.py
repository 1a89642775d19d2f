"""What is handed over: the model, its feeds, a script that needs onnx and the runtime alone, a text for an issue."""

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import indent

from onnxsurgeon_lite.atomic import NewFolder, write_text
from onnxsurgeon_lite.debug.reduction.conditions import (
    Ask,
    Condition,
    Extent,
    Failing,
    FailingProgram,
    Reason,
    another,
)
from onnxsurgeon_lite.model import Model, movable, save
from onnxsurgeon_lite.names import command, shown
from onnxsurgeon_lite.passes.recipe_writing import write_recipe
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.options import ORT, RuntimeOptions, provider_name
from onnxsurgeon_lite.runtime.script import running_script
from onnxsurgeon_lite.shown import HIDDEN, Shown, made_with
from onnxsurgeon_lite.tensors.references import write_test_data
from onnxsurgeon_lite.tensors.statistics import magnitude

_FILES = r"model\.(onnx|data)|repro\.py|recipe\.(toml|\d+\.npy)|README\.md|test_data_set_0/(in|out)put_\d+\.pb"
_SECONDS = 120.0  # that a script may take
_RUNS = "python", "repro.py"

_HEAD = '''\
"""Run model.onnx on test_data_set_0; it exits with 1, or dies, if the model fails as README.md says, else with 0."""
import glob, json, os, signal, subprocess, sys, tempfile, threading
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.chdir(os.path.dirname(os.path.abspath(__file__)))

def end(fails):
    print("FAILS" if fails else "it does not fail", flush=True)
    os._exit(bool(fails))

'''
_RUN = """\
import numpy as np

USUAL, OTHER = {usual!r}, {other!r}
LIMITS = {limits!r}  # output -> rtol, atol
started = []

def values_of(side, feeds):
    import onnxruntime as ort
    names = {{"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}}
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, "ORT_" + names[side["opt"]])
    options.intra_op_num_threads = side["threads"]
    for library in side["libraries"]:
        options.register_custom_ops_library(library)
    provider, disabled = side["provider"], side["disabled"]
    session = ort.InferenceSession("model.onnx", options, providers=[provider], disabled_optimizers=disabled)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds)))

if len(sys.argv) == 4:  # with the onnxruntime of another interpreter
    with np.load(sys.argv[2], allow_pickle=True) as stored:
        found = values_of(json.loads(sys.argv[1]), dict(stored))
    np.savez(sys.argv[3], **found)
    sys.exit()

import onnx

def read(kind):
    found = {{}}
    for path in sorted(glob.glob(f"test_data_set_0/{{kind}}_*.pb")):
        with open(path, "rb") as file:
            data = file.read()
        try:
            tensor = onnx.TensorProto.FromString(data)
            found[tensor.name] = onnx.numpy_helper.to_array(tensor)
        except Exception:
            tensors = onnx.SequenceProto.FromString(data)
            found[tensors.name] = onnx.numpy_helper.to_list(tensors)
    return found

def run(side=USUAL):
    if not side["python"]:
        return values_of(side, read("input"))
    with tempfile.TemporaryDirectory() as place:
        given, made = os.path.join(place, "given.npz"), os.path.join(place, "made.npz")
        np.savez(given, **read("input"))
        words = [side["python"], os.path.basename(__file__), json.dumps(side), given, made]
        started.append(subprocess.Popen(words, stderr=subprocess.PIPE))
        said = started[-1].communicate()[1].decode(errors="replace")
        if started[-1].returncode < 0:
            os.kill(os.getpid(), -started[-1].returncode)
        if started[-1].returncode:
            raise RuntimeError(said)
        with np.load(made, allow_pickle=True) as stored:
            return dict(stored)

def any_in(values, found):
    arrays = [a for value in values.values() for a in (value if isinstance(value, list) else [value])]
    return any(found(a).any() for a in arrays if a.dtype.kind == "f")

def same(a, b, limits):
    if isinstance(b, list):
        return len(a) == len(b) and all(same(*pair, limits) for pair in zip(a, b))
    if np.shape(a) != np.shape(b):
        return False
    if np.asarray(b).dtype.kind in "OUSbiu":
        return np.array_equal(a, b)
    wide = complex if np.asarray(b).dtype.kind == "c" else float
    return np.allclose(np.asarray(a).astype(wide), np.asarray(b).astype(wide), *limits, equal_nan=True)

def differ(actual, expected):
    return not all(same(actual[name], expected[name], limits) for name, limits in LIMITS.items())

"""
_STOPS = """\
def late():
    print("it does not end within {seconds:g} seconds")
    for process in started:
        process.kill()
    end(True)

threading.Timer({seconds:g}, late).start()
try:
    run()
except Exception as error:
    print(error)
    end(True)
end(False)
"""
_ENDS = {
    "nan": "end(any_in(run(), np.isnan))\n",
    "inf": "end(any_in(run(), np.isinf))\n",
    "mismatch": "end(differ(run(), run(OTHER)))\n",
    "stored": 'end(differ(run(), read("output")))\n',
}
_INVALID = """\
import onnx
try:
    onnx.checker.check_model("model.onnx", full_check=True)
except Exception as error:
    print(error)
    end(True)
end(False)
"""
_PROGRAM = """\
import ctypes, re, signal, tempfile

def end_with_this():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

log = tempfile.TemporaryFile()
process = subprocess.Popen({words!r}, stdout=log, stderr=log, start_new_session=True,
                           preexec_fn=end_with_this if sys.platform == "linux" else None)
try:
    code = process.wait({program.timeout})
except (KeyboardInterrupt, subprocess.TimeoutExpired) as late:
    code = late
try:
    os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()  # and what it started
except ProcessLookupError:
    pass
if isinstance(code, Exception):
    end(True)
log.seek(0)
output = log.read(1 << 24).decode(errors="replace")
print(output)
wanted, says = {program.code!r}, {program.says!r}
end(re.search(says, output) and (code == wanted if wanted is not None else says or code))
"""
_EXPECTED = {
    "crash": "The model runs, or the runtime refuses it with an error.",
    "hang": "The model runs, and ends.",
    "error": "The model runs.",
    "nan": "Outputs without NaN: the inputs have none.",
    "inf": "Finite outputs: the inputs are finite.",
    "mismatch": "The same outputs on both sides.",
    "invalid": "The checker accepts the model.",
    "slower": "Both settings take about as long.",
    "function": "The function finds nothing.",
}
_README = """\
# {found.reason.kind}

`model.onnx` has {found.after} of constants and inputs; it was reduced from
{found.before}, which fails {found.failed} of {found.runs} times:

    {said}

**Expected:** {expected}

**Reproduce:** {shows}

**Settings:** {settings}

**Versions:** {versions}

{text}

Edits: {steps}.
"""
_BY_SCRIPT = (
    "`{}`, in this folder, exits with 1, or dies, if the model fails so; with 0 if it does not."
)
_BY_FUNCTION = "the function says so of `model.onnx` with `test_data_set_0`."
_BY_COMMAND = "`{}`, in this folder, says why the model fails, and exits with 2 if it does not."


@dataclass(frozen=True)
class Reduction(Shown):
    """The smallest model and feeds that still fail.

    Attributes:
        condition: what was asked.
        reason: why the model fails: `kind` and `text`, which must be the same, and the message as it was.
        failed: how often the first model failed in so many `runs`.
        before, after: how large it was, and is.
        calls: how often the condition was asked. found: the question that found the fewest nodes.
        steps: the verbs of the edits, in order.
        complete: nothing more can be made smaller; False if the search was interrupted, or `late`: its time was over.
        text: the model as ONNX text; '' where it cannot be printed.
        folder: where it was written. command: reproduces it there.
        proved: whether that failed in a process of its own; None where nothing was run.
        model, feeds: the result.

    Example:
        >>> chain = osl.build("g (float[4] x) => (float[4] y) { h = Neg (x)  l = Log (h)  y = Abs (l) }")
        >>> osl.reduce(chain, "nan", feeds={"x": np.ones(4, np.float32)}).after.nodes
        1
    """

    condition: str
    reason: Reason
    failed: int
    runs: int
    before: Extent
    after: Extent
    calls: int
    found: int
    steps: tuple[str, ...]
    complete: bool
    late: bool
    text: str
    model: Model = field(metadata=HIDDEN)
    feeds: Feeds = field(metadata=HIDDEN)
    folder: str = ""
    command: tuple[str, ...] = ()
    proved: bool | None = None


def written(
    found: Reduction, ask: Ask, best: Failing, target: Path, options: Sequence[str]
) -> Reduction:
    """Write a folder, show the failure in a process of its own, and return the result with both.

    Args:
        options: what the command needs to ask the same; none if it cannot.
    """
    kind = found.reason.kind
    right = ask.stored(best) if isinstance(ask, Condition) else {}
    # the folder appears whole, or not at all
    with NewFolder(target, _FILES) as new:
        save(found.model, new.path / "model.onnx", movable(found.model))
        write_test_data(new.path / "test_data_set_0", found.feeds, right)
        words = list(_RUNS)
        shows = _BY_SCRIPT
        proved: bool | None = None  # a function of this process
        # The failure must show once more, in a process of its own: first by the script, which needs no onnxdbg, then by
        # the command. A failure that comes now and then gets as many runs as the search gave it.
        if script := _script(kind, ask, best):
            write_text(new.path / "repro.py", script)
            proved = any(_fails(new.path / "repro.py", kind) for _ in range(found.runs))
        if isinstance(ask, Condition) and not proved:  # only this package sees it
            (new.path / "repro.py").unlink(missing_ok=True)
            script = ""
            again = another(ask)
            proved = any(again(best) == found.reason for _ in range(found.runs))
        if not script:
            # without a script the folder tells a command, or for a Python function nothing to type
            fed = "--reference" if right else "--feeds"
            words = ["onnxdbg", "reduce", "model.onnx", fed, "test_data_set_0"] + list(options)
            words = words if options else []
            shows = _BY_COMMAND if options else _BY_FUNCTION
        placed = (str(target / w) if (new.path / w).exists() else w for w in words)
        found = replace(found, proved=proved, folder=str(target), command=tuple(placed))
        write_text(new.path / "README.md", _readme(found, ask, shows.format(command(*words))))
        new.commit()
    # not in the new folder: it names its arrays by their final paths
    write_recipe(best.steps, target / "recipe.toml")
    return found


def _readme(found: Reduction, ask: Ask, shows: str) -> str:
    """Return the text of an issue."""
    return _README.format(
        found=found,
        text=indent(found.text, "    "),
        said=shown(found.reason.said or str(found.reason)),
        expected=_EXPECTED.get(found.reason.kind, "The command ends as it should."),
        shows=shows,
        settings=_settings(ask),
        versions=f"{made_with()}; {platform.platform()}",
        steps=", ".join(f"{name} ({count}x)" for name, count in Counter(found.steps).items()),
    )


def _settings(ask: Ask) -> str:
    """Return what ran, and what it is compared with."""
    if not isinstance(ask, Condition):
        return "those of the command"
    said = list[str]()
    for side in (ask.usual, ask.other):
        runtime = ask.started(side)
        given = ", ".join(f"{key}={value}" for key, value in _for_script(side).items() if value)
        said.append(f"{runtime.title} {runtime.about().get('version', '')} with {given}")
    # the other side counts only where two runs are compared
    both = ask.kind in ("mismatch", "slower") and ask.references is None
    return shown(" beside ".join(said[: 1 + both]))


def _script(kind: str, ask: Ask, best: Failing) -> str:
    """Return a script that shows the failure; '' where only this package can."""
    if isinstance(ask, FailingProgram):
        return _HEAD + _PROGRAM.format(words=ask.words(Path()), program=ask)
    if not isinstance(ask, Condition) or kind == "slower":
        return ""
    if kind == "invalid":
        return _HEAD + _INVALID
    kind = "stored" if ask.references is not None else kind
    sides = [ask.usual] + ([ask.other] if kind == "mismatch" else [])
    # the script knows onnxruntime with few settings
    if any(side.runtime != ORT or side.settings or side.ops or side.otherwise for side in sides):
        return ""
    # output -> (rtol, atol), as np.allclose takes them
    limits = dict[str, tuple[float, float]]()
    for name, right, compared in ask.compared(best) if kind in ("mismatch", "stored") else ():
        allowed = compared.tolerance
        # the script compares with np.allclose, which has no such limits
        if allowed.ulp or allowed.allow or allowed.limit:
            return ""
        limits[name] = allowed.rtol, allowed.absolute(magnitude(right))
    usual, other = (_for_script(side) for side in (ask.usual, ask.other))
    run = _RUN.format(usual=usual, other=other, limits=limits)
    return _HEAD + run + _ENDS.get(kind, _STOPS.format(seconds=ask.usual.timeout))


def _for_script(side: RuntimeOptions) -> dict[str, object]:
    return {
        "python": side.python and str(Path(side.python).absolute()),
        "opt": side.opt,
        "threads": side.threads,
        "libraries": side.ops_libraries,
        "disabled": side.disabled,
        "provider": provider_name(side.provider),
    }


def _fails(script: Path, kind: str) -> bool:
    """Return whether a script fails as the model does."""
    with running_script(script, _SECONDS) as ended:
        try:
            code, output = ended()
        except TimeoutError:
            return kind == "hang"
    # a negative code is a signal
    return code < 0 if kind == "crash" else b"FAILS" in output.splitlines()
