"""Declarations of many values: most share a few types, and each of these is parsed once."""

from collections.abc import Callable, Iterable, Mapping, Set
from itertools import chain

from onnx import GraphProto, TypeProto

from onnxsurgeon_lite.model import drop

VALUE_INFO, OUTPUT, INPUT = "value_info", "output", "input"


def declared_types(
    graph: GraphProto,
    fields: Iterable[str] = (VALUE_INFO, OUTPUT),
    chosen: Callable[[TypeProto], bool] = lambda _: True,
) -> dict[str, TypeProto]:
    """Return copies of the types that a graph declares, to read, not to change: equal ones are the same object.

    Args:
        fields: those that hold declarations; of two of one value the later one counts.
        chosen: tells which types to return.
    """
    # serialized -> the type, None where it is not chosen
    kinds = dict[bytes, TypeProto | None]()
    found = dict[str, TypeProto]()
    for info in chain.from_iterable(getattr(graph, field) for field in fields):
        if not info.HasField("type"):
            continue
        # each different type is parsed once
        encoded = info.type.SerializeToString()
        if encoded not in kinds:
            kind = TypeProto.FromString(encoded)
            kinds[encoded] = kind if chosen(kind) else None
        # of two of one value the later one counts
        if (known := kinds[encoded]) is not None:
            found[info.name] = known
    return found


def declare_anew(
    graph: GraphProto,
    types: Mapping[str, TypeProto],
    gone: Set[str] = frozenset(),
    with_outputs: bool = False,
) -> None:
    """Give the value_info of a graph new types, its outputs too, and remove that of values in `gone` without one."""
    # values that are gone, then new types in the place of old ones
    if lost := gone - types.keys():
        drop(graph.value_info, lambda info: info.name in lost)
    for info in chain(graph.value_info, graph.output if with_outputs else ()):
        # fields besides the type stay as they are
        if (kind := types.get(info.name)) is not None:
            info.type.CopyFrom(kind)
