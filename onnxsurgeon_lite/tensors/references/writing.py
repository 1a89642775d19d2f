"""Write reference sets: our own folder, streamed; `.npz` and `.safetensors` where they can hold the tensors."""

import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from onnx import SequenceProto, TensorProto

from onnxsurgeon_lite.atomic import Staging, real_place, rename_folder, temporary_place
from onnxsurgeon_lite.errors import ReferenceSetError, WriteError
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.remote import Remote, placed
from onnxsurgeon_lite.system import TemporaryFolder
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, Stored
from onnxsurgeon_lite.tensors.references.reading import INDEX, SAFETENSORS, VALUES, is_values_name

_BEGIN = b'{"format": "onnxsurgeon-references"'


class FolderWriter:
    """Writes a reference folder value by value: `values.bin` as they arrive, `index.json` at the end.

    `index.json` is `{"format": "onnxsurgeon-references", "version": 1, "values": [...]}`; a value has `name`, `dtype`
    (ONNX's name, lower case), `shape`, `sample`, `offset` and `length` in `values.bin`, `scope`, `class` and `source`
    when known, `computed_in` where half precision went into it, and `"kind": "input"` if it was fed to the model.
    `"outputs"` are the names of the model's outputs, in order. The bytes are as in `raw_data`; strings are a
    serialized `TensorProto`, sequences a `SequenceProto` (`"kind": "sequence"`). An older set stays whole until the
    new index replaces its own: the new bytes have another name then, which the index tells as `"file"`. Before they
    are complete they have no name, and a new folder does not exist, which appears whole.
    """

    _target: Remote | None = None

    def __init__(self, folder: str | Path, outputs: Iterable[str] = ()) -> None:
        self.folder = placed(folder)
        self._outputs = list(outputs)
        self._index = list[dict[str, object]]()
        self._staging = Staging()
        self._local = contextlib.ExitStack()

    def __enter__(self) -> "FolderWriter":
        if isinstance(self.folder, Remote):
            local = self._local.enter_context(TemporaryFolder())
            self._target, self.folder = self.folder, Path(local, self.folder.name)
        new = not os.path.lexists(self.folder)
        self._place = temporary_place(self.folder) if new else self.folder
        if make_folder(self._place, self.folder):  # or fails at once
            self._place.rmdir()
        self._old = values_files(self._place)
        self._name = free_name(self._place)
        self._opened = self._staging.open_unseen(self._place / self._name, self.folder)
        self._values = self._opened.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        made = error is None and make_folder(self._place)
        try:
            with self._staging:
                self._opened.__exit__(kind, error, trace)
                if error is None:
                    with self._staging.open(self._place / INDEX) as file:
                        file.write(self._index_text().encode())
                    self._staging.commit()
                    for old in self._old:
                        with contextlib.suppress(OSError):
                            old.unlink()
            if made:
                rename_folder(self._place, self.folder)
            if made and self._target is not None:
                _upload(self.folder, self._target)
        finally:
            if made:
                shutil.rmtree(self._place, ignore_errors=True)
            self._local.close()

    def add(
        self, name: str, value: Stored, place: Mapping[str, str] | None = None, sample: int = 0
    ) -> None:
        """Append a value. place: `scope`, `class`, `source` and `computed_in`, or `"kind": "input"` for a fed value."""
        entry: dict[str, object] = {"name": name, "sample": sample, "offset": self._values.tell()}
        entry |= {key: text for key, text in (place or {}).items() if text}
        if isinstance(value, list):
            entry |= {"kind": "sequence", "dtype": "sequence", "shape": None}
            self._values.write(_proto(name, value).SerializeToString())
        else:
            data_type = dtypes.data_type_of_numpy(value.dtype)
            entry |= {"dtype": dtypes.dtype_name(data_type), "shape": list(value.shape)}
            self._values.write(_stored_bytes(value))
        entry["length"] = self._values.tell() - int(str(entry["offset"]))
        self._index.append(entry)

    def _index_text(self) -> str:
        values = ",\n  ".join(map(json.dumps, self._index))
        file = f'"file": {json.dumps(self._name)}, ' if self._name != VALUES else ""
        outputs = f'"outputs": {json.dumps(self._outputs)}, ' if self._outputs else ""
        return f'{_BEGIN.decode()}, "version": 1, {file}{outputs}"values": [\n  {values}\n]}}\n'


def values_files(folder: Path) -> list[Path]:
    """Return the files of tensors in a folder whose index is ours."""
    try:
        with (folder / INDEX).open("rb") as file:
            is_ours = file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return []
    return [p for p in folder.glob("values*.bin") if is_ours and is_values_name(p.name)]


def free_name(folder: Path) -> str:
    """Return a name for the file of tensors that nothing in the folder has."""
    names = (f"values.{n}.bin" if n else VALUES for n in count())
    return next(name for name in names if not os.path.lexists(folder / name))


def make_folder(folder: Path, named: Path | None = None) -> bool:
    """Create a folder unless it exists; return whether it was created. named: what messages call it."""
    named = named or folder
    try:
        folder.mkdir()
    except FileExistsError as error:
        if not folder.is_dir():
            raise WriteError(
                f"{str(named)!r} already exists and is not a folder", "choose another name"
            ) from error
        real_place(named)
        return False
    except OSError as error:
        hint = command("mkdir", "-p", str(folder.parent))
        raise WriteError(
            f"cannot create folder {str(named)!r}: {error.strerror}",
            f"create its parent first: {hint}"
            if not folder.parent.is_dir()
            else "write elsewhere with -o",
        ) from error
    return True


