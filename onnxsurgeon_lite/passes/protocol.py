"""What a pass is: model in, model out."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from onnxsurgeon_lite.model import Model


@dataclass(frozen=True)
class PassResult:
    """What a pass made.

    Attributes:
        model: the result; the input itself when nothing changed.
        changed: whether the result differs from the input.
        notes: what the user should know of it, a sentence each.
        changes: what was changed, a line each.
        unsettled: the values whose types do not fit yet; a pipeline judges them at its end.
    """

    model: Model
    changed: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    unsettled: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        source: Model,
        result: Model,
        changes: Iterable[str],
        notes: Iterable[str] = (),
        unsettled: Iterable[str] | None = None,
    ) -> "PassResult":
        """The result of an edit that was made on a copy; the source itself when the copy is still the same."""
        left = frozenset(unsettled or ())
        if result.proto == source.proto:
            return cls(source, changed=False, notes=tuple(notes), unsettled=left)
        return cls(result, True, tuple(notes), tuple(changes), left)


class Pass(Protocol):
    """Model in, `PassResult` out; it never touches its input. Options are fields of a frozen dataclass."""

    name: ClassVar[str]

    def apply(self, model: Model) -> PassResult:
        """Apply the pass."""
        ...


@runtime_checkable
class RetypingPass(Pass, Protocol):
    """A pass that may give values other types; in a pipeline these need not fit before its end."""

    retypes: ClassVar[bool]

    def apply(self, model: Model, unsettled: Set[str] | None = None) -> PassResult:
        """Apply the pass.

        Args:
            unsettled: in a pipeline, the values whose types do not fit so far; with None a misfit is an error.
        """
        ...
