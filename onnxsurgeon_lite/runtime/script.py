"""Run a program, or a script of onnx and onnxruntime, in a process of its own.

That of a script is a fork, which has imported onnx already: that saves most of the time. For a caller that has
onnxruntime itself it starts from nothing, because the runtime's threads do not survive a fork.
"""

import multiprocessing
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from onnxsurgeon_lite.graph.limits import memory_of_children
from onnxsurgeon_lite.runtime.guard import end_with_parent, guard, guarded

_LONGEST = 1 << 24  # bytes that are kept of an output


@contextmanager
def running_script(script: Path, seconds: float) -> Iterator[Callable[[], tuple[int, bytes]]]:
    """Start a script in its folder; yield what waits for its exit code, negative for a signal, and its output.

    What waits raises `TimeoutError` if it does not end in time.
    """
    if sys.platform != "linux" or "onnxruntime" in sys.modules:
        command = guarded(script.name, memory_limit=memory_of_children())
        yield lambda: run_to_end(command, seconds, script.parent)
        return
    with tempfile.TemporaryFile() as log:
        given = script, log.fileno(), os.getpid(), memory_of_children()
        process = multiprocessing.get_context("fork").Process(target=_be, args=given, daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # no thread holds a lock it needs
            process.start()

        def ended() -> tuple[int, bytes]:
            process.join(seconds)
            if process.exitcode is None:
                raise TimeoutError(f"{script} did not end within {seconds:g} seconds")
            log.seek(0)
            return process.exitcode, log.read()

        try:
            yield ended
        finally:
            process.kill()
            process.join()


def _be(script: Path, log: int, parent: int, memory_limit: int) -> None:
    """Be the fork that runs the script."""
    guard(parent, memory_limit)
    for standard in (1, 2):
        os.dup2(log, standard)
    sys.stdout, sys.stderr = (open(standard, "w", closefd=False) for standard in (1, 2))  # noqa: SIM115
    os.chdir(script.parent)
    runpy.run_path(script.name, run_name="__main__")


def run_to_end(
    words: Sequence[str], seconds: float, folder: Path | None = None
) -> tuple[int, bytes]:
    """Run a program; return its exit code, and what its output begins with. What it started ends with it.

    Raises:
        TimeoutError: it does not end in time.
    """
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    assert process.stdout
    try:
        output = _beginning(process.stdout.fileno(), deadline)
        return process.wait(max(0.0, deadline - time.monotonic())), output
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{words[-1]!r} did not end within {seconds:g} seconds") from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _beginning(stream: int, deadline: float) -> bytes:
    """Read to the end, or until the deadline: what a program started may hold its output open."""
    kept, left = b"", deadline - time.monotonic()
    waiting = select.poll()
    waiting.register(stream)
    while left > 0 and waiting.poll(1000 * left):
        piece = os.read(stream, 65_536)
        kept += piece[: _LONGEST - len(kept)]
        left = deadline - time.monotonic() if piece else 0
    return kept
