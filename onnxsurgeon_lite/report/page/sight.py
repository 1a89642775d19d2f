"""What was seen of the models while a result was found, as far as a page shows it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.report.page.data import GraphPart, Measure, TensorPart
from onnxsurgeon_lite.report.page.graph import graph_part
from onnxsurgeon_lite.tensors.comparison import Comparison


@dataclass
class Sight:
    """What a result is about.

    Attributes:
        models: their main graphs.
        compared: values of the first model against their references, in order. tensors: some of them.
        measures: numbers along the models.
        pairs: nodes of the first model and of the second that are the same.
        notes: what could not be seen.
    """

    models: Sequence[GraphIndex]
    compared: dict[str, Comparison] = field(default_factory=dict)
    tensors: list[TensorPart] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def graphs(self, close: Sequence[int] = ()) -> list[GraphPart]:
        """Return the graphs, laid out; the neighborhood of some nodes of the first one drawn open."""
        return [
            graph_part(index, title_of(index), () if number else close)
            for number, index in enumerate(self.models)
        ]


def title_of(index: GraphIndex) -> str:
    """Return what a model is called."""
    return index.model.path.name if index.model.path else index.graph.name or "model"
