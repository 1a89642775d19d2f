"""Run the ONNX checker in a process of its own, without loading the weights."""

import subprocess
import sys
from dataclasses import dataclass, field

from onnxsurgeon_lite.errors import GraphError, RuntimeCrash, RuntimeTimeout
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.lint import LintFinding, find
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.shown import HIDDEN, Shown

# The checker looks for external data below the working directory, and ends with this process.
_SCRIPT = """
import ctypes, sys
sys.platform == "linux" and ctypes.CDLL(None).prctl(1, 9)
import onnx
try:
    onnx.checker.check_model(sys.stdin.buffer.read(), full_check=sys.argv[1] == "full")
except Exception as error:
    sys.exit(f"invalid: {error}")
"""


@dataclass(frozen=True, repr=False)
class CheckResult(Shown):
    """The checker's verdict and the lint findings.

    Attributes:
        problem: the checker's message; '' for a valid model.
        findings: suspicious parts of a model that the checker accepts.
        path: the model's file.

    Example:
        >>> print(osl.check("linear_func.onnx"))
        'linear_func.onnx' is valid
    """

    valid: bool
    problem: str = ""
    findings: tuple[LintFinding, ...] = ()
    path: str = field(default="", metadata=HIDDEN)


def check(model: Model, full: bool = False, timeout: float | None = None) -> CheckResult:
    """Check a model against the ONNX specification, and look for suspicious parts.

    Args:
        full: check types and shapes strictly, too.
        timeout: seconds, None for no limit.

    Raises:
        GraphError: a cycle, two producers of one value, a function that calls itself.
        RuntimeCrash, RuntimeTimeout: the checker crashed on the model, or took too long.
    """
    index = GraphIndex.of(model)
    index.require_sound()
    problem = _problem(model, full, timeout)
    return CheckResult(not problem, problem, tuple(find(index)), str(model.path or "the model"))


def _problem(model: Model, full: bool = False, timeout: float | None = None) -> str:
    """Return the checker's message; '' if it accepts the model."""
    proto, folder = model.for_runtime()
    command = [sys.executable, "-P", "-c", _SCRIPT, "full" if full else "plain"]
    try:
        done = subprocess.run(
            command,
            input=proto.SerializeToString(),
            capture_output=True,
            cwd=folder,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeTimeout(f"the checker did not finish within {timeout:g} seconds") from error
    message: str = done.stderr.decode(errors="replace").strip()
    if done.returncode == 0:
        return ""
    if done.returncode == 1 and message.startswith("invalid: "):
        return message.removeprefix("invalid: ")
    raise RuntimeCrash(f"the checker crashed on the model: {message or done.returncode}")


def require_valid(model: Model) -> None:
    """Raise `GraphError` with the checker's message if it rejects the model."""
    GraphIndex.of(model).require_sound()
    problem = _problem(model)
    if problem:
        raise GraphError(f"the model is not valid: {' '.join(problem.split())}")
