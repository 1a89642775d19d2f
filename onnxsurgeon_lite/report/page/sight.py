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
        notes: what could not be seen. is_drawn: the graphs are laid out.
    """

    models: Sequence[GraphIndex] = ()
    compared: dict[str, Comparison] = field(default_factory=dict)
    tensors: list[TensorPart] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_drawn: bool = True

    def title(self, between: str = "against") -> str:
        """Return what the models are called."""
        return f" {between} ".join(map(_title_of, self.models)) or "tensors"

    def graphs(self, most: int, close: Sequence[int] = ()) -> list[GraphPart]:
        """Return the graphs of the first models, laid out.

        Args:
            close: nodes of the first one, whose neighborhood is drawn open.
        """
        return [
            graph_part(index, _title_of(index), () if number else close)
            for number, index in enumerate(self.models[:most] if self.is_drawn else ())
        ]


def _title_of(index: GraphIndex) -> str:
    return index.model.path.name if index.model.path else index.graph.name or "model"
