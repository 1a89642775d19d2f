"""The dynamo exporter's table of ONNX functions, read once: each export would read it anew, for a second."""

import copy
import functools
import sys

_MODULE = "torch.onnx._internal.exporter._registration"


@functools.cache
def _read_once(registry: type) -> None:
    read = functools.cache(registry.from_torchlib)

    def from_torchlib(cls: type, **version: int) -> object:
        found = copy.copy(read(**version))
        # an export may add functions of its own
        found.functions = {target: list(known) for target, known in found.functions.items()}
        return found

    registry.from_torchlib = classmethod(from_torchlib)


def read_table_once() -> None:
    """Keep the table from the second export on: the first one imports what has it."""
    if module := sys.modules.get(_MODULE):
        _read_once(module.ONNXRegistry)
