"""The metrics of a comparison, in one table: every report takes its columns from here."""

from collections.abc import Callable
from dataclasses import dataclass

from onnxsurgeon_lite.tensors.comparison import Comparison


@dataclass(frozen=True)
class ErrorMeasure:
    """One number: how far two tensors are apart.

    Attributes:
        name: of the field of `Comparison` that holds it.
        title: of its column. text: of a cell.
        usual: whether reports show it unasked.
    """

    name: str
    title: str
    text: Callable[[Comparison], str]
    usual: bool = False


def number_text(value: float | str | None, digits: int = 6) -> str:
    """Return a number as reports show it; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else repr(value)


METRICS = (
    ErrorMeasure("max_abs", "max abs", lambda c: number_text(c.max_abs, 4), usual=True),
    ErrorMeasure("allowed", "allowed", lambda c: number_text(c.allowed, 3), usual=True),
    ErrorMeasure("exceeding", "over", lambda c: f"{100 * c.share_over:.3g}%", usual=True),
    ErrorMeasure("max_rel", "max rel", lambda c: number_text(c.max_rel, 4)),
    ErrorMeasure("rmse", "RMSE", lambda c: number_text(c.rmse, 4)),
    ErrorMeasure("cosine", "cosine", lambda c: number_text(c.cosine)),
    ErrorMeasure("sqnr_db", "SQNR dB", lambda c: number_text(c.sqnr_db, 4)),
    ErrorMeasure("ulp", "ULP", lambda c: number_text(c.ulp)),
)
"""In the order of their columns."""


def titles(every: bool = False) -> list[str]:
    """Return the titles of the metrics' columns: the usual ones, or every one."""
    return [metric.title for metric in METRICS if every or metric.usual]


def texts(comparison: Comparison, every: bool = False) -> list[str]:
    """Return the metrics as text, under `titles`; why there are none where shapes or dtypes differ."""
    if comparison.reason in ("shape", "dtype"):
        return [comparison.reason]
    return [metric.text(comparison) for metric in METRICS if every or metric.usual]


def verdict(comparison: Comparison) -> str:
    """Return the word for one tensor."""
    return "match" if comparison.match else "MISMATCH"


def gap(comparison: Comparison) -> str:
    """Return in a phrase how far two tensors are apart."""
    c = comparison
    if c.reason in ("shape", "dtype"):
        sides = c.shapes if c.reason == "shape" else c.dtypes
        actual, reference = (list(side) if isinstance(side, tuple) else side for side in sides)
        return f"{c.reason} {actual} where the reference has {reference}"
    if c.non_finite is not None:
        (nan, nan_r), (inf, inf_r) = c.nan, c.inf
        return f"{nan} NaN and {inf} Inf where the reference has {nan_r} and {inf_r}"
    if not c.match and not c.max_abs:  # text
        return f"{c.exceeding} of {c.elements} elements differ"
    return f"max abs {c.max_abs:.3g} where {c.allowed:.3g} is allowed"
