"""Edits that keep what a model computes: the passes that fold, cse, skip-noops, infer and simplify make."""

from collections.abc import Sequence
from typing import Annotated

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.cli.options import Typed
from onnxsurgeon_lite.names import split

_Limit = Annotated[str, Typed(("--fold-limit",))]


def fold(*, limit: _Limit = "1MB") -> "passes.Pass":
    """Compute now what depends on constants alone, or on shapes that are declared.

    $ onnxdbg edit fold detector.onnx
    $ onnxdbg edit fold detector.onnx --fold-limit 64MB --verify --dry-run

    Args:
        limit: Fold nothing that is larger than this.
    """
    from onnxsurgeon_lite.api.call import byte_size

    return passes.Fold(byte_size(limit))


def cse() -> "passes.Pass":
    """Keep one of several nodes that compute the same of the same inputs.

    $ onnxdbg edit cse block.onnx
    $ onnxdbg edit cse block.onnx --verify --dry-run
    """
    return passes.Cse()


def skip_noops() -> "passes.Pass":
    """Remove nodes that return their input: a Cast to its own type, a Reshape to its own shape.

    $ onnxdbg edit skip-noops block.onnx
    $ onnxdbg edit skip-noops block.onnx --verify --dry-run
    """
    return passes.SkipNoops()


def infer() -> "passes.Pass":
    """Declare the type of every value, with sizes in the symbols of the inputs: batch, 4*seq.

    $ onnxdbg edit infer detector.onnx
    $ onnxdbg edit infer detector.onnx --dry-run
    """
    return passes.Infer()


def simplify(
    *, limit: _Limit = "1MB", without: Annotated[Sequence[str], Typed(metavar="STEP")] = ()
) -> "passes.Pass":
    """Fold, skip no-ops, merge equal nodes, fuse and clean until nothing changes; then infer. Proved by running.

    $ onnxdbg edit simplify detector.onnx
    $ onnxdbg edit simplify block.onnx --without cse --dry-run

    Args:
        limit: Fold nothing that is larger than this.
        without: A step to leave out: fold, skip-noops, cse, rewrite, clean, infer; can be repeated.
    """
    from onnxsurgeon_lite.api.call import byte_size

    return passes.Simplify(byte_size(limit), tuple(split(without)))


def dequantize() -> "passes.Pass":
    """Turn a quantized model back into a float model: weights folded, quantizers removed, clipping kept as Clip.

    $ onnxdbg edit dequantize quantized.onnx
    $ onnxdbg edit dequantize quantized.onnx --dry-run
    """
    return passes.Dequantize()


PROVED = (simplify,)
VERBS = (simplify, fold, cse, skip_noops, infer, dequantize)
