"""Plain lines: errors, notes, what was written. They need no library, so short commands stay fast."""

import contextlib
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.names import joined, shown

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import GraphProto

    from onnxsurgeon_lite.graph.check import CheckResult
    from onnxsurgeon_lite.graph.config import Agreement
    from onnxsurgeon_lite.model import Written
    from onnxsurgeon_lite.recording.from_model import Recording

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


def width(stream: TextIO | None = None) -> int:
    """Return how many characters a line has on the terminal, or as COLUMNS says; 0 for a file: no limit."""
    # COLUMNS asks for a width also where the output goes to a file
    seen = "COLUMNS" in os.environ or (stream or sys.stdout).isatty()
    return shutil.get_terminal_size().columns if seen else 0


def out(text: str) -> None:
    """Write a line of the result, or several, as they are: commands, JSON, ONNX text."""
    stdout().write(f"{text}\n")


def say(text: str, indent: int = 0) -> None:
    """Write a sentence of the result, on as many lines of the terminal as it needs.

    Args:
        indent: of its further lines; two more than the text's own by default.
    """
    out(_wrapped(text, width(), indent))


class Whole(str):
    """A line that is not broken: a command to copy."""

    __slots__ = ()


def say_all(lines: Iterable[str]) -> None:
    """Write sentences, a line each; their names may hold anything."""
    for line in lines:
        (out if isinstance(line, Whole) else say)(shown(line))


def note(text: str) -> None:
    """Write a line about the work; after what was said before it, also where both streams go to one file."""
    if _CAPTURED.get() is None:
        # both streams may be one file: keep the order
        sys.stdout.flush()
        sys.stderr.write(f"{_wrapped(text, width(sys.stderr))}\n")


def _wrapped(text: str, limit: int, indent: int = 0) -> str:
    """Break a text into lines of the terminal, between words: a name stays whole."""
    if not limit or len(text) <= limit:
        return text
    # further lines stand two deeper than the first
    indent = indent or len(text) - len(text.lstrip()) + 2
    wrapper = textwrap.TextWrapper(
        max(limit, 2 * indent),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.fill(text)


def show_error(error: SurgeonError) -> None:
    """What is wrong, then what to try."""
    note(f"error: {_one_line(error.message)}")
    for extra in (error.hint, *getattr(error, "__notes__", ())):
        if extra:
            note(f"  {_one_line(extra)}")


def show_interrupted(error: BaseException) -> None:
    """How far the work was."""
    note("interrupted")
    for text in getattr(error, "__notes__", ()):
        note(f"  {text}")


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
        say(_one_line(text))


def changes_shown(changes: Sequence[str]) -> list[str]:
    """All changes, or the first of many."""
    if len(changes) <= _MANY:
        return list(changes)
    return [*changes[: _MANY - 1], f"... and {len(changes) - _MANY + 1} more"]


def _agreement(field: "Agreement") -> str:
    """How a model agrees with a field of its configuration, in a sentence."""
    said = f"{field.field} {field.wanted}".strip()
    if field.agrees is None:
        return f"not known: {said}, because {field.where}"
    if field.agrees:
        return f"agrees: {said} ({field.where})"
    return f"differs: {said}, {field.where} is {field.found}"


def show_verdict(result: "CheckResult") -> None:
    """Whether a model is valid, and why not; then what is suspicious, some lines of a kind."""
    if result.valid:
        say(f"{result.path!r} is valid")
    else:
        first, *rest = filter(None, map(str.strip, result.problem.splitlines()))
        say(f"invalid: {_one_line(first)}")
        for line in rest:
            say(f"  {_one_line(line)}")
    if result.needs:
        say(f"needs operators of onnxruntime: {', '.join(result.needs)}")
    for field in result.config:
        say(_one_line(_agreement(field)))
    counts = Counter[str]()
    for finding in result.findings:
        counts[finding.kind] += 1
        if counts[finding.kind] <= _SHOWN:
            say(f"{finding.kind}: {_one_line(finding.message)}")
    for kind, count in counts.items():
        if count > _SHOWN:
            say(f"{kind}: {count - _SHOWN} more (all with --json)")


def show_graph(what: str, graph: "GraphProto") -> None:
    """What was made, where no difference from an original could be shown."""
    ends = ", ".join(value.name for value in graph.input), ", ".join(v.name for v in graph.output)
    counts = f"{len(graph.node)} nodes, {len(graph.initializer)} initializers"
    say(_one_line(f"{what}: {' -> '.join(ends)} ({counts})"))


def show_files(result: "Written") -> None:
    """The files that were written, or would be."""
    if result.planned:
        show_planned(result.sizes)
    else:
        show_written(result.path, result.data_files)


def show_recording(result: "Recording") -> None:
    """How much was recorded, and where."""
    show_notes(result.notes)
    say(f"recorded {result.values} values in {str(result.place)!r}")


def show_written(path: object, data_files: Iterable[object] = ()) -> None:
    """The files that a command wrote."""
    beside = joined(map(str, data_files))
    say(f"wrote {str(path)!r}" + (f" with its data in {beside}" if beside else ""))


def size_text(count: int) -> str:
    """Return a number of bytes as people read it: `3.36 KB`."""
    size = float(count)
    unit = "B"
    # powers of 1000; three digits are enough
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"


def show_planned(sizes: "Mapping[Path, int]") -> None:
    """The files that a command would write."""
    for path, size in sizes.items():
        say(f"would write {str(path)!r}: {size} bytes")


def _one_line(text: str) -> str:
    """Control characters (a name or the runtime's message may hold some) shown, not acted on."""
    return "".join(c if c.isprintable() else " " if c == "\n" else repr(c)[1:-1] for c in text)
