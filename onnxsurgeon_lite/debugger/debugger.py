"""A model under a debugger: break, run, step, look, change a value, go on."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import TypeProto

from onnxsurgeon_lite import tensors
from onnxsurgeon_lite.bisection.crashing import crashing_node
from onnxsurgeon_lite.comparing import compare_value
from onnxsurgeon_lite.comparison import Comparison, Tolerance
from onnxsurgeon_lite.debugger.breakpoints import Breakpoint, Condition, Facts, Scopes, expression
from onnxsurgeon_lite.debugger.control import iterations
from onnxsurgeon_lite.debugger.frames import Frame, Machine
from onnxsurgeon_lite.debugger.results import Level, Reading, Stop
from onnxsurgeon_lite.errors import (
    FeedsError,
    ReferenceSetError,
    RuntimeCrash,
    RuntimeTimeout,
    UnknownNameError,
    UsageError,
)
from onnxsurgeon_lite.feeds import Feeds, Recipe, check_feed, make_feeds, required_inputs
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.references import ReferenceSet
from onnxsurgeon_lite.running import statistics
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions, Value
from onnxsurgeon_lite.select import select_values
from onnxsurgeon_lite.tensors import Array, type_of

BUDGET = 1 << 28  # bytes
_BATCH = 32  # conditions that are told together


class Debugger:
    """One model on one set of feeds, stepped through in topological order; a context manager.

    It stops after nodes. Values are computed when they are looked at, or when a stop needs them, with what they need
    and no more; optimisation is off, so that they are what the model as it is written gives.

    Attributes:
        references: what values are compared with, where there is one of that name.
        feeds: what was given; the other inputs are made by `recipe`, or are missing where that is None.
        made: how inputs were made, a line each.
        breakpoints: by number. watched: values that every stop shows.
        frames: the main graph first, the body that is being run last.
    """

    def __init__(
        self,
        model: Model,
        feeds: Feeds | None = None,
        references: ReferenceSet | None = None,
        runtime: Runtime | None = None,
        recipe: Recipe | None = None,
        tolerance: Tolerance | None = None,
        budget: int = BUDGET,
    ) -> None:
        """Nothing runs yet; without a runtime there will be one of its own.

        Raises:
            GraphError: a cycle, a function that calls itself.
            FeedsError: a feed that the model does not have, or declares otherwise.
        """
        self.runtime = runtime or Runtime(RuntimeOptions(opt="none", lean=True))
        self.references = references
        self.tolerance = tolerance
        self.feeds: Feeds = {}
        self.recipe = recipe
        self.made: list[str] = []
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watched: list[str] = []
        self.frames: list[Frame] = []
        self._machine = Machine(self.runtime, budget)
        self._fed: Feeds = {}
        self._overrides: Feeds = {}
        self._started = False
        self._last_number = 0
        self.load(model)
        for name, value in (feeds or {}).items():
            self.feed(name, value)

    def __enter__(self) -> "Debugger":
        return self

    def __exit__(self, *exception: object) -> None:
        self.runtime.__exit__()

    # where it is

    @property
    def frame(self) -> Frame:
        """The innermost frame."""
        return self.frames[-1]

    def load(self, model: Model) -> None:
        """Go on with another model, from its start; feeds, references and breakpoints stay where they fit.

        Raises:
            GraphError: as for a new debugger.
        """
        index = GraphIndex.of(model)
        index.require_sound()
        self.index = index
        self.scopes = Scopes(index)
        for point in self.breakpoints.values():
            with contextlib.suppress(UnknownNameError, UsageError):
                point.marked = {}
                point.marked = self.scopes.find(point.selector)
        self._mark()
        self.feeds = {name: value for name, value in self.feeds.items() if name in index.inputs}
        self._forget_everything()

    def where(self) -> list[Level]:
        """The frames, the main graph first, each with its node."""
        levels = []
        for depth, frame in enumerate(self.frames):
            inner = self.frames[depth + 1] if depth + 1 < len(self.frames) else None
            position = self._last(frame) if inner is None else inner.call
            node = "" if position is None else frame.describe(position)
            origin = "" if position is None else str(frame.index.origins[position])
            nodes = len(frame.index.order)
            levels.append(Level(frame.path, node, origin, frame.place, nodes))
        return levels

    # going on

    def break_(
        self, selector: str, condition: str | Condition | None = None, temporary: bool = False
    ) -> Breakpoint:
        """Stop after the nodes that a selector means, where the condition holds.

        Raises:
            UnknownNameError, UsageError: there is no such node.
            SyntaxError: the condition is no Python expression.
        """
        marked = self.scopes.find(selector)
        text = condition if isinstance(condition, str) else "..." if condition else ""
        told = expression(condition, {"dbg": self}) if isinstance(condition, str) else condition
        self._last_number += 1
        point = Breakpoint(self._last_number, selector, told, text, temporary, marked)
        self.breakpoints[point.number] = point
        self._mark()
        return point

    def delete(self, number: int | None = None) -> None:
        """Remove a breakpoint, or all of them.

        Raises:
            UnknownNameError: it has none of that number.
        """
        if number is not None and number not in self.breakpoints:
            known = map(str, self.breakpoints)
            raise UnknownNameError(str(number), "the debugger", known, kind="breakpoint")
        for gone in [number] if number is not None else list(self.breakpoints):
            del self.breakpoints[gone]
        self._mark()

    def run(self) -> Stop:
        """From the start to the first breakpoint; what was computed, set or healed stays."""
        self._back_to_main()
        self.frame.place = 0
        self.frame.done.clear()
        return self.continue_()

    def continue_(self) -> Stop:
        """On to the next breakpoint, or to the end."""
        with self._at_work():
            return self._go()

    def next(self) -> Stop:
        """Compute the next node; bodies that it runs are run at once."""
        with self._at_work():
            return self._next()

    def step(self) -> Stop:
        """As `next`, but into the body of an If, Loop or Scan and into functions."""
        with self._at_work():
            while not self.frame.ended and self._enter():
                pass
            return self._next()

    def out(self) -> Stop:
        """Run the body to its end, all iterations of it, and stop after the node that runs it."""
        with self._at_work():
            return self._go(len(self.frames))

    def until(self, selector: str | None = None) -> Stop:
        """On to a node, or (without one) as `next`, but past the end of an iteration to the end of all."""
        if selector is None:
            return self.out() if self.frame.ended else self.next()
        point = self.break_(selector, temporary=True)
        try:
            return self.continue_()
        finally:
            self.breakpoints.pop(point.number, None)
            self._mark()

    def restart(self) -> Stop:
        """Back to the start: everything that was computed, set or healed is forgotten."""
        self._forget_everything()
        return Stop("start")

    # looking

    def __getitem__(self, name: str) -> Value:
        """A value's numbers: of this frame, else of those around it; as `@3/body[2]/v` of the frame it names."""
        with self._at_work():
            frame, (own,) = self._find(name)
            return frame.value(own)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.frame.index.values())

    def read(self, name: str) -> list[Reading]:
        """Values with their numbers, compared where there are references.

        Raises:
            UnknownNameError: there is none.
        """
        with self._at_work():
            frame, names = self._find(name)
            values = frame.fetch(names)
        return [replace(self._reading(frame, n, v), value=v) for n, v in values.items()]

    def compare(self, name: str) -> dict[str, Comparison]:
        """A value against its reference.

        Raises:
            ReferenceSetError: there is none.
        """
        readings = self.read(name)
        compared = {n: c for reading in readings for n, c in reading.comparisons.items()}
        if not compared:
            self._reference(readings[0].name)
        return compared

    def watch(self, name: str) -> list[str]:
        """Show a value at every stop; watching it again ends that."""
        _, names = self._find(name)
        for each in names:
            if each in self.watched:
                self.watched.remove(each)
            else:
                self.watched.append(each)
        return self.watched

    # changing

    def set(self, name: str, value: object) -> Reading:
        """Go on with other numbers for a value; a single number fills its shape.

        Raises:
            FeedsError: another dtype or shape.
        """
        with self._at_work():
            frame, (own,) = self._find(name)
            array = self._fitting(frame, own, value)
            self._set(frame, own, array)
        return self._reading(frame, own, array)

    def heal(self, name: str) -> list[Reading]:
        """Go on with the references of values.

        Raises:
            ReferenceSetError: there is none.
        """
        readings = []
        with self._at_work():
            frame, names = self._find(name)
            stored = {each: self._reference(each) for each in names}
            for each, value in stored.items():
                self._set(frame, each, value)
                readings.append(self._reading(frame, each, value))
        return readings

    def feed(self, name: str, value: Array | list[Array]) -> None:
        """Give an input, and start again.

        Raises:
            FeedsError: there is no such input, or it is declared otherwise.
        """
        check_feed(self.index, name, value)
        self.feeds[name] = value
        self._forget_everything()

    def seed(self, number: int) -> None:
        """Have the inputs that are not given made, and start again."""
        self.recipe = replace(self.recipe or Recipe(), seed=number)
        self._forget_everything()

    # how

    def _go(self, depth: int = 0) -> Stop:
        """On to the next breakpoint, to the end, or until fewer frames than `depth` are left."""
        while True:
            stop = self._to_breakpoint()
            if stop is not None:
                return stop
            if self.frame.ended:
                if len(self.frames) == 1:
                    return self._end()
                if self._leave() and len(self.frames) < depth:
                    return self._returned()

    def _to_breakpoint(self) -> Stop | None:
        """Go on in this frame: to a stop, into a body that holds a breakpoint, or to its end."""
        frame = self.frame
        inside = self._inside.get(frame.scope, set())
        marked = inside.union(*(b.marked.get(frame.scope, ()) for b in self.breakpoints.values()))
        ahead = sorted(frame.index.places[position] for position in marked)
        ahead = [place for place in ahead if place >= frame.place]
        for number, place in enumerate(ahead):
            position = frame.index.order[place]
            frame.place = place
            if position in inside and self._enter():
                return None
            points = self._points(position)
            if not points:
                continue
            self._prefetch(ahead[number:])
            facts = self._facts(position) if any(b.condition for b in points) else {}
            hits = [point for point in points if point.holds(facts)]
            if hits:
                frame.place += 1
                return self._stop("breakpoint", hits)
        frame.place = len(frame.index.order)
        return None

    def _points(self, position: int) -> list[Breakpoint]:
        """The breakpoints at a node, those without a condition first."""
        scope = self.frame.scope
        there = [b for b in self.breakpoints.values() if position in b.marked.get(scope, ())]
        return sorted(there, key=lambda point: point.condition is not None)

    def _prefetch(self, places: Sequence[int]) -> None:
        """Compute together what conditions are about, up to where it stops anyway."""
        frame, wanted = self.frame, list[str]()
        for place in places[:_BATCH]:
            position = frame.index.order[place]
            if place == places[0] and frame.observer.kept.keys() >= {*frame.made(position)}:
                return
            if place > places[0] and position in self._inside.get(frame.scope, ()):
                break
            wanted += frame.made(position)
            if any(point.condition is None for point in self._points(position)):
                break
        frame.need(wanted)

    def _facts(self, position: int) -> Facts:
        """What conditions are told of a node."""
        frame = self.frame
        outs = list(frame.fetch(frame.made(position)).values())
        first = outs[0] if outs else None
        node, iteration = frame.describe(position), frame.iteration
        return {"out": first, "outs": outs, "node": node, "iteration": iteration}

    def _next(self) -> Stop:
        frame = self.frame
        if frame.ended:
            if len(self.frames) == 1:
                return self._end()
            return self._returned() if self._leave() else self._next()
        position = frame.index.order[frame.place]
        if position in self._inside.get(frame.scope, ()) and self._enter():
            return self._go(len(self.frames))
        frame.need(frame.made(position))
        frame.place += 1
        return self._stop("step")

    def _enter(self) -> bool:
        """Go into the body of the next node; whether it has one, and it is run at all."""
        frame = self.frame
        position = frame.index.order[frame.place]
        if position in frame.done:
            return False
        executions = iterations(frame, position)
        inner = next(executions, None) if executions is not None else None
        if executions is None or inner is None:
            return False
        inner.iterations = executions
        self.frames.append(inner)
        return True

    def _leave(self) -> bool:
        """End a frame; whether that was the last iteration and the outer frame goes on."""
        inner = self.frames.pop()
        outer = self.frame
        outer.place = outer.index.places[inner.call]
        following = next(inner.iterations, None)
        if following is None:
            outer.done.add(inner.call)
            return True
        following.iterations = inner.iterations
        self.frames.append(following)
        return False

    def _returned(self) -> Stop:
        self.frame.place += 1
        return self._stop("returned")

    def _stop(self, reason: str, hits: Sequence[Breakpoint] = ()) -> Stop:
        frame = self.frame
        for point in hits:
            point.hits += 1
        position = frame.index.order[frame.place - 1]
        values = frame.fetch(frame.made(position))
        readings = [self._reading(frame, name, value) for name, value in values.items()]
        numbers = [point.number for point in hits if not point.temporary]
        origin = str(frame.index.origins[position])
        node = frame.describe(position)
        return Stop(reason, node, origin, readings, self._watched(), numbers)

    def _end(self) -> Stop:
        values = self.frame.fetch(list(self.index.outputs))
        readings = [self._reading(self.frame, name, value) for name, value in values.items()]
        unhit = [str(point) for point in self.breakpoints.values() if not point.hits]
        return Stop("end", "", "", readings, self._watched(), (), unhit)

    def _watched(self) -> list[Reading]:
        """What is watched and was passed."""
        readings = []
        for name in self.watched:
            try:
                frame, (own,) = self._find(name)
            except UnknownNameError:
                continue  # a value of a body that is not being run
            if frame.index.rank.get(own, -1) < frame.place:
                readings.append(self._reading(frame, own, frame.value(own)))
        return readings

    def _reading(self, frame: Frame, name: str, value: Value) -> Reading:
        position = frame.index.producer.get(name)
        kind = "an initializer" if name in frame.index.initializers else "an input"
        producer = kind if position is None else frame.describe(position)
        full = f"{frame.path}/{name}" if frame.path else name
        compared: dict[str, Comparison] = {}
        if self.references is not None and full in self.references:
            compared = compare_value(full, value, self.references.read(full), self.tolerance)
        return Reading(full, producer, statistics(full, value), compared)

    def _reference(self, name: str) -> Array | list[Array]:
        if self.references is None:
            raise ReferenceSetError(
                f"there is no reference for {name!r}: none were given",
                "start with --reference REFERENCES",
            )
        return self.references.read(name)

    def _last(self, frame: Frame) -> int | None:
        return frame.index.order[frame.place - 1] if frame.place else None

    def _find(self, name: str) -> tuple[Frame, list[str]]:
        """The innermost frame that has a value, and the value; of several, all."""
        for frame in reversed(self.frames):
            if frame.path and name.startswith(f"{frame.path}/"):
                return frame, select_values(
                    frame.index, [name.removeprefix(f"{frame.path}/")]
                ).names
        failed: UnknownNameError | None = None
        for frame in reversed(self.frames):
            try:
                return frame, select_values(frame.index, [name]).names
            except UnknownNameError as error:
                failed = error
        if failed is None:
            raise AssertionError("there is a frame")
        body = next((s for s in self.scopes.names[1:] if name in self.scopes.of(s).producer), None)
        if body is not None:
            failed.hint = f"it is computed in a body that is not being run: break {body}/{name}"
        raise failed

    def _fitting(self, frame: Frame, name: str, value: object) -> Value:
        """A value as an array that can take the place of another."""
        kind = frame.index.type_of(name) or TypeProto()
        if kind.HasField("sequence_type"):
            return [np.asarray(item) for item in value] if isinstance(value, list) else None
        dims = kind.tensor_type.shape.dim
        if kind.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            dtype = tensors.numpy_dtype(kind.tensor_type.elem_type)
            shape = tuple(d.dim_value for d in dims)
        else:
            current = np.asarray(frame.value(name))
            dtype, shape = current.dtype, current.shape
        if isinstance(value, (bool, int, float, str)):
            return np.full(shape, value, dtype)
        array = np.asarray(value, dtype) if isinstance(value, list) else np.asarray(value)
        if array.dtype != dtype or array.shape != shape:
            raise FeedsError(
                f"value {name!r} is {dtype} {list(shape)}, the array is {array.dtype} {list(array.shape)}",
                f"write .astype({dtype.name!r})"
                if array.shape == shape
                else "give it in that shape",
            )
        return array

    def _set(self, frame: Frame, name: str, value: Value) -> None:
        if value is None:
            raise FeedsError(f"value {name!r} is a sequence", "give a list of arrays")
        frame.set(name, value, type_of(value))
        if frame is self.frames[0]:
            self._overrides[name] = value

    def _mark(self) -> None:
        scopes = {scope for point in self.breakpoints.values() for scope in point.marked}
        self._inside = self.scopes.leading_to(scopes)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Have the inputs there; name the node at which the runtime dies or is interrupted, and have it work again."""
        self._machine.working = None
        self._start()
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if not self.runtime.stop():
                self._start_over()
            interrupt.add_note(self._under_way())
            raise
        except (RuntimeCrash, RuntimeTimeout) as error:
            try:
                error.add_note(self._under_way(search=True))
            finally:
                self._start_over()
            error.hint = None
            raise

    def _under_way(self, search: bool = False) -> str:
        """The node that was being computed; where there are several, the one that kills the runtime, if asked for."""
        if self._machine.working is None:
            return "while nothing was computed"
        frame, nodes = self._machine.working
        if search and len(nodes) > 1 and frame is self.frames[0]:
            targets = [name for position in nodes for name in frame.made(position)]
            given = self._overrides
            guilty = crashing_node(self.index, self._fed, self.runtime, targets, given)
            nodes = nodes if guilty is None else [guilty]
        first, last = frame.describe(nodes[0]), frame.describe(nodes[-1])
        if len(nodes) == 1:
            return f"while computing {first}"
        return f"while computing {len(nodes)} nodes, {first} to {last}; next goes node by node"

    def _start(self) -> None:
        if self._started:
            return
        missing = [name for name in required_inputs(self.index) if name not in self.feeds]
        made: Feeds = {}
        self.made = []
        if missing:
            if self.recipe is None:
                raise FeedsError(
                    f"no feed for input {', '.join(map(repr, missing))}",
                    "give it: feed NAME = ARRAY; or have it made: seed 0",
                )
            made, lines = make_feeds(self.index, self.recipe)
            said = dict(zip(made, lines, strict=True))
            self.made = [said[name] for name in missing]
        self._fed = {**{name: made[name] for name in missing}, **self.feeds}
        main = self.frames[0]
        for name, value in self._fed.items():
            main.put(name, value, self.index.inputs[name].type)
        for name, stored in self._overrides.items():
            main.put(name, stored, type_of(stored))
        self._started = True

    def _start_over(self) -> None:
        """Have a new process in place of the one that died, back in the main graph before what killed it."""
        self.runtime.restart()
        main = self.frames[0]
        if len(self.frames) > 1:
            main.place = main.index.places[self.frames[1].call]
        main.observer.kept.clear()
        main.done.clear()
        self.frames = [main]
        self._started = False

    def _back_to_main(self) -> None:
        for frame in self.frames[1:]:
            frame.forget()
        del self.frames[1:]

    def _forget_everything(self) -> None:
        for frame in self.frames:
            frame.forget()
        self.frames = [Frame(self.index, self._machine)]
        self._overrides = {}
        self._started = False
