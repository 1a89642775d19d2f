"""Bisect a model against references: choose the look, find the culprits, give verdicts."""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from onnxsurgeon_lite.debug.bisection.body_search import BodySearch, Sample
from onnxsurgeon_lite.debug.bisection.crash import crash_of
from onnxsurgeon_lite.debug.bisection.diagnose import WIDE, Diagnosis
from onnxsurgeon_lite.debug.bisection.fork import first_to_blame, one_for_each_fault
from onnxsurgeon_lite.debug.bisection.healing_effect import effect_of
from onnxsurgeon_lite.debug.bisection.optimizer import blame, compare_with_unoptimized
from onnxsurgeon_lite.debug.bisection.precision import may_be_rounded, tell_precision
from onnxsurgeon_lite.debug.bisection.quantized.expanding import as_written, expanded
from onnxsurgeon_lite.debug.bisection.quantized.isolated import FloatValues
from onnxsurgeon_lite.debug.bisection.quantized_search import QuantizedSearch, add_causes, are_own
from onnxsurgeon_lite.debug.bisection.randomness import replayed
from onnxsurgeon_lite.debug.bisection.unobserved import Unobserved
from onnxsurgeon_lite.debug.bisection.walk import Walk
from onnxsurgeon_lite.debug.journal import Journal, digest
from onnxsurgeon_lite.debug.judge import AgainstReferences, cast_like, unlike
from onnxsurgeon_lite.debug.result import BisectResult, Case, Culprit, Finding, Look, settle
from onnxsurgeon_lite.debug.search_space import Space
from onnxsurgeon_lite.debug.targets import require_same_sizes, targets_of
from onnxsurgeon_lite.errors import RuntimeLost
from onnxsurgeon_lite.graph.bodies import bodies
from onnxsurgeon_lite.graph.half import HALF
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.quantizers import FORMS, QUANTIZERS
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.float64 import Float64
from onnxsurgeon_lite.runtime.observe import BUDGET, Observer
from onnxsurgeon_lite.runtime.optimized import optimized_graph
from onnxsurgeon_lite.runtime.options import ORT, words_of
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.search.origins import Origin
from onnxsurgeon_lite.shown import Progress, quiet
from onnxsurgeon_lite.tensors.comparison import Tolerance
from onnxsurgeon_lite.tensors.dtypes import Arrays, RunValues
from onnxsurgeon_lite.tensors.references import ReferenceSet

# Limits of one search. A model with more origins than this is wrong as a whole: the first ones say enough.
_MOST = 16  # culprits at which the search stops
_CLEARED = 256  # harmless origins at which the search stops
_BLAMED = 3  # culprits whose optimizer is searched
ENTERED = 4  # culprits whose bodies are searched
_LEAST = 0.005  # a smaller share of the error is 0% in a report
_RANKED = 8  # origins whose healing effect is measured
# of the tolerance of half precision: a larger error of one node may grow further down
_HIDDEN = 1 / 8
_GROWN = 0.5  # the share of the outputs' error that such a node must explain


@dataclass(frozen=True)
class Search:
    """Options of a search.

    Attributes:
        tolerance: for every value; None takes each dtype's default.
        look: `unoptimized` (optimization off), `optimized` (the runtime's optimized graph), `node` (every node
            alone); None tries them in this order until one shows a culprit.
        quick: find one culprit only, without verdicts.
        memory: bytes of values that one probe may compute at once.
        journal: a file for the answers. resume: continue from that file.
        settings: the references are the same model's under other settings: what optimization alone changes is searched
            although the outputs agree.
        agreeing: returns values that agree where each part of the model is computed from the references before it.
        sides: what computes the references and what is searched, where both run the same model.
        tell: called with what is certain while the search goes on.
    """

    tolerance: Tolerance | None = None
    look: Look | None = None
    quick: bool = False
    memory: int = BUDGET
    journal: Path | None = None
    resume: bool = False
    explain: Callable[[BisectResult, Case], None] | None = None
    settings: bool = False
    agreeing: Callable[[], set[str]] | None = None
    sides: tuple[str, ...] = ()
    tell: Callable[[BisectResult], None] = lambda _: None

    @property
    def inner(self) -> "Search":
        """The options of a search within this one: it keeps no journal, and tells nothing."""
        return replace(self, journal=None, resume=False, tell=lambda _: None)


