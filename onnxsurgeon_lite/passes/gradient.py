"""Add the nodes that compute gradients."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import TensorProto

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.derivative import Derivative
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import one_value
from onnxsurgeon_lite.surgery.gradients.step import is_float
from onnxsurgeon_lite.surgery.gradients.tape import Term


@dataclass(frozen=True)
class Gradient:
    """Add outputs `d(of)/d(to)`: the gradient of a value by others, computed by ordinary nodes.

    It is the gradient of the sum of all elements of `of`; with `vector`, of their weighted sum. The model's own nodes
    stay as they are, except that an opset below 16 is converted, and that functions on the way are inlined.

    Attributes:
        of: the value to differentiate.
        to: the values to differentiate by.
        wrt_weights: differentiate by all float initializers that `of` depends on, too.
        vector: the name of an input to add, in the shape of `of`: the weight of each element.

    Example:
        >>> osl.gradient("whole_model.onnx", "31", "input.1").changes
        ("added output 'd(31)/d(input.1)'",)
    """

    of: str
    to: tuple[str, ...] = ()
    wrt_weights: bool = False
    vector: str | None = None
    name: ClassVar[str] = "gradient"

    def apply(self, model: Model) -> PassResult:
        """Add them.

        Raises:
            UnknownNameError: no such value.
            EditError: `of` does not depend on a value of `to`, one of them holds no floats, or a node on the path has
                no rule.
        """
        index = GraphIndex.of(model)
        chosen = select_values(index, self.to)
        notes = list(chosen.notes)
        of = one_value(index, self.of, notes)
        work = Derivative.of(model, [of])
        work.require_floats([of] + chosen.names)
        weights = _weights(work.index, of) if self.wrt_weights else []
        # a weight may be among the chosen values
        to = list(dict.fromkeys(chosen.names + weights))
        if not to:
            raise UsageError(
                "there is nothing to differentiate by", "name values: --to INPUT; or --wrt-weights"
            )
        found = work.gradients(of, self._weights(work, of), to)
        work.require_dependent(of, chosen.names, found)
        changes = []
        # in the order asked for; a weight without a gradient is left out
        for name in filter(found.__contains__, to):
            work.output(f"d({of})/d({name})", found[name], work.index.types[name])
            changes.append(f"added output {f'd({of})/d({name})'!r}")
        return PassResult.of(model, work.model(), changes, notes + work.notes)

    def _weights(self, work: Derivative, of: str) -> Term:
        value = work.tape.value(of)
        return (
            work.tape.ones_like(value)
            if self.vector is None
            else work.input(self.vector, work.index.types[of])
        )


def _weights(index: GraphIndex, of: str) -> list[str]:
    """Return the float initializers that a value depends on."""
    reads = index.read_by(index.ancestors([of]))
    return [
        name
        for name, tensor in index.initializers.items()
        if name in reads and isinstance(tensor, TensorProto) and is_float(tensor.data_type)
    ]
