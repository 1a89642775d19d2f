"""One door to all that is shown: a result of any kind as text, HTML and JSON."""

import contextlib
from collections.abc import Callable
from html import escape
from importlib import import_module
from io import StringIO
from typing import cast

from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.json import plain as data
from onnxsurgeon_lite.report.json import show_json
from onnxsurgeon_lite.shown import Shown

__all__ = ["data", "html", "show", "text"]

SHOWN_BY = {
    "ModelSummary": "summary.show_summary",
    "OperatorCounts": "summary.show_ops",
    "ModuleTree": "summary.show_tree",
    "NodeSummary": "summary.show_node",
    "ValueSummaries": "summary.show_values",
    "CheckResult": "plain.show_check",
    "ModelDiff": "differences.show_diff",
    "Split": "split.show_split",
    "PassResult": "edits.show_result",
    "EditResult": "edits.show_edited",
    "DataListing": "storage.show_data",
    "Written": "plain.show_files",
    "Moved": "plain.show_files",
    "Collected": "storage.show_collected",
    "Stripped": "storage.show_stripped",
    "RunResult": "bisection.show_run",
    "Recording": "plain.show_recording",
    "Comparison": "bisection.show_tensors",
    "SetComparison": "bisection.show_comparison",
    "BisectResult": "bisection.show_bisection",
    "Ranking": "bisection.show_ranking",
    "Float16Risks": "bisection.show_risks",
    "MatchResult": "matching.show_matching",
    "WeightsResult": "matching.show_weights",
}
"""Class -> the function of this room that prints it, imported when it is needed."""

_HTML = ("Stop", "Reading", "Readings", "Stack", "Breakpoints")


def show(result: Shown, json: bool = False) -> None:
    """Print a result as its command does."""
    plain.show_notes(result.told)
    if json:
        show_json(result.contract())
    else:
        _shown_by(result)(result)


def text(result: Shown) -> str:
    """Return what `show` prints to stdout."""
    captured = StringIO()
    with plain.captured(captured):
        _shown_by(result)(result)
    return captured.getvalue().rstrip("\n")


def html(result: Shown) -> str:
    """Return the text, escaped."""
    return f"<pre>{escape(text(result))}</pre>"


def _shown_by(result: Shown) -> Callable[[object], None]:
    found = next(SHOWN_BY[c.__name__] for c in type(result).__mro__ if c.__name__ in SHOWN_BY)
    module, _, name = found.partition(".")
    show = getattr(import_module(f"onnxsurgeon_lite.report.{module}"), name)
    return cast(Callable[[object], None], show)
