"""Remove what tells of the author and the author's machine: documentation, metadata, training, unknown fields."""

from collections import Counter
from collections.abc import Iterator

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)

from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.model.messages import drop

_Documented = (
    ModelProto
    | GraphProto
    | FunctionProto
    | NodeProto
    | AttributeProto
    | TensorProto
    | ValueInfoProto
)


def remove_sources(proto: ModelProto) -> list[str]:
    """Remove, in place, everything that does not change what the model computes; return a line for each kind."""
    counts = Counter[str]()
    if proto.training_info:
        counts["training info"] = len(proto.training_info)
        del proto.training_info[:]
    size = proto.ByteSize()
    proto.DiscardUnknownFields()
    counts["bytes of unknown fields"] = size - proto.ByteSize()
    for message in _documented(proto):
        if message.HasField("doc_string"):
            message.ClearField("doc_string")
            counts["doc strings"] += 1
        if not isinstance(message, AttributeProto):
            counts.update(f"metadata {entry.key!r}" for entry in message.metadata_props)
            drop(message.metadata_props, lambda _: True)
    return [f"removed {kind}: {count}" for kind, count in counts.items() if count]


def _documented(proto: ModelProto) -> Iterator[_Documented]:
    yield proto
    nodes = []
    for graph in walk.graphs(proto):
        yield graph
        yield from graph.input
        yield from graph.output
        yield from graph.value_info
        nodes += graph.node
    for function in proto.functions:
        yield function
        yield from function.value_info
        yield from function.attribute_proto
        nodes += function.node
    for node in nodes:
        yield node
        yield from node.attribute
    yield from walk.tensors(proto)
