"""Say which nodes an output's error comes from, to first order: what each introduces, times the output's gradient.

Rounding has no gradient: it is taken of the model without its roundings, where quantizers only clip, and half precision
is float32.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper

from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues
from onnxsurgeon_lite.debug.computed_references import computed_references
from onnxsurgeon_lite.debug.ranking.rank import alone, measured, sqnr
from onnxsurgeon_lite.debug.shares import Blame, BlamedNode
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import GraphIndex, Quantizers
from onnxsurgeon_lite.model import Model, assign, copied, walk
from onnxsurgeon_lite.names import first
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    Stored,
    Wide,
    from_array,
    has_floats,
    is_array,
    numpy_dtype,
    peak,
    to_array,
    type_of,
    wide,
)
from onnxsurgeon_lite.tensors.references import ReferenceSet

_WEIGHTS = "\x01weights"  # an input: the weight of each element of the output
_NAMED = 4


def blame(
    index: GraphIndex,
    references: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    of: str | None,
    progress: Progress,
) -> Blame:
    """Share an output's error among the nodes that make values with a reference.

    A share is the error that a node introduces, times the gradient of the output along its error. What a node
    introduces is its error on *reference* inputs, and what the run rounds on its own inputs.

    Args:
        of: the output; by default the one with the worst SQNR.

    Raises:
        ReferenceSetError: no output has a reference that it can be compared with.
    """
    quantizers = Quantizers.of(index)
    # Rounding has no gradient: take that of a model without it, and count what rounding does among the introduced
    # errors.
    smooth = smoothed(index, quantizers)
    part = index if smooth is None else GraphIndex.of(smooth)
    given = feeds if smooth is None else widened(feeds)
    fed = ReferenceSet.of(feeds).entries
    references = replace(references, entries={**fed, **references.entries})
    with computed_references(index, feeds, runtime) as actual:
        values = FloatValues(index, quantizers, references, feeds)
        target = _target(values, actual, of)
        # the run's own values, which show what each node rounds
        own = replace(actual, entries={**fed, **actual.entries})
        stored = [references] if smooth is None else [references, own]
        sides = [FloatValues(part, quantizers, s, given).behind_quantizers() for s in stored]
        values = values.behind_quantizers()
        places = {name: index.producer[name] for name in values.known} | measured(values)
        nodes_alone = Observer(part, runtime, prefix="\x01nodes/")
        nodes_alone.feed(given)
        slopes = _Slopes.of(_typed(nodes_alone), target, list(places))
        introduced = _Introduced(sides, nodes_alone)
        # node -> (share, value) of each of its values
        found: dict[int, list[tuple[float, str]]] = defaultdict(list)
        unknown = []
        for name, share in slopes.times(introduced, given, progress):
            if share is None or not np.isfinite(share):
                unknown.append(name)
            else:
                found[places[name]].append((share, name))
    nodes = [_blamed(index, place, parts) for place, parts in found.items()]
    nodes.sort(key=lambda node: -abs(node.share))
    left = slopes.work.notes + _unknown(unknown)
    return Blame(target.name, target.output_db, nodes, sum(n.share for n in nodes), left)


def _blamed(index: GraphIndex, place: int, parts: Sequence[tuple[float, str]]) -> BlamedNode:
    node, value = index.nodes[place], max(parts, key=lambda part: abs(part[0]))[1]
    share = float(sum(part for part, _ in parts))
    return BlamedNode(f"@{place}", node.name, node.op_type, value, share, str(index.origins[place]))


def _unknown(names: Sequence[str]) -> list[str]:
    why = "what they introduce cannot be computed from references, or is not finite"
    return [f"no share for {first(list(map(repr, names)), _NAMED)}: {why}"] if names else []


@dataclass(frozen=True)
class _Target:
    """An output and its error."""

    name: str
    error: Wide
    output_db: float


def _target(values: FloatValues, actual: ReferenceSet, of: str | None) -> _Target:
    """Return the output, or the worst one."""
    names = [of] if of else list(values.index.outputs)
    # outputs that can be compared; of several the one with the worst SQNR
    found = []
    for name in (n for n in names if n in values.known):
        pair = actual.read(name), values.read(name)
        error = _difference(*pair) if of or has_floats(pair[0]) else None
        if error is not None and np.isfinite(error).all():
            found.append(_Target(name, error, sqnr(*pair)))
    if not found:
        raise ReferenceSetError(
            f"{', '.join(map(repr, names))} cannot be compared: no reference of the same shape with finite numbers",
            "choose another output, or look for NaN first: onnxdbg bisect MODEL --find nan",
        )
    return min(found, key=lambda target: target.output_db)


def _difference(actual: RunValue, expected: Stored) -> Wide | None:
    """Return an error; None where two values cannot be compared."""
    if not is_array(actual) or not is_array(expected):
        return None
    if actual.shape != expected.shape or "O" in (actual.dtype.kind, expected.dtype.kind):
        return None
    with np.errstate(all="ignore"):
        return wide(actual) - wide(expected)


@dataclass(frozen=True)
class _Introduced:
    """The errors that nodes introduce.

    Attributes:
        sides: the references; and where the model rounds, the values of its run.
        observer: of the model without roundings.
    """

    sides: Sequence[FloatValues]
    observer: Observer

    def read(self, names: Sequence[str]) -> dict[str, Wide | None]:
        """Return the error that is introduced at each value; None if it is not known."""
        errors = [self._on(side, names) for side in self.sides]
        if len(errors) == 1:
            return errors[0]
        # Without roundings, on reference inputs: `a` is the error that a node introduces; on the run's own inputs `b`
        # is minus what it rounds.
        pairs = {name: (errors[0][name], errors[1].get(name)) for name in names}
        return {n: a if a is None or b is None else a - b for n, (a, b) in pairs.items()}

    def _on(self, side: FloatValues, names: Sequence[str]) -> dict[str, Wide | None]:
        made = alone(side, self.observer, names, lambda _: None)
        return {name: _difference(value, side.read(name)) for name, value in made}


def _typed(observer: Observer) -> Model:
    """Return the model with the types that inference does not know, but a run."""
    index = observer.index
    index.learn_types(index.producer)
    unknown = [name for name in index.producer if not index.types.get(name)]
    model = index.model.copy() if unknown else index.model
    for name, value in observer.sweep(unknown):
        if value is not None:
            model.graph.value_info.add(name=name, type=type_of(value))
    return model


@dataclass
class _Slopes:
    """The gradient of an output along its error, by each value.

    Attributes:
        weights: of the output's elements. scale: what the gradient is times, for shares.
        terms: value of the gradient's model -> the values that it is the gradient by.
    """

    work: Derivative
    weights: Array
    scale: float
    terms: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, model: Model, target: _Target, names: Sequence[str]) -> "_Slopes":
        work = Derivative.of(model, [target.name])
        work.require_floats([target.name])
        kind = work.index.types[target.name]
        weights = work.tape.op("Identity", work.input(_WEIGHTS, kind))
        known = [name for name in names if name in work.index.producer]
        terms: dict[str, list[str]] = defaultdict(list)
        for name, term in work.gradients(target.name, weights, known, strict=False).items():
            # values may share a gradient: after an Add, both operands have that of the sum
            terms[term.name].append(name)
        # Weights of the output's elements: the error itself, so that the products sum up to its energy. They are scaled
        # to at most 1, as half precision holds no more, and the scale is put back into the shares.
        largest = peak(target.error) or 1.0
        energy = float((target.error**2).sum()) or 1.0
        scaled = (target.error / largest).astype(numpy_dtype(kind.tensor_type.elem_type))
        return cls(work, scaled, largest / energy, terms)

    def times(
        self, introduced: _Introduced, feeds: Feeds, progress: Progress
    ) -> Iterator[tuple[str, float | None]]:
        """Yield each value's gradient times what is introduced there; None if that is not known."""
        runtime = introduced.observer.runtime
        backwards = Observer(
            GraphIndex.of(self.work.model(self.terms)), runtime, prefix="\x01backwards/"
        )
        backwards.feed(feeds | {_WEIGHTS: self.weights})
        for part, needed in backwards.parts(self.terms, progress):
            errors = introduced.read([name for term in part for name in self.terms[term]])
            for term, slope in backwards.stream(part, needed):
                for name in self.terms[term]:
                    yield name, self._product(slope, errors[name])

    def _product(self, slope: RunValue, error: Wide | None) -> float | None:
        if error is None or not is_array(slope) or slope.shape != error.shape:
            return None
        with np.errstate(all="ignore"):
            return float((wide(slope) * error).sum() * self.scale)


