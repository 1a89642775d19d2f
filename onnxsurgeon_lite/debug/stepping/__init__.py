"""Steps through a model as through a program: breakpoints, frames, values computed on demand."""

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoint, Breakpoints
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.debug.stepping.results import Level, Reading, Readings, Stack, Stop

__all__ = ["Breakpoint", "Breakpoints", "Debugger", "Level", "Reading", "Readings", "Stack", "Stop"]
