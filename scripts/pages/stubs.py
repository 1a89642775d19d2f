"""What follows from the passes for those who read code: `api/verbs.pyi` and `verbs.py`, `passes/__init__.pyi`.

    python scripts/pages/stubs.py

The stub of the verbs has the signature of each as a function, from the fields of its pass; that of the passes says
where each class is. The module leads an editor from `osl.extract` to the pass.
"""

import dataclasses
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api import edit
from onnxsurgeon_lite.passes import VERBS
from onnxsurgeon_lite.passes.attribution import Method
from onnxsurgeon_lite.passes.protocol import AttributeValue

PACKAGE = Path(osl.__file__).parent
PASSES = '''"""Written by scripts/pages/stubs.py."""

from collections.abc import Mapping

from onnxsurgeon_lite.passes.protocol import Pipeline as Pipeline
from onnxsurgeon_lite.passes.protocol import Pass as Pass
from onnxsurgeon_lite.passes.protocol import PassResult as PassResult
NAMES

VERBS: dict[str, str]
PASSES: Mapping[str, type[Pass]]
__all__: list[str]
'''
MODULE = '''"""Every edit as a function: `rename(model, {"23": "features"})`. The passes give fields and documentation.

Written by scripts/pages/stubs.py.
"""

from typing import TYPE_CHECKING

from onnxsurgeon_lite.passes import VERBS

if TYPE_CHECKING:  # what each function does: an editor leads there
    from onnxsurgeon_lite.passes import (
NAMES
    )

__all__ = [verb.replace("-", "_") for verb in VERBS]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnxsurgeon_lite.api.edit import verb

    return verb(name)
'''
HEAD = '''"""Written by scripts/pages/stubs.py."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Unpack

import onnx_graphsurgeon as gs

from onnxsurgeon_lite.api.call import Limiting, Running
from onnxsurgeon_lite.matching.edit_result import EditResult
from onnxsurgeon_lite.model import Model, ModelLike
from onnxsurgeon_lite.passes.attribution import Method
from onnxsurgeon_lite.passes.protocol import AttributeValue
from onnxsurgeon_lite.surgery.constants import Numbers
from onnxsurgeon_lite.tensors.references import Tensors

class _Filled(Running, total=False):
    verify: bool
    unproved: bool
    feeds: Tensors | None
    seed: int
    dim: Mapping[str, int] | None

class _Edit(_Filled, total=False):
    fill: Mapping[str, str] | None

_Names = str | Sequence[str]
'''
KNOWN: dict[Any, str] = {
    Method: "Method",
    AttributeValue: "AttributeValue",
    osl.Model | str | None: "ModelLike | None",
    str | osl.Model: "str | Model",
    tuple[str, ...]: "_Names",
}
"""Types that have a name, or are given in more ways than a pass holds them."""
SPECIAL = {
    "script": {"edit": "Callable[[gs.Graph], gs.Graph | None] | str | PathLike[str]"},
    "freeze": {"values": "Mapping[str, Numbers | None] | Sequence[str]"},
}


def files() -> dict[Path, str]:
    """File -> its text."""
    names = "\n".join(f"{VERBS[verb]} as {_name(verb)}," for verb in sorted(VERBS, key=VERBS.get))
    stubs = "".join(map(_stub, sorted(VERBS)))
    places = "\n".join(
        f"from onnxsurgeon_lite.passes.{_name(verb)} import {VERBS[verb]} as {VERBS[verb]}"
        for verb in sorted(VERBS)
    )
    found = {
        "api/verbs.py": MODULE.replace("NAMES", names),
        "api/verbs.pyi": HEAD + stubs,
        "passes/__init__.pyi": PASSES.replace("NAMES", places),
    }
    return {PACKAGE / name: _formatted(PACKAGE / name, text) for name, text in found.items()}


def _name(verb: str) -> str:
    return verb.replace("-", "_")


def _formatted(path: Path, text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _stub(verb: str) -> str:
    kind: Any = osl.PASSES[verb]
    hints, name = get_type_hints(kind), _name(verb)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    own = [
        f"{field}: {SPECIAL.get(name, {}).get(field) or _said(hints[field])}{_default(each)}"
        for field, each in fields.items()
    ]
    model = "source" if "model" in fields else "model"
    how = "_Filled" if "fill" in fields else "Limiting" if verb in edit.ALONE else "_Edit"
    parts = [f"{model}: ModelLike", "/", *own, f"**how: Unpack[{how}]"]
    return f"def {name}({', '.join(parts)}) -> EditResult: ...\n"


def _said(hint: Any) -> str:
    """What is given for a field of a type."""
    if hint in KNOWN:
        return KNOWN[hint]
    if any(get_origin(part) is np.ndarray for part in get_args(hint)):
        return "Numbers | None" if NoneType in get_args(hint) else "Numbers"
    first, *rest = get_args(hint) or (None,)
    if get_origin(hint) is tuple and get_origin(first) is tuple:
        return f"Mapping[str, {_said(get_args(first)[1])}]"
    if get_origin(hint) is Mapping:
        inner = rest[0]
        is_list = get_origin(inner) is tuple
        return (
            f"Mapping[str, {f'Sequence[{_said(get_args(inner)[0])}]' if is_list else _said(inner)}]"
        )
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _default(field: Any) -> str:
    if field.default is not dataclasses.MISSING:
        hidden = field.default == () and "str, ..." not in str(field.type).replace("[str, str]", "")
        return (
            " = ..."
            if hidden or isinstance(field.default, int) and field.default > 99
            else f" = {field.default!r}"
        )
    return " = ..." if field.default_factory is not dataclasses.MISSING else ""


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
