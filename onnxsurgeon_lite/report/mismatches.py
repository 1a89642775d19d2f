"""Why two tensors mismatch, in sentences."""

from collections.abc import Iterator

from onnxsurgeon_lite.matching.sets import SetComparison
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.metrics import gap, number_text

_NAMED = 8  # references


def unproved(result: SetComparison) -> Iterator[str]:
    """Yield why what was compared proves nothing, or not all."""
    if result.only_inner:
        yield "inconclusive: no output of the model was compared"
    if result.exchanged:
        yield f"inconclusive: {result.exchanged}"
    if names := result.left_over:
        which = f"{counted(len(names), 'reference')} behind the last match"
        shown = ", ".join(map(repr, names[:_NAMED]))
        yield f"{which} {'was' if len(names) == 1 else 'were'} not compared: {shown}"


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
