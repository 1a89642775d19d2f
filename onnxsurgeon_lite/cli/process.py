"""What the command makes of its process before anything else: streams that are open, signals that end it cleanly."""

import _thread
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from onnxsurgeon_lite.system import ENDING

_ALARM = getattr(signal, "SIGALRM", None)  # not on Windows
_ENDING = ENDING + tuple([_ALARM] if _ALARM else [])
_waiting = [int(_ALARM or signal.SIGINT)]  # what the next SIGALRM means; our timer sends one
ended_by: list[int] = []
"""The signals that ended the command, whatever became of the exception."""


def open_streams() -> None:
    """Open the standard streams that are closed: no other file may get their numbers, and be printed into."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def end_at_once() -> None:
    """End on signals without a word, also on one that waits: nothing is written yet, or all is."""
    _handle(lambda number, _: os._exit(128 + _meant(number)))


def end_on_signals() -> None:
    """End as an exception does, so that temporary files are removed."""
    _handle(_raise)
    sys.unraisablehook = _unraisable


def _handle(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in _ENDING:
        # what the parent ignores stays ignored (nohup)
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    """Raise what a signal means, later where that does harm."""
    number = _meant(number)
    # try again in 10 ms
    if _must_wait(frame):
        _raise_later(number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        for other in _ENDING:
            signal.signal(other, lambda *_: None)  # once is enough; Python reports SIG_IGN
        ended_by.append(number)
        raise SystemExit(128 + number)


def _meant(number: int) -> int:
    """Return the signal that a SIGALRM stands for."""
    return _waiting[0] if number == _ALARM else number


def _raise_later(number: int) -> None:
    _waiting[0] = number
    if _ALARM is None:
        threading.Timer(0.01, _thread.interrupt_main, [number]).start()
        return
    signal.signal(_ALARM, _raise)
    signal.setitimer(signal.ITIMER_REAL, 0.01)  # seconds


_FRAGILE = (
    "_unraisable",
    "__del__",
    "_handed_over",
    "_get_default_tempdir",
    "_forked",
    "_execute_child",
)


def _must_wait(frame: FrameType | None) -> bool:
    """Return whether an exception does harm now: native code is being loaded, or a function is fragile."""
    while frame:
        code = frame.f_code
        # in these functions it is printed or lost, a file that probes a folder or a process stays, what was written is
        # written once more
        if code.co_name in _FRAGILE or "<frozen importlib" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def _unraisable(swallowed: "sys.UnraisableHookArgs") -> None:
    """Raise again what was raised in a callback of native code, which cannot raise it."""
    match swallowed.exc_value:
        case KeyboardInterrupt():
            _raise_later(signal.SIGINT)
        case SystemExit() if ended_by:
            _raise_later(ended_by[-1])
        case _:
            sys.__unraisablehook__(swallowed)
