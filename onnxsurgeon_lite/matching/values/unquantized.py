"""A quantized model without its quantizers: the structure of the float model."""

from onnx import helper

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import Quantizers

_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "BatchNormalization")
"""Operators that a quantizer merges with the Relu behind them."""


def unquantized(index: GraphIndex) -> GraphIndex:
    """Return the model with a copy, or the Relu that it stands for, in place of each pair of quantizers.

    The values keep their names.
    """
    quantizers = Quantizers.of(index)
    if not quantizers.sources:
        return index
    model = index.model.copy()
    graph = model.proto.graph
    for name, source in quantizers.sources.items():
        grid = quantizers.grids[source]
        maker = index.nodes[index.producer[source]].op_type if source in index.producer else ""
        cuts = maker in _LINEAR and bool((grid.zero == grid.low).all())
        node = helper.make_node("Relu" if cuts else "Identity", [source], [name])
        node.metadata_props.extend(index.nodes[index.producer[name]].metadata_props)
        graph.node[index.producer[name]].CopyFrom(node)
    read = {name for node in graph.node for name in node.input} | index.outputs.keys()
    kept = [node for node in graph.node if read & set(node.output)]
    del graph.node[:]
    graph.node.extend(kept)
    return GraphIndex.of(model)
