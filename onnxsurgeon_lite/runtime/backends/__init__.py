"""Runtimes other than onnxruntime, by name; each is imported in the process that hosts it alone."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.plugins import RUNTIMES, offered, package, reason
from onnxsurgeon_lite.runtime.options import ORT, TORCH
from onnxsurgeon_lite.runtime.protocol import Backend

Maker = Callable[[Mapping[str, str]], Backend]

_BUILT_IN = {
    "reference": "onnxsurgeon_lite.runtime.backends.reference:Reference",
    "openvino": "onnxsurgeon_lite.runtime.backends.openvino:OpenVino",
    "command": "onnxsurgeon_lite.runtime.backends.command:Program",
}
"""Name -> where its class is."""


def names() -> list[str]:
    """Return the names of all runtimes."""
    return list(dict.fromkeys([ORT, *_BUILT_IN, TORCH, *offered(RUNTIMES)]))


def backend(name: str, settings: Mapping[str, str]) -> Backend:
    """Return a runtime that starts.

    Raises:
        UsageError: there is none of this name, or it cannot be imported.
    """
    if name in _BUILT_IN:
        # "module:Class"
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast(Maker, getattr(import_module(module), attribute))(settings)
    entry = offered(RUNTIMES).get(name)
    if entry is None:
        raise UsageError(f"there is no runtime {name!r}", f"there are {', '.join(names())}")
    try:
        maker = cast(Maker, entry.load())
    except Exception as error:
        raise UsageError(
            f"runtime {name!r} of {package(entry)} is broken: {reason(error)}",
            "repair or remove that package",
        ) from error
    return maker(settings)
