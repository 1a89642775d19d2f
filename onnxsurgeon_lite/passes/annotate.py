"""Give nodes entries of metadata."""

from dataclasses import dataclass
from typing import ClassVar

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.set import Set


@dataclass(frozen=True)
class Annotate:
    """Give nodes entries of metadata, which tools and runtimes read: onnxruntime places nodes by `layer_ann`.

    Attributes:
        target: nodes (name, id, `op:Conv`, `scope:encoder.*`) or a function (`fn:domain::name`).
        entries: key -> text; an empty text removes the entry.

    Example:
        >>> osl.annotate("whole_model.onnx", "Conv_6", {"layer_ann": "tail"}).changes
        ("Conv 'Conv_6' (@6): metadata.layer_ann = 'tail'",)
    """

    target: str
    entries: tuple[tuple[str, str], ...]
    name: ClassVar[str] = "annotate"

    def apply(self, model: Model) -> PassResult:
        """Set them.

        Raises:
            UnknownNameError: no such node or function.
        """
        fields = tuple((f"metadata.{key}", text) for key, text in self.entries)
        return Set(fields, self.target).apply(model)
