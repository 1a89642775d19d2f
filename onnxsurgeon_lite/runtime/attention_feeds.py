"""What the feeds of a language model must be: sizes of its cache, tokens of its vocabulary, a mask of ones."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from onnx import NodeProto

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, dims_of, fixed_shape, opset_versions
from onnxsurgeon_lite.graph.operators import RUNTIME_DOMAIN
from onnxsurgeon_lite.model import attributes_of
from onnxsurgeon_lite.model.loading import PACKAGE
from onnxsurgeon_lite.untrusted import inner, json_of

_MASK = "attention_mask"
_CACHE = {"GroupQueryAttention": (3, 4), "MultiHeadAttention": (6, 7), "Concat": (0,)}
"""Operator -> the inputs that are its cache, [batch, heads, past, head size]."""


def _caches(index: GraphIndex) -> dict[str, dict[int, int]]:
    """Return the inputs that are caches, and the sizes of axes that their readers fix."""
    found = dict[str, dict[int, int]]()
    # only an operator of onnxruntime, or a mask beside it, says that what is joined with more is a cache
    imported = opset_versions(index.model.proto.opset_import)
    if _MASK not in index.inputs and RUNTIME_DOMAIN not in imported:
        return found
    for name, declared in index.inputs.items():
        # [batch, heads, past, head size]
        if len(dims_of(declared.type)) == 4:
            for node, slot in _readers(index, name):
                if slot in _CACHE.get(node.op_type, ()):
                    found[name] = _fixed(index, node)
    return found


def _readers(index: GraphIndex, name: str) -> Iterator[tuple[NodeProto, int]]:
    """Yield the nodes that read a value, and which input it is; through casts, as of a float16 model."""
    for position in index.consumers.get(name, ()):
        node = index.nodes[position]
        if node.op_type == "Cast":
            yield from _readers(index, node.output[0])
        else:
            yield node, list(node.input).index(name)


def _fixed(index: GraphIndex, node: NodeProto) -> dict[int, int]:
    """Return axis -> size of the cache that a node reads, as far as they are known."""
    is_attention = node.op_type != "Concat"
    # an attention reads [batch, tokens, hidden]; a Concat joins the cache with what is new, of its shape
    like = node.input[0 if is_attention else -1]
    sizes = [dim.dim_value for dim in dims_of(index.type_of(like))]
    if not is_attention:
        return {1: sizes[1], 3: sizes[3]} if len(sizes) == 4 else {}
    numbers = attributes_of(node)
    # grouped queries share keys and values: then there are fewer of these heads
    heads, own = numbers.get("num_heads", 0), numbers.get("kv_num_heads", 0)
    # packed: queries, keys and values are one input
    parts = heads if any(node.input[1:3]) else heads + 2 * own
    width = sizes[-1] if len(sizes) == 3 else 0
    fixed = {1: own or heads, 3: width // max(parts, 1) or _head_size(index)}
    if numbers.get("sliding_window_cache"):
        fixed[2] = numbers["local_window_size"]
    return fixed


def _head_size(index: GraphIndex) -> int:
    """Return the size of a head that the configuration of a package beside the model says; 0 without one."""
    folder = (index.model.path or Path()).parent
    with suppress(SurgeonError):
        decoder = inner(inner(json_of(folder / PACKAGE, folder), "model"), "decoder")
        if isinstance(size := decoder.get("head_size"), int):
            return size
    return 0


def cache_sizes(index: GraphIndex) -> dict[str, int]:
    """Return the sizes of symbolic dimensions that the readers of a cache fix, such as that of a head."""
    return {
        dims_of(index.inputs[name].type)[axis].dim_param: size
        for name, sizes in _caches(index).items()
        for axis, size in sizes.items()
        if size > 0
    }


def usual_dims(index: GraphIndex, dims: Mapping[str, int]) -> dict[str, int]:
    """Return sizes: those given, those of a cache, and for a mask what past and tokens have together."""
    fixed = {**cache_sizes(index), **dims}
    mask, tokens = (_last(index, name) for name in (_MASK, "input_ids"))
    past = _past(index)
    # a window that slides fixes the length of the past
    windows = [sizes[2] for sizes in _caches(index).values() if sizes.get(2)]
    if past and windows:  # a window that is not full holds numbers that nobody wrote
        fixed.setdefault(past, max(windows))
    # the mask covers the past and the new tokens; where it has a symbol of its own, nothing else says so
    if past and mask not in ("", tokens, past):
        fixed.setdefault(mask, fixed.get(past, 1) + fixed.get(tokens, 1))
    return fixed


def _past(index: GraphIndex) -> str:
    """Return the symbol of a cache's length; '' without one that is free."""
    free = (name for name, sizes in _caches(index).items() if 2 not in sizes)
    return next((dims_of(index.inputs[name].type)[2].dim_param for name in free), "")


def _last(index: GraphIndex, name: str) -> str:
    """Return the symbol of an input's last dimension; '' without one."""
    dims = dims_of(index.inputs[name].type) if name in index.inputs else ()
    return dims[-1].dim_param if dims else ""


def usual_fill(index: GraphIndex, name: str, dims: Mapping[str, int]) -> str | None:
    """Return the fill of an input of a model with a cache; None for what has no usual one."""
    past = _past(index)
    if not past:
        return None
    if name == _MASK:
        return "ones"
    sizes = [
        size.dim_value or dims.get(size.dim_param, 1) for size in dims_of(index.inputs[name].type)
    ]
    if name == "position_ids" and len(sizes) == 2:
        first = dims.get(past, 1)
        # positions go on after the cache
        return str([list(range(first, first + sizes[1]))] * sizes[0])
    # token numbers: the input that looks rows of a table up
    for position in index.consumers.get(name, ()):
        node = index.nodes[position]
        is_lookup = node.op_type in ("Gather", "GatherBlockQuantized") and node.input[1] == name
        # the table may be the weight of the head, transposed
        if is_lookup and (shape := fixed_shape(index.type_of(node.input[0]))):
            return f"uniform:0,{shape[0]}"
    return None
