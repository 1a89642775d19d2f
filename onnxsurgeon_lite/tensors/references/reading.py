"""Read reference sets: `.npz`, `.npy`, `.safetensors`, `test_data_set_N` and our own folder. Pickles are refused."""

import contextlib
import io
import json
import math
import re
import weakref
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from onnx import SequenceProto, TensorProto

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError, said
from onnxsurgeon_lite.plugins import READERS, brought, reason
from onnxsurgeon_lite.remote import Remote, placed
from onnxsurgeon_lite.system import read_at
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, DType, Shape, Stored
from onnxsurgeon_lite.tensors.in_file import InFile, in_file
from onnxsurgeon_lite.tensors.references.etdump import open_etdump
from onnxsurgeon_lite.tensors.references.flatbuffer import root_of
from onnxsurgeon_lite.tensors.references.foreign import (
    SHAPES,
    files_of,
    is_polygraphy,
    open_polygraphy,
    raw_entries,
)
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet
from onnxsurgeon_lite.untrusted import UNREADABLE, require_regular

INDEX, VALUES = "index.json", "values.bin"
_AT_ONCE = 1 << 30  # bytes, at most, that one read of a file returns
_LARGEST_INDEX = 1 << 30  # bytes
_LARGEST_HEADER = 100_000_000  # bytes: the format's own limit
_LARGEST_MESSAGE = (1 << 31) - 1  # bytes: protobuf's own limit
_ZIP_HEADER = 30  # bytes before the names of a member
_HEAD = 1024  # bytes of a member of an archive that hold its headers, mostly
_PLAIN_HEADER = re.compile(  # of a `.npy` file, as numpy writes it, of a dtype that needs no other handling
    rb"\x93NUMPY\x01\0..\{'descr': '(?P<dtype>[<|](?:f[248]|[iu][1248]|b1|c8|c16))', 'fortran_order': False, "
    rb"'shape': \((?P<shape>[\d, ]{0,999})\), \} *\n",
    re.DOTALL,
)
_HALF = {kind.name: kind for kind in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))}
_OF_SEQUENCES = {"name", "elem_type", "tensor_values"}  # fields of a sequence of tensors

# dtype in a safetensors header -> ONNX dtype
SAFETENSORS = {
    "F64": "double",
    "F32": "float",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8e4m3fn",
    "F8_E5M2": "float8e5m2",
    "F8_E4M3FNUZ": "float8e4m3fnuz",
    "F8_E5M2FNUZ": "float8e5m2fnuz",
    "F8_E8M0": "float8e8m0",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "C64": "complex64",
}


Tensors = str | PathLike[str] | Mapping[str, Stored | None] | ReferenceSet
"""Tensors by name: a path, a dict of arrays, or a set that is open."""


