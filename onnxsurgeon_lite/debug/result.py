"""The result of a bisection, as data."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from onnxsurgeon_lite.debug.journal import Journal
from onnxsurgeon_lite.debug.judge import AgainstReferences
from onnxsurgeon_lite.debug.shares import Blame
from onnxsurgeon_lite.graph import GraphIndex, at, iterations_of
from onnxsurgeon_lite.matching.over_samples import MeasuredMetric
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import joined
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import HIDDEN, Progress, Shown, hidden, versions
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import Array, RunValue, is_array
from onnxsurgeon_lite.tensors.references.sets import ReferenceSet

_NAMED = 5  # names in one note

Outcome = Literal["agrees", "mismatch", "inconclusive"]
Look = Literal["unoptimized", "optimized", "node"]

Verdict = Literal[
    "random",
    "optimizer",
    "observer effect",
    "overflow",
    "non-finite",
    "wrong scale",
    "wrong zero point",
    "saturated",
    "shape or layout",
    "tie",
    "rounding",
    "precision",
    "kernel",
    "missing node",
    "extra node",
    "wrong constant",
    "wrong node",
    "amplification",
    "gradual",
    "crash",
]
"""Reasons for a mismatch in the order of triage; of several, the first one leads. No other place orders them."""

HARMLESS: frozenset[Verdict] = frozenset({"tie", "rounding"})
"""Verdicts that clear a node."""

OWN: frozenset[Verdict] = frozenset(
    {"shape or layout", "kernel", "missing node", "extra node", "wrong constant", "wrong node"}
)
"""Verdicts from running a node alone on reference inputs."""

INHERITED: frozenset[Verdict] = frozenset({"amplification", "gradual"})
"""Verdicts of nodes that are right on reference inputs."""


@dataclass(frozen=True)
class Finding:
    """A verdict and its reason in a sentence.

    Attributes:
        edits: what would take the reason back, if that is known.
    """

    verdict: Verdict
    because: str
    edits: tuple[Pass, ...] = field(default=(), compare=False, metadata=HIDDEN)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of triage."""
    return sorted(findings, key=lambda finding: get_args(Verdict).index(finding.verdict))


@dataclass
class ValueReport:
    """One value of a culprit.

    Attributes:
        comparison: the actual value against its reference; None without a reference.
        introduced: for an output, the result from *reference* inputs against the reference: the node's own error.
            None if it could not be computed.
    """

    name: str
    role: Literal["input", "output"]
    comparison: Comparison | None = None
    introduced: Comparison | None = None


WORKAROUND = "workaround"
"""The hypothesis of what is no cause: the runtime is wrong."""


@dataclass(frozen=True)
class Cause:
    """A mistake that explains a culprit, and the edit that repairs it; proved by running the edited model.

    Attributes:
        hypothesis: the kind of mistake, such as `epsilon`; `workaround` where the runtime is wrong, not the model.
        sentence: what is wrong, and what is right.
        before, after: the culprit's value from reference inputs, against its reference, without and with the edit.
        steps: the edit, as passes. edits: the same as the steps of a recipe.
        repair: the command that makes the edit; '' if only `--repair` can, because it needs numbers from files.
        apart: what would distinguish it from another cause that fits as well; '' if nothing does.
        of_one_example: its numbers were solved for from one example, which one that depends on the input fits, too.
    """

    hypothesis: str
    sentence: str
    before: Comparison | None
    after: Comparison | None
    steps: tuple[Pass, ...] = field(metadata=HIDDEN)
    edits: list[dict[str, object]] = field(default_factory=list)
    repair: list[str] = field(default_factory=list)
    mistake: tuple[object, ...] = hidden(())
    apart: str = ""
    of_one_example: bool = hidden(False)


@dataclass
class Repair:
    """A model that was repaired by the causes of its culprits.

    Attributes:
        verdict: of the repaired model; `agrees` proves the repair.
        model: the written model. recipe: its edits; both None if there was nothing to repair.
        edits: how many they are.
        outputs: the compared outputs of the repaired model.
        left: the search of the repaired model.
        fresh: what was seen on fresh inputs.
    """

    verdict: Outcome
    model: Path | None = None
    recipe: Path | None = None
    edits: int = 0
    outputs: dict[str, Comparison] = field(default_factory=dict)
    left: "BisectResult | None" = hidden(None)
    fresh: str = ""


