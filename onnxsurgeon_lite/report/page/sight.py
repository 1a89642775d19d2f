"""What a page shows of the models beside the result: their drawings, numbers along them, pictures of tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from onnxsurgeon_lite.graph import GraphIndex, begin_beside
from onnxsurgeon_lite.report.page.data import GraphPart, Mark, Measure, TensorPart
from onnxsurgeon_lite.report.page.graph import graph_parts, is_alike
from onnxsurgeon_lite.report.page.types import Texts, begin_types, inferred

if TYPE_CHECKING:
    from onnxsurgeon_lite.tensors.comparison import Comparison

_CLOSE = 4  # nodes whose neighborhood is drawn
_FAINT = ("region", "fused", "cleared")


@dataclass
class Sight:
    """What a page shows besides the result itself: drawings of models, pictures of tensors, numbers of all values.

    Attributes:
        models: the main graphs of the models that the result is about.
        compared: value of the first model -> its comparison with the reference, in order.
        tensors: pictures of some of these values.
        measures: numbers of the nodes, for charts.
        notes: what could not be measured.
        is_drawn: the graphs are laid out.
    """

    models: Sequence[GraphIndex] = ()
    compared: "dict[str, Comparison]" = field(default_factory=dict)
    tensors: list[TensorPart] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_drawn: bool = True
    _typed: Callable[[], Texts] | None = None
    _alike: list[tuple[GraphIndex, str, Callable[[], Texts]]] = field(default_factory=list)
    _others: list[Callable[[], GraphPart]] = field(default_factory=list)

    def title(self, between: str = "against") -> str:
        """Return what the models are called."""
        return f" {between} ".join(map(title_of, self.models)) or "tensors"

    def begin(self, most: int) -> None:
        """Begin, in processes of their own, with what takes long: types, drawings of graphs unlike the first."""
        if self._typed is None and self.models:
            first, *others = self.models[:most]
            self._typed = begin_types(first)
            for other in others:
                if is_alike(first, other):
                    self._alike.append((other, title_of(other), begin_types(other)))
                else:
                    self._others.append(_begin_drawing(other))

    def graphs(self, most: int, marks: Sequence[Mark] = ()) -> list[GraphPart]:
        """Return the graphs of the first models, laid out.

        Args:
            marks: the first nodes of the first graph that have one are drawn with their neighborhood.
        """
        if not (self.is_drawn and self.models):
            return []
        self.begin(most)
        first = self.models[0]
        # the nodes that matter most are drawn open; a graph that is drawn like the first shares its layout
        marked = dict.fromkeys(m.node for m in marks if not m.graph and m.kind not in _FAINT)
        close = list(marked)[:_CLOSE]
        drawn = graph_parts(first, title_of(first), close, self._typed, self._alike)
        drawn += (wait() for wait in self._others)
        return drawn


def _begin_drawing(index: GraphIndex) -> Callable[[], GraphPart]:
    def drawn() -> GraphPart:
        return graph_parts(index, title_of(index), typed=partial(inferred, index))[0]

    return begin_beside("a drawing", drawn, index.model.proto.ByteSize(), otherwise=drawn)


def title_of(index: GraphIndex) -> str:
    """Return what a page of a model is called."""
    return index.model.path.name if index.model.path else index.graph.name or "model"
