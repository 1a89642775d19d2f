"""Simplify a model: several verbs, until none finds anything."""

from dataclasses import dataclass, field
from itertools import chain, cycle
from typing import ClassVar, Protocol

from onnxsurgeon_lite.errors import require_known
from onnxsurgeon_lite.graph import GraphIndex, require_schemas
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.clean import Clean
from onnxsurgeon_lite.passes.cse import Cse
from onnxsurgeon_lite.passes.fold import Fold
from onnxsurgeon_lite.passes.infer import Infer
from onnxsurgeon_lite.passes.protocol import Pass, PassResult
from onnxsurgeon_lite.passes.rewrite import Rewrite
from onnxsurgeon_lite.passes.skip_noops import SkipNoops
from onnxsurgeon_lite.surgery.symbolic.shapes import carry_types

_RULES = (
    "conv-batch-norm",
    "conv-mul",
    "conv-add",
    "matmul-add",
    "pad-conv",
    "reduce-unsqueeze",
    "transpose-pairs",
    "reshape-pairs",
    "unsqueeze-pairs",
)


class _Step(Pass, Protocol):
    """A pass that takes an index that others have used."""

    def edit(self, index: GraphIndex) -> PassResult:
        """Return the edited model; the input does not change."""
        ...


@dataclass(frozen=True)
class Simplify:
    """Fold constants, skip no-ops, merge equal nodes and remove unused ones until nothing changes; then infer types.

    The rules of `rewrite` that apply are those by which a BatchNormalization, an Add or a Pad goes into a convolution,
    one Transpose, Reshape or Unsqueeze into another, and an Unsqueeze into a reduction.

    Attributes:
        limit: bytes; nothing larger is folded.
        without: steps to leave out: `fold`, `skip-noops`, `cse`, `rewrite`, `clean`, `infer`.

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
            EditError: a node lacks what its operator takes.
        """
        applied = _Applied(GraphIndex.of(model))
        require_schemas(applied.index)
        steps = self.steps()
        repeated = [step for step in steps if not isinstance(step, Infer)]
        # round after round, until every step in sequence found nothing
        for step in cycle(repeated):
            applied.apply(step)
            if applied.idle >= len(repeated):
                break
        # types at last, when nothing changes any more
        for step in steps[len(repeated) :]:
            applied.apply(step)
        notes = list(chain.from_iterable(applied.notes.values()))
        return PassResult.of(model, applied.index.model, applied.changes, notes)

    def steps(self) -> "tuple[_Step, ...]":
        """Return the steps, in order."""
        every = (Fold(self.limit), SkipNoops(), Cse(), Rewrite(_RULES), Clean(), Infer())
        names = [step.name for step in every]
        require_known(self.without, names, "simplify", "step")
        return tuple(step for step in every if step.name not in self.without)


@dataclass
class _Applied:
    """A model after steps.

    Attributes:
        idle: steps in sequence that changed nothing.
        notes: step -> what it had to say last.
    """

    index: GraphIndex
    idle: int = 0
    changes: list[str] = field(default_factory=list)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def apply(self, step: "_Step") -> None:
        result = step.edit(self.index)
        if result.changed:
            # types that are known already are not inferred again
            before, self.index = self.index, GraphIndex.of(result.model)
            carry_types(before, self.index)
        self.idle = 0 if result.changed else self.idle + 1
        self.changes += (f"{step.name}: {change}" for change in result.changes)
        self.notes[step.name] = result.notes
