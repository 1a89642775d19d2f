"""Mistakes in normalization: one that is missing, another kind of it, reset constants."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.linear import fitted, wanted_at
from onnxsurgeon_lite.debug.causes.operations import (
    OF_THE_LAST_AXIS,
    Right,
    composed,
    missing_activation,
    right_values,
)
from onnxsurgeon_lite.debug.causes.place import Place, Wide, small, wide
from onnxsurgeon_lite.debug.causes.solving import described
from onnxsurgeon_lite.graph.text import node_title
from onnxsurgeon_lite.passes import Insert, Pass, Rewire, SetConstant
from onnxsurgeon_lite.tensors.dtypes import Array, is_float

_TOGETHER = 64  # choices among several missing steps
_NEAREST = 8  # normalizations whose constants are tried
_GROUPS = (1, 2, 4, 8, 16, 32)
_FLAT = 1e-4  # a scale that differs less, or with a smaller bias, is a factor
_EPSILONS = (1e-5, 1e-6, 1e-12)
_BEHIND_A_NORM = ("Reshape", "Transpose", "Mul", "Add")
_SCALED = " t = Mul(d, s) y = Add(t, b)"
_NODES = {
    "LayerNormalization": "y = LayerNormalization <epsilon = {epsilon}> (x, s, b)",
    "RMSNormalization": f"q = Mul(x, x) m = {{mean}} v = Add(m, e) r = Sqrt(v) d = Div(x, r){_SCALED}",
    "BatchNormalization": f"d = Identity(x){_SCALED}",
    "GroupNormalization": (
        "f = Reshape(x, split) n = InstanceNormalization <epsilon = {epsilon}> (f, ones, zeros)"
        f" d = Reshape(n, whole){_SCALED}"
    ),
}
"""Normalization -> nodes that compute it from `x`, with scale `s` and bias `b`."""


@dataclass(frozen=True)
class _Norm:
    """A normalization with a scale and a bias by channel.

    Attributes:
        groups: of the channels in axis 1, which are normalized together; 0 for channels in the last axis.
    """

    op_type: str
    epsilon: float
    scale: Wide
    bias: Wide
    groups: int = 0

    @property
    def unknowns(self) -> int:
        return self.scale.size + int(np.count_nonzero(self.bias))

    @property
    def title(self) -> str:
        is_grouped = self.op_type == "GroupNormalization"
        return f"{self.op_type}{f' of {self.groups} groups' * is_grouped}"

    def edit(self, place: Place, start: str, end: str, made: Array) -> Pass:
        """Return the edit that normalizes one value to another."""
        axes = (1,) * (made.ndim - 2) if self.groups else ()
        mean = "ReduceMean(q, last)" if place.opset >= 18 else "ReduceMean <axes = [-1]> (q)"
        nodes = _NODES[self.op_type].format(epsilon=f"{self.epsilon:.15f}", mean=mean)
        scale, bias = (a.reshape(-1, *axes) for a in (self.scale, self.bias))
        ones = np.ones(self.groups)
        floats = {"s": scale, "b": bias, "e": self.epsilon, "ones": ones, "zeros": ones - 1}
        shapes = {"last": [-1], "split": [0, self.groups, -1], "whole": made.shape}
        numbers = {name: np.asarray(value, made.dtype) for name, value in floats.items()}
        numbers |= {name: np.array(value) for name, value in shapes.items()}
        return composed(place, start, end, made, nodes, numbers)


def _solved(made: Wide, wanted: Wide) -> Iterator[_Norm]:
    """Yield the normalizations with which a value gives what is wanted, each with the best epsilon."""
    kinds = [(op_type, 0) for op_type in OF_THE_LAST_AXIS] if made.ndim > 1 else []
    if made.ndim > 2 and not _is_a_bias(made, wanted):
        channels = made.shape[1]
        several = [g for g in (*_GROUPS, channels) if channels % g == 0]
        kinds += [("BatchNormalization", channels), *(("GroupNormalization", g) for g in several)]
    for op_type, groups in kinds:
        norms = [_fitted(op_type, groups, epsilon, made, wanted) for epsilon in _EPSILONS]
        best, error = min(norms, key=lambda found: found[1])
        least = _FLAT * np.abs(best.scale).max()
        flat = np.ptp(best.scale) <= least or np.abs(best.bias).max() <= least
        if small(np.array(error), wanted) and not (flat and op_type == "BatchNormalization"):
            yield best


def _is_a_bias(made: Wide, wanted: Wide) -> bool:
    """Return whether a bias or a factor by channel gives what is wanted: of one sample, a normalization would, too."""
    x, y = (np.moveaxis(array, 1, -1).reshape(-1, array.shape[1]) for array in (made, wanted))
    biased = y - x - (y - x).mean(axis=0)
    return small(biased, y) or small(y - fitted(x, y)[0] * x, y)


def _fitted(
    op_type: str, groups: int, epsilon: float, made: Wide, wanted: Wide
) -> tuple[_Norm, float]:
    """Return (a normalization with the best scale and bias, its largest error)."""
    normal = _normal(made, op_type, groups, epsilon)
    x, y = (np.moveaxis(a, 1 if groups else -1, -1) for a in (normal, wanted))
    scale, bias = _by_channel(x, y, shifts=op_type != "RMSNormalization")
    error = float(np.abs(x * scale + bias - y).max(initial=0.0))
    return _Norm(op_type, epsilon, scale, bias, groups), error


def _normal(array: Wide, op_type: str, groups: int = 0, epsilon: float = _EPSILONS[0]) -> Wide:
    """Return an array normalized along its last axis, or in groups of the channels of axis 1."""
    if op_type == "BatchNormalization":
        return array
    grouped = array.reshape(len(array), groups, -1) if groups else array
    if op_type != "RMSNormalization":
        grouped = grouped - grouped.mean(axis=-1, keepdims=True)
    power = np.square(grouped).mean(axis=-1, keepdims=True)
    return np.asarray(grouped / np.sqrt(power + epsilon)).reshape(array.shape)


def missing_norms(place: Place) -> Hypotheses:
    """Yield normalizations that a value lacks: with another one's constants, or with solved ones."""
    yield from _missing(place)
    for other in islice(_others(place), _NEAREST):
        yield from _like(place, other)


