"""Operators in Python: a file whose `OPS` maps `domain::Op` to a function of arrays."""

import runpy
from collections.abc import Callable, Mapping

import numpy as np
from onnx.reference.op_run import OpRun

from onnxsurgeon_lite.tensors.dtypes import RunValue

Operator = Callable[..., object]


def functions_in(file: str) -> dict[tuple[str, str], Operator]:
    """Return (domain, op_type) -> function, as a file's `OPS` says.

    Raises:
        ValueError: the file has no such `OPS`.
    """
    table = runpy.run_path(file).get("OPS")
    if not isinstance(table, Mapping) or not all(map(callable, table.values())):
        raise ValueError(f"{file!r} has no OPS = {{'domain::Op': function}}")
    return {_place(str(name)): function for name, function in table.items()}


def _place(name: str) -> tuple[str, str]:
    domain, _, op_type = name.rpartition("::")
    return ("" if domain == "ai.onnx" else domain), op_type


def as_class(domain: str, op_type: str, function: Operator) -> type[OpRun]:
    """Return a function as the reference evaluator takes operators."""

    # a class with `_run`, as the evaluator asks for
    def _run(_: OpRun, *inputs: RunValue, **attributes: object) -> tuple[object, ...]:
        made = function(*inputs, **attributes)
        # several outputs are a tuple
        values = made if isinstance(made, tuple) else (made,)
        return tuple(v if v is None or isinstance(v, list) else np.asarray(v) for v in values)

    # without a schema: that of a standard operator of this name would ask for its attributes
    return type(op_type, (OpRun,), {"op_domain": domain, "op_schema": None, "_run": _run})
