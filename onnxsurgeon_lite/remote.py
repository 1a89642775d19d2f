"""Files at URLs (`s3://`, `gs://`, `az://`, `https://`, ...), read by ranges through fsspec; its only importer.

A `Remote` is a path like any other: what opens, measures and lists local files does the same with it.
"""

import contextlib
import errno
import io
import os
import re
import shutil
import stat
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path, PosixPath
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, TypeVar

from onnxsurgeon_lite.errors import SourceChangedError, UsageError
from onnxsurgeon_lite.system import read_at

if TYPE_CHECKING:
    from concurrent.futures import Future

    from fsspec import AbstractFileSystem
    from typing_extensions import Buffer

R = TypeVar("R")
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/+(?=[^/])")  # pathlib makes one slash of two
_TRIES = 5
_PAUSE = 0.2  # seconds before the second try, twice as many before each further one
_LEAST, _LARGEST = 1 << 12, 1 << 20  # bytes that are read ahead of what is asked for
_LARGEST_PIECE = 4 << 20  # bytes of one request
_LARGEST_COPY, _LARGEST_STRUCTURE = 1 << 29, 1 << 28  # bytes
_SECONDS = 30.0  # that requests may take before something comes
_EARNED = 25_000  # bytes that an answer counts as
_SLOWEST = 50_000  # bytes a second


class _TooSlowError(TimeoutError):
    """A server does not answer in time."""


class _TooMuchError(OSError):
    """A server sends more than it may."""


_FINAL = (
    IsADirectoryError,
    SourceChangedError,
    UsageError,
    _TooSlowError,
    _TooMuchError,
)
WAITING: ContextVar[float | None] = ContextVar("WAITING", default=None)
"""The seconds that a request may take; None for what is usual."""
_VERSION = (
    "ETag",
    "etag",
    "version_id",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "mtime",
    "created",
)


def placed(path: str | os.PathLike[str]) -> Path:
    """Return a path; of a URL one that reads there, unless a local file has this name."""
    text = os.fspath(path)
    # a path of a kind of its own stays that
    if isinstance(path, Path) and type(path) is not PosixPath:
        return path
    return Remote(text) if _URL.match(text) and not os.path.lexists(text) else Path(path)


