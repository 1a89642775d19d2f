"""Make a failing model smaller as long as it fails for the same reason."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf

from onnxsurgeon_lite.debug.bisection.journal import Journal
from onnxsurgeon_lite.debug.reduction.asking import Questions
from onnxsurgeon_lite.debug.reduction.conditions import Reason
from onnxsurgeon_lite.debug.reduction.edits import (
    AT_ONCE,
    DETAILS,
    EXACT,
    LAST,
    STRUCTURE,
    ShrinkingEdit,
    cuttable,
    guesses,
    keeping,
)
from onnxsurgeon_lite.debug.reduction.failing import Failing, SeenValues
from onnxsurgeon_lite.errors import OutOfTime, SurgeonError
from onnxsurgeon_lite.search.subsets import shortest_run, smallest

Item = tuple[str, tuple[str, ...]]
"""The name of an edit, and what it is done to."""

Edited = Callable[[Sequence[Item]], Failing]
"""Does some of what can be done."""


_STATE = ("reduce",)  # of the answers in a journal


@dataclass
class Shrinking:
    """A reduction under way.

    Attributes:
        questions: whether a model fails as the first one does. reason: why that does.
        seen: values of models. journal: keeps the answers.
        best: the smallest model that failed so far.
        until: the monotonic time after which nothing is asked. found: the call that found the fewest nodes.
        refused: what could not be done, with the nodes around it.
    """

    questions: Questions
    reason: Reason
    seen: SeenValues
    journal: Journal
    best: Failing
    progress: Callable[[str], None] = print
    until: float = inf
    found: int = 0
    refused: set[tuple[Item, int]] = field(default_factory=set)

    def run(self) -> Failing:
        """Make the model smaller until nothing does: first its structure alone."""
        failing = self.best
        for rows in (STRUCTURE, (*STRUCTURE, *DETAILS)):
            while (result := self._rows(self._cut(failing), rows)).key != failing.key:
                failing = result
            if failing.extent.nodes == 1 and (plain := self._at_once(failing)) is not None:
                return plain
        return self._rows(failing, LAST)

    def _at_once(self, failing: Failing) -> Failing | None:
        """Return a node alone with everything made plainer in one step; None where it does not fail then."""
        edits = {edit.name: edit for row in AT_ONCE for edit in row}
        result = self._edited(edits, failing, self._items(edits, failing))
        return result if self.seen.references is None and self.fails(result) else None

    def _cut(self, failing: Failing) -> Failing:
        """Keep the fewest nodes that fail; look first at those that the message names."""
        outputs = [tuple(node.output) for node in failing.index.nodes]
        items: dict[int, Item] = {place: ("cut", outputs[place]) for place in cuttable(failing)}

        def without(gone: Sequence[Item]) -> Failing:
            left = [place for place, item in items.items() if item not in gone]
            return keeping(failing, left, self.seen)

        first = guesses(failing, self.reason.said)
        guessed = ([items[place] for place in items if place in guess] for guess in first)
        return self._smaller(failing, items.values(), without, guessed)

    def _rows(self, failing: Failing, rows: Iterable[Sequence[ShrinkingEdit]]) -> Failing:
        """Apply as many edits of each row as possible."""
        for row in rows:
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

    def _smaller(
        self,
        failing: Failing,
        items: Iterable[Item],
        edited: Edited,
        guessed: Iterable[list[Item]] = (),
    ) -> Failing:
        """Do as many of the items as possible; return the model after it.

        `guessed` are left undone in the first tries; the items then follow one another in the graph.
        """
        items = [item for item in items if (item, _around(failing, item)) not in self.refused]
        row = _Row(self, failing, items, edited)
        left: list[Item] = []
        if items and not row.holds([]):
            first = next(filter(row.holds, guessed), items) if guessed else items
            run = shortest_run(first, row.holds) if guessed else first
            left = smallest(run, row.holds, soon=row.ask_ahead)
        result = row.made(left)
        self.refused |= {(item, _around(result, item)) for item in left}
        return result

    def fails(self, failing: Failing) -> bool:
        """Return whether a model fails for the same reason."""
        known = self.journal.known(_STATE, [failing.key])
        fails = known.get(failing.key, False)
        if not known:
            if time.monotonic() > self.until:
                raise OutOfTime
            self.progress(f"{self.best.extent}; asked {self.questions.asked} times")
            reason = self.questions.answer(failing)
            fails = reason == self.reason
            self.journal.add(_STATE, failing.key, fails)
            self.reason = reason if fails and reason else self.reason  # with names of what is left
        if fails and failing.extent <= self.best.extent:
            if failing.extent.nodes < self.best.extent.nodes:
                self.found = self.questions.asked
            self.best = failing
        return fails


@dataclass
class _Row:
    """Items: as many as possible are done to a model.

    Attributes:
        done: those after which it failed last.
    """

    search: Shrinking
    failing: Failing
    items: Sequence[Item]
    edited: Edited
    done: set[Item] = field(default_factory=set)

    def made(self, left: Sequence[Item]) -> Failing:
        """Return the model with all but some of the items done."""
        chosen = [item for item in self.items if item not in set(left)]
        return self.edited(chosen) if chosen else self.failing

    def holds(self, left: Sequence[Item]) -> bool:
        """Return whether it fails then; a step that was refused alone is not asked about."""
        with suppress(SurgeonError):
            candidate = self.made(left)
            if candidate.key == self.failing.key:
                return True
            new = self._new(candidate, left)
            if self._refused(new):
                return False
            if self.search.fails(candidate):
                self.done = {*self.items}.difference(left)
                return True
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
        more = {*self.items}.difference(left) - self.done
        return {(item, _around(candidate, item)) for item in more}

    def _refused(self, new: set[tuple[Item, int]]) -> bool:
        # what was refused alone is refused after a step that has nothing to do with it
        return len(new) == 1 and new <= self.search.refused


def _around(failing: Failing, item: Item) -> int:
    """Return a hash of the nodes that make and read what an edit is about: while it stays, so does its answer."""
    index, name = failing.index, "".join(item[1][:1])
    if name.startswith("@"):  # of a body
        return hash(failing.key)
    nodes = [index.nodes[place] for place in (*index.makers([name]), *index.reading([name]))]
    return hash(b"".join(node.SerializeToString() for node in nodes))
