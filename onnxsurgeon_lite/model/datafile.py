"""The files that hold tensors: where a location may point, and whether a file changed since the load."""

import contextlib
import errno
import functools
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from onnxsurgeon_lite.errors import ExternalDataError, SourceChangedError, UsageError
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.remote import Remote
from onnxsurgeon_lite.system import SEEK_DATA, SEEK_HOLE

BLOCK = 1 << 18
"""Bytes: a larger block has its memory mapped anew each time."""

_MOST_KEPT = 1 << 20  # bytes of a block of zeros that is made once
_SMALL = 1 << 16  # bytes up to which a file's content tells its version too


@dataclass(frozen=True)
class DataFile:
    """A file that holds tensor payloads, as it was when the model was loaded.

    Attributes:
        path: the real file, absolute.
        location: its name in the model, relative to the model's folder; None for the model file itself.
        size, mtime_ns, inode, digest: identify the file's version: another value later means that the file changed.
            The digest is of a small file's content: it can change within one tick of the clock.
    """

    path: Path
    location: str | None
    size: int
    mtime_ns: int
    inode: int
    digest: int = 0

    @property
    def key(self) -> str:
        """What a `Model` calls the file: its path, as text that a message can hold whatever bytes the path has."""
        return str(self.path).encode(errors="backslashreplace").decode()

    @classmethod
    def of(cls, path: Path, location: str | None = None) -> "DataFile":
        """Return the file as it is now."""
        status = path.stat()
        # a large file's time and size tell enough
        is_small = status.st_size <= _SMALL and stat.S_ISREG(status.st_mode)
        is_small = is_small and not isinstance(path, Remote)  # whose ETag tells
        digest = zlib.crc32(path.read_bytes()) if is_small else 0
        return cls(path, location, status.st_size, status.st_mtime_ns, status.st_ino, digest)

    @classmethod
    def at(cls, path: Path, location: str) -> "DataFile":
        """Return the file as it is now; a model whose file is not there has its structure all the same."""
        there = path.exists() if isinstance(path, Remote) else os.path.lexists(path)
        return cls.of(path, location) if there else cls(path, location, -1, 0, 0)

    @property
    def is_missing(self) -> bool:
        """Whether the file was not there when the model was loaded."""
        return self.size < 0

    @property
    def is_verbatim(self) -> bool:
        """Whether its bytes are what is read: they may be copied in the kernel, or mapped by the runtime."""
        return not isinstance(self.path, Remote)

    def verify(self) -> None:
        """Raise `SourceChangedError` if the file changed since the load, `ExternalDataError` if it was not there."""
        if self.is_missing:
            raise missing_data(self.path, str(self.location))
        try:
            now = DataFile.of(self.path, self.location)
        except OSError as error:
            raise SourceChangedError(
                f"{str(self.path)!r}, which holds the model's tensors, is gone: {error.strerror}",
                "load the model again",
            ) from error
        if now != self:
            raise SourceChangedError(
                f"{str(self.path)!r} changed after the model was loaded; its tensors are lost",
                "load the model again",
            )

    def start(self, length: int) -> bytes:
        """Read the first bytes, at most `length`."""
        return self.read(0, min(length, self.size))

    def read(self, offset: int, length: int) -> bytes:
        """Read `length` bytes from `offset`."""
        return b"".join(self.blocks(offset, length, max(length, 1)))

    def blocks(self, offset: int, length: int, block: int = BLOCK) -> Iterator[bytes]:
        """Read the bytes in blocks, after `verify`; it takes a request where the file is remote, and is done once.

        Blocks without a byte in the file, because it is sparse, are not read.
        """
        if self.is_verbatim:
            self.verify()
        end, data = offset + length, offset
        with self.path.open("rb", buffering=0) as file:
            while offset < end:
                size = min(block, end - offset)
                # the next place with data is known until it is reached
                if self.is_verbatim and data <= offset:
                    data = _data_from(file, offset)
                if offset + size <= data:  # a hole: zeros, without reading
                    read = zeros(size)
                else:
                    file.seek(offset)
                    read = file.read(size)
                if not read:
                    raise SourceChangedError(f"{str(self.path)!r} became shorter during the read")
                offset += len(read)
                yield read
        if not self.is_verbatim:
            self.verify()

    def extents(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, stop, whether the file has no bytes there) of the parts of a range."""
        if not self.is_verbatim:
            yield start, end, False
            return
        with self.path.open("rb", buffering=0) as file:
            while start < end:
                data = min(_data_from(file, start), end)
                if start < data:
                    yield start, data, True
                start = data
                with contextlib.suppress(OSError):  # the file system does not know: all is data
                    start = min(file.seek(data, SEEK_HOLE), end)
                if start == data:  # no hole further on: data up to the end
                    start = end
                if data < start:
                    yield data, start, False


def zeros(size: int) -> bytes:
    """Return a block of zeros; the same object for the same size of a usual block."""
    return _zeros(size) if size <= _MOST_KEPT else bytes(size)


_zeros = functools.lru_cache(4)(bytes)


def _data_from(file: IO[bytes], offset: int) -> int:
    """Return the first place from `offset` on that has bytes in a file, its end if none has."""
    try:
        return file.seek(offset, SEEK_DATA)
    except OSError as error:  # ENXIO: there are none; else the file system does not know
        return file.seek(0, os.SEEK_END) if error.errno == errno.ENXIO else offset


def missing_data(path: Path, location: str, tensor: str = "") -> ExternalDataError:
    """Return the error for data that is not where a model says."""
    of = f" of tensor {tensor!r}" if tensor else ""
    return ExternalDataError(
        f"the external data{of} is missing: {str(path)!r}",
        f"put {location!r} beside the model, where its weights were when it was saved",
    )


def locate(folder: Path, location: str, tensor: str = "") -> Path:
    """Return the regular file at an external tensor's location, or the path where it is missing.

    A model is untrusted: its locations must stay below its own folder and may not pass a link, nor be another name of a
    file elsewhere.

    Raises:
        ExternalDataError: the location is refused, or no regular file.
    """
    data = f"the external data of tensor {tensor!r}" if tensor else "external data"
    if not _is_inside(location):
        raise ExternalDataError(
            f"tensor {tensor!r} has its data at {location!r}, outside the model's folder: refused",
            "move the file into that folder, and save the model again with its data there",
        )
    if isinstance(folder, Remote):
        return folder / location
    path = folder
    for part in PurePosixPath(location).parts:
        path = path / part
        try:
            status = path.lstat()
        except FileNotFoundError:
            return Path(os.path.abspath(folder / location))
        except OSError as error:
            raise missing_data(path, location, tensor) from error
        if stat.S_ISLNK(status.st_mode):
            raise ExternalDataError(
                f"{data} is behind a symbolic link, {str(path)!r}: refused",
                "put the file itself there, for example with cp --dereference",
            )
    if not stat.S_ISREG(status.st_mode):
        raise ExternalDataError(f"{data} is not a regular file: {str(path)!r}")
    name, own = str(path), f"{path}.own"
    if status.st_nlink > 1 and not _is_own(path, status):
        raise ExternalDataError(
            f"{data} is a hard link to a file elsewhere, {str(path)!r}: refused",
            f"copy it: {command('cp', name, own)} && {command('mv', own, name)}",
        )
    return Path(os.path.abspath(path))


def _is_own(path: Path, status: os.stat_result) -> bool:
    """Return whether all names of a file are in its folder: a file that is being replaced has two for a moment."""
    with os.scandir(path.parent) as entries:
        names = [each for each in entries if each.inode() == status.st_ino]
    return len(names) == status.st_nlink


def require_inside(location: str, model: str) -> None:
    """Raise `UsageError` unless the location is a path below the folder of the model file with this name."""
    if not _is_inside(location) or PurePosixPath(location) == PurePosixPath(model):
        raise UsageError(
            f"{location!r} cannot hold the data of {model!r}: it must be another file in its folder or below",
            "give a path relative to the model, such as weights/model.data",
        )


def _is_inside(location: str) -> bool:
    parts = PurePosixPath(location).parts
    return not (
        not parts
        or "\0" in location
        or ".." in parts
        or PurePosixPath(location).is_absolute()
        # a path with a drive is relative to Posix, and absolute to Windows
        or PureWindowsPath(location).drive
        or location.startswith("*/")  # onnxruntime's marker for memory addresses
    )
