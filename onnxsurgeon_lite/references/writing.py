"""Reference sets to disk: our own folder, streamed; `.npz` and `.safetensors` where they can hold the tensors."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
from onnx import SequenceProto, TensorProto

from onnxsurgeon_lite import tensors
from onnxsurgeon_lite.errors import ReferenceSetError, WriteError
from onnxsurgeon_lite.model.files import Staging
from onnxsurgeon_lite.references.reading import INDEX, VALUES
from onnxsurgeon_lite.references.sets import Stored
from onnxsurgeon_lite.tensors import Array


class FolderWriter:
    """Writes a reference folder value by value: `values.bin` as they come, `index.json` at the end.

    `index.json` is `{"format": "onnxsurgeon-references", "version": 1, "values": [...]}`; a value has `name`, `dtype`
    (ONNX's name, lower case), `shape`, `sample`, `offset` and `length` in `values.bin`, and `scope` when known. The
    bytes are what `raw_data` holds; strings are a serialized `TensorProto`, sequences a `SequenceProto`
    (`"kind": "sequence"`).
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._index: list[dict[str, object]] = []
        self._staging = Staging()

    def __enter__(self) -> "FolderWriter":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(
                f"cannot make folder {str(self.folder)!r}: {error.strerror}"
            ) from error
        self._opened = self._staging.open(self.folder / VALUES)
        self._values = self._opened.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._staging:
            self._opened.__exit__(kind, error, trace)
            if error is None:
                with self._staging.open(self.folder / INDEX) as file:
                    file.write(self._index_text().encode())
                self._staging.commit()

    def add(self, name: str, value: Stored, scope: str = "", sample: int = 0) -> None:
        """Append a value."""
        entry: dict[str, object] = {"name": name, "sample": sample, "offset": self._values.tell()}
        if isinstance(value, list):
            entry |= {"kind": "sequence", "dtype": "sequence", "shape": None}
            self._values.write(_proto(name, value).SerializeToString())
        else:
            data_type = tensors.data_type_of_numpy(value.dtype)
            entry |= {"dtype": tensors.dtype_name(data_type), "shape": list(value.shape)}
            self._values.write(_stored_bytes(value))
        entry["length"] = self._values.tell() - int(str(entry["offset"]))
        if scope:
            entry["scope"] = scope
        self._index.append(entry)

    def _index_text(self) -> str:
        values = ",\n  ".join(map(json.dumps, self._index))
        return f'{{"format": "onnxsurgeon-references", "version": 1, "values": [\n  {values}\n]}}\n'


def _stored_bytes(value: Array) -> bytes | memoryview:
    if value.dtype.kind in "OUS":
        return bytes(tensors.from_array(value).SerializeToString())
    if tensors.byte_count(tensors.data_type_of_numpy(value.dtype), value.shape) == value.nbytes:
        return np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    return tensors.encode(value)


def save_tensors(path: str | Path, values: Mapping[str, Stored]) -> None:
    """Store tensors as `.npz` or `.safetensors` where the path says so, else as a folder of ours.

    Raises:
        ReferenceSetError: the format cannot hold one of them; it is named, and nothing is written.
    """
    path = Path(path)
    if path.suffix not in (".npz", ".safetensors"):
        with FolderWriter(path) as writer:
            for name, value in values.items():
                writer.add(name, value)
        return
    fits = _fits_npz if path.suffix == ".npz" else _fits_safetensors
    _refuse(path, (name for name, value in values.items() if not fits(name, value)))
    with Staging() as staging:
        with staging.open(path) as file:
            if path.suffix == ".npz":
                np.savez(file, allow_pickle=False, **dict(values))
            else:
                import safetensors.numpy

                contiguous = {n: np.ascontiguousarray(v) for n, v in values.items()}
                file.write(safetensors.numpy.save(contiguous))
        staging.commit()


def write_test_data(
    folder: Path, inputs: Mapping[str, Stored], outputs: Mapping[str, Stored]
) -> None:
    """Store tensors as an ONNX `test_data_set_N` folder: `input_0.pb`, ..., `output_0.pb`, each with its name."""
    folder.mkdir(parents=True, exist_ok=True)
    with Staging() as staging:
        for kind, values in (("input", inputs), ("output", outputs)):
            for number, (name, value) in enumerate(values.items()):
                with staging.open(folder / f"{kind}_{number}.pb") as file:
                    file.write(_proto(name, value).SerializeToString())
        staging.commit()


def _proto(name: str, value: Stored) -> TensorProto | SequenceProto:
    if not isinstance(value, list):
        return tensors.from_array(value, name)
    sequence = SequenceProto(name=name, elem_type=SequenceProto.TENSOR)
    sequence.tensor_values.extend(map(tensors.from_array, value))
    return sequence


def _refuse(path: Path, unfit: Iterable[str]) -> None:
    names = list(unfit)
    if names:
        raise ReferenceSetError(
            f"{path.suffix} cannot hold {', '.join(map(repr, names[:5]))}",
            f"a folder can: --save {os.path.splitext(path)[0]}",
        )


def _fits_npz(name: str, value: Stored) -> bool:
    """numpy's own dtypes alone; and `np.savez` takes no array called `file`."""
    return not isinstance(value, list) and value.dtype.kind in "fiubc" and name != "file"


def _fits_safetensors(_: str, value: Stored) -> bool:
    return not isinstance(value, list) and value.dtype.kind in "fiub"
