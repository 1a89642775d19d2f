"""What a runtime other than onnxruntime brings: it opens a model, runs it, and says what it can do.

It lives in a process of its own, which may crash, hang or grow without harm to the caller. It is given whole models and
numpy arrays; bfloat16, float8, float4 and integers below a byte are arrays of the ml_dtypes types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onnx import ModelProto

from onnxsurgeon_lite.tensors.dtypes import RunValues


@dataclass(frozen=True)
class Abilities:
    """What a runtime can do.

    Attributes:
        version: of the runtime.
        inner: it returns values that other nodes read as well; one that does not is given a model for each value.
        faithful: a value is the same whether or not others are returned with it: nothing is fused.
        float64: it computes float64 as such.
        optimized_graph: it writes the graph that it runs.
        providers: the devices that it has.
        dtypes: ONNX's names of the dtypes that it computes; () where they are not known.
        operators: `domain::Op` of those that it was given beyond its own.
    """

    version: str = ""
    inner: bool = True
    faithful: bool = False
    float64: bool = False
    optimized_graph: bool = False
    providers: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()


class Backend(Protocol):
    """A runtime, made from its settings: `Backend(settings)`.

    The settings are a mapping of texts: `provider` (`cpu` by default), `ops` (a file of operators) if the user gave
    one, and what follows the name in `--runtime NAME:key=value`. One that it does not know is a `UsageError`.
    """

    @property
    def abilities(self) -> Abilities:
        """What it can do; asked for once, before a model is opened."""

    def open(self, model: ModelProto, opt: str, threads: int) -> None:
        """Take a model with all its weights; any exception refuses it. The next model replaces it.

        Args:
            opt: how much it may optimize: `none`, `basic`, `extended` or `all`.
            threads: 0 for its own choice.
        """

    def run(self, feeds: RunValues, fetch: Sequence[str]) -> RunValues:
        """Return values of the model by name; those left out were not computed.

        Args:
            feeds: all inputs.
            fetch: the values that are wanted: outputs and, with `Abilities.inner`, others.
        """
