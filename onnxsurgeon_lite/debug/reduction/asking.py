"""Ask why models fail: one after another, or several at a time before their turn."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Thread

from onnxsurgeon_lite.debug.reduction.conditions import Ask, Reason
from onnxsurgeon_lite.debug.reduction.failing import Failing
from onnxsurgeon_lite.errors import UsageError

_Answer = tuple[Reason | None, int] | BaseException
"""Why a model fails, and how often it was asked; or what the condition raised."""


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
class Questions:
    """The questions of a search.

    Attributes:
        asks: conditions that are asked at the same time. wanted: the reason that counts, once in so many `runs`.
        asked: how often a condition was asked.
    """

    asks: Sequence[Ask]
    wanted: Reason
    runs: int
    asked: int = 0
    _known: dict[str, _Answer] = field(default_factory=dict)
    _open: SimpleQueue[Failing] = field(default_factory=SimpleQueue)
    _answered: SimpleQueue[tuple[str, _Answer]] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        # threads that stay: the processes that they start end with them
        for ask in self.asks[1:] and self.asks:
            Thread(target=self._serve, args=(ask,), daemon=True).start()

    def ahead(self, unknown: Iterator[Failing]) -> None:
        """Ask about the next models at once, where several can be asked and the first is not known."""
        if len(self.asks) == 1:
            return
        chosen = {each.key: each for each in islice(unknown, len(self.asks))}
        if next(iter(chosen), "") in self._known:
            return
        waiting = [each for key, each in chosen.items() if key not in self._known]
        for each in waiting:
            self._open.put(each)
        self._known |= dict(self._answered.get() for _ in waiting)
        answers = (self._known[each.key] for each in waiting)
        self.asked += sum(answer[1] for answer in answers if isinstance(answer, tuple))

    def answer(self, failing: Failing) -> Reason | None:
        """Return why a model fails, the wanted reason before others."""
        answer = self._known.pop(failing.key, None)
        if answer is None:
            answer = self._once_in_runs(self.asks[0], failing)
            self.asked += answer[1]
        if isinstance(answer, BaseException):
            raise answer
        return answer[0]

    def _serve(self, ask: Ask) -> None:
        while True:
            failing = self._open.get()
            answer: _Answer
            try:
                answer = self._once_in_runs(ask, failing)
            except BaseException as error:  # noqa: BLE001  # of the caller's thread
                answer = error
            self._answered.put((failing.key, answer))

    def _once_in_runs(self, ask: Ask, failing: Failing) -> tuple[Reason | None, int]:
        reason = None
        for number in range(1, self.runs + 1):
            reason = ask(failing)
            if reason == self.wanted:
                return reason, number
        return reason, self.runs