def bisect(
    model: Model,
    references: ReferenceSet,
    feeds: Feeds,
    runtime: Runtime,
    optimized: Runtime | None = None,
    search: Search | None = None,
    progress: Progress = quiet,
    changed: Arrays = MappingProxyType({}),
    *,
    others: Sequence[tuple[ReferenceSet, Feeds]] = (),
) -> BisectResult:
    """Find the nodes where a model leaves its references, and why, on one sample.

    Args:
        runtime: with optimization off.
        optimized: with the optimization that the model is used with; None leaves that look out.
        progress: called with a text for each step.
        changed: initializers that differ from those of the model that computed the references: name -> its numbers.
        others: further samples, on which a cause must hold too.

    Raises:
        ReferenceSetError: the references do not fit the model, or lack the output of a random operator.
        FeedsError: see `feeds.check_feeds`.
        RuntimeFailure: the runtime cannot run the model.
    """
    search = search or Search()
    index = GraphIndex.of(model)
    judge = AgainstReferences.of(index, search.tolerance).for_references(references)
    judge.references = references
    job = _Bisection(index, judge, feeds, runtime, optimized, search, progress, changed)
    # The model is compared as it is written first: one whose own values these are needs no weights in float. Operators
    # that quantize what they compute do.
    values = None if FORMS.keys() & index.operators else FloatValues.of(index, references, feeds)
    own = values is not None and are_own(values, runtime, search.tolerance)
    if not own and (found := _against_float(job, values)):
        return found
    # the usual search: every value has its reference in the model's own precision
    started = time.monotonic()
    try:
        result = job.run()
        lost = result.verdict == "mismatch" and not result.culprits and search.look is None
        if own and lost:  # all that differs may be what the optimizer rounds
            return _against_float(job, values) or result
        if search.explain is not None and not search.quick and result.culprits:
            samples, seconds = [(references, feeds)] + list(others), time.monotonic() - started
            case = Case(
                index,
                judge,
                samples,
                runtime,
                search.memory,
                seconds,
                progress,
                changed,
                job.journal,
            )
            search.explain(result, case)
        return result
    except KeyboardInterrupt as interrupt:
        for line in job.so_far():
            interrupt.add_note(line)
        raise
    finally:
        job.journal.close()


def _against_float(job: "_Bisection", values: FloatValues | None) -> BisectResult | None:
    """Bisect a quantized model against values of its float model; None for any other model or references.

    This is another kind of search: each value errs, by what its quantizer rounds.
    """
    index, search, references = job.index, job.search, job.judge.references
    written = expanded(index)
    if written or values is None:
        values = FloatValues.of(written[0] if written else index, references, job.feeds)
    if values is None:
        return None

    # a search within this one, of an edited model or against other values
    def again(
        model: Model, stored: ReferenceSet, how: Search, also: Runtime | None = None
    ) -> BisectResult:
        return bisect(model, stored, job.feeds, job.runtime, also, how, job.progress)

    # where only optimization moves the outputs, the optimized graph is bisected against the model's own values
    looked = replace(search.inner, look="optimized")
    held = QuantizedSearch(
        values,
        index,
        job.runtime,
        job.optimized,
        search.tolerance,
        search.memory,
        search.quick,
        job.changed,
        lambda own: again(index.model, own, looked, job.optimized),
        job.progress,
    )
    result = held.run()
    if written:
        return as_written(result, index, *written)
    if search.explain is not None and not search.quick:
        # a cause is proved by searching the edited model, without causes of its own
        plain = replace(search.inner, explain=None)
        add_causes(result, index.model, lambda edited: again(edited, references, plain))
    return result


