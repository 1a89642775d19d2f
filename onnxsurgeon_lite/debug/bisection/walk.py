"""Walk over a model's values: a probe runs a part of the model and judges its values."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from onnx import TensorProto

from onnxsurgeon_lite.debug.journal import Journal
from onnxsurgeon_lite.debug.judge import Judge
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.errors import RuntimeCrash, RuntimeLost
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Held
from onnxsurgeon_lite.search.origins import Origin, SearchResult, first_bad, origins, spread
from onnxsurgeon_lite.shown import Progress, quiet
from onnxsurgeon_lite.tensors.dtypes import RunValue, Stored, fits, type_of

_Values = Iterable[tuple[str, RunValue | Held]]

_WIDTH = 16  # values per wave when searching one culprit
_JUDGES = 2  # threads that judge values
_MANY = 512  # values per wave when searching all culprits


@dataclass(frozen=True)
class _SessionPart:
    """What one session computes: values to judge, those of `items` without an answer, and values that stay there."""

    items: list[int]
    values: list[str]
    keep: list[str]


def _require_alive(future: Future[_Values]) -> None:
    """Raise what ended the runtime while it computed; other failures matter where the values do."""
    error = future.exception()
    if isinstance(error, RuntimeLost):
        raise error


# `seen` is how far `reaches` was asked. Verdicts come a little late, so `add` looks once more at the values between the
# bad one and `seen`.
class _Behind:
    """The values that depend on bad ones, as far as a probe got."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.found = set[int]()
        self.seen = 0

    def add(self, name: str) -> None:
        """Add a bad value, and what was seen of those that depend on it."""
        number = self.space.number[name]
        self.found.add(number)
        self._spread(number + 1, self.seen)

    def reaches(self, name: str) -> bool:
        """Return whether a value depends on a bad one."""
        number = self.space.number[name]
        if self.found:
            self._spread(self.seen, number + 1)
        self.seen = max(self.seen, number + 1)
        return number in self.found

    def _spread(self, start: int, stop: int) -> None:
        for item in range(start, stop):
            if not self.found.isdisjoint(self.space.parents(item)):
                self.found.add(item)


