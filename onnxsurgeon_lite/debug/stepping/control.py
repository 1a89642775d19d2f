"""Run the bodies of If, Loop, Scan and function calls, iteration by iteration.

Each is a generator of frames: it gives the frame of an execution, is resumed when that was run to its end, and puts
the results into the outer frame at last. It is what the runtime does: a Loop ends when its body says so, also where
the condition was omitted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from onnx import FunctionProto

from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.debug.stepping.places import body_scope
from onnxsurgeon_lite.graph import FUNCTION, GraphIndex, InnerGraph, dims_of, function_of
from onnxsurgeon_lite.model import integer, is_standard, scan_layout, walk
from onnxsurgeon_lite.tensors.dtypes import Array

_FIRST_SCAN = 9  # the opset from which on Scan has no batch dimension


def iterations(outer: Frame, position: int) -> Iterator[Frame] | None:
    """The executions of a node's body, None where it has none that can be stepped into."""
    node = outer.index.nodes[position]
    # a function comes first: its domain may be any
    function = function_of(outer.index, node)
    if function is not None:
        return _call(outer, position, function)
    if not is_standard(node) or steps_over(outer.index, position):
        return None
    match node.op_type:
        case "If":
            return _branch(outer, position)
        case "Loop":
            return _loop(outer, position)
        case "Scan":
            return _scan(outer, position)
    return None


def steps_over(index: GraphIndex, position: int) -> bool:
    """Return True where no body can be stepped into: SequenceMap, Scan before opset 9, a custom operator."""
    node = index.nodes[position]
    if not node.attribute or not walk.bodies(node):
        return False
    known = is_standard(node) and node.op_type in ("If", "Loop", "Scan")
    return not known or (node.op_type == "Scan" and index.opset < _FIRST_SCAN)


@dataclass(frozen=True)
class _FrameBody:
    """A body that a node of the outer frame runs."""

    outer: Frame
    position: int
    name: str
    body: InnerGraph

    @classmethod
    def of(cls, outer: Frame, position: int, name: str) -> "_FrameBody":
        """Return a body of a node."""
        return cls(outer, position, name, InnerGraph.of(outer.typed, position, name))

    @property
    def inputs(self) -> list[str]:
        """The inputs, then the captured values."""
        return [value.name for value in self.body.index.graph.input]

    @property
    def results(self) -> list[str]:
        """The outputs."""
        return [value.name for value in self.body.index.graph.output]

    def enter(self, number: int | None = None, given: Mapping[str, str] | None = None) -> Frame:
        """A frame of one execution, with what it captures and is given.

        Args:
            number: of the iteration.
            given: its name -> the outer one.
        """
        outer, index = self.outer, self.body.index
        scope = body_scope(outer.index, outer.scope, self.position, self.name)
        numbers = outer.numbers if number is None else outer.numbers + (number,)
        path = f"{outer.path}/@{self.position}/{self.name}".lstrip("/")
        captured = self.body.captured
        inner = Frame(index, outer.machine, path, scope, numbers, outer, self.position, captured)
        # An initializer of the body's model needs no copy, unless the outer frame has set another value.
        kept = outer.observer.kept
        wanted = {**{name: name for name in captured}, **(given or {})}
        taken = {n: o for n, o in wanted.items() if o in kept or n not in index.initializers}
        inner.take(taken, outer)
        return inner

    def following(
        self,
        before: Frame | None,
        number: int,
        given: Mapping[str, Array],
        states: Mapping[str, tuple[str, str]],
    ) -> Frame:
        """A frame of the next iteration; the one before is given up.

        Args:
            given: inputs of its own, with their numbers.
            states: its other inputs -> the outer value that they begin as, the result that they go on as.
        """
        inner = self.enter(number)
        for name, array in given.items():
            inner.put(name, array)
        # the first iteration begins with outer values, later ones with the results of the one before
        if before is None:
            inner.take({name: start for name, (start, _) in states.items()}, self.outer)
        else:
            inner.take({name: result for name, (_, result) in states.items()}, before)
            inner.touched = before.touched
            before.forget()
        return inner


def _call(outer: Frame, position: int, function: FunctionProto) -> Iterator[Frame]:
    given = zip(function.input, outer.index.nodes[position].input, strict=False)
    names = {name: theirs for name, theirs in given if theirs}
    return _once(_FrameBody.of(outer, position, FUNCTION), names)


def _branch(outer: Frame, position: int) -> Iterator[Frame]:
    condition = outer.index.nodes[position].input[0]
    # only the branch that is taken has a frame
    name = "then_branch" if _truth(outer, condition) else "else_branch"
    yield from _once(_FrameBody.of(outer, position, name))


