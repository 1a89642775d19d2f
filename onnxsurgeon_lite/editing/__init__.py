"""The edits of a session: done, undone, written down so that they can be done again."""

from onnxsurgeon_lite.editing.history import History
from onnxsurgeon_lite.editing.writing import write_recipe, write_script

__all__ = ["History", "write_recipe", "write_script"]
