"""Edits that differentiate: the passes that gradient and attribution make."""

from typing import Annotated, Literal

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli.options import Typed, Value, Values
from onnxsurgeon_lite.names import is_count


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


_Method = Literal["saliency", "input-x-gradient", "integrated-gradients", "smoothgrad", "gradcam"]


def attribution(
    *,
    method: _Method,
    target: str | None = None,
    of: Value | None = None,
    to: Value | None = None,
    steps: Annotated[int | None, Typed(least=1)] = None,
    noise: str = "1.0",
    layer: Value | None = None,
) -> "passes.Pass":
    """Add an output heatmap: how much each element of an input counts for a class, as Captum computes it.

    $ onnxdbg edit attribution model.onnx --method saliency -o heatmap.onnx
    $ onnxdbg edit attribution block.onnx --method integrated-gradients --dry-run

    Args:
        method: How the map is made.
        target: The class: a number, or input for one per sample.
        of: The output; the first by default.
        to: The input; the first of floats by default.
        steps: Points of integrated-gradients, samples of smoothgrad.
        noise: Deviation of smoothgrad; or name of an input to add.
        layer: The value that gradcam looks at; the last with images.
    """
    chosen = int(target) if target is not None and is_count(target) else target
    return passes.Attribution(method, chosen, of, to, steps, _deviation(noise), layer)


def _deviation(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
