"""A mistake that someone may have made, and the edit that takes it back."""

import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import counted
from onnxsurgeon_lite.passes import Insert, Pass, Replace, SetConstant

Edits = tuple[Pass, ...]


@dataclass(frozen=True)
class Hypothesis:
    """A mistake that would explain a wrong region, and its repair.

    Attributes:
        name: the kind of mistake: `epsilon`, `transposed constant`.
        sentence: what is wrong and what would be right; ` the node agrees` completes it.
        edits: the repair, for the model of a `Place`.
        mistake: what two nodes share that have the same mistake; empty if it is of one node alone.
        unknowns: how many numbers were solved for.
        equations: how many numbers of the reference they were solved from.
        vague: the numbers fit, but nothing tells what the mistake was; a search goes on behind it.
        fixed: True where a dimension is of any size, and the repair is for the size that it has here.
        plain: what is plainly wrong with the numbers, whatever the right ones are: ` is zero at [3] of axis 0`.
        bounded: the numbers that were solved for are the only ones, and lie where rounding leaves the right ones.
        known: the model that computed the references has it so: no fit by chance.
        instead: the value that is compared after the edit, if the wrong one is gone.
        parts: the hypotheses that this one is together.
    """

    name: str
    sentence: str
    edits: Edits
    mistake: tuple[object, ...] = ()
    unknowns: int = 0
    equations: int = 0
    instead: str = ""
    vague: bool = False
    fixed: bool = False
    plain: str = ""
    bounded: bool = False
    known: bool = False
    parts: "tuple[Hypothesis, ...]" = ()

    @property
    def wrong(self) -> str:
        """What is wrong, without what would be right."""
        # "epsilon is 1e-05; with 1e-06" -> what is wrong; what would be right
        return self.sentence.rpartition("; ")[0] or self.sentence

    @property
    def right(self) -> str:
        """What would be right."""
        return self.sentence.rpartition("; ")[2]

    @property
    def fitted(self) -> str:
        """Say how many numbers were solved for, from how many."""
        return f"{counted(self.unknowns, 'unknown')}, {counted(self.equations, 'equation')}"

    @property
    def length(self) -> tuple[int, int, int]:
        """What it takes to describe the mistake: numbers that were solved for, nodes that are put in, edits."""
        # of several that fit, the shortest description is preferred
        inserted = sum(isinstance(step, Insert | Replace) for step in self.edits)
        return self.unknowns, inserted, len(self.edits) + len(self.parts)

    @property
    def by_channel(self) -> bool:
        """Whether a constant of the repair varies along an axis before the last one, as a scale of channels does."""
        shapes = chain.from_iterable(map(_shapes, self.edits))
        return any(len(shape) > 1 and shape[-1] == 1 < math.prod(shape) for shape in shapes)

    @property
    def proves(self) -> bool:
        """True when it could have failed: clearly more equations than unknowns, bounds, or nothing solved for."""
        # as many unknowns as equations fit anything: at least four equations more, or an eighth
        enough = self.unknowns + max(4, self.unknowns // 8)
        return not self.unknowns or self.bounded or self.equations >= enough


def _shapes(step: Pass) -> Iterator[Sequence[int]]:
    """Yield the shapes of the constants that an edit brings."""
    match step:
        case SetConstant(numbers=numbers):
            yield np.asarray(numbers).shape
        case Insert(constants=constants):
            yield from (np.asarray(numbers).shape for _, numbers in constants)
        case Replace(model=Model() as model):
            yield from (tensor.dims for tensor in model.graph.initializer)


Hypotheses = Iterator[Hypothesis]
ONE_EXAMPLE = "from one example, where a number that depends on the input fits, too"


# What is data about mistakes: values that are usually confused, and the names of these mistakes.
MISTAKES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8")
)
