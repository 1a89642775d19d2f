"""What a bisection found, as data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from onnxsurgeon_lite.comparison import Comparison
from onnxsurgeon_lite.references.sets import Stored

_DEPENDENCIES = ("onnx", "onnxruntime", "numpy")

Verdict = Literal["agrees", "mismatch"]


@dataclass
class ValueReport:
    """One value of the culprit: its role and how it compares; no comparison where there is no reference."""

    name: str
    role: Literal["input", "output"]
    comparison: Comparison | None = None


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


@dataclass
class BisectResult:
    """The answer of `bisect`.

    Attributes:
        verdict: `agrees` (no compared output mismatches) or `mismatch`.
        outputs: the compared outputs, by name.
        culprits: one here; further origins are in `elsewhere`.
        elsewhere: values that mismatch although the culprit is not upstream of them.
        notes: what a reader should know: outputs without a reference, dtypes compared across.
        compared: values that the search compared. sessions: runtime sessions it took.
        tensors: the culprit's tensors, (reference, actual) by value name, for the reproducer.
        reproducer: the folder that was written.
    """

    verdict: Verdict
    outputs: dict[str, Comparison] = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0
    sessions: int = 0
    tensors: dict[str, tuple[Stored | None, Stored | None]] = field(default_factory=dict)
    reproducer: Path | None = None

    def contract(self) -> dict[str, object]:
        """What `bisect --json` prints; the README documents it."""
        from importlib.metadata import version

        return {
            "verdict": self.verdict,
            "outputs": self.outputs,
            "culprits": self.culprits,
            "elsewhere": self.elsewhere,
            "notes": self.notes,
            "compared": self.compared,
            "sessions": self.sessions,
            "reproducer": self.reproducer,
            "versions": {name: version(name) for name in ("onnxsurgeon-lite", *_DEPENDENCIES)},
        }
