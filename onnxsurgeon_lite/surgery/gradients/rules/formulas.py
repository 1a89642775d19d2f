"""Gradients by formulas: a line for each operator, with a formula for each of its inputs.

`dy` is the gradient of the output `y`, `a` and `b` are the first two inputs, `x` is the input whose gradient is asked
for. A word with a capital is an operator (`Sqrt(a)`); another one is something of the node (`GradientStep`), something
that writes nodes (`Tape`), or an attribute that is a number (`alpha`). A formula before `...` serves all inputs.
A line `word = formula` gives a part of formulas a name: equal nodes are written once, however often it is read. What is
more than a formula is a function, with a word in the table; other files have tables of their own.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from onnx import TensorProto

from onnxsurgeon_lite.surgery.gradients.expansion import backward
from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule, Slot, is_float
from onnxsurgeon_lite.surgery.gradients.tape import Term

# the gradients have the shape of the output: inputs are broadcast to it
_BROADCAST = """
Add   | dy | dy
Sub   | dy | -dy
Mul   | dy * b | dy * a
Div   | dy / b | -(dy * y / b)
Mod   | dy | -(dy * (where(a / b < 0, Ceil(a / b), Floor(a / b)) if integer("fmod") else Floor(a / b)))
Pow   | dy * b.cast(a.dtype) * where(b.cast(a.dtype).equals(0), 0, Pow(a, b.cast(a.dtype) - 1)) \
      | (dy * y * where(a > 0, Log(where(a > 0, a, 1)), 0)).cast(b.dtype) if is_float(b.dtype) else None
Sum   | dy | ...
Mean  | dy / len(node.input) | ...
Max   | chosen() | ...
Min   | chosen() | ...
Where | None | where(a, dy, 0) | where(a, 0, dy)
PRelu | where(a > 0, dy, dy * b) | where(a > 0, 0, dy * a)
"""

# Some tricks of this table. `Pow`: 0 where the exponent is 0, because 0 * 0 ** -1 is no number.
# `hits`, `largest`, `chosen`: equal largest elements share the gradient.
# `ReduceProd`: the product of the others; with one zero only that one has a gradient, with two none has.
# `from_where`: the same node applied to the numbers 0, 1, 2, ... of the input's elements says which one each element
# of the output is; `scattered` adds its gradient there. `CenterCropPad` counts from 1, so that 0 is padding.
_OTHERS = """
power = integer("p", 2)
bent = Tanh((a + a * a * a * 0.044715) * (2 / pi) ** 0.5)
bent_slope = (a * a * (3 * 0.044715) + 1) * (2 / pi) ** 0.5
largest = a.equals(y).cast(dy.dtype)
hits = a.equals(spread(y)).cast(dy.dtype)
zero = a.equals(0)
zeros = ReduceSum(zero.cast(a.dtype), axes(), keepdims=1, noop_with_empty_axes=1)
filled = where(zero, 1, a)
product = ReduceProd(filled, axes(), keepdims=1, noop_with_empty_axes=1) if opset >= 18 \
          else ReduceProd(filled, keepdims=1, axes=fixed_axes() or None)
from_where = again(1, places(a), *rest())[0]
from_place = again(1, places(a) + 1, *rest())[0]
blocks = concat(dim(y, 0), dim(y, 1), dim(a, 2), [integer("blocksize")], dim(a, 3), [integer("blocksize")])

Abs                | dy * Sign(a)
Acos               | -(dy / Sqrt(1 - a * a))
Acosh              | dy / Sqrt(a * a - 1)
Asin               | dy / Sqrt(1 - a * a)
Asinh              | dy / Sqrt(a * a + 1)
Atan               | dy / (a * a + 1)
Atanh              | dy / (1 - a * a)
Cast               | dy.cast(a.dtype)
CastLike           | dy.cast(a.dtype)
Celu               | where(a > 0, dy, dy * Exp(a / alpha))
Clip               | where(y.equals(a), dy, 0) \
                   | summed_to(where(y.equals(a), 0, where(y.equals(x), dy, 0)), x, shape(a.name)) \
                   | summed_to(where(y.equals(a), 0, where(y.equals(x), dy, 0)), x, shape(a.name))
Cos                | -(dy * Sin(a))
Cosh               | dy * Sinh(a)
Dropout            | dropped()
Elu                | where(a > 0, dy, dy * (Exp(a) * alpha))
DepthToSpace       | SpaceToDepth(dy, blocksize=integer("blocksize")) if text("mode", "DCR") == "DCR" \
                     else reshaped(transposed(Reshape(dy, blocks), [0, 1, 3, 5, 2, 4]), a)
