"""Summarize a model, one node or one value, or print the model as text; no weight is read."""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite import names
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.bodies import enter, iterations_in
from onnxsurgeon_lite.graph.index import GraphIndex, symbols_of
from onnxsurgeon_lite.graph.printing import print_model
from onnxsurgeon_lite.graph.schemas import constant
from onnxsurgeon_lite.graph.scopes import UNKNOWN
from onnxsurgeon_lite.graph.text import attribute_texts, operator_text, type_text
from onnxsurgeon_lite.model import Model, copied, entries, function_key, walk
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors import dtypes

ELIDED_ABOVE = 16  # elements
_SHOWN = 64  # elements of a constant that is shown whole


@dataclass
class ValueSummary:
    """A value with its type, and the nodes around it if requested.

    `kind` is `input`, `initializer`, `constant input` (an input with a default) or `produced`; `producer` and
    `consumers` are texts like `Conv 'name' (@3)`; `numbers` is the text of a small constant.
    """

    name: str
    type: str
    kind: str = ""
    producer: str | None = None
    consumers: list[str] = field(default_factory=list)
    is_output: bool = False
    numbers: str = ""
    scope: str = ""
    class_name: str = ""
    source: str = ""


@dataclass(repr=False)
class NodeSummary(Shown):
    """A node: its type, inputs, outputs and origin."""

    id: str
    name: str
    op_type: str
    domain: str
    inputs: list[ValueSummary]
    outputs: list[ValueSummary]
    captured: list[str]
    attributes: dict[str, str]
    bodies: dict[str, int]
    scope: str
    class_name: str
    source: str
    doc_string: str
    metadata: dict[str, str]


@dataclass(repr=False)
class ModelSummary(Shown):
    """A model at a glance.

    Attributes:
        parameters: elements of all initializers. parameter_bytes: their size. data_files: the external ones.
        ops: operator -> count, bodies and functions included. nodes: of the main graph only.
        subgraphs: graphs nested in nodes. dynamic_dims: symbolic dimensions of the inputs.
    """

    path: str
    ir_version: int
    producer: str
    graph: str
    opsets: dict[str, int]
    inputs: list[ValueSummary]
    outputs: list[ValueSummary]
    nodes: int
    parameters: int
    parameter_bytes: int
    data_files: list[str]
    ops: dict[str, int]
    functions: list[str]
    subgraphs: int
    dynamic_dims: list[str]
    metadata: dict[str, str]
    doc_string: str


class OperatorCounts(ModelSummary):
    """A model's summary, shown as its operators."""


class ValueSummaries(Shown, list[ValueSummary]):
    """Values, one after another."""

    def contract(self) -> object:
        """Return one value as an object, several as a list."""
        return self[0] if len(self) == 1 else list(self)


def summarize(model: Model) -> ModelSummary:
    """Summarize a model."""
    proto = model.proto
    graphs = list(walk.graphs(proto))
    inputs = [ValueSummary(v.name, type_text(v.type), "input") for v in proto.graph.input]
    outputs = [ValueSummary(v.name, type_text(v.type), is_output=True) for v in proto.graph.output]
    # weights and nodes of all bodies; nodes of functions, too
    weights = list(walk.initializers(proto))
    nodes = list(walk.nodes(walk.holders(proto)))
    ops = Counter(operator_text(node.domain, node.op_type) for node in nodes)
    symbols = symbols_of(proto.graph.input)
    # what the header says, then the graph, then what is counted
    return ModelSummary(
        path=str(model.path or ""),
        ir_version=proto.ir_version,
        producer=" ".join(filter(None, (proto.producer_name, proto.producer_version))),
        graph=proto.graph.name,
        opsets={opset.domain or "ai.onnx": opset.version for opset in proto.opset_import},
        inputs=inputs,
        outputs=outputs,
        nodes=len(proto.graph.node),
        parameters=sum(math.prod(tensor.dims) for tensor in weights),
        parameter_bytes=sum(map(_bytes, weights)),
        data_files=sorted(f.location for f in model.files.values() if f.location is not None),
        ops=dict(ops.most_common()),
        functions=["::".join(filter(None, function_key(f))) for f in proto.functions],
        subgraphs=len(graphs) - 1,
        dynamic_dims=list(dict.fromkeys(filter(None, symbols))),
        metadata=entries(proto.metadata_props),
        doc_string=proto.doc_string,
    )


