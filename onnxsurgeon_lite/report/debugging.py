"""The results of the debugger and its prompt, as text."""

from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np

from onnxsurgeon_lite.debug.result import BisectResult
from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoints
from onnxsurgeon_lite.debug.stepping.looking import Level, Listing, Reading, Readings, Stack, Stop
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.report.metrics import explain
from onnxsurgeon_lite.report.plain import changes_shown
from onnxsurgeon_lite.tensors.dtypes import Array, arrays_in
from onnxsurgeon_lite.tensors.metrics import number_text
from onnxsurgeon_lite.tensors.statistics import Statistics

_FEW = 32  # numbers that are all shown


def text_of(result: object) -> str | None:
    """A debugger's result as text, None where it is something else."""
    match result:
        case Stop():
            return stop_text(result)
        case Reading():
            return reading_text(result)
        case Readings():
            return "\n".join(map(reading_text, result))
        case Stack():
            return level_text(result)
        case Listing():
            return shown_lines(result or ["no more nodes"])
        case Breakpoints():
            hits = [f"{point}, hit {point.hits} times" for point in result]
            return shown_lines(hits or ["no breakpoints"])
        case PassResult():
            return edit_text(result)
        case BisectResult():
            return str(result)
    return None


def edit_text(result: PassResult) -> str:
    """What an edit changed, and what the user should know of it."""
    lines = [f"note: {note}" for note in result.notes]
    lines += changes_shown(result.changes or ["nothing to change"])
    return shown_lines(lines)


def stop_text(stop: Stop) -> str:
    """Where it stopped, what was made there, what is watched, and which breakpoints never were hit."""
    lines = [_place(stop)]
    for reading in stop.readings:
        lines += _lines(reading)
    for reading in stop.watched:
        # of a sequence the first tensor only
        lines += (f"  watch {line.lstrip()}" for line in _lines(reading)[:1])
    lines += (f"never hit: {point}" for point in stop.unhit)
    return shown_lines(lines)


def reading_text(reading: Reading) -> str:
    """A value: what it is, a corner of its numbers, and how it compares."""
    first, *rest = _lines(reading)
    lines = [f"{first.lstrip()}; {reading.producer}"] + rest
    numbers = chain.from_iterable(map(_numbers, arrays_in(reading.value)))
    return "\n".join(chain([shown_lines(lines)], numbers))


def level_text(levels: Sequence[Level]) -> str:
    """The frames, the innermost last."""
    lines = []
    for depth, level in enumerate(levels, 1):
        place = f"{level.passed} of {level.nodes} nodes"
        # the innermost frame stopped after its node, the others are in theirs
        how = "after" if depth == len(levels) else "in"
        node = f", {how} {level.node}" if level.node else ""
        scope = f"  [{level.origin}]" if level.origin else ""
        mark = "> " if level.chosen else ""
        lines.append(f"{mark}{level.graph or 'main graph'}: {place}{node}{scope}")
    return shown_lines(lines)


def shown_lines(lines: Sequence[str]) -> str:
    """Join lines for a terminal; control characters in names are escaped."""
    return "\n".join(map(shown, lines))


def _place(stop: Stop) -> str:
    scope = f"  [{stop.origin}]" if stop.origin else ""
    match stop.reason:
        case "start":
            return "at the start"
        case "end":
            return "at the end"
        case "breakpoint" if stop.breakpoints:
            return f"breakpoint {', '.join(map(str, stop.breakpoints))} at {stop.node}{scope}"
        case "over":
            return f"at {stop.node}{scope}; step does not go into its body: it was run at once"
        case "returned":
            return f"returned to {stop.node}{scope}"
        case _:
            return f"at {stop.node}{scope}"


def _lines(reading: Reading) -> list[str]:
    """A line a tensor, each with its verdict."""
    # a sequence has a line for each tensor, and comparisons in the same order, if it has any
    comparisons = chain(reading.comparisons.values(), repeat(None))
    lines = []
    for line, comparison in zip(reading.statistics, comparisons, strict=False):
        verdict = ""
        if comparison is not None:
            how = f"max abs difference {comparison.max_abs:.3g}"
            verdict = f"; agrees with the reference, {how}" if comparison.match else "; MISMATCH"
        lines.append(f"  {_statistics(line)}{verdict}")
    for name, comparison in reading.comparisons.items():
        lines += (f"  {line}" for line in explain(name, comparison)[1:])
    return lines


def _statistics(line: Statistics) -> str:
    numbers = ""
    if line.mean is not None:
        low, high, mean = map(number_text, (line.min, line.max, line.mean))
        numbers = f": {low} .. {high}, mean {mean}"
    odd = [f"{count} {what}" for count, what in ((line.nan, "NaN"), (line.inf, "Inf")) if count]
    return ", ".join([f"{line.name} {line.dtype} {list(line.shape)}{numbers}"] + odd)


def _numbers(array: Array) -> list[str]:
    # of a large tensor the first matrix: `[0, 0] of [2, 3, 64, 64]`
    first = "" if array.size <= _FEW else ", ".join(["0"] * (array.ndim - 2))
    matrix = array[(0,) * (array.ndim - 2)] if first else array
    text = np.array2string(
        matrix, threshold=_FEW, edgeitems=3, precision=6, separator=", ", max_line_width=100
    )
    return [f"[{first}] of {list(array.shape)}:", text] if first else [text]
