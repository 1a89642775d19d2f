"""The parts of a model for the terminal."""

from onnxsurgeon_lite.matching.split import Split
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.report.mismatches import explain
from onnxsurgeon_lite.report.plain import say_all


def show_split(found: Split) -> None:
    """A line for each part, then how they compare with the whole."""
    for number, part in enumerate(found.parts, 1):
        what = f"wrote {str(part.path)!r}" if part.path else f"part {number}"
        ends = f"{', '.join(part.inputs)} -> {', '.join(part.outputs)}"
        say_all([f"{what}: {ends} ({counted(len(part.nodes), 'node')})"])
    for name, comparison in found.outputs.items():
        agrees = f"{name!r} agrees with the whole: max abs difference {comparison.max_abs:.3g}"
        say_all([agrees] if comparison.match else explain(name, comparison))
