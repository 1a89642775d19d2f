"""Write whole files or none: beside the target, flushed to disk, then renamed into place."""

import contextlib
import ctypes
import errno
import functools
import io
import os
import re
import shutil
import socket
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from onnxsurgeon_lite.errors import OutputExistsError, WriteError
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.remote import Remote, placed
from onnxsurgeon_lite.system import IS_POSIX

if TYPE_CHECKING:
    from typing_extensions import Buffer

Head = Callable[[BinaryIO, Mapping[Path, Path]], None]
"""Writes the file that refers to others; the mapping says under which other path some of them are at that time."""

WRITING = ".writing"
"""The suffix of temporary files."""

# `.NAME.MACHINE-PROCESS-RANDOM`: who wrote it, so that a later run knows whether it is still needed
_LEFTOVER = re.compile(r"\..*\.(?P<machine>[0-9a-f]+)-(?P<process>\d+)-.*", re.DOTALL)
_BLOCK = 1 << 20  # bytes
_AT_CWD, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


WATCHED: ContextVar[list["Staging"] | None] = ContextVar("watched", default=None)
"""Where files that are being written enlist, so that somebody can show how far they are."""


def on_disk(file: IO[bytes]) -> None:
    """Have the system write what a file was given."""
    file.flush()
    os.fsync(file.fileno())


class Staging:
    """Files being written; on `commit` or `finish` all of them appear under their names, otherwise none.

    Attributes:
        dry_run: write nothing, only count the bytes.
        sizes: target -> its bytes.
        waiting: temporary files, each with the file that it becomes.

    Raises:
        WriteError: the folder is missing or read-only, or the disk is full.
    """

    def __init__(self, dry_run: bool = False) -> None:
        self.dry_run = dry_run
        self.sizes = dict[Path, int]()
        self.waiting = list[tuple[Path, Path]]()

    def __enter__(self) -> "Staging":
        watched = WATCHED.get()
        if watched is not None:
            watched.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        for temporary, _ in self.waiting:
            temporary.unlink(missing_ok=True)  # renamed files are gone already

    @contextlib.contextmanager
    def open(self, named: Path, *, parents: bool = False) -> Iterator[BinaryIO]:
        """Open a temporary file that becomes `named` on `commit`.

        Args:
            parents: create the parent folders.
        """
        target = real_place(named)
        with _write_errors(target):
            if target.exists() and not target.is_file():
                raise WriteError(f"{str(target)!r} is not a regular file", "name a file with -o")
            if self.dry_run:
                counter = ByteCounter()
                yield counter
                self.sizes[named] = counter.tell()
                return
            if parents:
                target.parent.mkdir(parents=True, exist_ok=True)
            # in the same folder: a rename is atomic within a file system only
            descriptor, name = tempfile.mkstemp(WRITING, temporary_prefix(target), target.parent)
            self.waiting.append((Path(name), target))
            with os.fdopen(descriptor, "wb") as file:
                yield file
                on_disk(file)  # on disk before it gets its name
                self.sizes[named] = os.fstat(file.fileno()).st_size
            os.chmod(name, _mode(target))

    @contextlib.contextmanager
    def open_unseen(self, named: Path, shown: Path) -> Iterator[BinaryIO]:
        """Like `open`, but the file has no name before it is complete: a killed process leaves nothing.

        The folder need not exist yet; it must when the file is complete.

        Args:
            shown: what errors call it.
        """
        target = real_place(named)
        # a folder that does not exist yet appears beside
        folder = target.parent if target.parent.is_dir() else target.parent.parent
        with _write_errors(shown), tempfile.TemporaryFile(dir=folder) as file:
            yield file
            on_disk(file)
            self.waiting.append((_appeared(file, target), target))

    def written(self) -> int:
        """Return the bytes that wait for `commit`."""
        return sum(file.stat().st_size for file, _ in list(self.waiting) if file.exists())

    def commit(self) -> None:
        """Rename every file into place, in the order in which they were opened."""
        if self.waiting:
            with held(self.waiting[-1][1]):
                self._rename({})

    def finish(self, named: Path, write: Head, check: Callable[[], None]) -> dict[Path, Path]:
        """Write the file that refers to the others, and rename all; at every moment it refers to complete files.

        A file whose name is taken first appears under a fresh name, to which `write` refers; then it is copied to its
        own name too, `named` is replaced by one that refers to that, and the fresh name is removed.

        Args:
            check: raises if the last must not be replaced; nobody else writes into its folder meanwhile.

        Returns:
            The files that keep their fresh names, where there is no room for the copies: intended path -> actual path.
        """
        # data files that exist: until the end, the old model refers to them
        taken = {t: _fresh(t) for _, t in self.waiting if t.exists()}
        if taken:
            with self.open(named) as file:
                write(file, taken)
        with self.open(named) as file:
            write(file, {})
        if self.dry_run:
            return {}
        with held(self.waiting[-1][1]):
            check()
            # the version of the head that refers to the final names waits until these exist
            last = self.waiting.pop() if taken else None
            try:
                self._rename(taken)
                return {} if last is None else _settle(taken, *last)
            finally:
                if last is not None:
                    last[0].unlink(missing_ok=True)

    def _rename(self, instead: Mapping[Path, Path]) -> None:
        """Rename the files into place; unless the last is renamed, remove those that did not exist before."""
        places = [(t, instead.get(target, target)) for t, target in self.waiting]
        new = [(temporary, place) for temporary, place in places if not place.exists()]
        try:
            for temporary, place in places:
                with _write_errors(place):
                    temporary.replace(place)
        finally:  # the files say what was done: an interruption can come between any two lines
            if places[-1][0].exists():  # the last was not renamed: take back what is new
                for temporary, place in new:
                    if not temporary.exists():
                        place.unlink(missing_ok=True)


