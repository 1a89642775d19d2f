"""What a recording stored."""

from dataclasses import dataclass, field
from pathlib import Path

from onnxsurgeon_lite.shown import Shown


@dataclass(frozen=True, repr=False)
class Recording(Shown):
    """How many values were stored, and where.

    Attributes:
        notes: what was not stored, and why.
    """

    values: int
    place: Path
    notes: list[str] = field(default_factory=list)
