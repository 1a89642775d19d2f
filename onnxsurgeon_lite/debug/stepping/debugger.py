"""A model under a debugger: break, run, step, look, change a value, go on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import cast

import numpy as np
from onnx import TypeProto

from onnxsurgeon_lite.debug.stepping.breakpoints import (
    Breakpoint,
    Breakpoints,
    Condition,
    expression,
)
from onnxsurgeon_lite.debug.stepping.execution import Execution
from onnxsurgeon_lite.debug.stepping.frames import Frame, Machine
from onnxsurgeon_lite.debug.stepping.looking import Level, Listing, Looker, Readings, Stack, Stop
from onnxsurgeon_lite.debug.stepping.places import Scopes
from onnxsurgeon_lite.debug.stepping.stepping import Halt, Stepper
from onnxsurgeon_lite.errors import FeedsError, SurgeonError, UsageError
from onnxsurgeon_lite.graph import GraphIndex, at, fixed_shape
from onnxsurgeon_lite.graph.selecting.select import required, select_node
from onnxsurgeon_lite.matching.given import require_same_inputs
from onnxsurgeon_lite.matching.values import alignment, feeds_in_order, needs_alignment
from onnxsurgeon_lite.model import Model, ModelLike, loaded
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, check_feed
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.comparison import Tolerance
from onnxsurgeon_lite.tensors.dtypes import DType, RunValue, Stored
from onnxsurgeon_lite.tensors.references import ReferenceSet, Tensors, open_references

BUDGET = 1 << 28  # bytes
AROUND = 5  # nodes on either side of the one that is listed


class Debugger:
    """Steps through one model on one set of feeds, in topological order; a context manager.

    It stops after nodes. Values are computed when they are looked at, or when a stop needs them, with what they need
    and no more; optimization is off, so that they are what the model as it is written gives.

    Attributes:
        breakpoints: to be iterated.
        names: what conditions can use, besides the facts about a node and numpy.

    Example:
        >>> with osl.Debugger("whole_model.onnx", references="references/whole_model.npz") as dbg:
        ...     _ = dbg.break_("Add_7")
        ...     print(dbg.run().node)
        Add 'Add_7' (@7)
    """

    def __init__(
        self,
        model: ModelLike,
        feeds: Tensors | None = None,
        references: Tensors | None = None,
        runtime: Runtime | None = None,
        recipe: Recipe | None = None,
        tolerance: Tolerance | None = None,
        budget: int = BUDGET,
        *,
        map: str | PathLike[str] | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            model: a path, a file's bytes, a `ModelProto` or a `Model`.
            feeds: input name -> array, or a path; without them what the references hold of them.
            references: what values are compared with: a path, name -> array, a `ReferenceSet`.
            map: how references get the model's names: `auto`, `names` or a file of `match`.
            runtime: one of its own without it.
            recipe: how inputs that are not given are made.
            budget: bytes of values that are kept, so that they need not be computed again.

        Raises:
            GraphError: two nodes produce one value.
            FeedsError: a feed that the model does not have, or declares otherwise.
        """
        index = GraphIndex.of(loaded(model))
        # without optimization, so that every value of the model as written exists
        self.runtime = runtime or Runtime(RuntimeOptions(opt="none", lean=True))
        try:
            stored, fed = _fitted(index, feeds, references, self.runtime, map)
        # the process of the runtime must not outlive a constructor that failed
        except SurgeonError:
            self.runtime.__exit__()
            raise
        self._execution = Execution(index, Machine(self.runtime, budget), recipe)
        self.breakpoints = Breakpoints(Scopes(index))
        self._stepper = Stepper(self._execution, self.breakpoints)
        self._looker = Looker(
            self._execution,
            self.breakpoints,
            stored,
            tolerance,
            recorded=dict(fed),
        )
        self.names: Mapping[str, object] = {"dbg": self}
        for name, value in fed.items():
            self.feed(name, value)

    def __enter__(self) -> "Debugger":
        return self

    def __exit__(self, *exception: object) -> None:
        self.runtime.__exit__()

    @property
    def frame(self) -> Frame:
        """The innermost frame."""
        return self._execution.frames[-1]

    @property
    def frames(self) -> list[Frame]:
        """The frames that names are resolved in, the main graph first."""
        return self._execution.seen

    def _position(self, frame: Frame) -> int | None:
        """The node of a frame that was computed last, or runs the next frame."""
        frames = self._execution.frames
        # a frame that has an inner one waits at the node that runs it
        inner = next((f for f in frames if f.outer is frame), None)
        return inner.call if inner is not None else _last(frame)

    @property
    def index(self) -> GraphIndex:
        """The main graph."""
        return self._execution.index

    @property
    def references(self) -> ReferenceSet | None:
        """The references that values of the same name are compared with."""
        return self._looker.references

    @references.setter
    def references(self, references: ReferenceSet | None) -> None:
        self._looker.references, self._looker.recorded = references, {}

    def required_references(self) -> ReferenceSet:
        """The references, of the inputs that the model has now.

        Raises:
            ReferenceSetError: there are none, or they belong to other inputs.
        """
        return self._looker.required()

    @property
    def other_inputs(self) -> str:
        """Which input is another one than the references belong to: values are not compared then."""
        return self._looker.other_inputs()

    @property
    def watched(self) -> list[str]:
        """Values that every stop shows."""
        return self._looker.watched

    @property
    def made(self) -> list[str]:
        """A line for each input that was made."""
        return self._execution.made

    @property
    def feeds(self) -> Feeds:
        """The inputs, given or made."""
        with self._execution.at_work():
            return dict(self._execution.fed)

    def load(self, model: Model) -> list[str]:
        """Go on with another model, from its start; returns the breakpoints that have no node in it.

        Raises:
            GraphError: as for a new debugger.
        """
        index = GraphIndex.of(model)
        self._execution.load(index)
        return self.breakpoints.move(Scopes(index))

    @property
    def place(self) -> str:
        """The id of the node that it stopped after; '' at the start."""
        position = _last(self.frame)
        return "" if position is None else self.frame.node_id(position)

    def where(self) -> Stack:
        """The frames, the main graph first, each with its node."""
        # `up` moves where names are resolved, not what is run: the chosen frame may be another than the last
        frames = self._execution.frames
        chosen = self.frames[-1]
        levels = Stack()
        for frame in frames:
            position = self._position(frame)
            node = "" if position is None else frame.describe(position)
            origin = "" if position is None else str(frame.index.origins[position])
            graph = at(frame.path, frame.numbers)
            marked = frame is chosen is not frames[-1]
            levels.append(Level(graph, node, origin, frame.place, len(frame.index.nodes), marked))
        return levels

    def up(self, frames: int = 1) -> Stack:
        """Resolve names so many frames further out, or in if negative, until a node is computed.

        Raises:
            UsageError: there is no such frame.
        """
        # 0: the innermost frame
        ups = self._execution.ups + frames
        if not 0 <= ups < len(self._execution.frames):
            raise UsageError(f"there is no frame further {'out' if frames > 0 else 'in'}")
        self._execution.ups = ups
        return self.where()

    def list_(
        self, around: str | None = None, start: int | None = None, whole: bool = False
    ) -> Listing:
        """List the nodes around where it stopped, or around another; those from a place on; or all.

        Raises:
            UnknownNameError, AmbiguousNameError: the frame has no such node, or several.
        """
        frame = self.frames[-1]
        index = frame.index
        here = self._position(frame)
        center = here if around is None else select_node(index, around)
        if start is None:
            start = 0 if center is None else max(0, index.places[center] - AROUND)
        listing = Listing()
        # where the next `list` goes on
        listing.end = len(index.nodes) if whole else start + 2 * AROUND + 1
        for position in index.order[0 if whole else start : listing.end]:
            made = list(index.outputs_of([position]))
            edges = f"{', '.join(index.reads[position])} -> {', '.join(made)}"
            stops = "B" if self.breakpoints.at(frame, position) else " "
            # each line: B for a breakpoint, -> for the node that was computed last, what it is, what it reads and makes
            mark = "->" if position == here else "  "
            listing.append(f"{stops}{mark} {frame.describe(position)}: {edges}")
        return listing

    def break_(
        self, selector: str, condition: str | Condition | None = None, temporary: bool = False
    ) -> Breakpoint:
        """Stop after the nodes that a selector means, where the condition holds; if temporary, once.

        Raises:
            UnknownNameError, UsageError: there is no such node, or the condition uses a name that is not known.
            SyntaxError: the condition is not a Python expression.
        """
        text = condition if isinstance(condition, str) else ""
        holds = expression(condition, self.names) if isinstance(condition, str) else condition
        return self.breakpoints.add(required(selector), holds, text, temporary)

    def delete(self, *numbers: int) -> None:
        """Remove breakpoints; all of them where none is named.

        Raises:
            UnknownNameError: no breakpoint has that number.
        """
        for number in numbers or [point.number for point in self.breakpoints]:
            self.breakpoints.delete(number)

    def run(self) -> Stop:
        """Run from the start to the first breakpoint; computed, set and healed values stay."""
        self._execution.to_start()
        return self.continue_()

    def continue_(self) -> Stop:
        """Run to the next breakpoint, or to the end."""
        return self._move(self._stepper.go)

    def next(self) -> Stop:
        """Compute the next node; bodies that it runs are run at once."""
        return self._move(self._stepper.next)

    def step(self) -> Stop:
        """Compute the next node; go into the body of an If, Loop or Scan, and into functions."""
        return self._move(self._stepper.step)

    def out(self) -> Stop:
        """Run the body to its end, all iterations of it, and stop after the node that runs it."""
        return self._move(lambda: self._stepper.go(len(self._execution.frames)))

    def until(self, selector: str | None = None) -> Stop:
        """Run to a node; without one, compute the next node, or at the end of an iteration finish the loop."""
        if selector is None:
            return self.out() if self.frame.ended else self.next()
        # number 0: a breakpoint for this move alone, removed whatever happens
        point = self.breakpoints.add(selector, number=0)
        try:
            return self.continue_()
        finally:
            self.breakpoints.delete(point.number)

    def restart(self) -> Stop:
        """Go back to the start and forget every computed, set and healed value."""
        self._execution.restart()
        return Stop("start")

    def __getitem__(self, name: str) -> RunValue:
        """A value's numbers: of this frame, else of those around it; `@3/body/v` of the one it names."""
        return self.read(name)[0].value

    def read(self, name: str) -> Readings:
        """Values with their numbers, compared where there are references.

        Those of a body that is not being run are computed aside, each time that the body runs.

        Raises:
            UnknownNameError: there is none.
        """
        return self._looker.read(required(name))

    def compare(self, name: str) -> Readings:
        """Values against their references.

        Raises:
            ReferenceSetError: there is none.
        """
        readings = self.read(name)
        for reading in readings:
            self._looker.reference(reading.name)
        return Readings(replace(reading, value=None) for reading in readings)

    def watch(self, name: str) -> list[str]:
        """Show a value at every stop; watching it again ends that."""
        self._looker.watch(name)
        return self.watched

    def set(self, name: str, value: object) -> Readings:
        """Give a value other numbers; a single number fills its shape.

        Raises:
            FeedsError: another dtype or shape.
        """
        frame, names = self._looker.find(name)
        with self._execution.at_work():
            arrays = {each: fitting(frame, each, value) for each in names}
            return self._set(frame, arrays)

    def heal(self, name: str) -> Readings:
        """Go on with the references of values.

        Raises:
            ReferenceSetError: there is none.
        """
        frame, names = self._looker.find(name)
        with self._execution.at_work():
            return self._set(
                frame, {each: self._looker.reference(frame.name(each)) for each in names}
            )

    def feed(self, name: str, value: object) -> None:
        """Give an input, and start again.

        Raises:
            FeedsError: there is no such input, or it is declared otherwise.
        """
        array = value if isinstance(value, list) else np.asarray(value)
        check_feed(self._execution.index, name, array)
        self._execution.feeds[name] = array
        self._execution.restart()

    def seed(self, number: int) -> None:
        """Have the inputs that are not given made, and start again."""
        # Inputs that were made so far are those of the references; other inputs, which the new seed makes, are compared
        # with them before values are.
        if self.references is not None and self._execution.recipe is not None:
            self._looker.note_inputs(self.feeds)
        self._execution.recipe = replace(self._execution.recipe or Recipe(), seed=number)
        self._execution.restart()
        if self.references is not None:
            self._looker.note_inputs(self.feeds)

    def _set(self, frame: Frame, values: Mapping[str, Stored]) -> Readings:
        for name, value in values.items():
            self._execution.set(frame, name, value)
        return self._looker.readings(frame, values)

    def _move(self, go: Callable[[], Halt]) -> Stop:
        # every move resolves names in the innermost frame again
        self._execution.ups = 0
        with self._execution.at_work():
            return self._stopped(go())

    def _stopped(self, halt: Halt) -> Stop:
        frame = self.frame
        watched = self._looker.at_stop()
        if halt.reason == "end":
            readings = self._looker.readings(frame, frame.fetch(list(frame.index.outputs)))
            unhit = [str(point) for point in self.breakpoints if not point.hits]
            return Stop("end", readings=readings, watched=watched, unhit=unhit)
        # `place` nodes were passed, so this is the last one
        position = frame.index.order[frame.place - 1]
        for point in halt.hits:
            point.hits += 1
            if point.temporary:
                self.breakpoints.delete(point.number)
        return Stop(
            halt.reason,
            frame.describe(position),
            str(frame.index.origins[position]),
            self._looker.readings(frame, frame.fetch(frame.made(position))),
            watched,
            [point.number for point in halt.hits if point.number],
        )


