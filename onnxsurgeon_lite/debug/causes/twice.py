"""The same mistake at two nodes of one region: two factors that are missing, two values that are not turned."""

from collections.abc import Iterator
from itertools import combinations, islice

from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.operations import missing_factors
from onnxsurgeon_lite.debug.causes.operators import extra_operations, other_operators
from onnxsurgeon_lite.debug.causes.place import Place
from onnxsurgeon_lite.debug.causes.rotary import missing_rotary, rotary

_ALIKE = 16  # hypotheses about one mistake, of which each two are tried
_MOST = 1024  # pairs
_FAMILIES = (
    rotary,
    missing_rotary,
    missing_factors,
    extra_operations,
    other_operators,
    attributes,
)


def twice(place: Place) -> Iterator[Hypothesis]:
    """Yield each two hypotheses about the same mistake, together."""
    yield from islice(_pairs(place), _MOST)


def _pairs(place: Place) -> Iterator[Hypothesis]:
    alike: dict[str, list[Hypothesis]] = {}
    for family in _FAMILIES:
        for hypothesis in family(place):
            if hypothesis.mistake:
                alike.setdefault(repr(hypothesis.mistake), []).append(hypothesis)
    for several in alike.values():
        for one, other in combinations(several[:_ALIKE], 2):
            sentence = f"{one.sentence.partition(';')[0]}, and {other.sentence}"
            edits, fixed = (*one.edits, *other.edits), one.fixed or other.fixed
            yield Hypothesis(one.name, sentence, edits, one.mistake, fixed=fixed)
