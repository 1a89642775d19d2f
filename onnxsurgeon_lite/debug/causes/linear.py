"""Nodes that are linear in a constant, as matrices: rows of inputs, the weight, what should come out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.place import Ints, Place, Wide, small, wide
from onnxsurgeon_lite.tensors.dtypes import Array

_ROWS = 4096  # rows of a convolution
_CHECKED = 8  # rows that a hypothesis is checked on
_SAMPLES = 8
_SAME_ELEMENTS = ("Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Cast", "Dropout")


@dataclass(frozen=True)
class Linear:
    """`rows @ weight + bias = wanted` at one node.

    Attributes:
        number, slot, name: the node, and its constant.
        array: the constant as it is stored.
        matrix: the stored constant -> [inputs, outputs]. stored: the way back.
        rows: [rows, inputs]. wanted: [rows, outputs], without the bias.
    """

    number: int
    slot: int
    name: str
    array: Array
    matrix: Callable[[Array], Array]
    stored: Callable[[Wide], Wide]
    rows: Wide
    wanted: Wide

    @property
    def weight(self) -> Wide:
        return wide(self.matrix(self.array))

    def close(self, right: Array) -> bool:
        """Return whether other numbers give what is wanted, in a few rows and outputs."""
        rows, outputs = (
            np.linspace(0, size - 1, min(_CHECKED, size)).astype(int) for size in self.wanted.shape
        )
        try:
            made = self.rows[rows] @ wide(self.matrix(right)[:, outputs])
        except (ValueError, IndexError):
            return False
        wanted = self.wanted[np.ix_(rows, outputs)]
        scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
        return made.shape == wanted.shape and bool((np.abs(made - wanted) <= 2e-3 * scale).all())

    def factor(self, right: Array) -> Wide | None:
        """Return the factor by output with which other numbers give what is wanted; None if none does, or it is 1."""
        rows = np.linspace(0, len(self.rows) - 1, min(8 * _CHECKED, len(self.rows))).astype(int)
        matrix = self.matrix(right)
        if matrix.shape != self.weight.shape or len(rows) < _CHECKED:
            return None
        made, wanted = self.rows[rows] @ wide(matrix), self.wanted[rows]
        factor = fitted(made, wanted)[0]
        is_close = small(made * factor - wanted, wanted)
        return factor[0] if is_close and (np.abs(factor - 1) > 1e-4).any() else None

    def factor_of_channels(self, right: Array) -> Wide | None:
        """Return the factor of exchanged channels, which had been scaled by output before; None if there is none.

        The scale `s` stands at the other channels: `s[output] / s[input]` takes it back.
        """
        size, outputs = self.array.shape[1], self.array.shape[0]
        matrix, found = wide(self.matrix(right)).reshape(size, -1, outputs), []
        step = max(1, len(self.rows) // (4 * size))
        rows, wanted = self.rows[::step].reshape(-1, size, matrix.shape[1]), self.wanted[::step]
        for output in range(outputs):
            made = np.einsum("rik,ik->ri", rows, matrix[:, :, output])
            factors = np.linalg.lstsq(made, wanted[:, output], rcond=1e-6)[0]
            if not small(made @ factors - wanted[:, output], wanted):
                return None
            found.append(factors)
        by_output, _, by_input = np.linalg.svd(np.array(found))
        scale = by_output[:, 0]
        if not np.abs(scale).min() > 0 or not by_input[0].any():
            return None
        return np.repeat(scale / scale[:, None], matrix.shape[1], axis=0)


def fitted(
    made: Wide, wanted: Wide, axis: int | Ints | None = 0, shifts: bool = False
) -> tuple[Wide, Wide]:
    """Return the (factor, shift) that turn one into the other best, for each column or for all."""
    x, y = (a - a.mean(axis=axis, keepdims=True) if shifts else a for a in (made, wanted))
    power = np.square(x).sum(axis=axis, keepdims=True)
    products = (x * y).sum(axis=axis, keepdims=True)
    factor = np.divide(products, power, out=np.ones_like(power), where=power > 0)
    shift = (wanted - factor * made).mean(axis=axis, keepdims=True)
    return factor, shift if shifts else np.zeros_like(factor)


def linears(place: Place) -> Iterator[Linear]:
    """Yield the nodes that are linear in a constant and whose wanted result is known."""
    views = (_view(place, number) for number in range(len(place.nodes)))
    yield from (view for view in views if view is not None)


def stacked(place: Place, view: Linear) -> Linear:
    """Return a view with the rows of all samples."""
    views = [view]
    for sample in place.samples[1:_SAMPLES]:
        other = _view(replace(place, samples=[sample], nearby={}), view.number)
        views += [other] if other is not None else []
    return replace(
        view,
        rows=np.concatenate([v.rows for v in views]),
        wanted=np.concatenate([v.wanted for v in views]),
    )


def _view(place: Place, number: int) -> Linear | None:
    node = place.nodes[number]
    build = {"MatMul": _matmul, "Gemm": _gemm, "Conv": _conv}.get(node.op_type)
    if build is None or node.domain not in ("", "ai.onnx") or len(node.input) < 2:
        return None
    weight, given = place.constant(node.input[1]), place.operand(node.input[0])
    if weight is None or given is None or weight.dtype.kind not in "fV":
        return None
    wanted = wanted_at(place, number)
    return None if wanted is None else build(place, number, node, wide(given), weight, wanted)


def _matmul(
    place: Place, number: int, node: NodeProto, given: Wide, weight: Array, wanted: Wide
) -> Linear | None:
    if weight.ndim != 2 or given.ndim < 2 or wanted.shape[-1] != weight.shape[1]:
        return None
    rows, out = given.reshape(-1, weight.shape[0]), wanted.reshape(-1, weight.shape[1])
    return Linear(number, 1, node.input[1], weight, lambda w: w, lambda m: m, rows, out)


def _gemm(
    place: Place, number: int, node: NodeProto, given: Wide, weight: Array, wanted: Wide
) -> Linear | None:
    known = place.attributes(node)
    alpha, beta = (
        float(v) if isinstance(v := known.get(n), float) else 1.0 for n in ("alpha", "beta")
    )
    bias = place.operand(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if known.get("transA") or weight.ndim != 2 or given.ndim != 2 or not alpha:
        return None
    turned = bool(known.get("transB"))
    out = (wanted - (0 if bias is None else beta * wide(bias))) / alpha

    def matrix(array: Array) -> Array:
        return array.T if turned else array

    if out.shape != (len(given), matrix(weight).shape[1]):
        return None
    back = (lambda m: m.T) if turned else (lambda m: m)
    return Linear(number, 1, node.input[1], weight, matrix, back, given, out)


def _conv(
    place: Place, number: int, node: NodeProto, given: Wide, weight: Array, wanted: Wide
) -> Linear | None:
    known = place.attributes(node)
    if known.get("group", 1) != 1 or known.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    windows, out = kernel_windows(place, number, weight, wanted)
    if windows is None:
        return None
    rows = windows.reshape(-1, int(np.prod(windows.shape[3:])))
    results = np.moveaxis(out, 1, -1).reshape(-1, wanted.shape[1])
    step = max(1, len(rows) // _ROWS)
    shape = weight.shape
    return Linear(
        number,
        1,
        node.input[1],
        weight,
        lambda array: array.reshape(len(array), -1).T,
        lambda m: m.T.reshape(shape),
        rows[::step],
        results[::step],
    )


def kernel_windows(
    place: Place, number: int, weight: Array, wanted: Wide
) -> tuple[Wide | None, Wide]:
    """Return (what a convolution of one or two axes reads, as `_windows` has it, the wanted result without its bias).

    The first is None if there is none.
    """
    node = place.nodes[number]
    known, given = dict(place.attributes(node)), place.operand(node.input[0])
    bias = place.operand(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    out = wanted - (0 if bias is None else wide(bias).reshape(1, -1, *[1] * (wanted.ndim - 2)))
    if given is None or weight.ndim not in (3, 4) or given.ndim != weight.ndim:
        return None, out
    kernel, read = weight.shape[2:], wide(given)
    if weight.ndim == 3:  # as an image of one row
        kernel, read, out = (1, *kernel), read[:, :, None], out[:, :, None]
        for name, usual in (("pads", 0), ("strides", 1), ("dilations", 1)):
            value = known.get(name)
            ends = value if isinstance(value, list) else []
            known[name] = [int(number) for end in ends for number in (usual, end)]
    windows = _windows(read, kernel, known)
    fits = windows is not None and windows.shape[:3] == (out.shape[0], *out.shape[2:])
    return windows if fits else None, out


def _windows(given: Wide, kernel: Ints, known: Mapping[str, object]) -> Wide | None:
    """Return [samples, height, width, channels, kernel height, kernel width] of a 2-d convolution."""

    def axes(name: str, usual: list[int]) -> list[int]:
        value = known.get(name)
        return value if isinstance(value, list) and value else usual

    pads, strides, dilations = (
        axes("pads", [0] * 4),
        axes("strides", [1, 1]),
        axes("dilations", [1, 1]),
    )
    if given.ndim != 4 or given.nbytes * int(np.prod(kernel)) > 1 << 29:
        return None
    padded = np.pad(given, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if any(size < r for size, r in zip(padded.shape[2:], reach, strict=True)):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.moveaxis(windows, 1, 3)


def wanted_at(place: Place, number: int) -> Wide | None:
    """Return what a node should compute: the wanted value, taken back through the nodes behind it."""
    name = place.nodes[number].output[0]
    behind: list[tuple[NodeProto, int]] = []
    while name != place.value:
        users = [n for n in place.consumers.get(name, []) if n in place.leading]
        if len(users) != 1:
            return None
        node = place.nodes[users[0]]
        if list(node.input).count(name) != 1:
            return None
        behind.append((node, list(node.input).index(name)))
        name = node.output[0]
    if place.wanted.dtype.kind not in "fV":
        return None
    found: Wide | None = wide(place.wanted)
    for node, slot in reversed(behind):
        found = None if found is None else taken_back(place, node, slot, found)
    made = place.values.get(place.nodes[number].output[0])
    return found if found is not None and (made is None or made.shape == found.shape) else None


def taken_back(place: Place, node: NodeProto, slot: int, result: Wide) -> Wide | None:
    """Return the input of a node that gives a result; None where that is not unique."""
    shape = place.values[node.input[slot]].shape if node.input[slot] in place.values else None
    if shape is not None and node.op_type == "Concat":
        return _part(place, node, slot, result)
    if shape is None or (node.op_type != "Transpose" and int(np.prod(shape)) != result.size):
        return None
    other = place.operand(node.input[1 - slot]) if len(node.input) == 2 else None
    o = None if other is None or other.dtype.kind not in "fV" else wide(other)
    match node.op_type, slot:
        case "Add", _ if o is not None:
            return _shaped(result - o, shape)
        case "Sub", 0 if o is not None:
            return _shaped(result + o, shape)
        case "Sub", 1 if o is not None:
            return _shaped(o - result, shape)
        case "Mul", _ if o is not None and o.all():
            return _shaped(result / o, shape)
        case "Div", 0 if o is not None:
            return _shaped(result * o, shape)
        case _, 0 if node.op_type in _SAME_ELEMENTS:
            return result.reshape(shape)
        case "Transpose", 0:
            axes = place.attributes(node).get("perm") or [*range(result.ndim)][::-1]
            assert isinstance(axes, list)
            return result.transpose(np.argsort(np.array(axes)))
    return None


def _part(place: Place, node: NodeProto, slot: int, result: Wide) -> Wide | None:
    """Return an operand of a Concat."""
    axis, read = place.attributes(node).get("axis"), list(map(place.operand, node.input))
    if not isinstance(axis, int) or any(a is None for a in read):
        return None
    sizes = [a.shape[axis] for a in read if a is not None]
    if sum(sizes) != result.shape[axis]:
        return None
    return np.asarray(np.split(result, np.cumsum(sizes)[:-1], axis)[slot])


def _shaped(array: Wide, shape: Ints) -> Wide | None:
    return array if array.shape == shape else None
