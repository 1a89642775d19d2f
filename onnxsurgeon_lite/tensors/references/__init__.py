"""Read and write stored reference tensors, one tensor at a time."""

from onnxsurgeon_lite.tensors.references.reading import Tensors, open_references
from onnxsurgeon_lite.tensors.references.samples import Samples
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet
from onnxsurgeon_lite.tensors.references.writing import (
    FolderWriter,
    make_folder,
    save_stream,
    save_tensors,
    write_test_data,
)

__all__ = [
    "Entry", "FolderWriter", "ReferenceSet", "Samples", "Tensors", "make_folder", "open_references",
    "save_stream", "save_tensors", "write_test_data",
]  # fmt: skip
