"""One file a verb; every verb in one dict."""

from onnxsurgeon_lite.passes.expose import Expose
from onnxsurgeon_lite.passes.extract import Extract
from onnxsurgeon_lite.passes.protocol import Pass, PassResult

PASSES: dict[str, type[Pass]] = {cls.name: cls for cls in (Expose, Extract)}

__all__ = ["PASSES", "Expose", "Extract", "Pass", "PassResult"]
