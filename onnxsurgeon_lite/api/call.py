"""One call of the library: the options that functions share, the processes that it starts, what it has to say."""

import contextlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, cast

from onnxsurgeon_lite.api import page
from onnxsurgeon_lite.errors import SurgeonError, UsageError
from onnxsurgeon_lite.limits import limited
from onnxsurgeon_lite.runtime.options import ORT, RuntimeOptions, named
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.shown import Progress, Shown, quiet
from onnxsurgeon_lite.system import TemporaryFolder

if TYPE_CHECKING:
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.matching.judge import Metric, MetricFunction
    from onnxsurgeon_lite.matching.sets import See
    from onnxsurgeon_lite.matching.trials import Trial
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.report.page import Page, Sight
    from onnxsurgeon_lite.runtime.child import Child
    from onnxsurgeon_lite.runtime.feeds import Feeds, Recipe, SampleFeeds
    from onnxsurgeon_lite.runtime.pool import Pool
    from onnxsurgeon_lite.runtime.session import Runtime
    from onnxsurgeon_lite.tensors.comparison import Tolerance
    from onnxsurgeon_lite.tensors.metrics import Limit
    from onnxsurgeon_lite.tensors.references import ReferenceSet, Samples, Tensors

OptLevel = Literal["none", "basic", "extended", "all"]

S = TypeVar("S", bound=Shown)
_ALIKE = 3  # inputs with a note each
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "B": 1, "": 1}


class MakingFeeds(TypedDict, total=False):
    """How feeds are made where none are given."""

    seed: int
    dim: Mapping[str, int] | None
    fill: Mapping[str, str] | None


Numbers = float | str | Mapping[str, float | str] | None
"""A number for all tensors, or by name or glob."""


class Tolerating(TypedDict, total=False):
    """What tensors may differ by."""

    rtol: Numbers
    atol: Numbers
    ulp: Numbers
    allow: Numbers


class Limiting(TypedDict, total=False):
    """What the runtime and ONNX's own code may take."""

    timeout: float | None
    memory_limit: int | str


class Choosing(Limiting, total=False):
    """Which runtime."""

    runtime: str
    provider: str
    threads: int


class Running(Choosing, total=False):
    """How models run."""

    ops_library: Sequence[str | PathLike[str]]
    ops: page.Place
    progress: Progress


class OverSamples(TypedDict, total=False):
    """Work on many samples."""

    jobs: int
    cluster: str | None


class InSteps(TypedDict, total=False):
    """Samples that are steps."""

    sequence: Mapping[str, str] | None


class Judging(TypedDict, total=False):
    """What decides whether a sample agrees, instead of tolerances."""

    metric: "str | MetricFunction | None"
    tolerance: float | None
    noise: bool


class Placing(MakingFeeds, Choosing, total=False):
    """Where nodes run."""


class RunOnFeeds(MakingFeeds, Running, total=False):
    """Runs on feeds, given or made."""


class RankingSamples(RunOnFeeds, OverSamples, total=False):
    """Runs on samples, given or made, to rank."""


class RecordingSamples(RankingSamples, InSteps, total=False):
    """Runs on samples, given or made."""


class ComparingRuns(Tolerating, Running, total=False):
    """Runs that are compared with stored tensors."""


class JudgingSamples(ComparingRuns, Judging, OverSamples, total=False):
    """Runs on samples that are judged."""


class ComparingSamples(JudgingSamples, InSteps, total=False):
    """Runs on samples that are compared with others."""


class ComparingOnFeeds(MakingFeeds, ComparingRuns, total=False):
    """Runs on feeds that are compared with others."""


def as_names(names: str | Sequence[str]) -> Sequence[str]:
    """Return names, given as one or as several."""
    return [names] if isinstance(names, str) else names


def indexed(model: object) -> "GraphIndex":
    """Return a model's graph, indexed."""
    from onnxsurgeon_lite.graph import GraphIndex
    from onnxsurgeon_lite.model import loaded

    return GraphIndex.of(loaded(cast("ModelLike", model)))


