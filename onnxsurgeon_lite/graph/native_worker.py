"""The process that does ONNX's own work where the system has no fork: CONNECTION PATHS."""

import os
import socket
import sys

if __name__ == "__main__":
    sys.path[:] = sys.argv[2].split(os.pathsep)
    from onnxsurgeon_lite.graph.native import serve

    serve(socket.socket(fileno=int(sys.argv[1])).makefile("rwb"))
    os._exit(0)  # ONNX would release what infers onnxruntime's types after Python's end
