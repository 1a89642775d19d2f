"""Run the ONNX checker, without loading the weights."""

from dataclasses import dataclass, field

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.lint import LintFinding, find
from onnxsurgeon_lite.graph.native import RejectedError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.shown import HIDDEN, Shown


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


def check(model: Model, full: bool = False) -> CheckResult:
    """Check a model against the ONNX specification, and look for suspicious parts.

    Args:
        full: check types and shapes strictly, too.

    Raises:
        GraphError: a cycle, two producers of one value, a function that calls itself.
        RuntimeCrash, RuntimeTimeout, RuntimeFailure: the checker crashes on the model, or reaches a limit.
    """
    index = GraphIndex.of(model)
    index.require_sound()
    problem = _problem(model, full)
    return CheckResult(not problem, problem, tuple(find(index)), str(model.path or "the model"))


def _problem(model: Model, full: bool = False) -> str:
    """Return the checker's message; '' if it accepts the model."""
    proto, folder = model.for_runtime()
    try:
        native.check(proto, str(folder), full)
    except RejectedError as error:
        return str(error)
    return ""


def require_valid(model: Model) -> None:
    """Raise `GraphError` with the checker's message if it rejects the model."""
    GraphIndex.of(model).require_sound()
    problem = _problem(model)
    if problem:
        raise GraphError(f"the model is not valid: {' '.join(problem.split())}")