@dataclass
class Call:
    """A call under way; a context manager that ends the processes it started.

    Attributes:
        html: where a page of the result is wanted. node_data: where its numbers of nodes.
        force: write over what is there.
        models: the indexed models, in the order in which they were given. sight: what was seen of them.
        begun: writes the page to a file that is begun.
        notes: what a user should know; an error that ends the call carries them, the result does otherwise.
        made: how feeds were made.
    """

    seed: int = 0
    dim: Mapping[str, int] | None = None
    fill: Mapping[str, str] | None = None
    rtol: Numbers = None
    atol: Numbers = None
    ulp: Numbers = None
    allow: Numbers = None
    opt: OptLevel = "all"
    runtime: str = ORT
    provider: str = "cpu"
    threads: int = 0
    timeout: float | None = None
    memory_limit: int | str = 0
    ops_library: Sequence[str | PathLike[str]] = ()
    ops: page.Place = None
    progress: Progress = quiet
    jobs: int = 0
    cluster: str | None = None
    sequence: Mapping[str, str] | None = None
    metric: "str | MetricFunction | None" = None
    tolerance: float | None = None
    noise: bool = False
    html: page.Place = None
    node_data: page.Place = None
    force: bool = True
    notes: list[str] = field(default_factory=list, init=False)
    made: list[str] = field(default_factory=list, init=False)
    models: "list[GraphIndex]" = field(default_factory=list, init=False)
    sight: "Sight | None" = field(default=None, init=False)
    begun: "Callable[[Page], None] | None" = field(default=None, init=False)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def __enter__(self) -> "Call":
        page.require_page(self.html, self.node_data, self.force)
        self.stack.enter_context(limited(self.timeout, byte_size(self.memory_limit)))
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.stack.close()
        if isinstance(error, SurgeonError):
            error.told = tuple(self.notes) + error.told  # the notes explain an error, too

    def child(self) -> "Child":
        """Start the runtime's process, so that it gets ready while the rest is imported."""
        return self.start(self.options())

    def start(self, options: RuntimeOptions) -> "Child":
        """Start the process of the runtime that options name."""
        from onnxsurgeon_lite.runtime.starting import finished, started

        child = started(options)
        # the runtimes that use it leave it open
        self.stack.callback(finished, child, options)
        return child

    def options(self, opt: OptLevel | None = None, lean: bool = True) -> RuntimeOptions:
        """Return how the runtime works."""
        libraries = (self._file(library, "library", ".so") for library in self.ops_library)
        # several runtimes at a time have one thread each by default, so that they do not compete
        shared = self.jobs > 0 or self.cluster is not None
        usual = RuntimeOptions(
            opt or self.opt,
            self.provider,
            self.threads or int(shared),  # one each: what is computed is the same for any number
            lean,
            self.timeout,
            tuple(libraries),
            ops="" if self.ops is None else self._file(self.ops, "file", ".py"),
        )
        return named(usual, self.runtime)

    def _file(self, path: str | PathLike[str], kind: str, suffix: str) -> str:
        """Return the whole path of a file with operators."""
        if not Path(path).is_file():
            raise UsageError(
                f"there is no operator {kind} at {str(path)!r}", f"give the path of a {suffix} file"
            )
        return str(Path(path).resolve())

    def started(self, child: "Child | None" = None, opt: OptLevel | None = None) -> "Runtime":
        """Return the runtime, in a process that is starting already or a new one."""
        return self.runtime_of(self.options(opt), child)

    def runtime_of(self, options: RuntimeOptions, child: "Child | None" = None) -> "Runtime":
        """Return a runtime that ends with the call."""
        from onnxsurgeon_lite.runtime.choice import runtime_of

        return self.stack.enter_context(runtime_of(options, child))

    def index(self, model: object) -> "GraphIndex":
        """Return a model's graph, indexed; the page of the result draws it."""
        index = indexed(model)
        self.models.append(index)
        return index

    def draw(self, *models: object) -> None:
        """Index models that are drawn, where a page is wanted, and begin with their drawings."""
        if self.html is not None:
            for model in models:
                self.index(model)
            self.sight = page.begin_drawing(self.models)
            self.begun = self.stack.enter_context(page.begin_file(self.html))

    def see(self, index: "GraphIndex | None" = None) -> "See":
        """Return what takes pictures of compared tensors, where a page is wanted."""
        if self.html is None:
            return lambda *_: None
        self.sight, see = page.sight_of_compared(index)
        return see

    def recipe(self) -> "Recipe":
        """Return how feeds are made."""
        from onnxsurgeon_lite.runtime.feeds import Recipe

        return Recipe(self.seed, self.dim or {}, self.fill or {})

    def feeds(self, index: "GraphIndex", given: "Tensors | None") -> "Feeds":
        """Return the feeds given, or made ones."""
        from onnxsurgeon_lite.runtime.feeds import make_feeds

        if given is not None:
            return self.read_feeds(index, given)
        found, made = make_feeds(index, self.recipe())
        self.made += made
        self.notes += _told(made)
        return found

    def read_feeds(self, index: "GraphIndex", given: "Tensors", sample: int = 0) -> "Feeds":
        """Return the feeds given; they have the sizes given, too."""
        from onnxsurgeon_lite.runtime.feeds import read_feeds, require_inputs

        require_inputs(index, given)
        return self.sized(index, read_feeds(index, given, sample, self.notes))

    def sample_feeds(
        self, index: "GraphIndex", given: "Tensors | Sequence[Tensors]", again: bool = True
    ) -> "SampleFeeds":
        """Return the feeds of several samples; each can be read again where that is wanted."""
        from onnxsurgeon_lite.runtime.feeds import SampleFeeds
        from onnxsurgeon_lite.tensors.references.samples import spooled

        found = SampleFeeds.of(index, given, self.dim or {})
        # a generator can be read once: its samples go to files if they are needed again
        if not (found.samples.flows and again):
            return found
        folder = Path(self.stack.enter_context(TemporaryFolder()))  # the copies go with the call
        return replace(found, samples=spooled(found.samples, folder / "samples"))

    def sources(
        self,
        index: "GraphIndex",
        reference: "Tensors | Sequence[Tensors] | None",
        feeds: "Tensors | Sequence[Tensors] | None",
        again: bool = False,
    ) -> "tuple[Samples | None, Samples | None]":
        """Return where the references and the feeds of samples are; None for what is not given.

        Args:
            again: each can be read again.
        """
        from onnxsurgeon_lite.runtime.feeds import require_inputs

        require_inputs(index, feeds)
        given = None if feeds is None else self.sample_feeds(index, feeds, again).samples
        if reference is None:
            return None, given
        stored = self.sample_feeds(index, reference, again).samples
        if stored.count == 1 and given is not None and given.count != 1:  # a row for each sample
            stored = stored.in_rows(given.count)
        return stored, given

    def feeds_beside(
        self, index: "GraphIndex", stored: "ReferenceSet", given: "Tensors | None"
    ) -> "Feeds":
        """Return the feeds given, or those that the references hold.

        Raises:
            ReferenceSetError: they hold others than those given.
        """
        from onnxsurgeon_lite.matching.given import require_same_inputs
        from onnxsurgeon_lite.matching.values import feeds_in_order

        if given is not None:
            return require_same_inputs(index, stored, self.read_feeds(index, given))
        return self.sized(index, feeds_in_order(index, stored, self.notes))

    def sized(self, index: "GraphIndex", feeds: "Feeds") -> "Feeds":
        """Return feeds; raise `FeedsError` if they contradict the sizes given."""
        from onnxsurgeon_lite.runtime.feeds import sizes_of

        if self.dim:
            sizes_of(index, feeds, self.dim)
        return feeds

    def trials(
        self,
        index: "GraphIndex",
        given: "Tensors | None",
        runtime: "Runtime",
        known: "Feeds",
        held: "Mapping[str, int] | None" = None,
    ) -> "list[Trial]":
        """Return runs of a model on the feeds given, or on made ones that distinguish models.

        Args:
            known: feeds that replace both.
            held: see `run_trials`.
        """
        from onnxsurgeon_lite.matching.trials import Trial, run_trials
        from onnxsurgeon_lite.runtime.run import run

        if given is not None:
            feeds = {**self.read_feeds(index, given), **known}
            return [Trial(feeds, run(index, feeds, runtime))]
        found, made = run_trials(index, self.recipe(), runtime, known, held)
        self.made += made
        self.notes += _told(made)
        return found

    def allowed(self) -> "Tolerance | None":
        """Return what was given to decide: numbers for all or by name, a metric; None for each dtype's own."""
        from onnxsurgeon_lite.tensors.comparison import tolerance_of

        kinds = {"rtol": self.rtol, "atol": self.atol, "ulp": self.ulp, "allow": self.allow}
        # name or glob -> kind -> number; "*" is what was given without a name
        said = dict[str, dict[str, float | str]]()
        for kind, given in kinds.items():
            by_name = given if isinstance(given, Mapping) else {"*": given}
            for name, number in by_name.items():
                if number is not None:
                    said.setdefault(name, {})[kind] = number
        return tolerance_of(said, self.limit())

    def allowed_beside_noise(
        self,
        asked: "Tolerance | None",
        index: "GraphIndex",
        feeds: "Feeds",
        names: Container[str],
    ) -> "Tolerance | None":
        """Return what was asked for, widened by the noise of values with `noise`."""
        if not self.noise:
            return asked
        from onnxsurgeon_lite.matching.noise import with_noise

        allowed, said = with_noise(index, feeds, self.options("none"), names, asked)
        self.notes += said
        return allowed

    def limit(self) -> "Limit | None":
        """Return the metric given, where it is one that comparisons have."""
        from onnxsurgeon_lite.tensors.metrics import Limit

        return Limit.of(self.metric, self.tolerance) if isinstance(self.metric, str) else None

    def measure(self) -> "Metric | None":
        """Return the metric given, where it is a user's own."""
        from onnxsurgeon_lite.matching.judge import Metric

        if self.metric is None and self.tolerance is not None:
            raise UsageError("--tolerance is a metric's limit", "give --metric, or --rtol, --atol")
        return (
            None if self.metric is None or self.limit() else Metric.of(self.metric, self.tolerance)
        )

    def carry(self, index: "GraphIndex") -> dict[str, str]:
        """Return input -> the output of the step before that it gets; nothing where samples are not steps."""
        from onnxsurgeon_lite.matching.samples import carried_by

        if self.sequence and (self.jobs > 1 or self.cluster is not None):
            raise UsageError("steps follow each other", "leave out --jobs and --cluster")
        return carried_by(index.inputs, index.outputs, self.sequence or {})

    def pool(self) -> "Pool":
        """Return the runtimes that work on samples."""
        from onnxsurgeon_lite.runtime.pool import threads

        if self.cluster is not None:
            from onnxsurgeon_lite.runtime.cluster import cluster

            return self.stack.enter_context(cluster(self.cluster, self.jobs, self.notes))
        return self.stack.enter_context(threads(max(1, self.jobs)))

    def done(self, result: S) -> S:
        """Return a result that carries the notes; write its page where one is wanted."""
        result = result.with_told(self.notes)  # who prints the result shows the notes
        page.write_page(self.html, self.node_data, result, self.models, self.sight, self.begun)
        return result


def byte_size(text: int | str) -> int:
    """Return the bytes that `4GB`, `512MB` or a plain number mean."""
    text = str(text)
    # "4GB" -> "4", "GB"; "4G" means the same
    digits = text.strip().rstrip("BbKkMmGgTt")
    unit = text.strip()[len(digits) :].upper()
    try:
        factor = _UNITS[unit if unit.endswith("B") or not unit else unit + "B"]
        size = int(float(digits) * factor)
    except (ValueError, KeyError, OverflowError):
        size = -1
    if not 0 <= size < 1 << 63:
        raise UsageError(f"{text!r} is no size", "write 512MB or 4GB")
    return size


def _told(made: Sequence[str]) -> Iterator[str]:
    """Say how inputs were made: those of many layers, which are made alike, together."""
    for how, lines in groups((line.partition(": ")[2], line) for line in made).items():
        if len(lines) > _ALIKE:
            lines = [f"{lines[0].removesuffix(f': {how}')} and {len(lines) - 1} more: {how}"]
        yield from (f"made {line}" for line in lines)
