"""Diff two models by structure, independent of names and node order."""

from onnxsurgeon_lite.matching.diff.models import diff, edit_diff
from onnxsurgeon_lite.matching.diff.result import Change, Difference, ModelDiff

__all__ = ["Change", "Difference", "ModelDiff", "diff", "edit_diff"]
