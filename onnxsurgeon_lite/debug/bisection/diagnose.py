"""Diagnose one culprit: compare its values, split its error, give verdicts."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypedDict

import numpy as np
from onnx import NodeProto

from onnxsurgeon_lite.debug.bisection.quantized.shaking import shaken
from onnxsurgeon_lite.debug.bisection.structure import Explained, Region
from onnxsurgeon_lite.debug.bisection.unobserved import same
from onnxsurgeon_lite.debug.bisection.verdicts import TIES, Evidence, Wide, judge, last_places
from onnxsurgeon_lite.debug.judge import AgainstReferences, cast_like
from onnxsurgeon_lite.debug.result import BisectResult, Culprit, ValueReport
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph import BodyName, GraphIndex
from onnxsurgeon_lite.graph.quantizers import QUANTIZE, Quantizers, quantum_of
from onnxsurgeon_lite.graph.text import attribute_texts, node_title
from onnxsurgeon_lite.matching.judge import selected, selected_from
from onnxsurgeon_lite.model import walk
from onnxsurgeon_lite.runtime.float64 import Float64
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.tensors.comparison import agrees, default_tolerance
from onnxsurgeon_lite.tensors.dtypes import (
    Array,
    RunValue,
    RunValues,
    Shape,
    Stored,
    eps,
    is_array,
    is_float,
    types_of,
    wide,
)
from onnxsurgeon_lite.tensors.statistics import magnitude

_LACKING = 8  # reported names
_FOLDING = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add")  # end with what was normalized

_SMALL = 0.1  # errors above this share of the value's scale cannot be rounding
# The search for a changed structure runs the region many times: first only where the region is small and culprits are
# few, in the end wider (`WIDE`).
_EXPLAINED = 8  # culprits whose structure is searched
_CLOSE, WIDE = 3, 16  # nodes of a region whose structure is searched: of an origin, in the end
_ALIKE, _MOST = 1e-3, 0.75  # what counts as drawn, and the share that must be
_DRAWS = 48  # times that inputs are moved within their tolerance


@dataclass
class Diagnosis:
    """Diagnoses culprits in the state in which the walk found them.

    Attributes:
        changed: initializers that differ from those of the model that computed the references.
        made: (reference, actual) of the outputs of culprits, as they were found: a healed value is another's input.
        sides: what computed the references and what is searched, where both run the same model.
    """

    space: Space
    observer: Observer
    judge: AgainstReferences
    result: BisectResult
    feeds: Mapping[str, Stored] = field(default_factory=dict)
    changed: Container[str] = ()
    made: dict[str, tuple[RunValue, RunValue]] = field(default_factory=dict)
    sides: tuple[str, ...] = ()

    def culprit(self, bad: int, region: Iterable[int]) -> Culprit:
        """Return a found culprit with its place and its compared values."""
        culprit = culprit_at(self.space, bad, region)
        # constants of the region are no inputs, except where the references have them: these can be compared
        own = self.space.constant - self.judge.references.entries.keys()  # it makes them for itself
        culprit.inputs = [name for name in culprit.inputs if name not in own]
        culprit.lacking = self._lacking(culprit)
        stored = self.judge.references.entries.get(culprit.value)
        # the model does not say which module it is from, but the recording does
        if stored is not None and stored.class_name and not culprit.class_name:
            culprit.scope, culprit.source = stored.scope, stored.source
            culprit.class_name = stored.class_name.rpartition(".")[2]
        names = list(dict.fromkeys(chain(culprit.inputs, culprit.outputs)))
        actual = self.observer.fetch(names, keep=culprit.inputs)
        for name in names:
            reference = self.reference(name)
            self.result.tensors[name] = reference, actual.get(name)
            report = ValueReport(name, "output" if name in culprit.outputs else "input")
            if reference is not None:
                report.comparison = self.judge.compared(name, actual.get(name), reference)
            culprit.values.append(report)
        self.made |= {name: self.result.tensors[name] for name in culprit.outputs}
        return culprit

    def _lacking(self, culprit: Culprit) -> list[str]:
        """List references between the culprit's inputs and its value that the model does not have.

        What a normalization read that is folded into the culprit is none: an exporter leaves it out.
        """
        # references come in the order in which they were recorded
        place = {name: i for i, name in enumerate(self.judge.references)}
        if culprit.value not in place:
            return []
        start = min((place[name] for name in culprit.inputs if name in place), default=-1)
        entries, index = self.judge.references.entries, self.space.index
        # True counts as 1: the last reference before the value is what the normalization read
        is_folded = "BatchNorm" in entries[culprit.value].class_name and culprit.op_type in _FOLDING
        between = list(place)[start + 1 : place[culprit.value] - is_folded]
        lacking = [name for name in between if name not in index and BodyName.of(name) is None]
        return lacking[:_LACKING]

    def reference(self, name: str) -> RunValue:
        """Return the reference of a value; a feed is its own reference."""
        if name in self.judge.references:
            return self.judge.references.read(name)
        return self.feeds.get(name)

    def explain(self, culprit: Culprit, float64: Float64, widest: int = _CLOSE) -> None:
        """Run the culprit on reference inputs, in the runtime and in float64, and add verdicts.

        Args:
            widest: the most nodes of a region whose structure is searched.
        """
        # 1. what it read and made, as (reference, actual); another culprit may have healed these names since
        self.result.tensors |= {n: self.made[n] for n in culprit.outputs if n in self.made}
        inputs = {name: self.result.tensors[name] for name in culprit.inputs}
        expected, actual = (
            self.judge.seen(culprit.value, value) for value in self.result.tensors[culprit.value]
        )
        referenced = {name: cast_like(now, then) for name, (then, now) in inputs.items()}
        # 2. the node alone, on reference inputs
        local, varies = self._locally(culprit, referenced)
        if not is_array(actual) or not is_array(expected):
            return  # no criterion handles sequences
        positions = self._positions(culprit)
        nodes = [self.space.index.nodes[position] for position in positions]
        own = [self.space.index.nodes[p] for p in positions if f"@{p}" in culprit.region] or nodes
        is_constant = not culprit.inputs and culprit.value in self.space.constant
        # 3. one change of the region that gives the reference on reference inputs
        explained = None
        if not is_constant and len(culprit.region) <= widest:
            explained = self._explained(culprit, referenced, expected, local)
        # 4. the evidence, and what the criteria make of it
        evidence = Evidence(
            nodes=nodes,
            actual=actual,
            reference=expected,
            tolerance=self.judge.allowed(culprit.value, actual),
            inputs={name: (now, then) for name, (then, now) in inputs.items()},
            constants=self._constants(own),
            is_constant=is_constant,
            read=self._constant,
            changed=[name for name in walk.inputs(own) if name in self.changed],
            explained=explained,
            sides=self.sides,
            local=local if is_array(local) else None,
            varies=varies,
            quantum=_quantum(self.space.index, nodes, culprit.value, actual.shape),
            selected=selected(nodes[-1], self._source(nodes[-1], inputs), actual, expected),
        )
        if actual.dtype.kind not in "OUSb":
            now = {name: value for name, (_, value) in inputs.items()}
            self._in_float64(float64, culprit, now, referenced, evidence)
        if len(culprit.region) > 1 and any(node.op_type in TIES for node in nodes):
            evidence.flips = _flips(self._shaken(culprit, referenced), actual, expected)
        if evidence.quantum is not None:
            evidence.stirred = self._stirred(culprit, referenced, nodes)
        culprit.findings = judge(evidence)
        # 5. narrow the region to what the explanation names
        if culprit.verdict == "wrong constant" and not is_constant:
            culprit.region = self._but_constants(culprit.region)  # the finding names what it reads
        if explained is not None and explained.change == "missing":
            culprit.lacking = [explained.value]
        if explained is not None and explained.node is not None and len(culprit.region) > 1:
            place = place_of(self.space, explained.node, [explained.node])
            vars(culprit).update(place, seen=culprit.seen or [culprit.value])

    def _but_constants(self, region: Sequence[str]) -> list[str]:
        """Return the nodes of a region without those that only hold a constant."""
        made = {node: self.space.index.nodes[int(node[1:])].output for node in region}
        return [n for n in region if not self.space.stored.issuperset(filter(None, made[n]))]

    def _source(self, node: NodeProto, inputs: Mapping[str, tuple[RunValue, RunValue]]) -> RunValue:
        """Return the actual input that a node selects from, None if it does not select."""
        name = selected_from(node)
        if not name:
            return None
        return inputs[name][1] if name in inputs else self.observer.fetch([name])[name]

    def _shaken(self, culprit: Culprit, referenced: RunValues) -> Iterator[RunValue]:
        """Yield the value computed from reference inputs that are moved within their tolerance."""
        rng = np.random.default_rng(0)
        for _ in range(_DRAWS):
            moved = {name: _moved(value, rng) for name, value in referenced.items()}
            try:
                made = self.observer.alone(self._positions(culprit), moved, [culprit.value])
            except RuntimeFailure:
                return
            yield made[culprit.value]

    def _explained(
        self,
        culprit: Culprit,
        referenced: RunValues,
        expected: Array,
        local: RunValue,
    ) -> Explained | None:
        """Return what the region does more, less or otherwise than the reference, if one change explains it."""
        if not is_array(local) or len(self.result.culprits) > _EXPLAINED:
            return None
        allowed = self.judge.allowed(culprit.value, local)
        # right on reference inputs: nothing to explain
        if agrees(local, expected, allowed):
            return None
        positions = self._positions(culprit)
        own = [p for p in positions if f"@{p}" in culprit.region]
        return Region(
            self.observer,
            positions,
            own,
            culprit.value,
            referenced,
            expected,
            self.judge,
            self.space.constant,
        ).explained(culprit.lacking)

    def _stirred(
        self, culprit: Culprit, referenced: RunValues, nodes: Sequence[NodeProto]
    ) -> RunValue:
        """Return the value computed with other last places of what is dequantized; None of optimized nodes."""
        if self.result.look == "optimized" or any(
            node.domain or node.op_type.startswith("QLinear") for node in nodes
        ):
            return None
        positions = self._positions(culprit)
        part = self.observer.part(positions, types_of(referenced), [culprit.value])
        share = last_places(self.result.tensors[culprit.value][1])
        stirred, (noise,) = shaken(part, Quantizers.of(self.space.index), 1, share)
        try:
            return self.observer.run_part(stirred, {**referenced, **noise}, [culprit.value])[
                culprit.value
            ]
        except RuntimeFailure:
            return None

    def _positions(self, culprit: Culprit) -> list[int]:
        """Return the nodes of the region, with those that make its constants."""
        index = self.space.index
        return index.in_order(index.ancestors(culprit.outputs, stop=culprit.inputs))

    def _locally(self, culprit: Culprit, referenced: RunValues) -> tuple[RunValue, bool]:
        """Return (value computed from reference inputs, None if the nodes cannot run; True if it varies)."""
        positions = self._positions(culprit)
        try:
            local, again = (
                self.observer.alone(positions, referenced, culprit.outputs) for _ in range(2)
            )
        except RuntimeFailure as error:
            note = f"{culprit.id} could not run on reference inputs: {error.message}"
            self.result.notes.append(note)
            return None, False
        for report in culprit.values:
            stored = self.reference(report.name)
            if report.role == "output" and stored is not None:
                report.introduced = self.judge.compared(report.name, local[report.name], stored)
        return local[culprit.value], not same(local[culprit.value], again[culprit.value])

    def _in_float64(
        self,
        float64: Float64,
        culprit: Culprit,
        now: RunValues,
        referenced: RunValues,
        evidence: Evidence,
    ) -> None:
        positions = self._positions(culprit)

        def evaluate(values: RunValues) -> Array | None:
            return float64.evaluate(positions, values, culprit.value)[0]

        evidence.exact, culprit.evaluated = float64.evaluate(positions, now, culprit.value)
        if evidence.exact is None or evidence.local is None:
            return
        # if the inputs equal their references, one evaluation serves both
        alike = all(same(now[name], value) for name, value in referenced.items())
        evidence.exact_local = evidence.exact if alike else evaluate(referenced)
        if evidence.exact_local is not None and _nearly(evidence.actual, evidence.reference):
            evidence.rounding = _rounding(
                evaluate, referenced, evidence.exact_local, evidence.actual
            )

    def _constant(self, name: str) -> Array:
        tensor = self.space.index.dense(name)
        if tensor:
            return self.space.index.model.array(tensor)
        value = self.observer.fetch([name])[name]
        return value if is_array(value) else np.empty(0)

    def _constants(self, nodes: Iterable[NodeProto]) -> dict[str, Shape]:
        """Return the shapes of the constants that nodes read."""
        read = dict.fromkeys(walk.inputs(nodes))
        held = {name: tensor for name in read if (tensor := self.space.index.dense(name))}
        # TorchScript names a constant anew for each reader: one run computes them all
        computed = [name for name in read if name in self.space.constant and name not in held]
        values = self.observer.stream(computed)
        made = {name: value.shape for name, value in values if is_array(value)}
        shapes = {name: tuple(tensor.dims) for name, tensor in held.items()} | made
        return {name: shapes[name] for name in read if name in shapes}


def culprit_at(space: Space, bad: int, region: Iterable[int] = ()) -> Culprit:
    """Return the node that produces a bad value, with the unprobed nodes before it."""
    index, value, position = space.index, space.values[bad], space.position(bad)
    names = space.names(region)
    positions = sorted({position}.union(index.producer[name] for name in names))
    unknown = [name for name in names if name not in space.stored]
    return Culprit(
        value=value,
        outputs=list(index.outputs_of([position])),
        inputs=space.entering(positions),
        **place_of(space, position, positions if unknown else [position]),
    )


class PlaceFields(TypedDict):
    """The fields of a culprit that say which node it is."""

    id: str
    name: str
    op_type: str
    region: list[str]
    nodes: dict[str, str]
    scope: str
    class_name: str
    source: str
    attributes: dict[str, str]
    alike: int


def place_of(space: Space, position: int, region: Sequence[int]) -> PlaceFields:
    """Describe a node, and the region that it stands for."""
    index = space.index
    node, origin = index.nodes[position], index.origins[position]
    return PlaceFields(
        id=f"@{position}",
        name=node.name,
        op_type=node.op_type,
        region=[f"@{p}" for p in region],
        nodes={f"@{p}": node_title(index.nodes[p]) for p in region},
        scope=origin.scope,
        class_name=origin.class_name,
        source=origin.source,
        attributes=attribute_texts(node),
        alike=sum(
            index.origins[other].class_name == origin.class_name
            for other in index.operators[node.op_type]
        ),
    )


def _rounding(
    evaluate: Callable[[RunValues], Array | None],
    inputs: RunValues,
    exact: Array,
    actual: Array,
) -> Wide | None:
    """Return the elementwise change of the result when every operand is perturbed in its last place.

    Source: random perturbation of operands, as in stochastic arithmetic (CADNA, Verrou); three samples.
    """
    last = eps(actual.dtype)
    right = wide(exact)
    moved = np.abs(right) * last
    rng = np.random.default_rng(0)
    for _ in range(3):
        shaken = {name: _shaken(value, last, rng) for name, value in inputs.items()}
        other = evaluate(shaken)
        if other is None or other.shape != exact.shape:
            return None
        moved = np.maximum(moved, np.abs(wide(other) - right))
    # elements that did not move by chance get the usual movement
    some = moved[moved > 0]
    # a mask of -1e38 is not typical
    return np.maximum(moved, 2 * float(np.median(some)) if some.size else 0.0)


def _nearly(actual: Array, reference: Array) -> bool:
    """Return whether the error is small enough for rounding."""
    if actual.shape != reference.shape or not is_float(actual.dtype):
        return False
    a, r = wide(actual), wide(reference)
    if not (np.isfinite(a).all() and np.isfinite(r).all() and a.size):
        return False
    return float(np.abs(a - r).max()) <= max(_SMALL, 8 * eps(actual.dtype)) * float(np.abs(r).max())


def _shaken(value: RunValue, last: float, rng: "np.random.Generator") -> RunValue:
    if not is_array(value) or not is_float(value.dtype):
        return value
    numbers = wide(value)
    return numbers * (1 + last * rng.uniform(-1, 1, numbers.shape))


def _quantum(
    index: GraphIndex, nodes: Iterable[NodeProto], value: str, shape: Shape
) -> Wide | None:
    """Return the size of the quantization steps of a value; None if none of the nodes that make it quantizes."""
    ops = [node.op_type for node in nodes]
    rounds = any(op == QUANTIZE or op.startswith("QLinear") for op in ops)
    return quantum_of(index, value, shape) if rounds else None


def _moved(value: RunValue, rng: "np.random.Generator") -> RunValue:
    """Move each number within the default tolerance."""
    if not is_array(value) or not is_float(value.dtype) or not value.size:
        return value
    allowed = default_tolerance(value.dtype, value.dtype)
    numbers = wide(value)
    room = allowed.absolute(magnitude(value)) + allowed.rtol * np.abs(numbers)
    return (numbers + room * rng.uniform(-1, 1, numbers.shape)).astype(value.dtype)


def _flips(draws: Iterable[RunValue], actual: Array, reference: Array) -> bool:
    """Return whether moving the inputs gives most of the reference, element by element; at any place if shapes vary."""
    arrays = [draw for draw in draws if is_array(draw)]
    if actual.dtype.kind not in "iuf":
        return False
    # of the elements that differ, how many did some draw give as the reference has them?
    if actual.shape == reference.shape:
        drawn = [np.isclose(a, reference, rtol=_ALIKE) for a in arrays if a.shape == actual.shape]
        off = ~np.isclose(actual, reference, rtol=_ALIKE)
        share = np.any(drawn, axis=0)[off].mean() if drawn and off.any() else 0.0
        return bool(share >= _MOST)
    # shapes vary (NonMaxSuppression): the numbers of all draws, without their places
    pool = np.unique(np.concatenate([a.ravel() for a in arrays] or [np.empty(0)]))
    if not pool.size or all(a.shape == actual.shape for a in arrays):
        return False
    # the neighbors of each reference in the sorted pool: at and at - 1
    at = np.searchsorted(pool, reference.ravel()).clip(1, max(1, pool.size - 1))
    near = [np.isclose(pool[(at - i) % pool.size], reference.ravel(), rtol=_ALIKE) for i in (0, 1)]
    return float(np.any(near, axis=0).mean()) >= _MOST
