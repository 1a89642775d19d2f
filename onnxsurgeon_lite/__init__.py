"""onnxsurgeon-lite: debug and edit ONNX models.

    import onnxsurgeon_lite as osl

    model = osl.load("in.onnx")                                 # structure only, whatever the weights weigh
    part = osl.Extract(("22",), ("28",)).apply(model).model
    osl.save(part, "part.onnx")

Names resolve on first use, so that importing the package imports nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxsurgeon_lite.bisection import BisectResult, bisect, write_reproducer
    from onnxsurgeon_lite.building import Builder
    from onnxsurgeon_lite.checking import CheckResult, check
    from onnxsurgeon_lite.comparison import Comparison, Tolerance, compare
    from onnxsurgeon_lite.differing import ModelDiff, diff
    from onnxsurgeon_lite.errors import SurgeonError
    from onnxsurgeon_lite.feeds import Recipe, make_feeds, read_feeds
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.model import Model, load, save
    from onnxsurgeon_lite.passes import (
        PASSES,
        BatchOutputs,
        Clean,
        Dedupe,
        Expose,
        Extract,
        Fix,
        Freeze,
        Inline,
        Insert,
        NameOutputs,
        Opset,
        Outline,
        PadOutputs,
        Pass,
        PassResult,
        Pipeline,
        Promote,
        Rebatch,
        Remove,
        Rename,
        Replace,
        Rewire,
        Script,
        SetAttr,
        SetConstant,
        SetOp,
        SetShape,
        Sort,
        merge,
    )
    from onnxsurgeon_lite.proving import prove
    from onnxsurgeon_lite.recording import record
    from onnxsurgeon_lite.references import ReferenceSet, open_references, save_tensors
    from onnxsurgeon_lite.running import run
    from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions, run_model

_HOMES = {
    "bisection": ("BisectResult", "bisect", "write_reproducer"),
    "building": ("Builder",),
    "checking": ("CheckResult", "check"),
    "comparison": ("Comparison", "Tolerance", "compare"),
    "differing": ("ModelDiff", "diff"),
    "errors": ("SurgeonError",),
    "feeds": ("Recipe", "make_feeds", "read_feeds"),
    "graph": ("GraphIndex",),
    "model": ("Model", "load", "save"),
    "passes": (
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
    ),
    "proving": ("prove",),
    "recording": ("record",),
    "references": ("ReferenceSet", "open_references", "save_tensors"),
    "running": ("run",),
    "runtime.session": ("Runtime", "RuntimeOptions", "run_model"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "PASSES",
    "BatchOutputs",
    "BisectResult",
    "Builder",
    "CheckResult",
    "Clean",
    "Comparison",
    "Dedupe",
    "Expose",
    "Extract",
    "Fix",
    "Freeze",
    "GraphIndex",
    "Inline",
    "Insert",
    "Model",
    "ModelDiff",
    "NameOutputs",
    "Opset",
    "PadOutputs",
    "Outline",
    "Pass",
    "PassResult",
    "Pipeline",
    "Promote",
    "Rebatch",
    "Recipe",
    "ReferenceSet",
    "Remove",
    "Rename",
    "Replace",
    "Rewire",
    "Runtime",
    "RuntimeOptions",
    "Script",
    "SetAttr",
    "SetConstant",
    "SetOp",
    "SetShape",
    "Sort",
    "SurgeonError",
    "Tolerance",
    "bisect",
    "check",
    "compare",
    "diff",
    "load",
    "make_feeds",
    "merge",
    "open_references",
    "prove",
    "read_feeds",
    "record",
    "run",
    "run_model",
    "save",
    "save_tensors",
    "write_reproducer",
]


def load_ipython_extension(shell: object) -> None:
    """`%load_ext onnxsurgeon_lite`, then `%onnxdbg MODEL --reference REFS`."""
    from onnxsurgeon_lite.repl.extension import load

    load(shell)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
