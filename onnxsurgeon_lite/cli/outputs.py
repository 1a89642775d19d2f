"""Where commands write, and whether an existing file may be replaced.

Nothing is overwritten without --force, except a default output, named here and not by -o, that an earlier command of
this user wrote. A record in the user's state folder (XDG_STATE_HOME) keeps inode, size and time of each of its files:
what was edited, copied or put there since has others, and a lost record only brings the question back. So the mark
changes no byte of a model, needs no file beside it, and is the same for folders.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onnxsurgeon_lite.atomic import write_text
from onnxsurgeon_lite.errors import WriteError
from onnxsurgeon_lite.system import user_folder

_KEPT = 1000  # outputs, the latest
_FROM = " from "

Marks = dict[str, list[int]]
"""File -> inode, size, time of its last change."""


@dataclass(frozen=True)
class Target:
    """What a command writes: what -o says, or `<source>.<verb><suffix>` in the working directory."""

    source: Path
    verb: str
    output: Path | None = None
    force: bool = False
    dry_run: bool = False
    suffix: str = ".onnx"

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.output or Path(f"{self.source.stem}.{self.verb}{self.suffix}")

    def replaceable(self) -> bool:
        """Return whether the existing file may be overwritten."""
        return self.force or (self.output is None and _is_ours(self.path))

    def wrote(self, beside: Iterable[Path] = ()) -> None:
        """Note that a default output is ours, with its data files; what is left of an earlier one goes."""
        if self.output is not None:
            return
        record = _read()
        key = str(self.path.absolute())
        marks = _marks([self.path, *beside])
        # files of an earlier output in this folder that are unchanged, and that this run did not write
        stale = [file for file, mark in record.get(key, {}).items() if marks.get(file) == mark]
        for file in stale if self.path.is_dir() else ():
            Path(file).unlink()
        with suppress(OSError, WriteError):
            _write(record | {key: {f: m for f, m in marks.items() if f not in stale}})


def note_factory(factory: str, folder: Path) -> None:
    """Note the `FILE.py:function` that a reference set was recorded from."""
    file, _, function = factory.rpartition(":")
    # "FOLDER from FILE.py:function" -> marks of both
    key = f"{folder.absolute()}{_FROM}{Path(file).absolute()}:{function}"
    with suppress(OSError, WriteError):
        _write(_read() | {key: _marks([folder, Path(file)])})


def factory_of(references: str | None) -> str | None:
    """Return the factory that this user recorded a set from, if both are as they were.

    The set itself does not name it: a set from elsewhere must not say what is run.
    """
    place = Path(references or "")
    start = f"{place.absolute()}{_FROM}"
    for key, marks in _read().items():
        factory = key.removeprefix(start)
        if factory != key and marks == _marks([place, Path(factory.rpartition(":")[0])]):
            return factory
    return None


def _is_ours(path: Path) -> bool:
    marks = _read().get(str(path.absolute()), {})
    # every file that was written is there, unchanged, and no other
    return bool(marks) and not path.is_symlink() and marks == _marks([path, *map(Path, marks)])


def _marks(paths: Iterable[Path]) -> Marks:
    """What the files are, those in folders included."""
    marks: Marks = {}
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            with suppress(OSError):
                # of the link itself, not of what it points to
                status = file.lstat()
                if not file.is_dir():
                    mark = [status.st_ino, status.st_size, status.st_mtime_ns]
                    marks[str(file.absolute())] = mark
    return marks


def _read() -> dict[str, Marks]:
    try:
        record = json.loads(_place().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(record: dict[str, Marks]) -> None:
    _place().parent.mkdir(parents=True, exist_ok=True)
    write_text(_place(), json.dumps(dict(list(record.items())[-_KEPT:])))


def _place() -> Path:
    return user_folder("XDG_STATE_HOME", ".local/state") / "outputs.json"
