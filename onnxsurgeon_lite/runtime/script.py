"""Run a program, or a script of onnx and onnxruntime, in a process of its own.

That of a script is a fork, which has imported onnx already: that saves most of the time. For a caller that has
onnxruntime itself it starts from nothing, because the runtime's threads do not survive a fork.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from onnxsurgeon_lite.guard import AT_START, guard, guarded
from onnxsurgeon_lite.limits import memory_of_children
from onnxsurgeon_lite.system import end_with_descendants

_LONGEST = 1 << 24  # bytes that are kept of an output


@contextmanager
def running_script(script: Path, seconds: float) -> Iterator[Callable[[], tuple[int, bytes]]]:
    """Start a script in its folder; yield what waits for its exit code, negative for a signal, and its output.

    What waits raises `TimeoutError` if it does not end in time.
    """
    # onnxruntime's threads do not survive a fork
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

        # what waits for the end, so that the caller can do something else meanwhile
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
    # it ends with its parent, and alone at its limit of memory
    guard(parent, memory_limit)
    # native code writes to the descriptors, Python to these files
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
        bufsize=0,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=AT_START,
    )
    assert process.stdout
    try:
        # output first: a full pipe would stop the program
        output = _beginning(process.stdout, deadline)
        return process.wait(max(0.0, deadline - time.monotonic())), output
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{words[-1]!r} did not end within {seconds:g} seconds") from error
    finally:
        # whatever it started ends, too
        end_with_descendants(process)
        process.wait()
        process.stdout.close()


def _beginning(stream: IO[bytes], deadline: float) -> bytes:
    """Read to the end, or until the deadline: what a program started may hold its output open."""
    kept = bytearray()

    def read() -> None:
        with suppress(ValueError, OSError):  # it was closed meanwhile: the deadline is over
            while piece := stream.read(65_536):
                kept.extend(piece[: _LONGEST - len(kept)])

    thread = threading.Thread(target=read, daemon=True)  # Windows cannot wait for a pipe otherwise
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    return bytes(kept)
