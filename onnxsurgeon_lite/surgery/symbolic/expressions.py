"""Find the expression of a size, such as `2*seq + 1`, from the numbers that it has in several trials.

In a trial every symbol (`batch`, `seq`) has a number of its own, and every size of the model has the number that
follows. An expression is accepted only if it is right in every trial that the model accepts. The numbers are chosen
such that a wrong expression fails in one of them: large and small ones uncover a limit (`Min(N, 512)`), different
remainders uncover a division that rounds. In the last trial all are 1, which broadcasts.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations, combinations_with_replacement, count, islice
from math import prod
from operator import mul

from onnxsurgeon_lite.surgery.resizing.sizes import Size, constant, primes

_STEP = 64 * 3 * 5 * 7  # a multiple of the strides and patches that networks have
_REMAINDERS = (0, 0, 1, -1, 2, -2, 4, -4, 32)  # of a division by the step
_SMALL = 5  # trials with numbers that a table of positions still holds
SMALLEST = _SMALL + 1
TRIALS = len(_REMAINDERS) + SMALLEST
FEWEST = 4
"""Trials that must be left for an expression to be believed."""
_BASES = 8  # symbols, and known expressions, that are combined with each other
_PRIMES = tuple(islice(primes(), 1, 98))


class Expressions:
    """The symbols of a model and the sizes known so far.

    Attributes:
        live: the trials that the model accepts.
    """

    def __init__(self) -> None:
        self.live = list(range(TRIALS))
        self._symbols = dict[str, Size]()  # symbol -> its numbers
        self._known = dict[str, Size]()  # expression -> its numbers, symbols included
        # sizes that are broadcast with each other -> the symbol of the result
        self._joined = dict[frozenset[str], str]()

    def copy(self) -> "Expressions":
        """Return a copy, for a graph that must not change what others know."""
        copy = Expressions()
        vars(copy).update((name, each.copy()) for name, each in vars(self).items())
        return copy

    def size(self, text: str) -> Size:
        """Return the size of an expression or a symbol; an unknown name becomes a symbol."""
        if text not in self._known:
            # at each trial another number than every other symbol has
            place = len(self._symbols)
            primes = [_PRIMES[(place + 5 * trial) % len(_PRIMES)] for trial in range(TRIALS)]
            large = (_STEP * prime + rest for prime, rest in zip(primes, _REMAINDERS, strict=False))
            small = (_PRIMES[(place + 7 * trial) % 17] for trial in range(_SMALL))
            self._symbols[text] = self._known[text] = (*large, *small, 1)
        return self._known[text]

    def symbol(self, name: str, size: Size | None = None) -> str:
        """Return a new symbol's name: this one, with a number appended if it is taken.

        Args:
            size: its numbers, where they are known and no expression fits them.
        """
        numbered = (f"{name}_{number}" for number in count(1))
        text = next(free for free in chain([name], numbered) if free not in self._known)
        if size is None:
            self.size(text)
        else:
            self._known[text] = size
        return text

    def joined(self, sizes: frozenset[str], name: str) -> str:
        """Return the symbol of what these sizes broadcast to; a new one gets this name, if it is free."""
        # a symbol made of several sizes is replaced by these, so that the order does not matter
        parts = {text: among for among, text in self._joined.items()}
        every = frozenset(chain.from_iterable(parts.get(text, (text,)) for text in sizes))
        if len(every) > 1 and every not in self._joined:
            self._joined[every] = self.symbol(name)
        return self._joined.get(every) or next(iter(every))

    def text(self, size: Size) -> int | str | None:
        """Return the number or expression of a size; None if none fits."""
        if self._same(size, constant(size[self.live[0]], TRIALS)):  # a number
            return size[self.live[0]]
        # something known, before a new expression
        same = (text for text, known in self._known.items() if self._same(size, known))
        text = next(same, None)
        if text is not None:
            return text
        # each way yields candidates, '' for one that does not fit
        text = next((t for find in self._ways for t in find(self, size) if t), None)
        if text is not None:
            self._known[text] = size
        return text

    def _same(self, one: Size, other: Size) -> bool:
        return all(one[trial] == other[trial] for trial in self.live)

    def _multiple(self, size: Size) -> Iterator[str]:
        """Yield `4*seq`, `batch*seq`, `H/2`."""
        bases = list(islice(self._symbols.items(), _BASES))
        for number in (1, 2, 3):
            for group in combinations_with_replacement(bases, number):
                yield self._times(size, group)

    def _known_multiple(self, size: Size) -> Iterator[str]:
        """Yield multiples of known expressions and of their products."""
        known = list(self._known.items())[-4 * _BASES :]
        for number in (1, 2):
            for group in combinations_with_replacement(known, number):
                yield self._times(size, group)

    def _times(self, size: Size, group: Sequence[tuple[str, Size]]) -> str:
        """Return a size as a multiple or a part of a product; '' if it is none."""
        # size = factor * product, tested without division: size[t] * part == whole * product[t].
        first, *others = self.live
        whole, part = size[first], prod(known[first] for _, known in group)
        if not whole or not part:
            return ""
        for trial in others:
            if size[trial] * part != whole * prod(known[trial] for _, known in group):
                return ""
        factor = Fraction(whole, part)
        if 1 not in (factor.numerator, factor.denominator):  # `4*N` and `N/4`, but not `3*N/4`
            return ""
        text = "*".join(_factor(text) for text, _ in group)
        if factor.denominator > 1:
            return f"{_factor(text) if len(group) > 1 else text}/{factor.denominator}"
        return text if factor == 1 else f"{factor}*{text}"

    def _line(self, size: Size) -> Iterator[str]:
        """Yield `past + seq`, `2*seq - 1`, and a known expression with an offset."""
        for number in (1, 2):
            for group in combinations(islice(self._symbols.items(), _BASES), number):
                yield self._sum(size, group)
        for known in list(self._known.items())[-_BASES:]:
            yield self._sum(size, (known,))

    def _sum(self, size: Size, group: Sequence[tuple[str, Size]]) -> str:
        """Return a size as a sum of multiples and an offset; '' if it is none."""
        # differences to the first trial: the offset is no unknown then
        first, *others = self.live
        # One equation for each trial: sum(times * known) = size. The first ones are solved, the others must hold.
        sizes = [known for _, known in group] + [size]
        rows = [[each[t] - each[first] for each in sizes] for t in others]
        times = _solved(rows[: len(group)])
        if times is None or 0 in times:
            return ""
        if any(sum(map(mul, times, row)) != row[-1] for row in rows):
            return ""
        offset = size[first] - sum(n * each[first] for n, each in zip(times, sizes, strict=False))
        terms = [(number, _factor(text)) for number, (text, _) in zip(times, group, strict=True)]
        return _joined(terms, offset)

    def _floor(self, size: Size) -> Iterator[str]:
        """Yield `(H + 1)//2`: what strides leave of a size."""
        for text, known in islice(self._symbols.items(), _BASES):
            # From the largest numbers, the divisor is known up to one; then the offset must fit all trials.
            largest = max(self.live, key=known.__getitem__)
            if not 0 < 2 * size[largest] <= known[largest]:
                continue
            for divisor in {known[largest] // size[largest], -(-known[largest] // size[largest])}:
                # size = (known + offset) // divisor means 0 <= known + offset - divisor * size < divisor.
                gaps = [divisor * size[trial] - known[trial] for trial in self.live]
                low, high = max(gaps), min(gaps) + divisor - 1
                if low == high:  # exactly one offset is possible
                    inner = _joined([(1, _factor(text))], low)
                    yield f"{_factor(inner)}//{divisor}"

    _ways: "tuple[Callable[[Expressions, Size], Iterator[str]], ...]" = (
        _multiple,
        _line,
        _floor,
        _known_multiple,
    )


def _factor(text: str) -> str:
    """Return an expression in parentheses if it is more than a name or a product."""
    return f"({text})" if any(sign in text for sign in " /") else text


def _joined(terms: Sequence[tuple[int, str]], offset: int) -> str:
    """Join terms as a sum: `2*a + b - 1`."""
    written = [(n, text if abs(n) == 1 else f"{abs(n)}*{text}") for n, text in terms]
    written += [(offset, str(abs(offset)))] if offset else []
    written.sort(key=lambda term: term[0] < 0)
    text = "".join(f" {'-' if number < 0 else '+'} {term}" for number, term in written)
    return text.removeprefix(" + ").removeprefix(" ")


def _solved(rows: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the whole numbers that solve one or two linear equations (coefficients, right side); None if none do."""
    if len(rows) == 1:
        ((factor, right),) = rows
        whole, tops = factor, [right]
    else:
        (a, b, right), (c, d, other) = rows  # Cramer's rule
        whole, tops = a * d - b * c, [right * d - other * b, a * other - c * right]
    if not whole or any(top % whole for top in tops):  # whole numbers only
        return None
    return [top // whole for top in tops]
