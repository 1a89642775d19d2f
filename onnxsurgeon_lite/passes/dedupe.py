"""Merge equal initializers."""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from onnx import GraphProto, TensorProto

from onnxsurgeon_lite.model import Model, drop, walk
from onnxsurgeon_lite.model.storage import fingerprint
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import (
    defined,
    drop_declarations,
    rename_parameters,
    rename_uses,
    trained,
)

Key = tuple[object, ...]


@dataclass(frozen=True)
class Dedupe:
    """Keep one of several initializers with equal dtype, shape, bytes and documentation; bodies use outer ones.

    Bytes are read only when another initializer has the same dtype and shape. Inputs with a default, outputs and
    initializers that training updates stay.

    Example:
        >>> osl.dedupe("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "dedupe"

    def apply(self, model: Model) -> PassResult:
        """Merge them.

        Raises:
            SourceChangedError: a weights file changed after loading.
        """
        result = model.copy()
        alike = Counter(map(_kind, walk.initializers(result.proto)))
        dropped = list[str]()
        # (graph, contents that it sees -> their name, names that stay)
        pending: list[tuple[GraphProto, dict[Key, str], set[str]]] = [
            (result.graph, {}, trained(result.proto))
        ]
        while pending:
            graph, visible, kept = pending.pop()
            local = set(defined(graph))
            # a name that the body defines itself hides the outer one
            visible = {key: name for key, name in visible.items() if name not in local}
            dropped += _merge(result, graph, alike, visible, kept)
            pending += ((body, visible, set()) for body in walk.inner(graph.node))
        return PassResult.of(model, result, dropped)


def _kind(tensor: TensorProto) -> Key:
    """Key of tensors whose bytes must be compared."""
    # entries of metadata count: a merged initializer keeps one set of them
    notes = (tensor.doc_string,) + tuple(
        (entry.key, entry.value) for entry in tensor.metadata_props
    )
    return tensor.data_type, tuple(tensor.dims), notes


def content(model: Model, tensor: TensorProto) -> Key:
    """Key of the tensor's contents."""
    return _kind(tensor) + (tuple(tensor.string_data) or fingerprint(model, tensor),)


def _merge(
    model: Model, graph: GraphProto, alike: Counter[Key], visible: dict[Key, str], kept: set[str]
) -> list[str]:
    """Drop initializers that equal an outer or earlier one; add the others to `visible`."""
    inputs = {value.name for value in graph.input} | kept
    outputs = {value.name for value in graph.output}
    names = dict[str, str]()
    named = Counter(tensor.name for tensor in graph.initializer)  # a repeated name is for `Fix`
    tensors = [
        t
        for t in graph.initializer
        if t.name not in inputs and alike[_kind(t)] > 1 and named[t.name] == 1
    ]
    for tensor in sorted(tensors, key=lambda t: t.name not in outputs):  # outputs are kept first
        key = content(model, tensor)
        if key not in visible:
            visible[key] = tensor.name
        elif tensor.name not in outputs:
            names[tensor.name] = visible[key]
    rename_uses(graph.node, names)
    rename_parameters(graph, names)
    drop(graph.initializer, lambda tensor: tensor.name in names)
    drop_declarations(graph, names)
    return [f"merged {old!r} into {new!r}" for old, new in names.items()]
