"""Mistakes in attributes: another epsilon, axis, padding, mode, flag or permutation."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.causes.hypothesis import Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Attribute, Place
from onnxsurgeon_lite.passes.rewire import Rewire
from onnxsurgeon_lite.passes.set_attr import SetAttr
from onnxsurgeon_lite.tensors.dtypes import dtype_name, is_float

EPSILONS = (1e-5, 1e-6, 1e-3, 1e-12, 1e-8, 1e-7, 1e-4, 1e-2)
_FLAGS = (
    *("transA", "transB", "keepdims", "ceil_mode", "count_include_pad", "largest", "sorted", "reverse", "exclusive"),
    *("upper", "fmod", "antialias", "exclude_outside", "linear_before_reset", "align_corners", "is_causal"),
    *("interleaved", "select_last_index", "noop_with_empty_axes", "allowzero", "unidirectional", "layout", "cubic"),
)  # fmt: skip
_VALUES: Mapping[str, Sequence[Attribute]] = {
    **dict.fromkeys(("epsilon", "eps"), EPSILONS),
    **dict.fromkeys(_FLAGS, (0, 1)),
    "alpha": (1.0, 0.01, 0.1, 0.2, 0.3, 0.5, 0.25, 1 / 6, 1.702, 1.6732632),
    "beta": (1.0, 0.5, 0.0),
    "gamma": (1.0507010,),
    "approximate": ("none", "tanh"),
    "direction": ("forward", "reverse", "bidirectional", "LEFT", "RIGHT"),
    "reduction": ("none", "add", "mul", "max", "min", "mean", "sum"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "coordinate_transformation_mode": (
        *("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"),
        "tf_crop_and_resize",
    ),
    "nearest_mode": ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"),
    "cubic_coeff_a": (-0.75, -0.5),
    "padding_mode": ("zeros", "border", "reflection"),
    "batch_dims": (0, 1, 2),
    "momentum": (0.9, 0.99, 0.1),
    "p": (1, 2),
    "blocksize": (2, 3, 4),
    "num_groups": (1, 2, 4, 8, 16, 32),
    "bias": (0.0,),
    "round": (0, 1),
    "k": (1, 2),
    "size": (3, 5, 7, 9),
}  # fmt: skip
"""Attribute -> the values that people mistake for each other."""
_MODES = (
    ("nearest", "linear", "cubic"),
    ("DCR", "CRD"),
    ("constant", "reflect", "edge", "wrap"),
    ("nearest", "bilinear", "bicubic"),
)
"""The modes of one operator each."""
_DTYPES = (1, 10, 16, 11), (7, 6, 9)  # floats; integers and bool
_DTYPED = ("to", "dtype", "stash_type", "output_dtype")  # attributes that stand for a dtype
_AXES = ("axis", "axes", "split_axis", "stash_axis")
_MOST_AXES = 5  # axes whose permutations are tried
WINDOWS = ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose")  # fmt: skip
_KERNELS = (2, 3, 5, 7, 1)  # of pools
_STEPS = (1, 2, 3, 4)  # strides and dilations
_DILATIONS = (6, 8, 12, 16, 18, 24, 32, 64)  # of kernels that are dilated already
_RECURRENT = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
"""Recurrent operator -> its usual activations."""


def attributes(place: Place) -> Hypotheses:
    """Yield hypotheses about one attribute of one node, about those of two nodes, then about several of a node."""
    for number, node in enumerate(place.nodes):
        known = place.attributes(node)
        for name, old in known.items():
            for new in _values(place, node, name, old):
                if new != old:
                    yield changed(place, number, {name: new}, known)
    yield from _exchanged(place)
    for number, node in enumerate(place.nodes):
        known = place.attributes(node)
        if node.op_type == "Conv":
            yield from _padded(place, number, known)
        several = _windows(place, node, known) if node.op_type in WINDOWS else ()
        several = _resizing(known) if node.op_type == "Resize" else several
        several = _activations(node, known) if node.op_type in _RECURRENT else several
        for together in several:
            yield changed(place, number, together, known)


def _exchanged(place: Place) -> Hypotheses:
    """Yield attributes that are swapped between two nodes of one operator: the stride of the next convolution."""
    made = (place.values.get(node.output[0]) for node in place.nodes)
    data = [number for number, v in enumerate(made) if v is not None and is_float(v.dtype)]
    for one, other in itertools.combinations(data, 2):
        nodes = [place.nodes[number] for number in (one, other)]
        if nodes[0].op_type != nodes[1].op_type:
            continue
        mine, others = map(place.attributes, nodes)
        for name in sorted(mine.keys() & others.keys() - {"kernel_shape"}):
            if mine[name] != others[name] and type(mine[name]) is type(others[name]):
                edits = tuple(
                    SetAttr(place.only(number), ((name, value),))
                    for number, value in ((one, others[name]), (other, mine[name]))
                )
                titles = f"{place.title(one)} and {place.title(other)}"
                values = f"{said(name, mine[name])} and {said(name, others[name])}"
                sentence = f"{name} of {titles} are {values}; exchanged"
                mistake = ("exchanged", nodes[0].op_type, name)
                yield Hypothesis(name, sentence, edits, mistake)


def changed(
    place: Place, number: int, new: Mapping[str, Attribute], known: Mapping[str, Attribute]
) -> Hypothesis:
    """Return the hypothesis that attributes of a node should have other values."""
    title, node = place.title(number), place.nodes[number]
    new = {name: value for name, value in new.items() if known.get(name) != value}
    where = itertools.chain([f" of {title} is"], itertools.repeat(""))
    old = {name: said(name, known.get(name, "missing")) for name in new}
    was = [f"{name}{of} {old[name]}" for name, of in zip(new, where, strict=False)]
    values = (f"{n}={said(n, v)}" if len(new) > 1 else said(n, v) for n, v in new.items())
    if [*new] == ["transB"] and place.constant(node.input[1]) is not None:
        was.append("or the weight is transposed")  # a square one tells no difference
    edit = SetAttr(place.only(number), tuple(new.items()))
    sentence = f"{', '.join(was)}; with {', '.join(values)}"
    return Hypothesis(" and ".join(new), sentence, (edit,), (node.op_type, *new.items()))


def said(name: str, value: Attribute) -> str:
    """Return the value of an attribute that has a name as people write it: a dtype by its name."""
    return dtype_name(value) if name in _DTYPED and isinstance(value, int) else text(value)


def text(value: Attribute) -> str:
    """Return an attribute's value as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(place: Place, node: NodeProto, name: str, old: Attribute) -> Iterator[Attribute]:
    read = place.operand(node.input[0]) if node.input else None
    rank = 0 if read is None else read.ndim
    if name == "epsilon" and isinstance(old, float):
        yield from EPSILONS
    elif name in _AXES and isinstance(old, int) and rank:
        axes = [*range(rank - 1), -1]  # people call the last one -1
        yield from (axis for axis in axes if axis % rank != old % rank)
    elif name == "axes" and isinstance(old, list):
        yield from ([axis] for axis in range(rank))
    elif name == "scale" and rank and read is not None:
        yield from (1.0, read.shape[-1] ** -0.5)
    elif name == "auto_pad" and any(attribute.name == "pads" for attribute in node.attribute):
        yield from ()  # no node takes both; `_windows` finds the pads that it stands for
    elif name == "to":
        yield from next((kinds for kinds in _DTYPES if old in kinds), ())
    elif name == "mode":
        yield from next((modes for modes in _MODES if old in modes), ())
    elif name == "perm" and isinstance(old, list):
        yield from _permutations(place, node, [axis for axis in old if isinstance(axis, int)])
    else:
        yield from (v for v in _VALUES.get(name, ()) if type(v) is type(old))


