"""Products of matrices, and sums of products along named axes."""

from itertools import chain
from string import ascii_letters

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule
from onnxsurgeon_lite.surgery.gradients.tape import Dim, Term


def _matmul(s: GradientStep) -> Term:
    t = s.tape
    a, b = t.rank(s.a), t.rank(s.b)
    if a == 1 and b == 1:
        return s.dy * s.input(1 - s.slot)  # two vectors: a number times the other vector
    # one vector: it is a row before, or a column behind
    if a == 1:
        return _row_times(s)
    if b == 1:
        return _times_column(s)
    if s.slot == 1 and b == 2 and a > 2:  # one matrix for all batches: one product of all rows
        return _of_all_rows(s)
    made = s.dy @ t.swapped(s.b, b) if s.slot == 0 else t.swapped(s.a, a) @ s.dy
    if s.slot == 0 and b == 2:  # batches of the second input are those of the output
        return made
    # batches that were broadcast are summed
    return t.summed_to(made, s.x, _batched(s, t.shape(s.x.name)))


def _batched(s: GradientStep, matrix: list[Dim] | None) -> list[Dim] | None:
    """Return the shape of a matrix in each of the product's batches."""
    product = s.tape.shape(s.y.name)
    return None if product is None or matrix is None else product[:-2] + matrix[-2:]


def _row_times(s: GradientStep) -> Term:
    t = s.tape
    # a vector as the first input is one row: the output lacks that axis
    dy = t.op("Unsqueeze", s.dy, [-2])
    if s.slot == 1:
        return t.op("Unsqueeze", s.a, [1]) * dy
    products = dy @ t.swapped(s.b, t.rank(s.b))
    return t.sum(products, range(t.rank(s.b) - 1))


def _times_column(s: GradientStep) -> Term:
    t = s.tape
    # a vector as the second input is one column
    dy = t.op("Unsqueeze", s.dy, [-1])
    if s.slot == 0:
        return dy * s.b
    return t.sum(dy * s.a, range(t.rank(s.a) - 1))


def _of_all_rows(s: GradientStep) -> Term:
    """Return the gradient of a matrix that every row is multiplied with, in one product."""
    t = s.tape
    rows = [
        t.op("Reshape", term, t.concat([-1], t.dim(s.b, axis)))
        for axis, term in enumerate((s.a, s.dy))
    ]
    return t.op("Gemm", *rows, transA=1)


def _einsum(s: GradientStep) -> Term:
    """Exchange the output with the input; letters that only the input has are broadcast."""
    t, (inputs, output) = s.tape, _letters(s)
    # "ij,jk->ik": the gradient of "ij" is the product "ik,jk->ij".
    mine = inputs[s.slot]
    if len(set(mine)) < len(mine):
        raise s.refused("an input repeats a letter")
    others = [term for slot, term in enumerate(inputs) if slot != s.slot]
    # letters of this input alone were summed over: their gradient is the same all along
    lone = [letter for letter in mine if letter not in output and letter not in "".join(others)]
    kept = "".join(letter for letter in mine if letter not in lone)
    terms = [s.dy] + [s.input(slot) for slot in range(len(inputs)) if slot != s.slot]
    made = t.op("Einsum", *terms, equation=f"{','.join(chain([output], others))}->{kept}")
    if lone:
        # their axes come back in their places
        made = t.op("Unsqueeze", made, [mine.index(letter) for letter in lone])
    return t.op("Expand", made, t.dims(s.x)) if lone else made


def _letters(s: GradientStep) -> tuple[list[str], str]:
    """Return the equation with letters in place of dots, and with its output."""
    equation = s.text("equation").replace(" ", "")
    left, arrow, output = equation.partition("->")
    inputs = left.split(",")
    # letters that the equation does not have stand for its dots
    free = [letter for letter in ascii_letters if letter not in equation]
    widths = [
        s.tape.rank(s.input(i)) - len(term.replace("...", "")) for i, term in enumerate(inputs)
    ]
    # dots may stand for another number of axes in each input; only equal numbers are supported
    dotted = [width for term, width in zip(inputs, widths, strict=True) if "..." in term]
    dots = free[: max(dotted, default=0)]
    if len(set(dotted)) > 1:
        raise s.refused("its dots stand for different ranks")
    # Without an arrow, the output has the letters that occur once, in alphabetic order.
    if not arrow:
        once = sorted(c for c in set(left) - {",", "."} if left.count(c) == 1)
        output = "".join(chain(["..." if dotted else ""], once))
    replaced = [term.replace("...", "".join(dots)) for term in chain(inputs, [output])]
    return replaced[:-1], replaced[-1]


RULES: dict[str, Rule] = {
    "MatMul": (_matmul, _matmul),
    "Einsum": _einsum,
}
