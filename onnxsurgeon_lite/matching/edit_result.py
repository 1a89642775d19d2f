"""The result of an edit, with what runs showed; comparing is imported only where an edit is verified."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxsurgeon_lite.passes import PassResult
from onnxsurgeon_lite.shown import hidden

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.sets import SetComparison
    from onnxsurgeon_lite.model import Model


@dataclass(frozen=True)
class EditResult(PassResult):
    """The result of an edit, with the evidence from runs.

    Attributes:
        verb: the name of the edit.
        source: the edited model; None for a result without one source, such as a merged model.
        ran: how the feeds were generated.
        proof: the proved facts, one line each, for new sizes.
        verified: the comparison of the outputs, if asked for.

    Example:
        >>> osl.set_op("whole_model.onnx", "Add_7", "Sub", verify=True).match
        False
    """

    verb: str = ""
    source: "Model | None" = hidden(None)
    ran: tuple[str, ...] = ()
    proof: tuple[str, ...] = ()
    verified: "SetComparison | None" = None

    @property
    def match(self) -> bool:
        """True when no compared output differs from the source's."""
        return self.verified is None or self.verified.match
