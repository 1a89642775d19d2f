"""Rank nodes by lost accuracy against references, and predict the losses of float16."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.errors import ReferenceSetError, RuntimeFailure
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import HIDDEN, Shown
from onnxsurgeon_lite.tensors.comparison import compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue
from onnxsurgeon_lite.tensors.references import ReferenceSet
from onnxsurgeon_lite.tensors.references.sets import Stored

_LARGEST, _SMALLEST = 65504.0, 2.0**-24  # of float16; the second is subnormal
_CLAMP = 1e-7  # converters raise smaller constants to this
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RankedNode:
    """The accuracy loss of one node, as signal-to-quantization-noise ratio (SQNR) in decibels.

    Attributes:
        value: the measured output.
        own_db: SQNR of its result from *reference* inputs: the node's own loss.
        total_db: SQNR of its result in the whole model.
        place: the module, class and source line of the node.
    """

    id: str
    name: str
    op_type: str
    value: str
    own_db: float
    total_db: float
    place: str = ""


@dataclass(frozen=True, repr=False)
class Ranking(Shown):
    """Nodes by the accuracy they lose, the lossiest first.

    Attributes:
        exclude: the names of those below `below` decibels, for a quantizer's exclude list.
    """

    nodes: list[RankedNode]
    exclude: list[str]
    below: float = field(default=20.0, metadata=HIDDEN)


def rank(
    index: GraphIndex,
    references: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    progress: Progress = lambda _: None,
) -> list[RankedNode]:
    """Rank the nodes with a reference, largest loss first; quantizers count as part of the node that they feed.

    Raises:
        ReferenceSetError: no value that the model computes has a reference.
    """
    origins = quantized_origins(index)
    known = {
        name: origin
        for name in index.producer
        if (origin := name if name in references else origins.get(name, "")) in references
    }
    measured = [
        name for name in known if index.nodes[index.producer[name]].op_type not in _QUANTIZERS
    ]
    if not measured:
        raise ReferenceSetError(
            f"{references.place!r} has no value that the model computes",
            "record the values of the float model: onnxdbg record FLOAT_MODEL -o references",
        )
    observer = Observer(index, runtime)
    observer.feed(feeds)
    expected = Expected(index, references, known, feeds)
    total = {}
    for name, actual in observer.sweep(measured, progress):
        total[name] = _sqnr(actual, expected.read(name))
    found = []
    for number, name in enumerate(measured):
        progress(f"{number} of {len(measured)} nodes run alone")
        position = index.producer[name]
        node = index.nodes[position]
        own = _sqnr(expected.alone(observer, name), expected.read(name))
        where = f"@{position}", node.name, node.op_type, name
        found.append(RankedNode(*where, own, total[name], str(index.origins[position])))
    return sorted(found, key=lambda node: (node.own_db, node.total_db))


@dataclass(frozen=True)
class Expected:
    """The references under the model's names of their values."""

    index: GraphIndex
    references: ReferenceSet
    known: Mapping[str, str]
    feeds: Feeds

    def read(self, name: str) -> Stored:
        """Return the reference of a value."""
        return self.references.read(self.known[name])

    def alone(self, observer: Observer, name: str) -> RunValue:
        """Compute a value from reference inputs, through the quantizers before its node."""
        index = self.index
        borders = self.feeds.keys() | {
            other
            for other in self.known
            if other != name and index.nodes[index.producer[other]].op_type not in _QUANTIZERS
        }
        positions = sorted(index.ancestors([name], stop=borders))
        reads = {read for position in positions for read in index.reads[position]}
        inputs: dict[str, RunValue] = {n: self.feeds[n] for n in reads & self.feeds.keys()}
        inputs |= {n: self.read(n) for n in reads & borders if n not in self.feeds}
        try:
            return observer.alone(positions, inputs, [name])[name]
        except RuntimeFailure:
            return None  # the references have another dtype


def quantized_origins(index: GraphIndex) -> dict[str, str]:
    """Map the output of each QuantizeLinear-DequantizeLinear pair to its input, and the input to the output.

    Quantization tools rename the float model's value on one side of the pair.
    """
    origins = {}
    for node in index.nodes:
        if node.op_type != "DequantizeLinear" or node.input[0] not in index.producer:
            continue
        quantizer = index.nodes[index.producer[node.input[0]]]
        if quantizer.op_type == "QuantizeLinear":
            origins[node.output[0]] = quantizer.input[0]
            origins.setdefault(quantizer.input[0], node.output[0])
    return origins


def _sqnr(actual: RunValue, expected: Stored) -> float:
    """Return the SQNR in decibels; -inf when the values cannot be compared."""
    if not isinstance(actual, np.ndarray) or not isinstance(expected, np.ndarray):
        return float("-inf")
    comparison = compare(actual, expected)
    if comparison.reason in ("shape", "dtype", "non-finite"):
        return float("-inf")
    return comparison.sqnr_db


@dataclass(frozen=True)
class Float16Risk:
    """The losses of one node in float16.

    Attributes:
        largest: the largest finite magnitude. overflowing: the number of elements above 65504.
        vanishing: the number of nonzero elements that would become zero.
        elements: the number of all elements.
        clamped: names of the node's constants that a converter would clamp.
        keep: True when the node should stay in float32.
        place: the module, class and source line of the node.
    """

    id: str
    name: str
    op_type: str
    value: str
    largest: float
    overflowing: int
    vanishing: int
    elements: int
    clamped: tuple[str, ...]
    keep: bool
    place: str = ""


@dataclass(frozen=True, repr=False)
class Float16Risks(Shown):
    """The nodes that float16 endangers.

    Attributes:
        exclude: the names of those to keep in float32.
    """

    nodes: list[Float16Risk]
    exclude: list[str]


def float16_risk(
    index: GraphIndex, feeds: Feeds, runtime: Runtime, progress: Progress = lambda _: None
) -> list[Float16Risk]:
    """List the nodes at risk in float16, from one float32 run.

    A node should stay in float32 when a value overflows, a constant is clamped, or more than half of its nonzero
    elements vanish.
    """
    observer = Observer(index, runtime)
    observer.feed(feeds)
    found = []
    for name, value in observer.sweep(index.producer, progress):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
            risk = _risk(index, name, value)
            if risk.overflowing or risk.vanishing or risk.clamped:
                found.append(risk)
    return sorted(found, key=lambda r: (not r.keep, -r.overflowing, -r.vanishing / r.elements))


def _risk(index: GraphIndex, name: str, value: Array) -> Float16Risk:
    position = index.producer[name]
    node = index.nodes[position]
    magnitudes = np.abs(value.astype(np.float64))
    over = int((magnitudes > _LARGEST).sum())
    present = magnitudes > 0
    vanishing = int((present & (magnitudes < _SMALLEST)).sum())
    clamped = tuple(read for read in index.reads[position] if _is_clamped(index, read))
    keep = bool(over or clamped or vanishing * 2 > int(present.sum()))
    finite = magnitudes[np.isfinite(magnitudes)]
    largest = float(finite.max(initial=0.0))
    where = (f"@{position}", node.name, node.op_type, name)
    counts = largest, over, vanishing, value.size
    return Float16Risk(*where, *counts, clamped, keep, str(index.origins[position]))


def _is_clamped(index: GraphIndex, name: str) -> bool:
    constant = index.initializers.get(name)
    if not isinstance(constant, TensorProto) or constant.data_type != TensorProto.FLOAT:
        return False
    magnitudes = np.abs(index.model.array(constant).astype(np.float64))
    return bool(((magnitudes > _LARGEST) | ((magnitudes > 0) & (magnitudes < _CLAMP))).any())
