"""Which function a node calls, and models whose calls have no end."""

from collections import Counter
from graphlib import CycleError, TopologicalSorter

from onnx import FunctionProto, ModelProto, NodeProto, OperatorSetIdProto

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.model import walk

FunctionKey = tuple[str, str, str]
"""(domain, name, overload) of a model-local function."""

_DEEPEST = 100  # onnxruntime's own limit
_MOST_INLINED = 250_000  # nodes


def plain_domain(domain: str) -> str:
    """Return a domain as most files write it: ONNX's own has two names."""
    return "" if domain == "ai.onnx" else domain


def is_standard(named: NodeProto | OperatorSetIdProto) -> bool:
    """Return whether a node or an import is of ONNX's own domain."""
    return not plain_domain(named.domain)


def function_key(function: FunctionProto) -> FunctionKey:
    """Return (domain, name, overload)."""
    return plain_domain(function.domain), function.name, function.overload


def call_key(node: NodeProto) -> FunctionKey:
    """Return the key of the function that a node calls, if it calls one."""
    return plain_domain(node.domain), node.op_type, node.overload


def check_functions(model: ModelProto) -> None:
    """Raise `GraphError` if a function calls itself, or if calls nest too deep or stand for too many nodes."""
    if not model.functions:
        return
    functions: dict[FunctionKey, list[NodeProto]] = {function_key(f): [] for f in model.functions}
    for function in model.functions:  # a malformed model has several of one name
        functions[function_key(function)] += walk.with_inner(function.node)
    calls = {  # function -> the functions that it calls, each as often as it calls it
        key: [k for k in map(call_key, nodes) if k in functions] for key, nodes in functions.items()
    }
    try:
        # called functions come before their callers
        order = list(TopologicalSorter(calls).static_order())
    except CycleError as error:
        names = ", ".join(map(_named, error.args[1][1:]))
        raise GraphError(
            f"functions call themselves, directly or indirectly: {names}",
            "ONNX repeats nodes with Loop",
        ) from error
    depths, sizes = Counter[FunctionKey](), Counter[FunctionKey]()
    # how deep calls nest below it, and how many nodes its body has when all calls are inlined
    for key in order:
        depths[key] = 1 + max((depths[called] for called in calls[key]), default=0)
        sizes[key] = len(functions[key]) + sum(sizes[called] for called in calls[key])
        if depths[key] > _DEEPEST:
            raise GraphError(f"the calls of function {_named(key)} nest deeper than {_DEEPEST}")
        _require_few(sizes[key], f"function {_named(key)} stands")
    _require_few(
        sum(sizes[call_key(n)] for n in walk.with_inner(model.graph.node)), "the graph stands"
    )


def _require_few(nodes: int, what: str) -> None:
    if nodes > _MOST_INLINED:
        raise GraphError(f"{what} for more than {_MOST_INLINED} nodes: its calls multiply")


def _named(key: FunctionKey) -> str:
    return repr("::".join(filter(None, key)))
