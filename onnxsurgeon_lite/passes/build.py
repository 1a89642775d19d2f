"""Build a model from ONNX text syntax, with initializers from arrays on disk."""

from collections.abc import Mapping
from itertools import chain
from os import PathLike
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto

from onnxsurgeon_lite.errors import BuildError, UnknownNameError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    RejectedError,
    parse_message,
    parsed,
    tensor_type,
    type_text,
)
from onnxsurgeon_lite.graph.printing import require_said
from onnxsurgeon_lite.model import DataFile, Model, entries, refer, walk
from onnxsurgeon_lite.model.wire import LARGE
from onnxsurgeon_lite.surgery import contradicts
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.untrusted import require_regular

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
"""The header that a text without one gets."""


def parse_text(text: str, like: ModelProto | None = None) -> Model:
    """Parse ONNX text syntax; a bare graph gets the default IR and opset version, or those of another model."""
    usual = HEADER if like is None else _header(like)
    # "<" starts a header: <ir_version: ...>
    header = "" if text.lstrip().startswith("<") else usual
    try:
        proto = parsed(header + text)
    except RejectedError as error:
        raise BuildError(
            f"the text is not a model: {parse_message(str(error), header)}",
            "see the syntax with: onnxdbg print MODEL",
        ) from error
    require_said(proto)
    elided = [t.name for t in walk.tensors(proto) if _is_elided(t)]
    if elided:
        raise BuildError(
            f"the text elides the numbers of {len(elided)} tensors, such as {elided[0]!r}",
            "keep them in a file: onnxdbg print MODEL --weights FILE, and build --weights FILE",
        )
    return Model(proto)


def _is_elided(tensor: TensorProto) -> bool:
    """Return whether a printed tensor names neither numbers nor a file."""
    # a printed tensor whose numbers were elided keeps a marker where a file would name its location
    keys = entries(tensor.external_data)
    return bool(keys) and "location" not in keys


def _header(like: ModelProto) -> str:
    imports = ", ".join(f'"{o.domain}" : {o.version}' for o in like.opset_import)
    return f"<ir_version: {like.ir_version}, opset_import: [{imports}]>\n"


def add_initializers(model: Model, files: Mapping[str, str | PathLike[str] | Array]) -> Model:
    """Add arrays, or those of `.npy` files, as initializers; one with the name of an input replaces it.

    Large arrays stay in their files until the model is saved.
    """
    if not files:
        return model
    result = model.copy()
    graph = result.graph
    index = GraphIndex.of(result)
    for name, given in files.items():
        # a constant that nothing reads is a slip
        if name not in index.inputs and name not in index.consumers and name not in index.outputs:
            known = dict.fromkeys(chain(index.inputs, index.consumers))
            raise UnknownNameError(name, f"graph {graph.name!r}", known)
        if isinstance(given, np.ndarray):
            path = Path("the array given")
            tensor = dtypes.from_array(given, name)
        else:
            path = Path(given)
            tensor = _tensor(result, name, path)
        # one for a declared input takes its place
        declared = index.inputs.get(name)
        if declared is not None:
            _require_fit(tensor, declared.type, path)
            graph.input.remove(declared)
        graph.initializer.append(tensor)
    return result


def _tensor(model: Model, name: str, path: Path) -> TensorProto:
    try:
        array = np.load(require_regular(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BuildError(
            f"cannot read initializer {name!r} from {str(path)!r}: {error}",
            "write it with numpy.save",
        ) from error
    # small, or not as `raw_data` lays numbers out: the array itself; else the model refers to the file
    if (
        not isinstance(array, np.memmap)
        or array.nbytes <= LARGE
        or not (
            # in the layout of `raw_data`
            array.flags.c_contiguous and array.dtype.isnative and array.dtype.kind in "fiubc"
        )
    ):
        return dtypes.from_array(np.ascontiguousarray(array), name)
    file = DataFile.of(path.resolve())
    key = file.key
    model.files[key] = file
    data_type = dtypes.data_type_of_numpy(array.dtype)
    tensor = TensorProto(name=name, data_type=data_type, dims=array.shape)
    refer(tensor, key, array.offset, array.nbytes)
    return tensor


def _require_fit(tensor: TensorProto, declared: TypeProto, path: Path) -> None:
    if contradicts(declared, tensor_type(tensor)):
        have = f"{dtypes.dtype_name(tensor.data_type)} {list(tensor.dims)}"
        text = type_text(declared)
        raise BuildError(f"{str(path)!r} holds {have}, {tensor.name!r} is declared as {text}")
