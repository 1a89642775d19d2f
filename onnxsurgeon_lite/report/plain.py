"""Plain lines: errors, notes, what was written. They need no library, so short commands stay fast."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from onnxsurgeon_lite.errors import SurgeonError

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import GraphProto

    from onnxsurgeon_lite.graph.check import CheckResult
    from onnxsurgeon_lite.model import Written
    from onnxsurgeon_lite.recording.recording import Recording

_SHOWN = 8  # findings of a kind
_MANY = 20  # changes
_CAPTURED: ContextVar[TextIO | None] = ContextVar("captured", default=None)


@contextlib.contextmanager
def captured(file: TextIO) -> Iterator[None]:
    """Write results to a file instead of stdout, and notes nowhere."""
    token = _CAPTURED.set(file)
    try:
        yield
    finally:
        _CAPTURED.reset(token)


def stdout() -> TextIO:
    """Where results go."""
    return _CAPTURED.get() or sys.stdout


def out(text: str) -> None:
    """A line of the result."""
    stdout().write(f"{text}\n")


def note(text: str) -> None:
    """A line about the work; after what was said before it, also where both streams go to one file."""
    if _CAPTURED.get() is None:
        sys.stdout.flush()
        sys.stderr.write(f"{text}\n")


def show_error(error: SurgeonError) -> None:
    """What is wrong, then what to try."""
    note(f"error: {_one_line(error.message)}")
    for extra in (error.hint, *getattr(error, "__notes__", ())):
        if extra:
            note(f"  {_one_line(extra)}")


def show_notes(notes: Iterable[str]) -> None:
    """What the user should know of a result."""
    for text in notes:
        note(f"note: {_one_line(text)}")


def show_note(text: str) -> None:
    """Show a note at once."""
    show_notes([text])


def show_changes(changes: Sequence[str]) -> None:
    """What an edit changed, a line each; the first of many."""
    for text in changes_shown(changes):
        out(_one_line(text))


def changes_shown(changes: Sequence[str]) -> list[str]:
    """All changes, or the first of many."""
    if len(changes) <= _MANY:
        return list(changes)
    return [*changes[: _MANY - 1], f"... and {len(changes) - _MANY + 1} more"]


def show_verdict(result: "CheckResult") -> None:
    """Whether a model is valid, and why not; then what is suspicious, some lines of a kind."""
    if result.valid:
        out(f"{result.path!r} is valid")
    else:
        first, *rest = filter(None, map(str.strip, result.problem.splitlines()))
        out(f"invalid: {_one_line(first)}")
        for line in rest:
            out(f"  {_one_line(line)}")
    shown = Counter[str]()
    for finding in result.findings:
        shown[finding.kind] += 1
        if shown[finding.kind] <= _SHOWN:
            out(f"{finding.kind}: {_one_line(finding.message)}")
    for kind, count in shown.items():
        if count > _SHOWN:
            out(f"{kind}: {count - _SHOWN} more (all with --json)")


def show_graph(what: str, graph: "GraphProto") -> None:
    """What was made, where no difference from an original could be shown."""
    ends = ", ".join(value.name for value in graph.input), ", ".join(v.name for v in graph.output)
    counts = f"{len(graph.node)} nodes, {len(graph.initializer)} initializers"
    out(_one_line(f"{what}: {' -> '.join(ends)} ({counts})"))


def show_files(result: "Written") -> None:
    """The files that were written, or would be."""
    if result.planned:
        show_planned(result.sizes)
    else:
        show_written(result.path, result.data_files)


def show_recording(result: "Recording") -> None:
    """How much was recorded, and where."""
    show_notes(result.notes)
    out(f"recorded {result.values} values in {str(result.place)!r}")


def show_written(path: object, data_files: Iterable[object] = ()) -> None:
    """The files that a command wrote."""
    beside = ", ".join(map(repr, map(str, data_files)))
    out(f"wrote {str(path)!r}" + (f" with its data in {beside}" if beside else ""))


def show_planned(sizes: "Mapping[Path, int]") -> None:
    """The files that a command would write."""
    for path, size in sizes.items():
        out(f"would write {str(path)!r}: {size} bytes")


def _one_line(text: str) -> str:
    """Control characters (a name or the runtime's message may hold some) shown, not acted on."""
    return "".join(c if c.isprintable() else " " if c == "\n" else repr(c)[1:-1] for c in text)
