"""Prove on the model itself, run from the references, that an edit repairs a culprit and nothing else is wrong then."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from onnxsurgeon_lite.debug.causes.everywhere import everywhere, merged
from onnxsurgeon_lite.debug.causes.hypothesis import ONE_EXAMPLE, Edits, Hypothesis
from onnxsurgeon_lite.debug.causes.place import (
    CHANNELS_SECOND,
    Place,
    RegionSample,
    edited_by,
    makers,
    who,
)
from onnxsurgeon_lite.debug.causes.surroundings import Surroundings
from onnxsurgeon_lite.debug.result import Case, Cause, Culprit
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, constant
from onnxsurgeon_lite.passes import Insert, Pass, SetConstant
from onnxsurgeon_lite.passes.recipe_writing import as_command, as_step
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import RunValue, has_floats, is_array, wide
from onnxsurgeon_lite.tensors.references import ReferenceSet

_MANY = 16  # different floats that prove an edit
_FACTORS = (-1.0, 10.0, 100.0, 0.01)  # of inputs that may distinguish causes


@dataclass(frozen=True)
class Proof:
    """Runs the edited model, or a part of it, and compares its values with the references."""

    case: Case
    around: Surroundings

    @property
    def index(self) -> GraphIndex:
        return self.case.index

    def proved(self, place: Place, hypothesis: Hypothesis, culprit: Culprit) -> Cause | None:
        """Return a hypothesis as a cause, if the model itself, edited by it, agrees on every sample."""
        steps, sentence = place.outside(hypothesis.edits), hypothesis.sentence
        # the region alone must agree, in every sample
        proves = hypothesis.proves
        after = self.agreement(place, steps, hypothesis.instead) if proves else None
        if after is None:
            return None
        # other readers of what is edited must stay right; else the edit is for the region alone
        if not self._spares(place, steps):
            steps = place.outside(_kept_here(place, step) for step in hypothesis.edits)
            readers = _readers_here(place, hypothesis.edits)
            sentence = f"{hypothesis.wrong} for {readers}; {hypothesis.right}"
            if not self._spares(place, steps):
                return None
        # what the culprit is seen at must be right; else the edit is for all that read it, or for all nodes like it
        if not self._cures(place, culprit, steps, hypothesis.instead):
            wired, alike = (everywhere(self.index, steps, how) for how in ("wired", "alike"))
            wider = _for_all(place, steps), wired, alike
            instead = hypothesis.instead
            steps = next((s for s in wider if self.repairs(place, culprit, s, instead)), ())
            if not steps:
                return None
            if steps in (wired, alike):
                sentence += " here and at all nodes like it"
        alone = ", at the sizes of this sample alone" if hypothesis.fixed else ""
        of_one = bool(hypothesis.unknowns) and _of_one_example(place, hypothesis)
        solved = f"; {hypothesis.fitted}" if hypothesis.unknowns else ""
        solved += f" {ONE_EXAMPLE}" * of_one
        if solved and len({c.site.number for c in place.constants() if c.is_float}) > 1:
            solved += "; it may make up for another constant here"
        said = f"{sentence} {place.region} agrees (max abs {after.max_abs:.2g}{solved}){alone}"
        cause = self.cause(culprit, place.value, hypothesis.name, said, after, steps)
        return replace(cause, mistake=hypothesis.mistake, of_one_example=of_one)

    def repairs(
        self, place: Place, culprit: Culprit, steps: Sequence[Pass], instead: str = ""
    ) -> Comparison | None:
        """Return what edits make of a culprit's value; None if that, what it is seen at or another reader is wrong."""
        after = self.agreement(place, steps, instead)
        is_right = after is not None and self._spares(place, steps)
        return after if is_right and self._cures(place, culprit, steps, instead) else None

    def agreement(
        self, place: Place, steps: Sequence[Pass], instead: str = ""
    ) -> Comparison | None:
        """Run a place in the model with edits; return its value in the first sample, None if it does not agree."""
        after: Comparison | None = None
        # the first sample decides whether the others are run
        for sample in place.samples:
            found = self._found(place, steps, sample, instead)
            compared = {
                name: self.case.judge.compared(name, value, sample.wanted[name])
                for name, value in found.items()
            }
            if not found or not all(c.match for c in compared.values()):
                return None
            after = after or compared[place.value]
        return after

    def all_right(self, steps: Sequence[Pass]) -> bool:
        """Return whether all values of an edited model are right, as it computes them from the feeds."""
        # from the feeds on, so errors of what comes first are in what follows
        judge = replace(self.case.judge, outputs={})
        try:
            index = edited_by(merged(steps), self.index)
            observer = Observer(index, self.case.runtime)
            for references, feeds in self.case.samples:
                judge.references = references
                observer.feed(feeds)
                known = [name for name in references.entries if name in index.producer]
                found = observer.sweep(known, prepare=references.prefetch)
                wrong = any(not judge.good(name, value) for name, value in found)
                observer.forget(list(observer.kept))
                if wrong:
                    return False
        except SurgeonError:
            return False
        return True

    def right_in(self, index: GraphIndex, culprits: Sequence[Culprit]) -> dict[str, Comparison]:
        """Return the culprits' values that an edited model makes right; nothing where one behind an edit is wrong."""
        old = {node.output[0]: list(node.input) for node in self.index.nodes}
        found = dict[str, Comparison]()
        try:
            # nodes that the edits put in or make read something else
            nodes = enumerate(index.nodes)
            fresh = [n for n, node in nodes if old.get(node.output[0]) != list(node.input)]
            for known in self.around.samples:
                references = known.references
                # the first references behind the edits must be right, whatever becomes of the culprits
                first = set(_first_known(index, fresh, references))
                values = [c.value for c in culprits if c.value in references]
                right = dict[str, Comparison]()
                made = known.alone(index, list(first.union(values)))
                for name, wanted in known.arrays(made).items():
                    compared = self.case.judge.compared(name, made[name], wanted)
                    if compared.match:
                        right[name] = compared
                if not first <= right.keys():
                    return {}
                found = {name: found.get(name, right[name]) for name in values if name in right}
        except SurgeonError:
            return {}
        return found

    def says_much(self, culprit: Culprit) -> bool:
        """Return whether a culprit's reference has so many different floats that no edit gives them by chance."""
        # few different numbers fit by chance
        right = self.around.first.arrays([culprit.value]).values()
        return any(has_floats(each) and np.unique(each).size >= _MANY for each in right)

    def _cures(self, place: Place, culprit: Culprit, steps: Sequence[Pass], instead: str) -> bool:
        """Return whether an edit repairs all that the culprit is seen at."""
        return self.are_right(steps, culprit.seen, place.producer.keys() | {instead})

    def are_right(self, steps: Sequence[Pass], names: Iterable[str], but: Iterable[str]) -> bool:
        """Return whether an edited model computes values rightly from the references before them, in every sample.

        Args:
            but: values that are computed although they have references.
        """
        try:
            index = edited_by(steps, self.index)
            for known in self.around.samples:
                # an edit may have removed a value, and samples differ in what they have
                left = [name for name in names if name in index and name in known.references]
                made = known.alone(index, left, but)
                judge = replace(self.case.judge, references=known.references, outputs={})
                if not all(judge.good(name, made[name]) for name in left):
                    return False
        except SurgeonError:
            return False
        return True

    def _spares(self, place: Place, steps: Sequence[Pass]) -> bool:
        """Return whether an edit is right for what else reads the values that it changes."""
        known = self.around.first

        def first_below(names: Iterable[str]) -> list[str]:
            readers = itertools.chain.from_iterable(self.index.readers(set(names)).values())
            elsewhere = (reader for reader in readers if reader not in place.positions)
            return _first_known(self.index, elsewhere, known.references)

        # what reads a value behind which a node is inserted must be right
        below = first_below(step.value for step in _for_all_readers(place, steps))
        try:
            index = edited_by(steps, self.index)
            # what was right and reads what changes inside, or a constant of all, must stay right
            of_all = [s.value for s in steps if isinstance(s, SetConstant) and not s.to]
            before = known.alone(self.index, first_below(_changed_by(place, index) + of_all))
        except SurgeonError:
            return False
        below += [name for name, value in before.items() if self.case.judge.good(name, value)]
        return self.are_right(steps, below, ())

    def _found(
        self, place: Place, steps: Sequence[Pass], sample: RegionSample, instead: str = ""
    ) -> dict[str, RunValue]:
        """Compute a region's values in the edited model; nothing if it cannot be edited or run."""
        # the values of the region, one of them under another name after the edit
        names = {n: instead if n == place.value and instead else n for n in sample.wanted}
        try:
            index = edited_by(steps, self.index)
            known = self.around.first.names - place.producer.keys() - set(names.values())
            stop = place.nearby.keys() | sample.inputs.keys() | known
            # compute them from what is known before the region
            made = list(dict.fromkeys(name for name in names.values() if name not in stop))
            positions = index.in_order(index.ancestors(made, stop=stop))
            given = dict(sample.inputs)
            more = (index.read_by(positions) & stop) - given.keys()
            given |= {name: sample.recorded(name) for name in more}
            observer = Observer(index, self.case.runtime)
            found = given | (observer.alone(positions, given, made) if made else {})
            return {name: found[other] for name, other in names.items()}
        except (SurgeonError, KeyError):
            return {}

    def apart(self, place: Place, one: Cause, other: Cause) -> str:
        """Say which sample would distinguish two causes that fit equally."""
        # larger, smaller and negative inputs: where the two edits compute different values
        for factor in _FACTORS:
            inputs = {n: _times(value, factor) for n, value in place.inputs.items()}
            sample = replace(place.samples[0], inputs=inputs)
            made, instead = (
                self._found(place, c.steps, sample).get(place.value) for c in (one, other)
            )
            if not is_array(made) or not is_array(instead):
                continue
            if not place.agree(place.value, made, instead):
                return (
                    f"fits as well: a sample with inputs {factor:g} times as large here"
                    " distinguishes the two"
                )
        return "fits as well, and computes the same from other inputs that were tried"

    def cause(
        self,
        culprit: Culprit,
        value: str,
        name: str,
        sentence: str,
        after: Comparison,
        steps: Edits,
    ) -> Cause:
        """Return what explains a culprit, with the edits as people type them."""
        before = next((v.introduced for v in culprit.values if v.name == value), None)
        command = as_command(steps, self.index.model.path)
        return Cause(name, sentence, before, after, steps, list(map(as_step, steps)), command)


