"""Inside a culprit: the branch, the call or the iteration where values leave their references, searched as a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from onnxsurgeon_lite.bisection.judging import AgainstReferences
from onnxsurgeon_lite.bisection.result import BisectResult, Culprit
from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.feeds import Feeds
from onnxsurgeon_lite.frames import Frame, at, bodies, iterations_of
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.lifting import known
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.observe import Observer
from onnxsurgeon_lite.references import Entry, ReferenceSet
from onnxsurgeon_lite.running import run
from onnxsurgeon_lite.runtime.session import Value
from onnxsurgeon_lite.tensors import type_of

Search = Callable[[Model, ReferenceSet, Feeds], BisectResult]

_LOOPS = ("Loop", "Scan")


@dataclass(frozen=True)
class Place:
    """One run of a body; of a loop's, one iteration.

    Attributes:
        path: `@12/body`.
        iteration: None where the body is no loop's.
    """

    path: str
    frame: Frame
    iteration: int | None = None

    def local(self, name: str) -> str | None:
        """What a value (`q[3]`, `@5/then_branch/r[3]`) is called in the body; None for another iteration's."""
        if self.iteration is None:
            return name
        value, iterations = iterations_of(name)
        return at(value, iterations[1:]) if iterations[:1] == (self.iteration,) else None

    def outside(self, name: str) -> str:
        """What a value in the body is called from outside."""
        if name in self.frame.captured:
            return name
        value, iterations = (name, ()) if name in self.frame.index else iterations_of(name)
        before = () if self.iteration is None else (self.iteration,)
        return at(f"{self.path}/{value}", (*before, *iterations))

    def seen_from_outside(self, culprit: Culprit) -> Culprit:
        """A culprit in the body, under the names that it has from outside."""
        return replace(
            culprit,
            id=f"{self.path}/{culprit.id}",
            value=self.outside(culprit.value),
            outputs=list(map(self.outside, culprit.outputs)),
            region=[f"{self.path}/{node}" for node in culprit.region],
            inputs=list(map(self.outside, culprit.inputs)),
            values=[replace(value, name=self.outside(value.name)) for value in culprit.values],
            inside=list(map(self.seen_from_outside, culprit.inside)),
        )


@dataclass
class Inside:
    """Looks inside a culprit that has bodies.

    Attributes:
        search: a bisection of a model, on references and feeds.
    """

    observer: Observer
    judge: AgainstReferences
    culprit: Culprit
    given: Mapping[str, Value]
    search: Search

    def look(self) -> tuple[BisectResult | None, str]:
        """(what the search of the body gave that runs wrong first, or why there was none, in a sentence).

        The culprit's `inside` holds what was found, under the names that it has from outside.
        """
        index, position = self.observer.index, int(self.culprit.id[1:])
        found = bodies(index, position)
        if not found:
            return None, ""
        stored = self.judge.references.inside(self.culprit.id, self.culprit.value)
        if not stored:
            return None, f"the references hold nothing inside {self.culprit.id} (record --inner)"
        types = {
            name: index.type_of(name) or type_of(value)
            if isinstance(value, list)
            else type_of(value)
            for name, value in self.given.items()
            if value is not None
        }
        part = self.observer.part([position], types, self.culprit.outputs)
        alone = GraphIndex.of(index.model.with_proto(part))
        try:
            for body in found:
                place, actual = self._first_wrong(alone, body, stored)
                if place is not None:
                    return self._searched(place, actual, stored), ""
        except EditError as error:
            return None, f"not searched inside: {error.message}"
        return None, f"inside {self.culprit.id} nothing that both sides computed mismatches"

    def _first_wrong(
        self, alone: GraphIndex, body: str, stored: Mapping[str, Entry]
    ) -> tuple[Place | None, dict[str, Value]]:
        """The first run of a body that has a value which mismatches, and all that was computed in the body."""
        frame = Frame.of(alone, 0, body)
        references = {f"@0/{name}": e for name, e in stored.items() if name.startswith(f"{body}/")}
        own = [f"@0/{body}/{n}" for n in frame.index.inputs if n not in frame.captured]
        names = list(dict.fromkeys([*own, *known(alone, references).values()]))
        feeds = {name: value for name in alone.inputs if (value := self.given[name]) is not None}
        actual = run(alone, feeds, self.observer.runtime, names)
        known_here = replace(self.judge.references, entries=references)
        judge = replace(self.judge, references=known_here, outputs={})
        wrong = [
            n
            for n, v in actual.items()
            if v is not None and n in references and not judge.good(n, v)
        ]
        if not wrong:
            return None, actual
        loop = alone.nodes[0].op_type in _LOOPS
        first = min(iterations_of(name)[1][0] for name in wrong) if loop else None
        return Place(f"{self.culprit.id}/{body}", frame, first), actual

    def _searched(
        self, place: Place, actual: Mapping[str, Value], stored: Mapping[str, Entry]
    ) -> BisectResult:
        """A search of one run of a body."""
        body = place.path.rpartition("/")[2]
        entries: dict[str, Entry] = {}
        for name, entry in stored.items():
            if name.startswith(f"{body}/"):
                local = place.local(name.removeprefix(f"{body}/"))
                entries |= {local: entry} if local is not None else {}
        model = place.frame.index.model.copy()
        feeds: Feeds = {}
        for declared in model.proto.graph.input:
            name = declared.name
            inner = place.outside(name).replace(self.culprit.id, "@0", 1)
            value = self.given[name] if name in place.frame.captured else actual[inner]
            if value is not None:
                feeds[name] = value
                if not isinstance(value, list):  # which may be empty
                    declared.type.CopyFrom(type_of(value))
        where = replace(self.judge.references, entries=entries, bodies=None, notes=())
        result = self.search(model, where, feeds)
        result.body = model
        result.place = at(place.path, () if place.iteration is None else (place.iteration,))
        self.culprit.inside = list(map(place.seen_from_outside, result.culprits))
        return result
