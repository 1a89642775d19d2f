"""A session: a model, its debugger, its edits, and the names that Python sees."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

import numpy as np

from onnxsurgeon_lite.debug.result import BisectResult
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.complete import Completions
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.passes.history import History
from onnxsurgeon_lite.repl.model import EditedModel
from onnxsurgeon_lite.repl.preparing import PreparedGraph
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.debugging import text_of


@dataclass(frozen=True)
class PromptCommand:
    """A command of the prompt.

    Attributes:
        usage: what follows the word.
        help: a line.
        run: does it; a result is shown.
        completes: what completes its line: `value`, `node`, `file`, `verb` or nothing.
    """

    usage: str
    help: str
    run: Callable[["PromptSession", str], object]
    completes: str = ""


class Verbs:
    """The commands of `onnxdbg` on a session's model: none where the command did not open it.

    Attributes:
        names: verb -> a line of help.
    """

    names: Mapping[str, str] = {}

    def run(self, given: Sequence[str]) -> bool:
        """Run a command line; return whether it found a mismatch.

        Raises:
            SurgeonError: it cannot be done.
        """
        raise UsageError(f"this session has no command {' '.join(given)!r}", "use Python")

    def complete(self, given: Sequence[str], typed: str) -> list[str]:
        """Return what a word can go on to, files apart."""
        return []


class PromptSession:
    """The state that commands work on.

    Attributes:
        namespace: the names that Python sees: `model`, `graph`, `dbg`, `np`, and what the user defines.
        verbs: the commands of `onnxdbg`.
        given: option -> what the session was opened with, the default of each verb.
        show: shows a result.
        leave: ends the session.
        fed: `feed` gave inputs.
        left: the session was left.
        mismatch: a comparison that was asked for found one.
        target: where the model was saved last.
        written: the files that the session wrote.
        found: what `why` found last.
        listed: (position, place after the nodes that `list` showed last).
    """

    def __init__(self, model: Model, dbg: Debugger) -> None:
        self.source = model
        self.dbg = dbg
        self.model = EditedModel(History(model), self.follow)
        self.namespace: dict[str, object] = {"model": self.model, "dbg": dbg, "np": np}
        # conditions of breakpoints see what the user defines
        dbg.names = self.namespace
        self.verbs = Verbs()
        self.given = dict[str, object]()
        self.show: Callable[[object], None] = print_result
        self.leave: Callable[[], None] = lambda: None
        self.fed = False
        self.left = False
        self.mismatch = False
        self.target: Path | None = None
        self.written = set[Path]()
        self.listed: tuple[object, int] = None, 0
        self.found: BisectResult | None = None
        # how inputs were made, as it was said last
        self._told = list[str]()
        self._look()

    def follow(self) -> None:
        """Go on with the model as it was edited."""
        lost = self.dbg.load(self.model.current)
        self._look()
        notes = [f"{point} has no node any more" for point in lost]
        plain.show_notes(["the model changed: at its start again"] + notes)

    def tell_made(self) -> None:
        """Say once how inputs were made."""
        if self.dbg.made != self._told:
            self._told = self.dbg.made
            plain.show_notes(f"made {line}" for line in self._told)

    def _look(self) -> None:
        index: GraphIndex = self.dbg.index
        self.names = Completions(index)
        self.graph = self.namespace["graph"] = PreparedGraph(index)


def print_result(result: object) -> None:
    """A result as text; nothing for None."""
    text = text_of(result)
    if text is None and result is not None:
        text = "\n".join(map(shown, pformat(result).split("\n")))
    if text is not None:
        plain.out(text)
