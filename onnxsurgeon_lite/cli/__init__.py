"""The command `onnxdbg`."""


def main() -> None:
    """Run the command line, and end the process: what it holds is not freed one by one."""
    import os

    os._exit(ended())


def ended() -> int:
    """Run the command line; return the exit code."""
    import gc
    import sys

    gc.disable()  # a short process: looking for cycles among the objects of a large graph only takes time
    from onnxsurgeon_lite.cli.process import end_on_signals, open_streams

    open_streams()
    from onnxsurgeon_lite.cli.app import app
    from onnxsurgeon_lite.cli.completion import rejoin_words

    rejoin_words()
    code: object = 0
    try:
        end_on_signals()
        app()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the disk that it goes to is full
            code = code or 2
    return code if isinstance(code, int) else 0 if code is None else 1
