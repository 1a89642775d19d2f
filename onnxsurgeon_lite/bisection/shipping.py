"""When optimisation makes the difference: where in the optimised graph, which original nodes, which optimiser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnxsurgeon_lite.bisection.judging import AgainstReferences
from onnxsurgeon_lite.bisection.result import Culprit, Finding
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.feeds import Feeds
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.observe import Observer
from onnxsurgeon_lite.runtime.session import Runtime, Value
from onnxsurgeon_lite.search import smallest
from onnxsurgeon_lite.tensors import type_of


def compare_with_written(
    culprit: Culprit, original: Observer, judge: AgainstReferences, inputs: Mapping[str, Value]
) -> None:
    """Run, as written, the original nodes that a region of the optimised graph stands for, on its own inputs."""
    index = original.index
    covered = sorted(index.ancestors([culprit.value], stop=culprit.inputs))
    culprit.covers = [f"@{position}" for position in covered]
    ends = [name for name in culprit.inputs if name in index]
    if not covered or len(ends) < len(culprit.inputs):
        return
    try:
        written = original.alone(covered, {n: inputs[n] for n in ends}, [culprit.value])
    except RuntimeFailure:
        return
    if judge.good(culprit.value, written[culprit.value]):
        which = f"{culprit.covers[0]} to {culprit.covers[-1]}" if covered[1:] else culprit.covers[0]
        because = f"on the same inputs the original nodes ({which}) as written give the reference"
        culprit.findings.insert(0, Finding("optimiser", because))


def blame(
    original: Observer,
    shipped: Runtime,
    judge: AgainstReferences,
    culprit: Culprit,
    inputs: Mapping[str, Value],
    feeds: Feeds,
) -> list[str]:
    """The smallest set of optimisers found without which the value agrees; nothing where no set does.

    Tried on the culprit's own nodes where they show the mismatch by themselves, else on the whole model.
    """
    candidates = shipped.optimisers()
    positions = [int(place[1:]) for place in culprit.covers]
    types = {name: type_of(value) for name, value in inputs.items() if value is not None}
    part = original.index.model.with_proto(original.part(positions, types, [culprit.value]))
    for model, given in ((part, inputs), (_with_output(original.index, culprit.value), feeds)):
        trial = _Trial(shipped, model, given, judge, culprit.value)
        if not trial.agrees(()):
            return smallest(candidates, trial.agrees)
    return []


@dataclass(frozen=True)
class _Trial:
    """One model run again and again with other optimisers switched off."""

    runtime: Runtime
    model: Model
    inputs: Mapping[str, Value]
    judge: AgainstReferences
    value: str

    def agrees(self, without: Sequence[str]) -> bool:
        """Whether the value agrees when these optimisers do not run."""
        options = self.runtime.options
        self.runtime.options = replace(options, disabled=tuple(without))
        try:
            self.runtime.open(self.model)
        finally:
            self.runtime.options = options
        names = [declared.name for declared in self.model.proto.graph.input]
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
    model.proto.graph.output.add(name=value)
    return model
