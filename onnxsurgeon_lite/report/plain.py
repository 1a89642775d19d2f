"""Plain lines and tables: errors, notes, what was written. They need no library, so short commands stay fast.

A name in a table is never cut: what is too wide for its column gets a line of its own.
"""

import contextlib
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

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
    # what it needs, and whether it fits its configuration
    if result.needs:
        say(f"needs operators of onnxruntime: {', '.join(result.needs)}")
    for field in result.config:
        say(_one_line(_agreement(field)))
    # the first findings of each kind, then how many more
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


T = TypeVar("T")
Cell = str | Callable[[T], object]
"""What a cell holds: a format of the item, such as `{0.name}`, or a function of it."""
Columns = Mapping[str, Cell[T]]
"""Title -> what the cells under it hold."""

_UNTITLED = ("role", "verdict", "keep")  # columns whose words need no title on the terminal
_GAP = "   "
_INDENT = "  "


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under column titles."""
    for line in table(columns, rows):
        say(line)


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Generic[T]):
    """What a result lists: a row for each item, the same on the terminal and on a page.

    Attributes:
        title: of the table on a page.
        node: the id of an item's node; '' for none.
    """

    title: str
    items: Sequence[T]
    columns: Columns[T]
    node: Cell[T] = ""

    def titles(self) -> list[str]:
        """Return the titles on the terminal."""
        return ["" if title in _UNTITLED else title for title in self.columns]

    def cells(self, most: int | None = None) -> list[list[object]]:
        """Return the cells of the first rows."""
        return [[cell(how, item) for how in self.columns.values()] for item in self.items[:most]]

    def nodes(self, most: int | None = None) -> list[str]:
        """Return the ids of the first nodes."""
        return [str(cell(self.node, item)) for item in self.items[:most]]


def cell(how: Cell[T], item: T) -> object:
    """Return what a cell holds."""
    return how.format(item) if isinstance(how, str) else how(item)


def show_rows(rows: Rows[T], most: int | None = 20, rest: str = "") -> None:
    """Print the first rows, and how many more there are.

    Args:
        rest: says what more there is; by default a note says where.
    """
    show_table(rows.titles(), rows.cells(most))
    more = len(rows.items) - (most or len(rows.items))
    if more > 0 and rest:
        out(f"... and {more} more {rest}")
    elif more > 0:
        show_notes([f"{more} more with --json"])


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], limit: int | None = None
) -> list[str]:
    """Lay out rows under column titles; a title that ends in `#` is of numbers.

    Args:
        limit: characters a line, 0 for no limit; by default those of the terminal. Where a row needs more, wide cells
            stand on lines above it, and the last ones, with their titles, on a line below.
    """
    cells = [[shown(str(cell)) for cell in row] for row in rows]
    # short rows are filled up, so that every column has all its cells
    cells = [row + [""] * (len(columns) - len(row)) for row in cells]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    layout = _Layout(columns, widths, width() if limit is None else limit)
    lines = [layout.row(row) for row in cells]
    # the titles of what goes below stand in the rows themselves
    above = len(layout.above)
    titles = layout.row(columns)[: above + 1]
    rule = "─" * max(cell_len(row[above]) for row in [titles] + lines)
    return titles + [rule] + list(chain.from_iterable(lines))


def cell_len(text: str) -> int:
    """Return how many cells of a terminal a text takes: characters of some scripts take two."""
    # `rich` is imported for other texts alone: that takes 1 % of a short command
    if text.isascii():
        return len(text)
    from rich import cells

    return cells.cell_len(text)


@dataclass
class _Layout:
    """Which columns stand side by side, and which above or below them."""

    titles: Sequence[str]
    widths: Sequence[int]
    limit: int

    def __post_init__(self) -> None:
        self.beside = list(range(len(self.titles)))
        self.above = list[int]()
        self.below = list[int]()
        # Until a line fits: take a column that is wide by itself (more than a quarter of the line) out, above its row;
        # if none is, or the widest is the last, put the last column below.
        while self.limit and self._total() > self.limit and len(self.beside) > 1:
            widest = max(self.beside, key=self.widths.__getitem__)
            if self.widths[widest] > self.limit // 4 and widest != len(self.titles) - 1:
                self.above = sorted(self.above + [widest])
                self.beside.remove(widest)
            else:
                self.below.insert(0, self.beside.pop())

    def _total(self) -> int:
        return sum(self.widths[i] for i in self.beside) + len(_GAP) * (len(self.beside) - 1)

    def row(self, cells: Sequence[str]) -> list[str]:
        """One row's lines."""
        indent = _INDENT if self.above else ""
        lines = [cells[i] for i in self.above]
        lines.append(indent + _GAP.join(self._padded(i, cells[i]) for i in self.beside))
        # `shape [2, 3], dtype float32`
        rest = ", ".join(f"{self.titles[i]} {cells[i]}" for i in self.below if cells[i])
        if rest:
            lines.append(f"{_INDENT}  {rest}")
        return [line.rstrip() for line in lines]

    def _padded(self, place: int, cell: str) -> str:
        space = " " * (self.widths[place] - cell_len(cell))
        return space + cell if self.titles[place].endswith("#") else cell + space
