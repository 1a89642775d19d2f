"""The geometry of a sliding window: strides, dilations and padding, of convolutions and pooling alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.surgery.gradients.step import GradientStep
from onnxsurgeon_lite.surgery.gradients.tape import Attribute, Dim, Term


@dataclass(frozen=True)
class Window:
    """How a window slides over the spatial axes of a large tensor, and gives a small one.

    Attributes:
        large, small: the spatial sizes.
        kernel, strides, dilations: by spatial axis.
        before, after: the padding of the large tensor.
    """

    large: list[Dim]
    small: list[Dim]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, s: GradientStep, large: Term, small: Term, kernel: Sequence[int]) -> "Window":
        """Return the window of a node.

        Raises:
            EditError: the padding depends on sizes that are not known, or the node is malformed.
        """
        count = len(kernel)
        pads = s.integers("pads") or [0] * (2 * count)
        strides = s.integers("strides") or [1] * count
        dilations = s.integers("dilations") or [1] * count
        more = s.integers("output_padding") or strides
        sizes = _spatial(s, large, count), _spatial(s, small, count)
        listed: list[Sequence[Dim]] = [*sizes, pads[count:], strides, dilations, more]
        # of an image and its kernel that do not fit
        if len(pads) != 2 * count or any(len(numbers) != count for numbers in listed):
            raise s.refused("its attributes and inputs have different ranks")
        window = cls(*sizes, list(kernel), strides, dilations, pads[:count], pads[count:])
        # padding that follows from the sizes: SAME_UPPER puts the odd element at the end, all others at the begin
        auto = s.text("auto_pad", "NOTSET")
        shaped = "output_shape" in s.attributes
        if auto == "NOTSET" and not shaped:
            return window
        total = [0] * count if auto == "VALID" else window._padding(s)
        half = [pad // 2 if auto == "SAME_UPPER" else pad - pad // 2 for pad in total]
        window.before[:] = half
        window.after[:] = [pad - first for pad, first in zip(total, half, strict=True)]
        return window

    def _padding(self, s: GradientStep) -> list[int]:
        """Return the padding with which the window gives the sizes."""
        more = s.integers("output_padding") or [0] * len(self.kernel)
        if not self.known:
            raise s.refused("the padding follows from sizes that are not known")
        sizes = zip(self.spans, more, self.sizes(self.large), strict=True)
        # what the window reaches beyond the tensor
        return [max(span + extra - size, 0) for span, extra, size in sizes]

    @property
    def known(self) -> bool:
        """Whether all sizes are known."""
        return all(isinstance(size, int) for size in self.large + self.small)

    def sizes(self, dims: Sequence[Dim]) -> list[int]:
        """Return known sizes."""
        return [dim for dim in dims if isinstance(dim, int)]

    @property
    def reach(self) -> list[int]:
        """How many elements the dilated kernel spans."""
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def spans(self) -> list[int]:
        """How many elements all places of the window span."""
        places = zip(self.sizes(self.small), self.strides, self.reach, strict=True)
        return [(size - 1) * stride + reach for size, stride, reach in places]

    def spread(self, small: Term, weights: Term, large: Term, group: int = 1) -> Term:
        """Return the transposed convolution of a term: it has the size of the value `large`."""
        t = small.tape
        same: dict[str, Attribute] = {
            "strides": self.strides,
            "dilations": self.dilations,
            "group": group,
        }
        # elements that no window reaches get zeros behind, those that windows reach beyond the end are cut off
        if self.known:
            sizes = zip(self.sizes(self.large), self.before, self.spans, strict=True)
            left = [size + pad - span for size, pad, span in sizes]
            pads = self.before + [max(-extra, 0) for extra in left]
            more = [max(extra, 0) for extra in left]
            padding = more if any(more) else None
            return t.op("ConvTranspose", small, weights, pads=pads, output_padding=padding, **same)
        # Unknown sizes: as large as strides allow, then cut to the size that is known when the model runs.
        more = [stride - 1 for stride in self.strides]
        wide = t.op("ConvTranspose", small, weights, output_padding=more, **same)
        begin = t.integers(self.before)
        axes = range(2, 2 + len(self.kernel))
        return t.op("Slice", wide, begin, t.shape_of(large, 2) + begin, axes)

    def ones(self, like: Term) -> Term:
        """Return a kernel of ones."""
        return like.tape.array(np.ones((1, 1, *self.kernel), np.float32)).cast(like.dtype)

    def counts(self, like: Term, large: Term, padding: bool) -> Term:
        """Return how many elements of the large tensor are at each place of the window, [1, 1, spatial...].

        Args:
            like: has the dtype of the numbers.
            padding: count the padding, too.
        """
        t = like.tape
        # known sizes give numbers; others are counted by a convolution of ones
        if self.known:
            rows = [self._counted(axis, padding) for axis in range(len(self.kernel))]
            # a window's count is the product of the counts along its axes
            product = reduce(np.multiply.outer, rows)
            return t.array(product[None, None].astype(np.float32)).cast(like.dtype)
        if padding:  # every window has all its elements
            return like.of(int(np.prod(self.kernel)))
        ones = t.op("Gather", t.ones_like(large), [0], axis=1)
        return t.op("Conv", ones, self.ones(like), **self.attributes())

    def _counted(self, axis: int, padding: bool) -> NDArray[np.int64]:
        size, places = self.sizes(self.large)[axis], self.sizes(self.small)[axis]
        # [places, kernel]: the index of each element that a window reads
        low = -self.before[axis] if padding else 0
        high = size + self.after[axis] if padding else size
        first = np.arange(places) * self.strides[axis] - self.before[axis]
        at = first[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
        inside: NDArray[np.int64] = ((at >= low) & (at < high)).sum(axis=1)
        return inside

    def attributes(self) -> dict[str, Attribute]:
        """Return the attributes of a Conv with this window."""
        pads = self.before + self.after
        return {"strides": self.strides, "dilations": self.dilations, "pads": pads}


def _spatial(s: GradientStep, value: Term, count: int) -> list[Dim]:
    shape = s.tape.shape(value.name)
    return [None] * count if shape is None else shape[2:]
