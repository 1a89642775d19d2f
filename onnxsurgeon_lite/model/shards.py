"""Write the bytes of tensors to data files beside a model.

There may be one file or several, of plain bytes or in the format of safetensors, which ONNX can read as well: its
offsets are valid external data.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from onnx import TensorProto

from onnxsurgeon_lite.model.copying import copy_span
from onnxsurgeon_lite.model.model import Model, is_external, refer
from onnxsurgeon_lite.tensors import dtypes

_SAFETENSORS = ".safetensors"
_ALIGNMENT = 8  # of what follows the header


class _Bytes(NamedTuple):
    """Where the bytes of a tensor come from; tensors with the same place share them.

    Attributes:
        file: the key of a data file; '' for bytes that are in the model itself.
        start: the offset in that file; for bytes in the model the number of the tensor.
    """

    file: str
    start: int
    length: int


@dataclass(frozen=True)
class DataLayout:
    """How data lies beside a model.

    Attributes:
        location: path of the file, relative to the model; `<name>.data` if empty. A path that ends in `.safetensors`
            gives a file of that format.
        max_shard: most bytes of tensors in a file, unless one tensor alone has more; 0 for one file.
        min_size: tensors of fewer bytes stay in the model.
    """

    location: str = ""
    max_shard: int = 0
    min_size: int = 0


ONE_FILE = DataLayout()


class Shards:
    """The data files of some tensors; shared bytes are written once."""

    def __init__(self, model: Model, tensors: Sequence[TensorProto], layout: DataLayout) -> None:
        self._model = model
        self._sources = [(tensor, self._bytes(tensor, n)) for n, tensor in enumerate(tensors)]
        # the widest elements of a safetensors file come first: then each tensor is aligned without padding
        if layout.location.endswith(_SAFETENSORS):
            self._sources.sort(key=lambda pair: -dtypes.byte_count(pair[0].data_type, (8,)))
        shards = list[dict[_Bytes, TensorProto]]([{}])
        filled = 0
        for source, tensor in {source: tensor for tensor, source in self._sources}.items():
            if shards[-1] and 0 < layout.max_shard < filled + source.length:
                shards.append({})
                filled = 0
            shards[-1][source] = tensor
            filled += source.length
        self.files = dict(zip(_names(layout.location, len(shards)), shards, strict=True))
        """Location of a file -> its contents in order: where bytes come from -> a tensor that has them."""

    def _bytes(self, tensor: TensorProto, number: int) -> _Bytes:
        if not is_external(tensor):
            return _Bytes("", number, len(tensor.raw_data))
        file, start, length = self._model.span(tensor)
        return _Bytes(file.key, start, length)

    def write(self, location: str, out: BinaryIO) -> None:
        """Write one of the files."""
        contents = self.files[location]
        if location.endswith(_SAFETENSORS):
            out.write(_header(contents))
        for source, tensor in contents.items():
            if is_external(tensor):
                file = self._model.span(tensor)[0]
                copy_span(out, file, source.start, source.length)
            else:
                out.write(tensor.raw_data)

    def refer(self) -> None:
        """Point the tensors to the files, in place."""
        places = {}
        for location, contents in self.files.items():
            position = len(_header(contents)) if location.endswith(_SAFETENSORS) else 0
            for source in contents:
                places[source] = location, position
                position += source.length
        for tensor, source in self._sources:
            location, position = places[source]
            refer(tensor, location, position, source.length)


def _names(location: str, count: int) -> Iterator[str]:
    """Yield the names of files: `model-00001-of-00003.safetensors`, or the location if there is one."""
    path = PurePosixPath(location)
    for number in range(1, count + 1):
        name = f"{path.stem}-{number:05}-of-{count:05}{path.suffix}"
        yield location if count == 1 else str(path.with_name(name))


def _header(contents: Mapping[_Bytes, TensorProto]) -> bytes:
    """Return the header of a safetensors file; a dtype that the format does not have is declared as bytes (U8)."""
    from onnxsurgeon_lite.tensors.references.reading import SAFETENSORS

    kinds = {dtype: kind for kind, dtype in SAFETENSORS.items()}
    entries, position = dict[str, object](), 0
    for source, tensor in contents.items():
        # a tensor with more bytes than its elements is declared as bytes, too
        is_whole = dtypes.byte_count(tensor.data_type, tensor.dims) == source.length
        kind = kinds.get(dtypes.dtype_name(tensor.data_type)) if is_whole else None
        name = tensor.name
        while name in entries:  # in another graph
            name += "_"
        entries[name] = {
            "dtype": kind or "U8",
            "shape": list(tensor.dims) if kind else [source.length],
            "data_offsets": [position, position + source.length],
        }
        position += source.length
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
