"""Where commands write, and whether what stands there may be replaced.

A file is never overwritten without --force, except a default output that this user's own earlier command wrote: one
that was named here, not by -o. A record in the user's state folder (XDG_STATE_HOME) keeps the inode, size and time of
each of its files. What somebody edited, copied or put there since has others, and a lost record only brings back the
question. So the mark needs no file beside the output, and changes no byte of a model.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from onnxsurgeon_lite.errors import OutputExistsError, WriteError

_KEPT = 1000  # outputs, the latest

Marks = dict[str, list[int]]
"""File -> inode, size, time of its last change."""


def default_output(source: Path, verb: str, output: Path | None, suffix: str = ".onnx") -> Path:
    """Return the output that is named, or `<source>.<verb><suffix>` in the working directory."""
    return output or Path(f"{source.stem}.{verb}{suffix}")


def require_free(path: Path, output: Path | None, force: bool) -> bool:
    """Return whether what stands at `path` may be replaced.

    Args:
        output: what -o says.

    Raises:
        OutputExistsError: something stands there that may not.
    """
    if force or not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return force
    if output is not None or not _is_ours(path):
        hint = "name another with -o, or overwrite it with --force"
        raise OutputExistsError(f"{str(path)!r} is there already", hint)
    return True


def remember(path: Path, output: Path | None, beside: Iterable[Path] = ()) -> None:
    """Note that a default output is ours, with its data files."""
    if output is not None:
        return
    record = _read() | {str(path.absolute()): _marks([path, *beside])}
    with suppress(OSError, WriteError):
        from onnxsurgeon_lite.atomic import write_text

        _place().parent.mkdir(parents=True, exist_ok=True)
        write_text(_place(), json.dumps(dict(list(record.items())[-_KEPT:])))


def _is_ours(path: Path) -> bool:
    marks = _read().get(str(path.absolute()))
    if not marks or path.is_symlink():
        return False
    return marks == _marks([path, *map(Path, marks)])


def _marks(paths: Iterable[Path]) -> Marks:
    """What the files are, those in folders included."""
    marks: Marks = {}
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            with suppress(OSError):
                status = file.lstat()
                if not file.is_dir():
                    times = status.st_ino, status.st_size, status.st_mtime_ns
                    marks[str(file.absolute())] = list(times)
    return marks


def _read() -> dict[str, Marks]:
    try:
        record = json.loads(_place().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _place() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "onnxdbg" / "outputs.json"
