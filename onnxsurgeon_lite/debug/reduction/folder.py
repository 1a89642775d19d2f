"""What is handed over: the model, its feeds, a script that needs onnx and the runtime alone, a text for an issue."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import indent

from onnxsurgeon_lite.atomic import NewFolder, write_text
from onnxsurgeon_lite.debug.reduction.conditions import Ask, Condition, FailingProgram, Reason
from onnxsurgeon_lite.debug.reduction.failing import Extent, Failing
from onnxsurgeon_lite.model import Model, movable, save
from onnxsurgeon_lite.names import command, shown
from onnxsurgeon_lite.passes.recipe_writing import write_recipe
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.options import ORT, provider_name
from onnxsurgeon_lite.runtime.script import running_script
from onnxsurgeon_lite.shown import HIDDEN, Shown, made_with
from onnxsurgeon_lite.tensors.comparison import Tolerance
from onnxsurgeon_lite.tensors.references import write_test_data

_FILES = (
    r"model\.(onnx|data)|repro\.py|recipe\.(toml|\d+\.npy)|README\.md|test_data_set_0/input_\d+\.pb"
)
_SECONDS = 120.0  # that a script may take

_HEAD = '''\
"""Run model.onnx on test_data_set_0; it exits with 1, or dies, if the model fails as README.md says, else with 0."""
import glob, os, subprocess, sys, threading
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.chdir(os.path.dirname(os.path.abspath(__file__)))

def end(fails):
    print("FAILS" if fails else "it does not fail", flush=True)
    os._exit(bool(fails))

'''
_RUN = """\
import numpy as np, onnx, onnxruntime as ort

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

def run(level={usual.opt!r}):
    names = {{"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}}
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, "ORT_" + names[level])
    options.intra_op_num_threads = {usual.threads}
    for library in {usual.ops_libraries!r}:
        options.register_custom_ops_library(library)
    session = ort.InferenceSession("model.onnx", options, providers=[{provider!r}])
    values = session.run(None, read("input"))
    return dict(zip([output.name for output in session.get_outputs()], values))

def any_in(values, found):
    arrays = [a for value in values.values() for a in (value if isinstance(value, list) else [value])]
    return any(found(a).any() for a in arrays if a.dtype.kind == "f")

def differ(actual, expected):
    return any(
        np.shape(actual[name]) != np.shape(value)
        or not np.allclose(actual[name], value, {allowed.rtol}, {allowed.atol}, equal_nan=True)
        for name, value in expected.items()
    )

"""
_STOPS = """\
def late():
    print("it does not end within {usual.timeout:g} seconds")
    end(True)

threading.Timer({usual.timeout:g}, late).start()
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
    "mismatch": "end(differ(run(), run({other.opt!r})))\n",
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
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

log = tempfile.TemporaryFile()
process = subprocess.Popen({words!r}, stdout=log, stderr=log, start_new_session=True, preexec_fn=end_with_this)
try:
    code = process.wait({program.timeout})
except (KeyboardInterrupt, subprocess.TimeoutExpired) as late:
    code = late
try:
    os.killpg(process.pid, signal.SIGKILL)  # and what it started
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
    "mismatch": "The same outputs with both settings.",
    "invalid": "The checker accepts the model.",
    "slower": "Both settings take about as long.",
    "function": "The function finds nothing.",
}
_README = """\
# {found.reason.kind}

`model.onnx` has {found.after} of constants and inputs; it was reduced from
{found.before}. It fails {found.failed} of {found.runs} times:

    {said}

**Expected:** {expected}

**Reproduce:** {shows}

**Versions:** {versions}

{text}

Edits: {steps}.
"""
_BY_SCRIPT = (
    "`{command}` exits with 1, or dies of a signal, if the model fails so; with 0 if it does not."
)
_BY_FUNCTION = "the function says so of `model.onnx` with `test_data_set_0`."
_BY_COMMAND = "`{command}` says why the model fails, and exits with 2 if it does not."


@dataclass(frozen=True, repr=False)
class Reduction(Shown):
    """The smallest model and feeds that still fail.

    Attributes:
        condition: what was asked.
        reason: why the model fails: `kind` and `text`, which must be the same, and the message as it was.
        failed: how often the first model failed in so many `runs`.
        before, after: how large it was, and is.
        calls: how often the condition was asked. found: the question that found the fewest nodes.
        steps: the verbs of the edits, in order.
        complete: nothing more can be made smaller; False if the search was interrupted.
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
    with NewFolder(target, _FILES) as new:
        save(found.model, new.path / "model.onnx", movable(found.model))
        write_test_data(new.path / "test_data_set_0", found.feeds, {})
        files = str(target / "model.onnx"), "--feeds", str(target / "test_data_set_0")
        words = ("onnxdbg", "reduce", *files, *options) if options else ()
        shows = _BY_COMMAND if options else _BY_FUNCTION
        proved: bool | None
        if script := _script(kind, ask):
            write_text(new.path / "repro.py", script)
            words, shows = ("python", str(target / "repro.py")), _BY_SCRIPT
            proved = any(_fails(new.path / "repro.py", kind) for _ in range(found.runs))
        elif isinstance(ask, Condition):
            again = replace(ask, _started={})
            proved = any(again(best) == found.reason for _ in range(found.runs))
        else:
            proved = None  # a function of this process
        found = replace(found, proved=proved, folder=str(target), command=words)
        readme = _README.format(
            found=found,
            text=indent(found.text, "    "),
            said=shown(found.reason.said or str(found.reason)),
            expected=_EXPECTED.get(kind, "The command ends as it should."),
            shows=shows.format(command=command(*words)),
            versions=f"{made_with()}; {platform.platform()}",
            steps=", ".join(found.steps),
        )
        write_text(new.path / "README.md", readme)
        new.commit()
    # not in the new folder: it names its arrays by their final paths
    write_recipe(best.steps, target / "recipe.toml")
    return found


def _script(kind: str, ask: Ask) -> str:
    """Return a script that shows the failure; '' where only this package can."""
    if isinstance(ask, FailingProgram):
        return _HEAD + _PROGRAM.format(words=ask.words(Path()), program=ask)
    if not isinstance(ask, Condition) or kind == "slower":
        return ""
    usual, other = ask.usual, ask.other
    if kind == "invalid" or {usual.runtime, other.runtime} != {ORT} or usual.settings:
        return _HEAD + _INVALID if kind == "invalid" else ""
    allowed, provider = ask.tolerance or Tolerance(1e-5, 1e-4), provider_name(usual.provider)
    run = _RUN.format(usual=usual, allowed=allowed, provider=provider)
    return _HEAD + run + _ENDS.get(kind, _STOPS).format(usual=usual, other=other)


def _fails(script: Path, kind: str) -> bool:
    """Return whether a script fails as the model does."""
    with running_script(script, _SECONDS) as ended:
        try:
            code, output = ended()
        except TimeoutError:
            return kind == "hang"
    return code < 0 if kind == "crash" else b"FAILS" in output.splitlines()