def _stored_bytes(value: Array) -> bytes | memoryview:
    if value.dtype.kind in "OUS":
        return bytes(dtypes.from_array(value).SerializeToString())
    return dtypes.payload(value)


def save_tensors(path: str | Path, values: Mapping[str, Stored]) -> None:
    """Store tensors as `.npz` or `.safetensors` if the path says so, otherwise as our own folder.

    Args:
        path: where to write.
        values: name -> array, or a list of arrays.

    Raises:
        ReferenceSetError: the format cannot hold one of them; nothing is written.

    Example:
        >>> from pathlib import Path
        >>> osl.save_tensors(Path("ones.npz"), {"x": np.ones(3, np.float32)})
        >>> osl.open_references("ones.npz").read("x").shape
        (3,)
    """
    save_stream(path, values.items())


def save_stream(path: str | Path, values: Iterable[tuple[str, Stored]]) -> int:
    """Store tensors as `save_tensors` does, as they come; return how many. `.safetensors` are collected in memory.

    Raises:
        ReferenceSetError: the format cannot hold one of them; nothing is written.
    """
    path = placed(path)
    if isinstance(path, Remote):
        with TemporaryFolder() as folder:
            stored = save_stream(Path(folder, path.name), values)
            _upload(Path(folder, path.name), path)
        return stored
    if path.suffix not in (".npz", ".safetensors"):
        stored = 0  # our own folder
        with FolderWriter(path) as writer:
            for name, value in values:
                writer.add(name, value)
                stored += 1
        return stored
    with Staging() as staging:
        with staging.open(path) as file:
            write = _write_npz if path.suffix == ".npz" else _write_safetensors
            stored, unfit = write(file, values)
        if unfit:  # nothing is written then
            raise ReferenceSetError(
                f"{path.suffix} cannot hold {', '.join(map(repr, unfit[:5]))}",
                f"use a folder: leave out the suffix, {str(path.with_suffix(''))!r}",
            )
        staging.commit()
    return stored


def _upload(source: Path, target: Remote) -> None:
    """Write a file, or the files of a folder, its index last."""
    files = (
        # the index makes the folder valid, so it comes last
        [source] if source.is_file() else sorted(source.iterdir(), key=lambda f: f.name == INDEX)
    )
    for file in files:
        (target if file == source else target / file.name).upload(file)


def _write_npz(file: BinaryIO, values: Iterable[tuple[str, Stored]]) -> tuple[int, list[str]]:
    """Write like `np.savez`, which cannot store the names of its own arguments; return (count, what does not fit)."""
    stored, unfit = 0, list[str]()
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in values:
            stored += 1
            if not _fits_npz(name, value):
                unfit.append(name)
                continue
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)
    return stored, unfit


def _write_safetensors(
    file: BinaryIO, values: Iterable[tuple[str, Stored]]
) -> tuple[int, list[str]]:
    import safetensors.numpy

    collected = dict(values)
    # all at once: the format has its header first
    unfit = [name for name, value in collected.items() if not _fits_safetensors(name, value)]
    if not unfit:
        ordered = {name: np.asarray(value, order="C") for name, value in collected.items()}
        file.write(safetensors.numpy.save(ordered))
    return len(collected), unfit


def write_test_data(
    folder: Path,
    inputs: Mapping[str, Stored],
    outputs: Mapping[str, Stored],
    actual: Mapping[str, Stored] | None = None,
) -> None:
    """Store tensors as an ONNX `test_data_set_N` folder: `input_0.pb`, ..., `output_0.pb`, each with its name.

    The outputs that a run gave instead are stored as `actual_0.pb`, ..., which readers skip.
    """
    make_folder(folder)
    with Staging() as staging:
        for kind, values in (("input", inputs), ("output", outputs), ("actual", actual or {})):
            for number, (name, value) in enumerate(values.items()):
                with staging.open(folder / f"{kind}_{number}.pb") as file:
                    file.write(_proto(name, value).SerializeToString())
        staging.commit()


def _proto(name: str, value: Stored) -> TensorProto | SequenceProto:
    if not isinstance(value, list):
        return dtypes.from_array(value, name)
    sequence = SequenceProto(name=name, elem_type=SequenceProto.TENSOR)
    sequence.tensor_values.extend(map(dtypes.from_array, value))
    return sequence


def _fits_npz(name: str, value: Stored) -> bool:
    """Only numpy's own dtypes fit, and archive names end at a NUL."""
    if isinstance(value, list) or "\0" in name:  # a NUL would cut the name
        return False
    return value.dtype.isbuiltin == 1 and value.dtype.kind in "fiubc"  # ml_dtypes are not builtin


def _fits_safetensors(name: str, value: Stored) -> bool:
    if isinstance(value, list) or name == "__metadata__":
        return False
    return dtypes.dtype_name(dtypes.data_type_of_numpy(value.dtype)) in SAFETENSORS.values()
