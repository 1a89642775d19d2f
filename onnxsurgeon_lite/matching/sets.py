"""Compare two tensor sets, or a model's outputs with a reference set."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import Quantizers
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.recording.from_model import computed
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.surgery.exposing import known
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance, compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, arrays_in
from onnxsurgeon_lite.tensors.grid import Grid, is_biased
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.references.sets import Stored

Allowed = Tolerance | Callable[[str], Tolerance | None] | None
"""What tensors may differ by: all the same, each by its name, or None for each dtype's own."""

See = Callable[[str, Stored | None, Stored | None, Mapping[str, Comparison]], None]
"""Looks at a tensor that was compared: its name, the actual one, the reference, the comparisons."""


@dataclass(repr=False)
class SetComparison(Shown):
    """Comparisons of tensors in both sets by name, and the names in only one.

    Attributes:
        places: module, class and source line of a compared value, when known.
        stored_as: compared value -> the name of its reference, where it is another one.
        unmoved: outputs that were the same for all feeds, for which nothing was proved.
        left_over: references behind the last one that was matched: what they belong to was not compared.
        only_inner: no output of the model was compared, only what is computed before.
        exchanged: what tells that the outputs are in another order.

    Example:
        >>> references = osl.open_references("references/whole_model.npz")
        >>> osl.compare_sets("whole_model.onnx", references).match
        True
    """

    compared: dict[str, Comparison] = field(default_factory=dict)
    only_actual: list[str] = field(default_factory=list)
    only_reference: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    stored_as: dict[str, str] = field(default_factory=dict)
    unmoved: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    only_inner: bool = False
    exchanged: str = ""

    @property
    def match(self) -> bool:
        """True when every compared tensor matches, an output among them, and no reference is left over or exchanged."""
        proved = not (self.left_over or self.only_inner or self.exchanged)
        return proved and all(c.match for c in self.compared.values())

    def worst_set(self) -> "SetComparison":
        """Return itself: there is one sample."""
        return self


def compare_sets(
    actual: Mapping[str, Stored | None] | ReferenceSet,
    reference: ReferenceSet,
    allowed: Allowed = None,
    see: See = lambda *_: None,
) -> SetComparison:
    """Compare the tensors in both sets, one at a time.

    Raises:
        ReferenceSetError: the sets have no common name, or only inputs in common.
    """
    names = list(actual)
    result = SetComparison(
        only_actual=[name for name in names if name not in reference],
        only_reference=[name for name in reference if name not in set(names)],
        left_over=[*reference.left_over],
    )
    for name in names:
        if name in reference:
            value = actual.read(name) if isinstance(actual, ReferenceSet) else actual[name]
            _compare_named(result, name, value, reference, allowed, see)
    fed = {name for name, entry in reference.entries.items() if entry.is_input}
    if len(fed) < len(reference) and fed.issuperset(name for name in names if name in reference):
        result.compared.clear()  # equal inputs prove nothing of what was computed
    return _require_some(result, reference, names)


def _require_some(
    result: SetComparison, reference: ReferenceSet, names: Sequence[str]
) -> SetComparison:
    """Return the result; raise `ReferenceSetError` if nothing was compared."""
    if not result.compared:
        shown = ", ".join(map(repr, names[:5]))
        raise ReferenceSetError(
            f"{reference.place!r} has none of the {len(names)} tensors to compare: {shown}"
        )
    return result


def _compare_named(
    result: SetComparison,
    name: str,
    value: Stored | None,
    reference: ReferenceSet,
    allowed: Allowed,
    see: See,
    grid: Grid | None = None,
) -> None:
    """Add the comparison of a value with its reference, and what is known of the reference.

    Args:
        grid: the numbers that the value is quantized to.
    """
    tolerance = allowed(name) if callable(allowed) else allowed
    stored = reference.read(name)
    compared = compare_value(name, value, stored, tolerance)
    if grid is not None and isinstance(value, np.ndarray) and isinstance(stored, np.ndarray):
        _judge_in_quanta(compared[name], grid, value, stored, tolerance is None)
    see(name, value, stored, compared)
    result.compared |= compared
    entry = reference.entries[name]
    if place := place_text(entry.scope, entry.class_name.rpartition(".")[2], entry.source):
        result.places[name] = place
    if entry.stored_as not in ("", name):
        result.stored_as[name] = entry.stored_as