def _last(frame: Frame) -> int | None:
    return frame.index.order[frame.place - 1] if frame.place else None


def _fitted(
    index: GraphIndex,
    feeds: Tensors | None,
    references: Tensors | None,
    runtime: Runtime,
    map: str | PathLike[str] | None,
) -> tuple[ReferenceSet | None, Feeds]:
    """The references under the model's names, and what it is fed with."""
    # where tensors have no names (test_data_set_0), the order of inputs and outputs gives them
    names = index.required_inputs, list(index.outputs)
    stored = None if references is None else open_references(references, *names)
    # a set of references often holds the inputs, too
    given = stored if feeds is None else open_references(feeds, *names)
    if given is None:
        return stored, {}
    how = None if map is None else fspath(map)
    if stored is not None and needs_alignment(stored, index, how):
        fed = feeds_in_order(index, given)
        require_same_inputs(index, stored, fed)
        return alignment(stored, index, fed, runtime, how).of(stored, index), fed
    # a mapping is taken whole, so that a name that the model lacks is an error; a file may hold more than inputs
    own = list(feeds) if isinstance(feeds, Mapping) else [n for n in index.inputs if n in given]
    fed = {name: given.read(name) for name in own}
    return stored, fed if stored is None else require_same_inputs(index, stored, fed)


