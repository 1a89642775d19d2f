"""Align references with a model: by equal names, by a map, or by matching."""

from collections.abc import Callable
from pathlib import Path

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.bodies import BodyName
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.values.facts import side_of_model, side_of_references
from onnxsurgeon_lite.matching.values.mapping import load_map, renamed, static_shapes
from onnxsurgeon_lite.matching.values.pairing import Matching, lost_note, match
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors.references import ReferenceSet

Progress = Callable[[str], None]


def aligned(
    references: ReferenceSet,
    index: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    how: str | None = None,
    progress: Progress = lambda _: None,
) -> ReferenceSet:
    """Return the references under the model's names.

    Args:
        how: `names` keeps them, `auto` matches them, else a map file; None matches them if the names belong to
            another model.
    """
    if not needs_alignment(references, index, how):
        return references
    if how is not None and how != "auto":
        return renamed(references, load_map(Path(how)), index, static_shapes(index))
    side = side_of_model(index, feeds, runtime, progress, with_weights=False)
    matching = match(side_of_references(references), side)
    pairs = [pair for pair in matching.pairs if pair.b in index.producer]
    if not pairs:
        raise ReferenceSetError(
            f"no reference in {references.place!r} matches a value of the model",
            lost_note(matching)
            or "record them again from the exported module: onnxdbg record FILE.py:FACTORY -o NEW",
        )
    shapes = {name: fact.shape for name, fact in side.facts.items() if fact.shape is not None}
    fitted = renamed(references, pairs, index, shapes)
    notes = *references.notes, _summary(matching, references, len(pairs))
    doubts = tuple(filter(None, [lost_note(matching)]))
    return ReferenceSet(fitted.place, fitted.entries, notes, doubts=doubts)


def needs_alignment(references: ReferenceSet, index: GraphIndex, how: str | None = None) -> bool:
    return how != "names" and (how is not None or has_other_names(references, index))


def has_other_names(references: ReferenceSet, index: GraphIndex) -> bool:
    """Return whether the names of a set belong to another model.

    Outputs of PyTorch modules have module paths as names; a model may have some of these by chance.
    """
    names = [name for name, entry in references.entries.items() if not entry.is_input]
    computed = [name for name in names if not BodyName.of(name)]
    if len(computed) < len(names) and index.inputs.keys() >= set(computed):
        return False  # only values in bodies: their names are ids of this model
    common = [name for name in computed if name in index.producer]
    from_torch = any(references.entries[name].class_name for name in computed)
    return not common or (from_torch and 2 * len(common) < len(computed))


def _summary(matching: Matching, references: ReferenceSet, pairs: int) -> str:
    computed = sum(not entry.is_input for entry in references.entries.values())
    doubtful = sum(pair.agrees is False for pair in matching.pairs)
    text = f"{pairs} of {computed} references match values of the model"
    passed_on = f", {len(matching.aliases)} are copies of others" if matching.aliases else ""
    return (
        f"{text}{passed_on}; {doubtful} matched by position alone" if doubtful else text + passed_on
    )
