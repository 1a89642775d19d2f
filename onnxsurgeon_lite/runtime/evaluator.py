"""A child process that runs the ONNX reference evaluator, for operators that the runtime lacks in float64.

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
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator


def serve(stream: BufferedRWPair) -> None:
    """Answer requests until the parent hangs up."""
    for line in iter(stream.readline, b""):
        request = json.loads(line)
        model = stream.read(request["size"])
        feeds = {
            each["name"]: _read(stream, np.dtype(each["dtype"]), each["shape"])
            for each in request["feeds"]
        }
        payloads: list[bytes] = []
        try:
            evaluator = ReferenceEvaluator(onnx.ModelProto.FromString(model))
            results = [np.asarray(result) for result in evaluator.run(None, feeds)]
            reply: dict[str, object] = {
                "values": [{"dtype": r.dtype.str, "shape": list(r.shape)} for r in results]
            }
            payloads = [np.ascontiguousarray(result).tobytes() for result in results]
        except Exception as error:  # noqa: BLE001  the parent reports any failure
            reply = {"error": f"{type(error).__name__}: {error}"}
        stream.write(json.dumps(reply).encode() + b"\n")
        stream.writelines(payloads)
        stream.flush()


def _read(stream: BufferedRWPair, dtype: np.dtype[Any], shape: list[int]) -> NDArray[Any]:
    return np.frombuffer(stream.read(dtype.itemsize * math.prod(shape)), dtype).reshape(shape)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])).makefile("rwb"))
