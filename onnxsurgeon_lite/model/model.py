"""A `ModelProto` whose large tensors stay in their files."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from onnx import GraphProto, ModelProto, TensorProto, helper

from onnxsurgeon_lite.errors import ExternalDataError
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.messages import copied, drop_at, entries
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.in_file import InFile, Rows, in_file

_MANY = 256  # nodes


@dataclass(frozen=True)
class Enclosing:
    """Where a graph is a body of another one.

    Attributes:
        path: stands before the ids of its nodes: `@3/then_branch/`; '' for a main graph.
        names: the values of the graphs around it.
    """

    path: str = ""
    names: frozenset[str] = frozenset()


@dataclass
class Model:
    """A model: its structure in memory, its large tensors as (file, offset, length).

    Attributes:
        proto: the structure. A tensor that stays on disk is an external tensor whose location is a key of `files`,
            with offset and length always given.
        files: the files that hold tensors, by key (their absolute path).
        path: the file that the model was loaded from; None for a model made in memory.
        loaded: hash of the structure at the load; a different one now means that it was edited.
        enclosing: where the graph is, if it is a body that stands here as a model of its own.

    Example:
        >>> model = osl.load("whole_model.onnx")
        >>> model.array(model.proto.graph.initializer[0]).shape
        (3, 3, 3, 3)
    """

    proto: ModelProto
    files: dict[str, DataFile] = field(default_factory=dict)
    path: Path | None = None
    loaded: int | None = None
    enclosing: Enclosing = Enclosing()

    @property
    def graph(self) -> GraphProto:
        """The main graph."""
        return self.proto.graph

    def copy(self) -> "Model":
        """Return an independent copy of the structure; the weights stay where they are."""
        return self.with_proto(copied(self.proto))

    def with_proto(self, proto: ModelProto) -> "Model":
        """Return a model with another structure over the same files."""
        return Model(proto, dict(self.files), self.path, self.loaded, self.enclosing)

    def encoded(self) -> bytes:
        """Serialize the structure, locations of weights included; equal structures give equal bytes."""
        return bytes(self.proto.SerializeToString(deterministic=True))

    def span(self, tensor: TensorProto) -> tuple[DataFile, int, int]:
        """Return (file, offset, length) of a tensor that stays on disk.

        Raises:
            ExternalDataError: the tensor refers to a file that is not in `files`.
        """
        place = entries(tensor.external_data)
        file = self.files.get(place.get("location", ""))
        if file is None:
            raise ExternalDataError(
                f"tensor {tensor.name!r} refers to {place.get('location', '')!r}, which is not a file of this model"
            )
        return file, int(place["offset"]), int(place["length"])

    def raw(self, tensor: TensorProto) -> bytes:
        """Return the tensor's bytes, as in `raw_data`."""
        if is_external(tensor):
            file, offset, length = self.span(tensor)
            return file.read(offset, length)
        return tensor.raw_data or dtypes.encode(dtypes.to_array(tensor))

    def array(self, tensor: TensorProto) -> Array:
        """Return the tensor's numbers."""
        if is_external(tensor):
            return dtypes.decode(tensor.data_type, tensor.dims, self.raw(tensor))
        return dtypes.to_array(tensor)

    def rows(self, tensor: TensorProto) -> Rows:
        """Return a tensor whose rows are read when it is sliced, where its file permits that."""
        if is_external(tensor):
            file, offset, length = self.span(tensor)
            kind, shape = dtypes.dtype_name(tensor.data_type), tuple(tensor.dims)
            found = in_file(partial(self.array, tensor), file.path, offset, length, kind, shape)
            # the file itself is read, not one that is made while it is read
            if isinstance(found, InFile) and file.is_verbatim:
                file.verify()
                return found
        return self.array(tensor)

    def materialize(self) -> ModelProto:
        """Return a plain, complete `ModelProto` with all weights, for other libraries."""
        complete = copied(self.proto)
        self.fill(external_tensors(complete))
        return complete

    def structure(self) -> ModelProto:
        """Return the structure with small tensors filled in, for type and shape inference; do not change it.

        Inputs stand in the place of initializers whose data is missing: ONNX's inference reads what is not there.
        """
        if self.missing():
            return self.without_missing()._filled()
        return self._filled()

    def _filled(self) -> ModelProto:
        # the model's own file: inference needs no tensor above LARGE
        if all(file.location is None for file in self.files.values()):
            return self.proto  # tensors in the model's own file are large
        if not any(self._is_small(tensor) for tensor in external_tensors(self.proto)):
            return self.proto
        proto = copied(self.proto)
        self.fill(filter(self._is_small, external_tensors(proto)))
        return proto

    def _is_small(self, tensor: TensorProto) -> bool:
        file, _, length = self.span(tensor)
        return length <= LARGE and not file.is_missing

    def missing(self) -> list[str]:
        """Return the locations of data files that were not there when the model was loaded."""
        return [str(file.location) for file in self.files.values() if file.is_missing]

    def without_missing(self) -> "Model":
        """Return the model with inputs in the place of initializers whose data is missing."""
        if not self.missing():
            return self
        result = self.copy()  # weights are inputs then, which inference knows by their types
        for graph in walk.graphs(result.proto):
            known = {value.name for value in graph.input}
            places = []
            for place, tensor in enumerate(graph.initializer):
                if not is_external(tensor) or not self.span(tensor)[0].is_missing:
                    continue
                places.append(place)
                if tensor.name not in known:
                    kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                    graph.input.add(name=tensor.name, type=kind)
            drop_at(graph.initializer, places)
        return result

    def for_runtime(self) -> tuple[ModelProto, Path]:
        """Return (structure, folder): external data is relative to this folder above all the files.

        Only initializers stay external: tensors in attributes are filled in.
        """
        proto = copied(self.proto)
        external = list(external_tensors(proto))
        if external:
            self.fill(filter(is_external, walk.attribute_tensors(proto)))
            # computed files exist nowhere: their bytes must be in memory
            self.fill(t for t in external_tensors(proto) if not self.span(t)[0].is_verbatim)
        on_disk = [(tensor,) + self.span(tensor) for tensor in filter(is_external, external)]
        used = {file for _, file, *_ in on_disk}
        for file in used.union(file for file in self.files.values() if not file.is_missing):
            file.verify()
        folder = Path(os.path.commonpath([f.path.parent for _, f, *_ in on_disk] or [Path.cwd()]))
        for tensor, file, offset, length in on_disk:
            path = os.fsencode(file.path.relative_to(folder))
            name = path.decode(errors="replace")
            # a path that is no UTF-8 cannot be the text of a message
            if os.fsencode(name) == path:
                refer(tensor, name, offset, length)
            else:
                self.fill([tensor])
        return proto, folder

    def fill(self, on_disk: Iterable[TensorProto]) -> None:
        """Read tensors that stay on disk into memory, in place."""
        for tensor in on_disk:
            raw = self.raw(tensor)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = raw


def refers(encoded: bytes) -> bool:
    """Return whether a structure can refer to external data: every reference holds "location"."""
    return b"location" in encoded


def is_external(tensor: TensorProto) -> bool:
    """Return whether the tensor's payload is in a file."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def external_tensors(proto: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors whose payload is in a file."""
    # a large graph: searching the bytes is faster than visiting all tensors
    if len(proto.graph.node) > _MANY and not refers(proto.SerializeToString()):
        return iter(())
    return filter(is_external, walk.tensors(proto))


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Point a tensor to a place in a file; keep its unknown entries."""
    # its bytes are there, no longer in the tensor
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    place = {"location": location, "offset": str(offset), "length": str(length)}
    unknown = [copied(entry) for entry in tensor.external_data if entry.key not in place]
    del tensor.external_data[:]
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)
    tensor.external_data.extend(unknown)
