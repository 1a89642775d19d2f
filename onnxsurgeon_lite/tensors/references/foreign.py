"""Read what other tools store: Polygraphy's JSON, and folders of raw files with a JSON of their shapes (QNN, SNPE).

What a file says is data: no name in it becomes a path, and an array has exactly the bytes that its shape needs.
"""

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet, chosen
from onnxsurgeon_lite.untrusted import require_regular, text_of

SHAPES = "shapes.json"
"""Name -> shape, or `{"shape": [1, 3], "dtype": "float16"}`, of each `NAME.raw` in a folder."""

_LARGEST = 1 << 30  # bytes of a JSON file
_TAIL = 512  # bytes at the end of a file; its last object is one of Polygraphy's
_CLASS = "polygraphy_class"


def is_polygraphy(path: Path) -> bool:
    """Return whether a JSON file is one that Polygraphy wrote, of inputs or of results."""
    if path.suffix != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return _CLASS.encode() in file.read(_TAIL)


def open_polygraphy(path: Path, sample: int, read_npy: Callable[[bytes], Array]) -> ReferenceSet:
    """Return an iteration of what `polygraphy run --save-inputs` or `--save-outputs` wrote, of its first runner."""
    found = json.loads(text_of(path, None, _LARGEST))
    notes = []
    if isinstance(found, dict):  # results: runners, each with iterations; inputs: iterations alone
        runners = found["lst"]
        if len(runners) > 1:
            notes.append(f"{str(path)!r} has {len(runners)} runners: using {runners[0][0]!r}")
        found = [iteration["outputs"] for iteration in runners[0][1]]
    number, others = chosen(sample, len(found), path)
    entries = {}
    for name, value in found[number].items():
        text = _array(name, value)
        entries[str(name)] = Entry(partial(_decoded, text, read_npy), size=len(text))
    return ReferenceSet(str(path), entries, tuple(notes + others))


def _array(name: str, value: Any) -> str:
    """Return the text of an array; one that Polygraphy reads late is in another object."""
    inner = value.get("values", value) if isinstance(value, dict) else value
    match inner:
        case {"array": str(text), "polygraphy_class": "ndarray"}:
            return text
    raise ReferenceSetError(f"{name!r} is no numpy array in Polygraphy's JSON")


def _decoded(text: str, read_npy: Callable[[bytes], Array]) -> Array:
    return read_npy(base64.b64decode(text, validate=True))


def files_of(folder: Path, kind: str) -> dict[str, Path]:
    """Return the files of a kind in a folder and below, by their paths in it without a suffix."""
    found = folder.rglob(kind)
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in found}


def raw_entries(
    folder: Path, entry: Callable[[Path, str, tuple[int, ...]], Entry]
) -> dict[str, Entry]:
    """Return the tensors of raw files, as the JSON beside them says what they are.

    Args:
        entry: makes one of a file, its dtype and its shape.
    """
    described = json.loads(text_of(folder / SHAPES, folder))
    files = files_of(folder, "*.raw")
    entries = {}
    for name, about in described.items():
        told = about if isinstance(about, dict) else {"shape": about}  # a shape alone means float32
        dtype, shape = str(told.get("dtype", "float")), tuple(map(int, told["shape"]))
        if name not in files:
            raise ReferenceSetError(
                f"{str(folder)!r} has no file of {name!r}, which {SHAPES} names"
            )
        entries[name] = entry(require_regular(files[name], folder), dtype, shape)
    return entries
