"""Prove by runs that an edited model still computes the same: changed dimensions, steps of `simplify`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from onnxsurgeon_lite.errors import RuntimeFailure, RuntimeLost, ShapeError
from onnxsurgeon_lite.graph.index import GraphIndex, symbols_of
from onnxsurgeon_lite.graph.settling import UNSETTLED, settling_later
from onnxsurgeon_lite.matching.trials import Trial, unmoved, unmoved_notes
from onnxsurgeon_lite.matching.verify import verify
from onnxsurgeon_lite.model import Model, loaded
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import Pass, PassResult, Pipeline, Rebatch, SetShape, Simplify
from onnxsurgeon_lite.passes.protocol import apply_step
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, make_feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime, run_model
from onnxsurgeon_lite.surgery.resizing.follow import ShapeRequest, follow, symbols_for, tied
from onnxsurgeon_lite.surgery.resizing.plan import ResizePlan, Symbol
from onnxsurgeon_lite.surgery.resizing.sizes import Axis, varies
from onnxsurgeon_lite.tensors.comparison import agrees, compare
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array

SAMPLES = (1, 2, 3, 7)
"""Batch sizes of the runs."""
_TOGETHER = 64  # values of both models that are looked at in one run
_MOST_ELEMENTS, _MOST_SAMPLES = 1 << 30, 1 << 20  # of an input of the original

_Sizes = dict[str, int]  # one run: symbol's key -> size


@dataclass(frozen=True)
class _Case:
    """One run of the changed model; `comparable` when the original can repeat it."""

    sizes: _Sizes
    comparable: bool


def prove_step(
    step: Pass,
    original: Model,
    changed: Model,
    runtime: Runtime,
    recipe: Recipe,
) -> list[str]:
    """Prove the result of `set-shape` or `rebatch`, or of such steps of a pipeline; see `prove`."""
    if isinstance(step, Pipeline):
        lines = []
        # a step inside a pipeline may leave what a later one settles
        outer = UNSETTLED.get()
        with settling_later(set() if outer is None else outer):
            for part in step.passes:
                result = apply_step(part, original)
                lines += prove_step(part, original, result.model, runtime, recipe)
                original = result.model
        return lines
    if isinstance(step, Rebatch):
        shapes = step.shapes(GraphIndex.of(original))
        return prove(original, changed, shapes, runtime, recipe, step.axis, _second(step))
    if isinstance(step, SetShape):
        return prove(original, changed, step.shapes, runtime, recipe, second=_second(step))
    return []


def _second(step: Rebatch | SetShape) -> Model | None:
    return None if step.second is None else loaded(step.second)


def prove(
    original: Model,
    changed: Model,
    shapes: ShapeRequest,
    runtime: Runtime,
    recipe: Recipe,
    axis: int = 0,
    second: Model | None = None,
) -> list[str]:
    """Compare both models on made feeds: the changed one at several sizes, the original at its own.

    Dimension `axis` is the batch: the original computes its own batch size at a time. For another dimension both are
    compared at the original size, and the changed model must run at twice that size.

    Args:
        shapes: the requested shapes of `changed`.
        axis: the batch dimension of the inputs.
        second: an export of the same network at other sizes; the changed model must agree with it too.
        runtime: with optimization off, so that both compute the same nodes.

    Returns:
        The proved facts, one line each.

    Raises:
        ShapeError: an output differs from the original's or cannot be compared.
        RuntimeFailure: the runtime cannot run the original.
    """
    # the plan says for each value which of its axes follow the new sizes
    symbols = symbols_for(GraphIndex.of(original), shapes)
    _, plan, _ = follow(original, symbols, second)
    proof = _Proof(original, changed, plan, runtime, recipe, axis, second is not None)
    lines = _run_where_it_fits(proof, symbols)
    return lines + ([] if second is None else _compare_with(second, changed, runtime, recipe))


def _run_where_it_fits(proof: "_Proof", symbols: Sequence[Symbol]) -> list[str]:
    """Run a proof at the first sizes of dimensions that stay symbolic at which the original runs."""
    changing = [symbol for symbol in symbols if symbol.changes]
    failures = list[RuntimeFailure]()
    for sizes in _fitting_sizes(proof.original, symbols):
        # what the user asked for comes before what is tried
        recipe = replace(proof.recipe, dims={**sizes, **proof.recipe.dims})
        try:
            return replace(proof, recipe=recipe).run(changing)
        except RuntimeLost:
            raise
        except RuntimeFailure as error:
            failures.append(error)
    raise failures[0]


def _fitting_sizes(original: Model, symbols: Sequence[Symbol]) -> Iterator[dict[str, int]]:
    """Yield sizes of dimensions that stay symbolic: any, then such that they fit together."""
    yield {}
    # small ones, in the proportions of a trial
    for tie in tied(symbols, GraphIndex.of(original)):
        sizes = {s.name: s.sizes[1] for s in tie if s.name and s.own is None and not s.changes}
        unit = math.gcd(*sizes.values())
        yield {name: size // unit for name, size in sizes.items()}


@dataclass
class _Proof:
    original: Model
    changed: Model
    plan: ResizePlan
    runtime: Runtime
    recipe: Recipe
    axis: int
    is_second: bool

    def run(self, changing: Sequence[Symbol]) -> list[str]:
        index = GraphIndex.of(self.changed)
        # the original runs first, all samples of a case in parts of its own size
        cases = self._cases(changing)
        feeds = [self._feeds(index, case) for case in cases]
        self.runtime.open(self.original)
        # per case, the outputs of every chunk: both models share a runtime, which holds one model at a time
        references = [
            [self._run(index, chunk) for _, chunk in self._chunks(case, given)]
            for case, given in zip(cases, feeds, strict=True)
        ]
        self._open_changed()
        for case, given, reference in zip(cases, feeds, references, strict=True):
            try:
                actual = self._run(index, given)
            except RuntimeFailure as error:
                raise ShapeError(
                    f"not proved: the changed model does not run with {_text(case.sizes)}: {error.message}",
                    "nothing was written",
                ) from error
            # the changed model ran all samples at once; compare each chunk with its part of that
            for (places, chunk), expected in zip(self._chunks(case, given), reference, strict=True):
                for name, value in expected.items():
                    off = self._off(case, name, actual[name], value, places)
                    if off:
                        raise self._differing(case, name, off, places, chunk, given)
        # what could be compared is proved; what only runs is said apart
        agreeing = [_text(case.sizes) for case in cases if case.comparable]
        running = [_text(case.sizes) for case in cases if not case.comparable]
        lines = [f"agrees with the original at {'; '.join(agreeing)}"] if agreeing else []
        return lines + ([f"runs at {'; '.join(running)}"] if running else [])

    def _open_changed(self) -> None:
        try:
            self.runtime.open(self.changed)
        except RuntimeFailure as error:
            raise ShapeError(f"not proved: {error.message}", "nothing was written") from error

    def _cases(self, changing: Sequence[Symbol]) -> list[_Case]:
        """Return a case at the original or requested sizes, then cases that change one dimension."""
        # all dimensions at the sizes of the original, or as requested
        # a named dimension may have any size: the original's own; a fixed one has what was requested
        base = {_key(s): (s.own or 1) if s.name else s.sizes[-1] for s in changing}
        # the original can repeat it: only the batch differs from its own sizes
        comparable = all(
            self._is_batch(s) or base[_key(s)] == (s.own or base[_key(s)]) for s in changing
        )
        cases = [_Case(base, comparable)]
        for symbol in changing:
            if not symbol.name:
                continue
            # one dimension at a time: an error is that of this one
            others = SAMPLES if self._is_batch(symbol) else (2 * (symbol.own or 1),)
            for size in others:
                if size != base[_key(symbol)]:
                    same = comparable and self._is_batch(symbol)
                    cases.append(_Case(base | {_key(symbol): size}, same))
        return cases

    def _is_batch(self, symbol: Symbol) -> bool:
        return all(axis == self.axis for _, axis in symbol.places)

    def _feeds(self, index: GraphIndex, case: _Case) -> Feeds:
        names = {s.name: case.sizes[_key(s)] for s in self.plan.symbols if _key(s) in case.sizes}
        # names that the changed model's inputs still have; others are numbers by now
        opened = set(symbols_of(index.inputs.values()))
        dims = {name: size for name, size in names.items() if name and name in opened}
        made, _ = make_feeds(
            index, Recipe(self.recipe.seed, {**self.recipe.dims, **dims}, self.recipe.fills)
        )
        return made

    def _run(self, index: GraphIndex, feeds: Feeds) -> dict[str, RunValue]:
        for name, value in feeds.items():
            self.runtime.put(name, value)
        return self.runtime.run(list(feeds), list(index.outputs)).values

    def _chunks(self, case: _Case, feeds: Feeds) -> list[tuple[dict[str, list[int]], Feeds]]:
        """Split the feeds into (samples, feeds) chunks of the original's batch size."""
        if not case.comparable:
            # the original has no such sizes; the run alone is the proof
            return []
        # as many parts as the largest batch needs; at the end samples begin anew
        batches = [s for s in self.plan.symbols if self._is_batch(s) and _key(s) in case.sizes]
        # -(-a // b) rounds up
        count = max((-(-case.sizes[_key(s)] // (s.own or 1)) for s in batches if s.own), default=1)
        for symbol in batches:
            _require_small(symbol, feeds)
        chunks = []
        # symbol -> indices of the samples in this chunk; % repeats the first ones in the last chunk
        for number in range(count):
            places = {
                _key(s): [(number * s.own + i) % case.sizes[_key(s)] for i in range(s.own)]
                for s in batches
                if s.own
            }
            # an input with a batch axis is cut to these samples, others stay
            taken = dict(feeds)
            for symbol in batches:
                for name, axis in symbol.places if symbol.own else ():
                    taken[name] = np.take(np.asarray(taken[name]), places[_key(symbol)], axis)
            chunks.append((places, taken))
        return chunks

    def _off(
        self,
        case: _Case,
        name: str,
        actual: RunValue,
        reference: RunValue,
        places: Mapping[str, list[int]],
    ) -> str:
        """Return how the samples of a value differ from the original's; '' where they agree."""
        if not is_array(actual) or not is_array(reference):
            raise ShapeError(
                f"not proved: output {name!r} is not a tensor", "cut it off first: onnxdbg extract"
            )
        # the samples that this run of the original has computed
        part = self._samples(case, name, actual, places)
        if part is None:
            raise ShapeError(
                f"not proved: output {name!r} has a dimension that cannot be split into samples",
                "its size depends on the data, or it mixes samples; cut the model before it: onnxdbg extract",
            )
        if part.size == reference.size and agrees(part.reshape(reference.shape), reference):
            return ""
        if part.size != reference.size:
            return f"it has shape {list(part.shape)}, the original {list(reference.shape)}"
        worst = compare(part.reshape(reference.shape), reference).max_abs
        return f"they differ by up to {worst:.6g}"

    def _differing(
        self,
        case: _Case,
        name: str,
        off: str,
        places: Mapping[str, list[int]],
        chunk: Feeds,
        given: Feeds,
    ) -> ShapeError:
        """Return the error for an output that differs; it names the first value that does."""
        shown = ", ".join(map(str, dict.fromkeys(next(iter(places.values()), []))))
        why = "its samples depend on each other, or a constant did not change with the size"
        if not self.is_second:
            why += "; an export at another size shows which: --two-exports"
        return ShapeError(
            f"not proved: with {_text(case.sizes)}, output {name!r} of sample {shown} differs from the "
            f"original: {off}{self._first(case, places, chunk, given)}",
            f"{why}; nothing was written",
        )

    def _first(
        self, case: _Case, places: Mapping[str, list[int]], chunk: Feeds, given: Feeds
    ) -> str:
        """Return which value is the first whose samples differ."""
        one, two = GraphIndex.of(self.original), GraphIndex.of(self.changed)
        # only values with a dimension that follows the request can show it
        states = self.plan.scopes[0].states
        sized = {name: states[name].sizes() or () for name in one.producer if name in states}
        names = [
            name
            for name in one.rank
            if name in two.producer and any(size and varies(size) for size in sized.get(name, ()))
        ]
        for start in range(0, len(names), _TOGETHER):
            some = names[start : start + _TOGETHER]
            with suppress(RuntimeFailure):
                sides = run(one, chunk, self.runtime, some), run(two, given, self.runtime, some)
                for name in some:
                    # a value inside may not split into samples; it then proves nothing
                    with suppress(ShapeError):
                        off = self._off(case, name, sides[1][name], sides[0][name], places)
                        if off:
                            maker = one.describe(one.producer[name])
                            return f"; the first value that differs is {name!r} of {maker}"
        return ""

    def _samples(
        self, case: _Case, name: str, actual: Array, places: Mapping[str, list[int]]
    ) -> Array | None:
        """Return the part of an output that belongs to the samples, None when unknown."""
        state = self.plan.scopes[0].states.get(name)
        axes = state.axes if state is not None else None
        if axes is None or len(axes) != actual.ndim:
            return None
        # each axis as its factors, such as batch * heads: from those that count samples, the samples are taken
        shape = list[int]()
        picked = list[tuple[int, list[int]]]()
        for axis, size in zip(axes, actual.shape, strict=True):
            factors = self._factors(case, axis, size)
            for key, number in factors:
                if key in places:
                    picked.append((len(shape), places[key]))
                shape.append(number)
        # the plan does not describe this value at this size
        if math.prod(shape) != actual.size:
            return None
        part = actual.reshape(shape)
        for dimension, indices in picked:
            part = np.take(part, indices, dimension)
        return part

    def _factors(self, case: _Case, axis: Axis | None, size: int) -> list[tuple[str, int]]:
        """Return (symbol key or '', size in this case) of each factor of an axis."""
        if axis is None or not any(map(varies, axis)):
            return [("", size)]
        # size at several samples of dimensions -> the symbol that has these sizes
        known = {s.sizes: _key(s) for s in self.plan.symbols}
        keys = [known.get(factor, "") for factor in axis]
        sizes = [
            case.sizes.get(key, 0 if varies(factor) else factor[0])
            for key, factor in zip(keys, axis, strict=True)
        ]
        # what varies and is not of the case, as the length of a text, is what is left
        left = size // math.prod(filter(None, sizes))
        return list(zip(keys, (number or left for number in sizes), strict=True))


def _compare_with(second: Model, changed: Model, runtime: Runtime, recipe: Recipe) -> list[str]:
    """Compare an export at another size with the changed model on the same feeds."""
    # the feeds of the second export, whose sizes the changed model must accept
    feeds, _ = make_feeds(GraphIndex.of(second), recipe)
    expected, found = (run_model(model, feeds, runtime=runtime) for model in (second, changed))
    for reference, (name, actual) in zip(expected.values(), found.items(), strict=True):
        if not (is_array(reference) and is_array(actual)):
            continue
        if not agrees(actual, reference):
            raise ShapeError(
                f"not proved: output {name!r} differs from the second export",
                "do both exports have the same weights? nothing was written",
            )
    return [f"agrees with {str(second.path)!r}"]


def _key(symbol: Symbol) -> str:
    """Return a key of the symbol: its name, or its first dimension."""
    name, axis = symbol.places[0]
    return symbol.name or f"dimension {axis} of {name!r}"


def _require_small(symbol: Symbol, feeds: Feeds) -> None:
    """Raise `ShapeError` if the original computes more samples at a time than can be made."""
    samples = symbol.own or 1
    for name, axis in symbol.places:
        shape = list(np.shape(feeds[name]))
        shape[axis] = samples
        if samples > _MOST_SAMPLES or math.prod(shape) > _MOST_ELEMENTS:
            raise ShapeError(
                f"not proved: the original takes {shape} as {name!r}, which is too large to be made",
                "write it as it is: --unproved",
            )


def _text(sizes: _Sizes) -> str:
    return ", ".join(f"{key} = {size}" for key, size in sizes.items())


@dataclass
class StepProof:
    """Runs of a model, with which the results of steps are compared.

    Attributes:
        trials: the model's feeds and outputs.
    """

    original: GraphIndex
    trials: Sequence[Trial]
    runtime: Runtime

    def proved(self, step: Simplify, result: PassResult) -> tuple[PassResult, str]:
        """Return the result if it agrees, else that of the steps that do; and what was proved, as text.

        Args:
            result: of the step on the original.
        """
        if self._failure(result.model) is not None:
            result = self._without_failing(step)
        notes = result.notes + tuple(unmoved_notes(unmoved(self.trials)))
        line = f"agrees with the original in {counted(len(self.trials), 'run')}"
        return replace(result, notes=notes), line

    def _without_failing(self, step: Simplify) -> PassResult:
        """Add one step at a time, and leave out those after which the outputs differ."""
        # each step on top of those that are proved
        every = [one.name for one in step.steps()]
        left_out = list(step.without)
        notes = []
        result = PassResult(self.original.model, changed=False)
        for number, name in enumerate(every, 1):
            # the steps so far that are proved, and this one
            tried = replace(step, without=tuple(left_out + every[number:])).apply(
                self.original.model
            )
            failure = self._failure(tried.model) if tried.changed else None
            if failure is None:
                result = tried
            else:
                left_out.append(name)
                notes.append(f"left out {name!r}, which is not proved: {failure}")
        return replace(result, notes=tuple(notes) + result.notes)

    def _failure(self, model: Model) -> str | None:
        """Return how a model differs from the original; None if it agrees."""
        try:
            found = verify(self.original, GraphIndex.of(model), self.trials, self.runtime)
        except RuntimeFailure as error:
            return f"the result does not run: {error.message}"
        differing = (
            f"output {name!r} differs by up to {comparison.max_abs:.6g}"
            for name, comparison in found.compared.items()
            if not comparison.match
        )
        return next(differing, None)
