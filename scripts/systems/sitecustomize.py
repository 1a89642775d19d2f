"""Let the package see another system than the one it runs on: SIMULATED_SYSTEM is macos or windows.

Python imports this file at the start of every process that has its folder in PYTHONPATH, also of the processes that
the package starts. What the other system lacks is hidden from files of the package alone: tests, Python's own library
and other packages see the real system. Files with names that differ in case alone are one file there, and Windows
refuses to rename or remove a file that is open, and links to most users; here these raise an error where the package
does it.
"""

import builtins
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

SYSTEM = os.environ.get("SIMULATED_SYSTEM", "")

_LINUX_ALONE = {
    "os": "copy_file_range eventfd fdatasync getrandom getxattr listxattr memfd_create pidfd_open pipe2 posix_fadvise"
    " posix_fallocate removexattr sched_getaffinity sched_setaffinity setxattr splice O_PATH O_TMPFILE",
    "select": "epoll",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo",
    "resource": "prlimit",
}
_POSIX_ALONE = {
    "os": "chown closerange_ fchmod fchown fork forkpty getegid geteuid getgid getloadavg getpgid getpgrp getuid"
    " initgroups killpg lchown lockf mkfifo mknod nice openpty pathconf posix_spawn pread preadv pwrite pwritev"
    " register_at_fork sendfile setpgid setsid statvfs sync sysconf wait wait4 waitid WNOHANG O_CLOEXEC O_DIRECTORY"
    " O_NOFOLLOW O_NONBLOCK O_SYNC SEEK_DATA SEEK_HOLE",
    "select": "poll kqueue",
    "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 ITIMER_REAL alarm getitimer pause"
    " pthread_kill pthread_sigmask setitimer sigpending sigwait siginterrupt",
    "socket": "AF_UNIX send_fds recv_fds",
    "time": "clock_gettime",
}
_POSIX_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
_ABSENT_FOLDERS = ("/proc/", "/dev/")


def _package() -> str:
    spec = find_spec("onnxsurgeon_lite")
    return os.path.join(os.path.dirname(spec.origin), "") if spec and spec.origin else "\0"


_PACKAGE = _package()


class Seen(ModuleType):
    """A module as the package sees it on the other system."""

    def __init__(self, real: ModuleType, hidden: str, changed: dict[str, object]) -> None:
        super().__init__(real.__name__)
        hide = frozenset(hidden.split())
        object.__setattr__(self, "_seen", (real, hide, changed))

    def __getattribute__(self, name: str) -> object:
        real, hidden, changed = object.__getattribute__(self, "_seen")
        if name == "__dict__":
            return {key: each for key, each in vars(real).items() if key not in hidden} | changed
        if name in changed:
            return changed[name]
        if name in hidden:
            raise AttributeError(f"module {real.__name__!r} has no attribute {name!r} on {SYSTEM}")
        return getattr(real, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(object.__getattribute__(self, "_seen")[0], name, value)

    def __dir__(self) -> list[str]:
        real, hidden, _ = object.__getattribute__(self, "_seen")
        return [name for name in dir(real) if name not in hidden]


def _of_package(depth: int) -> bool:
    """Return whether the package calls, by at most `depth` frames of Python's own library."""
    frame = sys._getframe(2)
    for _ in range(depth):
        if frame is None:
            return False
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _absent(path: object) -> bool:
    try:
        named = os.fspath(path)
    except TypeError:
        return False
    return isinstance(named, str) and named.startswith(_ABSENT_FOLDERS) and named != os.devnull


def _refusing_absent_folders(real):
    def call(path, *arguments, **options):
        if _absent(path) and _of_package(3):
            raise FileNotFoundError(2, f"no such folder on {SYSTEM}", path)
        return real(path, *arguments, **options)

    return call


def _other_case(path: str) -> str | None:
    """Return the name that is there already and differs in case alone."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        names = _real["listdir"](folder)
    except OSError:
        return None
    return next((each for each in names if each != name and each.lower() == name.lower()), None)


def _open_here(path: str) -> bool:
    """Return whether this process has a file open."""
    try:
        wanted = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    for number in _real["listdir"]("/proc/self/fd"):
        try:
            held = os.fstat(int(number))
        except OSError:
            continue
        if (held.st_dev, held.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def _moving(real):
    def call(source, target, *arguments, **options):
        if _of_package(4):
            there = _other_case(os.fspath(target))
            if there is not None and there != os.path.basename(os.fspath(source)):
                raise OSError(17, f"{there!r} has this name on {SYSTEM}, in another case", target)
            if SYSTEM == "windows" and (_open_here(source) or _open_here(target)):
                raise PermissionError(13, "the file is open: refused on windows", source)
        return real(source, target, *arguments, **options)

    return call


def _removing(real):
    def call(path, *arguments, **options):
        if SYSTEM == "windows" and _of_package(4) and _open_here(path):
            raise PermissionError(13, "the file is open: refused on windows", path)
        return real(path, *arguments, **options)

    return call


def _linking(real):
    def call(*arguments, **options):
        if SYSTEM == "windows" and _of_package(4):
            raise OSError(22, "a required privilege is not held: few users of windows have it")
        return real(*arguments, **options)

    return call


class _Popen(subprocess.Popen):
    """What Windows can start."""

    def __init__(self, *arguments, **options):
        if options.get("preexec_fn") or options.get("pass_fds"):
            raise ValueError("preexec_fn and pass_fds are not supported on Windows platforms")
        options.pop("start_new_session", None)  # it does nothing there
        super().__init__(*arguments, **options)

    def send_signal(self, number):
        if number not in (signal.SIGTERM, signal.SIGKILL):  # there `kill` is `terminate`
            raise ValueError(f"Unsupported signal: {number}")
        super().send_signal(number)


def _simulate() -> None:
    hidden = {name: words for name, words in _LINUX_ALONE.items()}
    changed: dict[str, dict[str, object]] = {"sys": {"platform": "darwin"}}
    if SYSTEM == "windows":
        for name, words in _POSIX_ALONE.items():
            hidden[name] = f"{hidden.get(name, '')} {words}"
        changed["sys"] = {"platform": "win32"}
        changed["subprocess"] = {"Popen": _Popen, "CREATE_NEW_PROCESS_GROUP": 0}
        changed["os"] = {"name": "nt"}
    changed.setdefault("os", {})["link"] = _refusing_absent_folders(os.link)
    changed["os"]["readlink"] = _refusing_absent_folders(os.readlink)
    seen: dict[str, Seen] = {}
    real_import = builtins.__import__

    def import_(name, globals=None, locals=None, fromlist=(), level=0):  # noqa: A002
        module = real_import(name, globals, locals, fromlist, level)
        if level or not (globals or {}).get("__file__", "").startswith(_PACKAGE):
            return module
        first = name.partition(".")[0]
        if SYSTEM == "windows" and first in _POSIX_MODULES:
            raise ModuleNotFoundError(f"No module named {first!r}", name=first)
        if module.__name__ not in hidden | changed:
            return module
        if name not in seen:
            seen[name] = Seen(module, hidden.get(name, ""), changed.get(name, {}))
        return seen[name]

    builtins.__import__ = import_
    builtins.open = _refusing_absent_folders(builtins.open)
    os.replace, os.rename = _moving(os.replace), _moving(os.rename)
    os.symlink = _linking(os.symlink)
    os.unlink, os.remove = _removing(os.unlink), _removing(os.remove)


_real = {"listdir": os.listdir}
if SYSTEM:
    _simulate()
