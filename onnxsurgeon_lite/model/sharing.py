"""Find out which models a data file belongs to, before it is overwritten or removed.

Other models may refer to it (`other_users`), or it may hold more than the data of one model (`foreign_content`).
"""

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path, PurePosixPath

from google.protobuf.message import DecodeError
from onnx import ModelProto

from onnxsurgeon_lite.atomic import require_free
from onnxsurgeon_lite.errors import ModelFileError, SharedDataError
from onnxsurgeon_lite.model.datafile import DataFile, locate, zeros
from onnxsurgeon_lite.model.messages import attributes_of
from onnxsurgeon_lite.model.model import Model, external_tensors
from onnxsurgeon_lite.model.wire import is_model, skeleton

_FIRST_BYTES = frozenset(b"\x08\x12\x1a\x22\x2a\x32\x3a\x42\x72\xa2\xca")  # tags of a `ModelProto`
_FORMATS = {
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "a zip archive"),
    b"\x1f\x8b\x08": "a gzip file",
    b"\x93NUMPY": "a .npy file",
    # of the protocols 2 to 5
    **dict.fromkeys(
        (b"\x80\x02}", b"\x80\x02]", b"\x80\x02c", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"),
        "a pickle",
    ),
    b"GGUF": "a GGUF file",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "a database",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF file",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"RIFF": "a RIFF file",
    b"!<arch>": "an archive",
    b"\xfd7zXZ": "an xz file",
    b"7z\xbc\xaf": "an archive",
    b"BZh": "a bzip2 file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
}
_START = 1024  # bytes by which a format is recognized


def other_users(data: Path, besides: Path, written: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the other model files that refer to a data file: below its folder, and in every folder above.

    Unreadable files are skipped. Files are recognized as models by their first bytes, whatever their names.
    """
    own = set(map(os.path.realpath, (data, besides))).union(map(os.path.realpath, written))
    for path in _model_files(Path(os.path.realpath(data)).parent):
        if os.path.realpath(path) not in own and _refers(path, data):
            yield path


def require_unshared(data: Path, besides: Path, written: Iterable[Path] = ()) -> None:
    """Raise `SharedDataError` if another model refers to a data file."""
    for other in other_users(data, besides, written):
        raise SharedDataError(
            f"{str(other)!r} refers to {data.name!r} too: nothing was changed",
            "give one of the two models its own data first, with onnxdbg data external",
        )


def require_replaceable(path: Path, force: bool) -> None:
    """Check that a file may be written here: nothing is overwritten without `force`, and never a model's data.

    Raises:
        OutputExistsError: the file, or a folder that is not empty, exists, and `force` is not given.
        SharedDataError: it holds data of a model.
    """
    require_free(path, force)
    require_no_data(path)


def require_no_data(path: Path) -> None:
    """Raise `SharedDataError` if a file that is to become something else holds the data of a model."""
    # a model that is overwritten by a model is what the user wants
    if not path.is_file() or is_model(path):
        return
    for other in other_users(path, path):
        raise SharedDataError(
            f"{str(path)!r} holds the data of {str(other)!r}: nothing was changed",
            "choose another -o",
        )


def foreign_content(file: DataFile, used: Iterable[tuple[int, int]], model: Path) -> str:
    """Say why a file may hold more than the data of one model; '' if it holds only that.

    Args:
        used: the sorted byte ranges that the model refers to.
        model: the path of the model. A data file that is named after it may have unused bytes, another may not.
    """
    start = file.start(_START)
    found = next((what for magic, what in _FORMATS.items() if start.startswith(magic)), "")
    # safetensors: the size of a header, and the header, which is JSON
    if not found and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= file.size:
        found = "a safetensors file"
    if not found and _is_text(start):
        found = "text"
    if found:
        return f"it begins like {found}"
    # its name says whose it is
    if has_own_name(str(file.location), model) or not _has_contents(file, used):
        return ""
    return "it holds bytes that the model does not refer to, and its name is not the model's"


def has_own_name(location: str, model: Path) -> bool:
    """Return whether a data file is named after its model, such as `model.data` or `model.onnx_data`."""
    stem = re.escape(model.name.removesuffix(".onnx"))
    name = PurePosixPath(location).name
    return bool(re.fullmatch(rf"{stem}(\.onnx)?([._]\d+)?[._](data|bin|weights)", name))


def _model_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, and above and below it, that seem to be models."""
    # above: a location may lead into subfolders
    for place in chain([folder], folder.parents):
        yield from (path for path in _files(place) if _looks_like_model(path))
    for below, _, names in os.walk(folder):  # below, names must do: there may be very many files
        if below != str(folder):
            yield from (Path(below, name) for name in names if ".onnx" in name.lower())


def _files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_file())
    except OSError:
        return []


def _looks_like_model(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = file.read(1)
    except OSError:
        return False
    return first != b"" and first[0] in _FIRST_BYTES


def _refers(path: Path, data: Path) -> bool:
    proto = _structure(path)
    if proto is None:
        return False
    locations = {
        entry.value
        for tensor in external_tensors(proto)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    # what providers have compiled is data of the model, too
    locations.update(_compiled_names(proto))
    targets = (path.parent / location.replace("\0", "") for location in locations - {""})
    return any(target.exists() and target.samefile(data) for target in targets)


def _compiled_names(proto: ModelProto) -> Iterator[str]:
    """Yield where a model that is compiled for a provider has its binaries, relative to it."""
    for node in proto.graph.node:
        if node.op_type == "EPContext":
            found = attributes_of(node)
            # 0: the context is the name of a file; 1, the default: it is the binary itself
            if not found.get("embed_mode", 1) and "ep_cache_context" in found:
                yield found["ep_cache_context"].decode(errors="replace")


def compiled(model: Model) -> Iterator[DataFile]:
    """Yield the binaries that a model which is compiled for a provider refers to."""
    # a model in memory has no folder that they could be in
    if model.path is None:
        return
    for name in _compiled_names(model.proto):
        yield DataFile.at(locate(model.path.absolute().parent, name), name)


def _structure(path: Path) -> ModelProto | None:
    """Return the structure of a model file; None for another file."""
    try:
        return ModelProto.FromString(skeleton(path, "")) if _looks_like_model(path) else None
    except (ModelFileError, DecodeError, OSError):
        return None


def _is_text(start: bytes) -> bool:
    try:
        # the last character may be cut off
        text = start.decode(errors="strict" if len(start) < _START else "ignore")
    except UnicodeDecodeError:
        return False
    printable = all(c.isprintable() or c in "\t\r\n\f" for c in text)
    # not more than one cut character is missing
    return printable and len(text.encode()) > len(start) - 4 and start != b""


def _has_contents(file: DataFile, used: Iterable[tuple[int, int]]) -> bool:
    """Return whether unused bytes of a file are anything but padding."""
    position = 0
    # the gaps between what is used, and the rest of the file
    for start, stop in chain(used, [(file.size, file.size)]):
        gap = file.blocks(position, start - position) if start > position else ()
        if any(block != zeros(len(block)) for block in gap):
            return True
        position = max(position, stop)
    return False
