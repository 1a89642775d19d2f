"""Convert, compute the outputs with one rounding per edge, and keep in float32 what the goal needs.

For a report it says how much error each node brings to the outputs.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import hypot, isfinite
from pathlib import Path

from onnxsurgeon_lite.debug.conversion.effects import Effect, Effects
from onnxsurgeon_lite.debug.conversion.goal import Goal, require_finite
from onnxsurgeon_lite.debug.conversion.result import Conversion, Introduced, Kept
from onnxsurgeon_lite.debug.conversion.simulation import Simulating
from onnxsurgeon_lite.debug.conversion.spool import Spooled
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.scopes import Provenances
from onnxsurgeon_lite.matching.judge import Values
from onnxsurgeon_lite.model import Model, embedded_size, function_key, load, save
from onnxsurgeon_lite.runtime.feeds import Feeds, as_declared
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.subsets import by_worth, shortest, smallest
from onnxsurgeon_lite.shown import Progress
from onnxsurgeon_lite.surgery import inline
from onnxsurgeon_lite.surgery.precision import EXACT, Plan, PrecisionStep, Rewriting, Site
from onnxsurgeon_lite.surgery.precision.losses import casts, constant_notes, extremes, left_notes
from onnxsurgeon_lite.surgery.precision.plan import NARROW, plan_of
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import RunValue, largest

Run = Callable[[Feeds], dict[str, RunValue]]
_SMALL = 64 << 20  # bytes of a model
_QUESTIONS, _FEW = 60, 3  # simulated runs of a search: for a small model, for others


@dataclass
class Guard:
    """A search for the nodes that must stay in float32.

    Attributes:
        keep: selectors of nodes that stay in any case. report: measure the magnitudes of values, too.
    """

    model: Model
    to: str
    keep: tuple[str, ...]
    io: bool
    goal: Goal
    samples: Sequence[Feeds]
    runtime: Runtime
    progress: Progress
    report: bool = False
    _known: dict[frozenset[str], tuple[float, float]] = field(default_factory=dict)

    def kept(self) -> tuple[set[str], float, float]:
        """Return (the ids of nodes to keep, the error as a multiple of the limit, the measured number)."""
        for values in self.reference:
            require_finite(values)
        # nothing kept may be good enough; else search
        chosen = frozenset[str]()
        if self.simulated(chosen)[0] > 1:
            chosen = self._search()
        return (set(chosen),) + self.simulated(chosen)

    @cached_property
    def reference(self) -> Spooled:
        """The outputs of the original."""
        self.progress("running the original")
        return Spooled(map(self._opened(self.model), self.samples))

    def simulated(self, kept: frozenset[str]) -> tuple[float, float]:
        """Return (error as a multiple of the limit, measured number) with one rounding per edge."""
        if kept not in self._known:
            self.progress(f"{len(self._known)} simulated runs")
            model = self._flat.copy()
            Simulating(self._plan(model, kept), model, self._clamped).run()
            self._known[kept] = self._worst(self._opened(model))
        return self._known[kept]

    def ran(self, path: Path, model: Model) -> tuple[float, float]:
        """Write a model and run it, optimized as usual; return the same."""
        save(model, path)
        index = GraphIndex.of(load(path))
        with self.runtime.under(replace(self.runtime.options, opt="all")):
            run = opened(index, self.runtime)
            return self._worst(lambda feeds: run(as_declared(index, feeds)))

    def _worst(self, run: Callable[[Feeds], Values]) -> tuple[float, float]:
        return self.goal.worst(zip(self.reference, map(run, self.samples), strict=True))

    # the search

    def _search(self) -> frozenset[str]:
        """Return the ids of nodes that bring the error within the limit, as few as the questions find."""
        most = _QUESTIONS if embedded_size(self.model) < _SMALL else _FEW
        # 1. Groups of nodes to keep, the most worth first: `needs` of a rounding are the nodes that must stay for a
        # value to stay unrounded. `left` is the predicted error with the first n groups kept.
        groups, left = by_worth(
            [self.effects.get(unit, Effect()).error for unit in self.units],
            [frozenset(step.node.doc_string for step in self._around(u)) for u in self.units],
        )
        chosen = [frozenset[str]().union(*groups[:count]) for count in range(len(groups) + 1)]
        # 2. The fewest groups that reach the goal: the prediction says where to look, simulated runs decide.
        count = shortest(left, lambda n: self.simulated(chosen[n])[0], most)
        # 3. Leave out single nodes of these, with the questions that are left.
        fewest = smallest(
            sorted(chosen[count]),
            lambda ids: self.simulated(frozenset(ids))[0] <= 1,
            most - len(self._known),
        )
        return frozenset(fewest) or chosen[count]

    @cached_property
    def effects(self) -> dict[Site, Effect]:
        """What each rounding does to the outputs, where that is known to first order."""
        self.progress("measuring what each rounding does")
        plan, clamped = self._everywhere.plan, {name for path, name in self._clamped if not path}
        effects = Effects(self._flat, plan, self.goal, clamped, self.report)
        return effects.measured(self.units, self.samples, self.reference, self.runtime)

    @property
    def units(self) -> list[Site]:
        """The values with a rounding where nothing is kept."""
        return self._everywhere.units

    @cached_property
    def _everywhere(self) -> Simulating:
        model = self._flat.copy()
        simulating = Simulating(self._plan(model, ()), model, self._clamped)
        simulating.run()
        return simulating

    def _opened(self, model: Model) -> Run:
        return opened(GraphIndex.of(model), self.runtime)

    def _around(self, site: Site) -> set[PrecisionStep]:
        """Return the nodes that must stay for a value to stay unrounded: its maker and its readers, through movers."""
        is_made = site.maker is not None and site.constant is None
        found = {site.maker} if is_made and site.maker is not None else set[PrecisionStep]()
        pending = [site]
        while pending:
            # a reader that wants the value narrow must stay; one that only moves numbers passes the question on to its
            # results
            for step, slot in (current := pending.pop()).readers:
                if step in found or not current.read or not step.wants(slot):
                    continue
                found.add(step)
                if step.node.op_type in EXACT or step.bodies:
                    pending += [made for made in step.outputs if made is not None]
                # a body reads the value as its input
                pending += step.entering
            # the value leaves a body: as a result of the node that has the body
            if (holder := self._holders.get(current)) is not None and holder not in found:
                found.add(holder)
                pending += [made for made in holder.outputs if made is not None]
        return found

    @cached_property
    def _holders(self) -> dict[Site, PrecisionStep]:
        """The value that a body returns -> the node of the body."""
        found = {}
        for step in self._everywhere.plan.steps():
            for body in step.bodies:
                # outputs of a graph have names, those of a function are names
                for info in getattr(body.target, "output", ()):
                    if (site := body.find(getattr(info, "name", info))) is not None:
                        found[site] = step
        return found

    # the model without functions, each node marked with the id that it has in the model

    @cached_property
    def _flat(self) -> Model:
        model = self.model.copy()
        index = GraphIndex.of(model)
        for position, node in enumerate(model.graph.node):
            # Inlining moves nodes, so their ids change: the documentation string carries the one that the user knows.
            node.doc_string = f"@{position}"
        for body in index.inner_bodies:
            for position, node in enumerate(body.nodes):
                node.doc_string = body.node_id(position)
        return inline(model, [function_key(function) for function in model.proto.functions])

    def _plan(self, model: Model, kept: Collection[str]) -> Plan:
        """Plan the conversion of a copy of the flat model."""
        stay = self._always.union(kept)
        index = GraphIndex.of(model)
        bodies = [(b.path, list(b.nodes)) for b in index.every_body]
        # the ids that the nodes of this copy have now, of those whose own id stays
        ids = {
            f"{path}/@{position}".lstrip("/")
            for path, nodes in bodies
            for position, node in enumerate(nodes)
            if node.doc_string in stay
        }
        return Plan(model, NARROW[self.to], ids, self.io)

    @cached_property
    def _always(self) -> set[str]:
        """The ids of the nodes that stay in any case."""
        plan = plan_of(self.model.copy(), self.to, self.keep, self.io)
        return {step.id for step in plan.steps() if step.why == "kept"}

    @cached_property
    def _clamped(self) -> frozenset[tuple[str, str]]:
        """The constants with numbers beyond the range."""
        limit = largest(dtypes.numpy_dtype(NARROW[self.to]))
        plan = self._plan(self._flat.copy(), ())
        return frozenset(
            (scope.path, site.name)
            for scope in plan.scopes()
            for site in scope.sites.values()
            if site.constant is not None and extremes(self.model, site.constant)[0] > limit
        )


def introduced(guard: Guard, kept: Collection[str]) -> list[Introduced]:
    """Return what the roundings of each node's results and constants do, to first order, the largest first."""
    by_step = defaultdict[PrecisionStep, list[Site]](list)
    for unit in guard.units:
        # a result counts for its maker, a constant for all that read it
        for step in [unit.maker] if unit.constant is None else [r for r, _ in unit.readers]:
            if step is not None:
                by_step[step].append(unit)
    found = [_introduced(step, units, guard, kept) for step, units in by_step.items()]
    return sorted(found, key=lambda n: (n.error is not None, -(n.error or 0.0)))


