"""Find what is wrong with culprits: try every family of hypotheses, and prove on the model itself what fits."""

import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import cast

from onnxsurgeon_lite.debug.causes.attributes import WINDOWS, attributes
from onnxsurgeon_lite.debug.causes.everywhere import (
    MANY,
    How,
    edited,
    everywhere,
    merged,
    with_those_alike,
)
from onnxsurgeon_lite.debug.causes.families import (
    FAMILIES,
    OF_A_CONSTANT,
    SOLVED,
    TOGETHER,
    WIDER,
    Family,
    Solving,
)
from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.norms import moved_norms
from onnxsurgeon_lite.debug.causes.operations import operations, other_operations
from onnxsurgeon_lite.debug.causes.other_model import nodes_of_other_model
from onnxsurgeon_lite.debug.causes.place import Place, edited_by, selected, titled
from onnxsurgeon_lite.debug.causes.proving import Proof, constants_for_all
from onnxsurgeon_lite.debug.causes.repairing import repairs
from onnxsurgeon_lite.debug.causes.settings import dropped
from onnxsurgeon_lite.debug.causes.solving import made_up_elsewhere
from onnxsurgeon_lite.debug.causes.surroundings import Surroundings
from onnxsurgeon_lite.debug.causes.trying import Bench, Outcome
from onnxsurgeon_lite.debug.result import BisectResult, Case, Cause, Culprit
from onnxsurgeon_lite.errors import OutOfTime, SurgeonError, reported
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import Insert, Pass, SetConstant
from onnxsurgeon_lite.passes.protocol import key
from onnxsurgeon_lite.passes.recipe_writing import as_command, as_step
from onnxsurgeon_lite.plugins import HYPOTHESES, brought, reason
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.tensors.dtypes import Arrays
from onnxsurgeon_lite.tensors.references import ReferenceSet

_PROVED = 6  # hypotheses that fit, and are proved on the model
_NEXT = 3  # other culprits that a cause may explain too
_EVERYWHERE: tuple[How, ...] = "alike", "wired", "named"
_SHOWN = 2  # causes that fit equally
_EQUAL = 4.0  # errors within this factor are equal
_EXACT = 4e-7  # a larger relative error may be that of another mistake
_NOISE = 1e-7  # a smaller relative error says nothing
_ALL = 0.995  # the share of the elements that mismatch from which on an edit explains nothing
_TIMES = 1.5  # times the bisection: what runs when the time is over ends a little later
_KNOWN = 0.7  # the share of the time for mistakes that need not be solved for
SECONDS = 45.0  # the least time for causes


