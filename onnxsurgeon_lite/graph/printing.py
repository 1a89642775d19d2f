"""Print a model in ONNX text syntax, with what ONNX's printer drops, and so that ONNX's parser takes it."""

import re
from collections.abc import Iterable, Iterator

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

from onnxsurgeon_lite.errors import BuildError, GraphError
from onnxsurgeon_lite.graph.native import RejectedError, printed
from onnxsurgeon_lite.model import copied, is_external, walk

_UNSAID = "text cannot hold: "
_SPARSE = AttributeProto.SPARSE_TENSOR, AttributeProto.SPARSE_TENSORS
_GRAPHS = AttributeProto.GRAPH, AttributeProto.GRAPHS


def print_model(model: ModelProto) -> str:
    """Return a model in ONNX text syntax.

    Attributes that the syntax has no words for are strings that say so; names in attributes become identifiers.

    Raises:
        GraphError: the printer does not take it.
    """
    said = copied(model)
    for node in _nodes(said):
        # what the text cannot hold is a note in its place
        for attribute in filter(_is_unsaid, node.attribute):
            _put_note(attribute)
    for tensor in walk.attribute_tensors(said):
        if tensor.name or is_external(tensor):
            tensor.name = _identifier(tensor.name or "tensor")  # the parser needs one
    for node in _nodes(said):
        for _, body in walk.bodies(node):
            body.name = _identifier(body.name or "body")
    if any(function.attribute_proto for function in said.functions):
        for function, defaults in zip(said.functions, _defaults(said.functions), strict=True):
            function.attribute.extend(defaults)  # the printer writes them as they are
            del function.attribute_proto[:]
    try:
        return printed(said)
    except RejectedError as error:
        raise GraphError(
            f"the model cannot be printed: {error}", "find the cause with: onnxdbg check MODEL"
        ) from error


def require_said(model: ModelProto) -> None:
    """Raise if a model that was parsed has an attribute that the text only noted.

    Raises:
        BuildError: it has one.
    """
    for node in _nodes(model):
        for attribute in node.attribute:
            if attribute.s.startswith(_UNSAID.encode()):
                name = node.name or "".join(node.output[:1])
                raise BuildError(
                    f"{node.op_type} {name!r} has an attribute that {attribute.s.decode()}",
                    "leave the node as it was printed, with print --weights and build --weights",
                )


def _identifier(name: str) -> str:
    """Return a name of a tensor or a body in an attribute as the parser takes it: without quotes."""
    return re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    for nodes in (model.graph.node,) + tuple(function.node for function in model.functions):
        yield from walk.with_inner(nodes)


def _is_unsaid(attribute: AttributeProto) -> bool:
    """Return whether ONNX's printer writes what its parser refuses, or nothing."""
    if attribute.ref_attr_name:
        return False
    texts = (attribute.s, *attribute.strings)
    is_empty = attribute.type == AttributeProto.STRINGS and not attribute.strings
    # sparse tensors, empty lists of strings and unprintable characters
    return attribute.type in _SPARSE or is_empty or not all(map(_is_printable, texts))


def _is_printable(text: bytes) -> bool:
    try:
        return not text or text.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _put_note(attribute: AttributeProto) -> None:
    kind = AttributeProto.AttributeType.Name(attribute.type).lower()
    sizes = [list(tensor.dims) for tensor in (attribute.sparse_tensor, *attribute.sparse_tensors)]
    held = repr(attribute.s)[1:70] if attribute.type == AttributeProto.STRING else sizes[0]
    note = AttributeProto(name=attribute.name, type=AttributeProto.STRING)
    note.s = f"{_UNSAID}{kind} {held}".encode()
    attribute.CopyFrom(note)


def _defaults(functions: Iterable[FunctionProto]) -> Iterator[list[str]]:
    """Yield the text of each function's attributes that have defaults."""
    # ONNX's printer writes the attributes of a node, so each function's defaults are printed as those of a node `X`.
    shown = ModelProto(ir_version=8)
    for function in functions:
        node = shown.graph.node.add(op_type="X", output=["y"])
        said = (a for a in function.attribute_proto if a.type not in _GRAPHS and not _is_unsaid(a))
        node.attribute.extend(said)
    for line in printed(shown).splitlines():
        if line.strip().startswith("y = X"):
            yield [line[line.index("<") + 1 : line.rindex(">")]] if "<" in line else []
