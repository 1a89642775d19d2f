"""Add a constant to the graph."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import FUNCTION_PATH, BodyName, GraphIndex
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import (
    Numbers,
    data_type_for,
    data_type_named,
    make_tensor,
    value_names,
)
from onnxsurgeon_lite.tensors import dtypes


@dataclass(frozen=True)
class AddConstant:
    """Add initializers: (name, numbers) pairs. `rewire` and `insert` make nodes read them.

    Attributes:
        constants: name -> numbers, or a file that holds them.
        dtype: of the numbers; an array's own, float and int64 for others by default.

    Example:
        >>> osl.add_constant("whole_model.onnx", {"half": 0.5}).changes
        ("added constant 'half': float []",)
    """

    constants: tuple[tuple[str, Numbers], ...]
    dtype: str = ""
    name: ClassVar[str] = "add-constant"

    def apply(self, model: Model) -> PassResult:
        """Add them.

        Raises:
            EditError: a value has the name already, or the dtype cannot represent the numbers.
            UnknownNameError: no such dtype.
        """
        # bodies too: a name of the main graph must not be hidden by one of theirs
        taken = value_names(GraphIndex.of(model))
        result = model.copy()
        changes = []
        for name, numbers in self.constants:
            # "@3/body/x" or "fn:local::f/x"
            if BodyName.of(name) is not None or name.startswith(FUNCTION_PATH):
                raise EditError(
                    f"constants are added to the main graph, {name!r} would not be in it",
                    "bodies read the main graph's; insert, replace and rewire take numbers in functions, too",
                )
            if name in taken or not name:
                raise EditError(
                    f"value {name!r} exists already" if name else "a constant needs a name",
                    f"choose another name, or change it: onnxdbg edit set-constant MODEL {name} ...",
                )
            if isinstance(numbers, str) and self.dtype != "string":
                raise EditError(
                    f"the value of {name!r} is {numbers!r}, which is not a number",
                    "write 0.5, [1,2] or FILE.npy; or give it --dtype string",
                )
            kind = data_type_named(self.dtype) if self.dtype else data_type_for(name, numbers)
            tensor = make_tensor(name, numbers, kind)
            result.graph.initializer.append(tensor)
            taken.add(name)
            changes.append(
                f"added constant {name!r}: {dtypes.dtype_name(kind)} {list(tensor.dims)}"
            )
        return PassResult.of(model, result, changes)
