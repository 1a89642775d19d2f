"""Run a script of onnx and onnxruntime in a process of its own.

The process is a fork, which has imported onnx already: that saves most of the time. For a caller that has onnxruntime
itself it starts from nothing, because the runtime's threads do not survive a fork.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onnxsurgeon_lite.graph.limits import memory_of_children
from onnxsurgeon_lite.runtime.guard import guard, guarded


@contextmanager
def running_script(script: Path, seconds: float) -> Iterator[Callable[[], tuple[int, bytes]]]:
    """Start a script in its folder; yield what waits for its exit code, negative for a signal, and its output.

    What waits raises `TimeoutError` if it does not end in time.
    """
    if sys.platform != "linux" or "onnxruntime" in sys.modules:
        command = guarded(script.name, memory_limit=memory_of_children())
        yield lambda: _started(command, script, seconds)
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
    sys.argv = [script.name]
    runpy.run_path(script.name, run_name="__main__")


def _started(command: list[str], script: Path, seconds: float) -> tuple[int, bytes]:
    try:
        done = subprocess.run(
            command,
            cwd=script.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{script} did not end within {seconds:g} seconds") from error
    return done.returncode, done.stdout
