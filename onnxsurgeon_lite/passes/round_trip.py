"""Print a model so that it can be built again: weights, and what text cannot say, go into a `.safetensors` file.

The file holds the payload of each tensor that the text elides, under its name, and the structure. What the text says
as the structure says it is taken from there, with its metadata; what was edited is taken from the text.
"""

from collections.abc import Hashable, MutableSequence
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxsurgeon_lite.errors import BuildError, GraphError
from onnxsurgeon_lite.graph import RejectedError, parse_message, parsed
from onnxsurgeon_lite.graph.printing import print_model, require_said
from onnxsurgeon_lite.graph.summary import ELIDED_ABOVE
from onnxsurgeon_lite.model import (
    Model,
    copied,
    drop,
    entries,
    is_external,
    take_fields,
    unknown_fields,
    walk,
)
from onnxsurgeon_lite.names import shown_text
from onnxsurgeon_lite.surgery import describe_like, fresh
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.references import ReferenceSet, open_references, save_tensors
from onnxsurgeon_lite.tensors.references.reading import SAFETENSORS

_STRUCTURE = "onnx.structure"
_KEY = "weights"
_FIELD = "field"
_IN_TEXT = (
    "float",
    "double",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
_HEADER = ("producer_name", "producer_version", "domain", "doc_string")
_UNSAID = {
    *_HEADER, "sparse_initializer", "quantization_annotation", "training_info", "device_configurations", "denotation",
}  # fmt: skip
_PARTS = (
    "graph", "functions", "node", "input", "output", "value_info", "initializer", "attribute", "g", "graphs",
    "type", "tensor_type", "shape", "dim",
)  # fmt: skip
"""Fields whose messages have what text cannot say, too."""


def print_with_weights(model: Model, path: Path) -> str:
    """Return a model in ONNX text syntax, and write what it elides to a file.

    Raises:
        GraphError: the model cannot be printed, or a name cannot be.
    """
    structure = copied(model.proto)
    arrays = dict[str, dtypes.Array]()
    taken = {_STRUCTURE}
    # what text elides or does not hold goes into the file, under a name of its own
    for tensor in walk.tensors(structure):
        if _is_stored(tensor):
            key = fresh(tensor.name or "tensor", taken)
            held = dtypes.dtype_name(tensor.data_type) in SAFETENSORS.values()
            # safetensors has this dtype: the array; else its bytes
            raw = np.frombuffer(b"" if held else model.raw(tensor), np.uint8)
            arrays[key] = model.array(tensor) if held else raw
            _refer(tensor, key)
    # the structure, without the payloads, is one more tensor
    arrays[_STRUCTURE] = np.frombuffer(structure.SerializeToString(), np.uint8)
    text = _printed(structure)
    # a text with control characters would not be read as it was written
    if shown_text(text) != text:
        raise GraphError(
            "a name, or a string of a tensor, has control characters, which text cannot hold",
            "rename it: onnxdbg edit rename; a tensor of such strings cannot be printed",
        )
    save_tensors(path, arrays)
    return text


def build_with_weights(text: str, path: Path) -> Model:
    """Build the model of a text and its file.

    Raises:
        BuildError: the text is no model, or the file lacks one of its tensors.
    """
    try:
        edited = parsed(text)
    except RejectedError as error:
        raise BuildError(f"the text is not a model: {parse_message(str(error))}") from error
    stored = open_references(path)
    if _STRUCTURE in stored:
        try:
            structure = ModelProto.FromString(_bytes(stored, _STRUCTURE))
            # what was edited, what text said of the original, the original
            _restored(edited, parsed(_printed(structure)), structure)
        except (DecodeError, RejectedError) as error:
            raise BuildError(f"{str(path)!r} holds no structure that can be read") from error
    require_said(edited)
    for tensor in walk.tensors(edited):
        key = entries(tensor.external_data).get(_KEY)
        if key is not None:
            _fill(tensor, key, stored)
    return Model(edited)


def _is_stored(tensor: TensorProto) -> bool:
    """Return whether the payload is in the file: a large one, and one of a dtype that text does not hold."""
    kind = dtypes.dtype_name(tensor.data_type)
    large = np.prod(tensor.dims) > ELIDED_ABOVE
    return kind != "string" and bool(large or is_external(tensor) or kind not in _IN_TEXT)


def _printed(structure: ModelProto) -> str:
    """Print a model; what its header has in several lines is in the structure alone."""
    # multi-line headers cannot be printed
    said = copied(structure)
    for field in _HEADER:
        if not getattr(said, field).isprintable():
            said.ClearField(field)
    drop(said.metadata_props, lambda entry: not (entry.key + entry.value).isprintable())
    return print_model(said)


def _refer(tensor: TensorProto, key: str) -> None:
    """Replace a payload by the name under which it is stored."""
    elided = TensorProto(dims=tensor.dims, data_type=tensor.data_type)
    if tensor.HasField("name"):
        elided.name = tensor.name
    elided.data_location = TensorProto.EXTERNAL
    elided.external_data.add(key=_KEY, value=key)
    field = helper.tensor_dtype_to_field(tensor.data_type)
    # the form of the payload is noted: raw bytes or numbers
    if getattr(tensor, field):  # numbers of quantizers often are no raw data
        elided.external_data.add(key=_FIELD, value=field)
    describe_like(elided, tensor)
    tensor.CopyFrom(elided)


def _fill(tensor: TensorProto, key: str, stored: ReferenceSet) -> None:
    if key not in stored:
        raise BuildError(
            f"{str(stored.place)!r} has no tensor {key!r}", "give the file of this text"
        )
    raw = _bytes(stored, key)
    if len(raw) != dtypes.byte_count(tensor.data_type, tensor.dims):
        raise BuildError(f"{key!r} does not have the size of tensor {tensor.name!r}")
    is_typed = _FIELD in entries(tensor.external_data)
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    if is_typed:
        field = helper.tensor_dtype_to_field(tensor.data_type)
        getattr(tensor, field).extend(_numbers(raw, tensor.data_type, field))
    else:
        tensor.raw_data = raw


def _numbers(raw: bytes, data_type: int, field: str) -> list[float]:
    """Return the elements of a typed field; of what is no integer, `int32_data` holds the bits."""
    kind = dtypes.numpy_dtype(data_type)
    # float16 and bool are integers in `int32_data`
    if field == "int32_data" and kind.kind not in "iu":
        kind = np.dtype(f"u{kind.itemsize}")
    # a complex number is two floats
    if kind.kind == "c":
        kind = np.dtype(f"f{kind.itemsize // 2}")
    return list(np.frombuffer(raw, kind).tolist())


def _bytes(stored: ReferenceSet, key: str) -> bytes:
    array = stored.read(key)
    assert dtypes.is_array(array)  # the format holds nothing else
    return bytes(dtypes.payload(array))


def _restored(edited: Message, plain: Message, own: Message) -> None:
    """Give an edited message all that was not edited, and what text cannot say of it.

    Args:
        plain: its original as text says it.
        own: its original.
    """
    # not edited: the original, with all that text cannot say
    if edited.SerializeToString() == plain.SerializeToString():
        edited.CopyFrom(own)
        return
    # fields that both text and structure have are compared part by part
    for field, value in own.ListFields():
        if field.name not in _PARTS or not field.message_type:
            continue
        sides = getattr(edited, field.name), getattr(plain, field.name), value
        if not isinstance(value, Message):
            _take_over(*sides)
        elif edited.HasField(field.name):
            _restored(*sides)
    # what text could have said, it would have
    said = {field.name for message in (edited, plain) for field, _ in message.ListFields()}
    take_fields(edited, own, _UNSAID - said)
    if "metadata_props" in own.DESCRIPTOR.fields_by_name:
        edited.metadata_props.extend(
            entry for entry in own.metadata_props if entry not in plain.metadata_props
        )
    edited.MergeFromString(unknown_fields(own))


def _take_over(
    edited: MutableSequence[Message],
    plain: MutableSequence[Message],
    structure: MutableSequence[Message],
) -> None:
    """Restore each message: by what text says, by its name, or by its place."""
    if len(plain) != len(structure):
        return  # text does not say all of them
    pairs = list(zip(plain, structure, strict=True))
    # (text of the original, original) by what the text says, by name, and by place if none was added or removed
    known = {pair[0].SerializeToString(): pair for pair in pairs}
    named = {_name(pair[0]): pair for pair in pairs}
    at = dict(enumerate(pairs)) if len(edited) == len(pairs) else {}
    for place, message in enumerate(edited):
        pair = known.get(message.SerializeToString()) or named.get(_name(message)) or at.get(place)
        if pair:
            _restored(message, *pair)


def _name(message: Message) -> Hashable:
    """Return what a message is known by among its kind; for one without a name, itself."""
    # a node is known by its outputs: many have no name
    if isinstance(message, NodeProto):
        return tuple(message.output)
    return getattr(message, "name", id(message))
