"""What a pass is: model in, model out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from onnxsurgeon_lite.model import Model, Written, save
from onnxsurgeon_lite.shown import HIDDEN, Shown


@dataclass(frozen=True, repr=False)
class PassResult(Shown):
    """What a pass made.

    Attributes:
        model: the result; the input itself when nothing changed.
        changed: whether the result differs from the input.
        notes: what the user should know of it, a sentence each.
        changes: what was changed, a line each.
    """

    model: Model = field(metadata=HIDDEN)
    changed: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, source: Model, result: Model, changes: Iterable[str], notes: Iterable[str] = ()
    ) -> "PassResult":
        """The result of an edit that was made on a copy; the source itself when the copy is still the same."""
        if result.proto == source.proto:
            return cls(source, changed=False, notes=tuple(notes))
        return cls(result, changed=True, notes=tuple(notes), changes=tuple(changes))

    def save(self, path: str | Path, external: bool | None = None, force: bool = False) -> Written:
        """Write the model; see `onnxsurgeon_lite.save`."""
        return save(self.model, path, external, force=force)


class Pass(Protocol):
    """Model in, `PassResult` out; it never touches its input. Options are fields of a frozen dataclass."""

    name: ClassVar[str]

    def apply(self, model: Model) -> PassResult:
        """Apply the pass."""
        ...