def _permutations(place: Place, node: NodeProto, old: list[int]) -> Iterator[list[int]]:
    """Yield the permutations that keep the shape of the result, or give it the wanted one; of many axes the nearest."""
    given, made = place.operand(node.input[0]), place.values.get(node.output[0])
    shapes = {made.shape} if made is not None else set()
    if node.output[0] == place.value:
        shapes = {place.wanted.shape}
    few = len(old) <= _MOST_AXES
    for axes in itertools.permutations(range(len(old))) if few else _exchanged_axes(old):
        if given is not None and tuple(given.shape[axis] for axis in axes) in shapes:
            yield list(axes)


def _exchanged_axes(axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield permutations with two axes exchanged."""
    for one, other in itertools.combinations(range(len(axes)), 2):
        exchanged = [*axes]
        exchanged[one], exchanged[other] = axes[other], axes[one]
        yield tuple(exchanged)


def _windows(
    place: Place, node: NodeProto, known: Mapping[str, Attribute]
) -> Iterator[dict[str, Attribute]]:
    """Yield usual paddings, then what gives the result its shape, or that of the wrong value behind it."""
    given, made = place.operand(node.input[0]), place.values.get(node.output[0])
    shapes = [array.shape for array in (made, place.wanted) if array is not None]
    if node.output[0] == place.value:
        shapes = shapes[-1:]
    kernel = _kernel(place, node, known)
    if kernel and node.output[0] != place.value and node.op_type != "ConvTranspose":
        yield from _usual(known, kernel)
    for shape in dict.fromkeys(shape[2:] for shape in shapes if kernel):
        if given is not None and given.ndim == len(kernel) + 2 == len(shape) + 2:
            yield from _sized(node, known, kernel, given.shape[2:], shape)


def _usual(known: Mapping[str, Attribute], kernel: Sequence[int]) -> Iterator[dict[str, Attribute]]:
    """Yield paddings and roundings that people write, of any size: what follows may not tell it, as a mean does."""
    axes = len(kernel)
    half = [size // 2 for size in kernel]
    paddings = ([0] * 2 * axes, [*half, *half], [*[0] * axes, *half], [*half, *[0] * axes])
    old = {**known, "pads": known.get("pads") or paddings[0]}
    is_plain = known.get("auto_pad", "NOTSET") == "NOTSET"
    for pads, ceil in itertools.product(paddings if is_plain else (), (0, 1)):
        new: dict[str, Attribute] = {"pads": pads, "ceil_mode": ceil}
        changes = {name: v for name, v in new.items() if old.get(name, v) != v}
        if "pads" in changes and (not ceil or "ceil_mode" in known):
            yield changes


def _sized(
    node: NodeProto,
    known: Mapping[str, Attribute],
    kernel: list[int],
    read: Sequence[int],
    made: Sequence[int],
) -> Iterator[dict[str, Attribute]]:
    axes = len(kernel)
    ceil = bool(known.get("ceil_mode", 0))
    transposed, pool = node.op_type == "ConvTranspose", node.op_type.endswith("Pool")
    kernels = [kernel, *([size] * axes for size in _KERNELS if pool)]
    steps = [*itertools.product(kernels, _STEPS, _STEPS)]
    if not pool and not transposed:
        steps += [(kernel, 1, dilation) for dilation in _larger(known)]
    for kernel, stride, dilation in steps:
        sizes = [*zip(read, made, kernel, strict=True)]
        choices = [_paddings(i, o, k, stride, dilation, ceil, transposed) for i, o, k in sizes]
        for pads in itertools.islice(_same_first(choices), 16):
            found: dict[str, Attribute] = {
                "dilations": [dilation] * axes,
                "strides": [stride] * axes,
                "pads": [before for before, _ in pads] + [after for _, after in pads],
            }
            if pool:
                found["kernel_shape"] = kernel
            if transposed:
                full = [stride * (i - 1) + dilation * (k - 1) + 1 - o for i, o, k in sizes]
                found["output_padding"] = [sum(p) - f for p, f in zip(pads, full, strict=True)]
            if known.get("auto_pad", "NOTSET") != "NOTSET":
                found["auto_pad"] = "NOTSET"
            usual: dict[str, Attribute] = {
                "dilations": [1] * axes,
                "strides": [1] * axes,
                "pads": [0] * 2 * axes,
                "output_padding": [0] * axes,
            }
            others = {n: v for n, v in found.items() if (known.get(n) or usual.get(n)) != v}
            if others.keys() & known.keys():
                yield {n: v for n, v in others.items() if n in known}


def _larger(known: Mapping[str, Attribute]) -> Iterator[int]:
    """Yield more dilations for a kernel that is dilated."""
    given = known.get("dilations")
    dilated = isinstance(given, list) and any(int(each) > 1 for each in given)
    yield from _DILATIONS if dilated else ()


def _padded(place: Place, number: int, known: Mapping[str, Attribute]) -> Hypotheses:
    """Yield other dilations of a convolution, and the pads of a Pad in front that keep its size: at the same ends."""
    node = place.nodes[number]
    kernel = np.array(_kernel(place, node, known), np.int64)
    before = place.producer.get(node.input[0], number)
    pad = place.nodes[before]
    now = place.operand(pad.input[1]) if pad.op_type == "Pad" else None
    if now is None or not kernel.size or now.size != 2 * (kernel.size + 2) or any(pad.input[3:]):
        return
    given, ends = known.get("dilations"), now.reshape(2, -1)[:, 2:]
    old = np.array(given if isinstance(given, list) and given else [1] * kernel.size)
    for dilation in dict.fromkeys((*_STEPS, *_larger(known))):
        total = ends.sum(axis=0) + (dilation - old) * (kernel - 1)
        share = ends[0] / np.maximum(1, ends.sum(axis=0))
        first = np.rint(share * total).astype(now.dtype)
        if (old == dilation).all() or (total < 0).any() or (ends.sum(axis=0) == 0).any():
            continue
        pads = now.reshape(2, -1).copy()
        pads[:, 2:] = first, total - first
        other = [dilation] * kernel.size
        token = place.only(before)
        edits = (
            Rewire(pad.input[1], str(pads.reshape(-1).tolist()), token, 1),
            SetAttr(place.only(number), (("dilations", other),)),
        )
        was = f"dilations of {place.title(number)} is {old.tolist()}, pads of {place.title(before)} are {now.tolist()}"
        sentence = f"{was}; with {other} and {pads.reshape(-1).tolist()}"
        mistake = ("padded", node.op_type, dilation)
        yield Hypothesis("dilations and pads", sentence, edits, mistake)


def _same_first(
    choices: Sequence[Sequence[tuple[int, int]]],
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield paddings for every axis: equal ones first, then all combinations."""
    for pads in choices[0] if choices else ():
        if all(pads in other for other in choices):
            yield (pads,) * len(choices)
    yield from (pads for pads in itertools.product(*choices) if len(set(pads)) > 1)


def _paddings(
    size: int, made: int, kernel: int, stride: int, dilation: int, ceil: bool, transposed: bool
) -> list[tuple[int, int]]:
    """Return the (before, after) that give an axis its size: balanced ones first, then those at one end."""
    reach = dilation * (kernel - 1) + 1
    if transposed:
        least = stride * (size - 1) + reach - made
        totals = range(least, least + stride)
    else:
        least = stride * (made - 1) + reach - size
        totals = range(least - (stride - 1) * ceil, least + (1 if ceil else stride))
    few = (total for total in totals if 0 <= total <= 2 * reach)
    found = [(before, total - before) for total in few for before in range(total + 1)]
    return sorted(found, key=lambda pads: (min(*pads, abs(pads[0] - pads[1])), pads[0] != pads[1]))


def _activations(node: NodeProto, known: Mapping[str, Attribute]) -> Iterator[dict[str, Attribute]]:
    """Yield the activations that recurrent nodes have elsewhere: of the gates, of what they let through."""
    usual = _RECURRENT[node.op_type]
    given = known.get("activations")
    old = given if isinstance(given, list) and given else [*usual]
    directions = 2 if known.get("direction") == "bidirectional" else 1
    for gates, others in itertools.product(("Sigmoid", "HardSigmoid"), ("Tanh", "Relu", "Sigmoid")):
        new = [gates if name == "Sigmoid" else others for name in usual] * directions
        if new != list(map(str, old)) and new != list(map(str, old)) * directions:
            yield {"activations": new}


def _kernel(place: Place, node: NodeProto, known: Mapping[str, Attribute]) -> list[int]:
    """Return the size of a window: as it says, else that of the weight."""
    given = known.get("kernel_shape")
    if isinstance(given, list) and given:
        return [int(size) for size in given]
    weight = place.operand(node.input[1]) if len(node.input) > 1 else None
    return [] if weight is None else list(map(int, weight.shape[2:]))


def _resizing(known: Mapping[str, Attribute]) -> Iterator[dict[str, Attribute]]:
    """Yield combinations of a Resize's modes."""
    for mode, how in itertools.product(
        ("nearest", "linear", "cubic"), _VALUES["coordinate_transformation_mode"]
    ):
        more: tuple[str, Sequence[Attribute]] = ("antialias", (0, 1))
        if mode == "nearest":
            more = ("nearest_mode", _VALUES["nearest_mode"])
        elif mode == "cubic":
            more = ("cubic_coeff_a", _VALUES["cubic_coeff_a"])
        for value in more[1]:
            found = {"mode": mode, "coordinate_transformation_mode": how, more[0]: value}
            if sum(known.get(name) != v for name, v in found.items()) > 1 and more[0] in known:
                yield found


def numbers(place: Place) -> Iterator[tuple[int, str, Mapping[str, Attribute]]]:
    """Yield (node, attribute, all attributes) of attributes that can be solved for."""
    for number, node in enumerate(place.nodes):
        known = place.attributes(node)
        for name, old in known.items():
            is_number = isinstance(old, float) and np.isfinite(old)
            if is_number and name in ("epsilon", "alpha", "beta", "scale"):
                yield number, name, known
