"""One file a verb, imported when it is asked for; every verb in one dict."""

import re
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxsurgeon_lite.passes.batch_outputs import BatchOutputs
    from onnxsurgeon_lite.passes.clean import Clean
    from onnxsurgeon_lite.passes.dedupe import Dedupe
    from onnxsurgeon_lite.passes.expose import Expose
    from onnxsurgeon_lite.passes.extract import Extract
    from onnxsurgeon_lite.passes.fix import Fix
    from onnxsurgeon_lite.passes.freeze import Freeze
    from onnxsurgeon_lite.passes.inline import Inline
    from onnxsurgeon_lite.passes.insert import Insert
    from onnxsurgeon_lite.passes.merging import merge
    from onnxsurgeon_lite.passes.name_outputs import NameOutputs
    from onnxsurgeon_lite.passes.opset import Opset
    from onnxsurgeon_lite.passes.outline import Outline
    from onnxsurgeon_lite.passes.pad_outputs import PadOutputs
    from onnxsurgeon_lite.passes.pipeline import Pipeline
    from onnxsurgeon_lite.passes.promote import Promote
    from onnxsurgeon_lite.passes.protocol import Pass, PassResult
    from onnxsurgeon_lite.passes.rebatch import Rebatch
    from onnxsurgeon_lite.passes.remove import Remove
    from onnxsurgeon_lite.passes.rename import Rename
    from onnxsurgeon_lite.passes.replace import Replace
    from onnxsurgeon_lite.passes.rewire import Rewire
    from onnxsurgeon_lite.passes.script import Script
    from onnxsurgeon_lite.passes.set_attr import SetAttr
    from onnxsurgeon_lite.passes.set_constant import SetConstant
    from onnxsurgeon_lite.passes.set_op import SetOp
    from onnxsurgeon_lite.passes.set_shape import SetShape
    from onnxsurgeon_lite.passes.sort import Sort

    PASSES: dict[str, type[Pass]]

__all__ = [
    "PASSES",
    "BatchOutputs",
    "Clean",
    "Dedupe",
    "Expose",
    "Extract",
    "Fix",
    "Freeze",
    "Inline",
    "Insert",
    "NameOutputs",
    "Opset",
    "PadOutputs",
    "Outline",
    "Pass",
    "PassResult",
    "Pipeline",
    "Promote",
    "Rebatch",
    "Remove",
    "Rename",
    "Replace",
    "Rewire",
    "Script",
    "SetAttr",
    "SetConstant",
    "SetOp",
    "SetShape",
    "Sort",
    "merge",
]

_ELSEWHERE = {
    "Pass": "protocol",
    "PassResult": "protocol",
    "Pipeline": "pipeline",
    "merge": "merging",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "PASSES":
        verbs = (__getattr__(n) for n in __all__ if n != "PASSES" and n not in _ELSEWHERE)
        found: object = {verb.name: verb for verb in verbs}  # type: ignore[attr-defined]
    else:
        home = _ELSEWHERE.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found
