"""Make a failing model smaller as long as it fails for the same reason."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf

from onnxsurgeon_lite.debug.journal import Journal
from onnxsurgeon_lite.debug.reduction.asking import Questions
from onnxsurgeon_lite.debug.reduction.conditions import Failing, Reason, SeenValues
from onnxsurgeon_lite.debug.reduction.edits import (
    BYPASSED,
    DETAILS,
    EXACT,
    FILLS,
    NAMES,
    STRUCTURE,
    ShrinkingEdit,
    around,
    cuttable,
    guesses,
    keeping,
    opened,
    operated,
)
from onnxsurgeon_lite.errors import OutOfTime, SurgeonError
from onnxsurgeon_lite.search.subsets import shortest_run, smallest

Item = tuple[str, tuple[str, ...]]
"""The name of an edit, and what it is done to."""

Edited = Callable[[Sequence[Item]], Failing]
"""Does some of what can be done."""


_STATE = ("reduce",)  # of the answers in a journal
_AROUND = 0, 1, 3, 7  # steps from a guess to look
_FEW = 4  # nodes
_SHORT = 8  # nodes of a model that is compared by its form


@dataclass
class Shrinking:
    """A reduction under way.

    Attributes:
        questions: whether a model fails as the first one does. reason: why that does.
        seen: values of models. journal: keeps the answers.
        best: the smallest model that failed so far.
        until: the monotonic time after which nothing is asked. found: the call that found the fewest nodes.
        refused: what could not be done, with the nodes around it. forms: models that were refused, without names.
    """

    questions: Questions
    reason: Reason
    seen: SeenValues
    journal: Journal
    best: Failing
    progress: Callable[[str], None]
    until: float = inf
    found: int = 0
    refused: set[tuple[Item, int]] = field(default_factory=set)
    forms: set[str] = field(default_factory=set)

    def run(self) -> Failing:
        """Make the model smaller until nothing does: first its structure, then what is left of it."""
        # Structure and details take turns until neither changes anything: fewer nodes first, then smaller numbers.
        failing = self._structure(self.best)
        plain = self._details(failing)
        # smaller dimensions may let a node go
        while plain.key != failing.key and plain.extent.nodes > 1:
            failing = self._structure(plain)
            if failing.key == plain.key:
                break
            plain = self._details(failing)
        return plain

    def _structure(self, failing: Failing) -> Failing:
        """Leave out nodes; after each other edit that made the model smaller, cut it again."""
        while True:
            failing = self._cut(failing)
            # a generator: the rows after one that helped are not tried before the next cut
            results = (self._rows(failing, [row]) for row in STRUCTURE)
            smaller = next((each for each in results if each.key != failing.key), None)
            if smaller is None:
                return failing
            failing = smaller

    def _details(self, failing: Failing) -> Failing:
        result = self._rows(failing, DETAILS)
        # its values have other names now: what was refused stays so
        # both graphs have the same nodes, so values correspond by position: old name -> new name
        new = dict(zip(failing.index.values(), result.index.values(), strict=False))
        for (edit, (value, *more)), place in list(self.refused):
            item = edit, (new.get(value, value), *more)
            if place == _around(failing, (edit, (value,))):
                self.refused.add((item, _around(result, item)))
        return result

    def _cut(self, failing: Failing) -> Failing:
        """Keep the fewest nodes that fail; look first at those that the message names."""
        said, here = self.reason.said, self._kept(failing)
        guessed = guesses(failing, said)

        # guesses of what is enough, from the likeliest on: (row, nodes to keep)
        def tried() -> Iterator[tuple[_Row, set[int]]]:
            # the operator of the message in a function or a body alone
            for inner in opened(failing, said, self.seen):
                yield self._kept(inner), operated(inner, said)
            # then the nodes around each guess, a few more steps each time
            for steps in _AROUND:
                yield from ((here, around(failing, guess, steps)) for guess in guessed)
                # the checker sees no feeds: what the nodes read can be constants
                if failing.blind and steps == 1:
                    yield from ((self._kept(failing, frozen=True), guess) for guess in guessed)

        # nothing can be left out, or the failure does not need what can be
        if not here.items or here.holds([]):
            return failing
        chosen = ((row, [i for i in row.items if row.places[i] in kept]) for row, kept in tried())
        held = (each for each in chosen if each[0].holds(each[1]))
        row, first = next(held, (here, here.items))
        # first shorten from the ends, as a failure is often in one stretch; then leave out single nodes (delta
        # debugging)
        left = smallest(shortest_run(first, row.holds), row.holds, soon=row.ask_ahead)
        return self._result(row, left)

    def _kept(self, failing: Failing, frozen: bool = False) -> "_Row":
        """Return the nodes that can be left out, the last ones first."""
        places = dict[Item, int]()
        for place in cuttable(failing):
            made = tuple(failing.index.nodes[place].output)
            # the item is named by what the node makes, so it stays the same when positions change
            places["cut", made or (failing.index.node_id(place),)] = place

        def without(gone: Iterable[Item]) -> Failing:
            left = places.keys() - set(gone)
            return keeping(failing, [places[item] for item in left], self.seen, frozen)

        return _Row(self, failing, self._unrefused(failing, places), without, places=places)

    def _form(self, failing: Failing) -> str:
        """Return the key of a short model without names: if one was refused, so are others of its form."""
        if failing.extent.nodes > _SHORT:
            return ""
        # apply the edits of names: two models that differ only in these have one key
        edits = {edit.name: edit for edit in NAMES}
        return self._edited(edits, failing, self._items(edits, failing)).key

    def _rows(self, failing: Failing, rows: Iterable[Sequence[ShrinkingEdit]]) -> Failing:
        """Apply as many edits of each row as possible."""
        for row in rows:
            # stored references belong to names: only edits that keep these are allowed then
            any_edit = self.seen.references is None
            edits = {edit.name: edit for edit in row if any_edit or edit.name in EXACT}
            items = self._items(edits, failing)
            failing = self._smaller(failing, items, partial(self._edited, edits, failing))
        return failing

    def _items(self, edits: Mapping[str, ShrinkingEdit], failing: Failing) -> list[Item]:
        items = list[Item]()
        for edit in edits.values():
            with suppress(SurgeonError):  # a malformed constant cannot become plainer
                items += [(edit.name, target) for target in edit.targets(failing)]
        return items

    def _edited(
        self, edits: Mapping[str, ShrinkingEdit], failing: Failing, chosen: Iterable[Item]
    ) -> Failing:
        """Apply edits one after another; one that cannot be made is left out."""
        for name, target in chosen:
            with suppress(SurgeonError, KeyError):
                failing = edits[name].apply(failing, target, self.seen)
        return failing

    def _smaller(self, failing: Failing, items: Iterable[Item], edited: Edited) -> Failing:
        """Do as many of the items as possible; return the model after it."""
        row = _Row(self, failing, self._unrefused(failing, items), edited)
        left = list[Item]()
        # few nodes of a cut can be bypassed: each is asked about alone
        alone = 0 < len(row.items) <= _FEW and row.items[0][0] == BYPASSED
        if alone or row.items and not row.holds([]):
            left = smallest(
                row.items,
                row.holds,
                soon=row.ask_ahead,
                kind=lambda item: item if alone else item[0] in FILLS,
            )
            # `smallest` does not try the empty set; a single item may be refused only together with others
            left = [] if len(left) == 1 and row.holds([]) else left
        return self._result(row, left)

    def _unrefused(self, failing: Failing, items: Iterable[Item]) -> list[Item]:
        return [item for item in items if (item, _around(failing, item)) not in self.refused]

    def _result(self, row: "_Row", left: Sequence[Item]) -> Failing:
        result = row.made(left)
        self.refused |= {(item, _around(result, item)) for item in left}
        return result

    def fails(self, failing: Failing) -> bool:
        """Return whether a model fails for the same reason."""
        # three ways to know without asking: the journal, a refused model of the same form, ...
        known = self.journal.known(_STATE, [failing.key])
        fails = known.get(failing.key, False)
        form = self._form(failing)
        if not known and form not in self.forms:
            if time.monotonic() > self.until:
                raise OutOfTime
            self.progress(f"{self.best.extent}; asked {self.questions.asked} times")
            reason = self.questions.answer(failing)
            fails = reason == self.reason
            self.journal.add(_STATE, failing.key, fails)
            # the reasons are equal, but the newer message names what is left, which the next guesses use
            self.reason = reason if fails and reason else self.reason  # with names of what is left
        if form and not fails:
            self.forms.add(form)
        if fails and failing.extent <= self.best.extent:
            if failing.extent.nodes < self.best.extent.nodes:
                self.found = self.questions.asked
            self.best = failing
        return fails


@dataclass
class _Row:
    """Items: as many as possible are done to a model.

    Attributes:
        done: those after which it failed last. places: nodes of the items.
    """

    search: Shrinking
    failing: Failing
    items: Sequence[Item]
    edited: Edited
    done: set[Item] = field(default_factory=set)
    places: Mapping[Item, int] = field(default_factory=dict)

    def made(self, left: Sequence[Item]) -> Failing:
        """Return the model with all but some of the items done."""
        chosen = [item for item in self.items if item not in set(left)]
        return self.edited(chosen) if chosen else self.failing

    def holds(self, left: Sequence[Item]) -> bool:
        """Return whether it fails then; a step that was refused alone is not asked about."""
        with suppress(SurgeonError):
            candidate = self.made(left)
            # nothing changed, so it fails as before
            if candidate.key == self.failing.key:
                return True
            new = self._new(candidate, left)
            if self._refused(new) or not candidate.extent.nodes:
                return False
            if self.search.fails(candidate):
                self.done = set(self.items).difference(left)
                return True
            # one new item: it alone is to blame, also in a later row as long as its surroundings stay
            self.search.refused |= new if len(new) == 1 else set()
        return False

    def ask_ahead(self, lefts: Iterator[Sequence[Item]]) -> None:
        """Ask about what comes next while nothing holds, where several can be asked."""
        self.search.questions.ahead(self._unknown(lefts))

    def _unknown(self, lefts: Iterator[Sequence[Item]]) -> Iterator[Failing]:
        for left in lefts:
            with suppress(SurgeonError):
                candidate = self.made(left)
                refused = self._refused(self._new(candidate, left))
                if not refused and not self.search.journal.known(_STATE, [candidate.key]):
                    yield candidate

    def _new(self, candidate: Failing, left: Sequence[Item]) -> set[tuple[Item, int]]:
        # the items that are done now, and were not when it last failed
        more = set(self.items).difference(left) - self.done
        return {(item, _around(candidate, item)) for item in more}

    def _refused(self, new: set[tuple[Item, int]]) -> bool:
        # what was refused alone is refused after a step that has nothing to do with it
        return len(new) == 1 and new <= self.search.refused


def _around(failing: Failing, item: Item) -> int:
    """Return a hash of the nodes that make and read what an edit is about: while it stays, so does its answer."""
    index = failing.index
    name = "".join(item[1][:1])
    if name.startswith("@"):  # of a body
        return hash(failing.key)
    nodes = [index.nodes[place] for place in index.makers([name]) + index.reading([name])]
    return hash(b"".join(node.SerializeToString() for node in nodes))
