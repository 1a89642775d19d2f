"""Load a `Model` from a path; only the structure is read."""

import os
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from itertools import chain
from os import PathLike
from pathlib import Path, PosixPath
from typing import Protocol, runtime_checkable

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, TensorProto

from onnxsurgeon_lite.errors import ExternalDataError, ModelFileError, SurgeonError, UsageError
from onnxsurgeon_lite.model.calls import check_functions
from onnxsurgeon_lite.model.datafile import DataFile, locate
from onnxsurgeon_lite.model.formats import parsed, text_format
from onnxsurgeon_lite.model.messages import entries
from onnxsurgeon_lite.model.model import Model, external_tensors, refer, refers
from onnxsurgeon_lite.model.wire import skeleton
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.remote import Remote, placed
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.untrusted import json_of

PACKAGE = "genai_config.json"
_INT32 = 1 << 31
_ANOTHER_KIND = "this happens with another kind of protobuf (a tensor of a test_data_set, say) or a truncated file"


@runtime_checkable
class HoldsModel(Protocol):
    """A result that holds a model, such as that of an edit."""

    @property
    def model(self) -> Model:
        """The model."""
        ...


ModelLike = str | PathLike[str] | bytes | bytearray | memoryview | ModelProto | Model | HoldsModel


class HeldPath(PosixPath):
    """The path of a model that is in memory: `load` returns `model`."""

    model: Model | None = None


def load(path: str | PathLike[str]) -> Model:
    """Load a model's structure; tensors above `wire.LARGE` bytes stay in their files.

    Where a data file is missing, everything works that does not read its tensors.

    Args:
        path: the model's file (protobuf, textproto or JSON), or the folder of a language model package
            (`genai_config.json`) that has one model.

    Raises:
        ModelFileError: the file is missing, empty, a directory, truncated or not an ONNX model.
        ExternalDataError: external data is too short, or in a place that is refused.
        GraphError: a function calls itself.

    Example:
        >>> osl.load("whole_model.onnx").path.name
        'whole_model.onnx'
    """
    if isinstance(path, HeldPath) and path.model is not None:  # a session has edited it in memory
        return path.model
    path = placed(path)
    try:
        # a folder with a configuration is a package
        if not isinstance(path, Remote) and path.is_dir() and (path / PACKAGE).is_file():
            path = _of_package(path)
        source = DataFile.of(path.resolve(strict=True))
        if path.is_dir():
            raise ModelFileError(f"{str(path)!r} is a directory, not a model", _inside(path))
        if not source.path.is_file():
            raise ModelFileError(f"{str(path)!r} is not a regular file")
        if path.suffix == ".py":
            raise ModelFileError(
                f"{str(path)!r} is a Python file, not a model",
                f"record takes the PyTorch module that a function returns: {path}:FUNCTION",
            )
        key, text = source.key, text_format(path)
        # large tensors become references into the file itself
        data = parsed(source.path, text) if text else skeleton(source.path, key)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no path
        why = getattr(error, "strerror", error)
        raise ModelFileError(f"cannot read {str(path)!r}: {why}", _nearby(path)) from error
    model = Model(_parse(data, path), {key: source}, path)
    # tensors in other files, and the references that were just made
    for tensor in external_tensors(model.proto) if refers(data) else ():
        _resolve(model, tensor, path.absolute().parent)
    source.verify()  # nothing changed while it was read
    model.loaded = None if text else hash(model.encoded())  # a text is written anew
    return model


def _of_package(folder: Path) -> Path:
    """Return the one model that a package's configuration names; anybody may have written it."""
    pending: list[object] = [json_of(folder / PACKAGE, folder).get("model")]
    names = dict[str, None]()
    while pending:  # "filename" is at different depths, for each kind of package
        each = pending.pop()
        if isinstance(each, dict):
            if isinstance(name := each.get("filename"), str):
                names[name] = None
            pending += each.values()
        elif isinstance(each, list):
            pending += each
    if len(names) != 1:
        told = f"names {len(names)} models" if names else "names no model"
        files = first([str(folder / name) for name in sorted(names)], 4)
        hint = f"give one of them: {files}" if names else _inside(folder)
        raise ModelFileError(f"{PACKAGE} of {str(folder)!r} {told}", hint)
    (name,) = names
    path = folder / name
    # a name from a file must not lead out of the folder
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelFileError(
            f"{PACKAGE} of {str(folder)!r} names {name!r}, outside of its folder: refused"
        )
    return path


def loaded(model: ModelLike) -> Model:
    """Return a model that is given in any way: a path, a file's bytes, a `ModelProto`, a `Model`, an edit's result.

    Raises:
        ModelFileError: see `load`.
        ExternalDataError: a model in memory refers to data files, whose folder is unknown.
        UsageError: it is something else.
    """
    if isinstance(model, str | PathLike):
        return load(model)
    if (known := held(model)) is not None:
        return known
    if not isinstance(model, ModelProto | bytes | bytearray | memoryview):
        raise UsageError(
            f"a model cannot be given as {_kind(model)}",
            "give a path, bytes, a ModelProto, a Model or an edit's result; export a PyTorch module first",
        )
    proto = (
        model if isinstance(model, ModelProto) else _parse(bytes(model), Path("the bytes given"))
    )
    if any(external_tensors(proto)):  # without a folder, nobody knows where the data is
        raise ExternalDataError(
            "the model in memory refers to data files, and its folder is unknown",
            "give the model's path",
        )
    check_functions(proto)
    return Model(proto)


