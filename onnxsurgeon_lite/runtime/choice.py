"""Choose the runtime that options ask for."""

from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.options import REFERENCE, RuntimeOptions
from onnxsurgeon_lite.runtime.session import Runtime


def runtime_of(options: RuntimeOptions | None = None, child: Child | None = None) -> Runtime:
    """Return a runtime, which stops before what it lacks if the options say who computes that."""
    options = options or RuntimeOptions()
    if not (options.ops or options.otherwise) or options.runtime == REFERENCE:
        return Runtime(options, child)
    from onnxsurgeon_lite.runtime.stages import Stages  # imported late: few runs need it

    return Stages(options, child)