def explain_causes(
    result: BisectResult,
    case: Case,
    seconds: float | None,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Give the culprits of a result their causes, proved by running the edited model.

    Culprits that the runtime's own error, an optimizer or random numbers make have none. Ctrl-C ends
    the search: what was found stays.

    Args:
        seconds: how long it may take; by default 1.5 times the bisection, at least `SECONDS`.
        begin: called first; Ctrl-C may end it, too.
    """
    lasts = max(SECONDS, _TIMES * case.seconds) if seconds is None else seconds
    finder = Finder(case, result, time.monotonic() + lasts, lasts)
    left = [c for c in result.culprits if not c.inside and _explainable(c)]
    try:
        begin()
        # normalizations at the wrong end of branches explain many culprits at once
        finder.try_to(finder.explain_layers, left)
        while left:
            case.progress(f"searching the cause at {left[0].id}")
            finder.explain_in_time(left[0])
            del left[0]
        # what one culprit alone does not show: the causes of others, and searches of several
        finder.try_to(finder.explain_by_known)
        finder.try_to(finder.explain_connected)
        finder.try_to(finder.explain_everywhere)
        finder.try_to(finder.explain_in_repaired)
    except KeyboardInterrupt:
        for culprit in left:
            culprit.unexplained = f"not known: its search was interrupted{case.journal.hint}"
        case.runtime.restart()
        raise
    finally:
        _of_all(result.culprits, case.index)


def _of_all(culprits: Sequence[Culprit], index: GraphIndex) -> None:
    """Put first what repairs several nodes that have the same mistake, in one sentence."""
    # culprits with the same mistake, in the same words but for their nodes
    alike = dict[tuple[Hashable, str], list[Culprit]]()
    for culprit in culprits:
        for cause in culprit.causes[:1]:
            if cause.mistake and everywhere(index, cause.steps):
                wrong = _of_nodes(index, cause, "nodes").partition("; ")[0]
                alike.setdefault((key(cause.mistake), wrong), []).append(culprit)
    for several in alike.values():
        if len({key(culprit.causes[0].steps) for culprit in several}) > 1:
            steps = merged(chain.from_iterable(culprit.causes[0].steps for culprit in several))
            several[0].causes.insert(0, _joined(index, several[0].causes[0], steps))


def _joined(index: GraphIndex, cause: Cause, steps: Sequence[Pass]) -> Cause:
    """Return the cause of one node as that of several."""
    every = edited(index, steps)
    kinds = dict.fromkeys(index.nodes[position].op_type for position in every)
    number = sum(node.op_type in kinds for node in index.nodes)
    nodes = f"{'all ' * (number == len(every))}{len(every)} {' and '.join(kinds)} nodes"
    return replace(_with(index, cause, steps), sentence=_of_nodes(index, cause, nodes))


def _with(index: GraphIndex, cause: Cause, steps: Sequence[Pass]) -> Cause:
    """Return a cause with other edits."""
    command = as_command(steps, index.model.path)
    return replace(cause, steps=tuple(steps), edits=list(map(as_step, steps)), repair=command)


def _of_nodes(index: GraphIndex, cause: Cause, nodes: str) -> str:
    """Return the sentence of a cause with other words for its node, whose constant may have other names elsewhere."""
    names = (f" {step.value!r}" for step in cause.steps if isinstance(step, SetConstant))
    titles = (titled(index, position) for position in edited(index, cause.steps))
    sentence = cause.sentence
    for said, instead in tuple((name, "") for name in names) + tuple(
        (title, nodes) for title in titles
    ):
        sentence = sentence.replace(said, instead)
    return sentence


@dataclass
class Finder:
    """Finds the causes of culprits.

    Attributes:
        until: when the search ends, as `time.monotonic` counts. lasts: seconds of the whole search.
        known: causes of the culprits so far.
        larger: mistakes that were found where regions are larger than a culprit.
        vain: culprits that no hypothesis explains.
        vague: the steps of those that fit, but do not show what the mistake was.
        around: what is known around culprits.
        proof: what runs the edited model.
        _makers: mistake -> the families that yield it.
        _left: the families that are not wholly tried at the current place.
        _unexplained: what to say of the last place if it has no cause.
        _likely: those that make a culprit's region right, but not all that it is seen at.
    """

    case: Case
    result: BisectResult
    until: float
    lasts: float
    known: list[Cause] = field(default_factory=list)
    vague: set[Hashable] = field(default_factory=set)
    larger: set[Hashable] = field(default_factory=set)
    vain: list[Culprit] = field(default_factory=list)
    _makers: dict[Hashable, dict[Family, None]] = field(default_factory=dict)
    _left: list[Family] = field(default_factory=list)
    _likely: dict[Family, None] = field(default_factory=dict)
    _unexplained: str = ""

    def __post_init__(self) -> None:
        self.around = Surroundings(self.case, self.result)
        self.proof = Proof(self.case, self.around)

    @property
    def index(self) -> GraphIndex:
        return self.case.index

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.until

    def explain_in_time(self, culprit: Culprit) -> None:
        """Find what is wrong with one culprit, if there is time; an error ends only this search."""
        try:
            self.explain_shapes(culprit)
            self.explain(culprit)
        except OutOfTime:
            kinds = counted(len(self._left), "kind")
            left = f" with {kinds} of mistakes left" if self._left else ""
            more = self.case.journal.hint or f"; --seconds {2 * self.lasts + 1:.0f} tries more"
            culprit.unexplained = f"not known: the time ran out{left}{more}"
        except SurgeonError as error:
            culprit.unexplained = f"not known: its search failed: {error.message}"
        except Exception as error:  # noqa: BLE001  a bug of ours: what was found stays
            culprit.unexplained = f"not known: {reported(error)}"
        if culprit is self.result.culprits[0] and culprit.causes:
            self.try_to(self.explain_everywhere)  # a few runs, before searches of the others

    def try_to(self, search: Callable[..., None], *given: object) -> None:
        """Search; a bug of ours ends only this search."""
        try:
            search(*given)
        except OutOfTime:
            return
        except Exception as error:  # noqa: BLE001  whatever it is, what was found stays
            self.result.notes.append(f"a search for causes ended early: {reported(error)}")

    def explain_connected(self) -> None:
        """Give culprits that read each other one cause, if one mistake explains them all."""
        for several in self.connected():
            with suppress(OutOfTime, SurgeonError):
                self._explain_all(several, whole=True)

    def explain(self, culprit: Culprit) -> None:
        """Find what is wrong with one culprit: what was wrong with another, else one of the hypotheses."""
        place = None if culprit.causes or culprit.unexplained else self.around.place(culprit)
        if place is None:
            return
        culprit.unexplained = dropped(place)
        if culprit.unexplained or self._known_explains(place, culprit):
            return
        pairs = [pair for pair in self._pairs() if culprit in pair]
        without = [pair for pair in pairs if self._right_without(*pair)]
        if without:
            self._explain_between(place, without)
            return
        self._likely.clear()
        # what is new, the node alone, with the one before it, with what arranges its input, with all that it is seen at
        found = self._search_nearest(culprit) or self._search_as_before(culprit)
        found = found or self._search_other(place, culprit)
        unexplained = ""
        if not found:
            known = place.is_constant(place.value)
            families = (OF_A_CONSTANT,) if known else (self._families(), SOLVED)
            found = self._search(place, culprit, *families)
            unexplained = self._unexplained
        if not found and any(map(self._explain_all, pairs)):
            return
        alone = found
        if all(key(cause.steps) in self.vague for cause in found):
            found = self._search_wider(culprit, WIDER) or found
        # what fits the region alone may be wrong behind it, too
        found = found or self._search_fork(culprit, list(self._likely | dict.fromkeys(TOGETHER)))
        if found is not alone:
            self.larger.update(map(_mistake, found[:1]))
        found = found or self._search_parts(place, culprit, place.parts)
        culprit.unexplained = "" if found else unexplained
        self.vain += [] if found else [culprit]
        self._show(found, place, culprit)

    def _show(self, found: list[Cause], place: Place, culprit: Culprit) -> None:
        """Give a culprit its causes, first the one that explains most of the next culprits."""
        if len(found) > 1:
            found.sort(key=lambda cause: -self._reach(cause, culprit))
        found = _said_once(found)
        culprit.causes = found[:1]
        for other in found[1:_SHOWN]:
            apart = self.proof.apart(place, found[0], other)
            culprit.causes.append(replace(other, apart=apart))
        self.known += culprit.causes[:1]
        self.result.notes += place.left_out

    def explain_by_known(self) -> None:
        """Give culprits without a cause one that was found behind them."""
        for culprit in self.result.culprits:
            lacks = not culprit.causes and not culprit.inside and _explainable(culprit)
            if not lacks or not self.known or self.is_late:
                continue
            with suppress(SurgeonError):  # its search failed before, too
                place = self.around.place(culprit)
                if place and self._known_explains(place, culprit):
                    culprit.unexplained = ""

    def _known_explains(self, place: Place, culprit: Culprit) -> bool:
        """Give a culprit the cause of others if that explains it, also with constants that all nodes read."""
        for cause in self.known:
            if self.proof.agreement(place, cause.steps):
                culprit.causes = [cause]
                return True
        # a constant that was repaired for one node may be wrong for all
        for number, cause in enumerate(self.known):
            steps = constants_for_all(cause.steps)
            if steps == cause.steps or not self.proof.agreement(place, steps):
                continue
            others = [c for c in self.result.culprits if any(own is cause for own in c.causes)]
            if all(self._still_right(other, steps) for other in chain([culprit], others)):
                of_all = _with(self.index, cause, steps)
                self.known[number], culprit.causes = of_all, [of_all]
                for other in others:
                    other.causes = [of_all if c is cause else c for c in other.causes]
                return True
        return False

    def _still_right(self, culprit: Culprit, steps: Sequence[Pass]) -> bool:
        """Return whether edits make a culprit right and nothing wrong that was right before."""
        place = self.around.place(culprit)
        return place is not None and self.proof.repairs(place, culprit, steps) is not None

    def _search_as_before(self, culprit: Culprit) -> list[Cause]:
        """Return causes as others had in larger regions: at the node alone all families may be tried in vain."""
        again = set(chain.from_iterable(self._makers.get(m, ()) for m in self.larger))
        families = [family for family in chain(WIDER, TOGETHER) if family in again]
        if not families:
            return []
        return self._search_wider(culprit, families) or self._search_fork(culprit, families)

    def explain_shapes(self, culprit: Culprit) -> None:
        """Say which first node of a region gives another shape than a reference, and what makes it right.

        A value of another shape is not compared, and what is behind it may be made for that: then no edit repairs all.
        """
        # only windows decide shapes by a setting
        region = self.index.ancestors(culprit.outputs, stop=culprit.inputs)
        has_windows = any(self.index.nodes[position].op_type in WINDOWS for position in region)
        place = self.around.place(culprit) if culprit.lacking and has_windows else None
        for step, alone in self._unlike(place) if place is not None else ():
            with self._bench(alone) as bench:
                every = itertools.chain.from_iterable(bench.fitting([attributes(alone)]))
                fit = next((f for f in every if not bench.by_chance(f.hypothesis)), None)
            if fit is not None and place is not None:
                self._explain_by(fit.hypothesis, culprit, place, alone, step)
                return

    def _explain_by(
        self, hypothesis: Hypothesis, culprit: Culprit, place: Place, alone: Place, step: str
    ) -> None:
        """Give a culprit the cause that a first node has, at all nodes like it; else say what is left."""
        # exporters write one setting at all nodes alike: edit them all
        steps = alone.outside(hypothesis.edits)
        of_all = everywhere(self.index, steps)
        after = self.proof.repairs(place, culprit, of_all)
        if after is not None:
            said = f"{hypothesis.sentence} {place.region} agrees (max abs {after.max_abs:.2g})"
            one = self.proof.cause(culprit, place.value, hypothesis.name, said, after, steps)
            one = replace(one, mistake=hypothesis.mistake)
            culprit.causes = [_joined(self.index, one, of_all)]
            self.known += culprit.causes
            return
        self.vain.append(culprit)
        made, right = (
            list(shape) for shape in (place.values[alone.value].shape, alone.wanted.shape)
        )
        culprit.unexplained = (
            f"no known mistake repairs it all, but {hypothesis.sentence} the node makes the references' {step!r}"
            f" {right} instead of {made}; what is behind it may be made for that"
        )

    def _unlike(self, place: Place) -> Iterator[tuple[str, Place]]:
        """Yield (reference, a node with a window alone) where the node makes another shape than the reference has."""
        for site in place.sites:
            made, name = site.made if site.op_type in WINDOWS else None, site.output
            if made is None or name == place.value or not place.inputs.keys() >= set(site.computed):
                continue
            for step, right in place.lacking.items():
                if right.shape[:2] == made.shape[:2] and right.shape != made.shape:
                    yield step, place.alone(name, right)

    def _search_nearest(self, culprit: Culprit) -> list[Cause]:
        """Return causes in what is new behind references that agree, which a single culprit's edit makes all right."""
        # a smaller region leaves fewer edits to try
        near = self.around.nearest(culprit)
        place = self.around.place(culprit, near) if near else None
        found = self._search(place, culprit, self._families()) if place else []
        alone = len(self.result.culprits) == 1
        return [cause for cause in found if not alone or self.proof.all_right(cause.steps)]

    def _search_wider(self, culprit: Culprit, families: Sequence[Family]) -> list[Cause]:
        """Return causes in a region with the nodes before it that only arrange what it reads, if there are some."""
        before = self.around.before(culprit)
        wider = self.around.place(culprit, before) if before != culprit.inputs else None
        return self._search(wider, culprit, families) if wider else []

    def _families(self) -> Sequence[Family]:
        """Return the families, and those that other packages bring."""
        more, broken = brought(HYPOTHESES)
        self.result.notes += [line for line in broken if line not in self.result.notes]
        return list(FAMILIES) + [self._guarded(name, family) for name, family in more.items()]

    def _guarded(self, name: str, family: object) -> Family:
        """Return a family of another package; where it fails, it is left out."""

        def tried(place: Place) -> Hypotheses:
            try:
                yield from cast(Family, family)(place)
            except Exception as error:  # noqa: BLE001  whatever another package raises
                self.result.notes.append(f"left out the hypotheses {name!r}: {reason(error)}")

        return tried

    def _search(
        self,
        place: Place,
        culprit: Culprit,
        families: Sequence[Family],
        solved: Sequence[Solving] = (),
    ) -> list[Cause]:
        """Return proved causes at a place."""
        fits = list[Outcome]()
        others = list[Cause]()
        proved = list[tuple[Outcome, Cause]]()
        with self._bench(place) as bench:
            try:
                for found in self._fitting(bench, families, solved):
                    for fit in ordered(found):
                        fits.append(fit)
                        if families is not OF_A_CONSTANT and bench.by_chance(fit.hypothesis):
                            continue
                        cause = self._proved(place, fit.hypothesis, culprit)
                        proved += [(fit, cause)] if cause is not None else []
                        if len(proved) >= _PROVED:
                            break  # at least one of each batch is proved
                    # one example fits a number that depends on it, too
                    if any(_settles(fit, not cause.of_one_example) for fit, cause in proved):
                        break
                    if any(_settles(fit, True, len(place.positions)) for fit, _ in proved):
                        bench.hurry()
            except OutOfTime:
                if not proved:
                    raise
            bench.enough = math.inf
            with suppress(OutOfTime):
                others = self._elsewhere(bench, culprit, ordered(fit for fit, _ in proved)[:1])
        # those of the smallest error, the simplest one first
        causes = {id(fit): cause for fit, cause in proved}
        self.vague |= {key(cause.steps) for fit, cause in proved if _is_vague(fit, cause)}
        chosen = [causes[id(fit)] for fit in ordered(fit for fit, _ in proved)]
        chosen[1:1] = others
        self._unexplained = "" if chosen else _unexplained(bench, fits)
        return chosen

    def _proved(self, place: Place, hypothesis: Hypothesis, culprit: Culprit) -> Cause | None:
        """Return the cause that a fit is; its families are tried at a fork, too, where it repairs the region alone."""
        cause = self.proof.proved(place, hypothesis, culprit)
        if cause is None and not hypothesis.unknowns:
            self._likely |= self._makers.get(_of(hypothesis), {})
        return cause

    def _bench(self, place: Place) -> Bench:
        return Bench(place, self.case.memory, self.until, self.case.journal)

    def _elsewhere(self, bench: Bench, culprit: Culprit, first: Sequence[Outcome]) -> list[Cause]:
        """Return the cause that the change of a constant is at another node of a region, which explains as much."""
        place = bench.place
        edits = first[0].hypothesis.edits if first and len(place.positions) > 1 else ()
        rivals = bench.fitting([made_up_elsewhere(place, edits)])
        found = (
            self.proof.proved(place, fit.hypothesis, culprit)
            for fit in itertools.chain.from_iterable(rivals)
        )
        return list(itertools.islice(filter(None, found), 1))

    def _pairs(self) -> list[tuple[Culprit, Culprit]]:
        """Return the pairs of culprits in which the second one reads the first one."""
        pairs = itertools.permutations(filter(_explainable, self.result.culprits), 2)
        return [(before, after) for before, after in pairs if before.value in after.inputs]

    def connected(self) -> list[list[Culprit]]:
        """Return the culprits that read each other and that different mistakes explain, those of one graph together."""
        found = list[list[Culprit]]()
        for pair in self._pairs():
            if all(culprit.causes for culprit in pair):
                near = [several for several in found if any(c in several for c in pair)]
                joined = set(map(id, chain(pair, chain.from_iterable(near))))
                found = [several for several in found if several not in near]
                found.append([c for c in self.result.culprits if id(c) in joined])
        return [
            c for c in found if len({key(e.causes[0].mistake or e.causes[0].steps) for e in c}) > 1
        ]

    def _explain_all(self, several: Sequence[Culprit], whole: bool = False) -> bool:
        """Explain culprits that read each other by one mistake; return whether that is done.

        Args:
            whole: all that is computed behind them has references.
        """
        as_one = self._as_one(several)
        place = self.around.place(as_one)
        if not place or (whole and set(place.samples[0].wanted) != set(as_one.outputs)):
            return False
        # values that lie between the culprits must be right, too
        inner = {c.value for c in several}.difference(as_one.outputs)
        for cause in self._search(place, as_one, TOGETHER):
            if self.proof.are_right(cause.steps, inner, place.producer):
                for culprit in several:
                    culprit.causes = [cause]
                self.known.append(cause)
                return True
        return False

    def explain_layers(self, culprits: Sequence[Culprit]) -> None:
        """Give culprits one cause, if normalizations that stand at the other end of their branches explain them."""
        regions = (self.index.ancestors(c.outputs, stop=c.inputs) for c in culprits)
        made = self.index.made_by(set(chain.from_iterable(regions)))
        least = min(2, len(culprits))
        moved = moved_norms(self.index, made, narrow=least < 2) if culprits else ()
        for sentence, steps, index in moved:
            # one edit must make two culprits right; one alone must have many different numbers
            right = self.proof.right_in(index, culprits)
            proved = len(right) >= least and (least > 1 or self.proof.says_much(culprits[0]))
            explained = [c for c in culprits if proved and c.value in right]
            for culprit in explained:
                name, after = "place of norms", right[culprit.value]
                said = f"{sentence} the values agree (max abs {after.max_abs:.2g})"
                culprit.causes = [
                    self.proof.cause(culprit, culprit.value, name, said, after, steps)
                ]
            if proved:
                self.known += explained[0].causes
            if proved or self.is_late:
                return

    def explain_everywhere(self) -> None:
        """Give culprits without a cause that of another, if the same edit of all nodes like it makes all values right.

        An error that each node makes may be too small to be seen, as another epsilon behind large values.
        """
        left = [culprit for culprit in self.result.culprits if not culprit.causes]
        explained = [culprit for culprit in self.result.culprits if culprit.causes]
        others = repairs(self.result)
        for culprit in explained if left else ():
            cause = culprit.causes[0]
            for how in _EVERYWHERE:
                steps = everywhere(self.index, cause.steps, how)
                more = set(edited(self.index, steps)) - set(edited(self.index, others))
                if not more or self.is_late:
                    continue
                # the other causes alone must not be enough
                if self.proof.all_right(others + steps) and not self.proof.all_right(others):
                    whole = _joined(self.index, cause, steps)
                    whole = replace(whole, sentence=f"{whole.sentence}, and so do all values")
                    culprit.causes.insert(0, whole)
                    for other in left:
                        other.causes, other.unexplained = [whole], ""
                    return

    def explain_in_repaired(self) -> None:
        """Search culprits without a cause once more in the model that the causes of the others repair.

        What such a culprit should read may be wrong itself, or be computed from the culprit, until then.
        """
        for culprit in self.vain:
            first = repairs(self.result)
            if not first or culprit.causes or culprit.inside or self.is_late:
                continue
            with suppress(OutOfTime, SurgeonError):
                cause = self._cause_behind(first, culprit)
                if cause is not None:
                    culprit.causes, culprit.unexplained = [cause], ""

    def _cause_behind(self, first: Sequence[Pass], culprit: Culprit) -> Cause | None:
        """Return the cause that a culprit has where other edits come first, if these change what is read."""
        # in the repaired model the culprit reads what it should
        left = [other for other in self.result.culprits if not other.causes]
        case = replace(self.case, index=edited_by(first, self.index))
        there = Finder(case, replace(self.result, culprits=left), self.until, self.lasts)
        entering = there.around.first.entering(culprit.outputs)
        node = replace(culprit, inputs=entering, causes=[], unexplained="")
        place = there.around.place(node)
        for cause in there._search(place, node, self._families()) if place else ():
            steps = tuple(merged(tuple(first) + cause.steps))
            if culprit.value in self.proof.right_in(edited_by(steps, self.index), [culprit]):
                sentence = f"{cause.sentence}, once the other causes are repaired"
                return replace(_with(self.index, cause, steps), sentence=sentence, mistake=())
        return None

    def _as_one(self, several: Sequence[Culprit]) -> Culprit:
        """Return culprits that read each other as one.

        Of two models that differ, values are matched that do not mean the same: those between them may be.
        """
        read = dict.fromkeys(chain.from_iterable(culprit.inputs for culprit in several))
        inner = [culprit for culprit in several if culprit.value in read]
        ends = [culprit for culprit in several if culprit.value not in read]
        between = set(chain.from_iterable(culprit.outputs for culprit in inner))
        inputs = [name for name in read if name not in between]
        outputs = list(dict.fromkeys(chain.from_iterable(culprit.outputs for culprit in ends)))
        return replace(ends[-1], inputs=inputs, outputs=outputs, causes=[])

    def _right_without(self, before: Culprit, after: Culprit) -> bool:
        """Return whether two culprits are right together; note it at both."""
        # both together: the value between them is computed, not given
        place = self.around.place(self._as_one((before, after)))
        is_right = place is not None and self.proof.agreement(place, ()) is not None
        if is_right:
            before.unexplained = after.unexplained = (
                f"not searched: {after.value!r} is right without {before.value!r}, whose reference is of another value"
            )
        return is_right

    def _explain_between(self, place: Place, pairs: Sequence[tuple[Culprit, Culprit]]) -> None:
        """Say what is missing between a value that is right for some nodes, and others that need its reference."""
        index, before = self.index, pairs[0][0]
        right = {p for _, after in pairs for p in index.ancestors(after.outputs, stop=after.inputs)}
        others = [p for p in index.users(before.value) if p not in right]
        fresh = f"{before.value}_wanted"
        if not others or fresh in index:
            return
        # let the others read a copy of the value, and search that
        to = tuple(selected(place.whole, other) for other in others)
        apart = Insert(before.value, "Identity", to=to, output=fresh)
        samples = [(_renamed(r, before.value, fresh), feeds) for r, feeds in self.case.samples]
        judge = replace(self.case.judge, references=samples[0][0])
        case = replace(self.case, index=edited_by([apart], index), judge=judge, samples=samples)
        there = Finder(case, self.result, self.until, self.lasts)
        node = replace(before, value=fresh, outputs=[fresh], seen=[], causes=[], unexplained="")
        between = there.around.place(node)
        if between is None or there.proof.agreement(between, ()) is not None:
            return
        for cause in there._search(between, node, (operations, other_operations))[:1]:
            sentence = cause.sentence.replace(f"the result of {between.maker}", repr(before.value))
            steps = (apart,) + cause.steps
            before.causes = [replace(_with(index, cause, steps), sentence=sentence)]
            before.unexplained = ""
            self.known += before.causes

    def _search_fork(self, culprit: Culprit, families: Sequence[Family]) -> list[Cause]:
        """Return causes at all nodes that lie between references and whatever a culprit is seen at."""
        place, fork = self._fork(culprit)
        if place is None:
            return []
        found, wanted = self._search(place, fork, families), place.samples[0].wanted
        for value in wanted if operations in families else ():
            found = found or self._search(replace(place, value=value), fork, (operations,))
        return found or self._search_parts(place, fork, wanted)

    def _fork(self, culprit: Culprit) -> tuple[Place | None, Culprit]:
        known = self.around.first
        outputs = culprit.outputs + [name for name in culprit.seen if name in known.references]
        fork = replace(culprit, inputs=known.entering(outputs), outputs=outputs, seen=[])
        place = self.around.place(fork) if culprit.seen else None
        # else it is the same region once more
        several = place is not None and set(place.samples[0].wanted) != {culprit.value}
        return place if several else None, fork

    def _search_other(self, place: Place, culprit: Culprit) -> list[Cause]:
        """Return the nodes of the references' model for a large region, where other mistakes take long to try."""
        if place.other is None or len(place.positions) <= MANY:
            return []
        found = self._search(place, culprit, [nodes_of_other_model])
        around, fork = self._fork(culprit)
        return found or (self._search(around, fork, [nodes_of_other_model]) if around else [])

    def _search_parts(self, place: Place, culprit: Culprit, parts: Arrays) -> list[Cause]:
        """Return the cause that values have together which different mistakes make wrong, if each has one."""
        steps, said = list[Pass](), list[str]()
        wrong = [n for n, right in parts.items() if not place.agree(n, place.values.get(n), right)]
        # later nodes first: ids of earlier ones stay
        wrong.sort(key=self.index.rank.__getitem__, reverse=True)
        for name in wrong if len(wrong) > 1 else ():
            part = replace(culprit, value=name, outputs=[name], seen=[])
            alone = place.alone(name, parts[name])
            causes = self._search(alone, part, self._families(), SOLVED)
            for cause in causes[:1]:
                steps += cause.steps
                said.append(cause.sentence.partition(" (max abs ")[0])
        edits = tuple(merged(steps))
        every = len(said) == len(wrong) > 1
        after = self.proof.repairs(place, culprit, edits) if every else None
        if after is None:
            return []
        whole = f"{'; '.join(said)} (max abs {after.max_abs:.2g})"
        return [self.proof.cause(culprit, place.value, "several", whole, after, edits)]

    def _reach(self, cause: Cause, culprit: Culprit) -> int:
        """Return how many of the next other culprits a cause explains too."""
        # a few others show whether a cause is a common one
        others = [c for c in self.result.culprits if c is not culprit and _explainable(c)]
        places = filter(None, map(self.around.place, others[:_NEXT]))
        return sum(self.proof.agreement(place, cause.steps) is not None for place in places)

    def _fitting(
        self, bench: Bench, families: Sequence[Family], solved: Sequence[Solving]
    ) -> Iterator[list[Outcome]]:
        """Yield what fits, family by family."""
        # known mistakes have most of the time, numbers that are solved for the rest
        now = time.monotonic()
        self._left = list(families)
        bench.until = now + _KNOWN * (self.until - now)
        over: OutOfTime | None = None
        try:
            yield from bench.fitting(self._once_more(bench.place, families))
            yield from bench.fitting(self._yielded(bench.place, family) for family in families)
        except OutOfTime as error:
            over = error
        bench.until = self.until
        # what has solved numbers is no simpler than what is known
        if bench.enough == math.inf:
            yield from bench.fitting(solving(bench.place, bench) for solving in solved)
        if over is not None:
            raise over

    def _yielded(self, place: Place, family: Family) -> Hypotheses:
        """Yield a family's hypotheses, and note which mistakes are its own."""
        try:
            for hypothesis in with_those_alike(place, iter(family(place))):
                self._makers.setdefault(_of(hypothesis), {})[family] = None
                yield hypothesis
        except (SurgeonError, OutOfTime):
            raise
        except Exception as error:  # noqa: BLE001  a bug of ours in one family: the others are tried
            self.result.notes.append(f"a kind of mistakes was left out: {reported(error)}")
        self._left.remove(family)

    def _once_more(self, place: Place, families: Sequence[Family]) -> Iterator[Hypotheses]:
        """Yield hypotheses about the mistakes of other culprits: people make one mistake at several places."""
        for known in dict.fromkeys(map(_mistake, reversed(self.known))):
            for family in (each for each in self._makers.get(known, {}) if each in families):
                yield (h for h in family(place) if _of(h) == known)


def _renamed(references: ReferenceSet, old: str, new: str) -> ReferenceSet:
    """Return references, one of them under another name."""
    entries = {new if name == old else name: e for name, e in references.entries.items()}
    return replace(references, entries=entries, prefetch=lambda _: None)


def _mistake(cause: Cause) -> Hashable:
    """Return what hypotheses share that are about the same mistake."""
    return key(cause.mistake or cause.hypothesis)


def _of(hypothesis: Hypothesis) -> Hashable:
    return key(hypothesis.mistake or hypothesis.name)


def _said_once(causes: Iterable[Cause]) -> list[Cause]:
    """Return causes without those that say the same: a number was solved for with more digits."""
    alike = groups((cause.sentence.partition(" (max abs ")[0], cause) for cause in causes)
    return [several[0] for several in alike.values()]


def ordered(fits: Iterable[Outcome]) -> list[Outcome]:
    """Return what fits: of those whose error is about the smallest the one first that takes the least to describe."""
    alike = groups((key(fit.hypothesis.edits), fit) for fit in fits)
    once = [several[0] for several in alike.values()]
    least = max(_NOISE, min((fit.error for fit in once), default=0.0)) * _EQUAL
    exact = [fit for fit in once if fit.error <= least]
    exact.sort(key=lambda fit: (fit.hypothesis.vague, fit.hypothesis.length))
    if not exact or exact[0].hypothesis.vague:
        return exact
    return [f for f in exact if f.hypothesis.unknowns <= max(1, exact[0].hypothesis.unknowns)]


def _is_vague(fit: Outcome, cause: Cause) -> bool:
    """Return whether a fit does not show what the mistake was: one example determines one number at most."""
    return fit.hypothesis.vague or (cause.of_one_example and fit.hypothesis.unknowns > 1)


def _settles(fit: Outcome, solved: bool = False, nodes: int = 1) -> bool:
    """Return whether no later explanation is simpler.

    Args:
        solved: numbers that were solved for do not matter; but with many of them, inserted nodes fit much.
        nodes: how many of a region round, one after the other.
    """
    unknowns, inserted, _ = fit.hypothesis.length
    few = not unknowns or (solved and (unknowns <= 1 or not inserted))
    is_exact = fit.error <= _EXACT * math.sqrt(nodes)
    return is_exact and not fit.hypothesis.vague and few


def _explainable(culprit: Culprit) -> bool:
    """Return whether a culprit is wrong alone, from right inputs, and not by the runtime's fault."""
    outputs = (v.introduced for v in culprit.values if v.role == "output")
    is_own = (
        culprit.verdicts.isdisjoint(("random", "precision", "kernel", "crash"))
        and not culprit.covers
    )
    return is_own and any(found is not None and not found.match for found in outputs)


def _unexplained(bench: Bench, fits: Sequence[Outcome]) -> str:
    """Say why a culprit has no cause."""
    # what fits, but may do so by chance
    lucky = next((fit.hypothesis for fit in fits if bench.by_chance(fit.hypothesis)), None)
    if lucky is not None:
        few = "the references have so few different numbers"
        if not bench.says_little(bench.place.evidence.bits):
            few = "so few integers stand between it and the references"
        return (
            f"no known mistake is proved: {lucky.sentence} {bench.place.region} would agree, but one of"
            f" {bench.tried} edits does so by chance where {few} (more samples would tell)"
        )
    # what fits, with too many numbers that were solved for
    open_ = [fit.hypothesis for fit in fits if not fit.hypothesis.proves]
    solved = next((h for h in open_ if h.plain), next(iter(open_), None))
    if solved is not None and solved.plain:
        return (
            f"no known mistake is proved, but {solved.plain}; the right numbers are needed, as the references do not"
            f" determine them: {solved.fitted} (more samples would)"
        )
    if solved is not None:
        return (
            f"no known mistake explains it; {solved.sentence} the region would agree, but that proves nothing:"
            f" {solved.fitted} (more samples would tell)"
        )
    # what fits best
    if bench.nearest is None or bench.nearest.left >= _ALL:
        return "no known mistake explains it"
    left = f"{bench.nearest.left:.2g}" if bench.nearest.left < 0.01 else f"{bench.nearest.left:.0%}"
    return (
        f"no known mistake explains it; the nearest: {bench.nearest.hypothesis.sentence}"
        f" {bench.place.region} still mismatches in {left} of the elements"
    )
