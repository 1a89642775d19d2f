"""Read and write stored reference tensors, one tensor at a time."""

from onnxsurgeon_lite.tensors.references.reading import Tensors, count_samples, open_references
from onnxsurgeon_lite.tensors.references.sets import Entry, ReferenceSet
from onnxsurgeon_lite.tensors.references.writing import (
    FolderWriter,
    make_folder,
    save_tensors,
    write_test_data,
)

__all__ = [
    "Entry",
    "FolderWriter",
    "ReferenceSet",
    "Tensors",
    "make_folder",
    "count_samples",
    "open_references",
    "save_tensors",
    "write_test_data",
]
