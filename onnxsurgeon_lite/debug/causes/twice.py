"""The same mistake at several nodes of one region: two factors that are missing, a slope that all nodes have."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from itertools import combinations, islice

from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.constants import epsilons, scalars
from onnxsurgeon_lite.debug.causes.everywhere import edited, everywhere
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.operations import missing_factors
from onnxsurgeon_lite.debug.causes.operators import extra_operations, other_operators
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.rotary import missing_rotary, rotary
from onnxsurgeon_lite.passes.protocol import key

_ALIKE = 16  # hypotheses about one mistake; each pair of them is tried
_MOST = 1024  # pairs
_FAMILIES = (
    rotary,
    missing_rotary,
    missing_factors,
    extra_operations,
    other_operators,
    attributes,
)


def attributes_of_all(place: Place) -> Hypotheses:
    """Yield other attributes and epsilons of all nodes of a region that have the same ones."""
    yield from _of_all(place, attributes)
    yield from _of_all(place, epsilons)


def operators_of_all(place: Place) -> Hypotheses:
    """Yield other operators and single numbers of all nodes of a region that have the same ones."""
    yield from _of_all(place, other_operators)
    yield from _of_all(place, scalars)


def _of_all(place: Place, family: Callable[[Place], Iterable[Hypothesis]]) -> Hypotheses:
    """Yield each mistake at all nodes that have the same, if these are several."""
    for several in _alike(place, [family]).values():
        done = set[int]()
        for hypothesis in several if len(several) > 1 else ():
            if done.issuperset(edited(place.index, hypothesis.edits)):
                continue
            edits = everywhere(place.index, hypothesis.edits)
            nodes = edited(place.index, edits)
            done.update(nodes)
            if len(nodes) > 1:
                wrong, _, right = hypothesis.sentence.rpartition("; ")
                named = edited(place.index, hypothesis.edits)
                others = [place.title(number) for number in nodes if number not in named]
                sentence = f"{wrong}, the same at {' and '.join(others)}; {right}"
                yield replace(hypothesis, sentence=sentence, edits=edits)


def twice(place: Place) -> Hypotheses:
    """Yield each two hypotheses about the same mistake, together."""
    yield from islice(_pairs(place), _MOST)


def _pairs(place: Place) -> Hypotheses:
    for several in _alike(place, _FAMILIES).values():
        for one, other in combinations(several[:_ALIKE], 2):
            sentence = f"{one.sentence.partition(';')[0]}, and {other.sentence}"
            edits, fixed = (*one.edits, *other.edits), one.fixed or other.fixed
            yield Hypothesis(one.name, sentence, edits, one.mistake, fixed=fixed)


def _alike(
    place: Place, families: Iterable[Callable[[Place], Iterable[Hypothesis]]]
) -> dict[Hashable, list[Hypothesis]]:
    """Return the hypotheses about each mistake."""
    found: dict[Hashable, list[Hypothesis]] = {}
    for family in families:
        for hypothesis in family(place):
            if hypothesis.mistake:
                found.setdefault(key(hypothesis.mistake), []).append(hypothesis)
    return found