def other_norms(place: Place) -> Hypotheses:
    """Yield other groups and constants of normalizations, and other kinds: with the same scale, or with solved ones."""
    yield from other_groups(place)
    yield from _reset(place)
    for number, node in enumerate(place.nodes):
        if not node.op_type.endswith("Normalization"):
            continue
        start, last = _grouped(place, number)
        given, scale, wanted = (
            place.operand(start),
            place.constant(node.input[1]),
            wanted_at(place, last),
        )
        if given is None or not is_float(given.dtype) or given.ndim < 2:
            continue
        others: list[_Norm] = []
        if node.op_type in OF_THE_LAST_AXIS and scale is not None and scale.ndim == 1:
            same, kinds = wide(scale), (kind for kind in OF_THE_LAST_AXIS if kind != node.op_type)
            others += (_Norm(kind, _EPSILONS[1], same, 0 * same) for kind in kinds)
        known = len(others)
        if wanted is not None and wanted.shape == given.shape:
            others += (
                norm for norm in _solved(wide(given), wanted) if norm.op_type != node.op_type
            )
        for at, norm in enumerate(others):
            edit = norm.edit(place, start, place.nodes[last].output[0], given)
            sentence = f"{place.title(number)} is another normalization; with {norm.title}"
            unknowns, mistake = (
                norm.unknowns * (at >= known),
                ("normalization", node.op_type, norm.title),
            )
            yield Hypothesis("normalization", sentence, (edit,), mistake, unknowns, given.size)


def other_groups(place: Place) -> Hypotheses:
    """Yield other numbers of groups, of channels that are laid out in groups to be normalized."""
    for number, node in enumerate(place.nodes):
        is_instance = node.op_type == "InstanceNormalization"
        start, last = _grouped(place, number) if is_instance else ("", number)
        given = place.operand(start) if last != number else None
        if given is None:
            continue
        arrays = [place.constant(name) for name in node.input[1:]]
        scale, bias = arrays if len(arrays) == 2 else (None, None)
        if scale is None or bias is None or np.ptp(scale) or np.ptp(bias) or given.ndim < 3:
            continue
        before = place.producer[node.input[0]]
        node_before, channels = place.nodes[before], given.shape[1]
        for groups in range(1, channels + 1):
            if channels % groups or groups == scale.size:
                continue
            sizes = np.array([0, groups, -1])
            split = Rewire(node_before.input[1], str(sizes.tolist()), place.only(before), 1)
            edits: list[Pass] = [split]
            for name, old in zip(node.input[1:], (scale, bias), strict=True):
                right = np.full(groups, old[0], old.dtype)
                edits.append(SetConstant(name, right, place.only(number)))
            was = f"{place.title(number)} normalizes {channels} channels in {scale.size} groups"
            mistake = ("groups", scale.size, groups)
            yield Hypothesis("groups", f"{was}; in {groups}", tuple(edits), mistake)


