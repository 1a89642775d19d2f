"""Start the child process of a runtime, which gets ready while the caller goes on; keep it for the next one."""

import atexit
import contextlib
import json
import os
import shutil
import sys

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.limits import memory_of_runtime
from onnxsurgeon_lite.runtime.child import WORKER, Child
from onnxsurgeon_lite.runtime.options import ORT, REFERENCE, TORCH, RuntimeOptions

_KEPT = 3  # processes that wait: a search runs the model, its reference, and the optimized model
_resting = list[Child]()


def started(options: RuntimeOptions) -> Child:
    """Return the process of the runtime that the options name: one that rests, or a new one."""
    memory = memory_of_runtime(options.provider)
    if options.runtime == ORT:
        if options.python and shutil.which(options.python) is None:
            raise UsageError(
                f"there is no interpreter {options.python!r}", "write python=VENV/bin/python"
            )
        return _rested(memory, options.python) or Child(memory, python=options.python)
    if options.runtime == TORCH:
        raise UsageError(
            "a PyTorch module runs whole: it gives references",
            "write onnxdbg bisect MODEL --a runtime=torch:FILE.py:FUNCTION",
        )
    # the device is one setting among others
    settings = {"provider": options.provider, **dict(options.settings)}
    if options.runtime == REFERENCE and options.ops:
        settings["ops"] = options.ops
    path = os.pathsep.join(sys.path)
    return Child(memory, "backends/host.py", (options.runtime, json.dumps(settings), path))


def finished(child: Child, options: RuntimeOptions) -> None:
    """Let a process rest that a runtime is done with, or end it.

    The start of another would take a quarter of a second. A library of operators or a device stays with its process.
    """
    plain = options.provider.startswith(("cpu", "CPU")) and not options.ops_libraries
    # at most as many as one call starts; others end here
    if options.runtime == ORT and plain and len(_resting) < _KEPT and child.rests():
        _resting.append(child)
    else:
        child.close()


def _rested(memory: int, python: str) -> Child | None:
    """Return a process that rests, if a new one would be like it."""
    with contextlib.suppress(IndexError):  # there is none, or another thread took the last one
        while True:
            child = _resting.pop()
            if child.settings == (memory, WORKER, (), python) and child.rests():
                return child.passed_on()
            child.close()
    return None


@atexit.register
def _end() -> None:
    # before the interpreter takes down what closing needs
    while _resting:
        _resting.pop().close()
