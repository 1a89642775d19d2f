"""Mark every value an output, run once, compare in order, name the first mismatch: the script everybody writes.

``python mark_all.py MODEL REFERENCES.npz``; the references hold the inputs, too.
`onnxdbg bisect` is measured against this; it exits with 1 when there is a mismatch.
"""

import sys

import numpy as np
import onnx
import onnxruntime as ort


def main(path: str, references: str) -> int:
    """Compare every value of the model with its reference, until one is off."""
    model = onnx.load(path)
    names = [name for node in model.graph.node for name in node.output if name]
    declared = {output.name for output in model.graph.output}
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in declared
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    stored = np.load(references)
    feeds = {value.name: stored[value.name] for value in session.get_inputs()}
    for name, actual in zip(names, session.run(names, feeds), strict=True):
        if not np.allclose(actual, stored[name], rtol=1e-3, atol=1e-5):
            print(f"mismatch at {name!r}")
            return 1
    print("no mismatch")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
