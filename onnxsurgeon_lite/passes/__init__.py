"""One file a verb; every verb in one dict."""

from onnxsurgeon_lite.passes.expose import Expose
from onnxsurgeon_lite.passes.extract import Extract
from onnxsurgeon_lite.passes.protocol import Pass, PassResult
from onnxsurgeon_lite.passes.rebatch import Rebatch
from onnxsurgeon_lite.passes.set_shape import SetShape

PASSES: dict[str, type[Pass]] = {cls.name: cls for cls in (Expose, Extract, Rebatch, SetShape)}

__all__ = ["PASSES", "Expose", "Extract", "Pass", "PassResult", "Rebatch", "SetShape"]
