"""Inline model-local functions."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.errors import UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex, check_functions, function_key
from onnxsurgeon_lite.graph.native import inline
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import split
from onnxsurgeon_lite.passes.protocol import PassResult


@dataclass(frozen=True)
class Inline:
    """Replace calls of model-local functions by their nodes; `functions` (`domain::name`) selects some of them.

    Attributes:
        functions: their names, `domain::name`; all by default.

    Example:
        >>> outlined = osl.outline("whole_model_dynamo.onnx", "convs1").model
        >>> osl.inline(outlined).changes
        ("inlined function 'local::convs1'",)
    """

    functions: tuple[str, ...] = ()
    name: ClassVar[str] = "inline"

    def apply(self, model: Model) -> PassResult:
        """Inline them with the official inliner.

        Raises:
            UnknownNameError: no function has this name.
            GraphError: a function calls itself.
        """
        GraphIndex.of(model).require_sound()
        check_functions(model.proto)
        known: dict[str, tuple[str, str]] = {}
        for function in model.proto.functions:
            domain, name, _ = function_key(function)
            known["::".join(filter(None, (domain, name)))] = (function.domain, name)
        names = split(self.functions, known) or list(known)
        for function_name in names:
            if function_name not in known:
                raise UnknownNameError(function_name, "the model", known, kind="function")
        chosen = [known[name] for name in names]
        if not chosen:
            return PassResult(model, changed=False)
        inlined = inline(model.proto, chosen)
        changes = [f"inlined function {name!r}" for name in names]
        return PassResult.of(model, model.with_proto(inlined), changes)
