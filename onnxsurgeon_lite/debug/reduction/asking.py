"""Ask why models fail: one after another, or several at a time before their turn."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Thread

from onnxsurgeon_lite.debug.reduction.conditions import Ask, Failing, Reason
from onnxsurgeon_lite.errors import UsageError

_Answer = tuple[Reason | None, int]
"""Why a model fails, and how often it was asked."""


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
    _known: dict[str, Future[_Answer]] = field(default_factory=dict)
    _open: SimpleQueue[tuple[Failing, Future[_Answer]]] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        # threads that stay: the processes that they start end with them
        # with one condition no thread is started: `answer` asks it
        for ask in self.asks[1:] and self.asks:
            Thread(target=self._serve, args=(ask,), daemon=True).start()

    def ahead(self, unknown: Iterator[Failing]) -> None:
        """Ask about the next models at once, where several can be asked and the first is not known."""
        if len(self.asks) == 1:
            return
        # One question for each condition, all at once. If the first is answered already, these are the candidates of
        # the turn before: the search takes their answers first.
        chosen = {each.key: each for each in islice(unknown, len(self.asks))}
        if next(iter(chosen), "") in self._known:
            return
        new = {key: Future[_Answer]() for key in chosen if key not in self._known}
        for key, future in new.items():
            self._open.put((chosen[key], future))
        self._known |= new
        wait(new.values())
        self.asked += sum(each.result()[1] for each in new.values() if not each.exception())

    def answer(self, failing: Failing) -> Reason | None:
        """Return why a model fails, the wanted reason before others."""
        # pop: an answer is used once, then the journal has it
        if (future := self._known.pop(failing.key, None)) is not None:
            return future.result()[0]
        reason, asked = self._once_in_runs(self.asks[0], failing)
        self.asked += asked
        return reason

    def _serve(self, ask: Ask) -> None:
        while True:
            failing, future = self._open.get()
            try:
                future.set_result(self._once_in_runs(ask, failing))
            except BaseException as error:  # noqa: BLE001  # of the caller's thread
                future.set_exception(error)

    def _once_in_runs(self, ask: Ask, failing: Failing) -> _Answer:
        reason = None
        # a failure that comes now and then: the first wanted reason counts
        for number in range(1, self.runs + 1):
            reason = ask(failing)
            if reason == self.wanted:
                return reason, number
        return reason, self.runs
