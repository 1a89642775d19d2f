"""Stepping through a model as through a program: breakpoints, frames, values that are computed when asked for."""

from onnxsurgeon_lite.debug.stepping.breakpoints import Breakpoint, Breakpoints
from onnxsurgeon_lite.debug.stepping.debugger import Debugger
from onnxsurgeon_lite.debug.stepping.results import Level, Reading, Readings, Stack, Stop

__all__ = ["Breakpoint", "Breakpoints", "Debugger", "Level", "Reading", "Readings", "Stack", "Stop"]
