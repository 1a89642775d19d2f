"""The library as people call it: every command as a function of the same name, glue and nothing more.

Modules import inside their functions, so that the runtime's process starts while the rest is imported.
"""

from onnxsurgeon_lite.api import data as data
