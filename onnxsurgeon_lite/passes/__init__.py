"""One file a verb; every verb in one dict."""

from onnxsurgeon_lite.passes.batch_outputs import BatchOutputs
from onnxsurgeon_lite.passes.expose import Expose
from onnxsurgeon_lite.passes.extract import Extract
from onnxsurgeon_lite.passes.name_outputs import NameOutputs
from onnxsurgeon_lite.passes.pad_outputs import PadOutputs
from onnxsurgeon_lite.passes.protocol import Pass, PassResult
from onnxsurgeon_lite.passes.rebatch import Rebatch
from onnxsurgeon_lite.passes.set_shape import SetShape

PASSES: dict[str, type[Pass]] = {
    cls.name: cls
    for cls in (BatchOutputs, Expose, Extract, NameOutputs, PadOutputs, Rebatch, SetShape)
}

__all__ = [
    "PASSES",
    "BatchOutputs",
    "Expose",
    "Extract",
    "NameOutputs",
    "PadOutputs",
    "Pass",
    "PassResult",
    "Rebatch",
    "SetShape",
]
