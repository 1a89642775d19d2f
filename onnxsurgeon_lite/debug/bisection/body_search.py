"""Search the body of a culprit, in the branch, call or iteration that mismatches first, as a model of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from onnxsurgeon_lite.debug.judge import AgainstReferences, Finds
from onnxsurgeon_lite.debug.result import BisectResult, Cause, Culprit
from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph.bodies import InnerGraph, at, bodies, iterations_of
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import integer
from onnxsurgeon_lite.passes.in_bodies import outside
from onnxsurgeon_lite.passes.recipe_writing import as_command, as_step
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.surgery.exposing import exposable, known
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, Shape, type_of
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet

Sample = tuple[ReferenceSet, Feeds]
Search = Callable[[Model, ReferenceSet, Feeds, Sequence[Sample]], BisectResult]
Find = Callable[[Model, Feeds], BisectResult]

_LOOPS = ("Loop", "Scan")
_ITERATIONS = 16  # others on which a cause must hold


@dataclass(frozen=True)
class BodyRun:
    """One run of a body; for a loop, one iteration.

    Attributes:
        path: the body's path, such as `@12/body`.
        iteration: None when the body is not a loop's.
    """

    path: str
    graph: InnerGraph
    iteration: int | None

    @property
    def body(self) -> str:
        """The last part of the path, such as `body`."""
        return self.path.rpartition("/")[2]

    @property
    def iterations(self) -> Shape:
        """The iteration as an index of names; empty for other bodies."""
        return () if self.iteration is None else (self.iteration,)

    def local(self, name: str) -> str | None:
        """Return the name in the body of a value (`q[3]`, `@5/then_branch/r[3]`); None for another iteration."""
        if self.iteration is None:
            return name
        # in iteration 3: `q[3]` -> `q`, `q[3][1]` (a loop within) -> `q[1]`, `q[4]` -> None
        value, iterations = iterations_of(name)
        return at(value, iterations[1:]) if iterations[:1] == (self.iteration,) else None

    def outside(self, name: str) -> str:
        """Return the outside name of a value in the body."""
        if name in self.graph.captured:
            return name
        value, iterations = (name, ()) if name in self.graph.index else iterations_of(name)
        return at(f"{self.path}/{value}", self.iterations + iterations)

    def seen_from_outside(self, culprit: Culprit) -> Culprit:
        """Return a culprit of the body under its outside names."""
        return replace(
            culprit,
            id=f"{self.path}/{culprit.id}",
            value=self.outside(culprit.value),
            outputs=list(map(self.outside, culprit.outputs)),
            region=[f"{self.path}/{node}" for node in culprit.region],
            nodes={f"{self.path}/{node}": title for node, title in culprit.nodes.items()},
            inputs=list(map(self.outside, culprit.inputs)),
            seen=list(map(self.outside, culprit.seen)),
            values=[replace(value, name=self.outside(value.name)) for value in culprit.values],
            inside=list(map(self.seen_from_outside, culprit.inside)),
            causes=list(map(self._cause, culprit.causes)),
        )

    def _cause(self, cause: Cause) -> Cause:
        """Return a cause with the edit that repairs it from outside."""
        index = self.graph.index
        steps = tuple(outside(step, self.path, index, self.graph.captured) for step in cause.steps)
        command = as_command(steps, index.model.path)
        return replace(cause, steps=steps, edits=list(map(as_step, steps)), repair=command)


@dataclass
class BodySearch:
    """Search in the bodies of a culprit, which runs alone on its inputs.

    Culprits in a body become the culprit's `inside`, under their outside names.

    Attributes:
        given: the inputs of the culprit, by name; constants that it reads are added.
    """

    observer: Observer
    culprit: Culprit
    given: RunValues

    def __post_init__(self) -> None:
        index = self.observer.index
        # ids are `@position`
        read = index.reads[self.culprit.position]
        constants = [n for n in read if n in index.producer and n not in self.given]
        self.given = {**self.given, **self.observer.fetch(constants)}

    @cached_property
    def bodies(self) -> list[str]:
        return bodies(self.observer.index, self.culprit.position)

    def bisect(self, judge: AgainstReferences, search: Search) -> tuple[BisectResult | None, str]:
        """Bisect the body that first mismatches its references; return (result, reason why there is none).

        Args:
            search: bisects a model on references and feeds; other iterations are further samples.
        """
        if not self.bodies:
            return None, ""
        culprit = self.culprit
        stored = judge.references.inside(culprit.id, culprit.value)
        if not stored:
            why = f"the references have no values inside {culprit.id}; to search there: onnxdbg record --inner"
            return None, why
        # The node runs alone, as node 0 of a model of its own: `body/q[3]` of the references is its `@0/body/q[3]`.
        references = {f"@0/{name}": entry for name, entry in stored.items()}
        nothing_more = replace(judge.references, bodies=None, notes=(), prefetch=lambda _: None)
        known_here = replace(nothing_more, entries=references)
        judge = replace(judge, references=known_here, outputs={})

        def wrong(name: str, value: RunValue) -> bool:
            return name in references and not judge.good(name, value)

        # the references of one run of the body, under the body's own names
        def at_run(place: BodyRun) -> ReferenceSet:
            entries = dict[str, Entry]()
            for name, entry in stored.items():
                if name.startswith(f"{place.body}/"):
                    local = place.local(name.removeprefix(f"{place.body}/"))
                    entries |= {local: entry} if local is not None else {}
            return replace(nothing_more, entries=entries)

        # bisects one run; the other iterations are samples on which its causes must hold
        def search_at(
            place: BodyRun, model: Model, feeds: Feeds, actual: RunValues
        ) -> tuple[BisectResult, str]:
            others, count = self._other_iterations(place, actual, at_run)
            result = search(model, at_run(place), feeds, others)
            explained = any(culprit.causes for culprit in result.culprits)
            tried = f"causes in {place.path} were tried in {1 + len(others)} of {count} iterations"
            return result, tried if explained and len(others) + 1 < count else ""

        names = known(self._alone, references).values()
        nothing = "no value computed by both sides mismatches"
        return self._searched(names, wrong, search_at, nothing)

    def find(self, judge: Finds, search: Find) -> tuple[BisectResult | None, str]:
        """Run `search` on the body that first produces the target value; return as `bisect` does."""
        if not self.bodies:
            return None, ""

        def wrong(name: str, value: RunValue) -> bool:
            return not judge.good(name, value)

        names, obstacles = exposable(self._alone)
        if not names:
            return None, f"not searched inside: {'; '.join(obstacles[:1]) or 'it has no nodes'}"
        nothing = "no node produces it from inputs without it"
        return self._searched(
            names, wrong, lambda _, model, feeds, __: (search(model, feeds), ""), nothing
        )

    def _searched(
        self,
        names: Iterable[str],
        wrong: Callable[[str, RunValue], bool],
        search: Callable[[BodyRun, Model, Feeds, RunValues], tuple[BisectResult, str]],
        otherwise: str,
    ) -> tuple[BisectResult | None, str]:
        """Search the first body run with a wrong value; return (result, what is to be said or why there is none)."""
        names = list(names)
        try:
            for body in self.bodies:
                # the branch of an If that did not run has no values, so it is not wrong
                place, actual = self._first_wrong(body, names, wrong)
                if place is not None:
                    model, feeds = self._opened(place, actual)
                    result, said = search(place, model, feeds, actual)
                    result.body = model
                    result.place = at(place.path, place.iterations)
                    self.culprit.inside = list(map(place.seen_from_outside, result.culprits))
                    return result, said
        except SurgeonError as error:
            return None, f"not searched inside: {error.message}"
        return None, f"inside {self.culprit.id}: {otherwise}"

    @cached_property
    def _alone(self) -> GraphIndex:
        """The node as a model, where its id is `@0`."""
        index, position = self.observer.index, self.culprit.position
        types = {
            name: index.type_of(name) or type_of(value)
            if isinstance(value, list)
            else type_of(value)
            for name, value in self.given.items()
            if value is not None
        }
        part = self.observer.part([position], types, self.culprit.outputs)
        return GraphIndex.of(index.model.with_proto(part))

    def _first_wrong(
        self, body: str, names: Iterable[str], wrong: Callable[[str, RunValue], bool]
    ) -> tuple[BodyRun | None, dict[str, RunValue]]:
        """Return the first run of a body with a wrong value, and all computed values of the body."""
        graph = InnerGraph.of(self._alone, 0, body)
        # the body's inputs are fetched, too: they become the feeds of its own search
        own = [f"@0/{body}/{n}" for n in graph.index.inputs if n not in graph.captured]
        inner = [name for name in names if name.startswith(f"@0/{body}/")]
        given = ((name, self.given[name]) for name in self._alone.inputs)
        feeds: Feeds = {name: value for name, value in given if value is not None}
        fetched = list(dict.fromkeys(chain(own, inner)))
        if not fetched:
            return None, {}
        actual = run(self._alone, feeds, self.observer.runtime, fetched)
        bad = [name for name, value in actual.items() if value is not None and wrong(name, value)]
        if not bad:
            return None, actual
        loop = self._alone.nodes[0].op_type in _LOOPS
        first = min(iterations_of(name)[1][0] for name in bad) if loop else None
        return BodyRun(f"{self.culprit.id}/{body}", graph, first), actual

    def _carried(self, place: BodyRun) -> dict[str, str]:
        """Return what a body gets from the iteration before: input -> output."""
        index, node = place.graph.index, self._alone.nodes[0]
        own = [name for name in index.inputs if name not in place.graph.captured]
        scanned = integer(node, "num_scan_inputs")
        first = 2 if node.op_type == "Loop" else 0  # the iteration's number, and the condition
        states = own[first : len(own) - scanned]
        # Loop: inputs (number, condition, states), outputs (condition, states, scans). Scan: inputs (states, scanned),
        # outputs (states, scans).
        return dict(zip(states, list(index.outputs)[first // 2 :], strict=False))

    def _other_iterations(
        self,
        place: BodyRun,
        actual: RunValues,
        at_run: Callable[[BodyRun], ReferenceSet],
    ) -> tuple[list[Sample], int]:
        """Return other iterations whose inputs the references have, as samples, and the number of all."""
        if place.iteration is None:
            return [], 1
        inside = [name for name in actual if name.startswith(f"@0/{place.body}/")]
        # each iteration with its inputs as the references have them: from this iteration, or as the last one's outputs
        numbers = sorted({iterations_of(name)[1][0] for name in inside})
        carried, found = self._carried(place), list[Sample]()
        for number in numbers:
            other, before = (replace(place, iteration=n) for n in (number, number - 1))
            known, made = at_run(other), at_run(before)
            feeds = self._opened(other, actual)[1]
            for name, output in carried.items() if number else ():
                held, stored = (known, name) if name in known else (made, output)
                value = held.read(stored) if stored in held else None
                if value is None:
                    break  # what enters is as wrong as what the iteration before made
                feeds[name] = value
            else:
                if number != place.iteration and known.entries:
                    found.append((known, feeds))
        # evenly spread over all iterations
        return found[:: max(1, len(found) // _ITERATIONS)][:_ITERATIONS], len(numbers)

    def _opened(self, place: BodyRun, actual: RunValues) -> tuple[Model, Feeds]:
        """Return one run of a body as a model, and its feeds."""
        model = place.graph.index.model.copy()
        feeds: Feeds = {}
        for declared in model.graph.input:
            name = declared.name
            # outside, the node is `@12`; alone it is `@0`
            inner = place.outside(name).replace(self.culprit.id, "@0", 1)
            value = self.given[name] if name in place.graph.captured else actual[inner]
            if value is not None:
                feeds[name] = value
                if not isinstance(value, list):  # a sequence may be empty
                    declared.type.CopyFrom(type_of(value))
        return model, feeds
