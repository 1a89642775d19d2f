"""Undo and redo edits of a model; every state is a model, which costs its structure."""

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import Pass, PassResult


class History:
    """A sequence of edits with undo and redo.

    Attributes:
        steps: the edits, in order.
    """

    def __init__(self, original: Model) -> None:
        self.steps = list[Pass]()
        self._states = [original]  # one more than steps and undone steps
        self._undone = list[Pass]()

    @property
    def current(self) -> Model:
        """The model after the edits."""
        return self._states[len(self.steps)]

    def take(self, step: Pass, result: PassResult) -> None:
        """Have the result of an edit, and forget undone ones; an edit that changes nothing is not kept."""
        if result.changed:
            del self._states[len(self.steps) + 1 :]
            self.steps.append(step)
            self._states.append(result.model)
            self._undone.clear()

    def undo(self) -> Pass:
        """Undo the last edit."""
        if not self.steps:
            raise UsageError("there is no edit to undo", "redo repeats an undone edit")
        self._undone.append(self.steps.pop())
        return self._undone[-1]

    def redo(self) -> Pass:
        """Redo the last undone edit."""
        if not self._undone:
            raise UsageError("there is no edit to redo", "undo takes back the last edit")
        self.steps.append(self._undone.pop())
        return self.steps[-1]
