"""References made to fit a model: by the names they share, by a map, or by matching them."""

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
    """The references under the model's names.

    Args:
        how: `names` takes them as they are, `auto` matches them, else a map file; None matches them where the names
            are another model's.

    Raises:
        ReferenceSetError: nothing can be matched, or the map cannot be read.
        UnknownNameError: the map names what is not there.
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
            f"{references.place!r} has nothing that can be matched with the model",
            lost_note(matching)
            or "was it recorded with the feeds it holds, from the module that was exported?",
        )
    shapes = {name: fact.shape for name, fact in side.facts.items() if fact.shape is not None}
    fitted = renamed(references, pairs, index, shapes)
    notes = *references.notes, _told(matching, references, len(pairs))
    doubts = tuple(filter(None, [lost_note(matching)]))
    return ReferenceSet(fitted.place, fitted.entries, notes, doubts=doubts)


def needs_alignment(references: ReferenceSet, index: GraphIndex, how: str | None = None) -> bool:
    """Whether `aligned` has something to do."""
    return how != "names" and (how is not None or has_other_names(references, index))


def has_other_names(references: ReferenceSet, index: GraphIndex) -> bool:
    """Whether a set is called after something else than this model's values.

    What PyTorch's modules returned has their paths for names, of which a model may have some by chance.
    """
    names = [name for name, entry in references.entries.items() if not entry.is_input]
    computed = [name for name in names if not BodyName.of(name)]
    if len(computed) < len(names) and index.inputs.keys() >= set(computed):
        return False  # inner values alone: their names are ids, of no use in another model
    common = [name for name in computed if name in index.producer]
    from_torch = any(references.entries[name].class_name for name in computed)
    return not common or (from_torch and 2 * len(common) < len(computed))


def _told(matching: Matching, references: ReferenceSet, pairs: int) -> str:
    computed = sum(not entry.is_input for entry in references.entries.values())
    doubtful = sum(pair.agrees is False for pair in matching.pairs)
    text = f"{pairs} of {computed} references were matched with values of the model"
    passed_on = f", {len(matching.aliases)} only pass another on" if matching.aliases else ""
    return (
        f"{text}{passed_on}; {doubtful} of them by their place alone"
        if doubtful
        else text + passed_on
    )
