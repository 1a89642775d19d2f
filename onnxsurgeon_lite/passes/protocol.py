"""The pass protocol: model in, `PassResult` out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from onnxsurgeon_lite.model import Model


@dataclass(frozen=True)
class PassResult:
    """The result of a pass.

    Attributes:
        model: the new model; the input object when nothing changed.
        changed: True when the new model differs from the input.
        notes: hints for the user, one sentence each.
        changes: the changes, one line each.
    """

    model: Model
    changed: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, source: Model, result: Model, changes: Iterable[str], notes: Iterable[str] = ()
    ) -> "PassResult":
        """Return the result of an edit on a copy; the source when the copy equals it."""
        if result.proto == source.proto:
            return cls(source, changed=False, notes=tuple(notes))
        return cls(result, changed=True, notes=tuple(notes), changes=tuple(changes))


class Pass(Protocol):
    """An edit of a model; options are fields of a frozen dataclass."""

    name: ClassVar[str]

    def apply(self, model: Model) -> PassResult:
        """Return the edited model; the input does not change."""
        ...
