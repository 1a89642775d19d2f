"""A suite of checks that onnxdbg.toml holds: models, their references, what their outputs may differ by."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, get_args

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.comparison import Tolerance

CONFIG = Path("onnxdbg.toml")
_EXAMPLE = '[[check]] with model = "..." and reference = "..."'
_TEXTS = ("name", "model", "reference", "feeds", "map", "opt")
OptLevel = Literal["none", "basic", "extended", "all"]


@dataclass(frozen=True)
class SuiteCheck:
    """A model and its references.

    Attributes:
        tolerances: (name or glob, tolerance) of outputs; the first that fits an output is its own.
        asked: the outputs that were compared, so far.
    """

    name: str
    model: Path
    reference: Path
    feeds: Path | None = None
    map: str | None = None
    opt: OptLevel = "all"
    tolerances: tuple[tuple[str, Tolerance], ...] = ()
    asked: list[str] = field(default_factory=list)

    def tolerance(self, output: str) -> Tolerance | None:
        """Return what an output may differ by; None for its dtype's own."""
        self.asked.append(output)
        return next((t for glob, t in self.tolerances if fnmatchcase(output, glob)), None)

    def require_used(self) -> None:
        """Raise `UsageError` if a tolerance fits no output that was compared: its name is misspelled."""
        for glob, _ in self.tolerances:
            if not any(fnmatchcase(name, glob) for name in self.asked):
                known = ", ".join(map(repr, dict.fromkeys(self.asked)))
                raise UsageError(
                    f"no output is called {glob!r}, as a tolerance says", f"compared were {known}"
                )


@dataclass
class SuiteOutcome:
    """What a check found.

    Attributes:
        error: why nothing was compared; '' otherwise.
        seconds: how long it took.
    """

    name: str
    model: Path
    error: str = ""
    seconds: float = 0.0
    comparison: SetComparison | None = None

    @property
    def match(self) -> bool:
        """True when every compared output matches; nothing compared is no match."""
        return self.comparison is not None and self.comparison.match


@dataclass(repr=False)
class SuiteResult(Shown):
    """What every check of a suite found, in the suite's order.

    Example:
        >>> [outcome.match for outcome in osl.test("onnxdbg.toml").outcomes]
        [True, False, False]
    """

    outcomes: list[SuiteOutcome] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """True when every check matches."""
        return all(outcome.match for outcome in self.outcomes)

    @property
    def errors(self) -> list[SuiteOutcome]:
        """Those that compared nothing."""
        return [outcome for outcome in self.outcomes if outcome.error]


def read_config(path: Path) -> dict[str, object]:
    """Read a TOML file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}") from error


def read_suite(path: Path, only: Sequence[str] = ()) -> list[SuiteCheck]:
    """Read the checks of a file; its paths are relative to its folder.

    Args:
        only: names or globs of the checks that are wanted; all by default.

    Raises:
        UsageError: the file cannot be read, holds no checks, or a check is not understood.
    """
    if not path.exists():
        raise UsageError(
            f"there is no {str(path)!r} here",
            f"name another with --config, or write one: {_EXAMPLE}",
        )
    found = read_config(path).get("check")
    if not isinstance(found, list) or not found:
        raise UsageError(f"{str(path)!r} holds no checks", _EXAMPLE)
    checks = [_check(path, number, given) for number, given in enumerate(found, 1)]
    names = [check.name for check in checks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(
            f"two checks of {str(path)!r} are called {twice!r}", 'give one a name = "..."'
        )
    if unknown := next((g for g in only if not any(fnmatchcase(n, g) for n in names)), None):
        raise UsageError(
            f"no check is called {unknown!r}", f"there are {', '.join(map(repr, names))}"
        )
    return [c for c in checks if not only or any(fnmatchcase(c.name, glob) for glob in only)]


def _check(path: Path, number: int, given: object) -> SuiteCheck:
    where = f"check {number} of {str(path)!r}"
    if not isinstance(given, dict):
        raise UsageError(f"{where} is no table", "write [[check]]")
    known = {*_TEXTS, "rtol", "atol", "tolerance"}
    if unknown := sorted(given.keys() - known):
        raise UsageError(f"{where} has {unknown[0]!r}", f"it may have {', '.join(sorted(known))}")
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise UsageError(f"{name} of {where} is no text", f'write {name} = "..."')
    if lacks := [name for name in ("model", "reference") if not given.get(name)]:
        raise UsageError(f"{where} has no {lacks[0]}", f'write {lacks[0]} = "..."')
    if (level := given.get("opt", "all")) not in get_args(OptLevel):
        raise UsageError(
            f"opt of {where} is {level!r}", f"write one of {', '.join(get_args(OptLevel))}"
        )
    feeds = given.get("feeds")
    return SuiteCheck(
        str(given.get("name", given["model"])),
        path.parent / given["model"],
        path.parent / given["reference"],
        None if feeds is None else path.parent / feeds,
        _map(path, given.get("map")),
        level,
        _tolerances(where, given),
    )


def _map(path: Path, given: str | None) -> str | None:
    return given if given in (None, "auto", "names") else str(path.parent / given)


def _tolerances(where: str, given: Mapping[str, object]) -> tuple[tuple[str, Tolerance], ...]:
    own = given.get("tolerance", {})
    if not isinstance(own, dict):
        raise UsageError(f"tolerance of {where} is no table", '"logits*" = { rtol = 1e-3 }')
    every = {name: given[name] for name in ("rtol", "atol") if name in given}
    tables = own | ({"*": every} if every else {})
    return tuple((glob, _tolerance(where, table)) for glob, table in tables.items())


def _tolerance(where: str, table: object) -> Tolerance:
    if not isinstance(table, dict) or not table or table.keys() - {"rtol", "atol"}:
        raise UsageError(
            f"a tolerance of {where} is not understood", "{ rtol = 1e-3, atol = 1e-5 }"
        )
    if not all(isinstance(number, int | float) and number >= 0 for number in table.values()):
        raise UsageError(f"a tolerance of {where} is no number, 0 or more", "rtol = 1e-3")
    return Tolerance(float(table.get("atol", 0)), float(table.get("rtol", 0)))
