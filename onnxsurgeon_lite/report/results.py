"""One door to all that is shown: a result of any kind as text and JSON."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from io import StringIO
from json import dumps
from pathlib import Path
from typing import cast

from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.shown import Shown

__all__ = ["data", "show", "text"]

_HERE = "onnxsurgeon_lite.report"
SHOWN_BY = {
    "ModelSummary": "summary.show_summary",
    "PackageSummary": "summary.show_stages",
    "OperatorCounts": "summary.show_ops",
    "ModuleTree": "summary.show_tree",
    "NodeSummary": "summary.show_node",
    "ValueSummaries": "summary.show_values",
    "Distributions": "summary.show_distributions",
    "View": "page.view.show_view",
    "CheckResult": "plain.show_verdict",
    "ModelDiff": "differences.show_diff",
    "Split": "metrics.show_split",
    "PassResult": "edits.show_result",
    "EditResult": "edits.show_edited",
    "DataListing": "edits.show_data",
    "Written": "plain.show_files",
    "Manifest": "edits.show_manifest",
    "Moved": "edits.show_moved",
    "Collected": "edits.show_collected",
    "Stripped": "edits.show_stripped",
    "RunResult": "metrics.show_run",
    "Recording": "plain.show_recording",
    "Comparison": "metrics.show_tensors",
    "SetComparison": "metrics.show_comparison",
    "SampleComparison": "metrics.show_samples",
    "DecodeComparison": "metrics.show_decoding",
    "Placement": "profile.show_placement",
    "Fusions": "profile.show_fusions",
    "Profile": "profile.show_profile",
    "ProfileComparison": "profile.show_profiles",
    "SuiteResult": "suite.show_suite",
    "BisectResult": "bisection.show_bisection",
    "Reduction": "reduction.show_reduction",
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
    """Print a result as its command does, without what was told before; `how` goes to what prints it."""
    # what a command showed while it worked is not shown again
    before = str(how.get("told", ""))
    plain.show_notes(note for note in result.told if note not in before)
    if json:
        # numbers that JSON lacks are the strings `nan`, `inf` and `-inf`
        plain.out(dumps(data(result.contract()), indent=2, allow_nan=False))
    else:
        function_for(result, SHOWN_BY, _HERE)(result, **how)


def text(result: Shown) -> str:
    """Return what `show` prints to stdout."""
    captured = StringIO()
    # print into a text, and let notes go
    with plain.captured(captured):
        function_for(result, SHOWN_BY, _HERE)(result)
    return captured.getvalue().rstrip("\n")


def function_for(result: Shown, known: Mapping[str, str], package: str) -> Callable[..., object]:
    """Return the function for a result's class, or a base of it, from a table of their places in a package."""
    # by name, so that a class need not be imported to be looked up
    found = next(known[c.__name__] for c in type(result).__mro__ if c.__name__ in known)
    module, _, name = found.rpartition(".")
    return cast(Callable[..., object], getattr(import_module(f"{package}.{module}"), name))


def data(value: object) -> object:
    """Dataclasses as objects, sequences as lists, paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # fields marked HIDDEN are not part of the contract
        kept = (f.name for f in dataclasses.fields(value) if f.metadata.get("json", True))
        return {name: data(getattr(value, name)) for name in kept}
    if isinstance(value, dict):
        return {str(key): data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Path) else value
