"""Find the one change that makes a wrong region give its reference: an operation less or more, another operator."""

import contextlib
import itertools
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Literal

import numpy as np

from onnxsurgeon_lite.debug.causes.attributes import attributes
from onnxsurgeon_lite.debug.causes.formulas import FORMULAS
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted
from onnxsurgeon_lite.debug.causes.norms import normalized
from onnxsurgeon_lite.debug.causes.operators import (
    extra_joins,
    extra_operations,
    other_arithmetic,
    other_operators,
)
from onnxsurgeon_lite.debug.causes.place import Place, RegionSample, small
from onnxsurgeon_lite.debug.causes.trying import Bench
from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.graph.index import fixed_shape
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.remove import Remove
from onnxsurgeon_lite.passes.replace import Replace
from onnxsurgeon_lite.passes.set_attr import SetAttr
from onnxsurgeon_lite.passes.set_op import SetOp
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.comparison import agrees
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    RunValues,
    Wide,
    is_array,
    is_float,
    present,
    types_of,
    wide,
)
from onnxsurgeon_lite.tensors.references import ReferenceSet

_TRIED = 256  # changes of one region
_BUDGET = 64 << 20  # bytes of their results that are computed together
_SOURCES = 32  # other values that a region may read
_MISTAKES = (other_operators, other_arithmetic, extra_operations, extra_joins, attributes)

Change = Literal["extra", "missing", "other"]


@dataclass(frozen=True)
class Explained:
    """A change that makes a region give its reference.

    Attributes:
        change: an operation that is too many, one that is missing, or another operator, attribute or input.
        node: the node that the change is made at, or that reads what is changed.
        value: of a missing operation, its value in the references.
    """

    change: Change
    because: str
    node: int | None
    value: str = ""


