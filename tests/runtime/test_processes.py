"""Processes that are started end with who started them, leave nothing, and are told from each other."""

import contextlib
import io
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxsurgeon_lite
from kit import FIXTURES
from onnxsurgeon_lite import errors, load
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.limits import limited
from onnxsurgeon_lite.matching.values.run_both import match_models
from onnxsurgeon_lite.runtime import worker
from onnxsurgeon_lite.runtime.child import Child
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions, run_model
from onnxsurgeon_lite.runtime.starting import started
from onnxsurgeon_lite.tensors import dtypes

COMMAND = [sys.executable, "-m", "onnxsurgeon_lite"]


def gone(process: int, seconds: float = 10) -> bool:
    """Whether a process ends within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def process_of(runtime: Runtime) -> int:
    runtime.about()
    return runtime._child._process.pid


# errors travel between processes


def all_errors() -> list[type[BaseException]]:
    package = Path(onnxsurgeon_lite.__file__).parent
    for path in package.rglob("*.py"):  # no others: some import torch
        if re.search(r"^class \w+\(.*Error", path.read_text(), re.MULTILINE):
            import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    found, pending = [], [errors.SurgeonError]
    while pending:
        found.append(pending.pop())
        pending += found[-1].__subclasses__()
    return found


def example(kind: type[BaseException]) -> BaseException:
    if issubclass(kind, errors.UnknownNameError):
        return errors.UnknownNameError("a", "the model", ["ab"])
    if issubclass(kind, errors.AmbiguousNameError):
        return kind("a", ["ab", "ac"])
    if issubclass(kind, errors.OpenCutError):
        return kind("wrong", "try", ["a"], ["a", "b"])
    if issubclass(kind, errors.NoKernel):
        return kind("wrong", "try", "custom", "Asinh")
    return kind("wrong", "try")


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_pickling(kind):
    error = example(kind)
    error.add_note("where")

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("name", ["load", "save", "run"])
def test_a_function_is_sent_to_another_process(name):
    function = getattr(onnxsurgeon_lite, name)

    assert pickle.loads(pickle.dumps(function)) is function


def test_an_error_comes_out_of_a_pool():
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(errors.ModelFileError):
        pool.apply_async(load, ["missing.onnx"]).get(30)


# a runtime lives as long as it is used


@pytest.mark.parametrize("profile", ["", "times"])
def test_threads_that_wait_spin_only_where_a_run_is_timed(profile, tmp_path):
    node = helper.make_node("Neg", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    encoded = model.SerializeToString()

    opened = worker.Worker(io.BytesIO(encoded))
    opened.do_open(
        opt="none", folder="", providers=["CPUExecutionProvider"], threads=2, lean=False,
        ops_libraries=[], disabled=[], settings={}, optimized="",
        profile=profile and str(tmp_path / profile), size=len(encoded),
    )  # fmt: skip

    options = opened.session.get_session_options()
    spins = options.get_session_config_entry("session.intra_op.allow_spinning")
    assert spins == ("1" if profile else "0")


def test_a_runtime_lives_on_when_the_thread_that_made_it_ends():
    made: list[Runtime] = []
    thread = threading.Thread(target=lambda: made.append(Runtime()))
    thread.start()
    thread.join()
    process = process_of(made[0])

    assert not gone(process, 1)
    with made[0]:
        assert made[0].about()["version"]
        made[0].put("x", np.zeros(4, np.float32))
    assert process_is_taken_by_another_runtime(process)


def process_is_taken_by_another_runtime(
    process: int, options: RuntimeOptions | None = None
) -> bool:
    with Runtime(options) as runtime:
        return process_of(runtime) == process


def process_of_a_runtime_that_ended() -> int:
    with Runtime() as runtime:
        process = process_of(runtime)
        runtime.put("x", np.zeros(4, np.float32))
    return process


def test_the_process_of_a_runtime_goes_on_for_the_next_one_and_holds_nothing(model_of):
    process = process_of_a_runtime_that_ended()

    with Runtime(RuntimeOptions(opt="none")) as runtime:
        assert process_of(runtime) == process
        with pytest.raises(errors.RuntimeFailure, match="'x'"):
            list(runtime.get(["x"]))
        with pytest.raises(errors.RuntimeFailure, match="no session is open"):
            runtime.run([], ["y"])


def test_a_process_of_other_variables_is_not_taken(monkeypatch):
    process = process_of_a_runtime_that_ended()
    monkeypatch.setenv(
        "A_VARIABLE_OF_THIS_TEST_ALONE", "1"
    )  # dask sets OMP_NUM_THREADS in its process

    assert not process_is_taken_by_another_runtime(process)
    assert gone(process)


def test_a_process_goes_on_in_the_folder_of_the_next_runtime(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    process = process_of_a_runtime_that_ended()
    first.rmdir()
    monkeypatch.chdir(second)

    with Runtime() as runtime:
        assert process_of(runtime) == process
        assert os.path.samefile(f"/proc/{process}/cwd", second)


def test_a_runtime_that_ended_does_not_touch_its_process_any_more():
    with Runtime() as ended:
        process = process_of(ended)

    with Runtime() as now:
        assert process_of(now) == process
        now.put("x", np.ones(3, np.float32))
        with ended:  # whoever ends it twice, as a thread that was told to stop
            ended.put("x", np.zeros(3, np.float32))
        with Runtime() as third:
            assert len({process_of(each) for each in (now, third)}) == 2
            third.put("x", np.full(3, 2, np.float32))
        ((_, kept),) = now.get(["x"])

    np.testing.assert_array_equal(kept, np.ones(3))


def test_a_process_that_another_runtime_has_is_out_of_reach_of_the_one_before():
    with Runtime() as ended:
        process, before = process_of(ended), ended._child

    with Runtime() as now:
        assert process_of(now) == process
        with pytest.raises(AttributeError):  # as of a thread that goes on
            before.ask("rest")
        assert process_of(now) == process


def test_a_process_with_another_limit_of_memory_is_not_taken():
    process = process_of_a_runtime_that_ended()

    with limited(None, 3 << 30):
        assert not process_is_taken_by_another_runtime(process)


def test_a_process_that_ends_while_it_rests_is_replaced():
    process = process_of_a_runtime_that_ended()
    os.kill(process, signal.SIGALRM)  # as after a minute
    assert gone(process)

    assert not process_is_taken_by_another_runtime(process)


def test_a_process_that_rests_ends_after_a_while(monkeypatch):
    monkeypatch.setattr(worker, "_REST", 1)
    process = os.fork()
    if not process:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # another test may have left its own
            worker.Worker(io.BytesIO()).do_rest()
            time.sleep(60)
        finally:  # the fork must not go on with the tests
            os._exit(0)

    _, status = os.waitpid(process, 0)

    assert os.WTERMSIG(status) == signal.SIGALRM


def test_a_fork_takes_no_process_that_rests():
    process = process_of_a_runtime_that_ended()

    def take() -> None:
        assert not process_is_taken_by_another_runtime(process)

    assert in_a_fork(take) == ""
    assert process_is_taken_by_another_runtime(process)


def test_a_runtime_that_is_dropped_ends_its_process():
    runtime = Runtime()
    process = process_of(runtime)

    del runtime

    assert gone(process)


def in_a_fork(work: Callable[[], None]) -> str:
    """What work raises in a fork of this process, or what is printed while it is taken down; '' for nothing."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            sys.unraisablehook = lambda swallowed: os.write(
                writer, repr(swallowed.exc_value).encode()
            )
            work()
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(process, 0)
    with os.fdopen(reader) as said:
        return said.read()


