"""Edits that differentiate: the passes that gradient and attribution make."""

from typing import Annotated

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli.options import Typed, Value, Values


def gradient(
    *,
    of: Value,
    to: Values = (),
    wrt_weights: Annotated[bool, Typed(("--wrt-weights",))] = False,
    vector: str | None = None,
) -> "passes.Pass":
    """Add the gradient of a value by others as ordinary nodes: outputs d(OF)/d(TO).

    $ onnxdbg edit gradient model.onnx --of 31 --to input.1
    $ onnxdbg edit gradient model.onnx --of 31 --wrt-weights --dry-run

    Args:
        of: The value to differentiate: the sum of its elements.
        to: The values to differentiate by, comma-separated.
        wrt_weights: By all float initializers it depends on, too.
        vector: Name of an input to add: the weight of each element of --of.
    """
    return passes.Gradient(of, tuple(to), wrt_weights, vector)
