"""ONNX's reference evaluator: every operator by its definition, in every dtype; slow."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import ModelProto, inliner
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.runtime.backends.ops import as_class, functions_in
from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.tensors.dtypes import Array, RunValues


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