def open_references(
    path: Tensors, inputs: Sequence[str] = (), outputs: Sequence[str] = (), sample: int = 0
) -> ReferenceSet:
    """Open a reference set; tensors are read on demand.

    Args:
        path: the tensors' place, or the tensors themselves by name.
        inputs: the model's names, for the tensors of a `test_data_set_N` that have none.
        outputs: the same.
        sample: the index of the sample, for a set of several.

    Raises:
        ReferenceSetError: there is nothing readable at the path.

    Example:
        >>> len(osl.open_references("references/whole_model.npz"))
        12
    """
    if isinstance(path, ReferenceSet):
        return path
    if isinstance(path, Mapping):  # tensors in memory
        given = {n: _stored(n, value) for n, value in path.items() if value is not None}
        return ReferenceSet.of(given, inputs=inputs)
    if not isinstance(path, str | PathLike):
        raise UsageError(
            f"tensors are given by name or by path, not as {type(path).__name__}",
            f"give {{{next(iter(inputs), 'name')!r}: array}}, a path or a ReferenceSet",
        )
    path = placed(path)
    with readable(path):
        return _open(path, inputs, outputs, sample)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise `ReferenceSetError` for all that a damaged file can cause."""
    try:
        yield
    except ReferenceSetError:
        raise
    except UNREADABLE as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else said(error)
        what = f"it lacks {error}" if isinstance(error, KeyError) else what
        raise ReferenceSetError(
            f"cannot read reference tensors from {str(path)!r}: {what}"
        ) from error


def _stored(name: str, value: object) -> Stored:
    """An array, also from what numpy can take for one, such as a PyTorch tensor; a list of arrays is a sequence."""
    what = f"tensor {name!r}"
    # a list of arrays is a sequence; a list of numbers is an array
    if isinstance(value, list) and all(hasattr(v, "__array__") and np.ndim(v) for v in value):
        return [dtypes.as_array(each, what) for each in value]
    return dtypes.as_array(value, what)


def _open(path: Path, inputs: Sequence[str], outputs: Sequence[str], sample: int) -> ReferenceSet:
    place = str(path)
    if path.is_dir():
        return _open_folder(path, inputs, outputs, sample)
    if not path.exists():
        raise ReferenceSetError(
            f"{place!r} does not exist: no tensors can be read",
            "give a file or folder that is there; onnxdbg record MODEL -o REFERENCES stores some",
        )
    require_regular(path)
    # one tensor, many by name, or the format of another tool
    match path.suffix:
        case ".npz":
            return ReferenceSet(place, _npz_entries(path))
        case ".npy":
            return ReferenceSet(place, {path.stem: _npy_entry(path, path)})
        case ".safetensors":
            return ReferenceSet(place, _safetensors_entries(path))
        case ".pb":
            return ReferenceSet(place, dict([_pb_entry(path, (), path.parent)]))
        case ".json" if is_polygraphy(path):
            place = "Polygraphy's JSON"
            return open_polygraphy(
                path, sample, lambda raw: numpy_array(lambda: _npy_array(raw), place)
            )
        case ".onnx_adapter":
            return ReferenceSet(place, _adapter_entries(path))
        case ".etdp":
            return open_etdump(path, sample, _raw_entry)
    # a user's own reader
    return _open_by_suffix(path)


def _adapter_entries(path: Path) -> dict[str, Entry]:
    """Return the tensors of a LoRA adapter as onnxruntime stores it; its dtypes are ONNX's."""
    return {
        each.text(0): _raw_entry(
            path,
            dtypes.dtype_name(each.number(2, "i")),
            each.numbers(1),
            # the numbers come after how many bytes they have
            sum(held.at + 4 for held in each.table(3)),
        )
        for each in root_of(path, b"TORT", "adapter").tables(3)
    }


def _open_by_suffix(path: Path) -> ReferenceSet:
    """Open a file with the reader that another package brings for its suffix: it returns name -> array.

    Raises:
        ReferenceSetError: there is none, or it fails.
    """
    readers, failed = brought(READERS)
    reader = readers.get(path.suffix.removeprefix("."))
    if not callable(reader):
        unknown = ReferenceSetError(
            f"{str(path)!r} is not a known kind of reference set",
            "use .npz, .npy (a file or a folder), .safetensors, test_data_set_N, Polygraphy's .json, ExecuTorch's "
            ".etdp, onnxruntime's .onnx_adapter, or a folder from `onnxdbg record`",
        )
        for line in failed:
            unknown.add_note(line)
        raise unknown
    try:
        tensors = {str(name): _stored(name, value) for name, value in reader(path).items()}
    except Exception as error:  # another package may raise anything
        raise ReferenceSetError(
            f"the reader of {path.suffix!r} cannot read {str(path)!r}: {reason(error)}"
        ) from error
    return ReferenceSet.of(tensors, str(path))


def _open_folder(
    path: Path, inputs: Sequence[str], outputs: Sequence[str], sample: int
) -> ReferenceSet:
    # Our own folder, raw files with their shapes, one sample of protobuf files, several, or `.npy` files.
    if (path / INDEX).is_file():
        return own_samples(path).get(sample, ReferenceSet(str(path), {}))
    if (path / SHAPES).is_file():
        return ReferenceSet(str(path), raw_entries(path, _raw_entry))
    if any(path.glob("*.pb")):
        return ReferenceSet(str(path), _pb_entries(path, inputs, outputs))
    samples = sample_folders(path)
    if samples:
        chosen = samples[min(sample, len(samples) - 1)]  # the last one, if there are fewer
        note = f"{str(path)!r} has {len(samples)} samples: using {chosen.name!r}"
        notes = (note,) if len(samples) > 1 else ()
        return ReferenceSet(str(chosen), _pb_entries(chosen, inputs, outputs), notes)
    arrays = files_of(path, "*.npy")
    if not arrays:
        raise ReferenceSetError(
            f"folder {str(path)!r} holds no reference tensors",
            f"it needs {INDEX}, *.npy or test_data_set_0",
        )
    return ReferenceSet(str(path), {n: _npy_entry(arrays[n], path) for n in sorted(arrays)})


