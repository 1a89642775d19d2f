"""A Dask cluster as a pool of runtimes: its scheduler, its retries, its dashboard; the only importer of distributed."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.pool import Pool, done, forget

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

_PATIENCE = 30  # seconds for a scheduler to answer, and for the first worker
_GLANCE = 2.0  # seconds for which the number of workers is taken as known
_LOCAL = {
    # workers that may die under a task: it is they, not the task, that are killed
    "distributed.scheduler.allowed-failures": 100,
    # another worker is a fork of a process that has imported all it needs
    "distributed.worker.multiprocessing-method": "forkserver",
}
_IMPORTED = ["distributed", "onnxsurgeon_lite.matching.over_samples"]


@contextlib.contextmanager
def cluster(place: str, jobs: int, notes: list[str]) -> Iterator[Pool]:
    """Return the workers of a cluster as a pool.

    Args:
        place: `local` for processes of this machine, else the address of a scheduler, or the file that it wrote.
        jobs: how many local processes; 0 for one for each core.
        notes: receives where the dashboard is.

    Raises:
        UsageError: distributed is not installed, or no scheduler answers.
    """
    try:
        from distributed import KilledWorker
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--cluster {place} needs distributed", "pip install 'onnxsurgeon-lite[cluster]'"
        ) from error
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(_connected(place, jobs))
        notes.append(f"dashboard: {client.dashboard_link}")
        # `pure=False`: equal arguments are different tasks
        executor = client.get_executor(pure=False)
        pool = Pool(executor, _Width(client), local=False, lost=(KilledWorker,))
        # a task, not scattered data: where its worker is lost, it is made again
        pool.share = lambda job: client.submit(_itself, job, pure=False)
        losses = _Losses(client)
        pool.forget = lambda key: _forget(client, key, pool, losses)
        try:
            yield pool
        finally:
            executor.shutdown(wait=False)


@contextlib.contextmanager
def _connected(place: str, jobs: int) -> "Iterator[Client]":
    from distributed import Client

    with contextlib.ExitStack() as stack:
        try:
            if place == "local":
                client = stack.enter_context(Client(stack.enter_context(workers_here(jobs))))
            else:
                # a file that the scheduler wrote, or an address
                where = {"scheduler_file": place} if Path(place).is_file() else {"address": place}
                client = stack.enter_context(Client(timeout=_PATIENCE, **where))
            client.wait_for_workers(1, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            raise UsageError(
                f"no cluster answers at {place!r}: {error}",
                "start one: dask scheduler, then dask worker ADDRESS; or give --cluster local",
            ) from error
        yield client


@contextlib.contextmanager
def workers_here(jobs: int) -> "Iterator[LocalCluster]":
    """Start a worker for each job, or for each core, on this machine."""
    import dask
    from distributed import LocalCluster
    from distributed.utils import get_mp_context

    how = {"threads_per_worker": 1, "dashboard_address": ":0", "host": "127.0.0.1"}
    count = jobs or os.cpu_count() or 1
    with dask.config.set(_LOCAL):
        get_mp_context().set_forkserver_preload(_IMPORTED)
        with LocalCluster(n_workers=count, silence_logs=logging.CRITICAL, **how) as local:
            yield local


class _Width:
    """How many tasks the cluster runs at once; it is asked now and then."""

    def __init__(self, client: "Client") -> None:
        self._client, self._known, self._asked = client, 1, 0.0

    def __call__(self) -> int:
        if time.monotonic() - self._asked > _GLANCE:
            self._known = max(1, sum(self._client.nthreads().values()))
            self._asked = time.monotonic()
        return self._known


def _itself(job: object) -> object:
    return job


def _forget(client: "Client", key: str, pool: Pool, losses: "_Losses") -> None:
    """Close what workers have open, and note which tasks were repeated because theirs was lost."""
    with contextlib.suppress(Exception):  # a worker may go at any moment
        client.run(forget, key, on_error="ignore")
    pool.repeated += losses.told()


class _Losses:
    """The workers that are lost from now on, as the scheduler notes them."""

    def __init__(self, client: "Client") -> None:
        self._client, self._last = client, 0.0
        self.told()

    def told(self) -> list[str]:
        """Say which workers were lost since the last time, and how many tasks of ours they had."""
        # events since the last time
        events = [
            (when, event) for when, event in self._client.get_events("all") if when > self._last
        ]
        self._last = max((when for when, _ in events), default=self._last)
        return [line for _, event in events for line in _lost(event)]


def _lost(event: object) -> "Iterator[str]":
    if isinstance(event, dict) and event.get("action") == "remove-worker":
        # tasks that it was computing, and results that only it had
        keys = set(event["processing-tasks"]).union(event["lost-computed-tasks"])
        tasks = sum(str(key).startswith(f"{done.__name__}-") for key in keys)
        if tasks:
            plural = "s" * (tasks != 1)
            yield f"worker {event['worker']} was lost: {tasks} task{plural} repeated"
