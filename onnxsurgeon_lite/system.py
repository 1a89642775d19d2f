"""What operating systems lack, done in another way: the rest of the package asks for no system."""

import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
import tempfile
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

HAS_FORK = hasattr(os, "fork") and sys.platform != "darwin"
"""False on Windows, and on macOS, whose libraries do not survive a fork: there a process is spawned for ONNX's code."""

IS_POSIX = hasattr(os, "killpg")
"""False on Windows: it has no groups of processes, and a child inherits no socket."""

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a command."""

SEEK_DATA, SEEK_HOLE = getattr(os, "SEEK_DATA", 3), getattr(os, "SEEK_HOLE", 4)
"""Windows refuses both with an `OSError`, like a file system that knows no holes."""

_LOOK, _PATIENCE = 0.1, 5.0  # seconds
_CRASH = 0x80000000
"""The first exit code of a crash on Windows: 0xC0000005 is an access violation."""


def physical_memory() -> int:
    """Return the bytes of memory that the machine has, or what can be addressed where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def user_folder(variable: str, usual: str) -> Path:
    """Return our folder among those of the user: below what a variable says, or a usual place in the home folder.

    Raises:
        FileNotFoundError: the user has no home folder, as in a container.
    """
    base = os.environ.get(variable) or os.path.expanduser(f"~/{usual}")
    if base.startswith("~"):  # nothing was put in the place of `~`
        raise FileNotFoundError(errno.ENOENT, "there is no home folder", base)
    return Path(base, "onnxdbg")


def read_at(file: IO[bytes], size: int, start: int) -> bytes:
    """Read at most `size` bytes from `start` on; the position of the file may change."""
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, start)
    file.seek(start)
    return file.read(size)


class TemporaryFolder:
    """A folder that is removed with this object, or at the end of a context; a fork of the process leaves it alone."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="onnxdbg-")
        # a fork has the object, too: its end must not remove the folder
        self.remove = weakref.finalize(self, _remove_of, self.name, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *exception: object) -> None:
        self.remove()


def _remove_of(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def crashed(code: int) -> bool:
    """Return whether an exit code is that of a process that a signal or an exception of the system ended."""
    return code < 0 or code >= _CRASH


def ending(code: int) -> str:
    """Return how a process ended: the name of a signal, or `exit code 3`; real-time signals have no names."""
    names = {-each: each.name for each in signal.Signals}
    return names.get(code, f"exit code {code}")


def end_with_descendants(process: "subprocess.Popen[str] | subprocess.Popen[bytes]") -> None:
    """Kill a process that leads a session of its own, and what it started, which may outlive it."""
    with contextlib.suppress(OSError):  # it may have ended already
        if IS_POSIX:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            import subprocess

            words = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(words, capture_output=True, check=False)
    process.kill()


class Meeting:
    """How a process gets a connection with the child that it starts: an inherited one, or by a port on this machine.

    Attributes:
        inherited: the files that the child gets. place: where it finds the connection, for `guard`.
    """

    def __init__(self) -> None:
        self._here: socket.socket | None = None
        if IS_POSIX:
            self._here, self._there = socket.socketpair()
            self.inherited = [self._there.fileno()]
            self.place = str(self.inherited[0])
        else:  # a child in a virtual environment has another process id than the one that was started
            self._there = socket.create_server(("127.0.0.1", 0))
            self._there.settimeout(_LOOK)
            # only the same user can read it from the child's command line
            self._secret = os.urandom(16).hex()
            self.inherited = []
            self.place = f"{self._there.getsockname()[1]}:{self._secret}"

    def __enter__(self) -> "Meeting":
        return self

    def __exit__(self, *exception: object) -> None:
        self._there.close()

    def connected(
        self, process: "subprocess.Popen[str] | subprocess.Popen[bytes]"
    ) -> socket.socket:
        """Return the connection; it is at its end if the child did not come."""
        while self._here is None:
            try:
                came, _ = self._there.accept()
            except TimeoutError:
                # the child ended without coming: the other end of this pair is closed
                if process.poll() is not None:
                    self._here, nobody = socket.socketpair()
                    nobody.close()
                continue
            with contextlib.suppress(OSError):
                came.settimeout(_PATIENCE)
                # another program on this machine may have come first
                if came.recv(len(self._secret), socket.MSG_WAITALL) == self._secret.encode():
                    came.settimeout(None)
                    self._here = came
            if self._here is None:
                came.close()
        return self._here
