"""A `ModelProto` whose large tensors stay in their files."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.errors import ExternalDataError
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array


@dataclass
class Model:
    """A model: its structure in memory, its large tensors as (file, offset, length).

    Attributes:
        proto: the structure. A tensor that stays on disk is an external tensor whose location is a key of `files`,
            with offset and length always given.
        files: the files that hold tensors, by key (their absolute path).
        path: where the model was loaded from, None when it was made in memory.
        loaded: fingerprint of the structure as it was loaded; another one now means that it was edited.
    """

    proto: ModelProto
    files: dict[str, DataFile] = field(default_factory=dict)
    path: Path | None = None
    loaded: bytes = b""

    def copy(self) -> "Model":
        """An independent copy of the structure; the weights are where they were."""
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        return self.with_proto(proto)

    def with_proto(self, proto: ModelProto) -> "Model":
        """Another structure over the same files."""
        return Model(proto, dict(self.files), self.path, self.loaded)

    def encoded(self) -> bytes:
        """The structure, places of weights included, as one and the same bytes whenever it says the same."""
        return bytes(self.proto.SerializeToString(deterministic=True))

    def fingerprint(self) -> bytes:
        """A digest of the structure."""
        return digest(self.encoded())

    def span(self, tensor: TensorProto) -> tuple[DataFile, int, int]:
        """(file, offset, length) of a tensor that stays on disk.

        Raises:
            ExternalDataError: the tensor refers to a file that is not the model's.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        file = self.files.get(entries.get("location", ""))
        if file is None:
            raise ExternalDataError(
                f"tensor {tensor.name!r} refers to {entries.get('location', '')!r}, no file of this model"
            )
        return file, int(entries["offset"]), int(entries["length"])

    def raw(self, tensor: TensorProto) -> bytes:
        """The tensor's bytes as `raw_data` would hold them."""
        if is_external(tensor):
            file, offset, length = self.span(tensor)
            return file.read(offset, length)
        return tensor.raw_data or dtypes.encode(dtypes.to_array(tensor))

    def array(self, tensor: TensorProto) -> Array:
        """The tensor's numbers."""
        if is_external(tensor):
            return dtypes.decode(tensor.data_type, tensor.dims, self.raw(tensor))
        return dtypes.to_array(tensor)

    def materialize(self) -> ModelProto:
        """A plain, complete `ModelProto`, every weight inside, for other libraries."""
        complete = ModelProto()
        complete.CopyFrom(self.proto)
        self._fill(external_tensors(complete))
        return complete

    def structure(self) -> ModelProto:
        """The structure with small tensors filled in, as type and shape inference want it; to be read, not changed."""
        if all(file.location is None for file in self.files.values()):
            return self.proto  # what stays in the model's own file is large
        if not any(self._is_small(tensor) for tensor in external_tensors(self.proto)):
            return self.proto
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        self._fill(filter(self._is_small, external_tensors(proto)))
        return proto

    def _is_small(self, tensor: TensorProto) -> bool:
        return self.span(tensor)[2] <= LARGE

    def for_runtime(self) -> tuple[ModelProto, Path]:
        """(structure, folder): external data relative to a folder above all the files.

        Initializers alone stay external: tensors in attributes are filled in.
        """
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        for file in self.files.values():
            file.verify()
        self._fill(filter(is_external, walk.attribute_tensors(proto)))
        on_disk = [(tensor, *self.span(tensor)) for tensor in external_tensors(proto)]
        folder = Path(os.path.commonpath([f.path.parent for _, f, *_ in on_disk] or [Path.cwd()]))
        for tensor, file, offset, length in on_disk:
            refer(tensor, str(file.path.relative_to(folder)), offset, length)
        return proto, folder

    def _fill(self, on_disk: Iterator[TensorProto]) -> None:
        for tensor in on_disk:
            raw = self.raw(tensor)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = raw


def digest(encoded: bytes) -> bytes:
    """What tells a structure from others."""
    return hashlib.blake2b(encoded).digest()


def refers(encoded: bytes) -> bool:
    """Whether a structure may refer to data elsewhere, which it does by a "location"."""
    return b"location" in encoded


def is_external(tensor: TensorProto) -> bool:
    """Whether the tensor's payload is in a file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def external_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """The tensors whose payload is in a file."""
    return filter(is_external, walk.tensors(proto))


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Point an external tensor elsewhere; entries that are not understood stay."""
    wanted = {"location": location, "offset": str(offset), "length": str(length)}
    for entry in tensor.external_data:
        if entry.key in wanted:
            entry.value = wanted.pop(entry.key)
    for key, value in wanted.items():
        tensor.external_data.add(key=key, value=value)
