"""A runtime that stops before the nodes that it lacks, and goes on with what the reference evaluator makes of them.

What it lacks are the operators of a Python file (`ops`), or those that it has no kernels for (the setting
`else=reference`). A node that has one in its bodies or its function is computed there as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from onnx import ModelProto, NodeProto, TypeProto

from onnxsurgeon_lite.errors import NoKernel, RuntimeFailure
from onnxsurgeon_lite.graph import GraphIndex, reached_functions
from onnxsurgeon_lite.model import Model, plain_domain, walk
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.options import REFERENCE, RuntimeOptions
from onnxsurgeon_lite.runtime.protocol import Abilities
from onnxsurgeon_lite.runtime.session import Held, Named, Ran, Runtime, Stream, named_pairs
from onnxsurgeon_lite.surgery.expansion import is_expandable
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, types_of

_PREFIX = "\x02"  # of values between the stages; model names are unlikely to contain it


class Stages(Runtime):
    """A runtime and, for what it lacks, the reference evaluator.

    Attributes:
        lacked: (domain, op_type) of what the evaluator computes.
    """

    def __init__(self, options: RuntimeOptions, child: Child | None = None) -> None:
        """Use a child that is already starting, or start one."""
        super().__init__(options, child)
        evaluator = RuntimeOptions(runtime=REFERENCE, timeout=options.timeout, ops=options.ops)
        self._evaluator = Runtime(evaluator)
        # set while the model has to run in stages
        self._index: GraphIndex | None = None
        # the base class is at work on a stage: its refusals are learned, not answered
        self._running = False
        self.lacked = set[tuple[str, str]]()

    @cached_property
    def abilities(self) -> Abilities:
        return replace(super().abilities, optimized_graph=False)

    @property
    def shelves(self) -> bool:
        return False

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._evaluator.__exit__(*exception)

    def open(
        self, model: Model, optimized: Path | None = None, profile: Path | None = None
    ) -> None:
        self._index = None
        if self.options.ops and not self.lacked:
            # operators of the file are always computed by it
            for name in self._evaluator.abilities.operators:
                domain, _, op_type = name.rpartition("::")
                self.lacked.add((domain, op_type))
        if not any(self._is_lacked(model, node) for node in model.proto.graph.node):
            try:
                super().open(model, optimized, profile)
            except NoKernel as error:
                self._learn(error, model.proto)
                if self._running:
                    # a part of the model, within a stage: the caller starts again
                    raise
            else:
                return
        if optimized or profile:
            raise RuntimeFailure(
                "the runtime does not run this model as a whole",
                "leave out --profile, --look optimized or --ops",
            )
        self._index = GraphIndex.of(model)

    def stream(
        self,
        feeds: Named,
        fetch: Sequence[str],
        keep: Named = (),
    ) -> tuple[dict[str, TypeProto], Stream]:
        index = self._index
        if index is None:
            return super().stream(feeds, fetch, keep)
        while True:
            # again as long as each attempt shows a further operator that the runtime lacks
            known, self._running = len(self.lacked), True
            try:
                found = self._staged(index, named_pairs(feeds), fetch, named_pairs(keep))
                return found.types, iter(found.values.items())
            except NoKernel:
                if len(self.lacked) == known:
                    raise
            finally:
                # opening the parts has reset it
                self._index, self._running = index, False

    def hold(
        self, feeds: Mapping[str, str], fetch: Sequence[str], keep: Mapping[str, str]
    ) -> tuple[dict[str, TypeProto], Iterator[tuple[str, RunValue | Held]]]:
        if self._index is None:
            return super().hold(feeds, fetch, keep)
        return self.stream(feeds, fetch, keep)

    def _learn(self, error: NoKernel, model: ModelProto) -> None:
        """Let the evaluator compute from now on what the runtime has no kernel for."""
        if not self.options.otherwise:
            raise error
        places = {(plain_domain(n.domain), n.op_type) for n in walk.with_inner(model.graph.node)}
        # an operator that the runtime has refused by name
        named = {(error.domain, error.op_type)} & places
        # the runtime may name what it expands an operator to
        expanded = {(domain, op) for domain, op in places if not domain and is_expandable(op)}
        new = (named or expanded) - self.lacked
        if not new:
            raise error
        self.lacked |= new

    def _is_lacked(self, model: Model, node: NodeProto) -> bool:
        # in bodies, and in functions that it calls
        called = walk.nodes(reached_functions(model.proto, [node]))
        every = walk.with_inner([node, *called])
        return any((plain_domain(n.domain), n.op_type) in self.lacked for n in every)

    def _staged(
        self,
        index: GraphIndex,
        feeds: Mapping[str, str],
        fetch: Sequence[str],
        keep: Mapping[str, str],
    ) -> Ran:
        """Run stage by stage: the nodes before one that is lacked, then that one."""
        observer = Observer(index, self, prefix=_PREFIX)
        # the feeds under the observer's names
        self.alias({observer.stored(name): stored for name, stored in feeds.items()})
        observer.kept.update((name, index.inputs[name].type) for name in feeds)
        wanted = list(dict.fromkeys(chain(fetch, keep)))
        # nodes to run; those that are done are left out
        left = index.ancestors(wanted, stop=observer.kept)
        try:
            for position in index.in_order(left):
                # first all nodes before it, then this one
                if self._is_lacked(index.model, index.nodes[position]):
                    needed = [n for n in index.reads[position] if n not in index.initializers]
                    given = self._advance(observer, left, needed, wanted)
                    self._evaluate(observer, position, given)
                    left.discard(position)
            # what is left after the last one
            values = self._advance(observer, left, wanted, wanted)
            self.alias({stored: observer.stored(name) for name, stored in keep.items()})
            types = {name: observer.kept[name] for name in wanted if name in observer.kept}
            return Ran({name: values[name] for name in fetch}, types)
        finally:
            # an interrupted process does not listen
            if not self._child.interrupted:
                observer.forget()

    def _advance(
        self, observer: Observer, left: set[int], names: Sequence[str], wanted: Sequence[str]
    ) -> dict[str, RunValue]:
        """Compute values; keep what later nodes read of what that takes."""
        index = observer.index
        done = index.ancestors(names, stop=observer.kept)
        left -= done
        # what nodes after these, and the caller, still read
        later = index.read_by(left).union(wanted)
        made = walk.outputs(index.nodes[position] for position in sorted(done))
        return observer.fetch(names, [name for name in made if name in later])

    def _evaluate(self, observer: Observer, position: int, given: RunValues) -> None:
        """Compute a node with the evaluator, and go on with what it gives."""
        index, evaluator = observer.index, self._evaluator
        # a model of this node alone
        types = types_of(given)
        outputs = list(index.outputs_of([position]))
        evaluator.open(index.model.with_proto(observer.part([position], types, outputs)))
        for name, value in given.items():
            if value is not None:
                evaluator.put(name, value)
        for name, value in evaluator.run(list(types), outputs).values.items():
            if value is not None:
                observer.put(name, value)
        evaluator.forget(types)
