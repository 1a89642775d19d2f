"""Why two tensors mismatch, in sentences."""

from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.metrics import gap, number_text


def explain(name: str, comparison: Comparison) -> list[str]:
    """Return why a comparison mismatches, in sentences; nothing for a match."""
    if comparison.match:
        return []
    dtype, shape = comparison.dtypes[0], list(comparison.shapes[0])
    lines = [f"mismatch at value {name!r} ({dtype} {shape})"]
    if comparison.reason in ("shape", "dtype"):
        return [*lines, f"  {gap(comparison)}"]
    if comparison.non_finite is not None:
        where = list(comparison.non_finite)
        lines.append(f"  first non-finite difference at {where}: {gap(comparison)}")
    over = f"{comparison.exceeding} of {comparison.elements} elements exceed {comparison.tolerance}"
    lines.append(f"  {over}")
    worst = comparison.worst
    if worst is not None:
        lines.append(
            f"  worst at {list(worst.index)}: actual {number_text(worst.actual)}, "
            f"reference {number_text(worst.reference)}, "
            f"off by {worst.difference:.3g} where {worst.allowed:.3g} is allowed"
        )
    return [*lines, *(f"  {note}" for note in comparison.notes)]