class Remote(PosixPath):
    """A file or a folder at a URL."""

    @property
    def url(self) -> str:
        """The URL, with the slashes that it was written with."""
        text = super().__str__()
        found = _URL.match(text)
        if found is None:  # a parent of what a store has
            return text
        slashes = "///" if found[1] in ("file", "local") else "//"
        return f"{found[1]}:{slashes}{text[found.end() :]}"

    @property
    def patience(self) -> "_Patience":
        """How long its store may still take."""
        return _patience("/".join(self.url.split("/")[:3]))  # `https://host`

    def __str__(self) -> str:
        return self.url

    __fspath__ = __str__

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002
        """Return size and version: the inode stands for the ETag, or what the store has instead."""
        import hashlib  # slow to import, and nothing else on the way to a model needs it

        info = self._info()
        kind = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        version = repr([str(info[key]) for key in _VERSION if info.get(key)])
        # a hash of the version, so that a change shows as another inode
        inode = int.from_bytes(hashlib.blake2b(version.encode(), digest_size=7).digest(), "big")
        size = info["size"]
        # a server that tells no size: only the whole file shows it
        if size is None and kind == stat.S_IFREG:
            size = os.fstat(self.copied().fileno()).st_size
        numbers = (kind | 0o644, inode, 0, 1, 0, 0, size or 0, 0, 0, 0)
        return os.stat_result(numbers, {"st_mtime_ns": 0})

    lstat = stat  # there are no links

    def exists(self) -> bool:
        """Return whether something is there."""
        return self._mode() > 0

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return stat.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return stat.S_ISDIR(self._mode())

    def _mode(self) -> int:
        """Return what it is, asked once; 0 for nothing."""
        with contextlib.suppress(FileNotFoundError):
            return self.stat().st_mode
        return 0

    def is_symlink(self) -> bool:
        """There are no links."""
        return False

    def samefile(self, other_path: str | os.PathLike[str]) -> bool:
        """Return whether it is the same URL."""
        return self.url == str(other_path)

    def resolve(self, strict: bool = False) -> "Remote":
        """Return the path; `strict`: something is there."""
        if strict:
            self.stat()
        return self

    def absolute(self) -> "Remote":
        """Return the path."""
        return self

    def glob(self, pattern: str) -> "Iterator[Remote]":  # type: ignore[override]
        """Yield what matches a pattern."""
        system, path = self._store()
        scheme = self.url.partition("://")[0]
        found = self.again(lambda: system.glob(f"{path.rstrip('/')}/{pattern}"))
        for name in sorted(map(str, found)):
            yield Remote(name if "://" in name else f"{scheme}://{name.lstrip('/')}")

    def rglob(self, pattern: str) -> "Iterator[Remote]":  # type: ignore[override]
        """Yield what matches a pattern, at any depth."""
        yield from self.glob(pattern)
        yield from self.glob(f"**/{pattern}")

    def open(self, mode: str = "r", buffering: int = -1, *_: object, **__: object) -> IO[Any]:  # type: ignore[override]
        """Open for reading; with `buffering=0` each read moves the bytes that it returns, no more."""
        if mode != "rb":
            raise io.UnsupportedOperation(f"{str(self)!r} is read only")
        raw = RangeFile(self)
        return raw if buffering == 0 else io.BufferedReader(raw, _LEAST)  # type: ignore[return-value]

    def read_bytes(self) -> bytes:
        """Read all."""
        with self.open("rb", 0) as file:
            return bytes(file.read(self.stat().st_size))

    def opened(self) -> IO[bytes]:
        """Open the store's own file, without what it would read ahead."""
        system, path = self._store()
        file: IO[bytes] = system.open(path, "rb", cache_type="none")
        return file

    def upload(self, source: Path) -> None:
        """Write a file, whole or not at all.

        Raises:
            OSError: the store refuses it.
        """
        system, path = self._store()
        self.patience.allow(source.stat().st_size)
        self.again(lambda: system.put_file(str(source), path))

    def _info(self) -> dict[str, Any]:
        system, path = self._store()

        def ask() -> dict[str, Any]:
            system.invalidate_cache()  # otherwise fsspec answers from what it saw before
            info = {"type": "file", "size": None, **system.info(path)}
            if not isinstance(info["size"], int | None):
                raise TypeError(f"its size is {info['size']!r}")
            return info

        return self.again(ask)

    def _store(self) -> "tuple[AbstractFileSystem, str]":
        try:
            from fsspec.core import url_to_fs

            if self.url.startswith("dask:"):
                raise ValueError("that store asks itself, by ever more threads")
            web = _bounded() if self.url.startswith("http") else {}
            system, path = self.patience.answer(partial(url_to_fs, self.url, **web), self.url)
        except ImportError as error:
            raise UsageError(
                f"{self.url!r} needs fsspec and the store's package: {error}",
                "pip install 'onnxsurgeon-lite[remote]'",
            ) from error
        except Exception as error:  # each kind of store has its own
            raise UsageError(
                f"cannot read {self.url!r}: {error}", "is it spelled right?"
            ) from error
        return system, path

    def again(self, ask: Callable[[], R]) -> R:
        """Ask, and once more where a connection breaks."""
        for number in range(_TRIES):
            try:
                return self.patience.answer(ask, self.url)
            except Exception as error:
                told = self._told(error)
                if told is not error or isinstance(error, _FINAL):  # what another try cannot change
                    raise told from error
                if number == _TRIES - 1:
                    raise OSError(errno.EIO, f"{error} ({_TRIES} tries)", self.url) from error
                time.sleep(_PAUSE * 2**number)  # 0.2, 0.4, 0.8, 1.6 seconds
        raise AssertionError("unreachable")

    def _told(self, error: BaseException) -> BaseException:
        """Return the error with the words that those of local files have."""
        if type(error).__name__ == "FileExpired":
            return changed(self)
        for number in (errno.ENOENT, errno.EACCES):
            known = OSError(number, os.strerror(number), self.url)
            if isinstance(error, type(known)):
                return known
        return error

    def copied(self) -> IO[bytes]:
        """Return a copy of the whole file, of a server that has no ranges or tells no size; it is made once."""
        system, path = self._store()
        info = self._info()
        version = repr(info)
        if _COPIES.get(self.url, ("",))[0] != version:  # the same version was copied already
            copy = _Copy(self, info["size"])

            def get() -> None:
                copy.seek(0)  # a try before may have left a part
                copy.truncate()
                system.get_file(path, copy)

            self.again(get)
            _COPIES[self.url] = version, copy
        return _COPIES[self.url][1]