@dataclass(frozen=True)
class Region:
    """The nodes of a wrong region, which can run with one change at a time.

    Attributes:
        positions: its nodes, in the order of the graph. own: those that may be at fault.
        given: the references of its inputs, by name. expected: that of its value.
        constant: the values that do not depend on what the model is given.
    """

    observer: Observer
    positions: Sequence[int]
    own: Sequence[int]
    value: str
    given: RunValues
    expected: Array
    judge: AgainstReferences
    constant: Container[str]

    def explained(self, lacking: Sequence[str]) -> Explained | None:
        """Return a change that gives the reference, of several the closest; None if there is none."""
        references = self.judge.references
        # in the order of preference: a reference in place of an input, a mistake at one node, a sum with a reference
        found = self._from_other_inputs(references, lacking) or self._from_mistakes()
        return found or self._from_sums(references)

    def _from_mistakes(self) -> Explained | None:
        """Try what is done otherwise at one of the nodes, side by side."""
        # the catalogue of mistakes works on a `Place`: this region, with its inputs and its one output
        sample = RegionSample(self.given, {self.value: self.expected}, self.given.__getitem__)
        place = Place.at(self.observer, self.positions, self.value, [sample], self.judge, {})
        with Bench(place, _BUDGET, math.inf) as bench:
            tried = bench.outcomes(itertools.islice(self._mistakes(place), _TRIED))
            fits = [outcome for outcome in tried if outcome.fits]
            # only what was tried says which fit is none by chance
            proved = (fit for fit in fits if not bench.by_chance(fit.hypothesis))
            best = min(proved, key=attrgetter("error"), default=None)
        return None if best is None else _explained(place, best.hypothesis)

    def _mistakes(self, place: Place) -> Hypotheses:
        """Yield what is tried: one change at a time, of the nodes that may be at fault."""
        found = itertools.chain.from_iterable(family(place) for family in _MISTAKES)
        for hypothesis in found:
            edit = hypothesis.edits[-1]
            several = isinstance(edit, SetAttr) and len(edit.attributes) > 1
            if not several and place.positions[_node(place, hypothesis)] in self.own:
                yield hypothesis

    def _from_other_inputs(
        self, references: ReferenceSet, lacking: Sequence[str]
    ) -> Explained | None:
        """Try the references that the model lacks, then others of the same shape, in place of each input."""
        tried = [
            (name, value, other)
            for name, value in self._inputs()
            for other in self._sources(name, value, references, lacking)
        ]
        # run the region with each candidate in place of the input
        found = self._first(tried, lambda _, read: read, references)
        if found is None:
            return None
        name, value, other, instead = found
        reader = self._reader(name)
        # the model has this value: it reads the wrong one
        if other in self.observer.index:
            because = f"reading {other!r} in place of {name!r} gives the reference"
            return Explained("other", because, reader)
        # the model lacks it: the reader should make it itself, or an operation is missing before the reader
        if reader is not None and self._is_made_by(reader, instead):
            return Explained("other", f"its value should be the references' {other!r}", reader)
        near = self._near(name, value, references)
        what = step_between(
            value,
            instead,
            ((n, v) for n in near if (v := _read(references, n, value)) is not None),
        )
        because = f"{what} is missing behind {name!r}: reading the references' {other!r} gives the reference"
        return Explained("missing", because, reader, other)

    def _is_made_by(self, position: int, other: Array) -> bool:
        """Return whether a reference fits as what a node makes, too: a mask that is added twice is added once."""
        made = self.observer.index.nodes[position].output[0]
        # the reader makes the culprit's value: compare directly; else run the other nodes on `other`
        if made == self.value:
            allowed = self.judge.allowed(self.value, other)
            return other.shape == self.expected.shape and agrees(other, self.expected, allowed)
        rest = [p for p in self.positions if p != position]
        given = {**self.given, made: other}
        part = self.observer.part(rest, types_of(given), [self.value])
        with (
            contextlib.suppress(RuntimeFailure),
            self.observer.opened(part, given, [self.value]) as run,
        ):
            return self._agrees(run, made, other)
        return False

    def _from_sums(self, references: ReferenceSet) -> Explained | None:
        """Try each input with a reference added, or a value without one: a sum that is missing may have none."""
        found = self._first_sum(references) or self._first_sum(self._unrecorded(references))
        if found is None:
            return None
        name, _, other, _ = found
        because = f"Add of {other!r} is missing behind {name!r}: it gives the reference"
        return Explained("missing", because, self._reader(name), other)

    def _first_sum(self, added: ReferenceSet) -> tuple[str, Array, str, Array] | None:
        tried = [
            (name, value, other)
            for name, value in self._inputs()
            if is_float(value.dtype)
            for other in self._near(name, value, added)
        ]
        return self._first(tried, np.add, added)

    def _unrecorded(self, references: ReferenceSet) -> ReferenceSet:
        """Return the nearest values before the region that have no reference, as the model computes them."""
        index = self.observer.index
        # only values of an input's shape can be added to it
        shapes = {value.shape for _, value in self._inputs()}
        rank = index.rank
        before = [name for name in rank if rank[name] < rank[self.value] and name not in references]
        names = [
            name
            for name in sorted(before, key=rank.__getitem__)
            if index.producer[name] not in self.positions
            and fixed_shape(index.type_of(name)) in shapes
        ]
        found = dict[str, RunValue]()
        with contextlib.suppress(RuntimeFailure):
            found = self.observer.fetch(names[-_SOURCES:])
        return ReferenceSet.of(present(found))

    def _inputs(self) -> Iterator[tuple[str, Array]]:
        for name, value in self.given.items():
            if is_array(value) and value.size:
                yield name, value

    def _first(
        self,
        tried: Sequence[tuple[str, Array, str]],
        made_of: Callable[[Array, Array], Array],
        others: ReferenceSet,
    ) -> tuple[str, Array, str, Array] | None:
        """Return the first (input, its value, another) that gives what is expected, and what it makes of both."""
        if not tried:
            return None
        # one session serves all candidates: only one input changes
        part = self.observer.part(self.positions, types_of(self.given), [self.value])
        with (
            contextlib.suppress(RuntimeFailure),
            self.observer.opened(part, self.given, [self.value]) as run,
        ):
            for name, value, other in tried:
                read = _read(others, other, value)
                if read is not None and self._agrees(run, name, made_of(value, read)):
                    return name, value, other, made_of(value, read)
        return None

    def _reader(self, name: str) -> int | None:
        return next((p for p in self.own if name in self.observer.index.reads[p]), None)

    def _sources(
        self, name: str, value: Array, references: ReferenceSet, lacking: Sequence[str]
    ) -> list[str]:
        """Return the references that may be an input: those that the model lacks, then the nearest ones."""
        # for a single node the nearest references are tried, too; for a larger region those that the model lacks
        is_wired = len(self.own) == 1 and name not in self.constant
        nearest = self._near(name, value, references) if is_wired else []
        return list(dict.fromkeys(chain(lacking, nearest)))

    def _near(self, name: str, value: Array, references: ReferenceSet) -> list[str]:
        """Return the nearest references of an input's shape that were recorded before the value, the last one first."""
        before = itertools.takewhile(lambda other: other != self.value, references)
        fitting = [
            other
            for other in before
            if other != name and references.entries[other].shape in (value.shape, None)
        ]
        return fitting[: -_SOURCES - 1 : -1]

    def _agrees(
        self,
        run: Callable[..., Sequence[RunValues]],
        name: str,
        other: Array,
    ) -> bool:
        try:
            found = run({name: other})[0][self.value]
        except RuntimeFailure:
            return False
        allowed = self.judge.allowed(self.value, found)
        return is_array(found) and agrees(found, self.expected, allowed)


