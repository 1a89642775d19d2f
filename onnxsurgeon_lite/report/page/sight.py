"""What was seen of the models while a result was found, as far as a page shows it."""

from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING

from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.report.page.data import GraphPart, Mark, Measure, TensorPart
from onnxsurgeon_lite.report.page.graph import graph_part, learn_types

if TYPE_CHECKING:
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
    compared: "dict[str, Comparison | Distance]" = field(default_factory=dict)
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
        typed = [*map(_typing, drawn)]
        return [
            graph_part(index, _title_of(index), () if number else [*marked][:_CLOSE], learned)
            for number, (index, learned) in enumerate(zip(drawn, typed, strict=True))
        ]


def _typing(index: GraphIndex) -> Callable[[], None]:
    """Infer types in a thread, because ONNX infers in a process of its own; return what waits for them."""
    thread = Thread(target=copy_context().run, args=(learn_types, index))
    thread.start()
    return thread.join


def _title_of(index: GraphIndex) -> str:
    return index.model.path.name if index.model.path else index.graph.name or "model"
