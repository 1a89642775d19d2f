"""Going on: to the next node, into bodies and out of them, to the next breakpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoint, Breakpoints, Facts
from onnxsurgeon_lite.debug.stepping.control import iterations, steps_over
from onnxsurgeon_lite.debug.stepping.execution import Execution
from onnxsurgeon_lite.debug.stepping.frames import Frame

_BATCH = 32  # conditions whose values are computed together


@dataclass(frozen=True)
class Halt:
    """Why it stopped: `breakpoint`, `step`, `over` (a body that it cannot go into), `returned` from one, or `end`."""

    reason: str
    hits: Sequence[Breakpoint] = ()


@dataclass
class Stepper:
    """Moves an execution on; it always stops after a node that was computed, or at the end."""

    execution: Execution
    points: Breakpoints

    @property
    def frame(self) -> Frame:
        """The innermost frame."""
        return self.execution.frames[-1]

    def go(self, depth: int = 0) -> Halt:
        """Run to the next breakpoint, to the end, or until fewer frames than `depth` are left."""
        while True:
            halt = self._to_breakpoint()
            if halt is not None:
                return halt
            # the end of a frame: leave it, or go on with its next iteration; stop where `depth` asks for it
            if self.frame.ended:
                if len(self.execution.frames) == 1:
                    return Halt("end")
                if self._leave() and len(self.execution.frames) < depth:
                    return self._returned()

    def next(self) -> Halt:
        """Compute the next node; a body that it runs is run at once, unless a breakpoint lies inside."""
        frame = self.frame
        if frame.ended:
            if len(self.execution.frames) == 1:
                return Halt("end")
            return self._returned() if self._leave() else self.next()
        position = frame.index.order[frame.place]
        if position in self.points.inside.get(frame.scope, ()) and self._enter():
            return self.go(len(self.execution.frames))
        frame.need(frame.made(position))
        frame.place += 1
        return Halt("step")

    def step(self) -> Halt:
        """Compute the next node; go into bodies."""
        if self.frame.ended and len(self.execution.frames) > 1 and self._leave():
            return self._returned()
        # a body may begin with a node that has a body
        while not self.frame.ended and self._enter():
            pass
        frame = self.frame
        over = not frame.ended and steps_over(frame.index, frame.index.order[frame.place])
        halt = self.next()
        return Halt("over") if over and halt.reason == "step" else halt

    def _to_breakpoint(self) -> Halt | None:
        """Go on in this frame: to a stop, into a body that holds a breakpoint, or to its end."""
        frame = self.frame
        ahead = self.points.ahead(self.frame)
        # only places with a breakpoint, or a body that holds one, are visited; the nodes between are not computed
        for number, place in enumerate(ahead):
            position = frame.index.order[place]
            frame.place = place
            if position in self.points.inside.get(frame.scope, ()) and self._enter():
                return None
            points = self.points.at(frame, position)
            if points:
                self._prefetch(ahead[number:])
            facts = partial(self._facts, position)
            hits = [point for point in points if point.holds(facts)]
            if hits:
                frame.place += 1
                return Halt("breakpoint", hits)
        # no more breakpoints here: the frame is passed
        frame.place = len(frame.index.nodes)
        return None

    def _prefetch(self, places: Sequence[int]) -> None:
        """Compute what conditions are about, for several of them together, up to where it stops anyway."""
        frame = self.frame
        wanted = list[str]()
        for place in places[:_BATCH]:
            position = frame.index.order[place]
            made = frame.made(position)
            if not wanted and frame.observer.kept.keys() >= set(made):
                return  # with one before
            if wanted and position in self.points.inside.get(frame.scope, ()):
                break
            wanted += made
            if any(point.condition is None for point in self.points.at(frame, position)):
                break
        frame.need(wanted)

    def _facts(self, position: int) -> Facts:
        """Return what conditions see of a node."""
        frame = self.frame
        outs = list(frame.fetch(frame.made(position)).values())
        first = outs[0] if outs else None
        node = frame.describe(position)
        iteration = frame.iteration
        return {"out": first, "outs": outs, "node": node, "iteration": iteration}

    def _enter(self) -> bool:
        """Go into the body of the next node; whether it has one, and it is run at all."""
        frame = self.frame
        position = frame.index.order[frame.place]
        # `done`: the body was stepped through already, and its results are there
        executions = None if position in frame.done else iterations(frame, position)
        inner = next(executions, None) if executions is not None else None
        if executions is None or inner is None:
            return False
        inner.iterations = executions
        self.execution.frames.append(inner)
        return True

    def _leave(self) -> bool:
        """End a frame; whether that was the last iteration, and the outer frame goes on."""
        inner = self.execution.frames.pop()
        outer = self.frame
        outer.place = outer.index.places[inner.call]
        # resume the generator of `control`: it gives the next iteration, or settles the results and ends
        following = next(inner.iterations, None)
        if following is None:
            outer.done.add(inner.call)
            return True
        following.iterations = inner.iterations
        self.execution.frames.append(following)
        return False

    def _returned(self) -> Halt:
        self.frame.place += 1
        return Halt("returned")
