"""Put inputs and outputs of the graph in another order."""

from collections.abc import MutableSequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import ValueInfoProto

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, assign, by_name
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import ends


@dataclass(frozen=True)
class Reorder:
    """Put inputs and outputs in another order: those that are named come first, the others keep theirs.

    Attributes:
        inputs: names of inputs, in their new order.
        outputs: names of outputs, in their new order.

    Example:
        >>> exposed = osl.expose("whole_model.onnx", "23").model
        >>> osl.reorder(exposed, outputs="23").changes
        ('outputs: 23, 31',)
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    name: ClassVar[str] = "reorder"

    def apply(self, model: Model) -> PassResult:
        """Reorder them.

        Raises:
            UnknownNameError: no such input or output.
            UsageError: one is named twice, or none is named.
        """
        if not self.inputs and not self.outputs:
            raise UsageError("nothing to reorder", "name --inputs or --outputs, in their new order")
        index = GraphIndex.of(model)
        result = model.copy()
        graph = result.graph
        changes = []
        for kind, infos, known, names in (
            ("input", graph.input, index.inputs, self.inputs),
            ("output", graph.output, index.outputs, self.outputs),
        ):
            before = [info.name for info in infos]
            _put(infos, kind, ends(index, names, known, kind))
            after = [info.name for info in infos]
            changes += [f"{kind}s: {', '.join(after)}"] if after != before else []
        return PassResult.of(model, result, changes)


def _put(infos: MutableSequence[ValueInfoProto], kind: str, first: list[str]) -> None:
    if len(set(first)) < len(first):
        raise UsageError(f"an {kind} is named twice", "name each once")
    held = by_name(infos)
    # the named ones first, then the others in their order
    ordered = [held[name] for name in dict.fromkeys(chain(first, held))]
    assign(infos, ordered)