_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_DTYPES = ("to", "dtype")  # attributes that hold one


def smoothed(index: GraphIndex, quantizers: Quantizers) -> Model | None:
    """Return the model without the roundings of its values, which keep their names; None if it has none.

    Weights stay as they are rounded.
    """
    # half precision shows in weights or inputs
    half = [t for t in walk.initializers(index.model.proto) if t.data_type in _HALF]
    halves = half or any(v.type.tensor_type.elem_type in _HALF for v in index.inputs.values())
    if not quantizers.sources and not halves:
        return None
    model = index.model.copy()
    _clip(model, index, quantizers)
    if halves:
        _widen(model)
    return model


def widened(feeds: Feeds) -> Feeds:
    """Return feeds for a model without half precision."""
    half = list(map(numpy_dtype, _HALF))
    wide = {n: v for n, v in feeds.items() if is_array(v) and v.dtype in half}
    return feeds | {name: value.astype(np.float32) for name, value in wide.items()}


def _clip(model: Model, index: GraphIndex, quantizers: Quantizers) -> None:
    """Put a Clip in the place of each pair of quantizers, or nothing where it differs by channel."""
    index.learn_types(quantizers.sources.values())
    for behind, source in quantizers.sources.items():
        node, grid = model.graph.node[index.producer[behind]], quantizers.grids[behind]
        element = index.element_of(source)
        limits = list[str]()
        # a range for each channel is no Clip: nothing is cut off then
        for limit in () if grid.scale.ndim or not element else grid.range(()):
            limits.append(f"{behind}\x01{len(limits)}")
            number = np.asarray(limit, numpy_dtype(element))
            model.graph.initializer.append(from_array(number, limits[-1]))
        operator = "Clip" if limits else "Identity"
        node.CopyFrom(helper.make_node(operator, [source] + limits, [behind], node.name))


def _widen(model: Model) -> None:
    """Make all half precision float32; weights are cast when the model runs."""
    proto = model.proto
    # weights stay as stored, under another name; a Cast at the start of the graph makes them float32
    for graph in walk.graphs(proto):
        casts = [_cast_behind(t) for t in graph.initializer if t.data_type in _HALF]
        assign(graph.node, casts + list(map(copied, graph.node)))
        _declare(chain(graph.input, graph.output, graph.value_info))
        _widen_attributes(graph.node)
    for function in proto.functions:
        _declare(function.value_info)
        _widen_attributes(walk.with_inner(function.node))


def _cast_behind(tensor: TensorProto) -> NodeProto:
    name, tensor.name = tensor.name, f"{tensor.name}\x01half"
    return helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT)


def _declare(values: Iterable[ValueInfoProto]) -> None:
    for value in values:
        if value.type.tensor_type.elem_type in _HALF:
            value.type.tensor_type.elem_type = TensorProto.FLOAT


def _widen_attributes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in _DTYPES and attribute.i in _HALF:
                attribute.i = TensorProto.FLOAT
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in _HALF:
                wide = to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(from_array(wide, attribute.t.name))
