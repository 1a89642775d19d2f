"""Run commands as a user does, but in forks of this process: nothing is imported again.

A command may end with 0, 1 or 2, within its time and memory. It leaves no process, no temporary file, no traceback, and
no change outside what it names.
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import multiprocessing
import os
import pkgutil
import re
import resource
import runpy
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, ClassVar

SECONDS = 30
MEMORY = 12 << 30  # bytes, of addresses: above what ONNX's own code may take
_NATIVE_SECONDS = 5.0  # instead of 60, so that an endless inference does not hold up the rest
_NOT_IMPORTED = ("__main__", "worker", "host", "guard", "torch_recorder", "from_torch")
_SET_CHILD_SUBREAPER = 36
_MADE = re.compile(
    r"out(\.\d+)?\.onnx(\.data)?|out(\.\d+)?\.(data|html|toml|npy|safetensors|txt)|model\.parts(/.*)?|moved\.data|mutant\.onnx\.sha256|ran\.npz|refs(/.*)?|reduced(/.*|\.journal)?|culprit(/.*)?|state(/.*)?"
    r"|mutant\.\w+(/.*)?|original\.\w+(/.*)?|stdout|stderr|output|out\.onnx\.\w+|map\.json|journal"
)
_KEPT = re.compile(
    r"(original|model)\.onnx|recorded/.*|weights\.npz|script\.py|recipe\.toml|secret"
)
_Stamps = dict[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code (negative for a signal), its output, and what is wrong with that."""

    words: Sequence[str]
    code: int = 0
    output: str = ""
    wrong: str = ""


def prepare() -> None:
    """Import what the commands import; take over the processes that they leave."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnx.reference
    import onnxruntime  # noqa: F401  the runtime's processes are forks, too
    import typer

    import onnxsurgeon_lite
    from onnxsurgeon_lite import limits
    from onnxsurgeon_lite.cli.app import app
    from onnxsurgeon_lite.runtime import child

    for module in pkgutil.walk_packages(onnxsurgeon_lite.__path__, "onnxsurgeon_lite."):
        if module.name.rpartition(".")[2] not in _NOT_IMPORTED:
            importlib.import_module(module.name)
    onnx.defs.has("Add")  # which registers every operator
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)
    limits._SECONDS = _NATIVE_SECONDS
    runpy.run_path = _run_path
    for script in Path(child.__file__).parent.glob("*.py"):
        _code(str(script))
    child.subprocess = types.SimpleNamespace(**{**vars(child.subprocess), "Popen": _Forked})
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def run(
    words: Sequence[str],
    folder: Path,
    mutant: bytes | None = None,
    file: str = "mutant.onnx",
    plant: Callable[[], None] | None = None,
) -> Ran:
    """Run a command in a folder, with a fault if one is to be planted; say what is wrong."""
    runner = Runner(plant)
    (ran,) = runner.run([words], folder, mutant, file)
    runner.close()
    return replace(ran, wrong=_listed(ran.wrong, runner.left))


class Runner:
    """A fork that runs commands one after another, until one ends it; then another takes its place.

    Attributes:
        left: what is wrong with the processes that outlive it; '' for nothing.
    """

    _runners: ClassVar[set[int]] = set()

    def __init__(self, plant: Callable[[], None] | None = None) -> None:
        self.left = ""
        self._plant = plant
        self._process = 0

    def run(
        self,
        commands: Sequence[Sequence[str]],
        folder: Path,
        mutant: bytes | None = None,
        file: str = "mutant.onnx",
    ) -> Iterator[Ran]:
        """Run commands, each on the mutant, beside what is in the folder now; say what is wrong."""
        beside = {"output", *os.listdir(folder)}
        todo = list(commands)
        while todo:
            if not self._process:
                self._start()
            self._connection.send((folder, todo, mutant, file, beside))
            for ran in self._answers(folder, todo):
                yield ran
                todo = todo[1:]
        if mutant is not None:
            _reset(folder, beside)

    def close(self) -> None:
        """Let the fork end."""
        if self._process:
            self._end()

    def _start(self) -> None:
        self._connection, there = multiprocessing.Pipe()
        self._process = os.fork()
        if not self._process:
            self._connection.close()
            _serve(there, self._plant)
        self._runners.add(self._process)
        there.close()

    def _answers(self, folder: Path, commands: list[Sequence[str]]) -> Iterator[Ran]:
        """Yield what commands did until one ends the fork."""
        for words in commands:
            code, wrong = 0, ""
            try:
                if self._connection.poll(SECONDS):
                    yield self._connection.recv()
                    continue
                os.killpg(self._process, signal.SIGKILL)
                code, wrong = self._end(), f"took {SECONDS} s"
            except (EOFError, ConnectionResetError):
                code = self._end()
                wrong = f"ended with {code}"
            yield Ran(words, code, _output(folder), wrong)
            return

    def _end(self) -> int:
        """Let the fork end; return its exit code."""
        self._connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])
        self._runners.remove(self._process)
        self._process = 0
        if _left_behind(self._runners):
            self.left = "leaves a process"
        return code


def _listed(*problems: str) -> str:
    return "; ".join(filter(None, problems))


def _output(folder: Path) -> str:
    return (folder / "output").read_text(errors="replace")


def _serve(connection: Connection, plant: Callable[[], None] | None) -> None:
    """Be the fork."""
    shown = os.dup(2)
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ |= {"XDG_STATE_HOME": "state", "COLUMNS": "100", "NO_COLOR": "1"}
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        if plant:
            plant()
        while True:
            folder, commands, mutant, file, beside = connection.recv()
            os.chdir(folder)
            for words in commands:
                if mutant is not None:
                    _reset(folder, beside)
                    (folder / file).write_bytes(mutant)
                connection.send(_checked(words, folder))
    except EOFError:
        os._exit(0)
    except BaseException:  # noqa: BLE001  it is the fuzzer's own
        os.dup2(shown, 2)
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(70)


def _reset(folder: Path, beside: set[str]) -> None:
    """Remove what the command before it made."""
    for name in {*os.listdir(folder)} - beside:
        remove(folder / name)


def _checked(words: Sequence[str], folder: Path) -> Ran:
    """Run a command; say what is wrong."""
    before = dict(_files(folder))
    code = command(words)
    text = _output(folder)
    in_place = "--in-place" in words or tuple(words[:2]) in (("data", "gc"), ("data", "move"))
    wrong = _listed(
        f"ended with {code}" if code not in (0, 1, 2) else "",
        "printed a traceback" if "Traceback (most recent" in text else "",
        *_changed(before, dict(_files(folder)), in_place),
    )
    return Ran(words, code, text, wrong)


def command(words: Sequence[str], begin: Callable[[], None] | None = None) -> int:
    """Be a command; return its exit code.

    Args:
        begin: is called before it, when what it prints is in the file `output`.
    """
    from onnxsurgeon_lite.cli import exit_code

    written = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(written, number)
    os.close(written)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")
    )
    sys.argv = ["onnxdbg", *words]
    if begin:
        begin()
    try:
        return exit_code()
    finally:
        gc.collect()  # ends the processes of what nothing holds any more
        gc.freeze()  # what is left needs no look after the next command


class _Forked:
    """The runtime's process as a fork, which has onnxruntime imported; for `Child`, it is a `subprocess.Popen`."""

    returncode: int | None = None
    stdin: IO[bytes] | None = None

    def __init__(
        self, command: list[str], pass_fds: list[int], stdout: IO[bytes], **_: object
    ) -> None:
        self.pid = os.fork()
        if not self.pid:
            _work(command[2:], *pass_fds, stdout)
        # before it leads a session, killing that does nothing
        while os.getpgid(self.pid) != self.pid:
            time.sleep(0)

    def send_signal(self, number: int) -> None:
        """As that of `Popen`."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """As that of `Popen`."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """As that of `Popen`."""
        if self.returncode is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # a signal came before it was known that it ended
                ended, status = self.pid, 0
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        """As that of `Popen`, but return None after the timeout."""
        if self.poll() is None:
            watched = os.pidfd_open(self.pid)
            select.select([watched], [], [], timeout)
            os.close(watched)
        return self.poll()


def _work(arguments: list[str], connection: int, output: IO[bytes]) -> None:
    """Be the runtime's process."""
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for standard in (1, 2):
            os.dup2(output.fileno(), standard)
        os.closerange(3, connection)
        os.closerange(connection + 1, 1 << 12)
        sys.argv = arguments
        _run_path(arguments[0], "__main__")
    finally:
        os._exit(1)


