"""Start the child process of a runtime; it gets ready while the caller imports the rest."""

import json
import os
import sys

from onnxsurgeon_lite.graph.limits import memory_of_runtime
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.options import ORT, REFERENCE, RuntimeOptions


def started(options: RuntimeOptions) -> Child:
    """Return the process of the runtime that the options name."""
    memory = memory_of_runtime(options.provider)
    if options.runtime == ORT:
        return Child(memory)
    settings = {"provider": options.provider, **dict(options.settings)}
    if options.runtime == REFERENCE and options.ops:
        settings["ops"] = options.ops
    path = os.pathsep.join(sys.path)
    return Child(memory, "host.py", (options.runtime, json.dumps(settings), path))