@dataclass
class Walk:
    """The state of one search.

    Attributes:
        look: the look of the observer; journal answers hold for one look only.
        budget: bytes of values that one probe may compute at once.
        targets: values that decide whether the model mismatches; a resumed search judges them again.
        healed: values replaced by their references; the first `replayed` of them before the search.
        compared: the number of answers.
        reached: targets that the first part with a bad value computed, too.
    """

    space: Space
    observer: Observer
    judge: Judge
    look: str
    budget: int
    targets: Sequence[str] = ()
    journal: Journal = field(default_factory=Journal)
    progress: Progress = quiet
    healed: list[str] = field(default_factory=list)
    replayed: int = 0
    compared: int = 0
    reached: dict[str, RunValue] = field(default_factory=dict)
    _ahead: tuple[_SessionPart, Future[_Values]] | None = None

    def __post_init__(self) -> None:
        values = self.space.values
        self.comparable = {i for i, name in enumerate(values) if self.judge.can_judge(name)}
        # the items that `every` will ask for, to guess what comes next; `_fed` is never forgotten
        self._pending = sorted(self.comparable)
        self._fed = set(self.observer.kept)
        self._uses: dict[str, int] | None = (
            None  # when searching all culprits: value -> its last use
        )

    def first_wave(self) -> list[int]:
        """Return the targets and some values spread over the graph, to probe in one session."""
        targets = {self.space.number[name] for name in self.targets}
        everything = range(len(self.space))
        wave = spread(everything, self.space.parents, self.comparable - targets, _WIDTH)
        return sorted(targets.union(wave if self._fits(wave) else ()))

    def one(self, bad: int, good: Collection[int]) -> SearchResult:
        return first_bad(
            bad, self.space.parents, self.comparable, self.probe, good, _WIDTH, self._fits
        )

    def every(self, heal: Callable[[list[int]], Collection[int]]) -> Iterator[list[Origin]]:
        """Find all origins in topological order; see `search.origins`."""
        self._uses = self.space.last_uses(self.comparable)
        return origins(self.comparable, self.space.parents, self.probe, heal, self._room)

    def probe(self, items: Sequence[int]) -> dict[int, bool]:
        """Compute values from kept ones, and judge each as it arrives."""
        names, state = self.space.names(items), (self.look, *self.healed)
        # answers hold for one look and one list of healed values: healing changes what is computed below
        answers = self.journal.known(state, names)
        part, values = self._computed(list(items))
        if part.values:
            # what computes references needs the memory that the last session has
            self.observer.runtime.forget((), session=True)
            self.judge.prepare(part.values)
            with self._threads() as pool:
                # judge this part while the runtime computes the next
                values = self._looking_ahead(values, items[-1], pool)
                for name, good in self._judged(values, pool):
                    answers[name] = good
                    # targets are judged anew in a resumed search, since the report shows their metrics
                    if name not in self.targets:
                        self.journal.add(state, name, good)
            if not all(answers.values()):
                self._stop(values)
            # a second look at bad constants: see `_is_another`
            for name in [n for n in part.values if not answers[n] and self._is_another(n)]:
                answers[name] = True
                self.journal.add(state, name, True)
        self.compared += len(items)
        self.progress(f"{self.compared} values compared in {self.observer.sessions} sessions")
        self._let_go(items, answers)
        return {item: answers[name] for item, name in zip(items, names, strict=True)}

    def _is_another(self, name: str) -> bool:
        """Return whether what reads axes or sizes is right with them: the references have others by their name."""
        index = self.space.index
        # Both models may have a constant `axes`, each for another node. If the nodes that read ours give their
        # references, ours is right.
        tensor = constant(index, name)
        if tensor is None or tensor.data_type not in (TensorProto.INT64, TensorProto.INT32):
            return False
        made = list(index.outputs_of(index.users(name)))
        if not made or not all(map(self.judge.can_judge, made)):
            return False
        return all(self.judge.good(n, value) for n, value in self.observer.fetch(made).items())

    def _part(self, items: list[int]) -> _SessionPart:
        names = self.space.names(items)
        known = self.journal.known((self.look, *self.healed), names)
        unknown = [name for name in names if name not in known]
        # a search for one culprit keeps what it computes; one for all culprits only what later parts read
        return _SessionPart(
            items, unknown, unknown if self._uses is None else self._crossing(items[-1])
        )

    def _computed(self, items: list[int]) -> tuple[_SessionPart, _Values]:
        """Return the part of these items and its values, which may be computed already."""
        # the guess of `_looking_ahead` holds only if the search asks for exactly these items
        part, future = self._ahead or (None, None)
        self._ahead = None
        if part is None or future is None or part.items != items:
            part = self._part(items)
        elif future.exception() is None:
            return part, future.result()
        else:
            _require_alive(future)
        return part, self.observer.hold(part.values, part.keep)

    def _looking_ahead(self, values: _Values, last: int, pool: ThreadPoolExecutor) -> _Values:
        """Let the runtime compute the next part while these values are judged: it counts if all are good."""
        if self._uses is None or not self.observer.shelves:
            return values
        values = list(values)
        # guess: all values are good, so `origins` goes on with the next pending items
        start = bisect_right(self._pending, last)
        items = self._pending[
            start : start + max(1, self._room(self._pending[start : start + _MANY]))
        ]
        part = self._part(items) if items else None
        # sizes of 0 are unknown sizes: the budget would not limit this part
        if part is not None and any(map(self.judge.size, part.values)):  # else nothing limits it
            compute = self.observer.ahead(part.values, part.keep)
            self._ahead = None if compute is None else (part, pool.submit(compute))
        return values

    def _stop(self, values: _Values) -> None:
        """Drop what was computed ahead of a bad value; remember the outputs that follow from it."""
        if self._ahead is not None:
            _require_alive(self._ahead[1])
        self._ahead = None
        # nothing is healed yet: these outputs are the model's own, and need no second run
        if isinstance(values, list) and len(self.healed) == self.replayed:
            found = {name: value for name, value in values if name in self.targets}
            self.reached = {n: v.array() if isinstance(v, Held) else v for n, v in found.items()}

    @contextmanager
    def _threads(self) -> Iterator[ThreadPoolExecutor]:
        """Yield threads; an exception does not wait for them: what they wait for ends with the runtime."""
        # one more for the part that is computed ahead
        pool = ThreadPoolExecutor(_JUDGES + 1)
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if isinstance(error, RuntimeCrash) and self._ahead is not None:
                _require_alive(self._ahead[1])
            raise
        pool.shutdown()

    def _judged(self, values: _Values, pool: ThreadPoolExecutor) -> Iterator[tuple[str, bool]]:
        """Yield answers in order; threads read and compare references while the next values are fetched.

        When searching all culprits, what lies behind a bad value counts as bad: it is probed again after healing.
        """
        behind = _Behind(self.space)
        waiting: deque[tuple[str, bool, Future[bool]]] = deque()

        def told() -> tuple[str, bool]:
            name, heals, verdict = waiting.popleft()
            if heals and not verdict.result():
                behind.add(name)
            return name, verdict.result()

        for name, value in values:
            # a short queue: no more values are in memory than threads can judge
            while len(waiting) > _JUDGES or (waiting and waiting[0][2].done()):
                yield told()
            if behind.reaches(name):
                yield name, False
            else:
                # what is below a value that surely can be healed is asked about again after healing: no need to judge
                # it now
                heals = self._uses is not None and self.judge.heals(name, value)
                waiting.append((name, heals, pool.submit(self.judge.good, name, value)))
        while waiting:
            yield told()

    def _crossing(self, last: int) -> list[str]:
        """Return the values up to an item that later items are computed from."""
        uses = self._uses or {}
        return [name for name in self.space.values[: last + 1] if uses.get(name, -1) > last]

    def _let_go(self, items: Sequence[int], answers: Mapping[str, bool]) -> None:
        """Forget values that no later part needs."""
        bad = [name for name, good in answers.items() if not good]
        # searching all culprits goes forward: what no later item reads can go
        if self._uses is not None:
            if bad:
                return  # probing again after healing starts from the kept values
            needed = {name for name, use in self._uses.items() if use > items[-1]}
        # searching one culprit goes back: keep what the nodes before the first bad value read
        elif bad:
            self.observer.forget(bad)
            index = self.space.index
            region = index.ancestors(
                [min(bad, key=self.space.number.__getitem__)], self.observer.kept
            )
            needed = index.read_by(region)
        else:
            return
        needed.update(self._fed, self.healed)
        self.observer.forget([name for name in self.observer.kept if name not in needed])

    def range(self) -> str:
        """Describe the progress of the search."""
        answers = self.journal.answers.get((self.look, *self.healed), {})
        place = self.space.number
        bad = min(
            (name for name, good in answers.items() if not good), key=place.__getitem__, default=""
        )
        before = [n for n, good in answers.items() if good and (not bad or place[n] < place[bad])]
        last = max(before, key=place.__getitem__, default="")
        parts = [f"{self.compared} of {len(self.comparable)} values compared"]
        parts += [f"good up to {last!r}"] if last else []
        parts += [f"first bad value {bad!r}"] if bad else []
        return ", ".join(parts)

    def replay(self, recorded: Mapping[str, Stored]) -> None:
        """Replace values by recorded ones before the search."""
        for name, value in recorded.items():
            self.heal(name, value)
        self.replayed = len(self.healed)

    def alone(self, feeds: Feeds, by_node: bool = False) -> Observer:
        """Return an observer that knows only the feeds, and what is replayed."""
        alone = Observer(self.observer.index, self.observer.runtime, by_node)
        alone.feed(feeds)
        alone.kept |= {name: self.observer.kept[name] for name in self.healed[: self.replayed]}
        return alone

    def heal(self, name: str, value: Stored) -> None:
        """Replace a value by its reference, and forget what was computed from it."""
        self.observer.forget([name, *self.space.below([name], self.healed)])
        kind = self.observer.index.type_of(name)
        own = type_of(value) if kind is None or not fits(kind, value) else kind
        self.observer.put(name, value, own)
        self.healed.append(name)

    def _fits(self, items: Sequence[int]) -> bool:
        return sum(map(self.judge.size, self.space.names(items))) <= self.budget

    def _room(self, pending: Sequence[int]) -> int:
        """Return how many pending values fit into the budget."""
        room = self.budget
        for count, item in enumerate(pending[:_MANY]):
            room -= self.judge.size(self.space.values[item])
            if room < 0:
                return count
        return _MANY