def sample_folders(path: Path) -> list[Path]:
    """Return the folders of samples in a folder, in their order."""
    return sorted(path.glob("test_data_set_*"), key=_number)


def own_samples(path: Path) -> dict[int, ReferenceSet]:
    """Return each sample of our own folder; its index is read once."""
    index = _json_object(require_regular(path / INDEX, path, _LARGEST_INDEX).read_bytes())
    if index.get("version", 1) != 1:
        raise ReferenceSetError(
            f"{str(path / INDEX)!r} has version {index['version']}, but this program reads version 1"
        )
    file = index.get("file", VALUES)
    if not is_values_name(file):
        raise ReferenceSetError(f"{str(path / INDEX)!r} names another file as its own: {file!r}")
    size = require_regular(path / file, path).stat().st_size
    samples = defaultdict[int, dict[str, Entry]](dict)
    for value in index["values"]:
        name, offset, length = value["name"], value["offset"], value["length"]
        if not isinstance(name, str):
            raise ValueError(f"it has the name {name!r}")
        if offset < 0 or length < 0 or offset + length > size:
            raise ReferenceSetError(
                f"{str(path / file)!r} is too short for {name!r}: it has {size} bytes",
                "was the recording interrupted? record again",
            )
        read: Callable[[], Stored] = partial(_read_own, path / file, value)
        shape = _shape(value["shape"]) if value.get("shape") is not None else None
        if shape is not None and value.get("kind") != "sequence":
            read = in_file(read, path / file, offset, length, value["dtype"], shape)
        scope, class_name, source = (str(value.get(k, "")) for k in ("scope", "class", "source"))
        is_input, half = value.get("kind") == "input", _HALF.get(value.get("computed_in"))
        samples[int(value.get("sample", 0))][name] = Entry(
            read,
            shape,
            value["dtype"],
            scope,
            class_name,
            source,
            is_input,
            length,
            computed_in=half,
        )
    outputs = tuple(map(str, index.get("outputs", ())))
    return {n: ReferenceSet(str(path), found, outputs=outputs) for n, found in samples.items()}


def is_values_name(name: object) -> bool:
    """Return whether a file of our folder that holds tensors can have this name."""
    return isinstance(name, str) and re.fullmatch(r"values(\.[0-9]+)?\.bin", name) is not None


def _shape(sizes: object) -> Shape:
    if isinstance(sizes, list) and all(isinstance(size, int) and size >= 0 for size in sizes):
        return tuple(sizes)
    raise ValueError(f"{sizes!r} is not a shape")


def _json_object(text: bytes) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("its index is not a JSON object")
    return found


def _read_own(path: Path, value: dict[str, object]) -> Stored:
    match value:
        # what an index must have, of the types that it must have
        case {"offset": int(offset), "length": int(length), "dtype": str(dtype), **rest}:
            raw = _read_at(path, offset, length)
            if rest.get("kind") == "sequence":
                return _sequence(SequenceProto.FromString(raw))
            if dtype == "string":
                return dtypes.to_array(TensorProto.FromString(raw))
            shape = rest.get("shape")
            dims = [int(d) for d in shape] if isinstance(shape, list) else []
            return dtypes.decode(dtypes.data_type_of(dtype), dims, raw)
    raise ReferenceSetError(f"{str(path)!r} has an unreadable entry: {value}")


def _read_at(path: Path, offset: int, length: int) -> bytes:
    # one unbuffered read returns 2 GiB at most
    unbuffered = isinstance(path, Remote) or length < _AT_ONCE
    with path.open("rb", 0 if unbuffered else -1) as file:
        file.seek(offset)
        data = bytes(file.read(length))
    if len(data) != length:
        raise ReferenceSetError(f"{str(path)!r} ends before byte {offset + length}")
    return data


def _npz_entries(path: Path) -> dict[str, Entry]:
    file = path.open("rb")
    try:
        archive = zipfile.ZipFile(file)  # stays open, so that its directory is read once
    except Exception:
        file.close()
        raise
    weakref.finalize(archive, file.close)  # before a cycle that holds both is taken apart
    members = [name for name in archive.namelist() if name.endswith(".npy")]
    return {name.removesuffix(".npy"): _npz_entry(archive, path, name) for name in members}