@dataclass
class _Bisection:
    """The state of one bisection.

    Attributes:
        clean: all values were compared unoptimized, and agree.
    """

    index: GraphIndex
    judge: AgainstReferences
    feeds: Feeds
    runtime: Runtime
    optimized: Runtime | None
    search: Search
    progress: Progress
    changed: Arrays
    walk: Walk | None = None
    journal: Journal = field(default_factory=Journal)
    clean: bool = False
    result: BisectResult = field(default_factory=lambda: BisectResult("mismatch"))

    def run(self) -> BisectResult:
        """Search and explain; replay the references of nodes that crash the runtime."""
        result = self.result
        self.space = Space(self.index)
        self.targets, notes = targets_of(self.space, self.judge)
        result.notes += notes
        self.journal = self._journal()
        result.notes += self.judge.references.notes
        replay = replayed(self.index, self.targets, self.judge.references)
        for name in replay:
            result.notes.append(f"{name!r} is random: its recorded value is replayed")
        if replay:
            self.optimized = None  # a run of the whole model cannot replay
        self.journal.agreeing = self._agreeing(replay)
        # Each turn searches the model once. A crash adds its node to `crashed`, replays the references after it, and
        # starts anew; the loop ends with a turn without a crash, or when replaying leads to the same crash again.
        crashed = list[Culprit]()
        while True:
            self.observer = Observer(self.index, self.runtime, by_node=self.search.look == "node")
            self.observer.feed(self.feeds)
            self.judge.outputs = dict.fromkeys(self.targets)
            result.culprits, result.cleared = [], []
            try:
                walk = self.walk = self._walk_over(self.space, self.observer, "unoptimized", replay)
                find = self._find_one if self.search.quick else self._find_all
                find(walk)
                # a first culprit with another shape than its reference may just have been run with other feeds
                for culprit in result.culprits[:1]:
                    seen = result.tensors[culprit.value]
                    require_same_sizes(self.index, self.feeds, culprit.value, *seen)
                break
            except RuntimeLost as error:
                found = self._crash(error, replay)
                if found.id in [culprit.id for culprit in crashed]:
                    break  # no reference leads around it
                crashed.append(found)
                replay += self._around(found)
        # an output in `judge.outputs` stays None until it is compared
        result.outputs = {n: c for n, c in self.judge.outputs.items() if c is not None}
        if crashed:
            result.verdict = "mismatch"
            result.culprits[:0] = crashed
            # what depends on a crash was computed from references
            made = set(chain.from_iterable(each.outputs for each in crashed))
            lost = self.space.below(made) | made
            result.outputs = {n: c for n, c in result.outputs.items() if n not in lost}
            result.masked = []
        # last: what only the culprits together show, the verdict of the whole, and the bodies of the first culprits
        tell_precision(result, self.index, self.search.sides)
        self._settle()
        result.notes += filter(None, [self.journal.lost])
        if result.verdict == "mismatch":
            result.notes += self.judge.references.doubts
        self.observer.forget()
        # causes ask for references, and what computes these needs the memory of the last session
        self.runtime.forget((), session=True)
        for culprit in result.culprits[:ENTERED]:
            self._look_inside(culprit)
        return result

    def _settle(self) -> None:
        """Turn `agrees` into `inconclusive` where the outputs, or what is behind the last match, were not compared.

        A quantized model agrees where optimization only rounds otherwise.
        """
        result = self.result
        if self._only_rounds():
            result.verdict = "agrees"
            result.cleared += result.culprits
            result.culprits = []
            count = len(result.cleared)
            differ = "value differs" if count == 1 else "values differ"
            because = f"with optimization on, {count} {differ} by what the quantization rounds"
            result.findings = [Finding("rounding", because)]
        # the outputs mismatch, yet all origins only exchange near values (TopK, ArgMax): no fault is left
        cleared = [culprit.findings[0] for culprit in result.cleared]
        if not result.culprits and cleared and all(f.verdict == "tie" for f in cleared):
            result.verdict = "agrees"
            result.add_finding("tie", "all that differs comes of near values that change places")
        settle(result, self.judge.references, self.targets, self.index.outputs)

    def _only_rounds(self) -> bool:
        """Return whether all that differs is how optimized quantized nodes round, each or together."""
        if self.result.look != "optimized":
            return False
        found = self.result.culprits + self.result.cleared
        quantized = any(node.op_type in QUANTIZERS for node in self.index.nodes)
        return quantized and bool(found) and all(c.harmless or c.inherits for c in found)

    def _look_inside(self, culprit: Culprit) -> None:
        """Search the body of a culprit that is a single node."""
        # a region of several nodes, or of the optimized graph, has no single node whose body could be entered
        crash = "crash" in culprit.verdicts
        if crash or culprit.covers or culprit.seen or len(culprit.region) > 1:
            return
        search = self.search.inner

        def search_body(
            model: Model, references: ReferenceSet, feeds: Feeds, others: Sequence[Sample]
        ) -> BisectResult:
            # None: no optimized look inside a body
            return bisect(
                model,
                references,
                feeds,
                self.runtime,
                None,
                search,
                self.progress,
                self.changed,
                others=others,
            )

        given = {name: self.result.input_of(culprit, name) for name in culprit.inputs}
        found, why = BodySearch(self.observer, culprit, given).bisect(self.judge, search_body)
        self.result.notes += [why] if why else []
        if culprit is self.result.culprits[0]:
            self.result.inner = found

    def so_far(self) -> list[str]:
        """Describe the state of an interrupted search."""
        lines = [
            f"origin: {c.op_type} {c.name!r} ({c.id}), value {c.value!r}: "
            + ", ".join(finding.verdict for finding in c.findings)
            for c in chain(self.result.culprits, self.result.cleared)
        ]
        if self.walk is not None:
            lines.append(self.walk.range())
        if self.search.journal is not None:
            lines.append("to continue, run the same command with --resume")
        return lines

    def _around(self, crashed: Culprit) -> list[str]:
        """Return the first values with references from a node on, which are replayed instead of computed."""
        # Follow the outputs without a reference down to the first values that have one: these are replayed. With
        # references of its own, the crashing node is simply not run.
        known = self.judge.references.entries.keys() & self.space.number.keys()
        lacking = {name for name in crashed.outputs if name not in known}
        reached = lacking | self.space.below(lacking, known)
        behind = [
            n for n in known if not reached.isdisjoint(self.index.reads[self.index.producer[n]])
        ]
        if lacking:
            shown = joined(sorted(behind)) or "nothing"
            note = f"the crashing node has no reference: not compared, but replayed: {shown}"
            self.result.notes.append(note)
        return behind + [name for name in crashed.outputs if name in known]

    def _crash(self, error: RuntimeLost, replay: Sequence[str]) -> Culprit:
        """Return the node that crashes the runtime or never ends; errors as of `crash_of`."""
        self.progress("searching the node that crashes the runtime")
        culprit, tensors = crash_of(
            error, self.space, self.feeds, self.runtime, self.targets, self.judge.references, replay
        )
        self.result.tensors |= tensors
        return culprit

    def _walk_over(
        self, space: Space, observer: Observer, look: Look, replay: Iterable[str] = ()
    ) -> Walk:
        walk = Walk(
            space,
            observer,
            self.judge,
            look,
            self.search.memory,
            self.targets,
            self.journal,
            self.progress,
        )
        walk.replay({name: self.judge.references.read(name) for name in replay})
        return walk

    def _find_one(self, walk: Walk) -> None:
        """Probe the targets and a first wave of values in one session, then search one culprit."""
        # one session answers both: do the outputs mismatch, and where about does it begin
        answers = walk.probe(walk.first_wave())
        bads = {i for i, good in answers.items() if not good}
        bad_targets = bads & {self.space.number[name] for name in self.targets}
        if not bad_targets:
            self.result.verdict = "agrees"
        else:
            # begin at the first bad value that can reach a bad output; others may be harmless
            upstream = self.space.ancestors(bad_targets) | bad_targets
            found = walk.one(min(bads & upstream), [i for i, good in answers.items() if good])
            culprit = self._diagnosis(walk).culprit(found.bad, found.region)
            self.result.culprits = [culprit]
            # bad values that this culprit cannot have made: there is another fault
            cone = self.space.below(culprit.outputs) | set(culprit.outputs)
            mismatching = self.space.names(sorted(bads | found.bads))
            self.result.elsewhere = [name for name in mismatching if name not in cone]
        self._count(walk)

    def _find_all(self, walk: Walk) -> None:
        """Find all origins and explain them, if an output mismatches or a node errs alone."""
        result = self.result
        # The first origins come before the question whether the outputs mismatch: what the search kept of the values
        # before them makes the outputs cheap.
        unobserved = self._unobserved(walk)
        search = self._begin(walk, unobserved)
        wrong = self._wrong_outputs(walk, unobserved, search is not None)
        if search is not None and not wrong:
            search.close()
            result.culprits, result.cleared = [], []
        result.verdict = "agrees"
        # one look after the other, until one shows origins; `_looks` yields none if all outputs agree
        for look in self._looks(bool(wrong), unobserved):
            result.verdict, result.look = "mismatch", look
            if look == "optimized":
                if not wrong:
                    result.add_finding("optimizer", "the outputs agree with optimization off")
                self._search_optimized(unobserved)
            else:
                self.observer.by_node = look == "node"
                # the first look goes on with the origins that were found already
                begun = search if look == "unoptimized" else None
                self._search(walk, unobserved, begun)
            if result.culprits or result.cleared:
                break
            because = "the outputs mismatch, but no value does while inner values are observed"
            result.add_finding("observer effect", because)
        culprits = result.culprits
        # Afterwards: outputs that agree may hide a fault; in half precision a small error may grow; and a mismatch that
        # no node explains alone may come of the number of threads.
        all_inherit = bool(culprits) and all(culprit.inherits for culprit in culprits)
        if result.verdict == "agrees":
            self._find_masked(walk, unobserved)
        elif self.judge.coarse and self.search.tolerance is None and all_inherit:
            self._find_hidden(unobserved)
        elif not self._is_certain(culprits):
            unobserved.check_threads(self._wrong_optimized(bool(wrong), unobserved))

    def _begin(self, walk: Walk, unobserved: Unobserved) -> Generator[None] | None:
        """Begin the search of all origins, up to the first ones, nothing healed yet; None if there are none.

        What lies behind them then tells what the outputs are: an unobserved run computes the rest, too.
        """
        if self.search.look not in (None, "unoptimized"):
            return None
        waves = self._waves(walk)
        first = next(waves, None)
        self.clean = first is None
        if first is None:
            return None
        search = self._origins(walk, unobserved, chain([first], waves))
        next(search)
        self._tell_first()
        return search

    def _search(
        self, walk: Walk, unobserved: Unobserved, begun: Generator[None] | None = None
    ) -> None:
        """Find all origins, from the first on or as a search goes on that has begun."""
        for _ in begun or self._origins(walk, unobserved, self._waves(walk)):
            pass

    def _waves(self, walk: Walk) -> Iterator[list[Origin]]:
        return walk.every(lambda items: self._heal(walk, items))

    def _find_masked(self, walk: Walk, unobserved: Unobserved) -> None:
        """Find the nodes that err alone although the outputs agree: a masked fault is still a fault."""
        # clean: the walk compared all values and found nothing
        wrong = [] if self.clean else self._masked(walk)
        if self.clean:
            self._count(walk)
        if wrong:
            self._search(walk, unobserved)
        # the outputs agree, but two settings of one model are compared: search what optimization changes inside
        elif (
            self.search.settings
            and self.optimized is not None
            and self.optimized.abilities.optimized_graph
        ):
            self.result.look = "optimized"
            self._search_optimized(unobserved)
            wrong = [culprit.value for culprit in self.result.culprits]
        faults = [culprit for culprit in self.result.culprits if self._errs_unseen(culprit)]
        self.result.culprits = faults
        if faults:
            self.result.verdict = "mismatch"
            self.result.masked = wrong
            for culprit in faults:
                culprit.healed = None  # the outputs have no error

    def _find_hidden(self, unobserved: Unobserved) -> None:
        """Find a node in half precision that errs by less than the tolerance, and explains what grows out of it."""
        result = self.result
        # search once more, from the feeds on, with a fraction of the tolerance; keep what explains half of the outputs'
        # error
        grown, cleared, usual = result.culprits, result.cleared, self.judge
        result.culprits, result.cleared = [], []
        self.judge = replace(usual, share=_HIDDEN)
        self.observer.forget()
        self.observer.feed(self.feeds)
        walk = self._walk_over(self.space, self.observer, result.look)
        walk.journal = Journal()  # its answers are others
        self._search(walk, unobserved)
        hidden = [
            culprit
            for culprit in result.culprits
            if culprit.own
            and not culprit.seen
            and effect_of(culprit, walk, self.judge, self.feeds, result.tensors) >= _GROWN
        ]
        self.judge = usual
        result.culprits, result.cleared = hidden or grown, cleared
        if hidden:
            note = f"an error below half precision's tolerance grows on its way: {_HIDDEN:g} of it is allowed here"
            result.notes.append(note)

    def _errs_unseen(self, culprit: Culprit) -> bool:
        """Return whether a node errs alone also in a run that no one observes, which may compute wider than half."""
        half = self.index.element_of(culprit.value) in HALF
        if self.result.look == "optimized":
            return culprit.verdict == "optimizer"
        return culprit.own or (culprit.verdict in ("non-finite", "overflow") and not half)

    def _masked(self, walk: Walk) -> list[str]:
        """Return the inner values that mismatch their stored references."""
        references = self.judge.references
        if self.search.look == "node":
            return []
        names = walk.space.names(sorted(walk.comparable))
        inner = [name for name in names if name not in self.targets and name not in walk.healed]
        replayed = {name: walk.observer.kept[name] for name in walk.healed}
        # every inner value in one sweep, without healing
        values = walk.observer.sweep(inner, self.progress, self.judge.prepare)
        wrong = [name for name, value in values if not self.judge.good(name, value)]
        walk.observer.feed(self.feeds)  # the sweep drops what it no longer needs
        for name, kind in replayed.items():
            walk.observer.put(name, references.read(name), kind)
        self.result.compared += len(inner)
        return wrong

    def _unobserved(self, walk: Walk) -> Unobserved:
        def unoptimized() -> RunValues:
            wanted = [name for name in self.targets if name not in walk.healed]
            return walk.alone(self.feeds).fetch(wanted)

        return Unobserved(
            self.index,
            self.feeds,
            self.judge,
            self.targets,
            self.optimized,
            self.result,
            unoptimized,
        )

    def _wrong_outputs(self, walk: Walk, unobserved: Unobserved, begun: bool) -> list[str]:
        """Return the outputs that mismatch unoptimized, or node by node for the look `node`.

        Args:
            begun: origins are found: the outputs are computed from the values before them.
        """
        names = [name for name in self.targets if name not in walk.healed]
        self.observer.by_node = self.search.look == "node"
        # Runs that observe inner values may give other outputs: in half precision (kernels keep wider numbers between
        # nodes that are not observed), and with other runtimes. There the unobserved run decides.
        begun &= not self.judge.coarse and self.runtime.options.runtime == ORT
        if self.observer.by_node or begun:
            reached = walk.reached if begun else {}
            left = [name for name in names if name not in reached]
            found = {**reached, **self.observer.fetch(left)}
            return self._mismatching({name: found[name] for name in names})
        return self._mismatching(unobserved.unoptimized)

    def _wrong_optimized(self, unoptimized_wrong: bool, unobserved: Unobserved) -> list[str]:
        """Return the outputs that mismatch with optimization on."""
        outputs = unobserved.optimized
        if outputs is None:
            return []
        if not unoptimized_wrong:
            # the report then shows the optimized outputs
            self.judge.outputs = dict.fromkeys(self.targets)
        wrong = self._mismatching(outputs)
        if unoptimized_wrong and not wrong:
            self.result.notes.append("the outputs agree with optimization on")
        # unless both runs mismatch, the optimized one may differ from run to run
        if not (unoptimized_wrong and wrong):
            unobserved.repeat()
        return wrong

    def _looks(self, unoptimized_wrong: bool, unobserved: Unobserved) -> Iterator[Look]:
        """Yield the looks to try, until one shows an origin."""
        match self.search.look:
            # None tries all looks; the optimized outputs are computed only when the look before showed nothing
            case None | "optimized" as look:
                if unoptimized_wrong and look is None:
                    yield "unoptimized"
                optimized_wrong = bool(self._wrong_optimized(unoptimized_wrong, unobserved))
                if optimized_wrong:
                    yield "optimized"
                if look is None and (unoptimized_wrong or optimized_wrong):
                    yield "node"
            case look if unoptimized_wrong:
                yield look

    def _mismatching(self, outputs: RunValues) -> list[str]:
        return [name for name, value in outputs.items() if not self.judge.good(name, value)]

    def _diagnosis(self, walk: Walk) -> Diagnosis:
        given = walk.space, walk.observer, self.judge, self.result, self.feeds, self.changed
        same = walk.space.index.model is self.index.model  # not its optimized graph
        return Diagnosis(*given, sides=self.search.sides if same else ())

    def _origins(
        self, walk: Walk, unobserved: Unobserved, waves: Iterable[list[Origin]]
    ) -> Generator[None]:
        """Find all origins, and diagnose each before the walk heals it; yield before the first ones are healed."""
        diagnosis, seen = self._diagnosis(walk), set[str]()
        # another version of the runtime is what is judged: float64 comes from the reference evaluator first
        doubted = any(":python=" in s or ":version=" in s for s in self.search.sides)
        with Float64(walk.observer, doubted=doubted) as float64:
            # The walk heals a wave when it is asked for the next one: diagnose while the wrong values are still there.
            for number, wave in enumerate(waves):
                found = [diagnosis.culprit(origin.bad, origin.region) for origin in wave]
                firsts = {c.id: c for c in reversed(found)}  # a node may have two wrong outputs
                found = [c for c in reversed(firsts.values()) if c.id not in seen]
                for culprit in found:
                    seen.add(culprit.id)
                    diagnosis.explain(culprit, float64)
                    self._add(culprit)
                if number == 0:
                    yield
                    # before anything is healed: do the outputs depend on being observed?
                    if not self._is_certain(found):
                        unobserved.check_effect(walk.observer, walk.look == "optimized")
                if len(self.result.culprits) >= _MOST or len(self.result.cleared) >= _CLEARED:
                    note = f"stopped after {len(seen)} origins; the model may have more"
                    self.result.notes.append(note)
                    break
            self._merge_forks(diagnosis, float64)
        self._rank(walk)
        self._count(walk)

    def _tell_first(self) -> None:
        """Tell the first origin as soon as nothing that is found later can take it back."""
        culprits = self.result.culprits
        if len(culprits) != 1 or self.result.cleared or not self._is_certain(culprits):
            return
        (culprit,) = culprits
        stored, actual = self.result.tensors[culprit.value]
        if stored is None or actual is None or unlike(actual, stored):
            return  # other feeds may have been given
        # a body is searched later, and is the headline then
        if culprit.seen or culprit.misses or bodies(self.index, culprit.position):
            return
        if len(culprit.region) == 1 and not may_be_rounded(culprit, self.result, self.index):
            self.search.tell(self.result)

    def _merge_forks(self, diagnosis: Diagnosis, float64: Float64) -> None:
        """Make one culprit of those before one fork, and search what is left of the regions for one wrong node."""
        # merging shrinks the regions, so a wider search for the one wrong change is affordable now; it may show new
        # overlaps
        merged = one_for_each_fault(self.result.culprits, diagnosis.space)
        self.result.culprits = []
        for culprit in merged:
            if not culprit.misses and (culprit.seen or len(culprit.region) > 1):
                diagnosis.explain(culprit, float64, WIDE)
            self._add(culprit)
        self.result.culprits = one_for_each_fault(self.result.culprits, diagnosis.space)

    def _add(self, culprit: Culprit) -> None:
        (self.result.cleared if culprit.harmless else self.result.culprits).append(culprit)

    def _is_certain(self, culprits: Collection[Culprit]) -> bool:
        """Return whether the culprits err alone, however observed."""
        if self.judge.coarse:  # fused nodes may compute half precision wider
            return False
        return bool(culprits) and all(culprit.own for culprit in culprits)

    def _count(self, walk: Walk) -> None:
        self.result.compared += walk.compared
        self.result.sessions += walk.observer.sessions

    def _heal(self, walk: Walk, items: Sequence[int]) -> list[int]:
        """Replace values by references; return items that cannot take theirs."""
        lost = []
        for item, name in zip(items, walk.space.names(items), strict=True):
            # the culprits' tensors are (reference, actual)
            _, actual = self.result.tensors.get(name, (None, None))
            reference = self.judge.references.read(name)
            if unlike(actual, reference):
                lost.append(item)
                if getattr(actual, "shape", None) != getattr(reference, "shape", None):
                    why = "its reference has another shape, which does not fit what reads it"
                    self.result.notes.append(f"not searched after {name!r}: {why}")
            else:
                walk.heal(name, cast_like(actual, reference))
        return lost

    def _rank(self, walk: Walk) -> None:
        """Measure how much error the healing of each culprit removes from the outputs, and sort the culprits."""
        # a single origin explains everything; of several, heal one at a time and see how much of the error goes
        origins = self.result.culprits + self.result.cleared
        if len(origins) == 1:
            origins[0].healed = 1.0
        for culprit in origins[:_RANKED] if len(origins) > 1 else ():
            share = effect_of(culprit, walk, self.judge, self.feeds, self.result.tensors)
            culprit.healed = share if share >= _LEAST or not self._hidden(culprit) else None
        self.result.culprits = first_to_blame(self.result.culprits, walk.space)

    def _hidden(self, culprit: Culprit) -> bool:
        """Return whether healing a culprit alone says nothing: another errs downstream of it, or no healing holds."""
        stored, actual = self.result.tensors[culprit.value]
        if stored is not None and unlike(actual, stored):
            return True
        if culprit.seen or len(culprit.region) > 1:
            return True  # the region may reach the outputs elsewhere, too
        below = self.walk.space.below(culprit.outputs) if self.walk is not None else set[str]()
        return any(other.value in below for other in self.result.culprits if other is not culprit)

    def _search_optimized(self, unobserved: Unobserved) -> None:
        """Search the optimized graph; try each culprit unoptimized, and find the optimizer that makes it wrong."""
        result = self.result
        assert self.optimized is not None
        if not self.optimized.abilities.optimized_graph:
            self._search_cut(self.optimized, unobserved)
            return
        # 1. search the graph that the runtime made of the model, with optimization off: only names that both graphs
        # have can be compared
        with optimized_graph(self.index, self.optimized) as graph:
            space, observer = Space(graph), Observer(graph, self.runtime)
            observer.feed(self.feeds)
            everything = self.judge
            self.judge = everything.only(self.index.producer.keys())
            walk = self.walk = self._walk_over(space, observer, "optimized")
            self._search(walk, unobserved)
            self.judge = everything
        # 2. run the original nodes of each culprit on the same inputs: if these are right, an optimizer made the error
        original = Observer(self.index, self.runtime)
        found, result.culprits = result.culprits + result.cleared, []
        result.cleared = []
        for culprit in found:
            culprit.lacking = []  # the optimized graph lacks most values
            entering = {name: result.tensors[name][1] for name in culprit.inputs}
            inputs = self.feeds | entering  # shapes that the optimizer folds come of the feeds
            actual = result.tensors[culprit.value][1]
            outcome = compare_with_unoptimized(culprit, original, self.judge, inputs, actual)
            if outcome == "another value":
                note = f"the optimized graph uses the name {culprit.value!r} for another value: not compared"
                result.notes.append(note)
                continue
            # wrong without the optimizer, too: find the node among the original ones
            if outcome == "mismatches":
                culprit = self._narrowed(culprit, inputs)
            elif not culprit.harmless and len(result.culprits) < _BLAMED:
                self._blame(culprit, original, self.optimized, inputs)
            self._add(culprit)

    def _search_cut(self, runtime: Runtime, unobserved: Unobserved) -> None:
        """Search a runtime that does not tell what it fuses: each value is the output of a model that ends there."""
        observer = Observer(self.index, runtime, cut=True)
        observer.feed(self.feeds)
        walk = self.walk = self._walk_over(self.space, observer, "optimized")
        self._search(walk, unobserved)

    def _narrowed(self, culprit: Culprit, inputs: RunValues) -> Culprit:
        """Find the wrong original node of an optimized region, on the region's actual inputs."""
        observer = Observer(self.index, self.runtime)
        for name, value in inputs.items():
            if value is not None:
                observer.put(name, value)
        walk = self._walk_over(self.space, observer, "unoptimized")
        number = self.space.number
        # the inputs count as good: they are what the region really read
        found = walk.one(number[culprit.value], [number[n] for n in inputs if n in number])
        diagnosis = self._diagnosis(walk)
        node = diagnosis.culprit(found.bad, found.region)
        with Float64(observer) as float64:
            diagnosis.explain(node, float64)
        node.covers, node.nodes, node.healed = culprit.covers, culprit.nodes, culprit.healed
        self._count(walk)
        observer.forget()
        return node

    def _blame(
        self, culprit: Culprit, original: Observer, runtime: Runtime, inputs: RunValues
    ) -> None:
        """Add the optimizers without which the culprit's value agrees to its finding."""
        found = blame(original, runtime, self.judge, culprit, inputs, self.feeds)
        without = f"; without {', '.join(found)} it agrees" if found else ""
        culprit.findings = [
            replace(f, because=f.because + without) if f.verdict == "optimizer" else f
            for f in culprit.findings
        ]

    def _agreeing(self, replay: Sequence[str]) -> set[str]:
        """Return inner values that need no comparison; not where random ones would be computed anew."""
        if replay or self.search.agreeing is None:
            return set()
        return self.search.agreeing() - set(self.targets)

    def _journal(self) -> Journal:
        if self.search.journal is None:
            return Journal()
        # answers may be reused only for the same model, references, tolerance, options and feeds
        asked = (self.judge.references.place, self.search.tolerance) + tuple(
            words_of(self.runtime.options)
        )
        question = digest(self.index.model.encoded(), asked, self.feeds)
        return Journal.at(self.search.journal, question, self.search.resume)
