"""Compare two tensor sets, or a model's outputs with a reference set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.surgery.exposing import known
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance, compare
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.references.sets import Entry, Stored

Allowed = Tolerance | Callable[[str], Tolerance | None] | None
"""What tensors may differ by: all the same, each by its name, or None for each dtype's own."""


@dataclass(repr=False)
class SetComparison(Shown):
    """Comparisons of tensors in both sets by name, and the names in only one.

    Attributes:
        places: module, class and source line of a compared value, when known.
        unmoved: outputs that were the same for all feeds, for which nothing was proved.

    Example:
        >>> references = osl.open_references("references/whole_model.npz")
        >>> osl.compare_sets("whole_model.onnx", references).match
        True
    """

    compared: dict[str, Comparison] = field(default_factory=dict)
    only_actual: list[str] = field(default_factory=list)
    only_reference: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    unmoved: list[str] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """True when every compared tensor matches."""
        return all(comparison.match for comparison in self.compared.values())


def compare_sets(
    actual: Mapping[str, Stored | None] | ReferenceSet,
    reference: ReferenceSet,
    allowed: Allowed = None,
) -> SetComparison:
    """Compare the tensors in both sets, one at a time.

    Raises:
        ReferenceSetError: the sets have no common name.
    """
    result = SetComparison()
    names = list(actual)
    result.only_actual = [name for name in names if name not in reference]
    result.only_reference = [name for name in reference if name not in set(names)]
    for name in names:
        if name in reference:
            value = actual.read(name) if isinstance(actual, ReferenceSet) else actual[name]
            tolerance = allowed(name) if callable(allowed) else allowed
            result.compared |= compare_value(name, value, reference.read(name), tolerance)
            if place := _place(reference.entries[name]):
                result.places[name] = place
    if not result.compared:
        shown = ", ".join(map(repr, names[:5]))
        raise ReferenceSetError(
            f"{reference.place!r} has none of the {len(names)} tensors to compare: {shown}"
        )
    return result


def _place(entry: Entry) -> str:
    return place_text(entry.scope, entry.class_name.rpartition(".")[2], entry.source)


def compare_model(
    index: GraphIndex,
    reference: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    allowed: Allowed = None,
) -> SetComparison:
    """Compare a model's outputs with references; when no output has one, compare the other values."""
    fetch = [name for name in index.outputs if name in reference]
    inside = known(index, reference)
    fetch = fetch or [
        *(n for n in index.producer if n in reference),
        *dict.fromkeys(inside.values()),
    ]
    if not fetch:
        raise ReferenceSetError(
            f"{reference.place!r} has no value that the model computes",
            f"the model's outputs are {', '.join(map(repr, index.outputs))}",
        )
    found = run(index, feeds, runtime, fetch)
    computed = {n: value for n, value in found.items() if value is not None or n in index}
    result = compare_sets(computed, reference, allowed)
    fed = index.inputs.keys() | index.producer.keys() | inside.keys()
    result.only_actual = [name for name in index.outputs if name not in reference]
    result.only_reference = [name for name in result.only_reference if name not in fed]
    return result


def compare_value(
    name: str,
    actual: Stored | None,
    reference: Stored | None,
    tolerance: Tolerance | None = None,
) -> dict[str, Comparison]:
    """Compare a tensor, or each tensor of a sequence; an absent optional equals only another absent one."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        return {name: compare(actual, reference, tolerance)}
    actuals, references = (
        value if isinstance(value, list) else [] if value is None else [value]
        for value in (actual, reference)
    )
    missing = np.empty((0,), dtype=object)
    if not actuals and not references:
        return {name: compare(missing, missing)}
    compared = {}
    for i in range(max(len(actuals), len(references))):
        a = actuals[i] if i < len(actuals) else missing
        r = references[i] if i < len(references) else missing
        compared[f"{name}[{i}]"] = compare(a, r, tolerance)
    return compared
