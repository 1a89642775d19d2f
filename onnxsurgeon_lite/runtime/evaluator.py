"""A child process that evaluates a model with the ONNX reference evaluator, for operators the runtime lacks in float64.

Started as a script, like the worker: a request is one JSON message, followed by the model and the inputs' bytes.
"""

import json
import sys
from multiprocessing.connection import Connection

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator


def serve(connection: Connection) -> None:
    """Answer requests until the parent hangs up."""
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        payloads: list[bytes] = []
        try:
            evaluator = ReferenceEvaluator(onnx.ModelProto.FromString(connection.recv_bytes()))
            feeds = {
                each["name"]: np.frombuffer(connection.recv_bytes(), each["dtype"]).reshape(
                    each["shape"]
                )
                for each in request["feeds"]
            }
            results = [np.asarray(result) for result in evaluator.run(None, feeds)]
            reply: dict[str, object] = {
                "values": [{"dtype": r.dtype.str, "shape": list(r.shape)} for r in results]
            }
            payloads = [np.ascontiguousarray(result).tobytes() for result in results]
        except Exception as error:  # noqa: BLE001  whatever it was, there is no answer
            reply = {"error": f"{type(error).__name__}: {error}"}
        connection.send_bytes(json.dumps(reply).encode())
        for payload in payloads:
            connection.send_bytes(payload)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
