"""A program that fails on models with some pattern: WHAT MODEL."""

import os
import random
import signal
import sys
import time

import onnx


def count_nodes(model: onnx.ModelProto) -> int:
    """Count nodes, those of bodies and functions included, but for Constants."""
    pending = [model.graph.node, *(function.node for function in model.functions)]
    count = 0
    while pending:
        for node in pending.pop():
            count += node.op_type != "Constant"
            pending += [each.g.node for each in node.attribute if each.HasField("g")]
    return count


what, path = sys.argv[1:]
model = onnx.load(path, load_external_data=False)
nodes = list(model.graph.node)
operators = {node.op_type for node in nodes}
made = {name: node for node in nodes for name in node.output}
if "ASKED" in os.environ:  # a file that counts the questions, with how many nodes each had
    with open(os.environ["ASKED"], "a") as log:
        log.write(f"{count_nodes(model)} ")
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
elif kind == "run":  # what a run of the model on ones shows: nan, inf, or a word of an error
    import numpy as np
    import onnxruntime as ort

    kinds = {"tensor(int64)": np.int64, "tensor(bool)": np.bool_, "tensor(int32)": np.int32}
    kinds["tensor(uint8)"] = np.uint8
    try:
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = {
            each.name: np.ones(
                [size if isinstance(size, int) else 1 for size in each.shape],
                kinds.get(each.type, np.float32),
            )
            if each.type.startswith("tensor")
            else [np.ones(1, np.float32)]
            for each in session.get_inputs()
        }
        for value in session.run(None, feeds):
            if rest in ("nan", "inf") and getattr(np, f"is{rest}")(value).any():
                sys.exit(f"{rest} in an output")
    except Exception as error:
        sys.exit(str(error) if rest in str(error) else 0)
elif kind == "both" and {*rest.split("-")} <= operators:
    sys.exit("error: two operators that do not fit")