def _of_one_example(place: Place, hypothesis: Hypothesis) -> bool:
    """Return whether one sample of one row enters, or one number: what depends on it looks like a constant."""
    values = [v for name, v in place.entering.items() if constant(place.whole, name) is None]
    # each position of [batch, length, features] is a row, unless a constant varies along axis 1
    channels = any(site.op_type in CHANNELS_SECOND for site in place.sites) or hypothesis.by_channel
    batch = place.wanted.shape[: 1 if channels else 2]
    rows = (v.shape[: 2 if v.ndim == 3 and v.shape[:2] == batch else 1] for v in values)
    has_one_row = all(math.prod(shape) == 1 for shape in rows)
    one = has_one_row or any(has_floats(value) and value.size == 1 for value in values)
    return one and len(place.samples) == 1


def _for_all_readers(place: Place, steps: Iterable[Pass]) -> list[Insert]:
    """Return the edits that insert a node behind a value that enters, for all readers that the model has."""
    inserted = [step for step in steps if isinstance(step, Insert) and step.value in place.inputs]
    return [step for step in inserted if not (step.to or step.before)]


def _kept_here(place: Place, step: Pass) -> Pass:
    """Return an edit whose node behind a value that enters is for the readers here alone."""
    for inserted in _for_all_readers(place, [step]):
        return replace(inserted, to=place.those(place.readers(inserted.value)))
    return step


