"""A program that is a runtime, and gets one operator wrong."""

import sys

FAULTY = f"""#!{sys.executable}
import json, sys
from pathlib import Path
import numpy as np, onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_sqrt import Sqrt as Right

class Sqrt(Right):
    op_domain = ""
    def _run(self, x):
        return (Right._run(self, x)[0] * np.float32(1.01),)

folder = Path(sys.argv[1])
wanted = json.loads((folder / "request.json").read_text())["wanted"]
listed = json.loads((folder / "feeds/index.json").read_text())["values"]
raw = (folder / "feeds/values.bin").read_bytes()
feeds = {{}}
for v in listed:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(v["dtype"].upper()))
    flat = np.frombuffer(raw, dtype, int(np.prod(v["shape"])), v["offset"])
    feeds[v["name"]] = flat.reshape(v["shape"])
model = onnx.load(folder / "model.onnx")
values = ReferenceEvaluator(model, new_ops=[Sqrt]).run(wanted, feeds)
np.savez(folder / "values.npz", **dict(zip(wanted, values)))
"""
