"""The search over a model's values, against stored references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnxsurgeon_lite.bisection.result import BisectResult, Culprit, ValueReport
from onnxsurgeon_lite.comparison import Comparison, Tolerance, agrees, compare
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.feeds import Feeds, shape_text
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.inspect import attribute_texts
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.observe import Observer
from onnxsurgeon_lite.references import ReferenceSet
from onnxsurgeon_lite.references.sets import Stored
from onnxsurgeon_lite.runtime.session import Runtime, Value
from onnxsurgeon_lite.search import Found, first_bad, spread
from onnxsurgeon_lite.tensors import Array

Progress = Callable[[str], None]
_WIDTH = 16


def bisect(
    model: Model,
    references: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    tolerance: Tolerance | None = None,
    progress: Progress = lambda _: None,
) -> BisectResult:
    """Find the node where a model leaves its references, running it as written on one sample.

    Args:
        tolerance: for every value; None takes each dtype's default.
        progress: told in words how far the search is.

    Raises:
        ReferenceSetError: the references do not fit the model.
        FeedsError: see `feeds.check_feeds`.
        RuntimeFailure: the runtime cannot run the model.
    """
    search = _Search.of(model, references, runtime, tolerance, progress)
    search.observer.feed(feeds)
    return search.run()


@dataclass
class _Search:
    """One bisection under way. The items of the search are values, numbered in a topological order."""

    index: GraphIndex
    references: ReferenceSet
    observer: Observer
    tolerance: Tolerance | None
    progress: Progress
    values: list[str] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    comparable: set[int] = field(default_factory=set)
    constant: set[str] = field(default_factory=set)
    targets: set[int] = field(default_factory=set)
    result: BisectResult = field(default_factory=lambda: BisectResult("mismatch"))

    @classmethod
    def of(
        cls,
        model: Model,
        references: ReferenceSet,
        runtime: Runtime,
        tolerance: Tolerance | None,
        progress: Progress,
    ) -> "_Search":
        index = GraphIndex.of(model)
        search = cls(index, references, Observer(index, runtime), tolerance, progress)
        search.values = [
            name for position in index.order for name in index.nodes[position].output if name
        ]
        search.number = {name: i for i, name in enumerate(search.values)}
        search.comparable = {i for i, name in enumerate(search.values) if name in references}
        search.constant = _constants(index)
        if not search.comparable:
            raise ReferenceSetError(
                f"{references.place!r} has no value that the model computes",
                "was it recorded from this model? record again: onnxdbg record",
            )
        search.result.notes += references.notes
        return search

    def run(self) -> BisectResult:
        """Ask about the targets and, in the same session, about a first wave inside; then search."""
        targets = self._targets()
        self.targets.update(targets)
        self.progress(f"comparing {len(targets)} of {len(self.values)} values")
        wave = spread(range(len(self.values)), self.parents, self.comparable - {*targets}, _WIDTH)
        answers = self.probe(sorted({*wave, *targets}))
        bad_targets = [i for i in targets if not answers.get(i, True)]
        if not bad_targets:
            self.result.verdict = "agrees"
            return self.result
        bads = [i for i, good in answers.items() if not good]
        upstream = self._ancestors(bad_targets) | {*bad_targets}
        earliest = min(i for i in bads if i in upstream)
        good = [i for i, is_good in answers.items() if is_good]
        found = first_bad(earliest, self.parents, self.comparable, self.probe, good, _WIDTH)
        self._name(found, {*bads, *found.bads})
        return self.result

    def parents(self, item: int) -> list[int]:
        """The values that a value is computed from; constants are part of their consumers."""
        reads = self.index.reads[self.index.producer[self.values[item]]]
        return [self.number[name] for name in reads if name in self.number]

    def probe(self, items: Sequence[int]) -> dict[int, bool]:
        """Compute values from what is kept, compare each with its reference."""
        names = [self.values[i] for i in items]
        actual = self.observer.fetch(names, keep=names)
        self.result.compared += len(names)
        self.result.sessions = self.observer.sessions
        self.progress(f"{self.result.compared} values compared in {self.result.sessions} sessions")
        answers = {
            i: self._judge(i, actual.pop(name)) for i, name in zip(items, names, strict=True)
        }
        self.observer.forget(self.values[i] for i, good in answers.items() if not good)
        return answers

    def _judge(self, item: int, actual: Value) -> bool:
        name = self.values[item]
        pairs = _pairs(actual, self.references.read(name))
        if item not in self.targets:
            return all(agrees(a, r, self.tolerance) for a, r in pairs)
        comparison = self._compared(pairs)
        if comparison is not None:
            self.result.outputs[name] = comparison
        return comparison is None or comparison.match

    def _compared(self, pairs: Sequence[tuple[Array, Array]]) -> Comparison | None:
        """In full; of a sequence's elements a mismatching one, if there is one."""
        comparisons = (compare(a, r, self.tolerance) for a, r in pairs)
        return min(comparisons, key=lambda c: c.match, default=None)

    def _targets(self) -> list[int]:
        """The outputs that have a reference; where none has, the last values that do."""
        outputs = [self.number[name] for name in self.index.outputs if name in self.number]
        targets = [i for i in outputs if i in self.comparable]
        without = [self.values[i] for i in outputs if i not in self.comparable]
        if without and targets:
            shown = ", ".join(map(repr, without[:5]))
            self.result.notes.append(f"no reference for output {shown}: not compared")
        if not targets:
            inner = {parent for i in self.comparable for parent in self._ancestors([i])}
            targets = sorted(self.comparable - inner)
            shown = ", ".join(repr(self.values[i]) for i in targets[:5])
            self.result.notes.append(f"no output has a reference: judged by {shown}")
        for i in targets:
            self._require_fitting(self.values[i])
        return targets

    def _require_fitting(self, name: str) -> None:
        """Refuse a reference whose shape the model's declaration rules out."""
        stored = self.references.read(name)
        kind = self.index.types.get(name)
        if isinstance(stored, list) or kind is None or not kind.tensor_type.HasField("shape"):
            return
        dims = [d.dim_value for d in kind.tensor_type.shape.dim]
        fits = len(dims) == stored.ndim and all(
            not d or d == size for d, size in zip(dims, stored.shape, strict=True)
        )
        if not fits:
            raise ReferenceSetError(
                f"reference {name!r} has shape {list(stored.shape)}, the model declares {shape_text(kind)}",
                f"was {self.references.place} recorded from another model? record again: onnxdbg record",
            )

    def _ancestors(self, items: Sequence[int]) -> set[int]:
        nodes = self.index.ancestors(self.values[i] for i in items)
        names = (name for position in nodes for name in self.index.nodes[position].output)
        return {self.number[name] for name in names if name} - {*items}

    def _name(self, found: Found, bads: set[int]) -> None:
        """Turn what the search found into a culprit, compared value by value."""
        value = self.values[found.bad]
        position = self.index.producer[value]
        names = [self.values[i] for i in found.region]
        unknown = [name for name in names if name not in self.constant]
        region = sorted({position, *(self.index.producer[name] for name in names)})
        node = self.index.nodes[position]
        culprit = Culprit(
            id=f"@{position}",
            name=node.name,
            op_type=node.op_type,
            value=value,
            outputs=[name for name in node.output if name],
            region=[f"@{p}" for p in region] if unknown else [f"@{position}"],
            inputs=self._entering(region),
            attributes=attribute_texts(node),
        )
        self._place(culprit, position)
        self._report(culprit)
        below = self.index.descendants(position)
        self.result.elsewhere = [
            self.values[i] for i in sorted(bads) if self.index.producer[self.values[i]] not in below
        ]
        self.result.culprits = [culprit]

    def _place(self, culprit: Culprit, position: int) -> None:
        """Say where the node comes from: what the model says, else what its reference does."""
        origin, stored = self.index.origins[position], self.references.entries.get(culprit.value)
        place = (origin.scope, origin.class_name, origin.source)
        if stored is not None and stored.class_name and not origin.class_name:
            place = (stored.scope, stored.class_name.rpartition(".")[2], stored.source)
        culprit.scope, culprit.class_name, culprit.source = place

    def _entering(self, region: Sequence[int]) -> list[str]:
        made = {name for position in region for name in self.index.nodes[position].output}
        reads = (name for position in region for name in self.index.reads[position])
        return list(
            dict.fromkeys(n for n in reads if n not in made and n not in self.index.initializers)
        )

    def _report(self, culprit: Culprit) -> None:
        wanted = [*culprit.inputs, *culprit.outputs]
        actual = self.observer.fetch(wanted, keep=culprit.inputs)
        for name in wanted:
            stored = self.references.read(name) if name in self.references else None
            self.result.tensors[name] = stored, actual.get(name)
            report = ValueReport(name, "output" if name in culprit.outputs else "input")
            pairs = _pairs(actual.get(name), stored) if stored is not None else []
            report.comparison = self._compared(pairs)
            culprit.values.append(report)


def _constants(index: GraphIndex) -> set[str]:
    """The values that depend on no graph input."""
    depends = {name for name in index.inputs if name not in index.initializers}
    for position in index.order:
        if not depends.isdisjoint(index.reads[position]):
            depends.update(index.nodes[position].output)
    return index.producer.keys() - depends


def _pairs(actual: Value, reference: Stored) -> list[tuple[Array, Array]]:
    """Tensors to compare; sequences element by element, one of another length as a mismatch of shapes."""
    if isinstance(actual, np.ndarray) and isinstance(reference, np.ndarray):
        return [(actual, reference)]
    if isinstance(actual, list) and isinstance(reference, list) and len(actual) == len(reference):
        return list(zip(actual, reference, strict=True))
    return [(np.empty((0, 1)), np.empty((0, 2)))]