def _readers_here(place: Place, steps: Iterable[Pass]) -> str:
    """Return the titles of the readers here of values behind which edits insert nodes."""
    inserted = _for_all_readers(place, steps)
    readers = (place.readers(step.value) for step in inserted)
    return who(dict.fromkeys(itertools.chain.from_iterable(readers)))


def _changed_by(place: Place, edited: GraphIndex) -> list[str]:
    """Return the values inside the region that an edit of the model computes in another way."""
    # values inside that nodes elsewhere read, too: of others nobody sees the change
    whole, here = place.whole, set(place.positions)
    inner = place.producer.keys() - set(place.samples[0].wanted)
    shared = [name for name in inner if not set(whole.users(name)) <= here]
    old, new = (partial(makers, of=place.inputs, index=index) for index in (whole, edited))
    return [name for name in shared if old(name) != new(name)]


def constants_for_all(steps: Sequence[Pass]) -> Edits:
    """Return edits with their constants for all nodes that read them."""
    return tuple(replace(s, to=()) if isinstance(s, SetConstant) else s for s in steps)


def _for_all(place: Place, steps: Sequence[Pass]) -> Edits:
    """Return edits for all that read what enters, as a residual, or a constant: a scale is read twice."""
    return tuple(
        replace(step, to=()) if isinstance(step, Insert) and step.value in place.inputs else step
        for step in constants_for_all(steps)
    )


def _times(value: RunValue, factor: float) -> RunValue:
    """Return a value scaled, if it has numbers."""
    if not is_array(value) or not (has_floats(value) or value.dtype.kind in "iu"):
        return value
    with np.errstate(all="ignore"):
        return (wide(value) * factor).astype(value.dtype)


def _first_known(index: GraphIndex, nodes: Iterable[int], references: ReferenceSet) -> list[str]:
    """Return the first values with references that nodes make, or that follow from what they make."""
    pending, seen, found = list(nodes), set[int](), list[str]()
    while pending:
        position = pending.pop()
        made = () if position in seen else index.nodes[position].output
        seen.add(position)
        for name in made:
            if name in references:
                found.append(name)
            else:
                pending += index.users(name)
    return found
