"""Read the suite of checks in onnxdbg.toml: models, their references, what may differ."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.passes.recipe import read_toml
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors.comparison import KINDS, Tolerance, tolerance_of
from onnxsurgeon_lite.tensors.metrics import METRICS, Limit

CONFIG = Path("onnxdbg.toml")
_EXAMPLE = '[[check]] with model = "..." and reference = "..."'
_NAMED = "if you trust it, name the file: onnxdbg test --config onnxdbg.toml"
_TEXTS = ("name", "model", "reference", "feeds", "map", "opt", "metric")
OptLevel = Literal["none", "basic", "extended", "all"]


@dataclass(frozen=True)
class SuiteCheck:
    """A model and its references.

    Attributes:
        tolerance: what decides; None for the dtypes' own.
    """

    name: str
    model: Path
    reference: Path
    feeds: Path | None
    map: str | None
    opt: OptLevel
    tolerance: Tolerance | None


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


@dataclass
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
        """The checks that compared nothing."""
        return [outcome for outcome in self.outcomes if outcome.error]


def found_path(text: str, hint: str, folder: Path = Path()) -> Path:
    """Return a path from a configuration that was found, not named by the user: it must be below its folder.

    Somebody else may have written that file, so a URL or Python (`FILE.py:function`) is refused, too.

    Raises:
        UsageError: it is refused.
    """
    path, here = folder / text, os.path.realpath(folder)
    if ":" in text or "\0" in text or not Path(os.path.realpath(path)).is_relative_to(here):
        raise UsageError(f"a configuration names {text!r}, which is not in its folder", hint)
    return path


def read_suite(path: Path | None, only: Sequence[str] = ()) -> list[SuiteCheck]:
    """Read the checks of a file; its paths are relative to its folder.

    Args:
        path: without one the `onnxdbg.toml` of this folder, which may name nothing outside of it.
        only: names or globs of the checks that are wanted; all by default.

    Raises:
        UsageError: the file cannot be read, holds no checks, or a check is not understood.
    """
    # a file that was found here, not named, may be a stranger's
    is_found, path = path is None, path or CONFIG
    if not os.path.lexists(path):
        raise UsageError(
            f"there is no {str(path)!r} here",
            f"name another with --config, or write one: {_EXAMPLE}",
        )
    found = read_toml(path, path.parent if is_found else None).get("check")
    if not isinstance(found, list) or not found:
        raise UsageError(f"{str(path)!r} holds no checks", _EXAMPLE)
    # a path in the file is relative to its folder; in a found file it must be inside
    place = partial(found_path, hint=_NAMED) if is_found else path.parent.joinpath
    checks = [_check(path, number, given, place) for number, given in enumerate(found, 1)]
    # names must be unique, and fit what is asked for
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


def _check(path: Path, number: int, given: object, place: Callable[[str], Path]) -> SuiteCheck:
    where = f"check {number} of {str(path)!r}"
    if not isinstance(given, dict):
        raise UsageError(f"{where} is no table", "write [[check]]")
    known = {*_TEXTS, *KINDS, "tolerance"}
    # what is not understood is an error, as a typing mistake would check nothing
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
    # both may be left out
    feeds = given.get("feeds")
    how = given.get("map")
    return SuiteCheck(
        str(given.get("name", given["model"])),
        place(given["model"]),
        place(given["reference"]),
        None if feeds is None else place(feeds),
        how if how in (None, "auto", "names") else str(place(how)),
        level,
        _tolerance(where, given),
    )


def _tolerance(where: str, given: Mapping[str, object]) -> Tolerance | None:
    own = given.get("tolerance", {})
    if not isinstance(own, dict):
        raise UsageError(f"tolerance of {where} is no table", '"logits*" = { rtol = 1e-3 }')
    # atol and rtol beside the check's name hold for all values; a table for those that its pattern names
    every = {name: given[name] for name in KINDS if name in given}
    tables = own | ({"*": every} if every else {})
    for table in tables.values():
        if not isinstance(table, dict) or not table or table.keys() - set(KINDS):
            raise UsageError(
                f"a tolerance of {where} is not understood", "{ rtol = 1e-3, atol = 1e-5 }"
            )
    limit = Limit.of(str(given.get("metric", "")))
    if limit is None and "metric" in given:
        raise UsageError(
            f"{where} has no metric {given['metric']!r}", f"known are {', '.join(METRICS)}"
        )
    try:
        return tolerance_of(tables, limit)
    except UsageError as error:
        raise UsageError(f"{error.message}, in {where}", error.hint) from error