def _introduced(
    step: PrecisionStep, units: list[Site], guard: Guard, kept: Collection[str]
) -> Introduced:
    node, effects = step.node, [guard.effects.get(unit, Effect()) for unit in units]
    error = hypot(*(e.error for e in effects))
    high = max((e.largest for e in effects if e.largest is not None), default=None)
    low = min((e.smallest for e in effects if e.smallest is not None), default=None)
    place = str(Provenances([node], {})[0])
    return Introduced(
        node.doc_string,
        node.name,
        node.op_type,
        error if isfinite(error) else None,
        low,
        high,
        node.doc_string in kept,
        place,
    )


def converted(model: Model, to: str, keep: tuple[str, ...], io: bool) -> Conversion:
    """Return the model in half precision."""
    result = model.copy()
    # a plan decides for each node; the notes are about the model before it is rewritten
    plan = plan_of(result, to, keep, io)
    notes = [*constant_notes(plan, result), *left_notes(plan)]
    kept = kept_nodes(plan)
    count = sum(step.kind != "none" for step in plan.steps())
    Rewriting(plan, result).run()
    share = embedded_size(result) / embedded_size(model)
    added = casts(result) - casts(model)
    return Conversion(result, to, count, kept, added, share).with_told(notes)


def kept_nodes(plan: Plan) -> list[Kept]:
    """Return the nodes that stay in float32."""
    found = []
    for scope in plan.scopes():
        places = Provenances([step.node for step in scope.steps], {})
        for number, step in enumerate(scope.steps):
            if step.kind == "wide":
                node, why = step.node, step.why or "between others"
                found.append(Kept(step.id, node.name, node.op_type, why, str(places[number])))
    return found
