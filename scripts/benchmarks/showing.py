"""Outcomes as a table and as JSON."""

import os
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import version

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from measuring import Outcome


def show(outcomes: Sequence[Outcome]) -> None:
    """One table, a line a pair."""
    table = Table(
        title="medians; ratios are ours / peer, pair by pair (min-max); memory is the peak"
    )
    for heading in ("row", "peer"):
        table.add_column(heading, no_wrap=True)
    for heading in ("ours s", "peer s", "time ratio", "ours MB", "peer MB", "memory ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("target", "verdict"):
        table.add_column(heading, no_wrap=True)
    for outcome in outcomes:
        cells = [outcome.label, outcome.peer.command.label, *_figures(outcome)]
        targets = "\n".join(map(str, outcome.peer.targets))
        verdicts = "\n".join(map(_colored, outcome.verdicts()))
        table.add_row(*map(escape, cells), escape(targets), verdicts)
    out = Console()
    (out if out.is_terminal else Console(width=170)).print(table)
    for outcome in outcomes:
        if outcome.failure:
            print(f"{outcome.label}, {outcome.peer.command.label}: {outcome.failure}")


def _figures(outcome: Outcome) -> list[str]:
    if outcome.failure:
        return [""] * 6
    cells = []
    for what, digits in (("seconds", 2), ("megabytes", 0)):
        for runs in (outcome.ours, outcome.theirs):
            cells.append(f"{statistics.median(getattr(run, what) for run in runs):.{digits}f}")
        cells.append(_spread(outcome.ratios(what)))
    return cells


def _spread(ratios: Sequence[float]) -> str:
    median = f"{statistics.median(ratios):.3g}x"
    return median if len(ratios) == 1 else f"{median} ({min(ratios):.3g}-{max(ratios):.3g})"


def _colored(verdict: str) -> str:
    return f"[{'green' if verdict == 'reached' else 'bold red'}]{verdict}[/]"


def as_data(outcomes: Sequence[Outcome], rounds: int) -> dict[str, object]:
    """What `--json` writes."""
    packages = ("onnxsurgeon-lite", "onnx", "onnxruntime", "onnx-graphsurgeon", "polygraphy")
    return {
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "rounds": rounds,
        "results": [_outcome_data(outcome) for outcome in outcomes],
    }


def _outcome_data(outcome: Outcome) -> dict[str, object]:
    data: dict[str, object] = {"row": outcome.label, "peer": outcome.peer.command.label}
    if outcome.failure:
        return {**data, "failure": outcome.failure}
    for who, runs in (("ours", outcome.ours), ("theirs", outcome.theirs)):
        data[f"{who}_seconds"] = [round(run.seconds, 4) for run in runs]
        data[f"{who}_megabytes"] = [round(run.megabytes, 1) for run in runs]
    data["time_ratio"] = statistics.median(outcome.ratios("seconds"))
    data["memory_ratio"] = statistics.median(outcome.ratios("megabytes"))
    data["targets"] = [
        {"target": str(target), "measured": outcome.measured(target), "verdict": verdict}
        for target, verdict in zip(outcome.peer.targets, outcome.verdicts(), strict=True)
    ]
    return data
