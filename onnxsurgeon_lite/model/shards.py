"""Write payloads to data files: one or several, plain or as safetensors, whose offsets are valid external data."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from onnx import TensorProto

from onnxsurgeon_lite.model.copying import copy_span
from onnxsurgeon_lite.model.model import Model, is_external, refer
from onnxsurgeon_lite.tensors import dtypes

_SAFETENSORS = ".safetensors"
_ALIGNMENT = 8  # of what follows the header
_Bytes = tuple[str, int, int]
"""File (or '' and a number), offset, length: tensors that have the same share them."""


@dataclass(frozen=True)
class DataLayout:
    """How data lies beside a model.

    Attributes:
        location: of the file, relative to the model; `<name>.data` if empty. `.safetensors` is a file of that format.
        max_shard: most bytes of tensors in a file, if one tensor has no more; 0 for one file.
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
        self._of = [(tensor, self._bytes(tensor, n)) for n, tensor in enumerate(tensors)]
        # elements of safetensors are aligned, because the largest come first
        if layout.location.endswith(_SAFETENSORS):
            self._of.sort(key=lambda each: -dtypes.byte_count(each[0].data_type, (8,)))
        shards, filled = list[dict[_Bytes, TensorProto]]([{}]), 0
        for place, tensor in {place: tensor for tensor, place in self._of}.items():
            if shards[-1] and 0 < layout.max_shard < filled + place[2]:
                shards.append({})
                filled = 0
            shards[-1][place] = tensor
            filled += place[2]
        self.files = dict(zip(_names(layout.location, len(shards)), shards, strict=True))
        """Location -> where its bytes come from, with the tensor that has them."""

    def _bytes(self, tensor: TensorProto, number: int) -> _Bytes:
        if not is_external(tensor):
            return "", number, len(tensor.raw_data)
        file, start, length = self._model.span(tensor)
        return file.key, start, length

    def write(self, location: str, out: BinaryIO) -> None:
        """Write one of the files."""
        held = self.files[location]
        if location.endswith(_SAFETENSORS):
            out.write(_header(held))
        for (_, start, length), tensor in held.items():
            if is_external(tensor):
                copy_span(out, self._model.span(tensor)[0], start, length)
            else:
                out.write(tensor.raw_data)

    def refer(self) -> None:
        """Point the tensors to the files, in place."""
        places = {}
        for location, held in self.files.items():
            position = len(_header(held)) if location.endswith(_SAFETENSORS) else 0
            for place in held:
                places[place] = location, position
                position += place[2]
        for tensor, place in self._of:
            refer(tensor, *places[place], place[2])


def _names(location: str, count: int) -> Iterator[str]:
    """Yield the names of files: `model-00001-of-00003.safetensors`, or the location if there is one."""
    path = PurePosixPath(location)
    for number in range(1, count + 1):
        name = f"{path.stem}-{number:05}-of-{count:05}{path.suffix}"
        yield location if count == 1 else str(path.with_name(name))


def _header(held: Mapping[_Bytes, TensorProto]) -> bytes:
    """Return the start of a safetensors file; what the format has no dtype for is in it as bytes."""
    from onnxsurgeon_lite.tensors.references.reading import SAFETENSORS

    kinds = {dtype: kind for kind, dtype in SAFETENSORS.items()}
    entries, position = dict[str, object](), 0
    for (_, _, length), tensor in held.items():
        kind = kinds.get(dtypes.dtype_name(tensor.data_type))
        is_whole = dtypes.byte_count(tensor.data_type, tensor.dims) == length
        name = tensor.name
        while name in entries:  # in another graph
            name += "_"
        entries[name] = {
            "dtype": kind if kind and is_whole else "U8",
            "shape": list(tensor.dims) if kind and is_whole else [length],
            "data_offsets": [position, position + length],
        }
        position += length
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
