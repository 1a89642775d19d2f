"""A child process for ONNX's own evaluation, which is slow.

Started as a script, like the worker: a request is one line of JSON, then the bytes of the model and the inputs.
"""

import json
import math
import socket
import sys
from io import BufferedRWPair
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Reply = tuple[dict[str, object], list[bytes]]


def evaluate(stream: BufferedRWPair, request: dict[str, Any]) -> Reply:
    """Run the reference evaluator, for operators that the runtime lacks in float64."""

    model, feeds = stream.read(request["size"]), {}
    for each in request["feeds"]:
        dtype, shape = np.dtype(each["dtype"]), each["shape"]
        raw = stream.read(dtype.itemsize * math.prod(shape))
        feeds[each["name"]] = np.frombuffer(raw, dtype).reshape(shape)
    evaluator = ReferenceEvaluator(onnx.ModelProto.FromString(model))
    results = [np.ascontiguousarray(result) for result in evaluator.run(None, feeds)]
    values = [{"dtype": result.dtype.str, "shape": list(result.shape)} for result in results]
    return {"values": values}, [result.tobytes() for result in results]


def serve(stream: BufferedRWPair) -> None:
    """Answer requests until the parent hangs up."""
    for line in iter(stream.readline, b""):
        request = json.loads(line)
        try:
            reply, payloads = evaluate(stream, request)
        except Exception as error:  # noqa: BLE001  the parent reports any failure
            reply, payloads = {"error": f"{type(error).__name__}: {error}"}, []
        stream.write(json.dumps(reply).encode() + b"\n")
        stream.writelines(payloads)
        stream.flush()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])).makefile("rwb"))
