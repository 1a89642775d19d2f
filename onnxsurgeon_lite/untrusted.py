"""Files that anybody may have written: regular ones of usual size, as text or JSON."""

import json
import stat
from pathlib import Path

from onnxsurgeon_lite.errors import ReferenceSetError

UNREADABLE = Exception
"""What a damaged file can raise: what reads it raises errors of many packages, and those of their bugs."""
_MOST_JSON = 1 << 24  # bytes of a configuration


def require_regular(path: Path, folder: Path | None = None, limit: int | None = None) -> Path:
    """Return the path of a regular file, links followed.

    Such a file is untrusted, like a model: a link may not lead out of their folder, and no pipe or device is opened.

    Args:
        folder: the folder that the file may not lie outside of.
        limit: the largest size, in bytes.

    Raises:
        ReferenceSetError: the path is anything else.
        OSError: there is nothing at the path.
    """
    # of the file that a link leads to, which is looked at before it is opened
    status = path.stat()
    real = path.resolve()
    if not stat.S_ISREG(status.st_mode):
        raise ReferenceSetError(f"{str(path)!r} is not a regular file: refused")
    if folder is not None and not real.is_relative_to(folder.resolve()):
        raise ReferenceSetError(
            f"{str(path)!r} is a link out of its folder: refused", "put the file itself there"
        )
    if limit is not None and status.st_size > limit:
        raise ReferenceSetError(f"{str(path)!r} has {status.st_size} bytes, more than {limit}")
    return real


def text_of(path: Path, folder: Path | None = None, limit: int = 1 << 28) -> str:
    """Return what a text file holds that people write, or tools for them; see `require_regular`."""
    try:
        return require_regular(path, folder, limit).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no UTF-8, or no path
        raise ReferenceSetError(f"cannot read {str(path)!r} as text: {error}") from error


def json_of(path: Path, folder: Path | None = None) -> dict[str, object]:
    """Return the object that a JSON file holds, which anybody may have written; see `text_of`."""
    try:
        found = json.loads(text_of(path, folder, _MOST_JSON))
    except (ValueError, RecursionError) as error:
        raise ReferenceSetError(f"{str(path)!r} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ReferenceSetError(f"{str(path)!r} holds no JSON object")
    return found


def inner(config: object, name: str) -> dict[str, object]:
    """Return an object that a JSON object holds; an empty one without it."""
    found = config.get(name) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}
