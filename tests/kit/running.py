"""Runs of models in one process of the runtime, which all tests of a file share: to start one takes half a second."""

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.runtime.session import run_model as run_alone

_shared: list[Runtime] = []


def run_model(model: Model, feeds) -> dict:
    """Run a model once, as `osl.run` does by default; return its outputs."""
    if not _shared:
        _shared.append(Runtime().__enter__())
    return run_alone(model, feeds, runtime=_shared[0])


def end() -> None:
    """End the process, if there is one."""
    while _shared:
        _shared.pop().__exit__(None, None, None)