def _once(body: _FrameBody, given: Mapping[str, str] | None = None) -> Iterator[Frame]:
    """The one execution of a body."""
    inner = body.enter(given=given)
    yield inner
    _return(body, inner, body.results)
    inner.forget()


def _loop(outer: Frame, position: int) -> Iterator[Frame]:
    node = outer.index.nodes[position]
    # Loop: inputs (trip count, condition, states); body: (number, condition, states) -> (condition, states, scans)
    limit, condition, *states = [*node.input, "", ""][: max(2, len(node.input))]
    body = _FrameBody.of(outer, position, "body")
    number, going, *formal = body.inputs
    goes, *results = body.results
    # trip count and condition may both be omitted
    most = int(_array(outer, limit).ravel()[0]) if limit else None
    goes_on = _truth(outer, condition) if condition else True
    # a list for each scan output: one slice an iteration
    stacks: list[list[Array]] = [[] for _ in results[len(states) :]]
    carried = dict(zip(formal, zip(states, results, strict=False), strict=False))
    # the number and the condition may be declared to be lists of one
    formals = body.body.index.graph.input[:2]
    shapes = [(1,) * min(1, len(dims_of(value.type))) for value in formals]
    # the generator rests at `yield` while the frame is stepped through
    inner, done = None, 0
    while goes_on and (most is None or done < most):
        given = {number: np.full(shapes[0], done, np.int64), going: np.full(shapes[1], True)}
        inner = body.following(inner, done, given, carried)
        yield inner
        goes_on = _truth(inner, goes)
        for stack, name in zip(stacks, results[len(states) :], strict=True):
            stack.append(_array(inner, name))
        done += 1
    if inner is None:
        return  # the node alone knows the shape of what no iteration gives
    _return(body, inner, results[: len(states)])
    zeros = [0] * len(stacks)
    _stack(outer, node.output[len(states) :], inner, stacks, zeros, zeros)
    inner.forget()


def _scan(outer: Frame, position: int) -> Iterator[Frame]:
    node = outer.index.nodes[position]
    count = integer(node, "num_scan_inputs")
    first = len(node.input) - count
    body = _FrameBody.of(outer, position, "body")
    # Scan: inputs (states, scanned), body: (states, slices) -> (states, slices)
    states = node.input[:first]
    formal = body.inputs
    results = body.results
    axes, backwards = scan_layout(node, "input", count)
    arrays = [_array(outer, name) for name in node.input[first:]]
    # the scanned axis first, so that items are slices
    slices = [np.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes, strict=True)]
    stacks: list[list[Array]] = [[] for _ in results[first:]]
    carried = dict(zip(formal, zip(states, results, strict=False), strict=False))
    inner = None
    for done in range(len(slices[0])):
        given = {
            name: np.array(items[-1 - done if reverse else done])
            for name, items, reverse in zip(formal[first:], slices, backwards, strict=False)
        }
        inner = body.following(inner, done, given, carried)
        yield inner
        for stack, name in zip(stacks, results[first:], strict=True):
            stack.append(_array(inner, name))
    if inner is None:
        return
    _return(body, inner, results[:first])
    axes, backwards = scan_layout(node, "output", len(stacks))
    _stack(outer, node.output[first:], inner, stacks, axes, backwards)
    inner.forget()


def _return(body: _FrameBody, inner: Frame, results: Sequence[str]) -> None:
    """Give the outer frame what a body computed."""
    names = body.outer.index.nodes[body.position].output
    given = {name: theirs for name, theirs in zip(names, results, strict=False) if name}
    body.outer.take(given, inner)
    _settle(body.outer, given, inner)


def _stack(
    outer: Frame,
    names: Sequence[str],
    inner: Frame,
    stacks: Sequence[Sequence[Array]],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> None:
    """Give the outer frame what the iterations computed, one slice each."""
    for name, slices, axis, reverse in zip(names, stacks, axes, backwards, strict=False):
        if name:
            array = np.stack(slices[::-1] if reverse else slices, axis)
            outer.put(name, array)
    _settle(outer, names, inner)


def _settle(outer: Frame, names: Iterable[str], inner: Frame) -> None:
    """Let the outputs be computed again by running the whole node, unless a value was set inside."""
    if inner.touched:
        outer.touched = True
    else:
        outer.fixed.difference_update(names)


def _array(frame: Frame, name: str) -> Array:
    return cast(Array, frame.value(name))


def _truth(frame: Frame, name: str) -> bool:
    return bool(_array(frame, name).ravel()[0])
