"""Mutants of serialized messages: first of their bytes, field by field, then of what they say.

A mutant follows from its seed alone, so that a number is enough to make it again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, TensorProto

_INTEGERS = (
    0,
    1,
    -1,
    2,
    7,
    63,
    64,
    65,
    1 << 31,
    -(1 << 31),
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
)
_FLOATS = (0.0, -0.0, 1.0, 1e38, -1e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "",
    "x",
    "../x",
    "/etc/passwd",
    "a\nb",
    "\x1b[31m",
    "[red]",
    "@0",
    "@1/body/x",
    "op:Add",
    "*",
    "ü",
    "x" * 5000,
)
_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
_DEEP = 40  # messages
_LARGE = 100_000  # bytes


@dataclass
class Field:
    """A field on the wire: `value` is a number, bytes, or the fields of a message."""

    number: int
    wire_type: int
    value: "int | bytes | list[Field]"
    head: bytes | None = field(default=None)  # a tag and length to write as they are
    tail: bytes = b""


def mutant(source: bytes, seed: str, kind: type[Message] = ModelProto) -> bytes:
    """Return a mutant of a serialized message."""
    random = Random(seed)
    if random.random() < 0.5:
        return _said(source, random, kind)
    return _written(source, random, kind.DESCRIPTOR)


def cut_and_flipped(source: bytes) -> Iterator[bytes]:
    """Yield every truncation of some bytes, then every flip of a bit."""
    for size in range(len(source)):
        yield source[:size]
    for place in range(len(source)):
        for bit in range(8):
            changed = bytearray(source)
            changed[place] ^= 1 << bit
            yield bytes(changed)


# on the wire


def _written(source: bytes, random: Random, kind: Descriptor) -> bytes:
    fields = _fields(source, kind)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        place = random.choice(list(_lists(fields)))
        random.choice(_ON_THE_WIRE)(place, random)
    data = _joined(fields)
    if random.random() < 0.1:
        return data[: random.randrange(len(data) + 1)]
    if random.random() < 0.1 and data:
        changed = bytearray(data)
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(changed)
    return data


def _fields(data: bytes, kind: Descriptor | None) -> list[Field]:
    """Split a valid message; messages in it too, as far as they are known."""
    found, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        value: int | bytes | list[Field]
        if wire_type == 0:
            value, at = _varint(data, at)
        elif wire_type == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            known = kind.fields_by_number.get(number) if kind else None
            if known is not None and known.message_type is not None:
                value = _fields(value, known.message_type)
        else:
            size = 8 if wire_type == 1 else 4
            value, at = data[at : at + size], at + size
        found.append(Field(number, wire_type, value))
    return found


def _lists(fields: list[Field]) -> Iterator[list[Field]]:
    if fields:
        yield fields
    for each in fields:
        if isinstance(each.value, list):
            yield from _lists(each.value)


def _delete(fields: list[Field], random: Random) -> None:
    del fields[random.randrange(len(fields))]


def _duplicate(fields: list[Field], random: Random) -> None:
    fields.insert(random.randrange(len(fields) + 1), random.choice(fields))


def _retag(fields: list[Field], random: Random) -> None:
    chosen = random.choice(fields)
    if random.random() < 0.5:
        chosen.number = random.choice((0, 1, 2, 3, 5, 9, 13, 25, 999, (1 << 29) - 1))
    else:
        chosen.wire_type = random.randrange(8)


def _relength(fields: list[Field], random: Random) -> None:
    chosen = random.choice(fields)
    size = len(_payload(chosen))
    wrong = random.choice((0, 1, size - 1, size + 1, 127, 1 << 31, (1 << 64) - 1))
    chosen.head = _encoded(chosen.number << 3 | 2) + _encoded(max(wrong, 0))


def _group(fields: list[Field], random: Random) -> None:
    chosen, number = random.choice(fields), random.choice((1, 7, 99))
    chosen.head = _encoded(number << 3 | 3) + _head(chosen, _payload(chosen))
    chosen.tail = _encoded((number if random.random() < 0.7 else 98) << 3 | 4)


def _groups(fields: list[Field], random: Random) -> None:
    deep = random.choice((1, 60, 120, 5000))
    fields.append(Field(9, 3, b"", b"\x4b" * deep, b"\x4c" * (deep - (random.random() < 0.2))))


def _overlong(fields: list[Field], random: Random) -> None:
    chosen = random.choice(fields)
    tag = _encoded(chosen.number << 3 | chosen.wire_type)
    longer = tag[:-1] + bytes((tag[-1] | 0x80, *[0x80] * random.choice((0, 3, 8, 12)), 0))
    chosen.head = longer + _head(chosen, _payload(chosen))[len(tag) :]


def _nest(fields: list[Field], random: Random) -> None:
    chosen = random.choice(fields)
    for _ in range(random.choice((2, 30, 120))):
        chosen.value = [Field(chosen.number, chosen.wire_type, chosen.value)]


def _swap(fields: list[Field], random: Random) -> None:
    random.shuffle(fields)


_ON_THE_WIRE: tuple[Callable[[list[Field], Random], None], ...] = (
    _delete, _duplicate, _retag, _relength, _group, _groups, _overlong, _nest, _swap,
)  # fmt: skip


def _joined(fields: list[Field]) -> bytes:
    parts = []
    for each in fields:
        payload = _payload(each)
        parts += _head(each, payload), payload, each.tail
    return b"".join(parts)


def _head(each: Field, payload: bytes) -> bytes:
    if each.head is not None:
        return each.head
    tag = _encoded(each.number << 3 | each.wire_type)
    return tag + _encoded(len(payload)) if each.wire_type == 2 else tag


def _payload(each: Field) -> bytes:
    match each.value:
        case int(number):
            return _encoded(number)
        case bytes(data):
            return data
        case fields:
            return _joined(fields)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes((*encoded, value))


# what it says


def _said(source: bytes, random: Random, kind: type[Message]) -> bytes:
    message = kind.FromString(source)
    for _ in range(random.choice((1, 1, 2, 4))):
        target = random.choice(list(_messages(message)))
        special = _SPECIAL.get(type(target).__name__, ())
        change = random.choice((_change_field, _change_field, _change_list, *special))
        change(target, random, message)
        if message.ByteSize() > _LARGE:
            break
    return bytes(message.SerializeToString())


def _messages(message: Message, depth: int = 0) -> Iterator[Message]:
    yield message
    for known, value in message.ListFields() if depth < _DEEP else ():
        if known.message_type is not None:
            for each in value if known.is_repeated else [value]:
                yield from _messages(each, depth + 1)


def _names(message: Message) -> list[str]:
    names = [name for each in _messages(message) for name in _texts(each)]
    return [*names, *_TEXTS]


def _texts(message: Message) -> Iterator[str]:
    for known, value in message.ListFields():
        if known.type == FieldDescriptor.TYPE_STRING:
            yield from value if known.is_repeated else [value]


def _scalar(known: FieldDescriptor, random: Random, root: Message) -> object:
    if known.type == FieldDescriptor.TYPE_STRING:
        return random.choice(_names(root))
    if known.type == FieldDescriptor.TYPE_BYTES:
        return random.randbytes(random.choice((0, 1, 3, 16, 2000)))
    if known.type == FieldDescriptor.TYPE_ENUM:
        return random.choice([value.number for value in known.enum_type.values])
    if known.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return random.choice(_FLOATS)
    number = random.choice(_INTEGERS)
    if known.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32):
        number = (number + (1 << 31)) % (1 << 32) - (1 << 31)
    return abs(number) % (1 << 32) if known.cpp_type in _UNSIGNED else number


def _change_field(message: Message, random: Random, root: Message) -> None:
    """Set, clear or add to any field, set or not."""
    known = random.choice(message.DESCRIPTOR.fields)
    if random.random() < 0.2:
        message.ClearField(known.name)
    elif known.message_type is not None:
        getattr(message, known.name).add() if known.is_repeated else getattr(
            message, known.name
        ).SetInParent()
    elif known.is_repeated:
        values = getattr(message, known.name)
        if values and random.random() < 0.6:
            values[random.randrange(len(values))] = _scalar(known, random, root)
        else:
            values.append(_scalar(known, random, root))
    else:
        setattr(message, known.name, _scalar(known, random, root))


def _change_list(message: Message, random: Random, root: Message) -> None:
    """Delete, repeat or exchange items."""
    filled = [known.name for known, value in message.ListFields() if known.is_repeated]
    if not filled:
        return
    values = getattr(message, random.choice(filled))
    place, other = random.randrange(len(values)), random.randrange(len(values))
    match random.randrange(3):
        case 0:
            del values[place]
        case 1:
            values.extend([values[place]] * random.choice((1, 2, 70)))
        case _:
            kept = list(values)
            kept[place], kept[other] = kept[other], kept[place]
            del values[:]
            values.extend(kept)


def _resize(tensor: TensorProto, random: Random, _: Message) -> None:
    tensor.dims[:] = random.choices(_INTEGERS, k=random.choice((0, 1, 2, 4, 65)))


def _retype(tensor: TensorProto, random: Random, _: Message) -> None:
    tensor.data_type = random.randrange(-1, 32)


def _repay(tensor: TensorProto, random: Random, _: Message) -> None:
    size = len(tensor.raw_data)
    tensor.raw_data = random.randbytes(random.choice((0, 1, size + 1, max(size - 1, 0), 5000)))


def _move(tensor: TensorProto, random: Random, root: Message) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    place = random.choice(
        ("../secret", "/etc/passwd", "weights.data", "", ".", "link", "pipe", "mutant.onnx")
    )
    tensor.external_data.add(key="location", value=place)
    for key in ("offset", "length"):
        if random.random() < 0.6:
            tensor.external_data.add(
                key=key, value=str(random.choice((*_INTEGERS, "x", "1e3", "9" * 5000)))
            )


def _read_itself(node: Message, random: Random, _: Message) -> None:
    if node.output:
        node.input.append(random.choice(node.output))


def _read_another(node: Message, random: Random, root: Message) -> None:
    node.input.append(random.choice(_names(root)))


def _other_operator(node: Message, random: Random, _: Message) -> None:
    node.op_type = random.choice((
        "Range", "ConstantOfShape", "Expand", "Tile", "Reshape", "Resize", "If", "Loop", "Scan", "Constant", "Identity",
        "Split", "Concat", "Pad", "Einsum", "QuantizeLinear", "SequenceAt", "Optional", "NonZero", "Nope",
    ))  # fmt: skip


def _attribute(node: Message, random: Random, _: Message) -> None:
    name = random.choice(
        ("axis", "axes", "value", "body", "to", "perm", "pads", "shape", "then_branch", "epsilon")
    )
    node.attribute.add(
        name=name,
        type=random.randrange(15),
        i=random.choice(_INTEGERS),
        ints=random.choices(_INTEGERS, k=2),
    )


def _call_itself(function: Message, random: Random, root: Message) -> None:
    node = function.node.add(op_type=function.name, domain=function.domain)
    node.input.extend(function.input)
    node.output.append("again")


def _body_in_itself(attribute: AttributeProto, random: Random, root: Message) -> None:
    if isinstance(root, ModelProto):
        attribute.type = AttributeProto.GRAPH
        attribute.g.ParseFromString(root.graph.SerializeToString())


_SPECIAL: dict[str, tuple[Callable[..., None], ...]] = {
    "TensorProto": (_resize, _retype, _repay, _move),
    "NodeProto": (_read_itself, _read_another, _other_operator, _attribute),
    "FunctionProto": (_call_itself,),
    "AttributeProto": (_body_in_itself,),
}
