"""Where in the source program a node comes from, as its exporter wrote it down."""

import ast
from collections.abc import Mapping

from onnx import NodeProto


def scope_of(node: NodeProto) -> str:
    """The module path of a node, dotted (`encoder.layer.4`), or '' where the exporter left none.

    The dynamo exporter writes `pkg.torch.onnx.name_scopes`, a list from the root module to the node itself;
    TorchScript-style node names are paths (`/encoder/layer.4/Add`).
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes = _name_scopes(metadata)
    if scopes:
        return max(scopes[:-1], key=len, default="")
    if node.name.startswith("/"):
        return ".".join(filter(None, node.name.split("/")[:-1]))
    return ""


def _name_scopes(metadata: Mapping[str, str]) -> list[str]:
    try:
        scopes = ast.literal_eval(metadata.get("pkg.torch.onnx.name_scopes", "[]"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(scope) for scope in scopes] if isinstance(scopes, list) else []
