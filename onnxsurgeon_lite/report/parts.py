"""The parts of a model for the terminal."""

from onnxsurgeon_lite.names import shown
from onnxsurgeon_lite.report.lines import out
from onnxsurgeon_lite.report.mismatches import explain
from onnxsurgeon_lite.splitting import Split


def show_split(found: Split) -> None:
    """A line for each part, then how they compare with the whole."""
    for part in found.parts:
        ends = f"{', '.join(part.inputs)} -> {', '.join(part.outputs)}"
        nodes = f"{len(part.nodes)} node{'s' * (len(part.nodes) != 1)}"
        out(shown(f"wrote {str(part.path)!r}: {ends} ({nodes})"))
    for name, comparison in found.outputs.items():
        if comparison.match:
            out(
                shown(
                    f"{name!r} agrees with the whole: max abs difference {comparison.max_abs:.3g}"
                )
            )
        for line in explain(name, comparison):
            out(shown(line))
