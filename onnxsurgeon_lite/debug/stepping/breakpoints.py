"""Breakpoints: nodes of the main graph and of bodies, and the condition on which to stop."""

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import CodeType

import numpy as np

from onnxsurgeon_lite.debug.stepping.frames import Frame
from onnxsurgeon_lite.debug.stepping.places import Marks, Scopes
from onnxsurgeon_lite.errors import UnknownNameError, UsageError, said
from onnxsurgeon_lite.tensors.dtypes import RunValue

Facts = Mapping[str, RunValue | list[RunValue] | int | str]
"""The facts that a condition sees, by the names of `FACTS`."""

FACTS = ("out", "outs", "node", "iteration")  # its first output, all, what it is, that of its loop
_USABLE = f"it can use {', '.join(FACTS)}, numpy's functions, np, and what the session defines"

Condition = Callable[[Facts], bool]


@dataclass
class Breakpoint:
    """Stop after these nodes.

    Attributes:
        number: 0 is that of `until`.
        temporary: it goes when it is hit.
        hits: how often it stopped.
    """

    number: int
    selector: str
    condition: Condition | None
    text: str
    temporary: bool
    marks: Marks
    hits: int = 0

    def __str__(self) -> str:
        """`breakpoint 2: 'op:Conv' if isnan(out)`."""
        condition = f" if {self.text}" if self.text else ""
        kind = "temporary breakpoint" if self.temporary else "breakpoint"
        called = f"{kind} {self.number}:" if self.number else "until"
        return f"{called} {self.selector!r}{condition}"

    def holds(self, facts: Callable[[], Facts]) -> bool:
        """Return True if the condition holds, for any element of an array.

        Raises:
            UsageError: it cannot be decided.
        """
        if self.condition is None:
            return True
        # facts are computed only for a breakpoint with a condition
        told = facts()
        try:
            # any exception of a user's expression is an error of the condition, not of ours
            return bool(np.any(self.condition(told)))
        except Exception as error:
            raise UsageError(
                f"the condition of {self} fails: {type(error).__name__}: {said(error)}", _USABLE
            ) from error


def expression(text: str, names: Mapping[str, object]) -> Condition:
    """A condition from a Python expression, which can use numpy's functions and the names.

    Args:
        names: what else it can use, as they are when it is asked.

    Raises:
        SyntaxError: it is not an expression.
        UsageError: it uses another name.
    """
    tree = ast.parse(text.strip(), "<condition>", "eval")
    code: CodeType = compile(tree, "<condition>", "eval")
    # names are checked now, as a typing error would only show at a stop much later
    known = {**vars(builtins), **vars(np), "np": np}
    for name in free_names(tree):
        if not (name in known or name in names or name in FACTS):
            near = get_close_matches(name, [*FACTS, *names, *known])
            hint = f"closest names: {', '.join(map(repr, near))}" if near else _USABLE
            raise UsageError(
                f"the condition {text.strip()!r} uses {name!r}, which is not known", hint
            )

    def condition(facts: Facts) -> bool:
        answer: bool = eval(code, {**known, **names, **facts})
        return answer

    return condition


def free_names(tree: ast.AST) -> list[str]:
    """The names that an expression uses and does not define itself."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    # variables of comprehensions, arguments of lambdas
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return [node.id for node in names if node.id not in own]


class Breakpoints:
    """The breakpoints of a model, and in which bodies they lie.

    Attributes:
        inside: scope -> the nodes whose bodies hold a breakpoint, at any depth.
    """

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.inside = dict[str, set[int]]()
        self._points = dict[int, Breakpoint]()
        self._last = 0

    def __iter__(self) -> Iterator[Breakpoint]:
        return iter(self._points.values())

    def __len__(self) -> int:
        return len(self._points)

    def add(
        self,
        selector: str,
        condition: Condition | None = None,
        text: str = "",
        temporary: bool = False,
        number: int | None = None,
    ) -> Breakpoint:
        """Add a breakpoint; its number is the next one unless it is given.

        Raises:
            UnknownNameError, UsageError: there is no such node.
        """
        marks = self.scopes.find(selector)
        # numbers are never given twice, also after a breakpoint is deleted
        self._last += number is None
        number = self._last if number is None else number
        point = Breakpoint(number, selector, condition, text, temporary, marks)
        self._points[number] = point
        self._mark()
        return point

    def delete(self, number: int) -> None:
        """Remove a breakpoint.

        Raises:
            UnknownNameError: no breakpoint has that number.
        """
        if number not in self._points:
            known = map(str, self._points)
            raise UnknownNameError(str(number), "the debugger", known, kind="breakpoint")
        del self._points[number]
        self._mark()

    def move(self, scopes: Scopes) -> list[str]:
        """Move them to another model; return those that have no node there and stop nowhere."""
        self.scopes = scopes
        lost = []
        for point in self:
            try:
                point.marks = scopes.find(point.selector)
            except (UnknownNameError, UsageError):
                point.marks = Marks()
                lost.append(str(point))
        self._mark()
        return lost

    def at(self, frame: Frame, position: int) -> list[Breakpoint]:
        """Return the breakpoints at a node, those without a condition first."""
        there = [point for point in self if position in point.marks.of(frame)]
        return sorted(there, key=lambda point: point.condition is not None)

    def ahead(self, frame: Frame) -> list[int]:
        """Return the places ahead in a frame that hold a breakpoint, or a body with one."""
        inside = self.inside.get(frame.scope, set())
        marked = inside.union(*(point.marks.of(frame) for point in self))
        places = (frame.index.places[position] for position in marked)
        return sorted(place for place in places if place >= frame.place)

    def _mark(self) -> None:
        self.inside = {}
        for point in self:
            for scope, positions in point.marks.through.items():
                self.inside[scope] = self.inside.get(scope, set()) | positions
