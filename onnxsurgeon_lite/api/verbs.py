"""Every edit as a function: `rename(model, {"23": "features"})`. The passes give fields and documentation.

Written by scripts/pages/stubs.py.
"""

from typing import TYPE_CHECKING

from onnxsurgeon_lite.passes import VERBS

if TYPE_CHECKING:  # what each function does: an editor leads there
    from onnxsurgeon_lite.passes import (
        AddConstant as add_constant,
        Annotate as annotate,
        Append as append,
        Attribution as attribution,
        BatchOutputs as batch_outputs,
        Clean as clean,
        Cse as cse,
        Dedupe as dedupe,
        Dequantize as dequantize,
        DropLayer as drop_layer,
        Expose as expose,
        Extract as extract,
        Fix as fix,
        Fold as fold,
        Freeze as freeze,
        Fuse as fuse,
        Gradient as gradient,
        Infer as infer,
        Inference as inference,
        Inline as inline,
        Insert as insert,
        NameOutputs as name_outputs,
        Opset as opset,
        Outline as outline,
        PadOutputs as pad_outputs,
        Prepend as prepend,
        Promote as promote,
        Rebatch as rebatch,
        Remove as remove,
        RemoveInput as remove_input,
        RemoveOutput as remove_output,
        Rename as rename,
        Reorder as reorder,
        Replace as replace,
        Rewire as rewire,
        Rewrite as rewrite,
        Script as script,
        Set as set,
        SetAttr as set_attr,
        SetConstant as set_constant,
        SetLayout as set_layout,
        SetOp as set_op,
        SetShape as set_shape,
        SetType as set_type,
        Simplify as simplify,
        SkipNoops as skip_noops,
        Sort as sort,
        Standardize as standardize,
        Unshare as unshare,
    )

__all__ = [verb.replace("-", "_") for verb in VERBS]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnxsurgeon_lite.api.edit import verb

    return verb(name)
