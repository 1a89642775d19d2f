"""A model being executed: its frames, what it is fed with, and what happens when the runtime dies or is interrupted."""

import contextlib
from collections.abc import Iterator
from itertools import chain

from onnxsurgeon_lite.debug.stepping.frames import Frame, Machine
from onnxsurgeon_lite.errors import FeedsError, RuntimeLost, SurgeonError, UnknownNameError
from onnxsurgeon_lite.graph import BodyName, GraphIndex, iterations_in
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, make_feeds
from onnxsurgeon_lite.tensors.dtypes import Stored, type_of


class Execution:
    """The frames of one model on one set of feeds.

    Attributes:
        frames: the main graph first, the body that is being run last.
        ups: how many frames lie inside the one that names are resolved in.
        feeds: what was given. recipe: how the other inputs are made; None: they are missing.
        made: how inputs were made, a line each.
    """

    def __init__(self, index: GraphIndex, machine: Machine, recipe: Recipe | None) -> None:
        self.index = index
        self.machine = machine
        self.recipe = recipe
        self.feeds: Feeds = {}
        self.made = list[str]()
        self.frames = [Frame(index, machine)]
        self.ups = 0
        self._set: Feeds = {}
        self.fed: Feeds = {}  # what the runtime was given, empty before it was

    @property
    def seen(self) -> list[Frame]:
        """The frames that names are resolved in, the last one first of all."""
        return self.frames[: max(1, len(self.frames) - self.ups)]

    def load(self, index: GraphIndex) -> None:
        """Go on with another model, from its start."""
        self.index = index
        self.machine.slow.clear()
        self.feeds = {name: value for name, value in self.feeds.items() if name in index.inputs}
        self.restart()

    def restart(self) -> None:
        """Forget everything that was computed or set."""
        for frame in self.frames:
            frame.forget()
        self.frames = [Frame(self.index, self.machine)]
        self._set, self.fed = {}, {}

    def to_start(self) -> None:
        """Go back to the start of the main graph; keep its values."""
        for frame in self.frames[1:]:
            frame.forget()
        del self.frames[1:]
        self.frames[0].place = 0
        self.frames[0].done.clear()

    def find(self, name: str) -> tuple[Frame, list[str]]:
        """The innermost frame that has a value, and the values that the name means there.

        Raises:
            UnknownNameError: no frame has it.
        """
        # an exact name first, from the inner frames out; then patterns and selectors
        found = self.running(name)
        if found is not None:
            return found
        if BodyName.of(name):
            raise UnknownNameError(name, "what is being run", [])
        for frame in reversed(self.seen[1:]):
            with contextlib.suppress(UnknownNameError):
                return _home(frame, select_values(frame.index, [name]).names)
        return self.frames[0], select_values(self.index, [name]).names

    def running(self, name: str) -> tuple[Frame, list[str]] | None:
        """Find a value by its own or full name; return None where its body is not being run."""
        for frame in reversed(self.seen):
            if name in frame.index:
                return _home(frame, [name])
        # a full name of a body that is being run: `@3/body/q[2]` in iteration 2
        for frame in reversed(self.frames[1:]):
            if name.startswith(f"{frame.path}/"):
                own, numbers = iterations_in(frame.index, name.removeprefix(f"{frame.path}/"))
                if numbers == frame.numbers[: len(numbers)] and not BodyName.of(own):
                    return _home(frame, select_values(frame.index, [own]).names)
        return None

    def set(self, frame: Frame, name: str, value: Stored) -> None:
        """Go on with another value, also in the bodies being run that capture it."""
        frame.set(name, value, type_of(value))
        if frame is self.frames[0]:
            self._set[name] = value
        # inner frames have aliases of the value: they get the new one, too
        for inner in self.frames:
            if inner.outer is frame and name in inner.captured:
                self.set(inner, name, value)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Have the inputs there; where a node cannot be computed, be before it.

        It is named where the runtime does not do so itself: when it died or was interrupted. Then it works again.
        """
        self.machine.working = None
        try:
            self._start()
            yield
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(self._under_way())
            # the run was ended, and the process lives: its values stay
            if self.machine.runtime.stop():
                self._before_what_failed()
            else:
                self._start_over()
            raise
        except RuntimeLost as error:
            try:
                error.add_note(self._under_way(search=True))
                # the note says what to do next
                error.hint = None
            finally:
                self._start_over()
            raise
        except SurgeonError:
            self._before_what_failed()
            raise

    def _before_what_failed(self) -> None:
        if self.machine.working is not None:
            frame, nodes = self.machine.working
            frame.place = min(frame.place, frame.index.places[nodes[0]])

    def _start(self) -> None:
        # once for each process of the runtime: a new one has no values
        if self.fed or not (self.index.inputs or self._set):
            return
        self.index.require_sound()
        missing = [name for name in self.index.required_inputs if name not in self.feeds]
        made = self._make(missing) if missing else {}
        main = self.frames[0]
        feeds = {**made, **self.feeds}
        for name, value in feeds.items():
            main.put(name, value, self.index.inputs[name].type)
        for name, value in self._set.items():
            main.put(name, value)
        self.fed = feeds

    def _make(self, missing: list[str]) -> Feeds:
        if self.recipe is None:
            raise FeedsError(
                f"no feed for input {', '.join(map(repr, missing))}",
                "give it: feed NAME = ARRAY; or have it made: seed 0",
            )
        made, lines = make_feeds(self.index, self.recipe)
        said = dict(zip(made, lines, strict=True))
        self.made = [said[name] for name in missing]
        return {name: made[name] for name in missing}

    def _under_way(self, search: bool = False) -> str:
        """The node that was being computed; of several the one that kills the runtime, if it is to be searched for.

        If it cannot be decided, they are run one by one from then on, so that it can be the next time.
        """
        if self.machine.working is None:
            return "nothing was being computed"
        frame, nodes = self.machine.working
        # A crash among several nodes of the main graph: run ever shorter prefixes to find it. The import is here since
        # few sessions crash.
        if search and len(nodes) > 1 and frame is self.frames[0]:
            from onnxsurgeon_lite.debug.bisection.crash import crashing_node

            targets = list(chain.from_iterable(map(frame.made, nodes)))
            runtime = self.machine.runtime
            guilty = crashing_node(self.index, self.fed, runtime, targets, dict(self._set))
            nodes = nodes if guilty is None else [guilty]
        first, last = frame.describe(nodes[0]), frame.describe(nodes[-1])
        if len(nodes) == 1:
            return f"while computing {first}"
        self.machine.slow.update((frame.scope, position) for position in nodes)
        return f"while computing {len(nodes)} nodes, {first} to {last}; they run one by one from now on"

    def _start_over(self) -> None:
        """Have a new process in place of the one that died, in the main graph before what killed it."""
        self._before_what_failed()
        self.machine.runtime.restart()
        main = self.frames[0]
        if len(self.frames) > 1:
            main.place = main.index.places[self.frames[1].call]
        main.observer.kept.clear()
        main.done.clear()
        self.frames = [main]
        self.fed = {}


def _home(frame: Frame, names: list[str]) -> tuple[Frame, list[str]]:
    """The body's own values; those of the frame they come from where all are captured."""
    own = [name for name in names if name not in frame.captured]
    if own or frame.outer is None:
        return frame, own
    return _home(frame.outer, names)
