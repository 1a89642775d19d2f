from .api import data as data
from .api.cut import split as split
from .api.debug import (
    bisect as bisect,
    match as match,
    prove as prove,
    rank as rank,
    verify as verify,
    weights as weights,
)
from .api.demo import demo as demo
from .api.edit import apply as apply, build as build, merge as merge
from .api.look import check as check, diff as diff, inspect as inspect, text as text
from .api.run import compare_sets as compare_sets, record as record, run as run
from .api.verbs import (
    batch_outputs as batch_outputs,
    clean as clean,
    dedupe as dedupe,
    expose as expose,
    extract as extract,
    fix as fix,
    freeze as freeze,
    inline as inline,
    insert as insert,
    name_outputs as name_outputs,
    opset as opset,
    outline as outline,
    pad_outputs as pad_outputs,
    promote as promote,
    rebatch as rebatch,
    remove as remove,
    rename as rename,
    replace as replace,
    rewire as rewire,
    script as script,
    set_attr as set_attr,
    set_constant as set_constant,
    set_op as set_op,
    set_shape as set_shape,
    sort as sort,
)
from .debug.bisection import BisectResult as BisectResult
from .debug.stepping import Debugger as Debugger
from .errors import SurgeonError as SurgeonError
from .graph.check import CheckResult as CheckResult
from .graph.index import GraphIndex as GraphIndex
from .matching.diff import ModelDiff as ModelDiff
from .matching.sets import SetComparison as SetComparison
from .matching.verify import EditResult as EditResult
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
)
from .passes.builder import Builder as Builder
from .runtime.feeds import Recipe as Recipe, make_feeds as make_feeds
from .runtime.run import RunResult as RunResult
from .runtime.session import Runtime as Runtime, RuntimeOptions as RuntimeOptions
from .tensors.comparison import Comparison as Comparison, Tolerance as Tolerance, compare as compare
from .tensors.references import (
    ReferenceSet as ReferenceSet,
    open_references as open_references,
    save_tensors as save_tensors,
)

def load_ipython_extension(shell: object) -> None: ...
