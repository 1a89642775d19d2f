"""Tables for the terminal. Names are never markup, and control characters in them are shown, not acted on."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.plain import stdout

_PLAIN_WIDTH = 200  # where no terminal says how wide it is


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], styles: Sequence[str] = ()
) -> None:
    """Print rows under column titles; a style for each row where given."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column[-1:] == "#" else "left")
    for number, row in enumerate(rows):
        style = styles[number] if number < len(styles) else ""
        table.add_row(*(Text(shown(str(cell))) for cell in row), style=style)
    console = Console(file=stdout())
    if not console.is_terminal:
        console = Console(file=stdout(), width=_PLAIN_WIDTH)
    console.print(table)
