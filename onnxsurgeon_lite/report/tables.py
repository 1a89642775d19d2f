"""Tables for the terminal. A name is never cut: what is too wide for its column gets a line of its own."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len

from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import say, show_notes, width

T = TypeVar("T")

_GAP = "   "
_INDENT = "  "


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under column titles."""
    for line in table(columns, rows):
        say(line)


def show_items(
    items: Sequence[T], columns: Mapping[str, Callable[[T], object]], most: int = 20
) -> None:
    """Print a row for each of the first items, by column title and what its cells hold; say how many are left."""
    show_table([*columns], ([cell(each) for cell in columns.values()] for each in items[:most]))
    if len(items) > most:
        show_notes([f"{len(items) - most} more with --json"])


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], limit: int | None = None
) -> list[str]:
    """Lay out rows under column titles; a title that ends in `#` is of numbers.

    Args:
        limit: characters a line, 0 for no limit; by default those of the terminal. Where a row needs more, wide cells
            stand on lines above it, and the last ones, with their titles, on a line below.
    """
    cells = [[shown(str(cell)) for cell in row] for row in rows]
    cells = [row + [""] * (len(columns) - len(row)) for row in cells]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    layout = _Layout(columns, widths, width() if limit is None else limit)
    titles, *lines = (layout.row(row) for row in (columns, *cells))
    titles = titles[: len(layout.above) + 1]
    rule = "─" * max(cell_len(row[len(layout.above)]) for row in (titles, *lines))
    return [*titles, rule, *itertools.chain.from_iterable(lines)]


@dataclass
class _Layout:
    """Which columns stand side by side, and which above or below them."""

    titles: Sequence[str]
    widths: Sequence[int]
    limit: int

    def __post_init__(self) -> None:
        self.beside = list(range(len(self.titles)))
        self.above: list[int] = []
        self.below: list[int] = []
        while self.limit and self._total() > self.limit and len(self.beside) > 1:
            widest = max(self.beside, key=self.widths.__getitem__)
            if self.widths[widest] > self.limit // 4 and widest != len(self.titles) - 1:
                self.above = sorted([*self.above, widest])
                self.beside.remove(widest)
            else:
                self.below.insert(0, self.beside.pop())

    def _total(self) -> int:
        return sum(self.widths[i] for i in self.beside) + len(_GAP) * (len(self.beside) - 1)

    def row(self, cells: Sequence[str]) -> list[str]:
        """One row's lines."""
        indent = _INDENT if self.above else ""
        line = indent + _GAP.join(self._padded(i, cells[i]) for i in self.beside)
        rest = ", ".join(f"{self.titles[i]} {cells[i]}" for i in self.below if cells[i])
        lines = [*(cells[i] for i in self.above), line, *([f"{_INDENT}  {rest}"] if rest else [])]
        return [line.rstrip() for line in lines]

    def _padded(self, place: int, cell: str) -> str:
        space = " " * (self.widths[place] - cell_len(cell))
        return space + cell if self.titles[place].endswith("#") else cell + space
