"""A model as a page, with what a stored result says of it; from a file, or served with its tensors."""

import json
import tempfile
import webbrowser
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Self

from onnxsurgeon_lite.atomic import write_bytes
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.report.page import data
from onnxsurgeon_lite.report.page.data import Mark, MarkKind, Measure, Node
from onnxsurgeon_lite.report.page.graph import graph_parts
from onnxsurgeon_lite.report.page.measures import (
    NodeNumber,
    node_of,
    of_nodes,
    position_of,
    title_of,
)
from onnxsurgeon_lite.report.page.server import PageServer
from onnxsurgeon_lite.report.page.tensors import tensor_part
from onnxsurgeon_lite.report.plain import note, out, stdout
from onnxsurgeon_lite.runtime.choice import runtime_of
from onnxsurgeon_lite.runtime.feeds import Recipe
from onnxsurgeon_lite.runtime.options import RuntimeOptions
from onnxsurgeon_lite.shown import Shown, hidden
from onnxsurgeon_lite.tensors.comparison import Tolerance
from onnxsurgeon_lite.tensors.references import Tensors

Session = tuple[Tensors | None, Tensors | None, Recipe, Tolerance | None]
"""Feeds, references, how inputs are made, and what tensors may differ by."""


@dataclass
class View(Shown):
    """A page that can be opened; a context manager.

    Attributes:
        address: of its file, or of the server that it comes from.
    """

    address: str
    is_served: bool = False
    end: Callable[[], None] = hidden(lambda: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def open(self) -> None:
        """Open it in the browser."""
        webbrowser.open(self.address)

    def wait(self) -> None:
        """Serve until Ctrl-C; a file needs nobody."""
        try:
            while self.is_served:
                Event().wait()
        except KeyboardInterrupt:
            return


def show_view(result: View) -> None:
    """Where a page is; at once, because its server goes on."""
    out(result.address)
    if result.is_served:
        note("Ctrl-C ends it")
    stdout().flush()


def page_of_model(index: GraphIndex, result: Path | None) -> data.Page:
    """Return the page of a model, with what a stored result says of it.

    Raises:
        UsageError: the result is not what a command printed.
    """
    title = title_of(index)
    found = {} if result is None else read_result(result)
    count = len(index.nodes)
    # a result may be of another model: nodes that this one lacks are left out
    marks = [mark for mark in marks_in(found) if position_of(mark.node) < count]
    measures = [m for m in measures_in(found) if max(map(position_of, m.nodes)) < count]
    headlines = [f"{title}: {count:,} nodes"]
    if result is not None:
        headlines.append(f"{result.name}: {found.get('verdict', 'numbers of nodes')}")
    return data.Page(
        "view",
        title,
        data.Verdict("facts", headlines),
        graph_parts(index, title, [mark.node for mark in marks[:1]]),
        measures,
        marks,
        result=found or None,
    )


def view_of_file(html: bytes, place: Path | None, title: str) -> View:
    """Write a page, by default to a file that nothing else has."""
    if place is None:
        # the title comes from the model's file name, which may be anything
        name = "".join(c if c.isalnum() or c in "-_." else "_" for c in title)[-80:]
        place = Path(tempfile.mkdtemp(prefix="onnxdbg-")) / f"{name}.html"
    write_bytes(place, html)
    return View(place.resolve().as_uri())


def served(model: Model, html: bytes, options: RuntimeOptions, session: Session) -> View:
    """Serve a page, and the tensors of nodes as a debugger computes them.

    Raises:
        SurgeonError: the feeds or references do not fit the model.
    """
    feeds, references, recipe, tolerance = session
    # the debugger computes what is looked at, and keeps it
    dbg = Debugger(model, feeds, references, runtime_of(options), recipe, tolerance)
    server = PageServer(html, partial(_look, dbg))

    def end() -> None:
        server.close()
        dbg.__exit__()

    return View(server.address, True, end)


def _look(dbg: Debugger, node: int) -> list[data.TensorPart]:
    """Return the values that a node makes."""
    made = dbg.index.nodes[node].output if node < len(dbg.index.nodes) else ()
    parts = (_part(dbg, node, name) for name in made if name)
    return [part for part in parts if part is not None]


def _part(dbg: Debugger, node: int, name: str) -> data.TensorPart | None:
    reading = dbg.read(name)[0]
    known = dbg.references is not None and name in dbg.references
    reference = dbg.references.read(name) if known and dbg.references is not None else None
    compared = next(iter(reading.comparisons.values()), None)
    return tensor_part(node, name, reading.value, reference, compared)


_LARGEST = 1 << 28  # bytes
_MARKS: dict[str, MarkKind] = {"culprits": "culprit", "cleared": "cleared"}
_COSTLY = "covers"  # the ids of the nodes that an entry of a profile counts

Entry = Mapping[str, object]


def read_result(path: Path) -> Entry:
    """Return what a file holds.

    Raises:
        UsageError: it is not what a command printed.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        text = file.read(_LARGEST + 1)
    try:
        # any JSON object of ours may be shown: what looks like a list of nodes is used, the rest is not
        found = json.loads(text) if len(text) <= _LARGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f"{str(path)!r} is not the result of a command",
            "write one with: onnxdbg bisect ... --json > result.json",
        )
    return found


def marks_in(result: Entry) -> list[Mark]:
    """Return the culprits, and what was cleared."""
    return [
        Mark(0, node, _MARKS[kind], "; ".join(_reasons(entry)))
        for kind, node, entry in _entries(result)
        if kind in _MARKS
    ]


def measures_in(result: Entry) -> list[Measure]:
    """Return every number of nodes."""
    found = defaultdict[str, list[NodeNumber]](list)
    for kind, node, entry in _entries(result):
        # nested keys are joined to a title: `cost.seconds`
        if kind not in _MARKS:
            for title, number in _numbers(entry):
                found[title].append(NodeNumber(node, str(entry.get("name", "")), number))
    return [_measure(title, points) for title, points in found.items()]


def _measure(title: str, points: list[NodeNumber]) -> Measure:
    made = of_nodes(title.replace("_", " "), title.rpartition(".")[2], points)
    made.worse = "low" if title.endswith("_db") else "high"
    return made


def _entries(result: Entry) -> Iterator[tuple[str, Node, Entry]]:
    """Yield (key, node, entry) of everything in a list that names a node."""
    for key, entries in result.items():
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and (node := _node(entry)) != -1:
                yield key, node, entry


def _node(entry: Entry) -> Node:
    covered = entry.get(_COSTLY)
    last = covered[-1] if isinstance(covered, list) and covered else ""
    return node_of(str(entry.get("id", last)))


def _reasons(entry: Entry) -> Iterator[str]:
    findings = entry.get("findings")
    for each in findings if isinstance(findings, list) else ():
        if isinstance(each, dict):
            yield f"{each.get('verdict')}: {each.get('because')}"


def _numbers(entry: Entry, before: str = "") -> Iterator[tuple[str, float]]:
    for key, value in entry.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            with suppress(OverflowError):  # JSON's integers have no end
                yield f"{before}{key}", float(value)
