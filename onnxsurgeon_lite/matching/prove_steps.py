"""Prove by running that a simplified model computes the same; leave out, by name, the steps that do not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.trials import Trial, unmoved, unmoved_notes
from onnxsurgeon_lite.matching.verify import verify
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import PassResult, Simplify
from onnxsurgeon_lite.runtime.session import Runtime


@dataclass
class StepProof:
    """Runs of a model, with which the results of steps are compared.

    Attributes:
        trials: the model's feeds and outputs.
    """

    original: GraphIndex
    trials: Sequence[Trial]
    runtime: Runtime

    def proved(self, step: Simplify, result: PassResult) -> tuple[PassResult, str]:
        """Return the result if it agrees, else that of the steps that do; and what was proved, as text.

        Args:
            result: of the step on the original.
        """
        if self._failure(result.model) is not None:
            result = self._without_failing(step)
        notes = (*result.notes, *unmoved_notes(unmoved(self.trials)))
        line = f"agrees with the original in {counted(len(self.trials), 'run')}"
        return replace(result, notes=notes), line

    def _without_failing(self, step: Simplify) -> PassResult:
        """Add one step at a time, and leave out those after which the outputs differ."""
        every = [one.name for one in step.steps()]
        left_out = list(step.without)
        notes = []
        result = PassResult(self.original.model, changed=False)
        for number, name in enumerate(every, 1):
            tried = replace(step, without=(*left_out, *every[number:])).apply(self.original.model)
            failure = self._failure(tried.model) if tried.changed else None
            if failure is None:
                result = tried
            else:
                left_out.append(name)
                notes.append(f"left out {name!r}, which is not proved: {failure}")
        return replace(result, notes=(*notes, *result.notes))

    def _failure(self, model: Model) -> str | None:
        """Return how a model differs from the original; None if it agrees."""
        try:
            found = verify(self.original, GraphIndex.of(model), self.trials, self.runtime)
        except RuntimeFailure as error:
            return f"the result does not run: {error.message}"
        differing = (
            f"output {name!r} differs by up to {comparison.max_abs:.6g}"
            for name, comparison in found.compared.items()
            if not comparison.match
        )
        return next(differing, None)
