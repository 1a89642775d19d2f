"""Two commands side by side: whole processes, time and peak memory, pair by pair."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rich.console import Console

PYTHON = sys.executable
ONNXDBG = str(Path(PYTHON).with_name("onnxdbg"))
POLYGRAPHY = str(Path(PYTHON).with_name("polygraphy"))
MB = 1e6

err = Console(stderr=True, highlight=False, soft_wrap=True)


class BenchError(Exception):
    """A command failed, its result is wrong, or there is no room."""


@dataclass(frozen=True)
class Target:
    """What a measured figure should stay below: a ratio to the peer, or our own peak in MB."""

    metric: Literal["time", "memory", "peak"]
    limit: float

    def __str__(self) -> str:
        if self.metric == "peak":
            return f"peak <= {self.limit:g} MB"
        shown = f"{self.limit:g}x" if self.limit >= 0.2 else f"1/{1 / self.limit:g}"
        return f"{self.metric} <= {shown}"


@dataclass(frozen=True)
class Command:
    """A command, and the folder it writes to: it is emptied before each run."""

    label: str
    argv: Sequence[str | Path]
    output: Path | None = None
    exit_code: int = 0


@dataclass(frozen=True)
class Peer:
    """What our command is measured against; slow ones run only once."""

    command: Command
    targets: tuple[Target, ...] = ()
    once: bool = False


@dataclass(frozen=True)
class Contest:
    """One command of ours and its peers; `check` looks at what it did before anything is measured."""

    ours: Command
    peers: tuple[Peer, ...]
    check: Callable[[str], None] = lambda log: None
    rounds_factor: int = 1


@dataclass(frozen=True)
class Row:
    """A row that can be asked for; `scratch` is what its commands write, in bytes."""

    about: str
    models: tuple[str, ...]
    scratch: int
    contests: Callable[[Path, Path], list[Contest]]


@dataclass(frozen=True)
class Run:
    """One run of a command; `cpu` is the processor time of all its processes, in seconds."""

    seconds: float
    megabytes: float
    cpu: float


@dataclass
class Outcome:
    """A contest with one peer, as measured."""

    label: str
    peer: Peer
    ours: list[Run] = field(default_factory=list)
    theirs: list[Run] = field(default_factory=list)
    failure: str = ""

    def ratios(self, what: Literal["seconds", "megabytes"]) -> list[float]:
        """Ours by theirs, pair by pair."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [getattr(ours, what) / getattr(theirs, what) for ours, theirs in pairs]

    def measured(self, target: Target) -> float:
        """The figure that a target is about."""
        if target.metric == "peak":
            return max(run.megabytes for run in self.ours)
        return statistics.median(self.ratios("seconds" if target.metric == "time" else "megabytes"))

    def verdicts(self) -> list[str]:
        """One word a target."""
        if self.failure:
            return ["failed"]
        reached = (self.measured(target) <= target.limit for target in self.peer.targets)
        return ["reached" if each else "missed" for each in reached]


# One run in a process that is small and new, so that nothing of ours counts: Linux hands a process's resident set down
# to what it starts. As a "subreaper" it adopts and waits for processes that lost their parent: they count as well.
_LAUNCH = """
import ctypes, json, os, resource, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
status = os.waitpid(child, 0)[1]
seconds = time.perf_counter() - start
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
used = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = used.ru_utime + used.ru_stime
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), seconds, used.ru_maxrss * 1024, cpu], file)
"""


def launch(command: Command) -> tuple[Run, str]:
    """Run a command once; what it took, and what it printed."""
    if command.output is not None:
        shutil.rmtree(command.output, ignore_errors=True)
        command.output.mkdir(parents=True)
    os.sync()  # what earlier runs wrote is not to be waited for by this one
    # compiled modules are kept, as they are for a user: pip compiles the peers', the first run ours
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder, "figures.json")
        launcher = [PYTHON, "-ISc", _LAUNCH, figures, *command.argv]
        done = subprocess.run(
            launcher,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
        )
        log = done.stdout + done.stderr
        if done.returncode:
            raise BenchError(f"{command.label} did not start: {log[-500:]}")
        code, seconds, peak, cpu = json.loads(figures.read_text())
    if code != command.exit_code:
        raise BenchError(f"{command.label} ended with {code}: {log[-1500:].strip()}")
    return Run(seconds, peak / MB, cpu), log


def hold(contest: Contest, rounds: int) -> Iterator[Outcome]:
    """Run our command once unmeasured and check what it did; then against each peer in turn."""
    label = contest.ours.label
    try:
        contest.check(launch(contest.ours)[1])
    except BenchError as error:
        yield from (Outcome(label, peer, failure=str(error)) for peer in contest.peers)
        return
    for peer in contest.peers:
        outcome = Outcome(label, peer)
        try:
            _alternate(contest, outcome, 1 if peer.once else rounds * contest.rounds_factor)
        except BenchError as error:
            outcome.failure = str(error)
        yield outcome


def _alternate(contest: Contest, outcome: Outcome, rounds: int) -> None:
    peer = outcome.peer.command
    if rounds > 1:
        launch(contest.ours)
        launch(peer)
    for number in range(rounds):
        err.print(f"{outcome.label} / {peer.label}: round {number + 1} of {rounds}", style="dim")
        ours, theirs = launch(contest.ours)[0], launch(peer)[0]
        outcome.ours.append(ours)
        outcome.theirs.append(theirs)


def python(code: str, *arguments: str | Path) -> list[str | Path]:
    """A command line that runs Python code."""
    return [PYTHON, "-c", code, *arguments]
