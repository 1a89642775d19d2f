"""A model and what was done to it; every state is a model of its own, which costs its structure."""

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import Pass, PassResult


class History:
    """Edits one after another.

    Attributes:
        original: the model before them.
        steps: what was done, in order.
    """

    def __init__(self, original: Model) -> None:
        self.original = original
        self.steps: list[Pass] = []
        self._states = [
            original
        ]  # as long as all that was ever done and not replaced, and the original
        self._undone: list[Pass] = []

    @property
    def current(self) -> Model:
        """The model after the edits."""
        return self._states[len(self.steps)]

    def apply(self, step: Pass) -> PassResult:
        """Do an edit; what was undone cannot be done again then. One that changes nothing is not kept."""
        result = step.apply(self.current)
        self.take(step, result)
        return result

    def take(self, step: Pass, result: PassResult) -> None:
        """Have the result of an edit of the current model."""
        if result.changed:
            del self._states[len(self.steps) + 1 :]
            self.steps.append(step)
            self._states.append(result.model)
            self._undone.clear()

    def undo(self) -> Pass:
        """Take the last edit back.

        Raises:
            UsageError: there is none.
        """
        if not self.steps:
            raise UsageError("there is no edit to undo", "redo does again what was undone")
        self._undone.append(self.steps.pop())
        return self._undone[-1]

    def redo(self) -> Pass:
        """Do again what was undone last.

        Raises:
            UsageError: nothing was.
        """
        if not self._undone:
            raise UsageError("there is no edit to redo", "undo takes the last one back")
        self.steps.append(self._undone.pop())
        return self.steps[-1]