class _Copy(io.FileIO):
    """A file without a name for what a server sends, of the size that it says, or of a bounded one."""

    def __init__(self, remote: Remote, size: int | None) -> None:
        # half of what is free: others need room, too
        room = shutil.disk_usage(tempfile.gettempdir()).free // 2
        self._most = min(_LARGEST_COPY if size is None else size, room)
        self._remote = remote
        self._require(size or 0)
        descriptor, name = tempfile.mkstemp(prefix="onnxdbg-")
        os.unlink(name)  # it goes with the last descriptor
        super().__init__(descriptor, "w+")

    def __del__(self) -> None:
        self.close()

    def _require(self, size: int) -> None:
        if size > self._most:
            text = f"it sends more than {self._most} bytes"
            raise _TooMuchError(errno.EFBIG, text, self._remote.url)

    def write(self, data: "Buffer") -> int:
        size = memoryview(data).nbytes
        self._require(self.tell() + size)
        self._remote.patience.earn(size)
        return super().write(data)


_COPIES: dict[str, tuple[str, IO[bytes]]] = {}


class _Patience:
    """The seconds that all requests to one server may still take: each answer and each byte earns more."""

    def __init__(self) -> None:
        self.allow(0)

    def allow(self, size: int) -> None:
        """Allow the time in which so many bytes are sent."""
        self._left = _SECONDS + size / _SLOWEST

    def earn(self, size: int) -> None:
        """Allow more time, because bytes came."""
        self._left = min(self._left + size / _SLOWEST, _SECONDS)

    def answer(self, ask: Callable[[], R], url: str) -> R:
        """Return what is answered; one that waits for ever is left alone with its thread."""
        from concurrent.futures import Future, wait  # slow to import, and no file asks for it

        answer = Future[R]()
        Thread(target=_settle, args=[answer, ask], daemon=True).start()
        began = now = time.monotonic()
        most = WAITING.get()
        while self._left > 0 and (most is None or now - began < most):
            # in short steps, because bytes that come allow more time meanwhile
            wait([answer], max(0.01, min(1.0, self._left)))
            before, now = now, time.monotonic()
            self._left -= now - before
            if answer.done():
                self.earn(_EARNED)
                return answer.result()
        self._left = 1.0  # the next request to this server gets a second, unless something comes
        raise _TooSlowError(errno.ETIMEDOUT, f"too little came in {now - began:.0f} s", url)


