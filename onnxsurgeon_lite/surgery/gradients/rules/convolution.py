"""Convolutions: each one's gradient is the other."""

from onnxsurgeon_lite.surgery.gradients.rules.formulas import rules
from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.surgery.gradients.windows import Window


def _window(s: GradientStep, large: Term, small: Term) -> Window:
    # [out, in, *kernel]: from the attribute, or from the weights' own shape
    shape = s.tape.shape(s.b.name)
    kernel = s.integers("kernel_shape") or [dim for dim in shape or [] if isinstance(dim, int)][2:]
    if shape is None or len(kernel) != len(shape) - 2:
        raise s.refused("the size of the kernel is not known")
    return Window.of(s, large, small, kernel)


def _weight(s: GradientStep, large: Term, small: Term, window: Window) -> Term:
    """Return the convolution of the large tensor with the small one, over the batch in place of the channels."""
    # Batch and channels change places: then a convolution sums over the batch, and what slides is the small tensor.
    # Strides and dilations change places, too.
    t = s.tape
    group = s.integer("group", 1)
    swap = [1, 0, *range(2, s.rank)]
    kernel = t.transposed(small, swap)
    made = t.op(
        "Conv",
        _grouped(s, large, group) if group > 1 else t.transposed(large, swap),
        kernel,
        group=group,
        strides=window.dilations,
        dilations=window.strides,
        pads=window.before + window.after,
    )
    # where the strides leave a rest, the result is larger than the kernel
    begin = [0] * len(window.kernel)
    axes = range(2, s.rank)
    return t.op("Slice", t.transposed(made, swap), begin, window.kernel, axes)


def _grouped(s: GradientStep, large: Term, group: int) -> Term:
    """[N, G * C, ...] -> [C, G * N, ...]"""
    t = s.tape
    # Each group gets batches of its own, as Conv's groups are along the second axis.
    spatial = t.shape_of(large, 2)
    split = t.op("Reshape", large, t.concat([0, group, -1], spatial))
    moved = t.transposed(split, [2, 1, 0, *range(3, s.rank + 1)])
    channels = t.shape_of(moved, 0, 1)
    return t.op("Reshape", moved, t.concat(channels, [-1], spatial))


_TABLE = """
group = integer("group", 1)
bias = sum(dy, [0, *range(2, rank)])

Conv          | window(a, y).spread(dy, b, a, group) | weight(a, dy, window(a, y)) | bias
ConvTranspose | Conv(dy, b, group=group, **window(y, a).attributes()) | weight(dy, a, window(y, a)) | bias
"""
RULES = rules(_TABLE, {"window": _window, "weight": _weight})
