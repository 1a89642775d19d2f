"""The main job on a model that is made on the spot, as a terminal session."""

import contextlib
import subprocess
import sys
from os import PathLike
from pathlib import Path

import numpy as np
from onnx import ModelProto, helper, numpy_helper, parser, save_model

from onnxsurgeon_lite.atomic import require_free
from onnxsurgeon_lite.errors import RuntimeFailure
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.report.plain import out
from onnxsurgeon_lite.system import TemporaryFolder

# Four groups of convolutions; the second and third are branches that are added up. Values are named by the numbers.
_GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
demo (float[1,3,20,20] image) => (float[1,3,20,20] v31) {
    v21 = Conv <pads = [1,1,1,1]> (image, w0)
    v22 = Conv <pads = [1,1,1,1]> (v21, w1)
    v23 = Conv <pads = [1,1,1,1]> (v22, w2)
    v24 = Conv <pads = [1,1,1,1]> (v23, w3)
    v25 = Conv <pads = [1,1,1,1]> (v24, w4)
    v26 = Conv <pads = [1,1,1,1]> (v23, w5)
    v27 = Conv <pads = [1,1,1,1]> (v26, w6)
    v28 = Add (v25, v27)
    v29 = Conv <pads = [1,1,1,1]> (v28, w7)
    v30 = Conv <pads = [1,1,1,1]> (v29, w8)
    v31 = Conv <pads = [1,1,1,1]> (v30, w9)
}
"""

_SESSION = (
    ("A model, and its values as a correct run computes them:", ["inspect", "model.onnx"]),
    ("", ["record", "model.onnx", "-o", "references"]),
    (
        "Cut out what lies between two values:",
        ["extract", "model.onnx", "--inputs", "22", "--outputs", "28"],
    ),
    ("A copy of the model in which something is wrong:", ["compare", "faulty.onnx", "references"]),
    ("Which node is it?", ["bisect", "faulty.onnx", "--reference", "references"]),
)


def demo(folder: str | PathLike[str] | None = None) -> None:
    """Make a model and a faulty copy, and run the commands a user would.

    Args:
        folder: Where to leave the files; None takes a temporary folder.

    Raises:
        OutputExistsError: The folder is not empty.
        RuntimeFailure: A command fails, such as where there is no onnxruntime.

    Example:
        >>> osl.demo("demo")  # doctest: +SKIP
    """
    if folder is not None:
        require_free(Path(folder))
        Path(folder).mkdir(exist_ok=True)
    with TemporaryFolder() if folder is None else contextlib.nullcontext(str(folder)) as place:
        save_model(_model(), Path(place) / "model.onnx")
        save_model(_faulty(), Path(place) / "faulty.onnx")
        for heading, words in _SESSION:
            if heading:
                out(f"\n# {heading}")
            out(f"$ {command('onnxdbg', *words)}")
            sys.stdout.flush()
            # the commands as a user would type them; a mismatch (1) is what some are to show
            done = subprocess.run(
                [sys.executable, "-m", "onnxsurgeon_lite"] + words, cwd=place, check=False
            )
            if done.returncode not in (0, 1):
                raise RuntimeFailure("the demo ends at the error above")


def _model() -> ModelProto:
    model = parser.parse_model(_GRAPH)
    # names of the text syntax cannot be numbers: `v21` -> `21`
    for node in tuple(model.graph.node):
        for names in (node.input, node.output):
            names[:] = [name.removeprefix("v") for name in names]
    model.graph.output[0].name = "31"
    rng = np.random.default_rng(0)
    for number in range(10):
        weight = rng.normal(0, 0.3, (3, 3, 3, 3)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{number}"))
    return model


def _faulty() -> ModelProto:
    """The model with other dilations (and pads to match) in the convolution that makes value 27."""
    model = _model()
    node = next(node for node in model.graph.node if node.output[0] == "27")
    del node.attribute[:]
    for name in ("pads", "dilations"):
        values = [2] * (4 if name == "pads" else 2)
        node.attribute.append(helper.make_attribute(name, values))
    return model
