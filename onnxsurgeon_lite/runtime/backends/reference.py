"""ONNX's reference evaluator: every operator by its definition, in every dtype; slow."""

import runpy
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import ModelProto, inliner
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, RunValues

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


class GatherElements(OpRun):
    """The evaluator's own one refuses axes of more than 64 elements, as of a BERT's tables."""

    def _run(self, data: Array, indices: Array, axis: int = 0) -> tuple[Array]:
        # the place of each index on all axes, but on `axis` the index itself: data[i, indices[i, j]]
        places: list[Array] = list(np.indices(indices.shape, sparse=True))
        places[axis] = indices
        return (data[tuple(places)],)


class Reference:
    """The evaluator; the setting `ops` is a Python file with further operators."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        unknown = settings.keys() - {"provider", "ops"}
        if unknown:
            raise UsageError(f"reference has no setting {few(sorted(unknown))}")
        file = settings.get("ops", "")
        functions = functions_in(file) if file else {}
        self._more = [as_class(*place, function) for place, function in functions.items()]
        added = tuple(f"{domain}::{op_type}" for domain, op_type in functions)
        self.abilities = Abilities(onnx.__version__, faithful=True, float64=True, operators=added)

    def open(self, model: ModelProto, opt: str, threads: int) -> None:  # noqa: ARG002
        if self._more and model.functions:  # in which it would not look for them
            model = inliner.inline_local_functions(model)
        self._evaluator = ReferenceEvaluator(model, new_ops=[GatherElements] + self._more)

    def run(self, feeds: RunValues, fetch: Sequence[str]) -> RunValues:
        return dict(zip(fetch, self._evaluator.run(list(fetch), dict(feeds)), strict=True))
