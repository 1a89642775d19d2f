"""Tables for the terminal. A name is never cut: what is too wide for its column gets a line of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import out, say, show_notes, width

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
