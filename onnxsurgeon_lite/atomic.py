"""Write whole files or none: beside the target, flushed to disk, then renamed into place."""

import contextlib
import errno
import io
import os
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxsurgeon_lite.errors import OutputExistsError, WriteError
from onnxsurgeon_lite.names import command

if TYPE_CHECKING:
    from typing_extensions import Buffer


WATCHED: ContextVar[list["Staging"] | None] = ContextVar("watched", default=None)
"""Where files that are being written enlist, so that somebody can show how far they are."""


class Staging:
    """Files being written; on `commit` all of them appear under their names, otherwise none.

    Attributes:
        dry_run: write nothing, only count the bytes.
        sizes: target -> its bytes.

    Raises:
        WriteError: the folder is missing or read-only, or the disk is full.
    """

    def __init__(self, dry_run: bool = False) -> None:
        self.dry_run = dry_run
        self.sizes: dict[Path, int] = {}
        self._waiting: list[tuple[Path, Path]] = []

    def __enter__(self) -> "Staging":
        watched = WATCHED.get()
        if watched is not None:
            watched.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        for temporary, _ in self._waiting:
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def open(self, named: Path, *, parents: bool = False) -> Iterator[BinaryIO]:
        """Open a temporary file that becomes `named` on `commit`.

        Args:
            parents: create the parent folders.
        """
        target = Path(os.path.realpath(named))
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
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}.")
            self._waiting.append((Path(name), target))
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                self.sizes[named] = os.fstat(file.fileno()).st_size
            os.chmod(name, _mode(target))

    def written(self) -> int:
        """Return the bytes that wait for `commit`."""
        return sum(file.stat().st_size for file, _ in list(self._waiting) if file.exists())

    def commit(self) -> None:
        """Rename every file into place, in the order in which they were opened."""
        while self._waiting:
            temporary, target = self._waiting[0]
            with _write_errors(target):
                temporary.replace(target)
            self._waiting.pop(0)


def require_free(path: Path, force: bool = False) -> None:
    """Raise `OutputExistsError` if a file or a filled folder would be overwritten."""
    if not force and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
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
    with Staging() as staging:
        with staging.open(target) as file:
            file.write(text.encode())
        staging.commit()


@contextlib.contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    """Raise an `OSError` as a `WriteError` that names the target."""
    try:
        yield
    except OSError as error:
        hint = "nothing was changed; write elsewhere with -o"
        if not target.parent.is_dir():
            hint = f"create the folder first: {command('mkdir', '-p', str(target.parent))}"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            hint = "nothing was changed; free some space, or write elsewhere with -o"
        raise WriteError(f"cannot write {str(target)!r}: {error.strerror}", hint) from error


def _mode(target: Path) -> int:
    """Return the permissions of the target, or those of a new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
