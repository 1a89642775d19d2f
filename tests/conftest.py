"""What several tests need: a model from text, a runtime, the command, a browser; what is left out without torch."""

import contextlib
import gc
import os
import signal
from pathlib import Path

# One thread for numpy and torch, here and in the processes that tests start: as many tests as cores run at once, and
# idle threads spin. Numpy alone starts in three quarters of the time.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import onnx
import pytest
from _pytest import runner
from onnx import parser, shape_inference

from kit import AS_WRITTEN, choosing, exporting, versions
from kit.advice import Listener
from kit.older import versions_kept
from onnxsurgeon_lite import Model, Runtime, load
from onnxsurgeon_lite.runtime.environments import interpreter_of

LEFT_OUT = choosing.left_out()
collect_ignore = [str(path) for path in LEFT_OUT]


ADVICE = Listener()


def pytest_configure():
    """Hear what every error advises, and Ctrl-C: a shell lets what it starts in the background ignore it."""
    ADVICE.listen()
    # no variable with the test's name: a process of the runtime goes on only where all variables are as they were
    runner._update_current_test_var = lambda *_: None
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def advice_leads_on(tmp_path_factory):
    """What an error advises is followed after the test that saw it first."""
    yield
    problems = ADVICE.problems(tmp_path_factory.getbasetemp() / "advised.onnx")
    assert not problems, "\n".join(problems)


def pytest_report_header():
    """Say what is left out; `scripts/test` allows nothing to be."""
    if LEFT_OUT and os.environ.get("NO_TEST_LEFT_OUT"):
        lacking = sorted({name for path in LEFT_OUT for name in choosing.needed(path)})
        raise pytest.UsageError(f'one of {lacking} is missing: pip install -e ".[test]"')
    left = ", ".join(path.name for path in LEFT_OUT)
    return f'left out, they need more (pip install -e ".[test]"): {left}' if left else None


def pytest_addoption(parser):
    """Add what chooses one part of the tests, and what writes the list of slow ones."""
    parser.addoption("--measure", action="store_true", help="write tests/slow.txt anew")
    parser.addoption(
        "--part",
        choices=["small", "large"],
        help="only files that the extra quick is enough for, or the others",
    )


def pytest_ignore_collect(collection_path, config):
    """Do not even import the files of the other part, nor slow files, where only quick tests run.

    Each fork of a process that has imported torch takes some 20 ms more, and tests make thousands of forks.
    """
    if not collection_path.match("test_*.py"):
        return None
    part = "large" if choosing.needed(collection_path) else "small"
    slow = config.option.markexpr == "not slow" and choosing.is_slow(collection_path)
    return True if slow or config.option.part not in (None, part) else None


def pytest_collection_modifyitems(items):
    """Mark what is slow; long and slow files come first, so that none of them is alone at the end.

    Files that import torch in a test are after those that never do.
    """
    for item in items:
        if choosing.is_slow(item.path, item.nodeid):
            item.add_marker("slow")
    items.sort(
        key=lambda item: (
            item.path.name not in choosing.LONG,
            bool(choosing.needed(item.path, inside=True)),
            not choosing.is_slow(item.path),
        )
    )


def pytest_collection_finish():
    """Let no search for garbage look at what all tests have imported: that takes half a second each time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup():
    """Let torch export in less time."""
    exporting.read_table_once()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip what fails for want of something that came after the installed versions."""
    report = yield
    lacks = versions.lacking(item.nodeid, str(report.longrepr)) if report.failed else None
    if lacks:
        report.outcome, report.longrepr = "skipped", (str(item.path), item.reportinfo()[1], lacks)
    return report


def pytest_terminal_summary(terminalreporter, config):
    """Write which tests are slow, where that is measured."""
    if config.option.measure and config.option.part != "large":  # its files are slow anyway
        reports = [r for found in terminalreporter.stats.values() for r in found]
        timed = [(r.nodeid, r.duration) for r in reports if isinstance(r, pytest.TestReport)]
        choosing.write_slow(timed)


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


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder of packages of onnxruntime-genai's builder, made once for all processes that run tests."""
    from kit import builder

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"
    if not shared.exists():
        own = tmp_path_factory.mktemp("built")
        builder.built(own)
        with contextlib.suppress(OSError):  # another process was first
            own.rename(shared)
    return shared


@pytest.fixture(scope="session")
def older():
    """The interpreter of an environment with onnxruntime 1.20.1, made once for all tests."""
    with versions_kept():
        return Path(interpreter_of("1.20.1"))


@pytest.fixture
def program(tmp_path):
    """Write an executable; return what names it as a runtime."""

    def write(text: str, name: str = "program") -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755)
        return f"command:{path}"

    return write
