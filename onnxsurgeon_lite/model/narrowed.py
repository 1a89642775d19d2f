"""Round float32 tensors to a narrower dtype: in memory, or block by block when their file is copied."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.model import Model, is_external, refer
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.narrow import narrowed

_THREADS = 2


@dataclass(frozen=True)
class NarrowedFile(DataFile):
    """A file of float32 numbers that is read as if it held a narrower dtype.

    An offset counts bytes of the source, a length counts bytes of the narrower dtype.

    Attributes:
        source: the file itself.
        data_type: the narrower dtype.
    """

    source: DataFile = field(kw_only=True)
    data_type: int = field(kw_only=True)

    @classmethod
    def like(cls, source: DataFile, data_type: int) -> "NarrowedFile":
        """Return a file as seen in another dtype."""
        return cls(**vars(source), source=source, data_type=data_type)

    @property
    def key(self) -> str:
        """Its key in `Model.files`: it must differ from that of the source and from every path."""
        return f"{self.source.key}\x01{dtypes.dtype_name(self.data_type)}"

    @property
    def is_verbatim(self) -> bool:
        return False

    def verify(self) -> None:
        """Raise what the source raises."""
        self.source.verify()

    def blocks(self, offset: int, length: int, _block: int = 0) -> Iterator[bytes]:
        """Read the bytes in blocks, rounded; several blocks at a time."""
        dtype = dtypes.numpy_dtype(self.data_type)
        scale = 4 // dtype.itemsize
        pending = deque[Future[bytes]]()
        with ThreadPoolExecutor(_THREADS) as pool:
            for data in self.source.blocks(offset, scale * length):
                pending.append(pool.submit(_rounded, data, dtype))
                if len(pending) > _THREADS:  # a few blocks are ahead, so that memory does not grow
                    yield pending.popleft().result()
            yield from (each.result() for each in pending)


def _rounded(data: bytes, dtype: np.dtype[np.generic]) -> bytes:
    return narrowed(np.frombuffer(data, "<f4"), dtype).tobytes()


def narrow_tensor(model: Model, tensor: TensorProto, data_type: int) -> None:
    """Round a float32 tensor, in place; one that stays on disk is rounded when it is saved."""
    if is_external(tensor):
        source, offset, length = model.span(tensor)
        file = NarrowedFile.like(source, data_type)
        model.files[file.key] = file
        scale = 4 // dtypes.byte_count(data_type, [1])  # an element has 4 bytes in the source
        tensor.data_type = data_type
        refer(tensor, file.key, offset, length // scale)
        return
    array = narrowed(dtypes.to_array(tensor), dtypes.numpy_dtype(data_type))
    # `CopyFrom` clears what an array does not have
    doc_string, metadata = tensor.doc_string, list(tensor.metadata_props)
    tensor.CopyFrom(dtypes.from_array(array, tensor.name))
    if doc_string:
        tensor.doc_string = doc_string
    tensor.metadata_props.extend(metadata)
