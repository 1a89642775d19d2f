"""Make a failing model smaller as long as it fails for the same reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from onnxsurgeon_lite.debug.bisection.journal import Journal
from onnxsurgeon_lite.debug.reduction.conditions import Ask, Reason
from onnxsurgeon_lite.debug.reduction.edits import (
    DETAILS,
    LAST,
    STRUCTURE,
    ShrinkingEdit,
    cuttable,
    guesses,
    keeping,
)
from onnxsurgeon_lite.debug.reduction.failing import Failing, SeenValues
from onnxsurgeon_lite.errors import SurgeonError, UsageError
from onnxsurgeon_lite.search.subsets import shortest_run, smallest

Item = tuple[str, tuple[str, ...]]
"""The name of an edit, and what it is done to."""

Edited = Callable[[Sequence[Item]], Failing]
"""Does some of what can be done."""

_STATE = ("reduce",)  # of the answers in a journal


def measured(ask: Ask, failing: Failing, runs: int) -> tuple[Reason, int]:
    """Return why a model fails most often, and how often in so many runs.

    Raises:
        UsageError: it never does.
    """
    reasons = Counter(reason for _ in range(runs) if (reason := ask(failing)) is not None)
    if reasons:
        return reasons.most_common(1)[0]
    raise UsageError(
        f"the model does not fail (number of runs: {runs})",
        "see that the condition and the feeds are right; if it fails now and then: --runs 10",
    )


@dataclass
class Shrinking:
    """A reduction under way.

    Attributes:
        ask: why a model fails. reason: why the first one does; a smaller one must do so once in so many `runs`.
        seen: values of models. journal: keeps the answers.
        best: the smallest model that failed so far. calls: how often the condition was asked.
        found: the call that found the fewest nodes.
        refused: what could not be done, with the nodes around it.
    """

    ask: Ask
    reason: Reason
    runs: int
    seen: SeenValues
    journal: Journal
    best: Failing
    progress: Callable[[str], None] = print
    calls: int = 0
    found: int = 0
    refused: set[tuple[Item, int]] = field(default_factory=set)

    def run(self) -> Failing:
        """Make the model smaller until nothing does: first its structure alone."""
        failing = self.best
        for rows in (STRUCTURE, (*STRUCTURE, *DETAILS)):
            while (result := self._rows(self._cut(failing), rows)).key != failing.key:
                failing = result
        return self._rows(failing, LAST)

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
            edits = {edit.name: edit for edit in row}
            items = list[Item]()
            for edit in row:
                with suppress(SurgeonError):  # a malformed constant cannot become plainer
                    items += [(edit.name, target) for target in edit.targets(failing)]
            failing = self._smaller(failing, items, partial(self._edited, edits, failing))
        return failing

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
        done = set[Item]()

        def made(left: Sequence[Item]) -> Failing:
            chosen = [item for item in items if item not in set(left)]
            return edited(chosen) if chosen else failing

        def holds(left: list[Item]) -> bool:
            nonlocal done
            with suppress(SurgeonError):
                candidate, more = made(left), {*items}.difference(left)
                if candidate.key == failing.key:
                    return True
                new = {(item, _around(candidate, item)) for item in more - done}
                # what was refused alone is refused after a step that has nothing to do with it
                if len(new) == 1 and new <= self.refused:
                    return False
                if self.fails(candidate):
                    done = more
                    return True
                self.refused |= new if len(new) == 1 else set()
            return False

        left: list[Item] = []
        if items and not holds([]):
            first = next(filter(holds, guessed), items) if guessed else items
            left = smallest(shortest_run(first, holds) if guessed else first, holds)
        result = made(left)
        self.refused |= {(item, _around(result, item)) for item in left}
        return result

    def fails(self, failing: Failing) -> bool:
        """Return whether a model fails for the same reason."""
        known = self.journal.known(_STATE, [failing.key])
        fails = known.get(failing.key, False)
        if not known:
            fails = any(self._asked(failing) for _ in range(self.runs))
            self.journal.add(_STATE, failing.key, fails)
        if fails and failing.extent <= self.best.extent:
            if failing.extent.nodes < self.best.extent.nodes:
                self.found = self.calls
            self.best = failing
        return fails

    def _asked(self, failing: Failing) -> bool:
        self.calls += 1
        self.progress(f"{self.best.extent}; asked {self.calls} times")
        return self.ask(failing) == self.reason


def _around(failing: Failing, item: Item) -> int:
    """Return a hash of the nodes that make and read what an edit is about: while it stays, so does its answer."""
    index, name = failing.index, "".join(item[1][:1])
    if name.startswith("@"):  # of a body
        return hash(failing.key)
    nodes = [index.nodes[place] for place in (*index.makers([name]), *index.reading([name]))]
    return hash(b"".join(node.SerializeToString() for node in nodes))
