"""What other packages bring, by entry points: runtimes, passes, hypotheses and readers of references.

A package declares it in its `pyproject.toml`; nothing of it is imported before it is needed.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

RUNTIMES = "onnxsurgeon_lite.runtimes"
PASSES = "onnxsurgeon_lite.passes"
HYPOTHESES = "onnxsurgeon_lite.hypotheses"
READERS = "onnxsurgeon_lite.readers"


def offered(group: str) -> "Mapping[str, EntryPoint]":
    """Return name -> entry point, without importing any."""
    # imported late: few commands ask, and it takes 20 ms
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=group)}


@functools.cache
def brought(group: str) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Return what can be imported, by name, and a line for each entry point that cannot: it is left out."""
    found = dict[str, object]()
    broken = []
    for name, entry in sorted(offered(group).items()):
        try:
            found[name] = entry.load()
        except Exception as error:  # noqa: BLE001  whatever another package does at its import
            broken.append(f"left out {name!r} of {package(entry)}: {reason(error)}")
    return found, tuple(broken)


def package(entry: "EntryPoint") -> str:
    """Return the name of the package that an entry point is of."""
    return repr(entry.dist.name if entry.dist else entry.value)


def reason(error: Exception) -> str:
    """Return an error of another package in one line."""
    first = str(error).strip().splitlines()[:1]
    return ": ".join([type(error).__name__] + first)
