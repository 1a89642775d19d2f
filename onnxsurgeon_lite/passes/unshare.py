"""Give each reader of an initializer one of its own."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.targets import ends
from onnxsurgeon_lite.surgery import fresh, rename_uses, trained, value_names


@dataclass(frozen=True)
class Unshare:
    """Give each node that reads an initializer one of its own, so that each can get other numbers.

    The first reader keeps the old name. Inputs with a default and initializers that training updates stay as they are.

    Attributes:
        initializers: names or globs of initializers; empty for all that several nodes read.

    Example:
        >>> osl.unshare("whole_model.onnx").changed
        False
    """

    initializers: tuple[str, ...] = ()
    name: ClassVar[str] = "unshare"

    def apply(self, model: Model) -> PassResult:
        """Copy them.

        Raises:
            UnknownNameError: no such initializer.
        """
        index = GraphIndex.of(model)
        kept = trained(model.proto).union(index.inputs)
        known, asked = index.initializers, self.initializers
        chosen = set(ends(index, asked, known, "initializer") if asked else known)
        result = model.copy()
        taken = value_names(index)
        changes = []
        graph = result.graph
        for tensor in [t for t in graph.initializer if t.name in chosen and t.name not in kept]:
            # a node that reads it twice counts once
            readers = sorted(set(index.users(tensor.name)))
            # outputs read the old name, too
            for position in readers[1:]:
                copy = graph.initializer.add()
                copy.CopyFrom(tensor)
                copy.name = fresh(tensor.name, taken)
                rename_uses([graph.node[position]], {tensor.name: copy.name})
                changes.append(f"{index.describe(position)} reads {copy.name!r}, a copy")
        return PassResult.of(model, result, changes)
