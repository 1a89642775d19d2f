"""The command `onnxdbg`."""


def main() -> None:
    """Run the command line, and end the process: what it holds is not freed one by one."""
    import os

    os._exit(exit_code())


def exit_code() -> int:
    """Run the command line; return the exit code."""
    import gc
    import os
    import sys

    gc.disable()  # a short process: looking for cycles among the objects of a large graph only takes time
    from onnxsurgeon_lite.cli.process import end_at_once, end_on_signals, ended_by, open_streams

    end_at_once()
    open_streams()
    from onnxsurgeon_lite.cli.app import app, complete
    from onnxsurgeon_lite.errors import first_of

    code: object = 0
    try:
        try:
            end_on_signals()
            if "_ONNXDBG_COMPLETE" in os.environ:
                complete(os.environ["_ONNXDBG_COMPLETE"])
            else:
                app()
        finally:
            end_at_once()
    except SystemExit as end:
        # an exit that Ctrl-C caused, whoever turned it into SystemExit
        code = 130 if isinstance(first_of(end), KeyboardInterrupt) else end.code
    except KeyboardInterrupt:  # in one of the last lines
        code = 130
    # the signal counts, also where a library swallowed its exception
    code = 128 + ended_by[-1] if ended_by else code
    from onnxsurgeon_lite.atomic import clear_own

    clear_own()  # temporary files of this process, whatever ended it
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the disk that it goes to is full
            code = code or 2
    return code if isinstance(code, int) else 0 if code is None else 1