def _npz_entry(archive: zipfile.ZipFile, path: Path, member: str) -> Entry:
    """Return the entry of a member; of one that is stored plainly, the place of its elements is known."""
    info = archive.getinfo(member)
    whole, size = partial(read_npz, archive, member), info.file_size
    if isinstance(path, Remote):
        return Entry(whole, size=size)
    file = archive.fp if info.compress_type == zipfile.ZIP_STORED else None
    raw = read_at(file, _HEAD, info.header_offset) if file is not None else b""
    # sizes of the name and of the extra field in the member's header
    start = _ZIP_HEADER + sum(int.from_bytes(raw[at : at + 2], "little") for at in (26, 28))
    return _placed(whole, path, raw, start, info.header_offset, size)


def _placed(
    whole: Callable[[], Array], path: Path, raw: bytes, start: int, base: int, size: int
) -> Entry:
    """Return the entry of a `.npy` file whose header lies in `raw` at `start`, and `raw` in its file at `base`."""
    header = _PLAIN_HEADER.match(raw, start)
    if header is None:
        return Entry(whole, size=size)
    kind = dtypes.dtype_name(dtypes.data_type_of_numpy(DType(header["dtype"].decode())))
    shape = tuple(map(int, header["shape"].replace(b",", b" ").split()))
    offset = header.end()
    # where the header and the size disagree, the whole reader says what is wrong
    read = in_file(whole, path, base + offset, size - (offset - start), kind, shape)
    return (
        Entry(read, shape, kind, size=size) if isinstance(read, InFile) else Entry(read, size=size)
    )


def read_npz(archive: zipfile.ZipFile, member: str) -> Array:
    return numpy_array(lambda: _npy_array(archive.read(member)), f"{archive.filename}:{member}")


def _npy_array(raw: bytes) -> Array:
    """View the bytes of a `.npy` file as an array: numpy's own reader copies an archive member in pieces."""
    file = io.BytesIO(raw)
    shape, fortran, dtype = _header(file, len(raw))
    return np.ndarray(shape, dtype, raw, file.tell(), order="F" if fortran else "C")


def _header(file: IO[bytes], size: int) -> tuple[Shape, bool, DType]:
    """Read the header of a `.npy` file: shape, whether columns come first, dtype.

    Raises:
        ValueError: the file has more or fewer bytes than its header says.
    """
    version = np.lib.format.read_magic(file)
    first = np.lib.format.read_array_header_1_0
    # versions 2 and 3 differ in the header's encoding
    read = first if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, columns_first, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("object arrays are pickles")
    wanted = file.tell() + math.prod(shape) * dtype.itemsize
    if size != wanted:
        raise ValueError(f"it has {size} bytes and needs {wanted}")
    return shape, columns_first, dtype


def _raw_entry(path: Path, dtype: str, shape: Shape, offset: int | None = None) -> Entry:
    """Return the entry of elements without a header: all that a file holds, or those from an offset on."""
    kind = dtypes.dtype_name(dtypes.data_type_of(dtype))
    wanted = dtypes.byte_count(dtypes.data_type_of(kind), _shape(list(shape)))
    size, start = path.stat().st_size, offset or 0
    stop = start + wanted
    if not 0 <= start <= stop <= size or (offset is None and stop != size):
        raise ReferenceSetError(f"{str(path)!r} has {size} bytes, and its shape needs {wanted}")
    return _entry_at(path, start, stop, kind, shape)


def _entry_at(path: Path, start: int, stop: int, dtype: str, shape: Shape) -> Entry:
    """Return the entry of the elements between two places of a file."""
    size = stop - start

    def whole() -> Array:
        return dtypes.decode(dtypes.data_type_of(dtype), shape, _read_at(path, start, size))

    return Entry(in_file(whole, path, start, size, dtype, shape), shape, dtype, size=size)


def _npy_entry(path: Path, folder: Path) -> Entry:
    """Return the entry of a file in a folder, or of a file alone."""
    size = require_regular(path, folder if folder != path else None).stat().st_size

    whole = partial(numpy_array, lambda: _npy_array(path.read_bytes()), str(path))
    if isinstance(path, Remote):
        return Entry(whole, size=size)
    with path.open("rb") as file:
        return _placed(whole, path, file.read(_HEAD), 0, 0, size)


