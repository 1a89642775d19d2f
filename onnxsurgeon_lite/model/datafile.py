"""The files that hold tensors: where a location may point, and whether a file changed since the load."""

import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnxsurgeon_lite.errors import ExternalDataError, SourceChangedError, UsageError
from onnxsurgeon_lite.remote import Remote

_BLOCK = 1 << 18  # bytes: a larger one has its memory mapped anew each time
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
        is_small = status.st_size <= _SMALL and stat.S_ISREG(status.st_mode)
        is_small = is_small and not isinstance(path, Remote)  # whose ETag tells
        digest = zlib.crc32(path.read_bytes()) if is_small else 0
        return cls(path, location, status.st_size, status.st_mtime_ns, status.st_ino, digest)

    @classmethod
    def missing(cls, path: Path, location: str) -> "DataFile":
        """Return a file that is not there: a model has its structure all the same."""
        return cls(path, location, -1, 0, 0)

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

    def blocks(self, offset: int, length: int, block: int = _BLOCK) -> Iterator[bytes]:
        """Read the bytes in blocks, after `verify`; it takes a request where the file is remote, and is done once."""
        if self.is_verbatim:
            self.verify()
        with self.path.open("rb", buffering=0) as file:
            file.seek(offset)
            while length:
                data = file.read(min(block, length))
                if not data:
                    raise SourceChangedError(f"{str(self.path)!r} became shorter during the read")
                length -= len(data)
                yield data
        if not self.is_verbatim:
            self.verify()


def missing_data(path: Path, location: str, tensor: str = "") -> ExternalDataError:
    """Return the error for data that is not where a model says."""
    of = f" of tensor {tensor!r}" if tensor else ""
    return ExternalDataError(
        f"the external data{of} is missing: {str(path)!r}",
        f"put {location!r} beside the model, where its weights were when it was saved",
    )


def locate(folder: Path, location: str, tensor: str) -> Path:
    """Return the regular file at an external tensor's location, or the path where it is missing.

    A model is untrusted: its locations must stay below its own folder and may not pass a link.

    Raises:
        ExternalDataError: the location is refused, or no regular file.
    """
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
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return Path(os.path.abspath(folder / location))
        except OSError as error:
            raise missing_data(path, location, tensor) from error
        if stat.S_ISLNK(mode):
            raise ExternalDataError(
                f"the external data of tensor {tensor!r} is behind a symbolic link, {str(path)!r}: refused",
                "put the file itself there, for example with cp --dereference",
            )
    if not stat.S_ISREG(mode):
        raise ExternalDataError(
            f"the external data of tensor {tensor!r} is not a regular file: {str(path)!r}"
        )
    return Path(os.path.abspath(path))


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
        or PureWindowsPath(location).drive
        or location.startswith("*/")  # onnxruntime's marker for memory addresses
    )
