"""Two models side by side: what one has that the other has not, by structure and not by names or order."""

from onnxsurgeon_lite.matching.diff.models import diff, edit_diff
from onnxsurgeon_lite.matching.diff.outputs import with_outputs
from onnxsurgeon_lite.matching.diff.result import Change, Difference, ModelDiff

__all__ = ["Change", "Difference", "ModelDiff", "diff", "edit_diff", "with_outputs"]
