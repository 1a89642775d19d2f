"""Values of bodies that are not being run: computed aside, from what the main graph has."""

from collections.abc import Iterator, Sequence

from onnxsurgeon_lite.debug.stepping.control import iterations
from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.bodies import BodyName, iterations_in
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.names import listed


def visits(frames: Sequence[Frame], selector: str) -> Iterator[tuple[Frame, list[str]]]:
    """Each frame that computes what a selector behind a body means, with its values; nothing else changes.

    Args:
        frames: those being run, the main graph first.

    Raises:
        UnknownNameError: there is no such body or value.
        UsageError: values were set there, or what the body gives was.
    """
    main, *running = frames
    found = select_values(main.index, [listed([selector])], inner=True).names
    inside = BodyName.of(found[0])
    assert inside is not None
    after = main.fixed & set(main.index.nodes[inside.position].output)
    if after or any(f.touched for f in running if f.path.startswith(inside.path)):
        raise UsageError(
            f"{selector!r} is no longer known: values in or after {inside.path} were set",
            f"break {selector}, then run",
        )
    aside = Frame(main.index, main.machine)
    reads, kept = main.index.reads[inside.position], main.observer.kept
    aside.take({n: n for n in reads if n in main.index.producer or n in kept}, main)
    for frame in _executions(aside, found[0]):
        own = [iterations_in(frame.index, n.removeprefix(f"{frame.path}/")) for n in found]
        asked = own[0][1]
        here = frame.numbers[: len(asked)]
        if here == asked:
            yield frame, [value for value, _ in own]
        elif here > asked:
            break
    aside.forget()


def _executions(frame: Frame, name: str) -> Iterator[Frame]:
    """The frames of the body that a name leads to."""
    inside = None if name in frame.index else BodyName.of(name)
    if inside is None:
        yield frame
        return
    for inner in iterations(frame, inside.position) or ():
        if inner.path.rpartition("/")[2] == inside.body:
            yield from _executions(inner, inside.rest)
