"""Tensors that are computed from those of a file when they are read or saved: part by part, never the whole file."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.model import Model, is_external, refer
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import DType, narrowed

_THREADS = 2


@dataclass(frozen=True)
class ComputedFile(DataFile):
    """A file that is read as if it held one tensor that is computed from it.

    Attributes:
        source: the file itself.
        tensor: makes its key in `Model.files` differ from those of other tensors, and from every path.
        make: returns the bytes of the tensor, in blocks.
    """

    source: DataFile = field(kw_only=True)
    tensor: str = field(kw_only=True)
    make: Callable[[], Iterable[bytes]] = field(kw_only=True, compare=False)

    @property
    def key(self) -> str:
        return f"{self.source.key}\x01{self.tensor}"

    @property
    def is_verbatim(self) -> bool:
        return False

    def verify(self) -> None:
        """Raise what the source raises."""
        self.source.verify()

    def blocks(self, _offset: int, _length: int, _block: int = 0) -> Iterator[bytes]:
        """Compute the tensor."""
        self.verify()
        yield from self.make()


def computed(
    model: Model, source: TensorProto, tensor: TensorProto, make: Callable[[], Iterable[bytes]]
) -> None:
    """Let a tensor be computed from another one, which stays on disk.

    Args:
        make: returns its bytes, in blocks.
    """
    # the version of the file is that of what is computed from it
    file, offset, _ = model.span(source)
    version = {each.name: getattr(file, each.name) for each in fields(DataFile)}
    name = f"{offset} {tensor.data_type} {tensor.name}"
    made = ComputedFile(**version, source=file, tensor=name, make=make)
    model.files[made.key] = made
    refer(tensor, made.key, 0, dtypes.byte_count(tensor.data_type, tensor.dims))


def narrow_tensor(model: Model, tensor: TensorProto, data_type: int) -> None:
    """Round a float32 tensor, in place; one that stays on disk is rounded when it is saved."""
    dtype = dtypes.numpy_dtype(data_type)
    if is_external(tensor):
        make = partial(_rounded, *model.span(tensor), dtype)
        tensor.data_type = data_type
        computed(model, tensor, tensor, make)
        return
    array = narrowed(dtypes.to_array(tensor), dtype)
    # `CopyFrom` clears what an array does not have
    doc_string, metadata = tensor.doc_string, list(tensor.metadata_props)
    tensor.CopyFrom(dtypes.from_array(array, tensor.name))
    if doc_string:
        tensor.doc_string = doc_string
    tensor.metadata_props.extend(metadata)


def _rounded(source: DataFile, offset: int, length: int, dtype: DType) -> Iterator[bytes]:
    """Yield float32 numbers of a file in a narrower dtype; several blocks at a time."""

    def narrow(data: bytes) -> bytes:
        return narrowed(np.frombuffer(data, "<f4"), dtype).tobytes()

    # a few blocks ahead, so that memory does not grow
    pending = deque[Future[bytes]]()
    with ThreadPoolExecutor(_THREADS) as pool:
        for data in source.blocks(offset, length):
            pending.append(pool.submit(narrow, data))
            if len(pending) > _THREADS:  # a few blocks are ahead, so that memory does not grow
                yield pending.popleft().result()
        yield from (each.result() for each in pending)
