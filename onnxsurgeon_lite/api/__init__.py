"""The library as people call it: every command as a function of the same name, glue and nothing more.

Modules import inside their functions, so that the runtime's process starts while the rest is imported.
"""

from importlib import import_module


def __getattr__(name: str) -> object:
    if name != "data":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.data")
