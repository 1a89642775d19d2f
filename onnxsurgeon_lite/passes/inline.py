"""Inline model-local functions."""

from dataclasses import dataclass, replace
from typing import ClassVar

from onnxsurgeon_lite.errors import require_known
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import Model, function_key, is_standard
from onnxsurgeon_lite.names import split
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery import inline, settle


@dataclass(frozen=True)
class Inline:
    """Replace calls of model-local functions by their nodes; `functions` (`domain::name`) selects some of them.

    Where a function imports another opset, its nodes are converted to the model's, and both models are run.

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
        """Inline them.

        Raises:
            UnknownNameError: no function has this name.
            GraphError: a function calls itself.
            EditError: a function imports another version of a domain, and its nodes cannot be converted.
        """
        index = GraphIndex.of(model)
        index.require_sound()
        # "domain::name" -> the keys of its overloads
        keys = map(function_key, model.proto.functions)
        known = groups(("::".join(filter(None, key[:2])), key) for key in keys)
        names = split(self.functions, known) or list(known)
        require_known(names, known, "the model", "function")
        if not names:
            return PassResult(model, changed=False)
        result = inline(model, [key for name in names for key in known[name]])
        settle(index, result)
        changes = [f"inlined function {name!r}" for name in names]
        holders = [model.proto, *model.proto.functions]
        imported = {o.version for h in holders for o in h.opset_import if is_standard(o)}
        return replace(PassResult.of(model, result, changes), unproved=len(imported) > 1)
