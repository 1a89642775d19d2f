"""One door to all that is shown: a result of any kind as text, HTML and JSON."""

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
    "Distributions": "distributions.show_distributions",
    "View": "summary.show_view",
    "CheckResult": "plain.show_verdict",
    "ModelDiff": "differences.show_diff",
    "Split": "split.show_split",
    "PassResult": "edits.show_result",
    "EditResult": "edits.show_edited",
    "DataListing": "storage.show_data",
    "Written": "plain.show_files",
    "Moved": "storage.show_moved",
    "Collected": "storage.show_collected",
    "Stripped": "storage.show_stripped",
    "RunResult": "metrics.show_run",
    "Recording": "plain.show_recording",
    "Comparison": "metrics.show_tensors",
    "SetComparison": "metrics.show_comparison",
    "Profile": "profile.show_profile",
    "ProfileComparison": "profile.show_profiles",
    "SuiteResult": "suite.show_suite",
    "BisectResult": "bisection.show_bisection",
    "Ranking": "ranking.show_ranking",
    "Float16Risks": "ranking.show_risks",
    "Blame": "ranking.show_blame",
    "BitsPerLayer": "ranking.show_bits",
    "LeaveOneOut": "ranking.show_left_out",
    "Conversion": "conversion.show_conversion",
    "MatchResult": "matching.show_matching",
    "WeightsResult": "matching.show_weights",
}
"""Class -> the function of this room that prints it, imported when it is needed."""


def show(result: Shown, json: bool = False, **how: bool | str) -> None:
    """Print a result as its command does; `how` goes to the function that prints it."""
    plain.show_notes(result.told)
    if json:
        show_json(result.contract())
    else:
        _shown_by(result)(result, **how)


def text(result: Shown) -> str:
    """Return what `show` prints to stdout."""
    captured = StringIO()
    with plain.captured(captured):
        _shown_by(result)(result)
    return captured.getvalue().rstrip("\n")


def html(result: Shown) -> str:
    """Return the text, escaped, and the picture that the result's page shows first."""
    from onnxsurgeon_lite.report.svg import pictures

    return f"<pre>{escape(text(result))}</pre>{pictures(result)}"


def _shown_by(result: Shown) -> Callable[..., None]:
    found = next(SHOWN_BY[c.__name__] for c in type(result).__mro__ if c.__name__ in SHOWN_BY)
    module, _, name = found.partition(".")
    show = getattr(import_module(f"onnxsurgeon_lite.report.{module}"), name)
    return cast(Callable[..., None], show)