def fitting(frame: Frame, name: str, value: object) -> Stored:
    """A value as the graph has it there; a single number fills its shape.

    Raises:
        FeedsError: another dtype or shape.
    """
    kind = frame.index.type_of(name) or TypeProto()
    if kind.HasField("sequence_type"):
        if not isinstance(value, list):
            raise FeedsError(f"value {name!r} is a sequence", "give a list of arrays")
        return [np.asarray(item) for item in value]
    dtype, shape = _expected(frame, name, kind)
    try:
        if isinstance(value, (bool, int, float, str)):
            return np.full(shape, value, dtype)
        # a list is text of numbers, and takes the dtype of the value; an array must have it already
        array = np.asarray(value, dtype) if isinstance(value, list) else np.asarray(value)
        if array.dtype.hasobject and not dtype.hasobject:
            raise TypeError("it holds no numbers")
    except (ValueError, TypeError, OverflowError) as error:
        raise FeedsError(
            f"value {name!r} is {dtype} {list(shape)}, which {value!r} cannot be: {error}",
            "give a number for all of it, or an array",
        ) from error
    if array.dtype == dtype and array.shape == tuple(shape):
        return array
    wrong = f"{array.dtype} {list(array.shape)}"
    raise FeedsError(
        f"value {name!r} is {dtype} {list(shape)}, the array is {wrong}",
        "give it in that shape"
        if array.shape != tuple(shape)
        else f"convert it: .astype({dtype.name!r})",
    )


def _expected(frame: Frame, name: str, kind: TypeProto) -> tuple[DType, Sequence[int]]:
    """(dtype, shape): as declared where that is fixed, else as computed."""
    shape = fixed_shape(kind)
    if shape is not None:
        return dtypes.numpy_dtype(kind.tensor_type.elem_type), shape
    current = cast(dtypes.Array, frame.value(name))
    return current.dtype, current.shape