def test_a_fork_that_drops_a_process_leaves_it_to_the_one_that_started_it():
    held = [started(RuntimeOptions(runtime="reference"))]
    files = Path(held[0]._files.name)

    assert in_a_fork(held.clear) == ""

    assert files.is_dir()
    assert held[0].ask("about", timeout=60)
    process = held[0]._process.pid
    held.clear()
    assert gone(process)
    assert not files.exists()


def test_a_fork_asks_nothing_of_a_process_that_another_one_started():
    with Child() as child:
        assert "belongs to the process that this one was forked from" in in_a_fork(
            lambda: child.ask("about")
        )

        assert child.ask("about")


def test_a_recording_is_removed_by_the_process_that_made_it():
    recording = [onnxsurgeon_lite.record(FIXTURES / "whole_model.onnx")]
    folder = recording[0].place

    assert in_a_fork(recording.clear) == ""

    assert folder.is_dir()
    recording.clear()
    assert not folder.exists()


def test_a_process_that_is_waited_for_already_is_closed_without_a_word():
    child = Child()
    os.kill(child._process.pid, signal.SIGKILL)
    os.waitpid(child._process.pid, 0)

    child.close()

    assert child._process.returncode is not None


@pytest.mark.parametrize("given", [0, 3 << 30], ids=["the machine's", "given"])
def test_a_runtime_has_a_limit_of_memory(given):
    with limited(None, given), Runtime() as runtime:
        runtime.about()
        limits = Path(f"/proc/{process_of(runtime)}/limits").read_text()

    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert re.search(r"Max data size +(\d+)", limits)[1] == str(given or machine)


