"""Gradients that are one formula: a line for each operator, with a formula for each of its inputs.

`dy` is the gradient of the output `y`, `a` and `b` are the first two inputs, `x` is the input whose gradient is asked
for. A word with a capital is an operator (`Sqrt(a)`); another one is something of the node (`GradientStep`), something
that writes nodes (`Tape`), or an attribute that is a number (`alpha`). A formula before `...` serves all inputs.
"""

import math
from functools import partial

from onnxsurgeon_lite.surgery.gradients.step import GradientStep, Rule, Slot, is_float
from onnxsurgeon_lite.surgery.gradients.tape import Term

# inputs are broadcast to the output, and these gradients have its shape
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
Where | None | where(a, dy, 0) | where(a, 0, dy)
PRelu | where(a > 0, dy, dy * b) | where(a > 0, 0, dy * a)
"""

_OTHERS = """
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
Elu                | where(a > 0, dy, dy * (Exp(a) * alpha))
Erf                | dy * Exp(-(a * a)) * (2 / pi ** 0.5)
Exp                | dy * y
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
GlobalMaxPool      | a.equals(y).cast(dy.dtype) * (dy / sum(a.equals(y).cast(dy.dtype), range(2, rank), True))

ReduceSum          | expanded(dy)
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

Gather             | scattered(again(1, places(a), *rest())[0], dy, a)
GatherElements     | scattered(again(1, places(a), *rest())[0], dy, a)
GatherND           | scattered(again(1, places(a), *rest())[0], dy, a)
ReverseSequence    | scattered(again(1, places(a), *rest())[0], dy, a)
Compress           | scattered(again(1, places(a), *rest())[0], dy, a)

Gemm               | Gemm(b, dy, alpha=alpha, transA=integer("transB"), transB=1) if integer("transA") \
                     else Gemm(dy, b, alpha=alpha, transA=0, transB=1 - integer("transB")) \
                   | Gemm(dy, a, alpha=alpha, transA=1, transB=integer("transA")) if integer("transB") \
                     else Gemm(a, dy, alpha=alpha, transA=1 - integer("transA"), transB=0) \
                   | summed_to(dy * beta, x, shape(y.name))
"""


class _Words(dict[str, object]):
    """The words of formulas, as they are for one node."""

    def __init__(self, step: GradientStep) -> None:
        super().__init__(where=Term.where, pi=math.pi, is_float=is_float)
        self.step = step

    def __missing__(self, word: str) -> object:
        if word[0].isupper():
            return partial(self.step.tape.op, word)
        found = getattr(self.step, word, None)
        found = getattr(self.step.tape, word, None) if found is None else found
        return self.step.number(word) if found is None else found


def _formula(text: str) -> Slot:
    """Return the gradient that a formula says."""
    code = compile(text, text, "eval")

    def gradient(step: GradientStep) -> Term | None:
        found: Term | None = eval(code, {}, _Words(step))
        return found

    return gradient


def _rules(lines: str) -> dict[str, Rule]:
    """Read the lines of a table."""
    rules: dict[str, Rule] = {}
    for line in filter(None, lines.splitlines()):
        operator, *formulas = map(str.strip, line.split("|"))
        serves_all = formulas[-1] == "..."
        slots = tuple(map(_formula, formulas[: len(formulas) - serves_all]))
        rules[operator] = slots[0] if serves_all else slots
    return rules


BROADCAST, RULES = map(_rules, (_BROADCAST, _OTHERS))
