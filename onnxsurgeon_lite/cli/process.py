"""What the command makes of its process before anything else: streams that are open, signals that end it cleanly."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def open_streams() -> None:
    """Open the standard streams that are closed: no other file may get their numbers, and be printed into."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def end_on_signals() -> None:
    """End as an exception does, so that temporary files are removed; a signal that is ignored stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> NoReturn:
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)  # once is enough
    raise SystemExit(128 + number)
