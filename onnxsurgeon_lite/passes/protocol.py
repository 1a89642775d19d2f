"""What a pass is: model in, model out."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from onnxsurgeon_lite.model import Model


@dataclass(frozen=True)
class PassResult:
    """What a pass made.

    Attributes:
        model: the result; the input itself when nothing changed.
        changed: whether the result differs from the input.
        notes: what the user should know of it, a sentence each.
    """

    model: Model
    changed: bool
    notes: tuple[str, ...] = ()


class Pass(Protocol):
    """Model in, `PassResult` out; it never touches its input. Options are fields of a frozen dataclass."""

    name: ClassVar[str]

    def apply(self, model: Model) -> PassResult:
        """Apply the pass."""
        ...
