"""A result as one HTML page: what was found, where in the graph, and the numbers.

The page shows a documented JSON (`data`), which is inside it. Plotly draws the charts, igraph lays out the graph.
"""

from dataclasses import replace
from itertools import chain
from typing import cast

from onnxsurgeon_lite.report import results
from onnxsurgeon_lite.report.page.data import Page
from onnxsurgeon_lite.report.page.measures import Sight
from onnxsurgeon_lite.shown import Shown, versions

__all__ = ["Page", "Sight", "page_of"]

SHOWN_BY = {
    "BisectResult": "bisection.page",
    "SetComparison": "sides.comparison_page",
    "ModelDiff": "sides.diff_page",
    "MatchResult": "sides.match_page",
    "Ranking": "ranking.page",
    "Blame": "ranking.blame_page",
    "Float16Risks": "ranking.risks_page",
    "LeaveOneOut": "ranking.left_out_page",
    "BitsPerLayer": "ranking.bits_page",
    "Conversion": "ranking.conversion_page",
    "Profile": "profile.page",
    "ProfileComparison": "profile.comparison_page",
    "Shown": "model.page",
}
"""Class -> the function of this room that says what its page shows."""


def page_of(result: Shown, sight: Sight) -> Page:
    """Return what a page shows."""
    page = cast(Page, results.function_for(result, SHOWN_BY, __name__)(result, sight))
    # what all pages have, whatever the result: the command's text, notes, versions, the JSON
    return replace(
        page,
        verdict=replace(page.verdict, details=results.text(result).splitlines()),
        notes=list(dict.fromkeys(chain(result.told, page.notes, sight.notes))),
        versions=versions(),
        result=results.data(result.contract()),
    )
