"""Written by scripts/pages/stubs.py."""

from collections.abc import Mapping

from onnxsurgeon_lite.passes.protocol import Pipeline as Pipeline
from onnxsurgeon_lite.passes.protocol import Pass as Pass
from onnxsurgeon_lite.passes.protocol import PassResult as PassResult
from onnxsurgeon_lite.passes.add_constant import AddConstant as AddConstant
from onnxsurgeon_lite.passes.annotate import Annotate as Annotate
from onnxsurgeon_lite.passes.append import Append as Append
from onnxsurgeon_lite.passes.attribution import Attribution as Attribution
from onnxsurgeon_lite.passes.batch_outputs import BatchOutputs as BatchOutputs
from onnxsurgeon_lite.passes.clean import Clean as Clean
from onnxsurgeon_lite.passes.cse import Cse as Cse
from onnxsurgeon_lite.passes.dedupe import Dedupe as Dedupe
from onnxsurgeon_lite.passes.dequantize import Dequantize as Dequantize
from onnxsurgeon_lite.passes.drop_layer import DropLayer as DropLayer
from onnxsurgeon_lite.passes.expose import Expose as Expose
from onnxsurgeon_lite.passes.extract import Extract as Extract
from onnxsurgeon_lite.passes.fix import Fix as Fix
from onnxsurgeon_lite.passes.fold import Fold as Fold
from onnxsurgeon_lite.passes.freeze import Freeze as Freeze
from onnxsurgeon_lite.passes.fuse import Fuse as Fuse
from onnxsurgeon_lite.passes.gradient import Gradient as Gradient
from onnxsurgeon_lite.passes.infer import Infer as Infer
from onnxsurgeon_lite.passes.inference import Inference as Inference
from onnxsurgeon_lite.passes.inline import Inline as Inline
from onnxsurgeon_lite.passes.insert import Insert as Insert
from onnxsurgeon_lite.passes.name_outputs import NameOutputs as NameOutputs
from onnxsurgeon_lite.passes.opset import Opset as Opset
from onnxsurgeon_lite.passes.outline import Outline as Outline
from onnxsurgeon_lite.passes.pad_outputs import PadOutputs as PadOutputs
from onnxsurgeon_lite.passes.prepend import Prepend as Prepend
from onnxsurgeon_lite.passes.promote import Promote as Promote
from onnxsurgeon_lite.passes.rebatch import Rebatch as Rebatch
from onnxsurgeon_lite.passes.remove import Remove as Remove
from onnxsurgeon_lite.passes.remove_input import RemoveInput as RemoveInput
from onnxsurgeon_lite.passes.remove_output import RemoveOutput as RemoveOutput
from onnxsurgeon_lite.passes.rename import Rename as Rename
from onnxsurgeon_lite.passes.reorder import Reorder as Reorder
from onnxsurgeon_lite.passes.replace import Replace as Replace
from onnxsurgeon_lite.passes.rewire import Rewire as Rewire
from onnxsurgeon_lite.passes.rewrite import Rewrite as Rewrite
from onnxsurgeon_lite.passes.script import Script as Script
from onnxsurgeon_lite.passes.set import Set as Set
from onnxsurgeon_lite.passes.set_attr import SetAttr as SetAttr
from onnxsurgeon_lite.passes.set_constant import SetConstant as SetConstant
from onnxsurgeon_lite.passes.set_layout import SetLayout as SetLayout
from onnxsurgeon_lite.passes.set_op import SetOp as SetOp
from onnxsurgeon_lite.passes.set_shape import SetShape as SetShape
from onnxsurgeon_lite.passes.set_type import SetType as SetType
from onnxsurgeon_lite.passes.simplify import Simplify as Simplify
from onnxsurgeon_lite.passes.skip_noops import SkipNoops as SkipNoops
from onnxsurgeon_lite.passes.sort import Sort as Sort
from onnxsurgeon_lite.passes.standardize import Standardize as Standardize
from onnxsurgeon_lite.passes.unshare import Unshare as Unshare

VERBS: dict[str, str]
PASSES: Mapping[str, type[Pass]]
__all__: list[str]
