"""What goes wrong in language models that people deploy: each fault edits a right model, where it has the place."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Plant = Callable[[ModelProto], bool]
"""Edits a model; returns whether it has the place."""
FROM = 9  # the position from which on positions are off by one: the third step behind a prompt of seven


@dataclass(frozen=True)
class Fault:
    """A mistake.

    Attributes:
        of_weights: it is in numbers that a checkpoint has, so `weights` names it.
    """

    name: str
    plant: Plant
    of_weights: bool = False


def nodes(model: ModelProto, *kinds: str, name: str = "") -> list[NodeProto]:
    return [n for n in model.graph.node if n.op_type in kinds and name in n.name]


def set_attribute(kinds: tuple[str, ...], name: str, new: object, every: bool = True) -> Plant:
    """Return a fault in an attribute of all nodes, or of the last."""

    def plant(model: ModelProto) -> bool:
        found = nodes(model, *kinds)
        for node in found if every else found[-1:]:
            kept = [a for a in node.attribute if a.name != name]
            old = [helper.get_attribute_value(a) for a in node.attribute if a.name == name]
            if old == [new]:
                return False
            value = new(old[0]) if callable(new) else new
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute(name, value)])
        return bool(found)

    return plant


def held(model: ModelProto, part: str) -> list[TensorProto]:
    found = [t for t in model.graph.initializer if re.search(part, t.name)]
    made = (a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute)
    return found + [t for t in made if re.search(part, t.name)]


def set_numbers(part: str, change: Callable[[np.ndarray], np.ndarray], last: bool = True) -> Plant:
    """Return a fault in the numbers of the last constant of such a name, or of all."""

    def plant(model: ModelProto) -> bool:
        found = held(model, part)
        for tensor in found[-1:] if last else found:
            old = numpy_helper.to_array(tensor)
            new = change(old.copy()).astype(old.dtype)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(new), tensor.name))
        return bool(found)

    return plant


def exchange(one: str, other: str) -> Plant:
    """Return a fault that exchanges what two kinds of constants hold, name by name."""

    def plant(model: ModelProto) -> bool:
        pairs = [
            (t, o)
            for t in held(model, one)
            for o in held(model, re.escape(t.name.replace(one, other)))
            if t.dims == o.dims
        ]
        for a, b in pairs[-3:]:  # the weight, or its integers and scales
            (a.name, b.name) = (b.name, a.name)
        return bool(pairs)

    return plant


def swap_packed(model: ModelProto) -> bool:
    """Exchange K and V in the packed projection of the last layer."""
    width = 32  # of K and of V
    for node in nodes(model, "MatMul", "MatMulNBits", name="qkv_proj")[-1:]:
        for name in node.input[1:]:
            axis = 1 if node.op_type == "MatMul" else 0

            def swapped(old: np.ndarray, axis: int = axis) -> np.ndarray:
                q, k, v = np.split(
                    old, [old.shape[axis] - 2 * width, old.shape[axis] - width], axis
                )
                return np.concatenate([q, v, k], axis)

            set_numbers(re.escape(name), swapped)(model)
        return True
    return False


def cache_of_another_layer(*parts: str) -> Plant:
    def plant(model: ModelProto) -> bool:
        for part in parts:
            for node in model.graph.node:
                for slot, name in enumerate(node.input):
                    if name == f"past_key_values.1.{part}" and node.op_type != "Shape":
                        node.input[slot] = f"past_key_values.0.{part}"
        return True

    return plant


def presents_exchanged(model: ModelProto) -> bool:
    """Let the caches of both layers be returned under each other's names."""
    other = {"present.0.key": "present.1.key", "present.1.key": "present.0.key"}
    for node in model.graph.node:
        for names in (node.input, node.output):
            for slot, name in enumerate(names):
                names[slot] = other.get(name, name)
    return True


def late_positions(model: ModelProto) -> bool:
    """Let positions be one too small from some step on."""
    if held(model, "cos_cache"):
        for part in ("cos_cache", "sin_cache"):
            set_numbers(part, lambda old: np.concatenate([old[:FROM], old[FROM - 1 : -1]]))(model)
        return True
    for i, node in enumerate(model.graph.node):
        if node.op_type == "Cast" and any(n.op_type == "Mul" and "inv_freq" in n.input[1]
                                          for n in model.graph.node if node.output[0] in n.input):  # fmt: skip
            model.graph.initializer.append(numpy_helper.from_array(np.int64(FROM), "from"))
            model.graph.node.insert(
                i, helper.make_node("Cast", ["is_late"], ["late"], "late", to=7)
            )
            model.graph.node.insert(
                i,
                helper.make_node("GreaterOrEqual", [node.input[0], "from"], ["is_late"], "is_late"),
            )
            node.input[0], read = "positions", node.input[0]
            model.graph.node.insert(
                i + 2, helper.make_node("Sub", [read, "late"], ["positions"], "positions")
            )
            return True
    return False


