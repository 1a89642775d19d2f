"""List each large tensor of a model: its place, its type, and a fingerprint of its contents."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto, TensorProto

from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.datafile import BLOCK, zeros
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.model.sharing import compiled
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors import dtypes


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that stays on disk.

    Attributes:
        file: relative to the model's folder; the name of the model file for embedded data.
        fingerprint: of the contents, independent of where they are stored; '' if not requested, or if the file is
            missing.
    """

    name: str
    file: str
    offset: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    fingerprint: str


class DataListing(Shown, list[StoredTensor]):
    """The tensors that stay on disk, in the model's order."""


def list_data(model: Model, fingerprints: bool = True) -> Iterator[StoredTensor]:
    """Yield the tensors that stay on disk, in the model's order.

    Args:
        fingerprints: compute fingerprints; this reads the tensors, block by block.

    Raises:
        SourceChangedError: a file changed after the load.
    """
    for name, tensor in named_tensors(model.proto):
        if not is_external(tensor):
            continue
        file, offset, length = model.span(tensor)
        yield StoredTensor(
            name,
            file.location or file.path.name,
            offset,
            length,
            dtypes.dtype_name(tensor.data_type),
            tuple(tensor.dims),
            fingerprint(model, tensor) if fingerprints and not file.is_missing else "",
        )
    # their formats are the providers' own
    for file in compiled(model):
        yield StoredTensor("", str(file.location), 0, file.size, "compiled", (), "")


class Fingerprint:
    """A digest of a tensor's raw bytes (BLAKE2b, 128 bits), which come in blocks; blocks of zeros are only counted."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._position = 0
        self._zeros = list[list[int]]()  # from where to where

    def update(self, data: bytes) -> None:
        """Add the next bytes: as many as `BLOCK`, or a multiple of that; fewer at the end."""
        for start in range(0, len(data), BLOCK):
            block = data[start : start + BLOCK]
            if block == zeros(BLOCK):
                self.skip(BLOCK)
            else:
                self._digest.update(block)
                self._position += BLOCK

    def skip(self, size: int) -> None:
        """Add zeros, as many as `BLOCK` or a multiple of that."""
        if self._zeros and self._zeros[-1][1] == self._position:  # continues the zeros before
            self._zeros[-1][1] += size
        elif size:
            self._zeros.append([self._position, self._position + size])
        self._position += size

    def text(self) -> str:
        """Return the digest of all bytes."""
        if not self._zeros:
            return self._digest.hexdigest()
        layout = repr(self._zeros).encode()  # where zeros were is a part of the digest
        return hashlib.blake2b(self._digest.digest() + layout, digest_size=16).hexdigest()


def fingerprint(model: Model, tensor: TensorProto) -> str:
    """Return a digest of a tensor's raw bytes, read block by block; holes of a sparse file are not read."""
    found = Fingerprint()
    if not is_external(tensor):
        found.update(model.raw(tensor))
        return found.text()
    file, position, _ = model.span(tensor)
    end = position + dtypes.byte_count(tensor.data_type, tensor.dims)
    # at the end, what is left is read as if a hole of no size followed
    for start, stop, is_hole in (*file.extents(position, end), (end, end, True)):
        if is_hole:
            # up to the first block that is wholly in the hole
            blocks = -(-(start - position) // BLOCK)
            size = min(blocks * BLOCK, end - position)
            for block in file.blocks(position, size):
                found.update(block)
            position += size
            whole = max(stop - position, 0) // BLOCK * BLOCK
            found.skip(whole)
            position += whole
    return found.text()


def contents(model: Model, tensor: TensorProto) -> Iterator[bytes]:
    """Yield a tensor's raw bytes in blocks, up to the length that its shape needs."""
    if not is_external(tensor):
        yield model.raw(tensor)
        return
    file, offset, _ = model.span(tensor)
    yield from file.blocks(offset, dtypes.byte_count(tensor.data_type, tensor.dims))


def named_tensors(proto: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield every tensor with its name; a tensor in an attribute is named after its node's output."""
    bodies = [function.node for function in proto.functions]
    for graph in walk.graphs(proto):
        yield from ((tensor.name, tensor) for tensor in graph.initializer)
        for sparse in graph.sparse_initializer:
            yield f"{sparse.values.name} values", sparse.values
            yield f"{sparse.values.name} indices", sparse.indices
        bodies.append(graph.node)
    for nodes in bodies:
        for node in nodes:
            for attribute in node.attribute:
                owner = f"{next(iter(node.output), '')} {attribute.name}"
                if attribute.type == AttributeProto.TENSOR:
                    yield owner, attribute.t
                elif attribute.type == AttributeProto.TENSORS:
                    yield from ((owner, tensor) for tensor in attribute.tensors)
