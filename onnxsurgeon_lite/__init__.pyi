from .debug.bisection import (
    BisectResult as BisectResult,
    bisect as bisect,
    write_reproducer as write_reproducer,
)
from .passes.builder import Builder as Builder
from .graph.check import CheckResult as CheckResult, check as check
from .tensors.comparison import Comparison as Comparison, Tolerance as Tolerance, compare as compare
from .matching.diff import ModelDiff as ModelDiff, diff as diff
from .errors import SurgeonError as SurgeonError
from .runtime.feeds import Recipe as Recipe, make_feeds as make_feeds, read_feeds as read_feeds
from .graph.index import GraphIndex as GraphIndex
from .model import Model as Model, load as load, save as save
from .passes import (
    PASSES as PASSES,
    BatchOutputs as BatchOutputs,
    Clean as Clean,
    Dedupe as Dedupe,
    Expose as Expose,
    Extract as Extract,
    Fix as Fix,
    Freeze as Freeze,
    Inline as Inline,
    Insert as Insert,
    NameOutputs as NameOutputs,
    Opset as Opset,
    Outline as Outline,
    PadOutputs as PadOutputs,
    Pass as Pass,
    PassResult as PassResult,
    Pipeline as Pipeline,
    Promote as Promote,
    Rebatch as Rebatch,
    Remove as Remove,
    Rename as Rename,
    Replace as Replace,
    Rewire as Rewire,
    Script as Script,
    SetAttr as SetAttr,
    SetConstant as SetConstant,
    SetOp as SetOp,
    SetShape as SetShape,
    Sort as Sort,
    merge as merge,
)
from .matching.prove import prove as prove
from .recording.from_model import record as record
from .tensors.references import (
    ReferenceSet as ReferenceSet,
    open_references as open_references,
    save_tensors as save_tensors,
)
from .runtime.run import run as run
from .runtime.session import (
    Runtime as Runtime,
    RuntimeOptions as RuntimeOptions,
    run_model as run_model,
)

def load_ipython_extension(shell: object) -> None: ...
