"""Remove inputs of the graph that nothing needs."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, drop
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import ends


@dataclass(frozen=True)
class RemoveInput:
    """Remove inputs that no node reads; an input with a default becomes that constant.

    Attributes:
        inputs: names or globs of inputs.

    Example:
        >>> opened = osl.promote("whole_model.onnx", "convs1.0.bias", default=True).model
        >>> osl.remove_input(opened, "convs1.0.bias").changes
        ("removed input 'convs1.0.bias'",)
    """

    inputs: tuple[str, ...]
    name: ClassVar[str] = "remove-input"

    def apply(self, model: Model) -> PassResult:
        """Remove them.

        Raises:
            UnknownNameError: no such input.
            EditError: something reads one that has no default.
        """
        index = GraphIndex.of(model)
        names = list(dict.fromkeys(ends(index, self.inputs, index.inputs, "input")))
        for name in names:
            readers = index.readers([name])[name]
            # an input with a default becomes that constant: its readers keep reading it
            if (readers or name in index.outputs) and name not in index.initializers:
                who = ", ".join(map(index.describe, readers[:4])) or "an output of the graph"
                raise EditError(
                    f"input {name!r} is read by {who}",
                    f"make it a constant: onnxdbg edit freeze MODEL {name}=...; or rewire its readers",
                )
        result = model.copy()
        drop(result.graph.input, lambda info: info.name in names)
        return PassResult.of(model, result, [f"removed input {name!r}" for name in names])
