"""Which nodes lose accuracy: a quantised or half-precision model against references, and what float16 would lose."""

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

_LARGEST, _SMALLEST = 65504.0, 2.0**-24  # of float16, the second subnormal
_CLAMP = 1e-7  # what converters raise small constants to
_QUANTISERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RankedNode:
    """One node's loss.

    Attributes:
        value: its output that was measured.
        own_db: signal to error power of what it computes from *reference* inputs: the loss that is its own.
        total_db: the same with the inputs it gets.
        place: the module, its class and the source line that the node comes from.
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
        exclude: the names of those below `below` decibels, for a quantiser's exclude list.
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
    """The nodes with a reference, the lossiest first; quantisers count as part of the node they feed.

    Raises:
        ReferenceSetError: no value that the model computes has a reference.
    """
    origins = quantised_origins(index)
    known = {
        name: origin
        for name in index.producer
        if (origin := name if name in references else origins.get(name, "")) in references
    }
    measured = [
        name for name in known if index.nodes[index.producer[name]].op_type not in _QUANTISERS
    ]
    if not measured:
        raise ReferenceSetError(
            f"{references.place!r} has no value that the model computes",
            "record the float model's values: onnxdbg record",
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
    """The references by the names that the model has for their values."""

    index: GraphIndex
    references: ReferenceSet
    known: Mapping[str, str]
    feeds: Feeds

    def read(self, name: str) -> Stored:
        """What the value should be."""
        return self.references.read(self.known[name])

    def alone(self, observer: Observer, name: str) -> RunValue:
        """What a value's node computes when all that enters it, through quantisers, is as it should be."""
        index = self.index
        borders = self.feeds.keys() | {
            other
            for other in self.known
            if other != name and index.nodes[index.producer[other]].op_type not in _QUANTISERS
        }
        positions = sorted(index.ancestors([name], stop=borders))
        reads = {read for position in positions for read in index.reads[position]}
        inputs: dict[str, RunValue] = {n: self.feeds[n] for n in reads & self.feeds.keys()}
        inputs |= {n: self.read(n) for n in reads & borders if n not in self.feeds}
        try:
            return observer.alone(positions, inputs, [name])[name]
        except RuntimeFailure:
            return None  # the references have another dtype there


def quantised_origins(index: GraphIndex) -> dict[str, str]:
    """What a pair of QuantizeLinear and DequantizeLinear gives back -> what went in, and the other way round.

    A quantiser gives the value that the float model calls `y` another name, before or behind the pair.
    """
    origins = {}
    for node in index.nodes:
        if node.op_type != "DequantizeLinear" or node.input[0] not in index.producer:
            continue
        maker = index.nodes[index.producer[node.input[0]]]
        if maker.op_type == "QuantizeLinear":
            origins[node.output[0]] = maker.input[0]
            origins.setdefault(maker.input[0], node.output[0])
    return origins


def _sqnr(actual: RunValue, expected: Stored) -> float:
    """Decibels; -inf for what cannot be compared."""
    if not isinstance(actual, np.ndarray) or not isinstance(expected, np.ndarray):
        return float("-inf")
    comparison = compare(actual, expected)
    if comparison.reason in ("shape", "dtype", "non-finite"):
        return float("-inf")
    return comparison.sqnr_db


@dataclass(frozen=True)
class Float16Risk:
    """What one node's values or constants would lose in float16.

    Attributes:
        largest: of the finite magnitudes. overflowing: elements above 65504.
        vanishing: elements that are not zero and would be.
        elements: all of them.
        clamped: constants of the node that a converter would change, by name.
        keep: whether the node should stay in float32.
        place: the module, its class and the source line that the node comes from.
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
    """The nodes that float16 endangers, judged by one run in float32.

    A node is to be kept when a value overflows, a constant would be clamped, or more than half of what is not zero
    would vanish.
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
