"""Add a heat map: how much each element of an input counts for an output."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper

from onnxsurgeon_lite.errors import EditError, UsageError
from onnxsurgeon_lite.graph import RANDOM, GraphIndex, dims_of
from onnxsurgeon_lite.model import Model, copied
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import one_value
from onnxsurgeon_lite.surgery import rename_values
from onnxsurgeon_lite.surgery.gradients.reverse_mode.reverse import Reverse
from onnxsurgeon_lite.surgery.gradients.step import is_float
from onnxsurgeon_lite.surgery.gradients.tape import Tape, Term
from onnxsurgeon_lite.tensors import dtypes

Method = Literal["saliency", "input-x-gradient", "integrated-gradients", "smoothgrad", "gradcam"]
HEATMAP, TARGET = "heatmap", "target"


@dataclass(frozen=True)
class Attribution:
    """Add an output `heatmap`: how much each element of an input counts for a class.

    The definitions and defaults are those of Captum. Weights are not copied: what is run several times is the body of a
    Scan, which reads them from outside.

    Attributes:
        method: saliency (the gradient's magnitude), input-x-gradient, integrated-gradients (from zeros to the input),
            smoothgrad (saliency, averaged over noise), gradcam (a layer's activations, weighted by their gradients).
        target: the class, an index of dimension 1 of the output; `input` adds an input `target` with one for each
            sample.
        of: the output; the first by default.
        to: the input; the first of floats by default.
        steps: how many points integrated-gradients takes, or how many samples smoothgrad takes.
        noise: smoothgrad's standard deviation; the name of an input to add that holds the noise of all samples.
        layer: the value that gradcam looks at; by default the last one with images.

    Example:
        >>> osl.attribution("whole_model.onnx", "saliency").changes
        ("added output 'heatmap': saliency of '31' by 'input.1'",)
    """

    method: Method
    target: int | str | None = None
    of: str | None = None
    to: str | None = None
    steps: int | None = None
    noise: float | str = 1.0
    layer: str | None = None
    name: ClassVar[str] = "attribution"

    def apply(self, model: Model) -> PassResult:
        """Add it.

        Raises:
            UnknownNameError: no such value.
            EditError: the output does not depend on the input, has no such class, or a node on the path has no rule.
        """
        if self.method not in get_args(Method):
            raise UsageError(
                f"no method {self.method!r}", f"there are {', '.join(get_args(Method))}"
            )
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"--steps is {self.steps}", "give a number above 0")
        index = GraphIndex.of(model)
        notes = list[str]()
        if not index.outputs:
            raise EditError("the model has no output", "declare one: onnxdbg expose MODEL VALUE")
        of = one_value(index, self.of or next(iter(index.outputs)), notes)
        to = one_value(index, self.to or _image(index), notes)
        work = Derivative.of(model, [of])
        work.require_floats([of, to])
        layer = self._layer(work, of, to) if self.method == "gradcam" else to
        weights = self._target(work, of)
        ways = {"integrated-gradients": self._integrated, "smoothgrad": self._smooth}
        # the other methods take one gradient
        made = ways.get(self.method, self._once)(work, of, layer, weights)
        kind = copied(work.index.types[layer])
        if self.method == "gradcam":
            # gradcam sums over channels, so one is left
            dims_of(kind)[1].Clear()
            dims_of(kind)[1].dim_value = 1
        work.output(HEATMAP, made, kind)
        where = f" at {layer!r}" if layer != to else ""
        change = f"added output {HEATMAP!r}: {self.method} of {of!r} by {to!r}{where}"
        return PassResult.of(model, work.model(), [change], notes + work.notes)

    def _target(self, work: Derivative, of: str) -> "Weights":
        """Return what writes the weight of each element of the output: one for the class, zero for others."""
        shape, target = work.tape.shape(of), self.target
        if target is None:
            # without a class, every element of the output counts
            return lambda tape, value: tape.ones_like(value)
        if shape is None or len(shape) != 2:
            raise EditError(
                f"{of!r} does not have the shape [samples, classes], which --target needs",
                "choose an output that has it: --of OUTPUT",
            )
        classes = shape[1]
        if isinstance(target, int) and isinstance(classes, int) and not 0 <= target < classes:
            raise EditError(
                f"{of!r} has {classes} classes, not {target}", f"give 0 to {classes - 1}"
            )
        if isinstance(target, int):
            chosen = work.tape.integers([target])
        elif target == "input":
            kind = helper.make_tensor_type_proto(TensorProto.INT64, [shape[0]])
            chosen = work.input(TARGET, kind)
        else:
            raise UsageError(f"target {target!r} is not a class", "give a number, or input")
        # OneHot takes [off, on]
        pair = work.tape.array(np.array([0, 1], np.float32))

        def weights(tape: Tape, value: Term) -> Term:
            # [samples, classes]: 1 for the class, 0 elsewhere; Expand for a batch that the class alone does not
            # give
            hot = tape.op("OneHot", chosen, tape.dim(value, 1), pair, axis=-1)
            hot = hot.typed(TensorProto.FLOAT).cast(value.dtype)
            return tape.op("Expand", hot, tape.dims(value))

        return weights

    def _once(self, work: Derivative, of: str, to: str, weights: "Weights") -> Term:
        tape = work.tape
        found = work.gradients(of, weights(tape, tape.value(of)), [to])
        work.require_dependent(of, [to], found)
        if self.method == "saliency":
            return found[to].function("Abs")
        if self.method == "input-x-gradient":
            return tape.value(to) * found[to]
        value = tape.value(to)
        # channel weights are the mean gradient over the axes after the channels
        importance = tape.mean(found[to], value, range(2, tape.rank(value)))
        return tape.sum(importance * value, [1], keepdims=True)

    def _layer(self, work: Derivative, of: str, to: str) -> str:
        """Return the value that gradcam looks at."""
        if self.layer is not None:
            name = one_value(work.index, self.layer, work.notes)
            if len(work.tape.shape(name) or ()) < 2:
                raise EditError(
                    f"{name!r} has no axis of channels", "name a value that has one: --layer VALUE"
                )
            return name
        needed = work.index.ancestors([of])
        # from the end: the last feature map that has more than one pixel
        for place in reversed([p for p in work.index.order if p in needed]):
            for name in work.index.nodes[place].output:
                shape = work.tape.shape(name)
                if shape is not None and len(shape) == 4 and shape[2:] != [1, 1]:
                    return str(name)
        raise EditError(f"no value between {to!r} and {of!r} has images", "name one: --layer VALUE")

    def _integrated(self, work: Derivative, of: str, to: str, weights: "Weights") -> Term:
        """Return the Gauss-Legendre sum of the gradients on the way from zeros to the input, times the input."""
        # points in (-1, 1) and weights that sum to 2, moved to (0, 1)
        points, shares = np.polynomial.legendre.leggauss(self.steps or 50)
        value = work.tape.value(to)
        dtype = dtypes.numpy_dtype(value.dtype)
        scanned = [work.tape.array(a.astype(dtype)) for a in ((1 + points) / 2, shares / 2)]
        total = _scanned(
            work, of, to, weights, scanned,
            lambda x, given: x * given[0],
            lambda gradient, given: gradient * given[1],
        )  # fmt: skip
        return value * total

    def _smooth(self, work: Derivative, of: str, to: str, weights: "Weights") -> Term:
        """Return the mean magnitude of the gradients at the input with noise."""
        tape, samples = work.tape, self.steps or 5
        value = tape.value(to)
        # the caller feeds the noise: an input with a row for each sample
        if isinstance(self.noise, str):
            shape = dims_of(work.index.types[to])
            sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in shape]
            noise = work.input(
                self.noise, helper.make_tensor_type_proto(value.dtype, [samples, *sizes])
            )
            total = _scanned(
                work, of, to, weights, [noise],
                lambda x, given: x + given[0],
                lambda gradient, _: gradient.function("Abs"),
            )  # fmt: skip
            return total / samples
        scale = float(self.noise)
        # a Scan needs something to run over, even if the noise is drawn inside
        unused = tape.array(np.zeros(samples, np.float32))
        total = _scanned(
            work, of, to, weights, [unused],
            lambda x, _: x + x.tape.op("RandomNormalLike", x, scale=scale, seed=0.0),
            lambda gradient, _: gradient.function("Abs"),
        )  # fmt: skip
        return total / samples


Weights = Callable[[Tape, Term], Term]
Shift = Callable[[Term, Sequence[Term]], Term]


def _image(index: GraphIndex) -> str:
    """Return the first input of floats."""
    for name in index.inputs:
        if name not in index.initializers and is_float(index.element_of(name)):
            return name
    raise EditError("the model has no input of floats", "name a value: --to VALUE")


# The body reads the sum so far, then a row of each scanned constant.
# The sum starts at zeros of the input's shape.
# `of` has a copy only if it depends on `to`.
def _scanned(
    work: Derivative,
    of: str,
    to: str,
    weights: Weights,
    scanned: Sequence[Term],
    shift: Shift,
    part: Shift,
) -> Term:
    """Write a Scan that sums over gradients at several inputs.

    Args:
        scanned: constants with a row for each input. shift: the input, given its row. part: the summand.
    """
    tape, index = work.tape, work.index
    body = tape.body()
    value = tape.value(to)
    names = tape.names
    given = [Term(body, names.fresh(), term.dtype) for term in (value, *scanned)]
    here = Term(body, value.name, value.dtype)
    moved = shift(here, given[1:])
    # a copy of the nodes between `to` and `of` that starts at the shifted input
    renamed, nodes = _again(work, of, to, moved.name)
    body.nodes.extend(nodes)
    work.require_dependent(of, [to], renamed.keys() & {of} and [to])
    names.types[moved.name] = index.types[to]
    seed = weights(body, body.value(renamed[of]))
    found = Reverse(body, nodes).gradients({renamed[of]: seed}, [moved.name])
    work.require_dependent(of, [to], [to] if found else [])
    total = Term(body, given[0].name, value.dtype) + part(found[moved.name], given[1:])
    graph = GraphProto(name="gradient", node=body.nodes)
    for term in given:
        graph.input.add(
            name=term.name, type=TypeProto(tensor_type=TypeProto.Tensor(elem_type=term.dtype))
        )
    graph.output.add(name=total.name, type=graph.input[0].type)
    start = tape.zeros(tape.dims(value), value.dtype)
    reads = [start.name] + [term.name for term in scanned]
    node = helper.make_node("Scan", reads, [], body=graph, num_scan_inputs=len(scanned))
    return Term(tape, tape.add(node, 1)[0], value.dtype)


def _again(
    work: Derivative, of: str, to: str, start: str
) -> tuple[dict[str, str], list[NodeProto]]:
    """Return copies of the nodes between two values, which begin at another value, and their names."""
    index = work.index
    names = {to: start}
    needed = index.ancestors([of], stop=[to])
    part = GraphProto()
    for place in (p for p in index.order if p in needed):
        # a node that reads none of the copied values is the same at every step: the body reads it from outside
        if names.keys().isdisjoint(index.reads[place]):
            continue
        node = index.nodes[place]
        if node.op_type in RANDOM:
            raise EditError(
                f"{index.describe(place)} draws random numbers, and would draw others at every step",
                "freeze what it makes first",
            )
        for name in filter(None, node.output):
            names[name] = work.tape.names.fresh()
            kind = index.types.get(name)
            if kind is not None:
                work.tape.names.types[names[name]] = kind
        part.node.append(node)
    rename_values(index.model.proto, part, names)
    return names, list(part.node)
