"""The pass protocol: model in, `PassResult` out."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from onnx import TensorProto

from onnxsurgeon_lite.model import Model, Written, save
from onnxsurgeon_lite.shown import HIDDEN, Shown


@dataclass(frozen=True, repr=False)
class PassResult(Shown):
    """The result of a pass.

    Attributes:
        model: the new model; the input object when nothing changed.
        changed: True when the new model differs from the input.
        notes: hints for the user, one sentence each.
        changes: the changes, one line each.
        unsettled: values whose types do not fit yet; a pipeline checks them at its end.
        unproved: True when only a run can tell that the result computes what the source does.
        frozen: inputs that became constants, with their numbers; a run of the source is fed them.
        turned: inputs and outputs in another layout: which dimension of the source stands at each place.

    Example:
        >>> result = osl.Rename((("23", "features"),)).apply(osl.load("whole_model.onnx"))
        >>> print(result)
        renamed value '23' to 'features'
    """

    model: Model = field(metadata=HIDDEN)
    changed: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    unsettled: frozenset[str] = frozenset()
    unproved: bool = field(default=False, metadata=HIDDEN)
    frozen: Mapping[str, TensorProto] = field(default_factory=dict, metadata=HIDDEN)
    turned: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=HIDDEN)

    @classmethod
    def of(
        cls,
        source: Model,
        result: Model,
        changes: Iterable[str],
        notes: Iterable[str] = (),
        unsettled: Iterable[str] | None = None,
        *,
        is_told: bool = False,
    ) -> "PassResult":
        """Return the result of an edit on a copy; the source when the copy equals it.

        Args:
            is_told: without `changes`, the copy is known to be equal.
        """
        left = frozenset(unsettled or ())
        told = tuple(changes)
        if (is_told and not told) or result.proto == source.proto:
            return cls(source, changed=False, notes=tuple(notes), unsettled=left)
        return cls(result, True, tuple(notes), told, left)

    def save(self, path: str | Path, external: bool | None = None, force: bool = False) -> Written:
        """Write the model; see `onnxsurgeon_lite.save`."""
        return save(self.model, path, external, force=force)


class Pass(Protocol):
    """An edit of a model; options are fields of a frozen dataclass.

    Example:
        >>> isinstance(osl.Rename({"23": "features"}.items()), osl.PASSES["rename"])
        True
    """

    name: ClassVar[str]

    def apply(self, model: Model) -> PassResult:
        """Return the edited model; the input does not change."""
        ...


@runtime_checkable
class RetypingPass(Pass, Protocol):
    """A pass that may change types of values; a pipeline checks them only at its end."""

    retypes: ClassVar[bool]

    def apply(self, model: Model, unsettled: Set[str] | None = None) -> PassResult:
        """Apply the pass.

        Args:
            unsettled: in a pipeline, the values whose types do not fit yet; with None a misfit is an error.
        """
        ...
