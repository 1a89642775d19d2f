"""Remove outputs of the graph."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, drop
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import ends


@dataclass(frozen=True)
class RemoveOutput:
    """Remove outputs; what computes them stays, and `clean` removes what nothing needs then.

    Attributes:
        outputs: names or globs of outputs.

    Example:
        >>> exposed = osl.expose("whole_model.onnx", "23").model
        >>> osl.remove_output(exposed, "23").changes
        ("removed output '23'",)
    """

    outputs: tuple[str, ...]
    name: ClassVar[str] = "remove-output"

    def apply(self, model: Model) -> PassResult:
        """Remove them.

        Raises:
            UnknownNameError: no such output.
            EditError: none would be left.
        """
        index = GraphIndex.of(model)
        names = list(dict.fromkeys(ends(index, self.outputs, index.outputs, "output")))
        if not index.outputs.keys() - names:
            raise EditError("a model needs an output: none would be left", "name fewer outputs")
        result = model.copy()
        drop(result.graph.output, lambda info: info.name in names)
        # values of nodes stay declared
        declared = {info.name for info in result.graph.value_info}
        # an output that value_info declares, too, needs no second entry
        inner = [name for name in names if name in index.producer and name not in declared]
        result.graph.value_info.extend(index.outputs[name] for name in inner)
        idle = sorted(index.unread(names))
        notes = [f"nothing reads {', '.join(map(repr, idle))} now: onnxdbg edit clean removes it"]
        changes = [f"removed output {name!r}" for name in names]
        return PassResult.of(model, result, changes, notes if idle else ())
