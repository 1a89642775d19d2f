"""Apply passes one after another."""

from dataclasses import dataclass, replace
from typing import ClassVar

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import Pass, PassResult
from onnxsurgeon_lite.surgery.types import retype


@dataclass(frozen=True)
class Pipeline:
    """Apply passes in order; types are checked once, at the end. A pipeline is a pass too."""

    passes: tuple[Pass, ...]
    name: ClassVar[str] = "pipeline"

    def apply(self, model: Model) -> PassResult:
        """Apply all passes.

        Raises:
            SurgeonError: a pass failed; the error's note names it and those before it.
            EditError: the final types do not fit.
        """
        unsettled: set[str] = set() if model.unsettled is None else model.unsettled
        current = model
        notes: list[str] = []
        changes: list[str] = []
        for number, step in enumerate(self.passes):
            try:
                result = step.apply(replace(current, unsettled=unsettled))
            except SurgeonError as error:
                before = ", ".join(repr(done.name) for done in self.passes[:number])
                error.add_note(
                    f"in pass {step.name!r}, step {number + 1} of {len(self.passes)}"
                    + (f", after {before}" if before else "")
                )
                raise
            current = result.model if result.changed else current
            notes += result.notes
            changes += result.changes
        if current is model:
            return PassResult(model, changed=False, notes=tuple(notes))
        current = replace(current, unsettled=model.unsettled)
        if unsettled and model.unsettled is None:
            notes += retype(model, GraphIndex.of(current), unsettled)
        return PassResult(current, True, tuple(notes), tuple(changes))
