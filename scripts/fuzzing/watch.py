"""What a process reaches, seen by an audit hook of Python that refuses what is not allowed; forks tell it, too."""

import mmap
import os
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.system import user_folder

_NEVER = {
    "socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.Popen", "os.exec", "os.posix_spawn",
    "os.system", "pty.spawn",
}  # fmt: skip
_CHANGES = {
    "os.rename": ((0, 2), (1, 3)), "os.link": ((1, 3),), "os.symlink": ((1, 2),), "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),), "os.rmdir": ((0, 1),),
}  # fmt: skip
"""Event -> where its arguments have a place, and the open folder that it is in, if any."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OWN = (
    sys.prefix,
    sys.base_prefix,
    str(Path(osl.__file__).parents[1]),
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
    "/var/tmp",
    "/usr/tmp",
    tempfile.gettempdir(),
    f"{user_folder('XDG_CACHE_HOME', '.cache')}/operators-",  # the runtime's operators
    f"{user_folder('XDG_CACHE_HOME', '.cache')}/.operators-",  # and while they are written
)


def reads_below(folder: Path) -> Callable[[str, bool], bool]:
    """Return what allows to open files of a folder, and what Python itself opens."""
    return lambda real, _: Path(real).is_relative_to(folder.resolve()) or real.startswith(_OWN)


class Watch:
    """What was reached, while it is on.

    Attributes:
        theirs: a folder that somebody sent: no Python in it may run.
        may: says of a file, and of whether it is written, whether that is allowed.
    """

    def __init__(self, theirs: Path, may: Callable[[str, bool], bool]) -> None:
        self.theirs, self.may = str(theirs.resolve()), may
        self.is_on = False
        self._reached = mmap.mmap(-1, 1 << 16)  # which forks share
        sys.addaudithook(self._see)

    def reached(self) -> list[str]:
        """Return what was reached since the last time."""
        text = self._reached[:].rstrip(b"\0").decode(errors="replace")
        self._reached[:] = bytes(len(self._reached))
        return text.splitlines()

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        what = self._wrong(event, arguments) if self.is_on else ""
        if what:
            line = f"{what}\n".encode(errors="replace")[:1000]
            start = self._reached.find(b"\0")
            if start + len(line) < len(self._reached):
                self._reached[start : start + len(line)] = line
            raise PermissionError(what)

    def _wrong(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event == "subprocess.Popen" and arguments[0] == sys.executable:
            return ""  # the runtime's process
        if event == "subprocess.Popen" and arguments[0] == "uname":
            return ""  # by which Python's own platform.platform() asks for the processor
        if event in _NEVER:
            return f"{event} {arguments!r:.200}"
        if event == "open" and isinstance(arguments[0], str | bytes):
            _, mode, flags = arguments
            writes = bool({*"wax+"} & {*(mode or "")} or (flags or 0) & _WRITING)
            place = os.path.realpath(os.fsdecode(arguments[0]))
            return "" if self.may(place, writes) else f"{'writes' if writes else 'opens'} {place!r}"
        if event in _CHANGES:
            places = (_place(arguments[at], arguments[within]) for at, within in _CHANGES[event])
            return next((f"{event} {each!r}" for each in places if not self.may(each, True)), "")
        if event == "exec" and isinstance(arguments[0], types.CodeType):
            place = os.path.abspath(arguments[0].co_filename)
            is_theirs = place.startswith(self.theirs) and os.path.isfile(place)
            return f"runs {place!r}" if is_theirs else ""
        return ""


def _place(place: Any, folder: int) -> str:
    """Return where a file is that is named in an open folder; not where a link leads that is one itself."""
    base = f"/proc/self/fd/{folder}" if folder >= 0 else ""
    before, name = os.path.split(os.path.join(base, os.fsdecode(place)))
    return os.path.join(os.path.realpath(before), name)
