"""Passes one after another."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import Pass, PassResult


@dataclass(frozen=True)
class Pipeline:
    """Apply passes in order; a pass itself."""

    passes: tuple[Pass, ...]
    name: ClassVar[str] = "pipeline"

    def apply(self, model: Model) -> PassResult:
        """Apply them all.

        Raises:
            SurgeonError: a pass failed; the error's note names it and those before it.
        """
        current = model
        notes: list[str] = []
        changes: list[str] = []
        for number, step in enumerate(self.passes):
            try:
                result = step.apply(current)
            except SurgeonError as error:
                before = ", ".join(repr(done.name) for done in self.passes[:number])
                error.add_note(
                    f"in pass {step.name!r}, step {number + 1} of {len(self.passes)}"
                    + (f", after {before}" if before else "")
                )
                raise
            current = result.model
            notes += result.notes
            changes += result.changes
        return PassResult(current, current is not model, tuple(notes), tuple(changes))
