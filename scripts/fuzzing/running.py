"""Run commands as a user does, but in a fork of this process: nothing is imported again.

A command may end with 0, 1 or 2, within its time and memory. It leaves no process, no temporary file, no traceback, and
no change outside what it names.
"""

import contextlib
import ctypes
import functools
import importlib
import os
import pkgutil
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS = 90
MEMORY = 12 << 30  # bytes, of addresses: above what ONNX's own code may take
_NOT_IMPORTED = ("__main__", "worker", "onnx_worker", "guard", "torch_recorder", "from_torch")
_SET_CHILD_SUBREAPER = 36
_MADE = re.compile(
    r"out\.onnx(\.data)?|out\.data|moved\.data|ran\.npz|refs(/.*)?|culprit(/.*)?|state(/.*)?"
    r"|mutant\.\w+(/.*)?|original\.\w+(/.*)?|stdout|stderr|output|out\.onnx\.\w+"
)
_KEPT = re.compile(r"original\.onnx|recorded/.*|weights\.npz|script\.py|recipe\.toml|secret")


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit code (negative for a signal), its output, and what is wrong with that."""

    words: tuple[str, ...]
    code: int
    output: str
    wrong: str = ""


def prepare() -> None:
    """Import what the commands import; take over the processes that they leave."""
    import onnx
    import onnx.reference
    import typer

    import onnxsurgeon_lite
    from onnxsurgeon_lite.cli.app import app

    for module in pkgutil.walk_packages(onnxsurgeon_lite.__path__, "onnxsurgeon_lite."):
        if module.name.rpartition(".")[2] not in _NOT_IMPORTED:
            importlib.import_module(module.name)
    onnx.defs.has("Add")  # which registers every operator
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def run(
    words: list[str],
    folder: Path,
    seconds: float = SECONDS,
    plant: Callable[[], None] | None = None,
) -> Ran:
    """Run a command in a folder, with a fault if one is to be planted; say what is wrong."""
    before = dict(_files(folder))
    output = folder / "output"
    began = time.monotonic()
    process = os.fork()
    if not process:
        _command(words, folder, output, plant)
    code = _waited(process, seconds)
    text = output.read_text(errors="replace")
    in_place = "--in-place" in words or words[:2] in (["data", "gc"], ["data", "move"])
    problems = [
        f"took {time.monotonic() - began:.0f} s" if code is None else "",
        f"ended with {code}" if code not in (None, 0, 1, 2) else "",
        "printed a traceback" if "Traceback (most recent" in text else "",
        "leaves a process" if _left_behind() else "",
        *_changed(before, dict(_files(folder)), in_place),
    ]
    return Ran(tuple(words), -9 if code is None else code, text, "; ".join(filter(None, problems)))


def _command(
    words: list[str], folder: Path, output: Path, plant: Callable[[], None] | None
) -> None:
    """Be the command."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "100", "NO_COLOR": "1"}
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")
        )
        sys.argv = ["onnxdbg", *words]
        from onnxsurgeon_lite.cli import main

        if plant:
            plant()
        main()
    finally:
        os._exit(code)


def _waited(process: int, seconds: float) -> int | None:
    """Return the exit code; None for a process that did not end in time."""
    watched = os.pidfd_open(process)
    try:
        ended, _, _ = select.select([watched], [], [], seconds)
    finally:
        os.close(watched)
    if not ended:
        os.killpg(process, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return code if ended else None


def _left_behind() -> bool:
    """End the processes that outlive a command; return whether one does, after some time to end."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.005)
        except ChildProcessError:
            return False
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
        os.waitpid(int(child), 0)
    return True


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "output":
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _changed(before: dict[str, bytes], after: dict[str, bytes], in_place: bool) -> Iterator[str]:
    """Say which files may not be there, or not be changed."""
    for name in after.keys() - before.keys():
        if name.endswith(".writing") or not _MADE.fullmatch(name):
            yield f"writes {name!r}"
    for name, held in before.items():
        may = in_place and name in ("mutant.onnx", "moved.data", "weights.data")
        if (
            after.get(name) != held
            and (_KEPT.fullmatch(name) or name.startswith("mutant"))
            and not may
        ):
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
