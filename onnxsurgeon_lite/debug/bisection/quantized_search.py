"""Bisect a quantized model against the values of its float model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from onnxsurgeon_lite.debug.bisection.diagnose import Diagnosis, culprit_at
from onnxsurgeon_lite.debug.bisection.fork import one_for_each_fault
from onnxsurgeon_lite.debug.bisection.quantized.examine import Examination, Fault
from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues, Isolated
from onnxsurgeon_lite.debug.bisection.quantized.shaking import shaken
from onnxsurgeon_lite.debug.computed_references import (
    ChangedInitializers,
    computed_references,
)
from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.debug.result import (
    BisectResult,
    Cause,
    Culprit,
    Finding,
    in_order,
    settle,
)
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.debug.targets import require_same_sizes, targets_of
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex, node_title
from onnxsurgeon_lite.graph.quantizers import QUANTIZERS, computes_quantized
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.passes.protocol import Pipeline
from onnxsurgeon_lite.passes.recipe_writing import as_command, as_step
from onnxsurgeon_lite.runtime.float64 import Float64
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.tensors.comparison import Tolerance, apart
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array
from onnxsurgeon_lite.tensors.grid import Grid
from onnxsurgeon_lite.tensors.references import ReferenceSet

_RUNS = 8  # with noise
_TRIED = 8  # values that tell whose references they are
_ROOM = 2.0  # rounding may make this much more than the largest that so many runs showed


@dataclass
class QuantizedSearch:
    """A bisection against the float model.

    Attributes:
        written: the model as it is written; that of `values` may have its quantized operators expanded.
        runtime: with optimization off. optimized: with it on, if that is looked at.
        again: bisects the model against its own values, in the optimized look.
    """

    values: FloatValues
    written: GraphIndex
    runtime: Runtime
    optimized: Runtime | None
    tolerance: Tolerance | None
    budget: int
    quick: bool
    changed: Mapping[str, Array]
    again: Callable[[ReferenceSet], BisectResult]
    progress: Progress

    def run(self) -> BisectResult:
        """Name the nodes that err more than their quantization rounds."""
        values = self.values
        space = Space(values.index)
        errors = dict[str, float]()  # output -> how far rounding alone may move it; filled below
        grids = values.quantizers.grids
        judge = AgainstReferences(
            self.tolerance, grids=grids, noise=errors, references=values.named()
        )
        result = BisectResult("agrees")
        targets, result.notes = targets_of(space, judge)
        result.notes += values.references.notes
        examination = self._examination()
        faults = examination.faults()
        result.notes += examination.notes
        errors |= self._floor_of(targets)  # the judge sees them from here on
        judge.outputs = dict.fromkeys(targets)
        outputs = run(self.written, values.feeds, self.runtime, targets)  # the model as it is
        wrong = [name for name in targets if not judge.good(name, outputs[name])]
        for name in wrong:
            stored = judge.references.read(name)
            require_same_sizes(values.index, values.feeds, name, stored, outputs[name])
        for fault in faults[: 1 if self.quick else None]:
            result.culprits.append(self._culprit(fault, space, judge, examination, result))
        result.culprits = one_for_each_fault(result.culprits, space)
        result.outputs = {n: c for n, c in judge.outputs.items() if c is not None}
        result.compared = len(values.computed) + len(targets)
        result.sessions = examination.observer.sessions
        # four ends: a value errs more than it rounds; only all together do; optimization moves more; nothing is wrong
        if faults:
            result.verdict = "mismatch"
            result.culprits[0].healed = 1.0 if len(result.culprits) == 1 else None
        elif wrong:
            self._explain_loss(wrong, result)
        elif not self._optimized_agrees(targets, outputs, errors):
            return self._search_optimized(result)
        settle(result, values.references, targets, values.index.outputs)
        if values.left and not faults:
            self._say_left(result)
        return result

    def _say_left(self, result: BisectResult) -> None:
        """Say which values were not compared: nothing agrees then."""
        index, left = self.values.index, self.values.left
        nodes = (p for name in left for p in self.values.region(name))
        ops = dict.fromkeys(index.nodes[p].op_type for p in nodes if self.values.rounds_within(p))
        names = list(dict.fromkeys(map(self.values.known.__getitem__, left)))
        rounded = ", ".join(ops)
        result.notes.append(f"not compared, as what {rounded} rounds is not known: {few(names)}")
        result.verdict, result.findings = "inconclusive", []

    def _examination(self) -> Examination:
        theirs = self.changed.theirs if isinstance(self.changed, ChangedInitializers) else None
        observer = Observer(self.values.index, self.runtime)
        tolerance, told = self.tolerance, self.progress
        return Examination(self.values, observer, theirs, tolerance, self.budget, told)

    def _floor_of(self, targets: Sequence[str]) -> dict[str, float]:
        """Return how far rounding alone may move the outputs of the whole model."""
        feeds, quantizers = self.values.feeds, self.values.quantizers
        none = FloatValues(self.values.index, quantizers, ReferenceSet("", {}), feeds)
        whole = Isolated(none, Observer(self.values.index, self.runtime), targets)
        still = next(whole.run(whole.part()))
        # the largest change that shaking all quantizers makes, plus one quantum of the output's own quantizer
        floor = dict.fromkeys(targets, 0.0)
        for moved in whole.run(*shaken(whole.part(), quantizers, _RUNS)):
            for name in targets:
                floor[name] = max(floor[name], apart(moved[name], still[name]))
        for name in targets:
            grid, value = quantizers.grids.get(name), still[name]
            if grid is not None and is_array(value):
                floor[name] += float(grid.quantum(value.shape).max())
        return {name: _ROOM * far for name, far in floor.items() if far}

    def _culprit(
        self,
        fault: Fault,
        space: Space,
        judge: AgainstReferences,
        examination: Examination,
        result: BisectResult,
    ) -> Culprit:
        """Describe a fault with its values behind the quantizers."""
        values, index = self.values, self.values.index
        # report the value behind the quantizer if it has a reference: that is what the model goes on with
        name = values.quantizers.behind.get(fault.value, fault.value)
        name = name if name in values.known else fault.value
        # the judge of this culprit allows what rounding explains
        floor = examination.floors.of.get(fault.value)
        grid, reference = (
            values.quantizers.grids.get(name),
            values.read(name) if name in values.known else None,
        )
        quantum = 0.0
        if grid is not None and is_array(reference):
            quantum = float(grid.quantum(reference.shape).max())
        errors = (
            {name: quantum + _ROOM * floor.largest + floor.allowed} if floor is not None else {}
        )
        judge = replace(
            judge, noise={**judge.noise, **errors} if any(errors.values()) else judge.noise
        )
        inside = values.region(fault.value)
        if name != fault.value:
            inside = inside | index.ancestors([name], stop=[fault.value])
        region = {space.number[n] for n in index.made_by(inside) if n in space.number}
        observer = Observer(index, self.runtime)
        found = culprit_at(space, space.number[name], region)
        # what enters is the float model's, not this model's
        for read in found.inputs:
            if read in values.known or read in values.feeds:
                given = values.given(read)
                observer.put(read, given)
        diagnosis = Diagnosis(space, observer, judge, result, values.feeds, self.changed)
        culprit = diagnosis.culprit(space.number[name], region)
        node = index.nodes[fault.position]
        # the fault may be at another node than the one that makes the value
        culprit.id, culprit.name, culprit.op_type = f"@{fault.position}", node.name, node.op_type
        shown = self._may_be(fault)
        culprit.region = [f"@{position}" for position in shown]
        culprit.nodes = {f"@{position}": node_title(index.nodes[position]) for position in shown}
        culprit.findings = list(fault.findings)
        if not fault.findings:
            with Float64(observer) as float64:
                diagnosis.explain(culprit, float64)
            # the examination has excluded rounding
            own = [f for f in culprit.findings if f.verdict not in ("rounding", "gradual", "tie")]
            because = "from the values of the float model it errs more than its quantization rounds"
            culprit.findings = own or [Finding("wrong node", because)]
        culprit.findings = in_order(culprit.findings)
        if grid is not None:
            culprit.findings[0] = self._in_quanta(culprit.findings[0], grid, name, result)
        return culprit

    def _in_quanta(self, finding: Finding, grid: Grid, name: str, result: BisectResult) -> Finding:
        """Add to a finding by how many quanta the value is off behind its quantizer."""
        stored, actual = result.tensors[name]
        if not is_array(stored) or not is_array(actual):
            return finding
        if stored.shape != actual.shape or not stored.size:
            return finding
        off = grid.integers(actual) - grid.integers(stored)
        count = int((np.abs(off) > 1).sum())
        if not count:
            return finding
        quanta = f"{count} of {off.size} elements are off by more than one quantum, all by {off.mean():+.3g} on average"
        return replace(finding, because=f"{finding.because}; after the quantizer {quanta}")

    def _may_be(self, fault: Fault) -> list[int]:
        """Return the nodes that a fault may be: those that compute, or the quantizers if these alone can be wrong."""
        nodes = self.values.index.nodes
        if fault.pair is not None:
            return sorted([fault.pair, fault.position])
        region = sorted(self.values.region(fault.value))
        known = [p for p in region if nodes[p].op_type not in QUANTIZERS] or region
        return known if fault.position in known else [fault.position]

    def _explain_loss(self, wrong: Sequence[str], result: BisectResult) -> None:
        worst = min(wrong, key=lambda name: result.outputs[name].metric("sqnr"))
        lost = f"{worst!r} has {result.outputs[worst].metric('sqnr'):.3g} dB"
        because = f"every value is within what its own quantization rounds; together {lost}"
        result.add_finding("gradual", because)
        result.verdict = "mismatch" if self.tolerance is not None else "agrees"

    def _optimized_agrees(
        self,
        targets: Sequence[str],
        outputs: dict[str, RunValue],
        errors: dict[str, float],
    ) -> bool:
        """Return whether the optimized outputs are as far from the others as rounding may bring them."""
        if self.optimized is None:
            return True
        found = run(self.written, self.values.feeds, self.optimized, targets)
        far = {name: apart(found[name], outputs[name]) for name in targets}
        return all(
            distance <= errors.get(name, 0.0) or not distance for name, distance in far.items()
        )

    def _search_optimized(self, result: BisectResult) -> BisectResult:
        index, feeds = self.written, self.values.feeds
        with computed_references(index, feeds, self.runtime) as own:
            found = self.again(own)
        found.notes = result.notes + found.notes
        return found


def are_own(values: FloatValues, runtime: Runtime, tolerance: Tolerance | None) -> bool:
    """Return whether references are the model's own: most values behind quantized weights equal them.

    A model that quantizes the values between its operators tells by these.
    """
    index, quantizers = values.index, values.quantizers
    rounds = {index.producer[name] for name in quantizers.weights}
    rounds |= {p for p, node in enumerate(index.nodes) if computes_quantized(node)}
    behind = [name for name in values.known if rounds & values.region(name)]
    if quantizers.sources or not behind:
        return False
    judge = AgainstReferences(tolerance, references=values.named())
    observer = Observer(index, runtime)
    # -(-a // b) rounds up: at most _TRIED values, evenly spread
    parts = [Isolated(values, observer, [n]) for n in behind[:: -(-len(behind) // _TRIED)]]
    # read together: each alone may be computed from the inputs on
    values.hold(chain.from_iterable(chain(part.inputs, part.names) for part in parts))
    made = (named for part in parts for named in next(part.run(part.part())).items())
    equal = sum(judge.good(*named) for named in made)
    return 2 * equal > len(parts)


def add_causes(result: BisectResult, model: Model, again: Callable[[Model], BisectResult]) -> None:
    """Give the culprits a cause whose finding names the numbers that fit, if their edit makes the value right.

    Args:
        again: searches an edited model.
    """
    for culprit in result.culprits:
        steps = culprit.findings[0].edits
        if not steps:
            continue
        try:
            # the proof: with the edit, a new search finds no culprit at this value
            left = again(Pipeline(steps).apply(model).model)
        except SurgeonError:
            continue
        if all(other.value != culprit.value for other in left.culprits):
            culprit.causes = [_cause(culprit, model)]


def _cause(culprit: Culprit, model: Model) -> Cause:
    finding = culprit.findings[0]
    before = next((v.introduced for v in culprit.values if v.name == culprit.value), None)
    edits, command = list(map(as_step, finding.edits)), as_command(finding.edits, model.path)
    return Cause(finding.verdict, finding.because, before, None, finding.edits, edits, command)
