"""A store that lies, as an fsspec file system: about names, sizes, kinds and bytes; it raises, drips, or is silent."""

import io
import time
from random import Random
from typing import Any

from fsspec import AbstractFileSystem, register_implementation

_MOST = 1 << 26  # bytes that it sends of more than it is asked for
_ERRORS = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ConnectionError,
    TimeoutError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    NotImplementedError,
    UnicodeError,
    StopIteration,
    MemoryError,
    RecursionError,
)
_SIZES = (None, -1, 0, 1, 1 << 62, 1 << 70, "7", 1.5, float("nan"), [], True)
_KINDS = ("file", "file", "directory", "other", "link", None, "", 5)
_NAMES = ("", "/", "..", "lying://x", "http://127.0.0.1:9/m", "\0", "\n", "a" * 5000, None, 5, b"m")


class Lying(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Answers as chance says; honest answers are the model."""

    protocol = "lying"
    cachable = False
    model = b""
    draw = Random(0)

    def _lies(self) -> bool:
        """Return whether to lie now; some lies are not to answer."""
        how = self.draw.random()
        if how > 0.98:
            time.sleep(2)
        if how > 0.93:
            raise self.draw.choice(_ERRORS)("no")
        return how > 0.8

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Say what is there."""
        known: dict[str, Any] = {"name": path, "size": len(self.model), "type": "file", "ETag": "1"}
        if self._lies():
            key = self.draw.choice(list(known))
            known[key] = self.draw.choice(_SIZES + _KINDS)
            if self.draw.random() < 0.2:
                del known[key]
        return known

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """List a folder."""
        if not self._lies():
            return [self.info(path)] if detail else [path]
        names = self.draw.choices(_NAMES, k=3)
        return [{"name": name, "size": 1, "type": "file"} for name in names] if detail else names

    def glob(self, path: str, **_: object) -> Any:
        """List what matches."""
        return self.draw.choices(_NAMES, k=3) if self._lies() else []

    def _open(self, path: str, mode: str = "rb", **_: object) -> "_Lying":
        if self._lies():
            self._lies()
        return _Lying(self)

    def get_file(self, rpath: str, lpath: Any, **_: object) -> None:  # noqa: ARG002
        """Copy a file."""
        self._lies()
        data = self.model if self.draw.random() < 0.5 else bytes(1 << 16)
        for _again in range(1 if data is self.model else _MOST // len(data)):
            lpath.write(data)


class _Lying(io.BytesIO):
    """A file of that store."""

    def __init__(self, store: Lying) -> None:
        super().__init__(store.model)
        self._store = store

    def read(self, size: int | None = -1) -> Any:
        """Give bytes: fewer, more, others, none."""
        honest = super().read(size)
        if not self._store._lies():
            return honest
        draw = self._store.draw
        return draw.choice(
            (
                b"",
                honest[:1],
                honest * 2,
                bytes(_MOST),
                "text",
                None,
                5,
                bytearray(honest),
                honest[::-1],
            )
        )

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position, or not."""
        self._store._lies()
        return super().seek(offset, whence)


def register() -> None:
    """Let fsspec know it."""
    register_implementation("lying", Lying, clobber=True)
