"""Choose the values that decide whether a model mismatches, and check their references."""

from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import GraphIndex, shape_text
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.runtime.feeds import Feeds, sizes_of
from onnxsurgeon_lite.surgery import infer
from onnxsurgeon_lite.tensors.dtypes import RunValue, fits, is_array


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
        shown = joined(without[:5])
        notes.append(f"output {shown} has no reference: not compared")
    if not targets:
        # the last comparable values: no other one depends on them
        targets = space.names(sorted(comparable - space.ancestors(comparable)))
        shown = joined(targets[:5])
        notes.append(f"no output has a reference: compared {shown} instead")
    # together: one by one, each may be computed from the inputs on
    judge.prepare(targets)
    for name in targets:
        _require_fitting(space, judge, name)
    return targets, notes


def _require_fitting(space: Space, judge: AgainstReferences, name: str) -> None:
    """Raise `ReferenceSetError` if a reference shape contradicts the model's declaration, and what inference says."""
    stored = judge.references.read(name)
    kind = space.index.types.get(name)
    if is_array(stored) and kind is not None and not fits(kind, stored):
        # the declaration may be wrong: ask inference, too
        inferred = infer(space.index.model, {name}).get(name)
        if inferred is not None and fits(inferred, stored):
            return  # the declaration is wrong
        raise ReferenceSetError(
            f"reference {name!r} has shape {list(stored.shape)}, the model declares {shape_text(kind)}",
            f"was {judge.references.place} recorded from another model? record again: onnxdbg record",
        )


def require_same_sizes(
    index: GraphIndex, feeds: Feeds, name: str, stored: RunValue, actual: RunValue
) -> None:
    """Check that a value which mismatches has not just another size of the feeds' symbolic dimensions.

    Raises:
        ReferenceSetError: the reference was recorded with feeds of other sizes.
    """
    kind = index.type_of(name)
    if kind is None or not is_array(stored) or not is_array(actual):
        return
    dims = kind.tensor_type.shape.dim
    if stored.shape == actual.shape or not len(dims) == stored.ndim == actual.ndim:
        return
    # symbol -> its size in the feeds; symbol -> the size that the reference shows instead
    sizes, others = sizes_of(index, feeds, {}), dict[str, int]()
    for dim, size, made in zip(dims, stored.shape, actual.shape, strict=True):
        other = others.setdefault(dim.dim_param, size) if size != made else size
        # a difference that no other size of a symbol explains: a real mismatch
        if size != made and (sizes.get(dim.dim_param) != made or other != size):
            return
    differ = ", ".join(f"{symbol} = {size}, not {sizes[symbol]}" for symbol, size in others.items())
    raise ReferenceSetError(
        f"reference {name!r} has shape {list(stored.shape)}, the feeds give {list(actual.shape)}: it has {differ}",
        "give the feeds that the references were recorded with, or record them again: onnxdbg record",
    )
