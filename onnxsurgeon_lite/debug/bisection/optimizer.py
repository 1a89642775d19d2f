"""Attribute a mismatch of the optimized graph to original nodes and to an optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from onnx import ModelProto, TensorProto, helper

from onnxsurgeon_lite.debug.bisection.quantized.shaking import Errors, noise_like, shaken
from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.debug.result import Culprit, Finding, in_order
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.graph import GraphIndex, node_title
from onnxsurgeon_lite.graph.quantizers import QUANTIZE, Quantizers, quantum_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.optimized import RULES
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.subsets import smallest
from onnxsurgeon_lite.tensors.dtypes import (
    RunValue,
    RunValues,
    Wide,
    is_array,
    peak,
    rms,
    types_of,
    wide,
)
from onnxsurgeon_lite.tensors.grid import is_biased

_SAMPLES = 3
_RUNS = 8  # with other quanta
_EPS = 2.0**-22  # twice the last place of float32
_NOISE = 4.0  # errors within this many times the noise are noise
# onnxruntime disables a rule (such as `EliminateIdentity`) by its own name, or its group with all rules
_GROUP = "RuleBasedTransformer"  # in the names of what runs the runtime's rules


def compare_with_unoptimized(
    culprit: Culprit,
    original: Observer,
    judge: AgainstReferences,
    inputs: RunValues,
    actual: RunValue,
) -> Literal["agrees", "mismatches", "another value", "unknown"]:
    """Run the original nodes of an optimized region, unoptimized, on the region's actual inputs.

    Returns:
        Whether the result agrees with the reference. If not, one of these nodes is wrong. "another value": the
        optimized graph reuses the name, as shape or dtype show.
    """
    index = original.index
    covered = _covered(culprit, index)
    # `covered` may hold nodes that make shapes or constants; the region is what depends on its inputs
    below = index.descendants(index.next_to(culprit.inputs))
    between = [position for position in covered if position in below] or covered
    culprit.covers = [f"@{position}" for position in between]
    culprit.nodes = {f"@{p}": node_title(index.nodes[p]) for p in between}
    if not covered or any(name not in index for name in culprit.inputs):
        return "unknown"
    try:
        unoptimized = original.alone(covered, inputs, [culprit.value])
    except RuntimeFailure:
        return "unknown"
    result = unoptimized[culprit.value]
    # another shape or dtype: the name means something else in the optimized graph
    sides = [(v.shape, v.dtype) for v in (actual, result) if is_array(v)]
    if len(set(sides)) > 1:
        return "another value"
    if judge.good(culprit.value, result):
        which = (
            f"{culprit.covers[0]} to {culprit.covers[-1]}"
            if culprit.covers[1:]
            else culprit.covers[0]
        )
        because = f"on the same inputs, the original nodes ({which}) give the reference with optimization off"
        culprit.findings = [f for f in culprit.findings if f.verdict != "wrong node"]
        culprit.findings.append(Finding("optimizer", because))
        _explain_rounding(culprit, original, inputs, actual, result)
        culprit.findings = in_order(culprit.findings)
        return "agrees"
    return "mismatches"


def _covered(culprit: Culprit, index: GraphIndex) -> list[int]:
    """Return the original nodes of an optimized region, with those that make its shapes and constants."""
    return sorted(index.ancestors([culprit.value], stop=culprit.inputs))


def _explain_rounding(
    culprit: Culprit,
    original: Observer,
    inputs: RunValues,
    actual: RunValue,
    unoptimized: RunValue,
) -> None:
    """Add a rounding finding if perturbing the last place of the original nodes' values makes the same difference.

    Source: stochastic arithmetic (CADNA, Verrou): each float result is moved at random in its last place.
    """
    positions = _covered(culprit, original.index)
    if not is_array(actual) or not is_array(unoptimized):
        return
    if actual.shape != unoptimized.shape or actual.dtype.kind in "OUSb":
        return
    types = types_of(inputs)
    error = wide(actual) - wide(unoptimized)
    # from the cheapest explanation to the one that needs runs: a quantum, half quanta of operands, last places
    quantized = _quantization_rounds(culprit, original.index, error)
    if quantized:
        culprit.findings.append(Finding("rounding", quantized))
        return
    if _quantizers_round(culprit, original, inputs, wide(unoptimized), error):
        because = "the error is within what the quantizers before the value round"
        culprit.findings.append(Finding("rounding", because))
        return
    typical, largest = 0.0, 0.0
    for seed in range(_SAMPLES):
        part = original.part(positions, types, [culprit.value])
        _shake(part, original.index, positions, seed)
        try:
            shaken = original.run_part(part, inputs, [culprit.value])[culprit.value]
        except RuntimeFailure:
            return
        if not is_array(shaken):
            return
        moved = np.abs(wide(shaken) - wide(unoptimized))
        typical = max(typical, rms(moved))
        largest = max(largest, float(moved.max(initial=0.0)))
    off = rms(error)
    if off <= _NOISE * typical and peak(error) <= _NOISE * largest:
        because = (
            f"the error (RMS {off:.3g}) is at most {_NOISE:g} times the effect of rounding the results "
            f"of the {len(positions)} nodes differently ({typical:.3g})"
        )
        culprit.findings.append(Finding("rounding", because))


def _quantization_rounds(culprit: Culprit, index: GraphIndex, error: Wide) -> str:
    """Say that an error is a quantum for each quantizer that the value is computed through, without a bias."""
    quantum = quantum_of(index, culprit.value, error.shape)
    if quantum is None or not error.size:
        return ""
    steps = error / quantum
    nodes = (index.nodes[int(place[1:])] for place in culprit.covers)
    count = max(1, sum(node.op_type == "QuantizeLinear" for node in nodes))
    if np.abs(steps).max() > count + 1e-3 or is_biased(steps):
        return ""
    most = f"{np.abs(steps).max():.3g} quanta" if count > 1 else "one quantum"
    return f"no error exceeds {most}, {count} of its operands are quantized, and there is no bias"


def _quantizers_round(
    culprit: Culprit,
    original: Observer,
    inputs: RunValues,
    value: Wide,
    error: Wide,
) -> bool:
    """Return whether half a quantum more or less of what is dequantized makes such an error."""
    index, positions = original.index, _covered(culprit, original.index)
    if all(index.nodes[position].op_type != QUANTIZE for position in positions):
        return False
    part = original.part(positions, types_of(inputs), [culprit.value])
    moved, noise = shaken(part, Quantizers.of(index), _RUNS)
    usual = []
    try:
        for found in original.runs(moved, inputs, [culprit.value], noise):
            other = found[culprit.value]
            assert is_array(other)
            usual.append(Errors.of(wide(other) - value, value, -1))
    except RuntimeFailure:
        return False
    return Errors.of(error, value, -1).excess(usual, 0.0, rms(value), error.size) <= 1


def _shake(part: ModelProto, index: GraphIndex, positions: Sequence[int], seed: int) -> None:
    """Multiply every float32 value between the nodes by a random factor close to 1."""
    graph = part.graph
    index.learn_types(index.made_by(positions))
    ends = {value.name for value in graph.output}
    nodes = list(graph.node)
    del graph.node[:]
    for number, node in enumerate(nodes):
        graph.node.append(node)
        for slot, name in enumerate(node.output):
            kind = index.types.get(name)
            is_float = kind is not None and kind.tensor_type.elem_type == TensorProto.FLOAT
            # only values between the nodes are moved: the result itself must not be, and one output of a node is enough
            if not name or name in ends or not is_float or node.op_type == "DequantizeLinear":
                continue
            before, noise = f"{name}\x01before", f"{name}\x01noise"
            graph.node[-1].output[slot] = before
            drawn = seed * len(nodes) + number
            graph.node.extend(noise_like(part, before, noise, (1 - _EPS, 1 + _EPS), drawn))
            graph.node.append(helper.make_node("Mul", [before, noise], [name]))
            break


def blame(
    original: Observer,
    optimized: Runtime,
    judge: AgainstReferences,
    culprit: Culprit,
    inputs: RunValues,
    feeds: Feeds,
) -> list[str]:
    """Return the one optimizer without which the value agrees, else a minimal set; empty if there is none.

    Uses the culprit's nodes if they show the mismatch alone, else the whole model.
    """
    candidates = optimized.optimizers()
    groups = [name for name in candidates if _GROUP in name]
    single = [name for name in candidates if _GROUP not in name] + list(RULES) * bool(groups)
    positions = _covered(culprit, original.index)
    region = original.part(positions, types_of(inputs), [culprit.value])
    part = original.index.model.with_proto(region)
    # an optimizer may need the whole model to apply: first the culprit's nodes alone, then everything
    for model, given in ((part, inputs), (_with_output(original.index, culprit.value), feeds)):
        trial = _Trial(optimized, model, given, judge, culprit.value)
        # it shows the mismatch: try without one optimizer, then shrink the set of all
        if not trial.agrees(()):
            alone = next((name for name in single if trial.agrees((name,))), None)
            return [alone] if alone else smallest(candidates, trial.agrees)
    return []


@dataclass(frozen=True)
class _Trial:
    """Runs one model with different optimizers disabled."""

    runtime: Runtime
    model: Model
    inputs: RunValues
    judge: AgainstReferences
    value: str

    def agrees(self, without: Sequence[str]) -> bool:
        """Return whether the value agrees with these optimizers disabled."""
        options = replace(self.runtime.options, disabled=tuple(without))
        with self.runtime.under(options):
            self.runtime.open(self.model)
        names = [declared.name for declared in self.model.graph.input]
        for name in names:
            value = self.inputs.get(name)
            if value is not None:
                self.runtime.put(name, value)
        given = [name for name in names if self.inputs.get(name) is not None]
        found = self.runtime.run(given, [self.value]).values[self.value]
        return self.judge.good(self.value, found)


def _with_output(index: GraphIndex, value: str) -> Model:
    if value in index.outputs:
        return index.model
    model = index.model.copy()
    model.graph.output.add(name=value)
    return model