Erf                | dy * Exp(-(a * a)) * (2 / pi ** 0.5)
Exp                | dy * y
Gelu               | dy * ((bent + 1) * 0.5 + a * (1 - bent * bent) * bent_slope * 0.5) \
                     if text("approximate", "none") == "tanh" \
                     else dy * ((Erf(a / 2 ** 0.5) + 1) * 0.5 + a * Exp(a * a * -0.5) * (1 / (2 * pi) ** 0.5))
GlobalLpPool       | dy * where(y.equals(0), 0, y ** (1 - power)) * Sign(a) * Abs(a) ** (power - 1)
HardSigmoid        | where(y > 0, where(y < 1, dy, 0), 0) * alpha
HardSwish          | where(a > -3, where(a < 3, dy * (a / 3 + 0.5), dy), 0)
Identity           | dy
LeakyRelu          | where(a > 0, dy, dy * alpha)
Log                | dy / a
Mish               | dy * (Tanh(Softplus(a)) + a * Sigmoid(a) * (1 - Tanh(Softplus(a)) * Tanh(Softplus(a))))
Neg                | -dy
Optional           | dy
OptionalGetElement | dy
Range              | ReduceSum(dy, keepdims=0) | None | ReduceSum(dy * places(y).cast(dy.dtype), keepdims=0)
Reciprocal         | -(dy * y * y)
Relu               | where(y > 0, dy, 0)
Selu               | where(a > 0, dy * gamma, dy * Exp(a) * (gamma * alpha))
Shrink             | where(Abs(a) > lambd, dy, 0)
Sigmoid            | dy * y * (1 - y)
Sin                | dy * Cos(a)
Sinh               | dy * Cosh(a)
Softplus           | dy * Sigmoid(a)
Softsign           | dy / (Abs(a) + 1) ** 2
Sqrt               | dy / (y * 2)
Swish              | dy * (Sigmoid(a * number("alpha", 1.0)) + y * (1 - Sigmoid(a * alpha)) * alpha)
Tan                | dy * (y * y + 1)
Tanh               | dy * (1 - y * y)
ThresholdedRelu    | where(a > alpha, dy, 0)

Softmax            | y * (dy - sum(dy * y, [axis()], True))
LogSoftmax         | dy - Exp(y) * sum(dy, [axis()], True)
GlobalAveragePool  | Expand(dy / count(a, range(2, rank)), dims(a))
GlobalMaxPool      | largest * (dy / sum(largest, range(2, rank), True))

ReduceSum          | expanded(dy)
ReduceMean         | mean_of()
ReduceMax          | hits * (spread(dy) / ReduceSum(hits, axes(), keepdims=1, noop_with_empty_axes=1))
ReduceMin          | hits * (spread(dy) / ReduceSum(hits, axes(), keepdims=1, noop_with_empty_axes=1))
ReduceProd         | where((zeros - zero.cast(a.dtype)).equals(0), spread(dy) * (product / filled), 0)
ReduceL1           | Sign(a) * spread(dy)
ReduceL2           | a * where(spread(y).equals(0), 0, spread(dy) / spread(y))
ReduceLogSum       | expanded(dy / Exp(y))
ReduceLogSumExp    | spread(dy) * Exp(a - spread(y))
ReduceSumSquare    | spread(dy) * a * 2
CumSum             | CumSum(dy, b, reverse=1 - integer("reverse"), exclusive=integer("exclusive"))

Reshape            | reshaped(dy, a)
Flatten            | reshaped(dy, a)
Squeeze            | reshaped(dy, a)
Unsqueeze          | reshaped(dy, a)
Expand             | summed_to(dy, a, shape(y.name))
SpaceToDepth       | DepthToSpace(dy, blocksize=integer("blocksize"), mode=text("mode") or None)
Trilu              | again(1, dy, *rest())[0]
Transpose          | transposed(dy, sorted(range(rank), key=(integers("perm") or range(rank)[::-1]).__getitem__))
Tile               | sum(Reshape(dy, flat(concat(Unsqueeze(b, [1]), Unsqueeze(dims(a), [1]), axis=1))), \
                     range(0, 2 * rank, 2)) if rank else dy

AffineGrid         | backward()
Det                | backward()
DFT                | backward()
LRN                | backward()
OneHot             | None | None | backward()
TensorScatter      | backward() | backward()

