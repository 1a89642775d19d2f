"""A folder that shows the mismatch with the culprit alone, to attach to a bug report."""

from pathlib import Path

import numpy as np
from onnx import TypeProto, helper

from onnxsurgeon_lite import tensors
from onnxsurgeon_lite.bisection.result import BisectResult
from onnxsurgeon_lite.cut import close
from onnxsurgeon_lite.errors import OutputExistsError, WriteError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, movable, save
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.passes.extract import submodel
from onnxsurgeon_lite.references import make_folder, write_test_data
from onnxsurgeon_lite.references.sets import Stored


def require_free(folder: Path, force: bool = False) -> None:
    """Raise `OutputExistsError` if something stands where the folder is to be written."""
    if folder.exists() and not force and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputExistsError(
            f"{str(folder)!r} is there already", "choose another -o, or overwrite it with --force"
        )
    if not folder.parent.is_dir():
        raise WriteError(
            f"there is no folder {str(folder.parent)!r} to write {folder.name!r} in",
            f"make it first: {command('mkdir', '-p', str(folder.parent))}",
        )


def write_reproducer(model: Model, result: BisectResult, folder: Path) -> Path:
    """Write `model.onnx`, the culprit and nothing more, and `test_data_set_0`: inputs, and outputs as referenced.

    Inputs are the references' own where they have them in the model's dtype, else this run's.
    """
    culprit = result.culprits[0]
    index = GraphIndex.of(model)
    inputs = {name: _input(result, name) for name in culprit.inputs}
    outputs = {
        name: stored
        for name in (culprit.value, *culprit.outputs)
        if (stored := result.tensors[name][0]) is not None
    }
    for name, (_, actual) in result.tensors.items():
        if isinstance(actual, np.ndarray):
            index.types.setdefault(name, _type(actual))
    part = submodel(index, close(index, tuple(inputs), tuple(outputs)))
    part.proto.graph.name = f"culprit {culprit.id}"
    make_folder(folder)
    save(part, folder / "model.onnx", movable(part), force=True)
    given = {name: value for name, value in inputs.items() if value is not None}
    write_test_data(folder / "test_data_set_0", given, outputs)
    return folder


def _input(result: BisectResult, name: str) -> Stored | None:
    stored, actual = result.tensors[name]
    if isinstance(stored, np.ndarray) and isinstance(actual, np.ndarray):
        same = stored.dtype == actual.dtype and stored.shape == actual.shape
        return stored if same else actual
    return actual if actual is not None else stored


def _type(array: tensors.Array) -> TypeProto:
    data_type = tensors.data_type_of_numpy(array.dtype)
    return helper.make_tensor_type_proto(data_type, array.shape)


def command_words(folder: Path) -> list[str]:
    """The command that shows the mismatch."""
    model, tensors_folder = folder / "model.onnx", folder / "test_data_set_0"
    return ["onnxdbg", "compare", str(model), str(tensors_folder), "--opt", "none"]
