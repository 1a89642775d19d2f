"""The least that sees every wrong value: compute each once, as the model is written, and compare it in one pass.

``python least.py MODEL REFERENCES.npz``; the references hold the inputs, too. Nothing is healed or explained, and all
values are in memory at once. `onnxdbg bisect` is measured against this; it exits with 1 when there is a mismatch.
"""

import sys
import zipfile
from io import FileIO

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

_BLOCK = 1 << 17  # elements: they stay in the cache
_HEADER = 30  # bytes of a file's header in an archive, before its name


def go_to(file: FileIO, place: int) -> None:
    """Go to the elements of an array that is stored in an archive."""
    file.seek(place + _HEADER - 4)
    name, extra = np.frombuffer(file.read(4), np.uint16)
    file.seek(place + _HEADER + int(name) + int(extra))
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)


def largest_error(actual: NDArray[np.generic], file: FileIO) -> float:
    """Return the largest difference to the reference that comes next."""
    flat, found = actual.reshape(-1), 0.0
    buffer = np.empty(min(_BLOCK, flat.size), flat.dtype)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        reference = buffer[: block.size]
        file.readinto(reference.view(np.uint8).data)
        if flat.dtype.kind == "b":
            np.not_equal(block, reference, out=reference)
        else:
            np.subtract(block, reference, out=reference)
        found = max(found, float(reference.max()), -float(reference.min()))
    return found


def main(path: str, references: str) -> int:
    """Compare every value of the model with its reference."""
    model = onnx.load(path)
    names = [name for node in model.graph.node for name in node.output if name]
    declared = {output.name for output in model.graph.output}
    added = (onnx.ValueInfoProto(name=name) for name in names if name not in declared)
    model.graph.output.extend(added)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    encoded = model.SerializeToString()
    session = ort.InferenceSession(encoded, options, providers=["CPUExecutionProvider"])
    with np.load(references) as stored:
        feeds = {value.name: stored[value.name] for value in session.get_inputs()}
    with zipfile.ZipFile(references) as archive:
        places = {info.filename: info.header_offset for info in archive.infolist()}
    values, wrong = session.run(names, feeds), 0
    with FileIO(references) as file:
        for name, actual in zip(names, values, strict=True):
            if actual.size:
                go_to(file, places[f"{name}.npy"])
                wrong += largest_error(actual, file) > 1e-3
    print(f"{wrong} of {len(names)} values are off by more than 1e-3")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
