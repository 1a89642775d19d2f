"""Convert, compute the outputs with one rounding per edge, and keep in float32 what the goal needs."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from onnxsurgeon_lite.debug.conversion.goal import Goal, require_finite
from onnxsurgeon_lite.debug.conversion.search import Asked, pruned, spoilers
from onnxsurgeon_lite.debug.conversion.simulation import FLAGS, Simulating, Switched
from onnxsurgeon_lite.graph.index import GraphIndex, function_key
from onnxsurgeon_lite.matching.metric import Values
from onnxsurgeon_lite.model import Model, load, save
from onnxsurgeon_lite.runtime.feeds import Feeds, as_declared
from onnxsurgeon_lite.runtime.run import opened
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.inlining import inline
from onnxsurgeon_lite.surgery.precision import EXACT, Plan, Site, Step
from onnxsurgeon_lite.surgery.precision.losses import extremes
from onnxsurgeon_lite.surgery.precision.request import NARROW, plan_of
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import RunValue
from onnxsurgeon_lite.tensors.narrow import largest

Progress = Callable[[str], None]
Run = Callable[[Feeds], dict[str, RunValue]]
_TRIES = 3


@dataclass
class Guard:
    """A search for the nodes that must stay in float32.

    Attributes:
        keep: selectors of nodes that stay in any case.
        probes: how many simulated runs were made.
    """

    model: Model
    to: str
    keep: tuple[str, ...]
    io: bool
    goal: Goal
    samples: Sequence[Feeds]
    runtime: Runtime
    progress: Progress = lambda _: None
    probes: int = 0
    _known: dict[frozenset[int], float] = field(default_factory=dict)
    _session: Run | None = None

    def kept(self) -> tuple[set[str], float, float]:
        """Return (the ids of nodes to keep, the error as a multiple of the limit, the measured number)."""
        require_all_finite(self.reference)
        chosen: set[str] = set()
        found = self.simulated(chosen)
        share = 1.0
        for _ in range(_TRIES):
            if found[0] <= 1:
                break
            chosen = self._search(share)
            found = self.simulated(chosen)
            share *= 0.7
        return chosen, *found

    @cached_property
    def reference(self) -> list[Values]:
        """The outputs of the original."""
        self.progress("running the original")
        run = self._opened(self.model)
        return [run(feeds) for feeds in self.samples]

    def simulated(self, kept: Collection[str]) -> tuple[float, float]:
        """Return (error as a multiple of the limit, measured number) with one rounding per edge."""
        model = self._flat.copy()
        plan = self._plan(model, kept)
        Simulating(plan, model, self._clamped).run()
        return self.measured(model)

    def ran(self, path: Path, model: Model) -> tuple[float, float]:
        """Write a model and run it, optimized as usual; return the same."""
        save(model, path)
        usual = replace(self.runtime.options, opt="all")
        with Runtime(usual) as runtime:
            index = GraphIndex.of(load(path))
            run = opened(index, runtime)
            return self._worst(lambda feeds: run(as_declared(index, feeds)))

    def measured(self, model: Model) -> tuple[float, float]:
        """Run a model on all samples; return the worst error."""
        return self._worst(self._opened(model))

    def _worst(self, run: Callable[[Feeds], Values]) -> tuple[float, float]:
        self.probes += len(self.samples)
        pairs = zip(self.samples, self.reference, strict=True)
        return self.goal.worst((expected, run(feeds)) for feeds, expected in pairs)

    # the search

    def _search(self, share: float) -> set[str]:
        """Return the ids of nodes whose staying in float32 brings the error below a share of the limit."""
        self.progress("looking for the nodes to keep")
        asked = Asked(lambda on: self.excess(on) / share)
        groups = spoilers(len(self.units), asked, self._overflowing())
        sets = pruned(
            [self._ids(group) for group in groups],
            lambda some: self._suffice(set().union(*some), share),
        )
        ids = sorted(set[str]().union(*sets))
        return set(pruned(ids, lambda some: self._suffice(some, share)))

    def _ids(self, units: Iterable[int]) -> set[str]:
        """Return the nodes that must stay for these values to stay unrounded."""
        sites = (self.units[number] for number in units)
        return {step.node.doc_string for site in sites for step in self._around(site)}

    @property
    def units(self) -> list[Site]:
        """The values with a rounding, by number."""
        return self._switched.units

    def _suffice(self, ids: Collection[str], share: float) -> bool:
        """Return whether it is enough to keep these nodes: a value stays unrounded between kept nodes alone."""
        rounded = (number for number in range(len(self.units)) if not self._ids([number]) <= {*ids})
        return self.excess(frozenset(rounded)) / share <= 1

    def excess(self, rounded: frozenset[int]) -> float:
        """Return the error as a multiple of the limit, with only these roundings."""
        if rounded not in self._known:
            self.progress(f"{self.probes} simulated runs")
            flags = np.zeros(len(self.units), np.bool_)
            flags[list(rounded)] = True
            if self._session is None:
                self._session = self._opened(self._switched.model)
            run = self._session
            self._known[rounded] = self._worst(lambda feeds: run({**feeds, FLAGS: flags}))[0]
        return self._known[rounded]

    @cached_property
    def _switched(self) -> Switched:
        model = self._flat.copy()
        switched = Switched(self._plan(model, ()), model, self._clamped)
        switched.run()
        return switched

    def _opened(self, model: Model) -> Run:
        self._session = None
        return opened(GraphIndex.of(model), self.runtime)

    def _around(self, site: Site) -> set[Step]:
        """Return the nodes that must stay for a value to stay unrounded: its maker and its readers, through movers."""
        found = set[Step]() if site.maker is None else {site.maker}
        pending = [site]
        while pending:
            for step, slot in (current := pending.pop()).readers:
                if step in found or not current.read or not step.wants(slot):
                    continue
                found.add(step)
                if step.node.op_type in EXACT or step.bodies:
                    pending += [made for made in step.outputs if made is not None]
                for body in step.bodies:
                    pending += [
                        s for s in body.sites.values() if s.maker is None and s.constant is None
                    ]
            if (holder := self._holders.get(current)) is not None and holder not in found:
                found.add(holder)
                pending += [made for made in holder.outputs if made is not None]
        return found

    @cached_property
    def _holders(self) -> dict[Site, Step]:
        """The value that a body returns -> the node of the body."""
        found = {}
        for step in self._switched.plan.steps():
            for body in step.bodies:
                for info in getattr(body.target, "output", ()):
                    if (site := body.find(getattr(info, "name", info))) is not None:
                        found[site] = step
        return found

    # magnitudes

    def _overflowing(self) -> set[int]:
        limit = largest(dtypes.numpy_dtype(NARROW[self.to]))
        units = self.units
        return {n for n, site in enumerate(units) if self.magnitudes.get(site.name, 0.0) > limit}

    @cached_property
    def magnitudes(self) -> dict[str, float]:
        """The largest magnitude of each value of the main graph with a rounding."""
        self.progress("measuring magnitudes")
        model = self._flat.copy()
        sites = [s for s in self.units if s.scope is self._switched.plan.main and s.maker]
        graph = model.proto.graph
        for number, site in enumerate(sites):
            name = f"{FLAGS}\x01{number}"
            graph.node.append(helper.make_node("Abs", [site.name], [f"{name}a"]))
            graph.node.append(helper.make_node("ReduceMax", [f"{name}a"], [f"{name}h"], keepdims=0))
            graph.output.append(helper.make_tensor_value_info(f"{name}h", TensorProto.FLOAT, None))
        run = self._opened(model)
        found = defaultdict[str, float](float)
        for feeds in self.samples:
            values = run(feeds)
            for number, site in enumerate(sites):
                high = float(np.asarray(values[f"{FLAGS}\x01{number}h"]))
                found[site.name] = max(high, found[site.name])
        return found

    # the model without functions, each node marked with the id that it has in the model

    @cached_property
    def _flat(self) -> Model:
        model = self.model.copy()
        index = GraphIndex.of(model)
        for position, node in enumerate(model.proto.graph.node):
            node.doc_string = f"@{position}"
        for body in index.inner_bodies:
            for position, node in enumerate(body.nodes):
                node.doc_string = body.node_id(position)
        return inline(model, [function_key(function) for function in model.proto.functions])

    def _plan(self, model: Model, kept: Collection[str]) -> Plan:
        """Plan the conversion of a copy of the flat model."""
        always = {step.id for step in self._own.steps() if step.why == "kept"}
        stay = always.union(kept)
        index = GraphIndex.of(model)
        bodies = [("", index.nodes), *((b.path, list(b.nodes)) for b in index.inner_bodies)]
        ids = {
            f"{path}/@{position}" if path else f"@{position}"
            for path, nodes in bodies
            for position, node in enumerate(nodes)
            if node.doc_string in stay
        }
        return Plan(model, NARROW[self.to], ids, self.io)

    @cached_property
    def _own(self) -> Plan:
        return plan_of(self.model.copy(), self.to, self.keep, self.io)

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


def require_all_finite(reference: Sequence[Values]) -> None:
    """Raise `FeedsError` if the original gives what is not finite."""
    for values in reference:
        require_finite(values)
