"""Mistakes in normalization: one that is missing."""

from collections.abc import Iterator
from itertools import islice, product

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.hypothesis import Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted, wanted_at
from onnxsurgeon_lite.debug.causes.operations import right_inputs
from onnxsurgeon_lite.debug.causes.place import Place, Wide, small, wide
from onnxsurgeon_lite.debug.causes.solving import described
from onnxsurgeon_lite.graph.text import node_title
from onnxsurgeon_lite.passes import Insert, SetConstant
from onnxsurgeon_lite.tensors.dtypes import is_float

_NEAREST = 8  # normalizations whose constants are tried
_OPSET = 17  # the first one with LayerNormalization
_EPSILON = 1e-5


def missing_norms(place: Place) -> Iterator[Hypothesis]:
    """Yield layer normalizations that a value lacks: with another one's constants, or with solved ones."""
    yield from _missing_batch_norm(place)
    if place.opset < _OPSET:
        return
    yield from _solved(place)
    for other in islice(_others(place), _NEAREST):
        yield from _like(place, other)


def reset_norms(place: Place) -> Iterator[Hypothesis]:
    """Yield a scale and a bias of layer normalizations that are both wrong, solved for."""
    for number, node in enumerate(place.index.nodes):
        if node.op_type != "LayerNormalization":
            continue
        wanted, given = wanted_at(place, number), place.operand(node.input[0])
        known = [(name, a) for name in node.input[1:] if (a := place.constant(name)) is not None]
        if wanted is None or given is None or len(known) != 2 or known[0][1].ndim != 1:
            continue
        solved = _by_channel(_normal(wide(given)), wanted)
        edits = tuple(
            SetConstant(name, right.astype(old.dtype), (place.node(number),))
            for (name, old), right in zip(known, solved, strict=True)
        )
        how = " and ".join(
            f"{name!r} {described(wide(old), right)}"
            for (name, old), right in zip(known, solved, strict=True)
        )
        sentence = f"constants of {place.title(number)}: {how}; solved for"
        unknowns = 2 * solved[0].size
        yield Hypothesis("solved constants", sentence, edits, (), unknowns, wanted.size)


def _others(place: Place) -> Iterator[NodeProto]:
    """Yield the normalizations of the model whose constants are at hand, the nearest first."""
    nodes, here = place.whole.nodes, place.positions[-1]
    for position in sorted(
        place.whole.operators.get("LayerNormalization", ()), key=lambda p: abs(p - here)
    ):
        constants = nodes[position].input[1:]
        if position not in place.positions and all(
            n in place.index.initializers for n in constants
        ):
            yield nodes[position]


def _like(place: Place, other: NodeProto) -> Iterator[Hypothesis]:
    """Yield the values of a region, normalized as another node does it."""
    scale = place.constant(other.input[1])
    attributes = (("axis", -1), ("epsilon", place.attributes(other).get("epsilon", _EPSILON)))
    for name, value in place.values.items():
        if scale is None or value.shape[-1:] != scale.shape or not is_float(value.dtype):
            continue
        inputs, readers = (name, *other.input[1:]), place.index.consumers.get(name, [])
        to = tuple(map(place.node, readers))
        edit = Insert(name, "LayerNormalization", inputs, attributes, to=to, before=not to)
        sentence = f"a normalization like {node_title(other)} is missing behind {name!r}; with it"
        yield Hypothesis("missing normalization", sentence, (edit,))


def _missing_batch_norm(place: Place) -> Iterator[Hypothesis]:
    """Yield a scale and a shift by channel that turn a value into a reference: one that the model lacks, or its own."""
    wanted = [
        (name, made, f"where the references have {step!r}", wide(right))
        for (name, made), (step, right) in product(place.values.items(), place.lacking.items())
    ]
    for number, node in enumerate(place.index.nodes):
        needed, result = wanted_at(place, number), place.values.get(node.output[0])
        if node.op_type in ("Conv", "ConvTranspose") and needed is not None and result is not None:
            wanted.append((node.output[0], result, "which was folded into its weight", needed))
    for name, made, where, right in wanted:
        if made.shape != right.shape or made.ndim < 3 or not is_float(made.dtype):
            continue
        x, y = (np.moveaxis(wide(a), 1, -1) for a in (made, right))
        scale, bias = _by_channel(x, y)
        flat = np.ptp(scale) <= 1e-4 * np.abs(scale).max(initial=0.0)  # a factor, no normalization
        if flat or not small(x * scale + bias - y, y):
            continue
        ones = np.ones_like(scale)
        named = (("scale", scale), ("bias", bias), ("mean", ones - 1), ("variance", ones))
        edit = Insert(
            name,
            "BatchNormalization",
            attributes=(("epsilon", 0.0),),
            constants=tuple((n, a.astype(made.dtype)) for n, a in named),
            before=name not in place.inputs,
        )
        sentence = (
            f"a BatchNormalization is missing behind {name!r}, {where};"
            " with one that was solved for,"
        )
        yield Hypothesis("missing normalization", sentence, (edit,), (), 2 * scale.size, x.size)


def _solved(place: Place) -> Iterator[Hypothesis]:
    """Yield normalizations with a scale and a bias that are solved for."""
    known = [
        (name, place.operand(name), wide(right), where)
        for name, right, where in right_inputs(place)
    ]
    known.append((place.value, place.actual, wide(place.wanted), f"behind {place.value!r}"))
    for name, made, wanted, where in known:
        if made is None or made.shape != wanted.shape or made.ndim < 2 or not is_float(made.dtype):
            continue
        scale, bias = _by_channel(_normal(wide(made)), wanted)
        if not small(_normal(wide(made)) * scale + bias - wanted, wanted):
            continue
        constants = tuple((n, a.astype(made.dtype)) for n, a in (("scale", scale), ("bias", bias)))
        edit = Insert(
            name,
            "LayerNormalization",
            attributes=(("axis", -1), ("epsilon", _EPSILON)),
            constants=constants,
            before=name == place.value,
        )
        sentence = f"a LayerNormalization is missing {where}; with one that was solved for,"
        unknowns = 2 * scale.size
        yield Hypothesis("missing normalization", sentence, (edit,), (), unknowns, wanted.size)


def _normal(array: Wide) -> Wide:
    centered = array - array.mean(axis=-1, keepdims=True)
    return np.asarray(
        centered / np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + _EPSILON)
    )


def _by_channel(x: Wide, y: Wide) -> tuple[Wide, Wide]:
    """Return the (scale, bias) of every channel of the last axis that turn one into the other best."""
    scale, bias = fitted(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), shifts=True)
    return scale[0], bias[0]
