"""Run the ONNX checker, without loading the weights."""

from dataclasses import dataclass, field

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.dangling import dangling
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
        RuntimeCrash, RuntimeTimeout, RuntimeFailure: the checker crashes on the model, or reaches a limit.
    """
    path = str(model.path or "the model")
    findings = [LintFinding("dangling", str(d), (d.node_id, d.name)) for d in dangling(model.proto)]
    try:
        index = GraphIndex.of(model)
        index.require_sound()
    except GraphError as error:
        return CheckResult(False, error.message, tuple(findings), path)
    problem = problem_of(model, full)
    return CheckResult(not problem, problem, (*findings, *find(index)), path)


def problem_of(model: Model, full: bool = False) -> str:
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
    problem = problem_of(model)
    if problem:
        raise GraphError(f"the model is not valid: {' '.join(problem.split())}")
