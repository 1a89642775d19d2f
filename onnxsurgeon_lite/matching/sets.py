"""Compare tensors with references by name: two sets, or what a model computes with a set.

`compare_sets` takes two sets. `compare_model` runs a model (`wanted` chooses the values) and compares what comes out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.scopes import place_text
from onnxsurgeon_lite.matching.judge import ValueRule
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.recording.from_model import computed
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.surgery.exposing import known
from onnxsurgeon_lite.tensors.comparison import Comparison, Tolerance
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues
from onnxsurgeon_lite.tensors.references import ReferenceSet

See = Callable[[str, RunValue, RunValue, Mapping[str, Comparison]], None]
"""Called for each tensor that was compared, such as to draw it: name, actual, reference, comparisons by name."""


@dataclass
class SetComparison(Shown):
    """Comparisons of tensors in both sets by name, and the names in only one.

    Attributes:
        places: module, class and source line of a compared value, when known.
        stored_as: compared value -> the name of its reference, where it is another one.
        unmoved: outputs that were the same for all feeds, so that nothing was proved for them.
        left_over: references after the last one that was matched with a value: the end of the model was not compared.
        only_inner: no output of the model was compared, only inner values.
        exchanged: how the order of the outputs differs from that of the references; '' if it does not.

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
    actual: RunValues | ReferenceSet,
    reference: ReferenceSet,
    tolerance: Tolerance | None = None,
    see: See = lambda *_: None,
) -> SetComparison:
    """Compare the tensors in both sets, one at a time.

    Raises:
        ReferenceSetError: the sets have no common name, or only inputs in common.
    """
    names = dict.fromkeys(actual)
    result = SetComparison(
        only_actual=[name for name in names if name not in reference],
        only_reference=[name for name in reference if name not in names],
        left_over=list(reference.left_over),
    )
    rule = ValueRule(tolerance, outputs=names).for_references(reference)
    if isinstance(actual, ReferenceSet):
        rule = rule.for_references(actual)
    for name in names:
        if name in reference:
            value = actual.read(name) if isinstance(actual, ReferenceSet) else actual[name]
            _compare_named(result, name, value, reference, rule, see)
    # inputs are the same on both sides: alone they prove nothing of what was computed
    fed = {name for name, entry in reference.entries.items() if entry.is_input}
    if len(fed) < len(reference) and fed.issuperset(name for name in names if name in reference):
        result.compared.clear()
    return _require_some(result, reference, list(names))


def _require_some(
    result: SetComparison, reference: ReferenceSet, names: Sequence[str]
) -> SetComparison:
    """Return the result; raise `ReferenceSetError` if nothing was compared."""
    if not result.compared:
        shown = joined(names[:5])
        raise ReferenceSetError(
            f"{reference.place!r} has none of the {len(names)} tensors to compare: {shown}"
        )
    return result


def _compare_named(
    result: SetComparison,
    name: str,
    value: RunValue,
    reference: ReferenceSet,
    rule: ValueRule,
    see: See,
) -> None:
    """Add the comparison of a value with its reference, and what is known of the reference."""
    stored = reference.read(name)
    compared = rule.each(name, value, stored)
    see(name, value, stored, compared)
    result.compared |= compared
    entry = reference.entries[name]
    if place := place_text(entry.scope, entry.class_name.rpartition(".")[2], entry.source):
        result.places[name] = place
    if entry.stored_as not in ("", name):
        result.stored_as[name] = entry.stored_as


def compare_model(
    index: GraphIndex,
    reference: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    rule: ValueRule,
    every: bool,
    see: See,
) -> SetComparison:
    """Compare a model's outputs with references; when no output has one, compare the other values.

    Args:
        every: compare all values that have references, in topological order, computed part by part.
    """
    fetch = wanted(index, reference, every)
    rule.read = lambda name: dict(_run(index, feeds, runtime, [name]))[name]
    compute = computed if every else _run
    # values are compared as they arrive, so `computed` never holds them all
    return compared(index, reference, compute(index, feeds, runtime, fetch), fetch, rule, see)


def wanted(index: GraphIndex, reference: ReferenceSet, every: bool = False) -> list[str]:
    """Return the values to compare: the outputs that have references; if none has one, all values that have.

    Args:
        every: all values that have references, in any case.

    Raises:
        ReferenceSetError: no value that the model computes has a reference.
    """
    outputs = [name for name in index.outputs if name in reference]
    # values of bodies that have references -> their names without the iteration
    inside = known(index, reference)
    # where an output has a reference, the outputs are enough
    fetch = outputs
    if every or not outputs:
        in_order = sorted(index.producer, key=index.rank.__getitem__)
        fetch = [name for name in in_order if name in reference]
        # one value for all of its iterations
        fetch += dict.fromkeys(inside.values())
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
    rule: ValueRule,
    see: See = lambda *_: None,
) -> SetComparison:
    """Compare the values that were fetched with their references."""
    # values of bodies that have references
    inside = known(index, reference)
    rule = rule.for_references(reference)
    result = SetComparison(left_over=list(reference.left_over), exchanged=reference.exchanged)
    for name, value in values:
        # an output that the runtime left out is missing, another value is none
        is_wanted = name in reference and (name in fetch or name in inside)
        if is_wanted and (value is not None or name in index):
            _compare_named(result, name, value, reference, rule, see)
    result.only_actual = [name for name in index.outputs if name not in reference]
    result.only_inner = index.outputs.keys().isdisjoint(result.compared)
    # names that are accounted for: compared, fed, computed, or of a body
    ours = (result.compared, index.inputs, index.producer, inside)
    result.only_reference = [n for n in reference if not any(n in each for each in ours)]
    return _require_some(result, reference, fetch)


def _run(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, fetch: Sequence[str]
) -> Iterable[tuple[str, RunValue]]:
    return run(index, feeds, runtime, fetch).items()
