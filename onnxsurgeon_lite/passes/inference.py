"""Put BatchNormalization and Dropout into inference mode."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from onnx import FunctionProto, GraphProto, NodeProto, helper

from onnxsurgeon_lite.graph import described, opset_versions
from onnxsurgeon_lite.model import Model, assign, copied, drop, is_standard, walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import drop_declarations

_IS_TEST = 7  # below this opset, an attribute says that it is inference
_OPERATORS = ("BatchNormalization", "Dropout")


@dataclass(frozen=True)
class Inference:
    """Let every BatchNormalization and Dropout compute as in inference, in bodies and functions too.

    1. Before opset 7, `is_test` is 1.
    2. BatchNormalization has no `training_mode` and no statistics of the batch as outputs: what reads them reads the
       mean and variance that the model holds.
    3. Dropout has no input `training_mode`, so it passes on what it reads.

    Example:
        >>> osl.inference("whole_model.onnx").changed
        False
    """

    name: ClassVar[str] = "inference"

    def apply(self, model: Model) -> PassResult:
        """Change the nodes."""
        result = model.copy()
        main = opset_versions(result.proto.opset_import)
        changes = [
            line for graph in walk.graphs(result.proto) for line in _changed(graph, main.get("", 0))
        ]
        for function in result.proto.functions:
            # a function without imports of its own has the model's
            imported = opset_versions(function.opset_import) or main
            changes += _changed(function, imported.get("", 0))
        return PassResult.of(model, result, changes)


def _changed(graph: GraphProto | FunctionProto, opset: int) -> Iterator[str]:
    """Change the nodes of one graph; yield a line for each."""
    # values that something reads, in bodies too
    used = set(walk.output_names(graph)).union(
        *(node.input for node in walk.with_inner(graph.node))
    )
    dropped = set[str]()
    nodes = list[NodeProto]()
    for place, node in enumerate(graph.node):
        nodes.append(node)
        if node.op_type not in _OPERATORS or not is_standard(node) or not _trains(node, opset):
            continue
        drop(node.attribute, lambda a: a.name in ("training_mode", "is_test"))
        if opset < _IS_TEST:
            node.attribute.append(helper.make_attribute("is_test", 1))
        if node.op_type == "Dropout":
            del node.input[2:]
        else:
            # outputs: the result, the running mean and variance, then those of the batch
            held = zip(node.output[1:], [node.input[3], node.input[4]] * 2, strict=False)
            pairs = [(name, value) for name, value in held if name]
            del node.output[1:]
            # an Identity for statistics that are read
            nodes += (helper.make_node("Identity", [v], [n]) for n, v in pairs if n in used)
            dropped |= {name for name, _ in pairs if name not in used}
        yield f"{described(node, f'@{place}')} of {graph.name!r} computes as in inference"
    # copied first: the list is cleared under them
    if len(nodes) > len(graph.node):
        placed = [copied(node) for node in nodes]
        assign(graph.node, placed)
    if dropped and isinstance(graph, GraphProto):
        drop_declarations(graph, dropped)


def _trains(node: NodeProto, opset: int) -> bool:
    """Return whether a node may compute as in training."""
    attributes: Mapping[str, bool] = {a.name: bool(a.i or a.ref_attr_name) for a in node.attribute}
    if opset < _IS_TEST:
        return not attributes.get("is_test")
    # the third input of Dropout is training_mode
    if node.op_type == "Dropout":
        return len(node.input) > 2
    # several outputs mean training
    return any(node.output[1:]) or attributes.get("training_mode", False)
