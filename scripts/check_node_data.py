"""Prove that `--node-data` names nodes as model-explorer does: `python scripts/check_node_data.py MODEL.onnx...`.

Needs model-explorer: pip install ai-edge-model-explorer model-explorer-onnx.
"""

import sys

import onnx
from model_explorer.node_data_builder import GraphNodeData, ModelNodeData, NodeDataResult
from model_explorer_onnx.main import ONNXAdapter

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.report.page.data import Measure
from onnxsurgeon_lite.report.page.node_data import node_data


def check(path: str) -> None:
    """Compare ids, and the file's form with what model-explorer's own builder writes."""
    index = GraphIndex.of(osl.load(path))
    count = len(index.nodes)
    measure = Measure(
        *("Error", "max abs", "allowed", 0, [*range(count)], [""] * count),
        *([1.0] * count, [None] * count, [False] * count),
    )
    written = node_data(index, measure)
    (graph,) = written
    shown = ONNXAdapter().convert(path, {})["graphs"][0]
    known = {node.id: node.label for node in shown.nodes}
    ids = written[graph]["results"]
    assert graph == shown.id, (graph, shown.id)
    assert len(ids) == count, "two nodes have one id"
    for node, node_id in zip(
        onnx.load(path, load_external_data=False).graph.node, ids, strict=True
    ):
        assert known[node_id].endswith(node.op_type), (node_id, known.get(node_id), node.op_type)
    theirs = ModelNodeData({graph: GraphNodeData({i: NodeDataResult(1.0) for i in ids})})
    assert onnx_free(theirs.to_json_string()).keys() == written.keys()
    print(f"{path}: {count} nodes are called as model-explorer calls them")


def onnx_free(text: str) -> dict[str, object]:
    """Read JSON."""
    import json

    return json.loads(text)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        check(each)
