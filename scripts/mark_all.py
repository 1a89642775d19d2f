"""The script that everybody writes: mark every value as an output, run, stop at the first mismatch.

mark_all.py MODEL REFERENCES.npz
"""

import sys

import numpy as np
import onnx
import onnxruntime

model = onnx.load(sys.argv[1])
known = {output.name for output in model.graph.output}
for node in model.graph.node:
    for name in node.output:
        if name and name not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
session = onnxruntime.InferenceSession(model.SerializeToString())
references = np.load(sys.argv[2])
feeds = {value.name: references[value.name] for value in session.get_inputs()}
names = [output.name for output in session.get_outputs()]
actual = dict(zip(names, session.run(names, feeds), strict=True))
for node in model.graph.node:
    for name in node.output:
        if name in references and not np.allclose(
            actual[name], references[name], rtol=1e-3, atol=1e-4
        ):
            print("mismatch at", name, "of", node.op_type, node.name)
            sys.exit(1)
