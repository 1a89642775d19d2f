"""What several tests need: a model from text, a runtime, the command."""

import sys
from pathlib import Path

import onnx
import pytest
from onnx import parser, shape_inference

from onnxsurgeon_lite import Model, Runtime, RuntimeOptions, load

FIXTURES = Path(__file__).parent.parent / "fixtures"
COMMAND = [sys.executable, "-m", "onnxsurgeon_lite"]
AS_WRITTEN = RuntimeOptions(opt="none", lean=True)


@pytest.fixture(scope="module")
def runtime():
    """Runs models as they are written."""
    with Runtime(AS_WRITTEN) as runtime:
        yield runtime


@pytest.fixture
def model_of(tmp_path):
    """Text in ONNX syntax (`two (float[2] x) => (float[2] y) { ... }`) or a proto -> a loaded `Model`."""

    def make(source: str | onnx.ModelProto, name: str = "model.onnx") -> Model:
        if isinstance(source, str):
            header = '<ir_version: 10, opset_import: ["" : 21]>\n'
            text = source if source.lstrip().startswith("<") else header + source
            source = shape_inference.infer_shapes(parser.parse_model(text))
        onnx.save(source, tmp_path / name)
        return load(tmp_path / name)

    return make
