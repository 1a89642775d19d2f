"""Mistakes in attributes: another epsilon, axis, padding, mode, flag or permutation."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.debug.causes.hypothesis import MISTAKES, Edits, Hypotheses, Hypothesis
from onnxsurgeon_lite.debug.causes.place import Attribute, Ints, Place, RegionNode
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.passes import Insert, Rewire, SetAttr
from onnxsurgeon_lite.tensors.dtypes import Array, dtype_name, has_floats

New = dict[str, Attribute]
"""Other values of some attributes of one node."""
_Integers = NDArray[np.int64]
_Window = tuple[_Integers, _Integers, _Integers]
"""(dilations, pads before, pads behind) of each axis."""

_VALUES: Mapping[str, Sequence[Attribute]] = MISTAKES["attributes"]
EPSILONS = MISTAKES["attributes"]["epsilon"]
_NAMED = ("to", "dtype", "stash_type", "output_dtype")  # attributes that stand for a dtype
_AXES = ("axis", "axes", "split_axis", "stash_axis")
_MOST_AXES = 5  # axes whose permutations are tried
WINDOWS = ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose")  # fmt: skip
_KERNELS = (2, 3, 5, 7, 1)  # of pools
_STEPS = (1, 2, 3, 4)  # strides and dilations
_MOST_PADDINGS = 16  # for one kernel, stride and dilation
_RECURRENT = MISTAKES["recurrent"]


def attributes(place: Place) -> Hypotheses:
    """Yield hypotheses about one attribute of one node, about those of two nodes, then about several of a node."""
    for site in place.sites:
        for name, old in site.attributes.items():
            for new in _values(site, name, old):
                if new != old:
                    yield changed(site, {name: new})
    yield from _exchanged(place)
    for site in place.sites:
        if site.op_type == "Conv":
            yield from _of_any_kernel(site)
            yield from _bordered(site)
        for together in _several(site):
            yield changed(site, together)


def axes_that_are_read(place: Place) -> Hypotheses:
    """Yield other axes of reductions that read them."""
    for site in place.sites:
        read, axes = site.operand(0), site.constant(1)
        if not site.op_type.startswith("Reduce") or read is None or axes is None:
            continue
        now = sorted(int(axis) % read.ndim for axis in axes.array.flat)
        for new in _sets_of_axes(read.ndim):
            if new != now:
                edit = Rewire(axes.name, str(new), site.only, 1)
                sentence = f"axes of {site.title} are {now}; with {new}"
                yield Hypothesis("axes", sentence, (edit,), ("axes", site.op_type, tuple(new)))


def _sets_of_axes(rank: int) -> Iterator[list[int]]:
    """Yield up to three axes."""
    for size in (1, 2, 3):
        yield from map(list, itertools.combinations(range(rank), size))


def _several(site: RegionNode) -> Iterator[New]:
    """Yield other values of several attributes of one node."""
    if site.op_type in WINDOWS:
        yield from _windows(site)
    elif site.op_type == "Resize":
        yield from _resizing(site.attributes)
    elif site.op_type in _RECURRENT:
        yield from _activations(site)


def _exchanged(place: Place) -> Hypotheses:
    """Yield attributes that are swapped between two nodes of one operator: the stride of the next convolution."""
    data = [site for site in place.sites if has_floats(site.made)]
    for one, two in itertools.combinations(data, 2):
        if one.op_type != two.op_type:
            continue
        mine, others = one.attributes, two.attributes
        # a kernel has the size of its weight
        for name in sorted(mine.keys() & others.keys() - {"kernel_shape"}):
            a, b = mine[name], others[name]
            if a != b and type(a) is type(b):
                edits = SetAttr(one.only, ((name, b),)), SetAttr(two.only, ((name, a),))
                was = (
                    f"{name} of {one.title} and {two.title} are {said(name, a)} and {said(name, b)}"
                )
                mistake = ("exchanged", one.op_type, name)
                yield Hypothesis(name, f"{was}; exchanged", edits, mistake)


def changed(site: RegionNode, new: Mapping[str, Attribute]) -> Hypothesis:
    """Return the hypothesis that attributes of a node should have other values."""
    known = site.attributes
    # a number that was solved for may be the old one
    new = {name: value for name, value in new.items() if known.get(name) != value} or new
    was = [f"{name} {said(name, known.get(name, 'missing'))}" for name in new]
    first, _, old = was[0].partition(" ")
    was[0] = f"{first} of {site.title} is {old}"
    weight = site.name(1)
    if list(new) == ["transB"] and weight and site.place.constant(weight) is not None:
        was.append("or the weight is transposed")  # a square one shows no difference
    values = [f"{name}={said(name, value)}" for name, value in new.items()]
    right = ", ".join(values) if len(values) > 1 else values[0].partition("=")[2]
    edit = SetAttr(site.only, tuple(new.items()))
    mistake = (site.op_type, *new.items())
    return Hypothesis(" and ".join(new), f"{', '.join(was)}; with {right}", (edit,), mistake)


def said(name: str, value: Attribute) -> str:
    """Return the value of an attribute as people write it: a dtype by its name."""
    return dtype_name(value) if name in _NAMED and isinstance(value, int) else text(value)


def text(value: Attribute) -> str:
    """Return an attribute's value as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _values(site: RegionNode, name: str, old: Attribute) -> Iterator[Attribute]:
    """Yield the values that an attribute of a node may have instead."""
    read = site.operand(0)
    rank = 0 if read is None else read.ndim
    if name in MISTAKES["rows"]:
        yield from next((row for row in MISTAKES["rows"][name] if old in row), ())
    elif name in _AXES and isinstance(old, int) and rank:
        axes = [*range(rank - 1), -1]  # people call the last one -1
        yield from (axis for axis in axes if axis % rank != old % rank)
    elif name == "axes" and isinstance(old, list):
        yield from _sets_of_axes(rank)
    elif name == "scale" and read is not None and rank:
        yield from (1.0, read.shape[-1] ** -0.5)
        heads = integer(site.node, "num_heads")
        if heads and site.made is not None:
            yield (site.made.shape[-1] // heads) ** -0.5
    elif name == "auto_pad" and any(attribute.name == "pads" for attribute in site.node.attribute):
        return  # no node takes both; `_windows` finds the pads that it stands for
    elif name == "perm" and isinstance(old, list):
        yield from _permutations(site, site.ints(name))
    else:
        yield from (v for v in _VALUES.get(name, ()) if type(v) is type(old))


def _permutations(site: RegionNode, old: list[int]) -> Iterator[list[int]]:
    """Yield the permutations that keep the shape of the result, or give it the wanted one; of many axes the nearest."""
    # the wrong value has the wrong shape: the wanted one counts
    given, made = site.operand(0), site.made
    if site.output == site.place.value:
        made = site.place.wanted
    if given is None or made is None:
        return
    few = len(old) <= _MOST_AXES
    for axes in itertools.permutations(range(len(old))) if few else _exchanged_axes(old):
        if tuple(given.shape[axis] for axis in axes) == made.shape:
            yield list(axes)


def _exchanged_axes(axes: list[int]) -> Iterator[Ints]:
    """Yield permutations with two axes exchanged."""
    for one, other in itertools.combinations(range(len(axes)), 2):
        exchanged = axes.copy()
        exchanged[one], exchanged[other] = axes[other], axes[one]
        yield tuple(exchanged)


def _windows(site: RegionNode) -> Iterator[New]:
    """Yield usual paddings, then what gives the result its shape, or that of the wrong value after it."""
    is_wrong = site.output == site.place.value
    shapes = [] if site.made is None or is_wrong else [site.made.shape]
    shapes.append(site.place.wanted.shape)
    kernel, given = _kernel(site), site.operand(0)
    if kernel and not is_wrong and site.op_type != "ConvTranspose":
        yield from _usual(site.attributes, kernel)
    for shape in dict.fromkeys(shape[2:] for shape in shapes):
        if kernel and given is not None and given.ndim - 2 == len(kernel) == len(shape):
            yield from _sized(site, kernel, given.shape[2:], shape)


def _usual(known: Mapping[str, Attribute], kernel: Sequence[int]) -> Iterator[New]:
    """Yield paddings and roundings that people write, of any size: what follows may not show it, as a mean does."""
    if known.get("auto_pad", "NOTSET") != "NOTSET":
        return
    none, half = [0] * len(kernel), [size // 2 for size in kernel]
    old = {**known, "pads": known.get("pads") or none + none}
    every = (none + none, half + half, none + half, half + none)
    for pads, ceil in itertools.product(every, (0, 1) if "ceil_mode" in known else (0,)):
        new: New = {"pads": pads, "ceil_mode": ceil}
        changes = {name: v for name, v in new.items() if old.get(name, v) != v}
        if "pads" in changes:
            yield changes


def _sized(site: RegionNode, kernel: list[int], read: Ints, made: Ints) -> Iterator[New]:
    """Yield the windows, steps and paddings that give a result its shape."""
    known, axes = site.attributes, len(kernel)
    transposed, pool = site.op_type == "ConvTranspose", site.op_type.endswith("Pool")
    kernels = [kernel] + [[size] * axes for size in _KERNELS if pool]
    steps = list(itertools.product(kernels, _STEPS, _STEPS))
    if not pool and not transposed:
        steps += [(kernel, 1, dilation) for dilation in _larger(site)]
    usual: New = {
        "dilations": [1] * axes,
        "strides": [1] * axes,
        "pads": [0] * 2 * axes,
        "kernel_shape": kernel,
        "output_padding": [0] * axes,
    }
    small, large = map(np.array, (read, made) if transposed else (made, read))
    for size, stride, dilation in steps:
        # the total padding of each axis with which the result has its shape, or less than a stride more
        reach = dilation * (np.array(size) - 1) + 1
        rest = 0 if transposed or not known.get("ceil_mode", 0) else stride - 1
        least = stride * (small - 1) + reach - large
        # no window has padding alone; a pool counts none between the elements of a dilated one
        widest = zip(least, size if pool else reach, strict=True)
        choices = [_paddings(int(total), stride, rest, int(most) - 1) for total, most in widest]
        for pads in itertools.islice(_same_first(choices), _MOST_PADDINGS):
            found: New = {
                "dilations": [dilation] * axes,
                "strides": [stride] * axes,
                "pads": [before for before, _ in pads] + [after for _, after in pads],
                "kernel_shape": size,
                "output_padding": (np.array(pads).sum(axis=1) - least).tolist(),
                "auto_pad": "NOTSET",
            }
            # what the operator has, and has otherwise
            has = {name: value for name, value in found.items() if name in known}
            new = {n: v for n, v in has.items() if (known[n] or usual.get(n)) != v}
            if new:
                yield new


def _larger(site: RegionNode) -> Sequence[int]:
    """Return more dilations for a kernel that is dilated."""
    is_dilated = any(each > 1 for each in site.ints("dilations"))
    return MISTAKES["windows"]["dilations"] if is_dilated else ()


def _bordered(site: RegionNode) -> Hypotheses:
    """Yield pads that repeat the image, where a convolution pads with zeros."""
    pads = np.array(site.ints("pads"), np.int64)
    if not pads.any():
        return
    # batch and channels have none
    whole = np.pad(pads.reshape(2, -1), ((0, 0), (2, 0))).reshape(-1)
    none = SetAttr(site.only, (("pads", [0] * pads.size),))
    for mode in MISTAKES["padding"]["modes"]:
        named = (("mode", mode),)
        pad = Insert(site.input[0], "Pad", (), named, to=site.only, constants=(("pads", whole),))
        sentence = f"{site.title} pads with zeros; with a Pad of mode {mode} before it"
        yield Hypothesis("padding", sentence, (pad, none), ("padding", mode))


def _pad_before(site: RegionNode, axes: int) -> tuple[RegionNode | None, Array | None]:
    """Return (the Pad whose result a window alone reads, its pads); None without one."""
    maker = site.maker(0)
    now = maker.operand(1) if maker is not None and maker.op_type == "Pad" else None
    if maker is None or now is None or any(maker.input[3:]) or now.size != 2 * (axes + 2):
        return None, None
    return (maker, now) if axes else (None, None)


def _of_any_kernel(site: RegionNode) -> Hypotheses:
    """Yield pads and dilations that follow from a rule, so that kernels of all sizes have the same mistake."""
    kernel = np.array(_kernel(site), np.int64)
    maker, now = _pad_before(site, kernel.size)
    read = (maker or site).operand(0)
    if not (kernel > 1).any() or read is None or site.attributes.get("auto_pad") != "NOTSET":
        return
    # the node's own pads, or those of height and width that the Pad before it has
    old = np.array(site.ints("dilations") or [1] * kernel.size)
    pads = np.array(site.ints("pads") or [0] * 2 * kernel.size).reshape(2, -1)
    own = pads if now is None else np.int64(now).reshape(2, -1)[:, 2:]
    sizes = np.array(read.shape[2:])
    rules = {**_padded(site, kernel, old, sizes), **_dilated(site, kernel, old, own)}
    for rule, (dilation, *ends) in rules.items():
        if ((own == ends).all() and (old == dilation).all()) or not dilation.all():
            continue
        new: New = {"dilations": dilation.tolist(), "pads": np.concatenate(ends).tolist()}
        mistake = "window", rule
        if maker is None or now is None:
            yield replace(changed(site, new), mistake=mistake)
            continue
        whole = np.concatenate([now.reshape(2, -1)[:, :2], ends], axis=1).reshape(-1).tolist()
        padded = Rewire(maker.input[1], str(whole), maker.only, 1)
        edits: Edits = padded, SetAttr(site.only, (("dilations", dilation.tolist()),))
        # what stays is not said
        was, right = f"pads of {maker.title} are {now.tolist()}", f"{rule}, {whole},"
        if (old != dilation).any():
            was = f"dilations of {site.title} is {old.tolist()}, {was}"
            right = f"{rule}, {dilation.tolist()} and {whole},"
        yield Hypothesis("window", f"{was}; with {right}", edits, mistake)


def _padded(
    site: RegionNode, kernel: _Integers, old: _Integers, sizes: _Integers
) -> dict[str, _Window]:
    """Return pads by the rule that they follow: of half the kernel, or as SAME has them."""
    strides = np.array(site.ints("strides") or [1] * kernel.size)
    # SAME: the size of the output is that of the input, divided by the stride and rounded up
    same = np.maximum((-(-sizes // strides) - 1) * strides + old * (kernel - 1) + 1 - sizes, 0)
    half, late, none = old * (kernel - 1) // 2, -(-same // 2), np.zeros_like(kernel)
    return {
        "half of the kernel at both ends": (old, half, half),
        "those of SAME_UPPER": (old, same - late, late),
        "those of SAME_LOWER": (old, late, same - late),
        "all at the end": (old, none, same),
        "all at the beginning": (old, same, none),
    }


def _dilated(
    site: RegionNode, kernel: _Integers, old: _Integers, own: _Integers
) -> dict[str, _Window]:
    """Return other dilations with the pads that keep the size, by their rule."""
    rules = {"twice the dilations": 2 * old, "half the dilations": old // 2}
    # a node with its own pads is tried with each of these by `_windows`
    for step in dict.fromkeys(chain(_STEPS, _larger(site))) if site.maker(0) else ():
        rules[f"dilations of {step}"] = np.full_like(kernel, step)
    found, both = dict[str, _Window](), own.sum(axis=0)
    for rule, dilation in rules.items():
        # the ends share the larger pads as they share them now; where none are, there stay none
        total = np.maximum(0, both + (dilation - old) * (kernel - 1)) * (both > 0)
        first = np.rint(own[0] / np.maximum(1, both) * total).astype(own.dtype)
        found[rule] = dilation, first, total - first
    return found


def _same_first(
    choices: Sequence[Sequence[tuple[int, int]]],
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield paddings for every axis: equal ones first, then all combinations."""
    for pads in choices[0]:
        if all(pads in other for other in choices):
            yield (pads,) * len(choices)
    yield from (pads for pads in itertools.product(*choices) if len(set(pads)) > 1)


def _paddings(least: int, stride: int, rest: int, most: int) -> list[tuple[int, int]]:
    """Return the (before, after) that give an axis its size: balanced ones first, then those at one end.

    Args:
        rest: the total may be less by this number where sizes are rounded up.
        most: padding at one end.
    """
    # every total with which the axis has its size
    totals = range(least - rest, least + (1 if rest else stride))
    found = [
        (before, total - before)
        for total in totals
        for before in range(max(0, total - most), min(total, most) + 1)
    ]
    return sorted(found, key=lambda pads: (min(*pads, abs(pads[0] - pads[1])), pads[0] != pads[1]))


def _activations(site: RegionNode) -> Iterator[New]:
    """Yield the activations that recurrent nodes have elsewhere: of the gates, of what they let through."""
    # a list for each direction, one after the other
    usual, given = _RECURRENT[site.op_type], site.attributes.get("activations")
    directions = 2 if site.attributes.get("direction") == "bidirectional" else 1
    old = given if isinstance(given, list) and given else usual
    for gates, others in itertools.product(("Sigmoid", "HardSigmoid"), ("Tanh", "Relu", "Sigmoid")):
        new = [gates if name == "Sigmoid" else others for name in usual] * directions
        if new not in (old, old * directions):
            yield {"activations": new}


def _kernel(site: RegionNode) -> list[int]:
    """Return the size of a window: as it says, else that of the weight."""
    weight = site.operand(1)
    return site.ints("kernel_shape") or ([] if weight is None else list(weight.shape[2:]))


def _resizing(known: Mapping[str, Attribute]) -> Iterator[New]:
    """Yield combinations of a Resize's modes."""
    of_mode = {"nearest": "nearest_mode", "linear": "antialias", "cubic": "cubic_coeff_a"}
    how = "coordinate_transformation_mode"
    for (mode, more), where in itertools.product(of_mode.items(), _VALUES[how]):
        for value in _VALUES[more]:
            found: New = {"mode": mode, how: where, more: value}
            if sum(known.get(name) != v for name, v in found.items()) > 1 and more in known:
                yield found