def summarize_node(index: GraphIndex, position: int) -> NodeSummary:
    node = index.nodes[position]
    # what it reads besides is captured by its bodies
    direct = set(node.input)
    origin = index.origins[position]
    return NodeSummary(
        id=index.node_id(position),
        name=node.name,
        op_type=node.op_type,
        domain=node.domain,
        inputs=[summarize_value(index, name) for name in node.input if name],
        outputs=[summarize_value(index, name) for name in node.output if name],
        captured=[name for name in index.reads[position] if name not in direct],
        attributes=attribute_texts(node),
        bodies={name: len(graph.node) for name, graph in walk.bodies(node)},
        scope=origin.scope,
        class_name=origin.class_name,
        source=origin.source,
        doc_string=node.doc_string,
        metadata=entries(node.metadata_props),
    )


def summarize_value(index: GraphIndex, name: str) -> ValueSummary:
    """Summarize one value of the main graph, or of a body (`@12/body/q`).

    Raises:
        UnknownNameError: there is no such body or value.
    """
    index, name = enter(index, name)  # in a body, the rest of the name is a value of it
    path = index.model.enclosing.path
    if path:
        name, _ = iterations_in(index, name)  # `q[3]` is `q` at iteration 3
    index.require(name)
    position = index.producer.get(name)
    kinds = ["input"] if name in index.inputs else []  # an input with a default is both
    kinds += ["initializer"] if name in index.initializers else []
    kinds += ["produced"] if position is not None else []

    origin = UNKNOWN if position is None else index.origins[position]
    return ValueSummary(
        name=path + name,
        type=type_text(index.type_of(name)),
        kind=" and ".join(kinds),
        producer=None if position is None else index.describe(position),
        consumers=list(map(index.describe, index.users(name))),
        is_output=name in index.outputs,
        numbers=_numbers(index, name),
        scope=origin.scope,
        class_name=origin.class_name,
        source=origin.source,
    )


def _numbers(index: GraphIndex, name: str) -> str:
    """Return the numbers of a small constant; '' for a large one, and for one that cannot be read."""
    tensor = constant(index, name)
    if tensor is None or math.prod(tensor.dims) > _SHOWN:
        return ""
    try:
        array = index.model.array(tensor)
    except (SurgeonError, OSError):
        return ""
    text = np.array2string(array, separator=", ", threshold=_SHOWN + 1, formatter={"all": str})
    return " ".join(text.split())


def model_text(model: Model) -> str:
    """Return the model in ONNX text syntax, weights omitted."""
    proto = copied(model.proto)
    for tensor in walk.tensors(proto):
        if math.prod(tensor.dims) > ELIDED_ABOVE:  # large tensors are elided
            _elide(tensor)
    return names.shown_text(print_model(proto))


def _elide(tensor: TensorProto) -> None:
    """Replace the payload by a note of its size: the text syntax shows the entries of an external tensor."""
    elided = TensorProto(
        name=tensor.name,
        dims=tensor.dims,
        data_type=tensor.data_type,
        data_location=TensorProto.EXTERNAL,
    )
    elided.external_data.add(key="elided", value=f"{_bytes(tensor)} bytes")
    tensor.CopyFrom(elided)


def _bytes(tensor: TensorProto) -> int:
    if tensor.data_type == TensorProto.STRING:
        return sum(map(len, tensor.string_data))
    try:
        return dtypes.byte_count(tensor.data_type, tensor.dims)
    except SurgeonError:
        return 0