def _run_path(path: str, run_name: str = "") -> dict[str, object]:
    """As that of `runpy`, but compile once."""
    names: dict[str, object] = {"__name__": run_name, "__file__": path}
    exec(_code(path), names)
    return names


@functools.cache
def _code(path: str) -> types.CodeType:
    return compile(Path(path).read_bytes(), path, "exec")


def lives(process: int) -> bool:
    """Return whether a child goes on; one that ended is still waited for."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def awaited(process: int, watched: int, seconds: float) -> int:
    """Return the exit code of a child, as `subprocess` has it; end one that takes too long."""
    if not select.select([watched], [], [], seconds)[0]:
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def left_behind() -> str:
    """Say whether a command left a process."""
    return "a process" if _left_behind(set()) else ""


def _left_behind(known: set[int]) -> bool:
    """End the processes that outlive a command; return whether one does, after some time to end."""
    deadline = time.monotonic() + 5
    while left := _children() - known:
        for child in left:
            os.waitpid(child, os.WNOHANG)
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    for child in left:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return bool(left)


def _children() -> set[int]:
    return {*map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())}


def _files(folder: Path) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield each file with what tells whether it is another, or is changed."""
    for within, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(within, name)
            if name != "output" and os.path.isfile(path) and not os.path.islink(path):
                found = os.stat(path)
                yield (
                    os.path.relpath(path, folder),
                    (found.st_ino, found.st_size, found.st_mtime_ns),
                )


def _changed(before: _Stamps, after: _Stamps, in_place: bool) -> Iterator[str]:
    """Say which files may not be there, or not be changed."""
    for name in after.keys() - before.keys():
        if name.endswith(".writing") or not _MADE.fullmatch(name):
            yield f"writes {name!r}"
    for name, held in before.items():
        may = in_place and name in ("mutant.onnx", "moved.data", "weights.data")
        kept = _KEPT.fullmatch(name) or name.startswith("mutant")
        if kept and not may and after.get(name) != held:
            yield f"changes {name!r}"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder of its own, in memory if there is room."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=shared if shared.is_dir() else None
    ) as name:
        yield Path(name)


def emptied(folder: Path) -> None:
    """Remove all that a folder holds."""
    for path in folder.iterdir():
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
