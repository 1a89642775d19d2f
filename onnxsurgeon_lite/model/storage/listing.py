"""Every large tensor of a model: where it is, what it is, and a fingerprint of what it holds."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from onnx import AttributeProto, ModelProto, TensorProto

from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors import dtypes


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that stays on disk.

    Attributes:
        file: relative to the model's folder; the model's own name for what is embedded.
        fingerprint: of the contents, the same wherever they are stored; '' where it was not asked for.
    """

    name: str
    file: str
    offset: int
    bytes: int
    dtype: str
    shape: tuple[int, ...]
    fingerprint: str = ""


class DataListing(Shown, list[StoredTensor]):
    """The tensors that stay on disk, in the model's order."""


def list_data(model: Model, fingerprints: bool = True) -> Iterator[StoredTensor]:
    """The tensors that stay on disk, in the model's order.

    Args:
        fingerprints: read the tensors, block by block, for their fingerprints.

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
            fingerprint(model, tensor) if fingerprints else "",
        )


def fingerprint(model: Model, tensor: TensorProto) -> str:
    """A digest of a tensor's raw bytes (BLAKE2b, 128 bits), read block by block."""
    digest = hashlib.blake2b(digest_size=16)
    for block in contents(model, tensor):
        digest.update(block)
    return digest.hexdigest()


def contents(model: Model, tensor: TensorProto, block: int = 1 << 20) -> Iterator[bytes]:
    """A tensor's raw bytes in blocks; those that an external tensor's length exceeds its shape by are left out."""
    if not is_external(tensor):
        yield model.raw(tensor)
        return
    file, offset, _ = model.span(tensor)
    yield from file.blocks(offset, dtypes.byte_count(tensor.data_type, tensor.dims), block)


def named_tensors(proto: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Every tensor by its name; one in an attribute by the value that its node makes."""
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