def _appeared(file: IO[bytes], target: Path) -> Path:
    """Give a file without a name a temporary one beside the target, else a copy of it."""
    name = temporary_place(target)
    try:
        # Linux can give the open file a name; else it is copied
        os.link(f"/proc/self/fd/{file.fileno()}", name)
    except OSError:
        file.seek(0)
        try:
            with name.open("xb") as copy:
                shutil.copyfileobj(file, copy)
                on_disk(copy)
        except BaseException:
            name.unlink(missing_ok=True)
            raise
    name.chmod(_mode(target))
    return name


def _settle(taken: Mapping[Path, Path], head: Path, target: Path) -> dict[Path, Path]:
    """Copy the files to their own names, then rename the file that refers to those; on failure keep the fresh names.

    A link would do for us, but ONNX refuses data that has two names, and a process that is killed leaves both.
    """
    second = head.with_suffix(".second.writing")
    try:
        for place, fresh in taken.items():
            _copy(fresh, second)
            second.replace(place)
        head.replace(target)
    except OSError:
        second.unlink(missing_ok=True)
        return dict(taken)
    for fresh in taken.values():
        with contextlib.suppress(OSError):
            fresh.unlink()
    return {}


def real_place(named: Path) -> Path:
    """Return where something is written: a link may lead to another name in its folder, no further."""
    target = Path(os.path.realpath(named))
    if named.is_symlink() and not target.is_relative_to(os.path.realpath(named.parent)):
        raise WriteError(
            f"{str(named)!r} is a link out of its folder, to {str(target)!r}: refused",
            f"name that file itself, or remove the link: {command('rm', str(named))}",
        )
    return target


def _copy(source: Path, target: Path) -> None:
    """Copy a file; blocks of zeros take no room."""
    with source.open("rb") as data, target.open("xb") as copy:
        while block := data.read(_BLOCK):
            if block.strip(b"\0"):
                copy.write(block)
            else:
                copy.seek(len(block), os.SEEK_CUR)  # a hole
        copy.truncate()
        on_disk(copy)
    target.chmod(_mode(source))


class NewFolder:
    """A folder being filled; on `commit` it replaces the target as a whole, otherwise nothing changes.

    Args:
        named: the target.
        own: what the relative paths of files in such a folder look like; a folder with any other file is not replaced.

    Attributes:
        path: the temporary folder to fill.

    Raises:
        OutputExistsError: the target holds another file.
        WriteError: the parent is missing or read-only, or a file has this name.
    """

    def __init__(self, named: Path, own: str) -> None:
        self.target = real_place(named)
        for file in self.target.rglob("*") if self.target.is_dir() else ():
            name = file.relative_to(self.target).as_posix()
            if not file.is_dir() and not re.fullmatch(own, name):
                raise OutputExistsError(
                    f"{str(named)!r} holds {name!r}, which would be lost: the folder is replaced as a whole",
                    "choose another -o",
                )
        if self.target.exists() and not self.target.is_dir():
            raise WriteError(
                f"{str(named)!r} already exists and is not a folder", "choose another name"
            )
        with _write_errors(self.target):
            prefix = temporary_prefix(self.target)
            self.path = Path(tempfile.mkdtemp(WRITING, prefix, self.target.parent))
            self.path.chmod(_mode(self.target, 0o777))

    def __enter__(self) -> "NewFolder":
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def commit(self) -> None:
        """Replace the target."""
        with _write_errors(self.target):
            if not self.target.exists():
                self.path.rename(self.target)
            elif not _exchange(self.path, self.target):
                _step_aside(self.target, self.path)


