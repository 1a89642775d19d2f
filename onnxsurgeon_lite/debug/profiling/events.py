"""The runtime's trace: the kernels of each run, their times, and the shapes of their tensors."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.tensors.dtypes import Shape

_KERNEL = "_kernel_time"


@dataclass
class Kernel:
    """A kernel that ran.

    Attributes:
        name: of the node, in the graph that the runtime runs.
        start, seconds: when it started in its trace, and how long it took, kernels inside it included.
        inputs, outputs: shapes of the tensors.
        input_bytes, output_bytes: of inputs that are no weights, and of outputs.
        inside: kernels of its body.
    """

    name: str
    op_type: str
    provider: str
    start: float
    seconds: float
    inputs: list[Shape]
    outputs: list[Shape]
    input_bytes: int
    output_bytes: int
    inside: list["Kernel"] = field(default_factory=list)


@dataclass
class TimedRun:
    """A run: how long it took, and its kernels in the order in which they ran."""

    seconds: float
    kernels: list[Kernel]


def read_trace(path: Path) -> list[TimedRun]:
    """Return every run of a trace.

    Raises:
        RuntimeFailure: the runtime's trace is not understood.
    """
    try:
        # Chrome's format: "X" is an event with a start and a duration, in microseconds
        events = [e for e in json.loads(path.read_bytes()) if e.get("ph") == "X"]
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"] == "model_run"]
        ends = (e for e in events if e["cat"] == "Node" and e["name"].endswith(_KERNEL))
        # of two that start together the longer one first: it holds the other
        kernels = sorted(map(_kernel, ends), key=lambda kernel: (kernel.start, -kernel.seconds))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RuntimeFailure(f"the runtime's profile is not understood: {error!r}") from error
    return list(_runs(spans, kernels))


def _runs(spans: Sequence[tuple[int, int]], kernels: Sequence[Kernel]) -> Iterator[TimedRun]:
    for start, end in spans:
        within = [kernel for kernel in kernels if start <= kernel.start * 1e6 < end]
        yield TimedRun((end - start) / 1e6, _nested(within))


def _nested(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Put kernels that ran while that of an If, Loop or Scan did into it."""
    outer = list[Kernel]()
    holders = list[Kernel]()
    for kernel in kernels:
        # leave the loops that have ended; what starts within one belongs to it
        while holders and kernel.start >= holders[-1].start + holders[-1].seconds:
            holders.pop()
        (holders[-1].inside if holders else outer).append(kernel)
        if kernel.op_type in ("If", "Loop", "Scan"):
            holders.append(kernel)
    return outer


def _kernel(event: dict[str, object]) -> Kernel:
    args = event["args"]
    assert isinstance(args, dict)
    return Kernel(
        str(event["name"]).removesuffix(_KERNEL),
        args["op_name"],
        args["provider"],
        float(str(event["ts"])) / 1e6,
        float(str(event["dur"])) / 1e6,
        _shapes(args["input_type_shape"]),
        _shapes(args["output_type_shape"]),
        int(args["activation_size"]),
        int(args["output_size"]),
    )


def _shapes(given: Sequence[dict[str, Sequence[int]]]) -> list[Shape]:
    return [tuple(shape) for tensor in given for shape in tensor.values()]
