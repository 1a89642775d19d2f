"""The files that hold tensors: where a location may point, and whether the file is still the one that was loaded."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from onnxsurgeon_lite.errors import ExternalDataError, SourceChangedError, UsageError

_BLOCK = 1 << 22


@dataclass(frozen=True)
class DataFile:
    """A file that holds payloads, as it was when the model was loaded.

    Attributes:
        path: the real file, absolute.
        location: what the model calls it, relative to the model's folder; None for the model file itself.
        size, mtime_ns, inode: what the file was; another value later means another file.
    """

    path: Path
    location: str | None
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path, location: str | None = None) -> "DataFile":
        """The file as it is now."""
        status = path.stat()
        return cls(path, location, status.st_size, status.st_mtime_ns, status.st_ino)

    def verify(self) -> None:
        """Raise `SourceChangedError` unless the file is still the one that was loaded."""
        try:
            now = DataFile.of(self.path, self.location)
        except OSError as error:
            raise SourceChangedError(
                f"{str(self.path)!r}, which holds the model's tensors, is gone: {error.strerror}",
                "load the model again",
            ) from error
        if now != self:
            raise SourceChangedError(
                f"{str(self.path)!r} changed after the model was loaded, its tensors are not there any more",
                "load the model again",
            )

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`."""
        return b"".join(self.blocks(offset, length, max(length, 1)))

    def blocks(self, offset: int, length: int, block: int = _BLOCK) -> Iterator[bytes]:
        """The bytes in blocks, after making sure that the file is the one that was loaded."""
        self.verify()
        with self.path.open("rb") as file:
            file.seek(offset)
            while length:
                data = file.read(min(block, length))
                if not data:
                    raise SourceChangedError(f"{str(self.path)!r} became shorter while it was read")
                length -= len(data)
                yield data


def locate(folder: Path, location: str, tensor: str) -> Path:
    """The regular file that an external tensor's location means.

    A model is untrusted: its locations stay below its own folder and go through no link.

    Raises:
        ExternalDataError: the location is refused, or there is no such file.
    """
    if not _is_inside(location):
        raise ExternalDataError(
            f"tensor {tensor!r} wants its data from {location!r}, outside the model's folder: refused",
            "put the file into that folder, and save the model again with its data there",
        )
    path = folder
    for part in PurePosixPath(location).parts:
        path = path / part
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise ExternalDataError(
                f"the external data of tensor {tensor!r} is missing: {str(path)!r}",
                f"put {location!r} beside the model, where its weights were when it was saved",
            ) from error
        if stat.S_ISLNK(mode):
            raise ExternalDataError(
                f"the external data of tensor {tensor!r} lies behind a symbolic link, {str(path)!r}: refused",
                "put the file itself there, for example with cp --dereference",
            )
    if not stat.S_ISREG(mode):
        raise ExternalDataError(
            f"the external data of tensor {tensor!r} is no regular file: {str(path)!r}"
        )
    return Path(os.path.abspath(path))


def require_inside(location: str, model: str) -> None:
    """Raise `UsageError` unless a location is a path below the folder of the model file of that name."""
    if not _is_inside(location) or PurePosixPath(location) == PurePosixPath(model):
        raise UsageError(
            f"{location!r} cannot hold the data of {model!r}: it is no other file in its folder or below",
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
        or location.startswith("*/")  # onnxruntime's marker for addresses in memory
    )
