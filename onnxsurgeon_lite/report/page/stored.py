"""What a result that was printed with `--json` says of nodes."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.report.page.data import Mark, MarkKind, Measure, Node
from onnxsurgeon_lite.report.page.measures import finite, node_of, position_of

_LARGEST = 1 << 28  # bytes
_MARKS: dict[str, MarkKind] = {"culprits": "culprit", "cleared": "cleared"}
_COSTLY = "covers"  # of a profile's nodes: the ids that they stand for

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


def marks(result: Entry) -> list[Mark]:
    """Return the culprits, and what was cleared."""
    return [
        Mark(0, node, _MARKS[kind], "; ".join(_reasons(entry)))
        for kind, node, entry in _entries(result)
        if kind in _MARKS
    ]


def measures(result: Entry) -> list[Measure]:
    """Return every number of nodes."""
    found = defaultdict[str, list[tuple[Node, str, float]]](list)
    for kind, node, entry in _entries(result):
        # title -> (node, name, number); nested keys are joined: `cost.seconds`
        if kind not in _MARKS:
            for title, number in _numbers(entry):
                found[title].append((node, str(entry.get("name", "")), number))
    return [
        _measure(title, sorted(points, key=lambda point: position_of(point[0])))
        for title, points in found.items()
    ]


def _measure(title: str, points: list[tuple[Node, str, float]]) -> Measure:
    nodes, names, numbers = zip(*points, strict=True)
    count = len(points)
    return Measure(
        title=title.replace("_", " "),
        unit=title.rpartition(".")[2],
        limit="",
        graph=0,
        nodes=list(nodes),
        names=list(names),
        numbers=[finite(number) for number in numbers],
        limits=[None] * count,
        bad=[False] * count,
        worse="low" if title.endswith("_db") else "high",
        log=False,
    )


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
