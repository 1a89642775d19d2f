"""What a bisection found, as data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from onnxsurgeon_lite.graph.bodies import at, iterations_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.dtypes import RunValue
from onnxsurgeon_lite.tensors.references.sets import Stored

_DEPENDENCIES = ("onnx", "onnxruntime", "numpy")

Outcome = Literal["agrees", "mismatch"]
Look = Literal["unoptimized", "optimized", "node"]

Verdict = Literal[
    "random",
    "optimizer",
    "observer effect",
    "non-finite",
    "shape or layout",
    "tie",
    "rounding",
    "kernel",
    "wrong constant",
    "wrong node",
    "amplification",
    "gradual",
    "crash",
]
"""Why values differ, in the order of triage: where two hold, the earlier one leads. The README has a paragraph each."""

HARMLESS: frozenset[Verdict] = frozenset({"tie", "rounding"})
"""Verdicts that clear a node."""

OWN: frozenset[Verdict] = frozenset({"shape or layout", "kernel", "wrong constant", "wrong node"})
"""Verdicts that rest on running a node by itself, on reference inputs."""


@dataclass(frozen=True)
class Finding:
    """A verdict, and what it rests on, in a sentence."""

    verdict: Verdict
    because: str


@dataclass
class ValueReport:
    """One value of a culprit.

    Attributes:
        comparison: actual with reference; None where there is no reference.
        introduced: for an output, what the node computes from *reference* inputs compared with the reference: the
            error that is its own. None where that could not be computed.
    """

    name: str
    role: Literal["input", "output"]
    comparison: Comparison | None = None
    introduced: Comparison | None = None


@dataclass
class Culprit:
    """The smallest region whose inputs match and whose output does not; one node where references allow.

    Attributes:
        id, name, op_type: of the node that produces the mismatching value.
        outputs: the node's outputs. value: the mismatching one.
        region: ids of every node between the values that were seen to match and `value`, the node included.
        inputs: the values that enter the region; constants are part of it.
        scope, class_name, source: the source module, its class and line (`model.py:17`), '' where nothing says so.
        attributes: as text.
        values: inputs and outputs compared.
        findings: why, the leading verdict first.
        evaluated: how the region was evaluated in float64, '' where it was not.
        healed: the share of the outputs' error that goes when this value alone is replaced by its reference.
        covers: original node ids, where the region is one of the runtime's optimized graph.
        lacking: references between its inputs and `value` that the model has no value for: a node may be missing.
        inside: of a node with bodies, the culprits in the body that runs wrong first: in a loop, at its first wrong
            iteration. Their names are as seen from outside: `@12/body/@3`, `@12/body/q[5]`.
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
    values: list[ValueReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    evaluated: str = ""
    healed: float | None = None
    covers: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    inside: "list[Culprit]" = field(default_factory=list)

    @property
    def harmless(self) -> bool:
        """Whether what was found clears the node: an optimizer that rounds otherwise is no fault either."""
        leading = [f.verdict for f in self.findings if f.verdict != "optimizer"][:1]
        return bool(leading) and leading[0] in HARMLESS

    @property
    def own(self) -> bool:
        """Whether it was seen to make the error by itself, from inputs that are right."""
        return any(finding.verdict in OWN for finding in self.findings[:1])


@dataclass
class Samples:
    """Several samples, numbered from 0: those that fail, and their culprits where they were looked for.

    Attributes:
        worst: the one that the result is about.
        same: whether every other failing sample's culprit is among the worst's.
        culprits: sample -> node ids.
    """

    total: int
    failing: list[int]
    worst: int
    same: bool = True
    culprits: dict[int, list[str]] = field(default_factory=dict)


@dataclass
class BisectResult:
    """The answer of `bisect`.

    Attributes:
        verdict: `agrees` (no compared output mismatches) or `mismatch`.
        look: how the values were looked at.
        findings: verdicts about the run as a whole.
        outputs: the compared outputs, by name.
        culprits: every origin, the one that matters most to the outputs first.
        cleared: origins of a difference that is no fault: ties, rounding.
        elsewhere: values that mismatch although no culprit is upstream of them (a quick search names one culprit).
        notes: what a reader should know: outputs without a reference, dtypes compared across.
        compared: values that the search compared. sessions: runtime sessions it took.
        tensors: the culprits' tensors, (reference, actual) by value name, for the reproducer.
        reproducer: the folder that was written.
        samples: where there were several.
        inner: what the search of the first culprit's body gave, where it was searched.
        body, place: of such a search, the body as a model, and where it is: `@12/body[3]`.
    """

    verdict: Outcome
    look: Look = "unoptimized"
    findings: list[Finding] = field(default_factory=list)
    outputs: dict[str, Comparison] = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    cleared: list[Culprit] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    sessions: int = 0
    tensors: dict[str, tuple[Stored | None, Stored | None]] = field(default_factory=dict)
    reproducer: Path | None = None
    samples: Samples | None = None
    inner: "BisectResult | None" = None
    body: Model | None = None
    place: str = ""

    def innermost(self) -> "tuple[BisectResult, str]":
        """(the search that named the first culprit as closely as it could be, where that is: '' for the main graph)."""
        result, paths, numbers = self, list[str](), list[int]()
        while result.inner is not None and result.inner.culprits:
            result = result.inner
            path, iterations = iterations_of(result.place)
            paths.append(path)
            numbers += iterations
        return result, at("/".join(paths), numbers)

    def input_of(self, culprit: Culprit, name: str) -> RunValue:
        """What a culprit fails on: the reference where it is of the model's dtype, unless it is right on that."""
        stored, actual = self.tensors[name]
        right = any(v.introduced is not None and v.introduced.match for v in culprit.values)
        if isinstance(stored, np.ndarray) and isinstance(actual, np.ndarray):
            same = stored.dtype == actual.dtype and stored.shape == actual.shape
            return stored if same and not right else actual
        return actual if actual is not None else stored

    def add_finding(self, verdict: Verdict, because: str) -> None:
        """Add a verdict about the run as a whole, once."""
        if all(finding.verdict != verdict for finding in self.findings):
            self.findings.append(Finding(verdict, because))

    def versions(self) -> dict[str, str]:
        """Of this package and of what computed the values."""
        from importlib.metadata import version

        return {name: version(name) for name in ("onnxsurgeon-lite", *_DEPENDENCIES)}

    def contract(self) -> dict[str, object]:
        """What `bisect --json` prints; the README documents it."""
        return {
            "verdict": self.verdict,
            "look": self.look,
            "findings": self.findings,
            "outputs": self.outputs,
            "culprits": self.culprits,
            "cleared": self.cleared,
            "elsewhere": self.elsewhere,
            "notes": self.notes,
            "compared": self.compared,
            "sessions": self.sessions,
            "samples": self.samples,
            "reproducer": self.reproducer,
            "versions": self.versions(),
        }
