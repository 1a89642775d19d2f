"""Notes on a conversion to half precision: constants that lose more than rounding, and nodes that stay in float32."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.surgery.precision.plan import Plan
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.comparison import largest_of
from onnxsurgeon_lite.tensors.dtypes import largest, narrowed
from onnxsurgeon_lite.tensors.in_file import whole

_SMALL = 4096  # elements: of a larger tensor, some numbers always vanish


def casts(model: Model) -> int:
    """Return the number of Cast nodes, in bodies and functions, too."""
    nodes = walk.nodes((model.proto.graph, *model.proto.functions))
    return sum(node.op_type == "Cast" for node in walk.with_inner(nodes))


def left_notes(plan: Plan) -> Iterator[str]:
    """Yield what stays in float32 although nobody asked for it, and why."""
    # `kept` is what the user asked for
    wide = (step.why for step in plan.steps() if step.kind == "wide")
    reasons = Counter(why for why in wide if why not in ("", "kept"))
    for why, count in reasons.most_common():
        yield f"{count} {'node stays' if count == 1 else 'nodes stay'} in float32: {why}"


def constant_notes(plan: Plan, model: Model) -> Iterator[str]:
    """Yield which constants lose more than rounding."""
    limit = largest(dtypes.numpy_dtype(plan.narrow))
    clamped = []
    vanished = []
    # the largest number that rounds to 0: half of the smallest subnormal, as ties go to the even neighbor
    vanishing = 2.0**-25 if plan.narrow == TensorProto.FLOAT16 else 2.0**-134
    for scope in plan.scopes():
        for site in scope.sites.values():
            # no reader takes the constant in the narrow dtype
            if site.constant is None or True not in site.read:
                continue
            high, low = extremes(model, site.constant)
            if high > limit:
                clamped.append(f"{site.name} ({high:g})")
            if low <= vanishing:
                vanished.append(f"{site.name} ({low:g})")
    if clamped:
        yield f"clamped to {limit:g}: {few(clamped)}"
    if vanished:
        yield f"numbers that become 0: {few(vanished)}"


def extremes(model: Model, tensor: TensorProto) -> tuple[float, float]:
    """Return the largest finite and the smallest nonzero magnitude of a float32 tensor.

    The smallest is looked for in small tensors alone (Inf for others): in a large one some numbers always vanish.
    """
    numbers = model.rows(tensor)
    # a large one is read by parts, for the largest alone
    magnitudes = np.abs(whole(numbers)) if 0 < numbers.size <= _SMALL else np.empty(0)
    low = np.min(magnitudes, initial=np.inf, where=magnitudes > 0)
    return largest_of(numbers), float(low)


def loss(model: Model, tensor: TensorProto, data_type: int) -> float:
    """Return by how much rounding changes a float32 tensor, as a share of it, by its first numbers."""
    # enough numbers for an estimate
    wide = model.rows(tensor).reshape(-1)[:_SMALL].astype(np.float64)
    rounded = narrowed(wide.astype(np.float32), dtypes.numpy_dtype(data_type)).astype(np.float64)
    norm = float(np.linalg.norm(wide))
    return float(np.linalg.norm(rounded - wide)) / norm if norm else 0.0
