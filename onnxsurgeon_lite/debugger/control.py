"""How If, Loop, Scan and function calls run their bodies, iteration by iteration.

Each is a generator of frames: it gives the frame of an execution, is resumed when that was run to its end, and puts
the results into the outer frame at last. It is what the runtime does: a Loop ends when its body says so, also where
the condition was omitted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import numpy as np
from onnx import FunctionProto, GraphProto

from onnxsurgeon_lite import walk
from onnxsurgeon_lite.debugger.bodies import function_body, function_of, graph_body, ints
from onnxsurgeon_lite.debugger.frames import Frame
from onnxsurgeon_lite.graph import GraphIndex, function_key
from onnxsurgeon_lite.tensors import Array, type_of

_FIRST_SCAN = 9  # the opset from which on Scan has no batch dimension


def iterations(outer: Frame, position: int) -> Iterator[Frame] | None:
    """The executions of a node's body, None where it has none that can be stepped into."""
    node = outer.index.nodes[position]
    function = function_of(outer.index, node)
    if function is not None:
        return _call(outer, position, function)
    if node.domain not in ("", "ai.onnx"):
        return None
    match node.op_type:
        case "If":
            return _branch(outer, position)
        case "Loop":
            return _loop(outer, position)
        case "Scan" if _opset(outer.index) >= _FIRST_SCAN:
            return _scan(outer, position)
    return None


def function_scope(function: FunctionProto) -> str:
    """What breakpoints call a function: `fn:domain::name`."""
    return f"fn:{'::'.join(filter(None, function_key(function)))}"


def _opset(index: GraphIndex) -> int:
    opsets = index.model.proto.opset_import
    return next((o.version for o in opsets if o.domain in ("", "ai.onnx")), 1)


def _call(outer: Frame, position: int, function: FunctionProto) -> Iterator[Frame]:
    node = outer.index.nodes[position]
    index, values = function_body(outer.index, function, node)
    scope = function_scope(function)
    path = f"{outer.node_id(position)}/{scope}"
    inner = Frame(index, outer.machine, path, scope, position)
    inner.take(values, outer)
    yield inner
    _return(outer, node.output, inner, list(function.output))
    inner.forget()


def _branch(outer: Frame, position: int) -> Iterator[Frame]:
    node = outer.index.nodes[position]
    name = "then_branch" if _truth(outer, node.input[0]) else "else_branch"
    graph = dict(walk.bodies(node))[name]
    inner = _bodies(outer, position, name, graph)(None)
    yield inner
    _return(outer, node.output, inner, _names(graph))
    inner.forget()


def _loop(outer: Frame, position: int) -> Iterator[Frame]:
    node = outer.index.nodes[position]
    graph = dict(walk.bodies(node))["body"]
    limit, condition, *states = [*node.input, "", ""][: max(2, len(node.input))]
    number, going, *formal = (value.name for value in graph.input)
    goes, *results = _names(graph)
    most = int(_array(outer, limit).reshape(-1)[0]) if limit else None
    goes_on = _truth(outer, condition) if condition else True
    body = _bodies(outer, position, "body", graph)
    stacks: list[list[Array]] = [[] for _ in results[len(states) :]]
    inner, done = None, 0
    while goes_on and (most is None or done < most):
        before, inner = inner, body(done)
        _give(inner, number, np.full(_shape(graph, 0), done, np.int64))
        _give(inner, going, np.full(_shape(graph, 1), True))
        source, names = (before, results) if before is not None else (outer, states)
        inner.take(dict(zip(formal, names, strict=False)), source)
        if before is not None:
            before.forget()
        yield inner
        goes_on = _truth(inner, goes)
        for stack, name in zip(stacks, results[len(states) :], strict=True):
            stack.append(_array(inner, name))
        done += 1
    if inner is None:
        return  # the node alone knows the shape of what no iteration gives
    _return(outer, node.output, inner, results[: len(states)])
    zeros = [0] * len(stacks)
    _stack(outer, node.output[len(states) :], inner, stacks, zeros, zeros)
    inner.forget()


def _scan(outer: Frame, position: int) -> Iterator[Frame]:
    node = outer.index.nodes[position]
    graph = dict(walk.bodies(node))["body"]
    count = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
    first = len(node.input) - count
    states, formal, results = node.input[:first], [v.name for v in graph.input], _names(graph)
    axes = ints(node, "scan_input_axes", count)
    backwards = ints(node, "scan_input_directions", count)
    arrays = [_array(outer, name) for name in node.input[first:]]
    slices = [np.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes, strict=True)]
    body = _bodies(outer, position, "body", graph)
    stacks: list[list[Array]] = [[] for _ in results[first:]]
    inner = None
    for done in range(len(slices[0])):
        before, inner = inner, body(done)
        for name, items, reverse in zip(formal[first:], slices, backwards, strict=True):
            _give(inner, name, np.array(items[-1 - done if reverse else done]))
        source, names = (before, results) if before is not None else (outer, states)
        inner.take(dict(zip(formal[:first], names, strict=False)), source)
        if before is not None:
            before.forget()
        yield inner
        for stack, name in zip(stacks, results[first:], strict=True):
            stack.append(_array(inner, name))
    if inner is None:
        return
    _return(outer, node.output, inner, results[:first])
    output_axes = ints(node, "scan_output_axes", len(stacks))
    reversed_ = ints(node, "scan_output_directions", len(stacks))
    _stack(outer, node.output[first:], inner, stacks, output_axes, reversed_)
    inner.forget()


def _bodies(
    outer: Frame, position: int, name: str, graph: GraphProto
) -> Callable[[int | None], Frame]:
    """What makes the frame of each iteration, with what the body captures."""
    index, captured = graph_body(outer.index, graph)
    scope = f"{outer.scope}/@{position}/{name}" if outer.scope else f"@{position}/{name}"

    def enter(iteration: int | None) -> Frame:
        which = "" if iteration is None else f"[{iteration}]"
        path = f"{outer.node_id(position)}/{name}{which}"
        inner = Frame(index, outer.machine, path, scope, position, iteration)
        inner.take({each: each for each in captured}, outer)
        return inner

    return enter


def _return(outer: Frame, names: Sequence[str], inner: Frame, results: Sequence[str]) -> None:
    """Give the outer frame what a body computed."""
    given = {name: theirs for name, theirs in zip(names, results, strict=False) if name}
    outer.take(given, inner)
    _settle(outer, given, inner)


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
            outer.put(name, array, type_of(array))
    _settle(outer, names, inner)


def _settle(outer: Frame, names: Iterable[str], inner: Frame) -> None:
    """What came out can be computed again by running the node as a whole, unless something was set inside."""
    if inner.touched:
        outer.touched = True
    else:
        outer.fixed.difference_update(names)


def _give(inner: Frame, name: str, array: Array) -> None:
    inner.put(name, array, type_of(array))


def _array(frame: Frame, name: str) -> Array:
    return cast(Array, frame.value(name))


def _truth(frame: Frame, name: str) -> bool:
    return bool(_array(frame, name).reshape(-1)[0])


def _shape(graph: GraphProto, place: int) -> tuple[int, ...]:
    """The shape of an iteration number or condition: it may be declared to be a list of one."""
    declared = graph.input[place].type.tensor_type
    return (1,) * min(1, len(declared.shape.dim))


def _names(graph: GraphProto) -> list[str]:
    return [value.name for value in graph.output]
