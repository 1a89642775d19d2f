"""Work on many samples with several runtimes, by an executor: threads of this process, or a cluster."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item", contravariant=True)
Result = TypeVar("Result", covariant=True)

_TASK = 0.5  # seconds that a task takes: overhead is little beside it, and little is lost with it
_SHARE = 0.01  # more seconds for each runtime beyond 50: whoever hands out tasks needs 5 ms for one
_MOST_SAMPLES = 4096  # samples of a task
_TRIES = 5  # of a task whose workers are lost
_AHEAD = 3  # tasks in flight for each runtime: while one is late, others go on


class PoolWorker(Protocol[Item, Result]):
    """What does a job in one thread: it holds the open sessions."""

    def __call__(self, items: Sequence[Item], /) -> Iterable[Result]:
        """Return the result of each sample."""
        ...

    def close(self) -> None:
        """End the runtime's processes."""
        ...


class Job(Protocol[Item, Result]):
    """What is done with each sample; it can be pickled.

    Attributes:
        key: distinguishes it from other jobs.
    """

    @property
    def key(self) -> str: ...

    def opened(self) -> PoolWorker[Item, Result]:
        """Return what does it, in the process and the thread that does."""
        ...


@dataclass
class Pool:
    """Runtimes that work at the same time.

    Attributes:
        width: returns how many tasks run at once; a cluster grows and shrinks.
        share: makes a job known to all who work, and returns what stands for it in a task.
        local: the runtimes are those of threads of this process.
        repeated: what was done again, and why.
        lost: exceptions that say that those who worked are gone.
        forget: closes what a job has open.
    """

    executor: Executor
    width: Callable[[], int]
    share: Callable[[Any], Any] = lambda job: job
    local: bool = True
    repeated: list[str] = field(default_factory=list)
    lost: tuple[type[BaseException], ...] = ()
    forget: Callable[[str], None] = field(default_factory=lambda: forget)

    def run(
        self,
        job: "Job[Item, Result]",
        items: Iterable[Item],
        most: int = _MOST_SAMPLES,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Result]:
        """Yield the result of each item, in their order; no more is in memory than what is in flight.

        Args:
            most: items of a task.
        """
        count = 0
        # the first tasks have one sample; their time says how many the next ones take
        shared, left, size = self.share(job), iter(items), 1
        # (what computes, its samples), in the order of the samples
        waiting = deque[tuple[Future[tuple[list[Result], float]], list[Item]]]()
        try:
            while True:
                # as many tasks in flight as keep all busy; the source is read only as far as needed
                while len(waiting) < _AHEAD * self.width() and (task := list(islice(left, size))):
                    waiting.append((self.executor.submit(done, shared, task), task))
                if not waiting:
                    return
                results, seconds = self._finished(shared, *waiting.popleft())
                # with many runtimes a task takes longer, so that whoever hands them out keeps up
                wanted = max(_TASK, _SHARE * self.width())
                size = max(1, min(most, int(wanted * len(results) / max(seconds, 1e-9))))
                count += len(results)
                progress(f"{count} samples")
                yield from results
        # the caller stopped, or an error came: what waits is not begun
        finally:
            for future, _ in waiting:
                future.cancel()
            self.forget(job.key)

    def _finished(
        self, job: Any, future: "Future[tuple[list[Result], float]]", task: list[Item]
    ) -> tuple[list[Result], float]:
        """Return the results of a task, given again to others where those who had it are gone."""
        # a worker may die again
        for _ in range(_TRIES):
            try:
                return future.result()
            except self.lost as error:
                self.repeated.append(f"repeated {len(task)} samples: {type(error).__name__}")
                future = self.executor.submit(done, job, task)
        return future.result()


@contextlib.contextmanager
def threads(jobs: int) -> Iterator[Pool]:
    """Return a pool of some runtimes, each with a thread of this process."""
    executor = ThreadPoolExecutor(jobs, "onnxsurgeon-job")
    try:
        yield Pool(executor, lambda: jobs)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


class _Workers(Generic[Item, Result]):
    """The workers of this process: one for a job and a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = dict[tuple[str, int], PoolWorker[Item, Result]]()

    def of(self, job: Job[Item, Result]) -> PoolWorker[Item, Result]:
        """Return this thread's worker; the first time it is opened."""
        # sessions belong to a thread
        place = job.key, threading.get_ident()
        found = self._open.get(place)
        # opened outside of the lock: that takes long
        if found is None:
            found = job.opened()
            with self._lock:
                self._open[place] = found
        return found

    def forget(self, key: str) -> None:
        """Close the workers of a job."""
        with self._lock:
            gone = [self._open.pop(place) for place in list(self._open) if place[0] == key]
        for worker in gone:
            worker.close()


_WORKERS = _Workers()  # type: ignore[var-annotated]  # of jobs of any kind


def forget(key: str) -> None:
    """Close what a job has open in this process."""
    _WORKERS.forget(key)


def done(job: "Job[Item, Result]", items: list[Item]) -> tuple[list[Result], float]:
    """Return the results of a task, and how many seconds it took."""
    worker = _WORKERS.of(job)
    start = time.perf_counter()
    return list(worker(items)), time.perf_counter() - start
