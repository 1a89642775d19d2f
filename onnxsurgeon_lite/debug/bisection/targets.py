"""Choose the values that decide whether a model mismatches, and check their references."""

import numpy as np

from onnxsurgeon_lite.debug.bisection.judge import AgainstReferences
from onnxsurgeon_lite.debug.bisection.search_space import Space
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.text import shape_text
from onnxsurgeon_lite.surgery.types import infer
from onnxsurgeon_lite.tensors.dtypes import fits


def targets_of(space: Space, judge: AgainstReferences) -> tuple[list[str], list[str]]:
    """Return (outputs with a reference, else the last values with one; notes about the other outputs).

    Raises:
        ReferenceSetError: no value has a reference, or a reference shape contradicts the model.
    """
    comparable = {i for i, name in enumerate(space.values) if judge.can_judge(name)}
    if not comparable:
        raise ReferenceSetError(
            f"{judge.references.place!r} has no value that the model computes",
            "was it recorded from this model? record again: onnxdbg record",
        )
    outputs = [name for name in space.index.outputs if name in space.number]
    targets = [name for name in outputs if judge.can_judge(name)]
    without = [name for name in outputs if not judge.can_judge(name)]
    notes = []
    if without and targets:
        shown = ", ".join(map(repr, without[:5]))
        notes.append(f"output {shown} has no reference: not compared")
    if not targets:
        targets = space.names(sorted(comparable - space.ancestors(comparable)))
        shown = ", ".join(map(repr, targets[:5]))
        notes.append(f"no output has a reference: compared {shown} instead")
    for name in targets:
        _require_fitting(space, judge, name)
    return targets, notes


def _require_fitting(space: Space, judge: AgainstReferences, name: str) -> None:
    """Raise `ReferenceSetError` if a reference shape contradicts the model's declaration, and what inference says."""
    stored = judge.references.read(name)
    kind = space.index.types.get(name)
    if isinstance(stored, np.ndarray) and kind is not None and not fits(kind, stored):
        inferred = infer(space.index.model, {name}).get(name)
        if inferred is not None and fits(inferred, stored):
            return  # the declaration is wrong
        raise ReferenceSetError(
            f"reference {name!r} has shape {list(stored.shape)}, the model declares {shape_text(kind)}",
            f"was {judge.references.place} recorded from another model? record again: onnxdbg record",
        )
