"""Numbers computed with the gradient of the outputs, all in one run forwards and backwards."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.debug.conversion.goal import Goal
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.judge import Values
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import assign
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.gradients.tape import Term
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.grid import Wide

Slopes = Mapping[str, Term]
"""Value -> the gradient of a sum of all outputs by it, each element with a random sign.

The square of what an error moves that sum by is, on average, the sum of the squares of what it moves the elements by.
"""

_TOTAL = "\x01total"
_NUMBERS = "\x01numbers"
_FLOAT = TensorProto.FLOAT


def measured(
    model: Model,
    goal: Goal,
    samples: Sequence[Feeds],
    right: Iterable[Values],
    runtime: Runtime,
    names: Collection[str],
    write: Callable[[Derivative, Slopes], Sequence[Term]],
) -> Wide:
    """Return numbers, a row for each sample.

    Args:
        right: the outputs. names: the values whose gradients are needed. write: returns the numbers, as terms.

    Raises:
        EditError: the model cannot be differentiated. RuntimeFailure: it does not run.
    """
    # only float32 outputs have a gradient
    outputs = [n for n, v in next(iter(right)).items() if getattr(v, "dtype", None) == np.float32]
    work = Derivative.of(_with_total(model, outputs), [_TOTAL])
    slopes = work.gradients(_TOTAL, work.tape.number(1.0, _FLOAT), names, strict=False)
    # one output with all numbers: one run forwards and backwards for each sample
    numbers = work.tape.concat(*map(work.tape.flat, write(work, slopes)))
    del work.index.model.proto.graph.output[:]
    work.output(_NUMBERS, numbers, helper.make_tensor_type_proto(_FLOAT, [None]))
    run = opened(GraphIndex.of(work.model()), runtime)
    signs = (_signs(outputs, values, goal, seed) for seed, values in enumerate(right))
    found = [run({**feeds, **own})[_NUMBERS] for feeds, own in zip(samples, signs, strict=True)]
    return np.stack([np.asarray(row, np.float64) for row in found])


def _with_total(model: Model, outputs: Sequence[str]) -> Model:
    """Return the model with one number made of the outputs, each element with a weight of its own."""
    result = model.copy()
    graph = result.proto.graph
    kinds = {output.name: output.type for output in graph.output}
    sums = []
    for name in outputs:
        # the sum over all elements of sign * element; the signs are inputs, so that each sample has others
        weighted, total = f"{_TOTAL}\x01{name}", f"{_TOTAL}\x01{name}\x01"
        sums.append(total)
        graph.input.add(name=_sign(name), type=kinds[name])
        graph.node.append(helper.make_node("Mul", [name, _sign(name)], [weighted]))
        graph.node.append(helper.make_node("ReduceSum", [weighted], [total], keepdims=0))
    graph.node.append(helper.make_node("Sum", sums, [_TOTAL]))
    assign(graph.output, [helper.make_tensor_value_info(_TOTAL, _FLOAT, [])])
    return result


def _signs(outputs: Sequence[str], right: Values, goal: Goal, seed: int) -> dict[str, Array]:
    rng, found = np.random.default_rng(seed), dict[str, Array]()
    for name in outputs:
        value = np.asarray(right[name])
        # scaled, so that errors of outputs of other magnitudes can be added
        signs = rng.choice(np.array([-1, 1], np.float32), value.shape)
        found[_sign(name)] = signs / np.float32(goal.scale(value))
    return found


def _sign(name: str) -> str:
    return f"\x01signs\x01{name}"