def another_base(model: ModelProto) -> bool:
    """Compute rotary tables of base 500,000 instead of 10,000."""
    tables = held(model, "cos_cache")
    if not tables:
        rates = held(model, "inv_freq")
        return bool(rates) and set_numbers("inv_freq", lambda old: _rates(old.size))(model)
    rows, half = tables[0].dims
    angles = np.arange(rows)[:, None] * _rates(half)
    return set_numbers("cos_cache", lambda _: np.cos(angles))(model) and set_numbers(
        "sin_cache", lambda _: np.sin(angles)
    )(model)


def _rates(half: int) -> np.ndarray:
    return 500_000.0 ** -(np.arange(half) / half)


def without(kind: str, name: str = "") -> Plant:
    """Return a fault that leaves the last such node out."""

    def plant(model: ModelProto) -> bool:
        for node in nodes(model, kind, name=name)[-1:]:
            for other in model.graph.node:
                for slot, read in enumerate(other.input):
                    if read == node.output[0]:
                        other.input[slot] = node.input[0]
            model.graph.node.remove(node)
            return True
        return False

    return plant


def shorter_mask(model: ModelProto) -> bool:
    """Let the last position not be attended: the causal mask is strict, or a token is not counted."""
    for node in nodes(model, "LessOrEqual"):
        node.op_type = "Less"
        return True
    for node in nodes(model, "Less", name="attn_mask_reformat"):
        node.op_type = "LessOrEqual"
        return True
    return set_attribute(ATTENTION, "local_window_size", 1, every=False)(model)


def old_residual(model: ModelProto) -> bool:
    """Let the last residual be added to the one before the layer's attention."""
    found = nodes(model, "SkipSimplifiedLayerNormalization")
    if len(found) < 3:
        return False
    found[-1].input[0] = found[-3].output[3]
    return True


def one_block(old: np.ndarray) -> np.ndarray:
    old.reshape(-1)[old.size // 2] *= 3
    return old


def other_integers(old: np.ndarray) -> np.ndarray:
    """Return integers whose first row is the next one's."""
    return np.concatenate([old[1:2], old[1:]])


ATTENTION = ("GroupQueryAttention", "MultiHeadAttention")
GQA = ("GroupQueryAttention",)
NORMS = ("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
FAULTS = (
    Fault("scale of attention", set_attribute(ATTENTION, "scale", lambda old: old * 1.5)),
    Fault("scale of a layer's attention", set_attribute(ATTENTION, "scale", 0.5, every=False)),
    Fault("softcap of attention", set_attribute(GQA, "softcap", lambda old: 0.0 if old else 2.0)),
    Fault("window of attention", set_attribute(GQA, "local_window_size", 4)),
    Fault("rotary halves for pairs", set_attribute(GQA, "rotary_interleaved", 1)),
    Fault("no rotation", set_attribute(GQA, "do_rotary", 0, every=False)),
    Fault("epsilon of all norms", set_attribute(NORMS, "epsilon", 0.1)),
    Fault("epsilon of a norm", set_attribute(NORMS, "epsilon", 0.1, every=False)),
    Fault("K and V exchanged", swap_packed, True),
    Fault("K and V exchanged", exchange(".attn.k_proj", ".attn.v_proj"), True),
    Fault("o_proj of another layer", exchange("layers.0.attn.o_proj", "layers.1.attn.o_proj"), True),
    Fault("o_proj transposed", set_numbers("o_proj.MatMul.weight$", np.transpose), True),
    Fault("scale of a block", set_numbers("down_proj.MatMul.weight_scale", one_block), True),
    Fault("integers of a block", set_numbers("o_proj.MatMul.weight_Q", other_integers), True),
    Fault("weight of a norm without +1", set_numbers("post_attention_layernorm.weight", lambda old: old - 1), True),
    Fault("cache of another layer", cache_of_another_layer("key", "value")),
    Fault("keys of another layer", cache_of_another_layer("key")),
    Fault("caches returned exchanged", presents_exchanged),
    Fault("positions off by one from step 3 on", late_positions),
    Fault("base of rotary tables", another_base),
    Fault("wrong mask", shorter_mask),
    Fault("residual of another place", old_residual),
    Fault("no final cap", without("Tanh")),
    Fault("scale of embeddings", set_numbers("FLOAT_8_0", lambda _: np.array(11.31))),
    Fault("exact GELU", set_attribute(("Gelu",), "approximate", "none")),
    Fault("gate without its activation", without("Sigmoid")),
    Fault("scale of attention", set_numbers("val_169", lambda old: old * 1.5)),
    Fault("epsilon of all norms", set_numbers("val_59", lambda _: np.array(0.1))),
    Fault("rotation without its sign", without("Neg")),
)  # fmt: skip
