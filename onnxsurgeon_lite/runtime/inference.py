"""A child process that infers the types of a model's values, so that the caller stays responsive.

Started as a script, like the worker: a request is one line of JSON, then the model's bytes.
"""

import json
import socket
import sys
from io import BufferedRWPair

import onnx


def serve(stream: BufferedRWPair) -> None:
    """Answer requests until the parent hangs up."""
    for line in iter(stream.readline, b""):
        request = json.loads(line)
        model, inferred = stream.read(request["size"]), b""
        try:
            typed = onnx.shape_inference.infer_shapes(model, data_prop=request["data_prop"])
            found = onnx.GraphProto(value_info=typed.graph.value_info)
            inferred = found.SerializeToString()
            reply: dict[str, object] = {"size": len(inferred)}
        except Exception as error:  # noqa: BLE001  the parent reports any failure
            reply = {"error": f"{type(error).__name__}: {error}"}
        stream.write(json.dumps(reply).encode() + b"\n" + inferred)
        stream.flush()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])).makefile("rwb"))