@dataclass
class Culprit:
    """The smallest region with matching inputs and a mismatching output; one node if the references allow.

    Attributes:
        id, name, op_type: the node that produces the mismatching value.
        outputs: the node's outputs. value: the mismatching one.
        region: ids of all nodes between matching values and `value`, including the node; of several overlapping
            regions their intersection, whose last node is the culprit.
        inputs: the values that enter the region, without constants.
        scope, class_name, source: the source module, its class and line (`model.py:17`), '' if unknown.
        attributes: the node's attributes as text.
        alike: the number of nodes of the same operator in modules of the same class, this one included.
        values: the compared inputs and outputs.
        findings: the verdict first; the others are evidence.
        evaluated: how the region was evaluated in float64, '' if it was not.
        seen: mismatching values that the culprit explains and does not make itself.
        healed: the share of the outputs' error that disappears when only this value is replaced by its reference;
            None if that says nothing, as another culprit errs downstream of it.
        covers: original node ids, if the region belongs to the optimized graph.
        nodes: id -> operator and name, of `covers` if there are some, else of `region`.
        lacking: references between `inputs` and `value` without a value in the model: a node may be missing.
        inside: for a node with bodies, the culprits in the body that first mismatches, in a loop at its first wrong
            iteration. Names are seen from outside: `@12/body/@3`, `@12/body/q[5]`.
        causes: mistakes that explain it, the simplest first.
        unexplained: what was found instead, if its causes were searched and there is none.
    """

    id: str
    name: str
    op_type: str
    value: str
    outputs: list[str]
    region: list[str]
    inputs: list[str]
    scope: str = ""
    class_name: str = ""
    source: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    alike: int = 1
    values: list[ValueReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    evaluated: str = ""
    seen: list[str] = field(default_factory=list)
    healed: float | None = None
    covers: list[str] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    lacking: list[str] = field(default_factory=list)
    inside: "list[Culprit]" = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    unexplained: str = ""

    @property
    def verdicts(self) -> set[str]:
        """The verdicts of all findings."""
        return {finding.verdict for finding in self.findings}

    @property
    def position(self) -> int:
        """The node in the main graph."""
        return int(self.id[1:])

    @property
    def comparison(self) -> Comparison | None:
        """Its value against the reference; None where it was not compared."""
        return next((v.comparison for v in self.values if v.name == self.value), None)

    @property
    def harmless(self) -> bool:
        """True when the findings clear the node; an optimizer that rounds differently is harmless too."""
        leading = [f.verdict for f in self.findings if f.verdict != "optimizer"][:1]
        return bool(leading) and leading[0] in HARMLESS

    @property
    def verdict(self) -> str:
        """The verdict that leads; `culprit` where nothing tells one."""
        return self.findings[0].verdict if self.findings else "culprit"

    @property
    def inherits(self) -> bool:
        """True when the node is right on correct inputs: its error is made before it."""
        return self.verdict in INHERITED

    @property
    def misses(self) -> bool:
        """True when an operation is missing before the node."""
        return self.verdict == "missing node"

    @property
    def own(self) -> bool:
        """True when the node makes the error alone, from correct inputs."""
        return self.verdict in OWN


@dataclass(frozen=True)
class CulpritGroup:
    """Samples with the same culprits.

    Attributes:
        culprits: node ids. samples: their numbers.
    """

    culprits: list[str]
    samples: list[int]


@dataclass
class SampleSummary:
    """The samples of a bisection, numbered from 0.

    Attributes:
        failing: the samples that mismatch.
        worst: the sample that the result explains; of steps the first that fails.
        same: True when the culprits of all searched samples are among the worst one's.
        culprits: sample -> node ids, for searched samples besides the worst.
        groups: the searched samples by their culprits, the largest group first.
        steps: outputs of each were inputs of the next.
        metric: what decided which samples fail, if a metric was given.
        repeated: what was done again because a worker or a runtime was lost.
    """

    total: int
    failing: list[int]
    worst: int
    same: bool = True
    culprits: dict[int, list[str]] = field(default_factory=dict)
    groups: list[CulpritGroup] = field(default_factory=list)
    steps: bool = False
    metric: MeasuredMetric | None = None
    repeated: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BesideEager:
    """An output of a PyTorch module in eager mode, beside what the module gives compiled, and as an export.

    Attributes:
        eager: the largest finite magnitude in eager mode.
        compiled, export: how far each is from eager mode.
    """

    eager: float
    compiled: Comparison
    export: Comparison


@dataclass
class BisectResult(Shown):
    """The result of `bisect`.

    Attributes:
        verdict: `agrees` (no compared value mismatches), `mismatch`, or `inconclusive` (what was compared agrees, but
            no output was, or references are left over behind the last match).
        look: the look that found the culprits.
        findings: verdicts about the whole run.
        outputs: the compared outputs, by name.
        culprits: all origins: those that err by themselves first, in the order of the graph, then by their effect.
        cleared: origins of harmless differences: ties, rounding.
        elsewhere: mismatching values that no culprit explains (a quick search names only one culprit).
        masked: inner values that mismatch although the outputs agree.
        notes: hints for the reader, such as outputs without a reference.
        compared: the number of compared values. sessions: the number of runtime sessions.
        tensors: the culprits' tensors, (reference, actual) by value name, for the reproducer.
        reproducer: the written folder. reproduce: the command that shows the mismatch with it.
        reduced: what is left of the reproducer as a text, in its folder `reduced`; '' where none was made.
        further: the command that makes the reproducer smaller; empty where nothing more can be left out.
        samples: set if there were several samples.
        inner: the search of the first culprit's body, if any.
        kind: what a search without references looked for, as `overflow:float16`.
        body, place: in such a search, the body as a model and its place: `@12/body[3]`.
        repair: the repaired model, if one was asked for.
        blame: the shares of all nodes in the error of the worst output, if they were asked for.
        beside_eager: output -> its three values, where a compiled PyTorch module gave the references.
        has_factory: True when the PyTorch module is known whose operators narrow a region.
        lost: what Ctrl-C left out.

    Example:
        >>> osl.bisect("whole_model.onnx", "references/whole_model.npz").verdict
        'agrees'
    """

    verdict: Outcome
    look: Look = "unoptimized"
    findings: list[Finding] = field(default_factory=list)
    outputs: dict[str, Comparison] = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    cleared: list[Culprit] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    masked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    sessions: int = 0
    tensors: dict[str, tuple[RunValue, RunValue]] = field(default_factory=dict)
    reproducer: Path | None = None
    reproduce: list[str] = field(default_factory=list)
    reduced: str = ""
    further: list[str] = field(default_factory=list)
    samples: SampleSummary | None = None
    inner: "BisectResult | None" = None
    body: Model | None = None
    place: str = ""
    kind: str = ""
    repair: Repair | None = None
    blame: Blame | None = None
    beside_eager: dict[str, BesideEager] = field(default_factory=dict)
    has_factory: bool = hidden(False)
    lost: list[str] = field(default_factory=list, metadata=HIDDEN)

    def innermost(self) -> "tuple[BisectResult, str]":
        """Return (the innermost search of the first culprit, its place: '' for the main graph)."""
        # from body to body, as far as each search found a culprit; the places join to one path
        result, paths, numbers = self, list[str](), list[int]()
        while result.inner is not None and result.inner.culprits:
            result = result.inner
            path, iterations = iterations_of(result.place)
            paths.append(path)
            numbers += iterations
        return result, at("/".join(paths), numbers)

    def input_of(self, culprit: Culprit, name: str) -> RunValue:
        """Return a failing input: the reference if it has the model's dtype and fails, else the actual value."""
        stored, actual = self.tensors[name]
        # a node that is right on reference inputs fails only on the run's own
        right = any(v.introduced is not None and v.introduced.match for v in culprit.values)
        right |= "crash" in culprit.verdicts
        if is_array(stored) and is_array(actual):
            same = stored.dtype == actual.dtype and stored.shape == actual.shape
            return stored if same and not right else actual
        return actual if actual is not None else stored

    def add_finding(self, verdict: Verdict, because: str) -> None:
        """Add a verdict about the whole run, once."""
        if all(finding.verdict != verdict for finding in self.findings):
            self.findings.append(Finding(verdict, because))

    def contract(self) -> dict[str, object]:
        """Return the JSON object of `bisect --json`."""
        return {
            "verdict": self.verdict,
            "look": self.look,
            "findings": self.findings,
            "outputs": self.outputs,
            "culprits": self.culprits,
            "cleared": self.cleared,
            "elsewhere": self.elsewhere,
            "masked": self.masked,
            "notes": self.notes,
            "compared": self.compared,
            "sessions": self.sessions,
            "samples": self.samples,
            "reproducer": self.reproducer,
            "repair": self.repair,
            "blame": self.blame,
            "beside_eager": self.beside_eager,
            "versions": versions(),
        }


def settle(
    result: BisectResult, references: ReferenceSet, targets: Iterable[str], outputs: Container[str]
) -> None:
    """Turn `agrees` into `inconclusive` where the outputs, or what is behind the last match, were not compared.

    Outputs in another order do not agree either.
    """
    # what is after the last match may be a part that the model lacks
    left = references.left_over
    if left:
        shown = joined(left[:_NAMED])
        result.notes.append(
            f"references after the last match have no value in the model: {shown}; not compared"
        )
    if references.exchanged:
        result.notes.append(references.exchanged)
    # targets may be inner values, where no output has a reference
    compared = any(name in outputs for name in targets)
    if result.verdict == "agrees" and (left or references.exchanged or not compared):
        result.verdict = "inconclusive"


@dataclass(frozen=True)
class Case:
    """What a result was found with.

    Attributes:
        samples: references and feeds, the explained sample first.
        memory: bytes of values that one run may compute. seconds: how long the search took.
        changed: initializers that have other numbers in the model that computed the references: name -> those.
        journal: keeps which mistakes were tried in vain.
    """

    index: GraphIndex
    judge: AgainstReferences
    samples: Sequence[tuple[ReferenceSet, Feeds]]
    runtime: Runtime
    memory: int
    seconds: float
    progress: Progress
    changed: Mapping[str, Array]
    journal: Journal