def test_several_threads_share_one_runtime():
    with Runtime() as runtime, ThreadPoolExecutor(4) as pool:

        def ask(number: int) -> bool:
            name, array = f"value {number}", np.full(1000, number, np.float32)
            for _ in range(20):
                runtime.put(name, array)
                ((_, found),) = runtime.get([name])
                if not np.array_equal(found, array):
                    return False
            return True

        assert all(pool.map(ask, range(8)))


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "busy.py").write_text("while True: pass\n")
    code = (
        "import subprocess, sys, time\n"
        "from onnxsurgeon_lite.guard import guarded\n"
        "print(subprocess.Popen(guarded(sys.argv[1])).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "busy.py")], stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    assert not gone(child, 0.5)

    parent.kill()
    parent.communicate()

    assert gone(child)


def test_a_run_writes_nothing_into_the_home_folder(tmp_path):
    given = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    given.pop("ORT_DISABLE_TELEMETRY", None)

    done = subprocess.run(
        [*COMMAND, "run", str(FIXTURES / "whole_model.onnx")], env=given, capture_output=True
    )

    assert done.returncode == 0
    assert not list(tmp_path.rglob("*"))


# both sides of a match


@pytest.fixture
def endless_or_refused(model_of):
    good = model_of("g (float[2] x) => (float[2] y) { h = Relu (x) y = Neg (h) }", "good.onnx")
    bad = model_of("g (float[2] x) => (float[2] y) { h = Relu (x) y = Neg (h) }", "bad.onnx")
    bad.proto.graph.node[0].op_type, bad.proto.graph.node[0].domain = "Nothing", "of.this"
    bad.proto.opset_import.add(domain="of.this", version=1)
    return GraphIndex.of(good), GraphIndex.of(bad)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (1, 1)])
def test_a_match_ends_when_a_side_cannot_run(order, endless_or_refused):
    a, b = (endless_or_refused[i] for i in order)
    outcome: list[object] = []

    def work() -> None:
        with Runtime(RuntimeOptions(opt="none")) as runtime:
            try:
                outcome.append(match_models(a, b, {"x": np.ones(2, np.float32)}, runtime))
            except errors.RuntimeFailure as error:
                outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)

    assert not thread.is_alive()
    assert isinstance(outcome[0], errors.RuntimeFailure)


# tensors without an element


FED = [t for t in TensorProto.DataType.values() if t not in (0,)]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3, 4)])
@pytest.mark.parametrize("data_type", FED, ids=dtypes.dtype_name)
def test_a_tensor_without_an_element_is_fed_and_comes_back(data_type, shape):
    x = helper.make_tensor_value_info("x", data_type, shape)
    y = helper.make_tensor_value_info("y", data_type, shape)
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y])
    opset = [helper.make_opsetid("", 25)]
    model = onnxsurgeon_lite.Model(helper.make_model(graph, opset_imports=opset, ir_version=12))
    array = np.zeros(shape, dtypes.numpy_dtype(data_type))

    try:
        found = run_model(model, {"x": array})["y"]
    except errors.RuntimeFailure as error:
        if "cannot run Identity" not in error.message and "refuses the model" not in error.message:
            raise
        pytest.skip(error.message)  # the runtime lacks the dtype

    assert (found.shape, found.dtype) == (array.shape, array.dtype)


@pytest.mark.parametrize("moment", range(20))
def test_closing_a_process_lets_go_whoever_waits_for_it(moment):
    child = Child()
    child.ask("about")

    def ask() -> None:
        with contextlib.suppress(errors.RuntimeCrash, ValueError):
            while True:
                child.ask("about")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    time.sleep(0.001 * (moment % 7))
    child.close()
    thread.join(10)

    assert not thread.is_alive()
