"""What was seen of the models while a result was found, as far as a page shows it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.report.page.data import GraphPart, Mark, Measure, TensorPart
from onnxsurgeon_lite.report.page.graph import graph_part, learn_types
from onnxsurgeon_lite.tensors.comparison import Comparison, Distance

_CLOSE = 4  # nodes whose neighborhood is drawn
_FAINT = ("region", "fused", "cleared")


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
    compared: dict[str, Comparison | Distance] = field(default_factory=dict)
    tensors: list[TensorPart] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_drawn: bool = True

    def title(self, between: str = "against") -> str:
        """Return what the models are called."""
        return f" {between} ".join(map(_title_of, self.models)) or "tensors"

    def graphs(self, most: int, marks: Sequence[Mark] = ()) -> list[GraphPart]:
        """Return the graphs of the first models, laid out.

        Args:
            marks: the first nodes of the first graph that have one are drawn with their neighborhood.
        """
        marked = dict.fromkeys(m.node for m in marks if not m.graph and m.kind not in _FAINT)
        drawn = self.models[:most] if self.is_drawn else ()
        with ThreadPoolExecutor(max(1, len(drawn))) as pool:  # ONNX infers in processes of its own
            typed = [pool.submit(copy_context().run, learn_types, index) for index in drawn]
            return [
                graph_part(
                    index, _title_of(index), () if number else [*marked][:_CLOSE], known.result
                )
                for number, (index, known) in enumerate(zip(drawn, typed, strict=True))
            ]


def _title_of(index: GraphIndex) -> str:
    return index.model.path.name if index.model.path else index.graph.name or "model"