@cache
def _bounded() -> dict[str, object]:
    """Return options for the web: an answer that is read at once may have the bytes of one request, no more."""
    import aiohttp

    class Answer(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            # piece by piece, so that a long answer ends early
            body = bytearray()
            async for piece in self.content.iter_any():
                body += piece
                if len(body) > _LARGEST_PIECE:
                    self.close()
                    raise _TooMuchError(
                        errno.EFBIG,
                        f"it sends more than {_LARGEST_PIECE} bytes at once",
                        str(self.url),
                    )
            self._body = bytes(body)
            return self._body

    return {"client_kwargs": {"response_class": Answer}}


def _settle(answer: "Future[R]", ask: Callable[[], R]) -> None:
    try:
        answer.set_result(ask())
    except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
        answer.set_exception(error)


@cache
def _patience(_store: str) -> _Patience:
    """Return that with one store, `https://host`."""
    return _Patience()


class RangeFile(io.RawIOBase):
    """A file at a URL: only the bytes that are read are fetched, and a broken connection is opened again.

    Raises:
        SourceChangedError: the object is another one by then.
    """

    def __init__(self, remote: Remote) -> None:
        self.name = remote.url
        self._remote, self._at = remote, 0
        status = remote.stat()
        self.size, self._version = status.st_size, status.st_ino
        self._file: IO[bytes] | None = None
        self._broken = False

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position."""
        # from the begin, from here, or from the end
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read what fits."""
        view = memoryview(buffer).cast("B")
        data = self.fetch(self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def fetch(self, start: int, length: int) -> bytes:
        """Return bytes from a place, fewer only at the end."""
        stop, data = min(start + length, self.size), bytearray()
        while start + len(data) < stop:
            first = start + len(data)
            data += self._remote.again(
                partial(self._piece, first, min(first + _LARGEST_PIECE, stop))
            )
            self._remote.patience.earn(start + len(data) - first)
        return bytes(data)

    def close(self) -> None:
        """Close the connection."""
        if self._file is not None:
            self._file.close()
        super().close()

    def _piece(self, start: int, stop: int) -> bytes:
        # taken out while it is used: an error leaves none behind
        file, self._file = self._file or self._opened(), None
        try:
            file.seek(start)
            piece = file.read(stop - start)
        except ValueError:  # the server has no ranges
            file = self._remote.copied()
            piece = read_at(file, stop - start, start)
        if not piece:
            raise ConnectionError(f"{self.name!r} gave no bytes at {start}")
        self._file = file
        return bytes(piece[: stop - start])  # a server may send more than it was asked for

    def _opened(self) -> IO[bytes]:
        # after a break, the object may be another one
        if self._broken and self._remote.stat().st_ino != self._version:
            raise changed(self._remote)
        self._broken = True  # unless it comes back
        return self._remote.opened()


class RangeBuffer:
    """The bytes of a file by their places; what was read once is kept, and more is read ahead where one goes on."""

    def __init__(self, file: RangeFile) -> None:
        self._file = file
        self._starts = list[int]()
        self._windows = list[bytes]()
        self._start, self._window = 0, b""
        self._held = 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return b"".join(self._pieces(*place.indices(self._file.size)[:2]))
        at = place - self._start
        if not 0 <= at < len(self._window):
            at = place - self._find(place, 1)
        return self._window[at]

    def _pieces(self, start: int, stop: int) -> Iterator[bytes]:
        while start < stop:
            begin = self._find(start, stop - start)
            piece = self._window[start - begin : stop - begin]
            start += len(piece)
            yield piece

    def _find(self, place: int, length: int) -> int:
        """Make the window the one that holds a place, read if need be; return where it starts."""
        # the window that starts at the place or before it
        number = bisect_right(self._starts, place)
        before = self._starts[number - 1] + len(self._windows[number - 1]) if number else -1
        if place >= before:
            # reading goes on where that window ends: twice as much ahead each time
            goes_on = place == before
            ahead = min(_LARGEST, 2 * len(self._windows[number - 1])) if goes_on else _LEAST
            # not into the next window
            after = self._starts[number] if number < len(self._starts) else self._file.size
            self._starts.insert(number, place)
            window = self._file.fetch(place, min(max(ahead, length), after - place))
            self._held += len(window)
            if self._held > _LARGEST_STRUCTURE:
                raise _TooMuchError(
                    errno.EFBIG,
                    f"its structure has more than {_LARGEST_STRUCTURE} bytes",
                    self._file.name,
                )
            self._windows.insert(number, window)
            number += 1
        self._start, self._window = self._starts[number - 1], self._windows[number - 1]
        return self._start


def changed(path: Path) -> SourceChangedError:
    """Return the error for an object that is not what it was."""
    return SourceChangedError(f"{str(path)!r} changed while it was read", "load the model again")
