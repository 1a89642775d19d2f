"""The command `onnxdbg` from its first line on: a signal ends it with its code, whatever is imported then."""

import os
import signal


def end_at_once() -> None:
    """End on signals without a word: nothing is written yet."""
    # Windows has no SIGHUP
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))


def main() -> None:
    """Import the command and run it."""
    end_at_once()
    from onnxsurgeon_lite.cli import main as run

    run()
