"""A program that fails on models with some pattern: WHAT MODEL."""

import os
import random
import signal
import sys
import time

import onnx

what, path = sys.argv[1:]
nodes = list(onnx.load(path, load_external_data=False).graph.node)
operators = {node.op_type for node in nodes}
made = {name: node for node in nodes for name in node.output}
kind, _, rest = what.partition("-")
if what in ("Mul-Exp-Sub", "fused-Mul-Exp-Sub"):
    for node in nodes:
        before = made.get(node.input[0]) if node.op_type == "Sub" else None
        first = (
            made.get(before.input[0]) if before is not None and before.op_type == "Exp" else None
        )
        if first is not None and first.op_type == "Mul":
            print(f"wrong fusion at {node.name or node.output[0]}")
            sys.exit(kind == "fused")
elif what == "Clip-without-min":
    if any(node.op_type == "Clip" and not node.input[1] for node in nodes):
        sys.exit("error: Clip without min is not supported")
elif kind == "flaky" and rest in operators:
    sys.exit(3 if random.random() < 0.7 else 0)
elif kind == "hang" and rest in operators:
    time.sleep(100)
elif kind == "die" and rest in operators:
    os.kill(os.getpid(), signal.SIGABRT)
elif kind == "both" and {*rest.split("-")} <= operators:
    sys.exit("error: two operators that do not fit")
