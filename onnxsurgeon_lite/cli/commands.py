"""The commands that the shell and the prompt share, by the panel of the help page."""

from collections.abc import Callable

from onnxsurgeon_lite.cli import change, cut, debug, look, run
from onnxsurgeon_lite.cli.options import CHANGE, CUT, DEBUG, LOOK, RUN

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    LOOK: (look.inspect, look.print_model, look.check, look.diff, look.view),
    CUT: (cut.extract, cut.expose, cut.split),
    CHANGE: (change.build, change.merge, change.convert),
    RUN: (run.run, run.record, run.compare, run.test, run.profile),
    DEBUG: (debug.bisect, debug.reduce, debug.rank, debug.match, debug.weights, debug.demo),
}


def name_of(command: Callable[..., None]) -> str:
    """What a command is called."""
    return command.__name__.removesuffix("_model")