def _judge_in_quanta(
    comparison: Comparison, grid: Grid, actual: Array, stored: Array, decides: bool
) -> None:
    """Say how far a value is off behind its quantizer; one quantum without a bias is rounding.

    Args:
        decides: no tolerance was asked for: rounding matches.
    """
    if comparison.reason != "values" or not grid.fits(stored.shape) or grid.holds(stored):
        return
    off = grid.integers(actual) - grid.integers(stored)
    far = int((np.abs(off) > 1).sum())
    cut = int(grid.outside(stored).sum())
    comparison.notes.append(
        f"after the quantizer: off by at most {np.abs(off).max():g} of its quanta, {off.mean():+.3g} on average, "
        f"{far} of {off.size} elements by more than one; {cut} saturated ({100 * cut / off.size:.3g}%)"
    )
    if decides and not far and not cut and not is_biased(off):
        comparison.match, comparison.reason, comparison.exceeding = True, "", 0
        # two numbers that are rounded to neighbors are less than two quanta apart
        comparison.worst, comparison.allowed = None, 2 * float(grid.quantum(stored.shape).max())


def compare_model(
    index: GraphIndex,
    reference: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    allowed: Allowed = None,
    every: bool = False,
    see: See = lambda *_: None,
) -> SetComparison:
    """Compare a model's outputs with references; when no output has one, compare the other values.

    Args:
        every: compare all values that have references, in topological order, computed part by part.
    """
    fetch = wanted(index, reference, every)
    compute = computed if every else _run
    return compared(index, reference, compute(index, feeds, runtime, fetch), fetch, allowed, see)


def wanted(index: GraphIndex, reference: ReferenceSet, every: bool = False) -> list[str]:
    """Return what is computed to be compared: outputs; all values with references where none has one, or `every`.

    Raises:
        ReferenceSetError: no value that the model computes has a reference.
    """
    outputs = [name for name in index.outputs if name in reference]
    inside = known(index, reference)
    fetch = (not every and outputs) or [
        *(n for n in sorted(index.producer, key=index.rank.__getitem__) if n in reference),
        *dict.fromkeys(inside.values()),
    ]
    if not fetch:
        raise ReferenceSetError(
            f"{reference.place!r} has no value that the model computes",
            f"the model's outputs are {', '.join(map(repr, index.outputs))}",
        )
    return fetch


def compared(
    index: GraphIndex,
    reference: ReferenceSet,
    values: Iterable[tuple[str, RunValue]],
    fetch: Sequence[str],
    allowed: Allowed = None,
    see: See = lambda *_: None,
    grids: Mapping[str, Grid] | None = None,
) -> SetComparison:
    """Compare the values that were fetched with their references.

    Args:
        grids: what `Quantizers` finds, where that is known.
    """
    inside = known(index, reference)
    result = SetComparison(left_over=[*reference.left_over], exchanged=reference.exchanged)
    grids = Quantizers.of(index).grids if grids is None else grids
    for name, value in values:
        is_wanted = name in reference and (name in fetch or name in inside)
        if is_wanted and (value is not None or name in index):
            _compare_named(result, name, value, reference, allowed, see, grids.get(name))
    result.only_actual = [name for name in index.outputs if name not in reference]
    result.only_inner = index.outputs.keys().isdisjoint(result.compared)
    ours = (result.compared, index.inputs, index.producer, inside)
    result.only_reference = [n for n in reference if not any(n in each for each in ours)]
    return _require_some(result, reference, fetch)


def _run(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, fetch: Sequence[str]
) -> Iterable[tuple[str, RunValue]]:
    return run(index, feeds, runtime, fetch).items()


def compare_value(
    name: str, actual: Stored | None, reference: Stored | None, tolerance: Tolerance | None = None
) -> dict[str, Comparison]:
    """Compare a tensor, or each tensor of a sequence; an absent optional equals only another absent one."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        return {name: compare(actual, reference, tolerance)}
    actuals, references = (arrays_in(value) for value in (actual, reference))
    missing = np.empty((0,), dtype=object)
    if not actuals and not references:
        return {name: compare(missing, missing)}
    compared = {}
    for i in range(max(len(actuals), len(references))):
        a = actuals[i] if i < len(actuals) else missing
        r = references[i] if i < len(references) else missing
        compared[f"{name}[{i}]"] = compare(a, r, tolerance)
    return compared