Gather             | scattered(from_where, dy, a)
GatherElements     | scattered(from_where, dy, a)
GatherND           | scattered(from_where, dy, a)
ReverseSequence    | scattered(from_where, dy, a)
Compress           | scattered(from_where, dy, a)
CenterCropPad      | scattered(Max(from_place - 1, 0), where(from_place > 0, dy, 0), a)

Gemm               | Gemm(b, dy, alpha=alpha, transA=integer("transB"), transB=1) if integer("transA") \
                     else Gemm(dy, b, alpha=alpha, transA=0, transB=1 - integer("transB")) \
                   | Gemm(dy, a, alpha=alpha, transA=1, transB=integer("transA")) if integer("transB") \
                     else Gemm(a, dy, alpha=alpha, transA=1 - integer("transA"), transB=0) \
                   | summed_to(dy * beta, x, shape(y.name))
"""


Words = Mapping[str, Callable[..., object]]


class _Words(dict[str, object]):
    """The words of formulas, as they are for one node: `parts` have names in the table, `more` are functions."""

    def __init__(self, step: GradientStep, parts: Words, more: Words) -> None:
        super().__init__(where=Term.where, pi=math.pi, is_float=is_float)
        self.step, self.parts, self.more = step, parts, more

    def __missing__(self, word: str) -> object:
        # a part of the table, a function of Python, an operator, a property of the step or tape, or an attribute
        if word in self.parts:
            return self.parts[word](self.step)
        if word in self.more:
            return partial(self.more[word], self.step)
        if word[0].isupper():
            return partial(self.step.tape.op, word)
        found = getattr(self.step, word, None)
        found = getattr(self.step.tape, word, None) if found is None else found
        return self.step.number(word) if found is None else found


def rules(lines: str, more: Words = MappingProxyType({})) -> dict[str, Rule]:
    """Read the lines of a table; `more` are its own words."""
    found = dict[str, Rule]()
    parts = dict[str, Slot]()

    def formula(text: str) -> Slot:
        """Return the gradient that a formula says."""
        # A formula is Python: our own text, never the model's.
        code = compile(text.strip(), text, "eval")

        def gradient(step: GradientStep) -> Term | None:
            made: Term | None = eval(code, {}, _Words(step, parts, more))
            return made

        return gradient

    for line in filter(None, lines.splitlines()):
        # a formula for each input, or one for all
        operator, *formulas = map(str.strip, line.split("|"))  # `operator | formula | formula`
        if not formulas:
            word, _, text = line.partition(" = ")  # `word = formula`
            parts[word] = formula(text)
            continue
        serves_all = formulas[-1] == "..."
        slots = tuple(map(formula, formulas[: len(formulas) - serves_all]))
        found[operator] = slots[0] if serves_all else slots
    return found


def _chosen(s: GradientStep) -> Term:
    """Return the gradient of one of several inputs of Max or Min: equal ones share it."""
    # The same largest number may be in several inputs.
    terms = [s.input(slot) for slot in range(len(s.node.input))]
    hits = [term.equals(s.y).cast(s.y.dtype) for term in terms]
    share = s.dy if len(hits) == 1 else s.dy / s.tape.total(hits)
    return hits[s.slot] * share


def _dropout(s: GradientStep) -> Term:
    # Outside of training, Dropout passes its input on. In training, only the mask says what it kept.
    training = s.numbers(2) if s.has(2) else None
    if s.has(2) and training is None:
        raise s.refused("training_mode is computed when the model runs")
    if training is None or not bool(training):
        return s.dy
    if len(s.node.output) < 2:
        raise s.refused(
            "it draws random numbers and its mask is not an output: onnxdbg edit inference"
        )
    kept = Term(s.tape, s.node.output[1], TensorProto.BOOL).where(s.dy, 0)
    return kept / (1 - s.b.cast(s.dy.dtype)) if s.has(1) else kept * 2  # the default ratio is 0.5


def _mean(s: GradientStep) -> Term:
    sizes = [s.tape.static(term) for term in (s.a, s.y)]
    # How many elements each mean is of: a constant where the shapes are known.
    if sizes[0] is not None and sizes[1] is not None:
        count = s.dy.of(math.prod(sizes[0]) // max(math.prod(sizes[1]), 1))
    else:
        whole, left = (s.tape.size(term).cast(s.dy.dtype) for term in (s.a, s.y))
        count = s.tape.op("Squeeze", whole / left)
    return s.expanded(s.dy / count)


_WORDS: Words = {
    "backward": backward,
    "chosen": _chosen,
    "dropped": _dropout,
    "mean_of": _mean,
}
BROADCAST, RULES = (rules(lines, _WORDS) for lines in (_BROADCAST, _OTHERS))
