"""Run the ONNX checker, without loading the weights."""

from dataclasses import dataclass
from pathlib import Path

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.config import Agreement
from onnxsurgeon_lite.graph.dangling import dangling
from onnxsurgeon_lite.graph.index import (
    GraphIndex,
    described,
    function_path,
    has_shape,
    opset_versions,
)
from onnxsurgeon_lite.graph.lint import LintFinding, find
from onnxsurgeon_lite.graph.native import RejectedError
from onnxsurgeon_lite.graph.operators import needed
from onnxsurgeon_lite.graph.schemas import first_version
from onnxsurgeon_lite.graph.table import FEW
from onnxsurgeon_lite.model import Model, is_standard, plain_domain, refers
from onnxsurgeon_lite.shown import Shown, hidden


@dataclass(frozen=True, repr=False)
class CheckResult(Shown):
    """The checker's verdict and the lint findings.

    Attributes:
        problem: the checker's message; '' for a valid model.
        findings: suspicious parts of a model that the checker accepts.
        needs: the operators that only onnxruntime defines, as DOMAIN:OPERATOR.
        config: how it agrees with the configuration of its source, field by field.
        path: the model's file.

    Example:
        >>> print(osl.check("linear_func.onnx"))
        'linear_func.onnx' is valid
    """

    valid: bool
    problem: str
    findings: tuple[LintFinding, ...]
    needs: tuple[str, ...] = ()
    config: tuple[Agreement, ...] = ()
    path: str = hidden("")

    @property
    def match(self) -> bool:
        """True for a valid model that no field of the configuration contradicts."""
        return self.valid and not any(field.agrees is False for field in self.config)


def check(model: Model, full: bool = False) -> CheckResult:
    """Check a model against the ONNX specification, and look for suspicious parts.

    Args:
        full: check types and shapes strictly, too.

    Raises:
        RuntimeCrash, RuntimeTimeout, RuntimeFailure: the checker crashes on the model, or reaches a limit.
    """
    path = str(model.path or "the model")
    findings = [LintFinding("dangling", str(d), (d.node_id, d.name)) for d in dangling(model.proto)]
    findings += (  # a file that is not there would stop the checker
        LintFinding("missing data", f"the external data {name!r} is missing", (name,))
        for name in model.missing()
    )
    try:
        index = GraphIndex.of(model)
        index.require_sound()
    except GraphError as error:  # a cycle, or a value made twice: nothing below would work
        return refused(error, path, tuple(findings))
    problem = problem_of(model, full)
    return CheckResult(
        not problem, problem, (*findings, *find(index)), needed(model.proto), path=path
    )


def refused(error: GraphError, path: str, findings: tuple[LintFinding, ...] = ()) -> CheckResult:
    """Return what is known of a model whose graph is broken."""
    step = f"; {error.hint}" if error.hint else ""
    return CheckResult(False, f"{error.message}{step}", findings, path=path)


def problem_of(model: Model, full: bool = False) -> str:
    """Return the checker's message; '' if it accepts the model."""
    try:
        native.check(*_checkable(model), full)
    except RejectedError as error:
        # our own sentence, where we know what the checker means
        return _explained(GraphIndex.of(model)) or str(error)
    return ""


def begin_check(model: Model) -> None:
    """Start what `require_valid` will ask of a large model, if that does not change."""
    if len(model.graph.node) > FEW:
        # the result is kept, and `problem_of` finds it
        native.begin_check(*_checkable(model), full=False)


def _checkable(model: Model) -> tuple[bytes, str]:
    """Return a serialized model for the checker, and the folder of its data."""
    found = model.without_missing()
    encoded = found.proto.SerializeToString()
    if not refers(encoded):  # no data in files: nothing has to be written for the checker
        return encoded, str(Path.cwd())
    proto, folder = found.for_runtime()
    return proto.SerializeToString(), str(folder)


def _explained(index: GraphIndex) -> str:
    """Return what the checker refuses, with its name and what to do; '' where its own message says more."""
    versions = opset_versions(index.model.proto.opset_import)
    if "" not in versions and any(is_standard(node) for node in index.nodes):
        return "the model imports no version of 'ai.onnx': onnxdbg edit fix"
    graph = index.graph
    for kind, values in (("input", graph.input), ("output", graph.output)):
        for value in values:
            if not has_shape(value.type):
                return f"{kind} {value.name!r} declares no shape"
    return _of_a_later_opset(index, versions.get("", 0))


def _of_a_later_opset(index: GraphIndex, version: int) -> str:
    """Return what to do about the first node whose operator came after the imported opset; '' without one."""
    functions = {function_path(function) for function in index.model.proto.functions}
    for body in index.every_body:
        for position, node in enumerate(body.nodes):
            first = 0 if plain_domain(node.domain) else first_version(node.op_type)
            # a function imports a version of its own
            if first > version and body.path.partition("/@")[0] not in functions:
                step = f"onnxdbg edit set MODEL opset_import.ai.onnx={first}"
                what = described(node, body.node_id(position))
                return (
                    f"{what} is an operator of opset {first}; the model imports {version}: {step}"
                )
    return ""


def require_valid(model: Model) -> None:
    """Raise `GraphError` with the checker's message if it rejects the model."""
    GraphIndex.of(model).require_sound()
    problem = problem_of(model)
    if problem:
        raise GraphError(f"the model is not valid: {' '.join(problem.split())}")
