"""Sizes of a dimension at several trials at once, and their factors.

A trial sets every dimension to change to some size; the first trial has the model's own sizes. A size that differs
between trials depends on the change. An axis is a row-major product of factors: a reshape regroups the factors without
mixing them, so we know which axis a batch moved to, and its place in that axis.
"""

import math
from collections import deque
from collections.abc import Container, Iterator, Sequence
from fractions import Fraction
from itertools import chain, count

from onnxsurgeon_lite.errors import EditError

Size = tuple[int, ...]
"""One number per trial."""
Axis = tuple[Size, ...]
"""Factors of an axis, the outermost first."""


_LARGEST = (1 << 63) - 1


def in_range(number: int) -> int:
    """Return a size.

    Raises:
        EditError: it is larger than ONNX holds.
    """
    if number > _LARGEST:
        raise EditError(f"a size of {number} does not fit in int64", "declare smaller shapes")
    return number


def constant(size: int, trials: int) -> Size:
    """Return a size that is the same at every trial."""
    return (size,) * trials


def varies(size: Size) -> bool:
    """Return whether a size differs between trials."""
    return any(number != size[0] for number in size)


def product(sizes: Sequence[Size]) -> Size:
    """Return the product at each trial, of at least one size."""
    return tuple(map(math.prod, zip(*sizes, strict=True)))


def ratio(size: Size, other: Size) -> Fraction | None:
    """Return the factor from `other` to `size`, if it is the same at every trial."""
    # the same factor at every trial, or none
    ratios = {Fraction(a, b) if b else None for a, b in zip(size, other, strict=True)}
    return ratios.pop() if len(ratios) == 1 else None


def primes() -> Iterator[int]:
    """Yield primes: each dimension grows by its own factors, so that no size equals another or a product of others."""
    return (n for n in count(2) if all(n % divisor for divisor in range(2, math.isqrt(n) + 1)))


class Refolding:
    """A reshape of axes to `target`, which lists its sizes at the first trial.

    Args:
        free: the position of -1 in the target, which takes the rest of the factors.
        whole: sizes that must not be split.
        trials: how many there are.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        target: Sequence[int],
        free: int | None,
        whole: Container[Size],
        trials: int,
    ) -> None:
        self.queue = deque(chain.from_iterable(axes))
        self.target = target
        self.free = free
        self.whole = whole
        self.trials = trials
        self.found: list[list[Size]] = [[] for _ in target]

    def axes(self) -> list[Axis] | None:
        """Return the new axes; None if the target cuts through a factor that cannot be split."""
        # no factors in an empty tensor
        if 0 in self.target or any(0 in factor for factor in self.queue):
            return None
        place = 0
        # entries of size 1 first: a factor of size 1, such as a batch of one, goes to one of them
        while place < len(self.target):
            ones = place
            while ones < len(self.target) and self.target[ones] == 1:
                ones += 1
            spare = self._place_ones(list(range(place, ones)))
            place = ones
            if place == len(self.target):  # only entries of size 1 were left
                if spare and place:
                    self.found[place - 1] += spare
                break
            if spare and place and self.free == place - 1:  # the -1 takes what is left over
                self.found[place - 1] += spare
            else:
                self.found[place] += spare
            if not self._fill(place):
                return None
            place += 1
        if self.found:  # what is left has the own size 1, and belongs to the last axis
            self.found[-1] += [factor for factor in self.queue if varies(factor)]
        return [tuple(axis) or (constant(1, self.trials),) for axis in self.found]

    def _place_ones(self, places: list[int]) -> list[Size]:
        """Assign the next factors of size 1 to the next entries of size 1; return the factors left over."""
        ones = []
        while self.queue and self.queue[0][0] == 1:
            ones.append(self.queue.popleft())
        # the numbers do not match: only factors that change have to find a place
        if len(ones) != len(places):
            ones = [factor for factor in ones if varies(factor)]
        if len(ones) == 1 and self.free in places:
            self.found[self.free].append(ones[0])
            return []
        for place, factor in zip(places, ones, strict=False):
            self.found[place].append(factor)
        return ones[len(places) :]

    def _fill(self, place: int) -> bool:
        """Take factors until their product is the entry's size."""
        left = self.target[place]
        while left > 1:
            if not self.queue:
                return False
            factor = self.queue.popleft()
            if left % factor[0] == 0:  # the factor is a part of the entry
                self.found[place].append(factor)
                left //= factor[0]
            # the entry ends within the factor
            elif not self._split(factor, math.gcd(left, factor[0])):
                return False
        return left == 1

    def _split(self, factor: Size, outer: int) -> bool:
        """Put a factor back in two parts, the first of size `outer` if possible, otherwise merged with the next."""
        # A factor that changes is own * unit, (8, 16, 24) = 8 * (1, 2, 3): it can be split only if the change is a
        # multiple.
        if varies(factor):
            rest = constant(factor[0], self.trials)
            share = ratio(factor, rest) is None and all(n % factor[0] == 0 for n in factor)
            if not share or factor in self.whole:
                return False
            unit = tuple(number // factor[0] for number in factor)
            self.queue.extendleft((rest, unit))
            return True
        if outer > 1:  # in two: the outer part fills the entry, the inner part is for the next
            inner = constant(factor[0] // outer, self.trials)
            self.queue.extendleft((inner, constant(outer, self.trials)))
            return True
        if not self.queue or varies(self.queue[0]):  # 4 and 6 into 3 and 8: merge first, then split
            return False
        self.queue.appendleft(product([factor, self.queue.popleft()]))
        return True
