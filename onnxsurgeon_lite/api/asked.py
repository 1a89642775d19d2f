"""What `bisect` is asked: what a model is compared with, how it is fed, what is searched, what is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onnxsurgeon_lite.api.page import Place
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.options import Settings

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.result import BisectResult, Look
    from onnxsurgeon_lite.model import ModelLike
    from onnxsurgeon_lite.tensors.references import Tensors

    Given = Tensors | Sequence[Tensors] | None


@dataclass(frozen=True)
class Against:
    """What a model is compared with: one of them.

    Attributes:
        reference: tensors by name. model: a model whose values are the references.
        a, b: settings that give the references, and those that are searched.
        find: what is looked for instead, such as `nan`.
        versions: of onnxruntime, among which the first one is looked for whose outputs differ.
        map: how references are matched with values.
    """

    reference: "Given"
    model: "ModelLike | None"
    a: Settings | None
    b: Settings | None
    find: str | None
    map: str | None
    versions: str | None

    @property
    def sides(self) -> tuple[str, ...]:
        """What computes the references and what is searched, where both run the same model; else nothing."""
        # "runtime=ort:version=1.20" -> "ort:version=1.20"
        both = (self.a, self.b) if self.a or self.b else ()
        return tuple(str(side or "the usual").removeprefix("runtime=") for side in both)

    def require_one(self) -> None:
        """Raise `UsageError` unless there is one thing to compare with."""
        # `a` and `b` are one way: two settings of one model
        ways = (self.reference, self.model, self.a or self.b, self.find, self.versions)
        count = sum(way is not None for way in ways)
        if count != 1:
            raise UsageError(
                f"there {'are several things' if count else 'is nothing'} to compare with",
                "give one of --reference, --against, --a with --b, --find, --versions",
            )


@dataclass(frozen=True)
class Feeding:
    """How a model is fed.

    Attributes:
        feeds: arrays by name, of one sample or of several; those of the references by default, else made.
        seed, dim, fill: how feeds are made.
        sequence: the samples are steps: output -> the input of the next step.
    """

    feeds: "Given"
    seed: int
    dim: Mapping[str, int] | None
    fill: Mapping[str, str] | None
    sequence: Mapping[str, str] | None

    def made(self) -> dict[str, object]:
        """Return how feeds are made, as options of `Call`."""
        return {name: value for name, value in vars(self).items() if name != "feeds"}


@dataclass(frozen=True)
class Searching:
    """What is searched, and how much is said of it; see `bisect`.

    Attributes:
        memory: bytes of values that are computed at once. seconds: for the search of causes.
        headline: called with the first culprit when it is certain, then with all, before their causes are searched.
    """

    look: "Look | Literal['auto']"
    quick: bool = False
    memory: int = 64 * 10**6
    journal: Place = None
    resume: bool = False
    cause: bool = True
    factory: str | None = None
    blame: bool = False
    workaround: bool = False
    seconds: float | None = None
    headline: "Callable[[BisectResult], None]" = lambda _: None

    def require_possible(self, against: Against, writing: "Writing") -> None:
        """Raise `UsageError` for options that need another one, or forbid it."""
        if self.resume and self.journal is None:
            raise UsageError("there is nothing to resume", "name the file: --journal FILE --resume")
        # these searches end before there are causes to repair
        is_short = against.find or self.quick or not self.cause
        if (writing.repair or self.workaround) and is_short:
            raise UsageError(
                "--repair and --workaround need the whole search",
                "leave out --find, --quick and --no-cause",
            )
        if self.blame and against.find:
            raise UsageError("what --find looks for has no shares", "leave out --find or --blame")


@dataclass(frozen=True)
class Writing:
    """What is written, and where; see `bisect`.

    Attributes:
        output: the folder for the reproducer.
    """

    output: Place = None
    strip_weights: bool = False
    repair: Place = None
    html: Place = None
    node_data: Place = None
    force: bool = False

    def page(self) -> dict[str, object]:
        """Return where the page goes, as options of `Call`."""
        return {"html": self.html, "node_data": self.node_data, "force": self.force}
