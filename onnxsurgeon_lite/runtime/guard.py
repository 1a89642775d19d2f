"""The start of a child process, which ends with its parent, before it when memory runs short, and alone at its limit.

Run as a script by `guarded`: PARENT MEMORY_LIMIT SCRIPT [ARGUMENT ...]. It imports nothing of the package, so that the
child starts as fast as the script does.
"""

from __future__ import annotations  # an older Python may run it

import ctypes
import os
import runpy
import signal
import sys

_LIBRARY = (
    ctypes.CDLL(None) if sys.platform == "linux" else None
)  # opened here: a fork beside other threads may wait for ever for it


def guarded(*arguments: str, memory_limit: int = 0, python: str = "") -> list[str]:
    """Return the command that runs a Python script guarded, as a child of this process, by this Python or another."""
    start = [python] if python else [sys.executable, "-P"]  # which came with 3.11
    return [*start, __file__, str(os.getpid()), str(memory_limit), *arguments]


def guard(parent: int, memory_limit: int) -> None:
    """Guard this process, a child of the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    # onnxruntime writes a device id into the home folder when it is imported
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    end_with_parent()
    if os.getppid() != parent:  # it ended before that
        sys.exit(1)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("800")
    except OSError:
        pass  # a container may forbid it, and another system has none
    if memory_limit and os.name == "posix":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))


def end_with_parent() -> None:
    """Let the system end this process with the thread that started it."""
    if _LIBRARY:
        _LIBRARY.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    guard(int(sys.argv[1]), int(sys.argv[2]))
    sys.argv = sys.argv[3:]
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this script
    runpy.run_path(sys.argv[0], run_name="__main__")
