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
from .passes import *  # noqa: F403
from .passes.merge import merge as merge
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
