"""What operating systems lack, done in another way: the rest of the package asks for no system."""

import os
import shutil
import signal
import sys
import tempfile
import weakref
from typing import IO

HAS_FORK = hasattr(os, "fork")
"""Not on Windows: there ONNX's own code runs in this process, unguarded."""

ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a command."""


def physical_memory() -> int:
    """Return the bytes of memory that the machine has, or what can be addressed where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


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
        self.remove = weakref.finalize(self, _remove_of, self.name, os.getpid())

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *exception: object) -> None:
        self.remove()


def _remove_of(folder: str, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