def _grouped(place: Place, number: int) -> tuple[str, int]:
    """Return (the value that a normalization begins with, its last node), with a Reshape to groups and back."""
    node, index = place.nodes[number], place.index
    before, behind = index.producer.get(node.input[0], -1), index.consumers.get(node.output[0], [])
    around = (before, *behind)
    if (
        len(around) == 2
        and min(around) >= 0
        and all(index.nodes[n].op_type == "Reshape" for n in around)
    ):
        return index.nodes[before].input[0], behind[0]
    return node.input[0], number


def _reset(place: Place) -> Hypotheses:
    """Yield a scale and a bias of layer normalizations that are both wrong, solved for."""
    for number, node in enumerate(place.nodes):
        if node.op_type != "LayerNormalization":
            continue
        wanted, given = wanted_at(place, number), place.operand(node.input[0])
        known = [(name, a) for name in node.input[1:] if (a := place.constant(name)) is not None]
        if wanted is None or given is None or len(known) != 2 or known[0][1].ndim != 1:
            continue
        solved = _by_channel(_normal(wide(given), node.op_type), wanted)
        edits = tuple(
            SetConstant(name, right.astype(old.dtype), place.only(number))
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
    there = [p for op_type in OF_THE_LAST_AXIS for p in place.whole.operators.get(op_type, ())]
    for position in sorted(there, key=lambda p: abs(p - here)):
        constants = nodes[position].input[1:]
        if position not in place.positions and all(
            n in place.index.initializers for n in constants
        ):
            yield nodes[position]


def _like(place: Place, other: NodeProto) -> Hypotheses:
    """Yield the values of a region, normalized as another node does it."""
    scale = place.constant(other.input[1])
    attributes = (("axis", -1), ("epsilon", place.attributes(other).get("epsilon", _EPSILONS[0])))
    for name, value in place.values.items():
        if scale is None or value.shape[-1:] != scale.shape or not is_float(value.dtype):
            continue
        inputs, readers = (name, *other.input[1:]), place.consumers.get(name, [])
        to = place.those(readers)
        edit = Insert(name, other.op_type, inputs, attributes, to=to, before=not to)
        sentence = f"a normalization like {node_title(other)} is missing behind {name!r}; with it"
        yield Hypothesis("missing normalization", sentence, (edit,))


def _missing(place: Place) -> Hypotheses:
    """Yield normalizations with a scale and a bias that are solved for."""
    for right in right_values(place):
        yield from _missing_behind(place, right)


def _missing_behind(place: Place, right: Right) -> Hypotheses:
    for norm in _solved(right.made, right.wanted):
        plain, made = f"{right.name}_plain", right.maker >= 0
        ends = (plain, right.name) if made else (right.name, plain)
        there = Insert(right.name, "Identity", before=made, output=plain)
        edits = (there, norm.edit(place, *ends, place.values[right.name]))
        sentence = f"a {norm.title} is missing {right.where}; with one that was solved for,"
        name, unknowns, equations = "missing normalization", norm.unknowns, right.wanted.size
        vague = _is_normalized(place, right.maker)
        yield Hypothesis(name, sentence, edits, (), unknowns, equations, vague=vague)


def missing_together(place: Place) -> Hypotheses:
    """Yield several steps that only the references have, all at once: the normalizations of query and key."""
    several: dict[str, list[Hypothesis]] = {}
    for right in right_values(place):
        if right.step:
            found = (*_missing_behind(place, right), *missing_activation(place, right))
            if found:
                several.setdefault(right.step, []).extend(found)
    for chosen in islice(product(*several.values()), _TOGETHER) if len(several) > 1 else ():
        edits = tuple(edit for hypothesis in chosen for edit in hypothesis.edits)
        missing = " and ".join(h.sentence.partition(";")[0] for h in chosen)
        unknowns, equations = (
            sum(n) for n in zip(*((h.unknowns, h.equations) for h in chosen), strict=True)
        )
        sentence = f"{missing}; with what was solved for,"
        yield Hypothesis("missing operations", sentence, edits, (), unknowns, equations)


def _is_normalized(place: Place, maker: int) -> bool:
    """Return whether a node's result is normalized already, but for its shape and scale: hardly once more."""
    while maker >= 0 and place.nodes[maker].op_type in _BEHIND_A_NORM:
        read = [n for n in place.nodes[maker].input if place.constant(n) is None]
        maker = place.producer.get(read[0], -1) if len(read) == 1 else -1
    return maker >= 0 and place.nodes[maker].op_type.endswith("Normalization")


def _by_channel(x: Wide, y: Wide, shifts: bool = True) -> tuple[Wide, Wide]:
    """Return the (scale, bias) of every channel of the last axis that turn one into the other best."""
    scale, bias = fitted(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), shifts=shifts)
    return scale[0], bias[0]
