"""What several tests need: a model from text, a runtime, the command, a browser; what is left out without torch."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest
from onnx import parser, shape_inference

from kit import AS_WRITTEN
from onnxsurgeon_lite import Model, Runtime, load

TESTS = Path(__file__).parent
INSIDE = ("test_fixtures.py", "test_pages.py")  # what they run imports torch
NEEDS_TORCH = re.compile(
    r"^(import|from) (torch|transformers|onnxscript|onnx_ir|kit\.faults)\b", re.MULTILINE
)
LEFT_OUT = [
    str(path.relative_to(TESTS))
    for path in sorted(TESTS.rglob("test_*.py"))
    if path.name in INSIDE or NEEDS_TORCH.search(path.read_text())
]
if all(map(find_spec, ("torch", "transformers", "onnxscript"))):
    LEFT_OUT = [] if find_spec("captum") else ["passes/test_attribution.py"]
if not all(map(find_spec, ("plotly", "igraph"))):
    LEFT_OUT += ["report/test_page.py", "report/test_browser_page.py"]
if not find_spec("playwright"):
    LEFT_OUT += ["report/test_browser_page.py", "report/test_browser_view.py"]
collect_ignore = LEFT_OUT


def pytest_report_header():
    """Say what is left out; `scripts/test` allows nothing to be."""
    if LEFT_OUT and os.environ.get("NO_TEST_LEFT_OUT"):
        raise pytest.UsageError(
            "torch, transformers, onnxscript, captum, playwright, plotly or igraph is missing:"
            ' pip install -e ".[test]"'
        )
    left = ", ".join(LEFT_OUT)
    return f'left out, they need more (pip install -e ".[test]"): {left}' if left else None


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


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """A record of written outputs for the tests alone; nothing of the runner's terminal or virtual environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "VIRTUAL_ENV"):  # lines are not wrapped, IPython does not warn
            patch.delenv(name, raising=False)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module")
def browser():
    """One Chromium for a file; not for the session, because its event loop would be in the way of IPython's."""
    from kit.browsing import started

    with started() as browser:
        yield browser


@pytest.fixture
def visit(browser):
    """Opens files with the network off; a page that complains, or asks for anything else, fails its test."""
    from kit.browsing import Visit

    with Visit(browser) as visit:
        yield visit
    assert visit.complaints == []
