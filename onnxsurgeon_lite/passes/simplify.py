"""Simplify a model: several verbs, until none finds anything."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.clean import Clean
from onnxsurgeon_lite.passes.cse import Cse
from onnxsurgeon_lite.passes.fold import Fold
from onnxsurgeon_lite.passes.infer import Infer
from onnxsurgeon_lite.passes.protocol import Pass, PassResult
from onnxsurgeon_lite.passes.skip_noops import SkipNoops

_MOST_ROUNDS = 20
Accept = Callable[[Model, PassResult], bool]
"""(model before a step, its result) -> whether the step is kept."""


@dataclass(frozen=True)
class Simplify:
    """Fold constants, skip no-ops, merge equal nodes and remove unused ones until nothing changes; then infer types.

    Attributes:
        limit: bytes; nothing larger is folded.
        without: steps to leave out: `fold`, `skip-noops`, `cse`, `clean`, `infer`.

    Example:
        >>> osl.simplify("detector.onnx").match
        True
    """

    limit: int = 1 << 20
    without: tuple[str, ...] = ()
    name: ClassVar[str] = "simplify"

    def apply(self, model: Model) -> PassResult:
        """Simplify.

        Raises:
            UnknownNameError: no such step.
            GraphError: the graph has a cycle, or a function calls itself.
        """
        steps = self.steps()
        changes: list[str] = []
        notes: tuple[str, ...] = ()
        current = model
        idle = 0
        for step in (step for _ in range(_MOST_ROUNDS) for step in steps):
            result = step.apply(current)
            idle = 0 if result.changed else idle + 1
            if idle == len(steps):
                break
            current = result.model
            changes += (f"{step.name}: {change}" for change in result.changes)
        return PassResult.of(model, current, changes, notes)

    def steps(self) -> tuple[Pass, ...]:
        """Return the steps, in order."""
        every: tuple[Pass, ...] = (Fold(self.limit), SkipNoops(), Cse(), Clean(), Infer())
        names = [step.name for step in every]
        for name in self.without:
            if name not in names:
                raise UnknownNameError(name, "simplify", names, kind="step")
        return tuple(step for step in every if step.name not in self.without)
