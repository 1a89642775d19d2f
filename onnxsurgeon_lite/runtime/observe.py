"""Observe values of the unoptimized model, running only the nodes that they need."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto

from onnxsurgeon_lite.errors import PartialAnswer, RuntimeFailure, RuntimeLost
from onnxsurgeon_lite.graph import GraphIndex, reached_functions, sizes_in
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Held, Runtime, Stream
from onnxsurgeon_lite.shown import Progress, quiet
from onnxsurgeon_lite.surgery import clear_bodies
from onnxsurgeon_lite.tensors.dtypes import RunValue, RunValues, arrays_in, type_of, types_of

BUDGET = 64 << 20  # bytes
_PART, _LARGE_PART = 64, 512  # values of a sweep that are computed in one part; with a budget
_FIRST, _GROWTH = 16, 4  # values of the first part with a budget; times as many in the next
_APART = "\x01"  # marks values of a part that runs alone; model names are unlikely to contain it
_RECOMPUTED = f"{_APART}recomputed"


@dataclass
class Observer:
    """Runs parts of one model on one set of feeds; kept values are not computed again.

    Kept values stay in the runtime's process, in their own dtype. Each part computes its nodes from the values of this
    run, so a value does not depend on which others are observed.

    Attributes:
        by_node: run every node in its own session, so that each value is rounded to its own dtype on each edge;
            otherwise a runtime that computes float16 in float32 keeps the wider numbers between nodes.
        prefix: of the names of kept values in the runtime, so that several observers can share one runtime.
        kept: the kept values and their types.
        sessions: the number of sessions opened so far.
        budget: bytes of values that a part of a sweep computes, as far as the part before shows; None for any.
        cut: compute each value with a model that ends at it: nothing is observed but outputs.
    """

    index: GraphIndex
    runtime: Runtime
    by_node: bool = False
    prefix: str = ""
    kept: dict[str, TypeProto] = field(default_factory=dict)
    sessions: int = 0
    budget: int | None = None
    cut: bool = False
    _swept: int = 0

    def feed(self, feeds: Feeds) -> None:
        """Set the graph's inputs."""
        self.index.require_sound()
        self.index.require_one_source()
        for name, value in feeds.items():
            self.put(name, value, self.index.inputs[name].type)

    def put(self, name: str, value: RunValue, kind: TypeProto | None = None) -> None:
        """Use this value under that name in later parts."""
        if value is None:
            return
        kind = type_of(value) if kind is None else kind
        # the element type of a sequence, which an empty one does not show
        element = kind.sequence_type.elem_type.tensor_type.elem_type or None
        self.runtime.put(self.stored(name), value, element)
        self.kept[name] = kind

    def stored(self, name: str) -> str:
        """Return the name of a kept value in the runtime."""
        return self.prefix + name

    def fetch(self, values: Sequence[str], keep: Collection[str] = ()) -> dict[str, RunValue]:
        """Compute and return values; those in `keep` also stay in the runtime for later parts."""
        return dict(self.stream(values, keep))

    def stream(self, values: Sequence[str], keep: Collection[str] = ()) -> Stream:
        """Like `fetch`, but yield one value after the other, so that the caller need not hold them all."""
        # values that are there come at once
        missing, new = yield from self._there(values, keep)
        if self.by_node and (missing or new):
            yield from self._node_by_node(missing, new)
        elif missing or new:
            yield from self._run(self._positions(missing + new), missing, new)

    def hold(
        self, values: Sequence[str], keep: Collection[str] = ()
    ) -> Iterator[tuple[str, RunValue | Held]]:
        """Like `stream`, but leave tensors in the runtime until the next request where one run computes them all."""
        # these compute in several runs, so nothing could be left in the runtime
        if self.by_node or self.cut or self.runtime.cuts:
            yield from self.stream(values, keep)
            return
        missing, new = yield from self._there(values, keep)
        if missing or new:
            positions = self._positions(missing + new)
            try:
                held = self._held(positions, missing, new)
            # the runtime gave only some: from now on it is asked for one after the other
            except PartialAnswer:
                held = self._run_cut(positions, missing, new)
            yield from held

    @property
    def shelves(self) -> bool:
        """Whether the next part can be computed while the values of the last one are read."""
        return not (self.by_node or self.cut) and self.runtime.shelves

    def ahead(
        self, values: Sequence[str], keep: Collection[str]
    ) -> Callable[[], list[tuple[str, RunValue | Held]]] | None:
        """Like `hold`, but return what computes the values, for another thread; None where some are kept."""
        if any(name in self.kept for name in values):
            return None
        missing, new = list(values), [name for name in keep if name not in self.kept]
        # what is held now stays readable while the next part runs
        self.runtime.shelve()

        def computed() -> list[tuple[str, RunValue | Held]]:
            return list(self._held(self._positions(missing + new), missing, new))

        return computed

    def _there(
        self, values: Sequence[str], keep: Collection[str]
    ) -> Generator[tuple[str, RunValue], None, tuple[list[str], list[str]]]:
        """Yield the values that are kept; return those to compute, and those of them to keep."""
        # values kept by an earlier part
        there = [self.stored(name) for name in values if name in self.kept]
        for name, value in self.runtime.get(there):
            yield name.removeprefix(self.prefix), value
        return (
            [name for name in values if name not in self.kept],
            [name for name in keep if name not in self.kept],
        )

    def sweep(
        self,
        values: Iterable[str],
        progress: Progress = quiet,
        prepare: Callable[[list[str]], None] = lambda _: None,
    ) -> Stream:
        """Yield values in topological order, part by part; values that later parts need stay in the runtime.

        Args:
            prepare: receives the names of a part before its values: references that are computed one by one, each
                from the inputs on, would take the square of the time.
        """
        for part, needed in self.parts(values, progress):
            prepare(part)
            self._swept = 0
            for name, value in self.stream(part, needed):
                # in memory
                self._swept += sum(array.nbytes for array in arrays_in(value))
                yield name, value

    def parts(
        self, values: Iterable[str], progress: Progress = quiet
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Yield (values to compute next, computed values that later parts need), in topological order.

        Values that no later part needs are dropped before the next part.
        """
        rank = self.index.rank
        order = sorted(values, key=rank.__getitem__)
        last_use = self._last_uses(order)
        # the budget is learned: small parts first
        start = 0
        count = _PART if self.budget is None else _FIRST
        while start < len(order):
            # all values of a node have one rank, so a part never ends within a node
            end = rank[order[min(start + count, len(order)) - 1]]
            stop = bisect_right(order, end, start, key=rank.__getitem__)
            progress(f"{start} of {len(order)} values computed")
            # kept for later: computed by now, read after this part
            crossing = [n for n, use in last_use.items() if use > end >= rank.get(n, end + 1)]
            yield order[start:stop], crossing  # all requested values of a node
            # neither needed nor kept any longer
            self.forget([name for name in self.kept if last_use.get(name, -1) <= end])
            if self.budget is not None:
                # as many values as fit, if they are as large as those of this part
                fitting = self.budget * (stop - start) // max(self._swept, 1)
                count = max(1, min(fitting, _GROWTH * count, _LARGE_PART))
            start = stop

    def _last_uses(self, values: Sequence[str]) -> dict[str, int]:
        """Map what the values are computed from to the place of its last use; dequantized weights are made anew."""
        index, places = self.index, self.index.places
        needed = index.in_order(index.ancestors(values, stop=self.kept))
        # later reads overwrite earlier ones, so the last use is left
        uses = {name: places[position] for position in needed for name in index.reads[position]}
        for position in needed:
            node = index.nodes[position]
            # made again where they are needed: they would take more memory than their integers
            if node.op_type == "DequantizeLinear" and node.input[0] in index.initializers:
                uses.pop(node.output[0], None)
        return uses

    def _node_by_node(self, missing: list[str], new: list[str]) -> Stream:
        # in topological order: each node runs on its own
        positions = self.index.in_order(self._positions(missing + new))
        # value -> place of the last node that reads it
        last_use = {
            name: place for place, p in enumerate(positions) for name in self.index.reads[p]
        }
        passing = set[str]()
        for place, position in enumerate(positions):
            made = list(self.index.outputs_of([position]))
            needed = [n for n in made if n in new or last_use.get(n, -1) > place]
            yield from self._run([position], [n for n in made if n in missing], needed)
            # values that are only passed on to later nodes
            passing.update(n for n in needed if n not in new)
            done = {name for name in passing if last_use[name] <= place}
            passing -= done
            self.forget(done)

    def _run(self, positions: Sequence[int], missing: list[str], new: list[str]) -> Stream:
        if not (self.cut or self.runtime.cuts):
            # a runtime without inner values, or one that was asked for outputs only
            try:
                yield from self._run_whole(positions, missing, new)
            except PartialAnswer:  # raised before the first value
                pass
            else:
                return
        yield from self._run_cut(positions, missing, new)

    def _held(
        self, positions: Sequence[int], missing: list[str], new: list[str]
    ) -> Iterator[tuple[str, RunValue | Held]]:
        """Compute values in one run; the runtime holds them."""
        given, stored = self._open(positions, missing, new)
        types, held = self.runtime.hold(given, missing, stored)
        self.kept.update((name, types[name]) for name in new)
        return held

    def _run_cut(self, positions: Sequence[int], missing: list[str], new: list[str]) -> Stream:
        """Compute the values of one node after the other, each with a model that ends at it."""
        for position in self.index.in_order(positions):
            made = self.index.nodes[position].output
            fetched, kept = [n for n in made if n in missing], [n for n in made if n in new]
            if fetched or kept:
                # the nodes up to this value
                nodes = self._positions(fetched + kept)
                yield from self._run_whole(nodes, fetched, kept)

    def _run_whole(self, positions: Sequence[int], missing: list[str], new: list[str]) -> Stream:
        given, keep = self._open(positions, missing, new)
        types, values = self.runtime.stream(given, missing, keep)
        self.kept.update((name, types[name]) for name in new)
        yield from values
        # the next part has a session of its own: until then, another runtime may need the memory
        self.runtime.forget((), session=True)

    def _open(
        self, positions: Sequence[int], missing: list[str], new: list[str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Open a session on nodes; return its inputs, and what it keeps, with their names in the runtime."""
        # a part takes what is kept instead of computing it
        part = self.part(positions, self.kept, missing + new)
        self._session(part, self._declared_rank)
        inputs = [declared.name for declared in part.graph.input]
        given, keep = ({name: self.stored(name) for name in names} for names in (inputs, new))
        return given, keep

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Drop kept values; all by default."""
        gone = [n for n in (self.kept if names is None else names) if n in self.kept]
        for name in gone:
            del self.kept[name]
        # one request for all
        if gone:
            self.runtime.forget([self.stored(name) for name in gone])

    def part(
        self, positions: Sequence[int], inputs: Mapping[str, TypeProto], outputs: Sequence[str]
    ) -> ModelProto:
        """Return the model of some nodes, from those of these inputs that they need to the outputs."""
        index, source = self.index, self.index.model.proto
        outputs = list(dict.fromkeys(outputs))
        reads = index.inputs_of(positions)
        used = dict.fromkeys(chain(reads, outputs))
        produced = index.made_by(positions)
        # of the inputs, those that these nodes need
        given = [name for name in used if name in inputs and name not in outputs]

        part = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
        part.graph.name = source.graph.name
        nodes = [index.nodes[position] for position in positions]
        part.graph.node.extend(nodes)
        for position, node in zip(positions, part.graph.node, strict=True):
            # ids as names, for messages
            node.name = node.name or f"@{position}"
            for slot, name in enumerate(node.output):
                # the part takes this value as an input and computes it as well: its own result gets another
                # name
                if name in given:
                    node.output[slot] = recomputed(name)
        clear_bodies(part.graph.node, produced.union(given))  # which may come earlier now
        part.functions.extend(reached_functions(source, nodes))
        for name in given:
            part.graph.input.add(name=name, type=inputs[name])
        # initializers of the model that the part reads
        stays = used.keys() - set(given) - produced
        for name in stays & index.initializers.keys():
            tensor = index.initializers[name]
            if isinstance(tensor, TensorProto):
                part.graph.initializer.append(tensor)
            else:
                part.graph.sparse_initializer.append(tensor)
        for name in outputs:
            part.graph.output.add(name=name)
        return part

    def alone(
        self, positions: Sequence[int], inputs: RunValues, outputs: Sequence[str]
    ) -> dict[str, RunValue]:
        """Compute outputs of some nodes from these inputs, ignoring kept values."""
        return self.run_part(self.part(positions, types_of(inputs), outputs), inputs, outputs)

    def run_part(
        self, part: ModelProto, inputs: RunValues, outputs: Sequence[str]
    ) -> dict[str, RunValue]:
        """Run a model made of this model's nodes and weights on these inputs."""
        with self.opened(part, inputs, outputs) as run:
            return run({})[0]

    @contextmanager
    def opened(
        self, part: ModelProto, inputs: RunValues, outputs: Sequence[str]
    ) -> Iterator[Callable[..., list[dict[str, RunValue]]]]:
        """Open a model made of this model's nodes and weights; yield what runs it, each time with other inputs."""
        # names of its own, so that kept values are not replaced
        given = {declared.name: _APART + declared.name for declared in part.graph.input}
        stored = list(given.values())

        # further runs exchange some inputs and keep the others
        def run(*several: RunValues) -> list[dict[str, RunValue]]:
            feeds = list[dict[str, str]]()
            for number, instead in enumerate(several):
                others = {name: f"{_APART}{number}{_APART}{name}" for name in instead}
                stored.extend(others.values())
                for name, value in instead.items():
                    self._put(others[name], value)
                feeds.append({**given, **others})
            if len(feeds) == 1:  # it says why it fails
                return [self.runtime.run(feeds[0], outputs).values]
            made = [values for values in self.runtime.tries(feeds, outputs) if values is not None]
            if len(made) < len(feeds):
                raise RuntimeFailure("the runtime fails with some inputs")
            return made

        try:
            for name, place in given.items():
                self._put(place, inputs[name])
            self._session(part, lambda name: getattr(inputs[name], "ndim", None))
            yield run
        finally:
            self.runtime.forget(stored, session=True)

    def _session(self, part: ModelProto, rank_of: Callable[[str], int | None]) -> None:
        """Open a session on a part; where that is refused, once more with the ranks of its inputs.

        Where onnxruntime follows sizes, it takes a value of unknown rank for one without dimensions, and refuses what
        reads these sizes: Resize after Concat, Slice and Shape.
        """
        try:
            self.runtime.open(self.index.model.with_proto(part))
        except RuntimeLost:
            raise
        except RuntimeFailure as refused:
            ranked = copied(part)
            for declared in ranked.graph.input:
                rank = rank_of(declared.name)
                if declared.type.HasField("tensor_type") and rank is not None:
                    shape = TensorShapeProto(dim=[TensorShapeProto.Dimension()] * rank)
                    # without sizes: only how many dimensions
                    declared.type.tensor_type.shape.CopyFrom(shape)
            try:
                self.runtime.open(self.index.model.with_proto(ranked))
            except RuntimeFailure:
                # the first message says more about the model
                raise refused from None
        self.sessions += 1

    def _declared_rank(self, name: str) -> int | None:
        sizes = sizes_in(self.index.types.get(name))
        return None if sizes is None else len(sizes)

    def _put(self, stored: str, value: RunValue) -> None:
        if value is not None:
            self.runtime.put(stored, value)

    def runs(
        self,
        part: ModelProto,
        inputs: RunValues,
        outputs: Sequence[str],
        more: Sequence[RunValues],
    ) -> Iterator[dict[str, RunValue]]:
        """Run a part as `run_part` does, in one session, once for each mapping of further inputs."""
        # inputs of the first run, with which the session opens
        with self.opened(part, {**inputs, **more[0]}, outputs) as run:
            yield from (run(instead)[0] for instead in more)

    def _positions(self, outputs: Iterable[str]) -> list[int]:
        return sorted(self.index.ancestors(outputs, stop=self.kept))


def recomputed(name: str) -> str:
    """Return the name of a value in a part that takes it as an input and computes it as well."""
    return f"{name}{_RECOMPUTED}"


def original(name: str) -> str:
    """Return the name that a value of a part has in the model."""
    return name.removesuffix(_RECOMPUTED)
