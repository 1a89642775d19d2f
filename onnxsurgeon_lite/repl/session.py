"""One session: a model, its debugger, what was edited, and the names that Python sees."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.debug.stepping import Debugger
from onnxsurgeon_lite.graph.complete import Names
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.passes.history import History
from onnxsurgeon_lite.repl.model import EditedModel
from onnxsurgeon_lite.repl.preparing import PreparedGraph
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.debugging import text_of


class Session:
    """What commands work on.

    Attributes:
        namespace: the names that Python sees: `model`, `graph`, `dbg`, `np`, and what the user defines.
        show: shows a result.
        mismatch: whether a comparison that was asked for found one.
        target: where the model was saved last.
        written: the files that the session wrote.
    """

    def __init__(self, model: Model, dbg: Debugger) -> None:
        self.source = model
        self.dbg = dbg
        self.model = EditedModel(History(model), self.follow)
        self.namespace: dict[str, object] = {"model": self.model, "dbg": dbg, "np": np}
        dbg.names = self.namespace
        self.show: Callable[[object], None] = print_result
        self.mismatch = False
        self.target: Path | None = None
        self.written: set[Path] = set()
        self._told: list[str] = []
        self._look()

    def follow(self) -> None:
        """Go on with the model as it was edited."""
        lost = self.dbg.load(self.model.current)
        self._look()
        notes = [f"{point} has no node any more" for point in lost]
        plain.show_notes(["the model changed: at its start again", *notes])

    def tell_made(self) -> None:
        """Say once how inputs were made."""
        if self.dbg.made != self._told:
            self._told = self.dbg.made
            plain.show_notes(f"made {line}" for line in self._told)

    def _look(self) -> None:
        index: GraphIndex = self.dbg.index
        self.names = Names(index)
        self.graph = self.namespace["graph"] = PreparedGraph(index)


def print_result(result: object) -> None:
    """A result as text; nothing for None."""
    text = text_of(result)
    if text is None and result is not None:
        text = "\n".join(map(shown, repr(result).split("\n")))
    if text is not None:
        plain.out(text)
