"""Result objects as JSON, the same for every command."""

import dataclasses
import json
import math
from pathlib import Path

from onnxsurgeon_lite.report.plain import out


def show_json(result: object) -> None:
    """Print a result as JSON. Numbers that JSON lacks are the strings `nan`, `inf` and `-inf`."""
    out(json.dumps(plain(result), indent=2, allow_nan=False))


def plain(value: object) -> object:
    """Dataclasses as objects, sequences as lists, paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = (f.name for f in dataclasses.fields(value) if f.metadata.get("json", True))
        return {name: plain(getattr(value, name)) for name in kept}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, Path) else value
