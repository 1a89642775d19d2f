from .api import data as data
from .api.convert import convert as convert
from .api.cut import split as split
from .api.debug import (
    bisect as bisect,
    match as match,
    prove as prove,
    rank as rank,
    repair as repair,
    verify as verify,
    weights as weights,
)
from .api.demo import demo as demo
from .api.edit import apply as apply, build as build, merge as merge
from .api.look import check as check, diff as diff, inspect as inspect, optimized as optimized
from .api.look import text as text, view as view
from .api.profile import profile as profile
from .api.reduce import reduce as reduce
from .api.run import compare_sets as compare_sets, record as record, run as run, test as test
from .api.verbs import *  # noqa: F403
from .debug.result import BisectResult as BisectResult
from .debug.conversion.result import Conversion as Conversion
from .debug.profiling.result import Profile as Profile
from .debug.reduction.folder import Reduction as Reduction
from .debug.stepping.debugger import Debugger as Debugger
from .errors import SurgeonError as SurgeonError
from .graph.check import CheckResult as CheckResult
from .graph.index import GraphIndex as GraphIndex
from .matching.diff import ModelDiff as ModelDiff
from .matching.over_samples import SampleComparison as SampleComparison
from .matching.sets import SetComparison as SetComparison
from .matching.suite import SuiteResult as SuiteResult
from .matching.edit_result import EditResult as EditResult
from .model import Model as Model, load as load, save as save
from .passes import *  # noqa: F403
from .passes.builder import Builder as Builder
from .runtime.feeds import Recipe as Recipe, make_feeds as make_feeds
from .runtime.run import RunResult as RunResult
from .runtime.options import RuntimeOptions as RuntimeOptions
from .runtime.session import Runtime as Runtime
from .tensors.comparison import Comparison as Comparison, compare as compare
from .tensors.comparison import Tolerance as Tolerance
from .tensors.references import (
    ReferenceSet as ReferenceSet,
    Samples as Samples,
    open_references as open_references,
    save_tensors as save_tensors,
)

def load_ipython_extension(shell: object) -> None: ...