def temporary_place(target: Path) -> Path:
    """Return a name beside a folder for what will be renamed to it; if it is left behind, the next run removes it."""
    return target.with_name(f"{temporary_prefix(target)}{os.urandom(4).hex()}{WRITING}")


def rename_folder(folder: Path, target: Path) -> None:
    """Let a complete folder appear under its name."""
    with _write_errors(target):
        folder.rename(target)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; return whether the system can."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    return rename is not None and rename(_AT_CWD, names[0], _AT_CWD, names[1], _EXCHANGE) == 0


def _step_aside(old: Path, new: Path) -> None:
    """Rename `new` to `old`; the old folder is moved aside first, then removed, or moved back on failure."""
    aside = new.with_suffix(".old")
    old.rename(aside)
    try:
        new.rename(old)
    finally:
        if old.exists():  # the new folder is there
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(old)


def require_free(path: Path, force: bool = False) -> None:
    """Raise `OutputExistsError` if a file or a filled folder would be overwritten."""
    path = placed(path)
    if isinstance(path, Remote) and (force or not path.exists()):
        return
    link = path.is_symlink() and not path.is_dir()  # a link to nothing, or to a file
    if not force and (link or path.is_file() or (path.is_dir() and any(path.glob("*")))):
        raise OutputExistsError(
            f"{str(path)!r} is there already", "name another with -o, or overwrite it with --force"
        )
    if not path.parent.is_dir():
        raise WriteError(
            f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}",
            f"make it first: {command('mkdir', '-p', str(path.parent))}",
        )


class ByteCounter(io.BytesIO):
    """A file that only counts its bytes."""

    count = 0

    def write(self, data: "Buffer") -> int:
        size = memoryview(data).nbytes
        self.count += size
        return size

    def tell(self) -> int:
        return self.count


def write_text(target: Path, text: str) -> None:
    """Write a small text file, whole or not at all."""
    write_bytes(target, text.encode())


def write_bytes(target: Path, *data: bytes) -> None:
    """Write a small file, whole or not at all."""
    with Staging() as staging:
        with staging.open(target) as file:
            file.writelines(data)
        staging.commit()


@contextlib.contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    """Raise an `OSError` as a `WriteError` that names the target."""
    try:
        yield
    except OSError as error:
        hint = "nothing was changed; write elsewhere with -o"
        # the disk, a quota or the file system is full
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "nothing was changed; free some space, or write elsewhere with -o"
        elif not target.parent.is_dir():
            hint = f"create the folder first: {command('mkdir', '-p', str(target.parent))}"
        raise WriteError(f"cannot write {str(target)!r}: {error.strerror}", hint) from error


@contextlib.contextmanager
def held(target: Path) -> Iterator[None]:
    """Make others who write into the folder of a file, or remove from it, wait, if the system has locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl  # not on Windows

            # a lock on the folder itself: no file of ours is left behind
            folder = os.open(target.parent, os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def _fresh(target: Path) -> Path:
    """Return an unused path beside a file."""
    names = (target.with_name(f"{target.stem}.{number}{target.suffix}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


def temporary_prefix(target: Path) -> str:
    """Return the start of a temporary name for a target; it tells which process writes it."""
    _sweep(target.parent, os.getpid())  # once for each folder and process
    return f".{target.name[:40]}.{_machine()}-{os.getpid()}-"


_FOLDERS = set[Path]()


@functools.cache
def _sweep(folder: Path, _process: int) -> None:
    """Remove the files that killed processes of this machine left in a folder; look once in each process."""
    _FOLDERS.add(folder)
    _clear(folder, lambda process: not _runs(process))


def clear_own() -> None:
    """Remove what this process began to write, before it ends by a signal: it may have come between any two lines."""
    for folder in _FOLDERS:
        _clear(folder, os.getpid().__eq__)


def _clear(folder: Path, is_over: Callable[[int], bool]) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            left = _LEFTOVER.fullmatch(name) if name.endswith(WRITING) else None
            if left and left["machine"] == _machine() and is_over(int(left["process"])):
                path = folder / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if not IS_POSIX:  # there `kill` would end it
        return True  # better to leave a file than to remove one that is in use
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no such process
        return False
    except OSError:  # it belongs to another user: it runs
        pass
    return True


@functools.cache
def _machine() -> str:
    """Return what identifies this machine, and the container on it: process ids mean nothing elsewhere."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        # containers have the same process ids for different processes
        name += os.readlink("/proc/self/ns/pid")
    return f"{zlib.crc32(name.encode()):x}"


def _mode(target: Path, new: int = 0o666) -> int:
    """Return the permissions of the target, or those of a new file or folder."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)  # the umask can only be read by setting it
    os.umask(umask)
    return new & ~umask
