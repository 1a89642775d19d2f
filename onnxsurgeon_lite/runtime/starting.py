"""Start the child process of a runtime; it gets ready while the caller imports the rest."""

import json
import os
import shutil
import sys

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph.limits import memory_of_runtime
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.options import ORT, REFERENCE, TORCH, RuntimeOptions


def started(options: RuntimeOptions) -> Child:
    """Return the process of the runtime that the options name."""
    memory = memory_of_runtime(options.provider)
    if options.runtime == ORT:
        if options.python and shutil.which(options.python) is None:
            raise UsageError(
                f"there is no interpreter {options.python!r}", "write python=VENV/bin/python"
            )
        return Child(memory, python=options.python)
    if options.runtime == TORCH:
        raise UsageError(
            "a PyTorch module runs whole: it gives references",
            "write onnxdbg bisect MODEL --a runtime=torch:FILE.py:FUNCTION",
        )
    # the device is one setting among others
    settings = {"provider": options.provider, **dict(options.settings)}
    if options.runtime == REFERENCE and options.ops:
        settings["ops"] = options.ops
    path = os.pathsep.join(sys.path)
    return Child(memory, "backends/host.py", (options.runtime, json.dumps(settings), path))