def held(given: object) -> Model | None:
    """Return the model that something is or holds."""
    known = given.model if isinstance(given, HoldsModel) else given
    return known if isinstance(known, Model) else None


def _kind(given: object) -> str:
    """Say what was given, in its own words where it has a short one."""
    if given is None:
        return "None"
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__


def _parse(data: bytes, path: Path) -> ModelProto:
    try:
        proto: ModelProto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelFileError(
            f"{str(path)!r} is not an ONNX model: {error}", _ANOTHER_KIND
        ) from error
    if not is_utf8(data):  # protobuf's parser accepts any bytes
        place, text = next(not_utf8(proto), ("text that was overwritten", b""))
        raise ModelFileError(
            f"{str(path)!r} is not an ONNX model: {place} is not UTF-8: {text[:40]!r}",
            "the specification requires UTF-8 text; decode it in Python, with onnx, and save it again",
        )
    imports = chain(proto.opset_import, *(f.opset_import for f in proto.functions))
    odd = [  # versions that onnx's own functions would overflow at
        v
        for v in (proto.ir_version,) + tuple(o.version for o in imports)
        if not -_INT32 <= v < _INT32
    ]
    if odd:
        raise ModelFileError(
            f"{str(path)!r} is not an ONNX model: it has version {odd[0]}, beyond 32 bits"
        )
    if not proto.HasField("graph"):
        raise ModelFileError(f"{str(path)!r} is not an ONNX model: it has no graph", _ANOTHER_KIND)
    check_functions(proto)
    return proto


def _resolve(model: Model, tensor: TensorProto, folder: Path) -> None:
    """Point an external tensor to a key of `Model.files`, and check that its bytes exist."""
    place = entries(tensor.external_data)
    location = place.get("location", "")
    # the skeleton's references have the key as location, and the model's own file has none
    if location in model.files and model.files[location].location is None:
        file = model.files[location]  # embedded: the wire scan made this reference
    else:
        found = DataFile.at(locate(folder, location, tensor.name), location)
        file = model.files.setdefault(found.key, found)
    needed = _byte_count(tensor)
    try:
        offset = int(place.get("offset") or 0)
        length = int(place.get("length") or needed)  # both may be left out
    except ValueError as error:
        raise ExternalDataError(
            f"tensor {tensor.name!r} has an offset or length that is not a number"
        ) from error
    # a longer stretch than the tensor needs is allowed
    if offset < 0 or length < needed or (offset + length > file.size and not file.is_missing):
        raise ExternalDataError(
            f"tensor {tensor.name!r} needs {needed} bytes at offset {offset} of {file.path.name!r}, "
            f"which has {file.size}; the model says {length}",
            "was the file copied or downloaded completely?",
        )
    refer(tensor, file.key, offset, length)


def _byte_count(tensor: TensorProto) -> int:
    """Return the bytes that the tensor needs; 0 for a dtype that is newer than this library."""
    try:
        return dtypes.byte_count(tensor.data_type, tensor.dims)
    except SurgeonError:
        return 0


def _inside(folder: Path) -> str | None:
    models = sorted(folder.glob("*.onnx"))
    return f"it holds {str(models[0])!r}" if models else "give the model's file"


def _nearby(path: Path) -> str | None:
    if isinstance(path, Remote) or not os.path.isdir(path.parent):  # False of what is no path, too
        return None
    names = [other.name for other in path.parent.glob("*.onnx")]
    others = get_close_matches(path.name, names, 5, 0)  # the most similar first
    return f"models in that folder: {', '.join(others)}" if others else None


def is_utf8(data: bytes) -> bool:
    """Return whether all strings of a serialized, parsable model are UTF-8."""
    try:
        _strict_model().FromString(data)
    except DecodeError:
        return False
    return True


@cache
def _strict_model() -> type[Message]:
    """Return onnx's model message in a protobuf edition whose parser checks UTF-8.

    Its fields are not repeated: each item is parsed over the one before, which needs no memory.
    """
    file = descriptor_pb2.FileDescriptorProto()
    ModelProto.DESCRIPTOR.file.CopyToProto(file)
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    features = descriptor_pb2.FeatureSet
    file.options.features.utf8_validation = features.VERIFY
    file.options.features.enum_type = features.CLOSED
    for message in file.message_type:
        for field in message.field:
            field.label = field.LABEL_OPTIONAL
            field.ClearField("options")  # `packed` is a feature in editions
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("onnx.ModelProto")
    )
    return found


def not_utf8(message: Message, place: str = "") -> Iterator[tuple[str, bytes]]:
    """Yield each string that is not UTF-8: its path (`graph.node[3].name`) and its bytes."""
    for field, value in message.ListFields():
        values = list(value) if field.is_repeated else [value]
        for number, item in enumerate(values):
            here = f"{place}{field.name}" + (f"[{number}]" if field.is_repeated else "")
            if field.message_type is not None:  # messages in it, with their path in front
                yield from not_utf8(item, f"{here}.")
            elif field.type == field.TYPE_STRING and isinstance(item, bytes):
                yield here, item
