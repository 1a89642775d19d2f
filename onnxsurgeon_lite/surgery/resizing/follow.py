"""Trace a model, and inline the functions in which something must change."""

from collections.abc import Sequence
from itertools import chain

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model, function_key
from onnxsurgeon_lite.surgery.inlining import inline
from onnxsurgeon_lite.surgery.resizing.exports import differences
from onnxsurgeon_lite.surgery.resizing.plan import ResizePlan, Symbol
from onnxsurgeon_lite.surgery.resizing.symbols import tied
from onnxsurgeon_lite.surgery.resizing.trace import Called, trace


def follow(
    model: Model, symbols: Sequence[Symbol], second: Model | None = None
) -> tuple[Model, ResizePlan, list[str]]:
    """Trace a model; where dimensions of any sizes do not fit together, as the first ties that fit (see `tied`).

    Args:
        second: an export of the same network at another size: its constants show what depends on the size.

    Returns:
        The traced model, its plan, and the inlined functions.
    """
    failures = list[ShapeError]()
    found = list[tuple[Model, ResizePlan, list[str]]]()
    # as the dimensions are, then with ties
    for tries in chain([symbols], tied(symbols, GraphIndex.of(model))):
        try:
            found.append(_follow(model, tries, second))
        except ShapeError as error:
            failures.append(error)
            continue
        # every node fits: no other tie is better
        if not found[-1][1].unfit:
            break
    if not found:
        raise failures[0]
    return min(found, key=lambda each: each[1].unfit)


def _follow(
    model: Model, symbols: Sequence[Symbol], second: Model | None
) -> tuple[Model, ResizePlan, list[str]]:
    """Trace a model; inline a function in which something must change, because all its calls share its nodes."""
    inlined = list[str]()
    # One function at a time: after inlining, the trace starts again.
    while True:
        try:
            hints = None if second is None else differences(model, second, symbols)
            return model, trace(model, symbols, hints), inlined
        except Called as called:  # something in a function has to change, for this call alone
            key = function_key(called.function)
            name = "::".join(filter(None, key))
            inlined.append(name)
            model = inline(model, [key])
            second = None if second is None else inline(second, [key])
        except RecursionError as error:
            raise ShapeError("functions or bodies are nested too deep to be followed") from error
        except ShapeError as error:
            if inlined:
                error.add_note(f"ids are those after onnxdbg edit inline of {', '.join(inlined)}")
            raise
