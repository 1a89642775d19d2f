"""The start of a child process, which ends with its parent, before it when memory runs short, and alone at its limit.

Run as a script by `guarded`: PARENT MEMORY_LIMIT CONNECTION SCRIPT [ARGUMENT ...]. It imports nothing of the package,
so that the child starts as fast as the script does.
"""

from __future__ import annotations  # an older Python may run it

import ctypes
import os
import runpy
import signal
import sys

# opened here: a fork beside other threads may wait for ever for it
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def guarded(*arguments: str, memory_limit: int = 0, python: str = "", place: str = "") -> list[str]:
    """Return the command that runs a Python script guarded, as a child of this process, by this Python or another.

    Args:
        place: of a `Meeting`: the script's first argument is the number of the connection.
    """
    start = [python] if python else [sys.executable, "-P"]  # which came with 3.11
    return start + [__file__, str(os.getpid()), str(memory_limit), place] + list(arguments)


def guard(parent: int, memory_limit: int) -> None:
    """Guard this process, a child of the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    # onnxruntime writes a device id into the home folder when it is imported
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    end_with_parent()
    if _LIBRARY and os.getppid() != parent:  # it ended before that
        sys.exit(1)
    try:
        # where memory runs short, Linux ends this process before its parent
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


AT_START = end_with_parent if _LIBRARY else None
"""What a child does first, where the system knows it: `preexec_fn` of `subprocess`."""


def _connected(place: str) -> str:
    """Return the number of the connection with the parent."""
    port, _, secret = place.partition(":")
    if not secret:  # a number alone: an inherited connection
        return port
    import socket

    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.sendall(secret.encode())
    return str(connection.detach())


def _end_with_stdin() -> None:
    """End this process when the parent has ended, which holds the other end of the pipe."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    guard(int(sys.argv[1]), int(sys.argv[2]))
    connection = [_connected(sys.argv[3])] if sys.argv[3] else []
    # without PR_SET_PDEATHSIG, the end of standard input shows that the parent has ended
    if connection and not _LIBRARY:
        import threading

        threading.Thread(target=_end_with_stdin, daemon=True).start()
    sys.argv = [sys.argv[4], *connection, *sys.argv[5:]]  # the script sees its own arguments only
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this script
    runpy.run_path(sys.argv[0], run_name="__main__")