def numpy_array(read: Callable[[], Array], place: str) -> Array:
    """Read an array into this machine's byte order; numpy files store bfloat16 as two-byte voids."""
    try:
        array = read()
    except UNREADABLE as error:
        raise ReferenceSetError(f"cannot read {place!r}: {said(error)}") from error
    if array.dtype.kind != "V":  # "V": a void, which numpy makes of dtypes that it does not know
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.itemsize == 2 and array.dtype.names is None:
        return array.view(ml_dtypes.bfloat16)
    raise ReferenceSetError(
        f"{place!r} has dtype {array.dtype}, and numpy files do not keep its meaning",
        "store it in a folder with `onnxdbg record`, which keeps every ONNX dtype",
    )


def _safetensors_entries(path: Path) -> dict[str, Entry]:
    """Parse the header here: the library's numpy side has no float8, and no access to one tensor's bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        # the file begins with the size of its header
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, _LARGEST_HEADER):
            raise ReferenceSetError(f"{str(path)!r} is truncated or not a safetensors file")
        header = _json_object(file.read(length))
    entries = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        # offsets count from the end of the header
        start, stop = (8 + length + int(offset) for offset in entry["data_offsets"])
        if entry["dtype"] not in SAFETENSORS:
            raise ReferenceSetError(
                f"{str(path)!r} holds {name!r} as {entry['dtype']}, which is not an ONNX dtype"
            )
        if not 8 + length <= start <= stop <= size:
            raise ReferenceSetError(f"{str(path)!r} is truncated: {name!r} lies beyond its end")
        dtype, shape = SAFETENSORS[entry["dtype"]], _shape(entry["shape"])
        entries[name] = _entry_at(path, start, stop, dtype, shape)
    return entries


def _pb_entries(folder: Path, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, Entry]:
    entries = {}
    for path in sorted(folder.glob("*.pb"), key=_number):
        if path.name.startswith("actual_"):
            continue  # what a run gave instead of the output: written by a reproducer
        declared = inputs if path.name.startswith("input") else outputs
        name, entry = _pb_entry(path, declared, folder)
        entries[name] = entry
    return entries


def _pb_entry(path: Path, declared: Sequence[str], folder: Path) -> tuple[str, Entry]:
    """Return (name, entry): the name in the file, else the declared name with the number of the file."""
    require_regular(path, folder if path.is_symlink() else None, _LARGEST_MESSAGE)
    tensor = _parse_pb(path)
    number = _number(path)[0]
    name = tensor.name or (declared[number] if number < len(declared) else path.stem)
    if isinstance(tensor, SequenceProto):
        return name, Entry(lambda: _sequence(_as_sequence(path)), None, "sequence")
    return name, Entry(
        lambda: dtypes.to_array(_as_tensor(path)),
        tuple(tensor.dims),
        dtypes.dtype_name(tensor.data_type),
        size=path.stat().st_size,
    )


def _parse_pb(path: Path) -> TensorProto | SequenceProto:
    """Tell the two by their fields: a sequence knows no field that holds a tensor's numbers, its name or its place."""
    with contextlib.suppress(DecodeError):
        sequence = _as_sequence(path)
        fields = {field.name for field, _ in sequence.ListFields()}
        known = fields <= _OF_SEQUENCES and not len(UnknownFieldSet(sequence))
        if known and sequence.elem_type == SequenceProto.TENSOR:
            return sequence
    return _as_tensor(path)


def _as_tensor(path: Path) -> TensorProto:
    try:
        tensor: TensorProto = TensorProto.FromString(path.read_bytes())
        dtypes.to_array(tensor)
    except UNREADABLE as error:
        raise ReferenceSetError(
            f"{str(path)!r} is not a serialized tensor: {said(error)}"
        ) from error
    return tensor


def _as_sequence(path: Path) -> SequenceProto:
    sequence: SequenceProto = SequenceProto.FromString(path.read_bytes())
    return sequence


def _sequence(sequence: SequenceProto) -> list[Array]:
    return [dtypes.to_array(tensor) for tensor in sequence.tensor_values]


def _number(path: Path) -> tuple[int, str]:
    """Sort key: the number at the end of a file's or folder's name."""
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0, path.name)
