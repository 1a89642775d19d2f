"""What types the outputs of onnxruntime's operators have: rules that ONNX's inference asks."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import TensorProto, TensorShapeProto, TypeProto

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext  # an old onnx lacks it

Size = TensorShapeProto.Dimension
Sizes = list[Size]


class _UnknownError(Exception):
    """A type does not follow from what is known."""


@dataclass(frozen=True)
class _Asked:
    """The node whose outputs get types."""

    context: "InferenceContext"

    def has(self, slot: int) -> bool:
        return slot < self.context.get_num_inputs() and self.context.has_input(slot)

    def kind(self, slot: int) -> int:
        """Return the element type of an input."""
        return _known(self._type(slot).elem_type)

    def sizes(self, slot: int, rank: int = 0) -> Sizes:
        """Return the sizes of an input, of a rank if one is given."""
        kind = self._type(slot)
        if not kind.HasField("shape") or rank not in (0, len(kind.shape.dim)):
            raise _UnknownError
        return list(kind.shape.dim)

    def width(self, slot: int) -> int:
        """Return the last of an input's three sizes."""
        return _known(self.sizes(slot, 3)[-1].dim_value)

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute."""
        attribute = self.context.get_attribute(name)
        return int(attribute.i) if attribute is not None else default

    def _type(self, slot: int) -> TypeProto.Tensor:
        kind = self.context.get_input_type(slot) if self.has(slot) else None
        if kind is None:
            raise _UnknownError
        tensor: TypeProto.Tensor = kind.tensor_type
        return tensor


def _known(number: int) -> int:
    """Return a number; raise if it is 0, which is what an unknown one is."""
    if not number:
        raise _UnknownError
    return number


def _size(value: int) -> Size:
    return Size(dim_value=value)


def _head(node: _Asked) -> int:
    """Return the size of a head; a query alone holds those of keys and values, too."""
    heads = node.number("num_heads")
    if not node.has(1):  # query, keys and values side by side in the first input
        heads += 2 * node.number("kv_num_heads")
    return node.width(0) // _known(heads)


def _cache(past: int) -> Callable[[_Asked], Sizes]:
    """Return the rule of a cache: (batch, heads, sequence, head size), whose sequence only a run tells."""

    def sizes(node: _Asked) -> Sizes:
        if node.has(past):  # the cache grows by a number that only a run tells
            batch, heads, _, head = node.sizes(past, 4)
            return [batch, heads, Size(), head]
        heads = _size(_known(node.number("kv_num_heads")))
        return [node.sizes(0, 3)[0], heads, Size(), _size(_head(node))]

    return sizes


def _gathered(node: _Asked) -> Sizes:
    """Return what GatherBlockQuantized makes; bytes hold several numbers along the last axis."""
    data = node.sizes(0)
    axis = node.number("gather_axis")
    packed = node.kind(0) == TensorProto.UINT8
    if packed:
        # bytes -> numbers
        data[-1] = _size(_known(data[-1].dim_value) * 8 // node.number("bits", 4))
    axis %= _known(len(data))
    return [*data[:axis], *node.sizes(1), *data[axis + 1 :]]


Rule = tuple[int, Callable[[_Asked], Sizes]]
"""From which input an output has its element type (without it, from the first), and its sizes."""

_LIKE_FIRST: Rule = 0, lambda node: node.sizes(0)
# GroupQueryAttention makes (batch, sequence, heads * head size)
_ATTENDED: Rule = 0, lambda n: n.sizes(0, 3)[:2] + [_size(n.number("num_heads") * _head(n))]
_RULES: Mapping[str, Mapping[int, Rule]] = {
    **dict.fromkeys(
        ("SimplifiedLayerNormalization", "RotaryEmbedding", "BiasGelu", "FastGelu", "QuickGelu")
        + ("Gelu", "MoE", "QMoE", "GemmaRotaryEmbedding", "Inverse", "BiasAdd", "BiasSoftmax"),
        {0: _LIKE_FIRST},
    ),
    **dict.fromkeys(
        ("SkipSimplifiedLayerNormalization", "SkipLayerNormalization"),
        {0: _LIKE_FIRST, 3: _LIKE_FIRST},
    ),
    "MatMulNBits": {0: (0, lambda node: node.sizes(0)[:-1] + [_size(node.number("N"))])},
    "GroupQueryAttention": {0: _ATTENDED, 1: (3, _cache(3)), 2: (4, _cache(4))},
    "MultiHeadAttention": {0: (0, lambda node: node.sizes(0, 3)[:2] + [node.sizes(2, 3)[2]])},
    "GatherBlockQuantized": {0: (2, _gathered)},
    "EmbedLayerNormalization": {
        0: (2, lambda node: node.sizes(0, 2) + [node.sizes(2, 2)[1]]),
    },
    "DequantizeLinear": {0: (1, lambda node: node.sizes(0))},
}


def _inference(rules: Mapping[int, Rule]) -> Callable[["InferenceContext"], None]:
    def infer(context: "InferenceContext") -> None:
        node = _Asked(context)
        for slot, (like, sizes) in rules.items():  # each output by its own rule
            if slot < context.get_num_outputs() and context.has_output(slot):
                kind = TypeProto()
                with suppress(_UnknownError):  # without a shape, the element type may be known
                    kind.tensor_type.elem_type = node.kind(like if node.has(like) else 0)
                    kind.tensor_type.shape.dim.extend(sizes(node))
                if kind.tensor_type.elem_type:
                    context.set_output_type(slot, kind)

    return infer


INFERENCES = {operator: _inference(rules) for operator, rules in _RULES.items()}
"""Operator -> what gives its outputs types, as ONNX's own inference does."""