def _node(place: Place, hypothesis: Hypothesis) -> int:
    """Return the node of a place that a hypothesis is about."""
    edit = _edit(hypothesis)
    if isinstance(edit, Replace):
        return place.producer[edit.outputs[0]]
    assert isinstance(edit, SetAttr | SetOp | Remove)
    return place.number(edit.nodes[0])


def _edit(hypothesis: Hypothesis) -> Pass:
    """Return the edit that says what is wrong: another operator may need other attributes."""
    return next((e for e in hypothesis.edits if isinstance(e, SetOp)), hypothesis.edits[-1])


def _explained(place: Place, hypothesis: Hypothesis) -> Explained:
    number, edit = _node(place, hypothesis), _edit(hypothesis)
    op_type, position = place.nodes[number].op_type, place.positions[number]
    match edit:
        case SetOp():
            because = f"{edit.op_type} gives the reference, {op_type} does not"
        case SetAttr():
            values = ", ".join(f"{name}={value!r}" for name, value in edit.attributes)
            because = f"{values} gives the reference"
        case _:
            return Explained("extra", f"without this {op_type} the reference follows", position)
    return Explained("other", because, position)


def _read(references: ReferenceSet, name: str, like: Array) -> Array | None:
    """Return a reference in the shape and dtype of another value, None if it has another size."""
    try:
        value = references.read(name)
    except SurgeonError:
        return None
    if not is_array(value) or value.size != like.size or value.dtype.kind in "OUS":
        return None
    return value.reshape(like.shape).astype(like.dtype, copy=False)


def step_between(before: Array, after: Array, others: Iterable[tuple[str, Array]]) -> str:
    """Return the name of the operation: `Relu`, `Add of 'x'`, `Add of a bias`; `an operation` if none is known.

    Args:
        others: tensors that may have been added, by name.
    """
    x, y = wide(before), wide(after)
    # Generators: each formula is computed only if none before it fits. The order is the preference: a plain function,
    # a fitted one, a sum. A vector has too few numbers to distinguish functions.
    known = ((name, made(x)) for name, made in FORMULAS.items() if name != "Identity")
    fitted = ((name, made(x, y)) for name, made in _FITTED.items())
    added = ((f"Add of {name!r}", x + wide(other)) for name, other in others)
    tried = chain(known, fitted, added) if x.ndim > 1 else added
    with np.errstate(all="ignore"):
        return next((name for name, made in tried if small(made - y, y)), "an operation")


def _softmax(x: Wide, _: Wide) -> Wide:
    made = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(made / made.sum(-1, keepdims=True))


def _normalized(x: Wide, y: Wide) -> Wide:
    # scale and bias are fitted for each element of the last axis
    normal = normalized(x, "LayerNormalization")
    scale, bias = fitted(normal, y, tuple(range(x.ndim - 1)), shifts=True)
    return np.asarray(normal * scale + bias)


_FITTED: Mapping[str, Callable[[Wide, Wide], Wide]] = {
    "Softmax": _softmax,
    "Mul by a constant": lambda x, y: x * fitted(x, y, None)[0],
    "Add of a bias": lambda x, y: x + (y - x).mean(tuple(range(x.ndim - 1))),
    "LayerNormalization": _normalized,
}
