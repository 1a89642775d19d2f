"""Whatever ends a command at whatever moment, what it replaces is whole, old or new, and what it says is true."""

import errno
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxsurgeon_lite import Model, load, save
from onnxsurgeon_lite.atomic import NewFolder, held
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.bisection.bisect import bisect
from onnxsurgeon_lite.debug.bisection.reproducer import finished, reproducing
from onnxsurgeon_lite.errors import (
    OutputExistsError,
    SharedDataError,
    SourceChangedError,
    SurgeonError,
)
from onnxsurgeon_lite.model.storage import collect, list_data, move
from onnxsurgeon_lite.runtime.session import Runtime, RuntimeOptions
from onnxsurgeon_lite.tensors.references import open_references, save_tensors

CALLS = ("replace", "rename", "link", "unlink", "fsync", "copy_file_range")
WEIGHT = np.random.default_rng(0).normal(0.5, 2, (16, 512)).astype(np.float32)
KILLED = 99

Action = list[str] | Callable[[], object]
"""A command's words, or what is done in Python."""


def proto(scale: float = 1) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["na"], name="first"),
        helper.make_node("Add", ["na", "b"], ["y"], name="second"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512])
    weights = {"w": WEIGHT * scale, "b": WEIGHT[0] * scale, "gone": WEIGHT[1]}
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A model with data beside it that has gaps, another model, references, and a reproducer of old."""
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.chdir(folder)
    onnx.save(proto(), "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    model = onnx.load("m.onnx", load_external_data=False)
    del model.graph.initializer[2]
    Path("m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "other").mkdir()
    onnx.save(proto(3), tmp_path / "other" / "o.onnx")
    save(load(tmp_path / "other" / "o.onnx"), "o.onnx", external=True)
    return folder


def state_of_model(path: str) -> Callable[[], object]:
    def state() -> object:
        model = load(path)
        return [(t.name, t.fingerprint) for t in list_data(model)], [
            node.name for node in model.proto.graph.node
        ]

    return state


def state_of_references() -> object:
    stored = open_references("refs")
    return {name: np.asarray(stored.read(name)).tobytes() for name in stored}


VERBS = {
    "gc": (["data", "gc", "m.onnx"], state_of_model("m.onnx")),
    "move to the same name": (["data", "move", "m.onnx", "m.data"], state_of_model("m.onnx")),
    "move": (["data", "move", "m.onnx", "new.bin"], state_of_model("m.onnx")),
    "external": (["data", "external", "m.onnx", "-o", "m.onnx", "--force"], state_of_model("m.onnx")),
    "strip": (["data", "strip", "m.onnx", "-o", "m.onnx", "--force"], state_of_model("m.onnx")),
    "edit": (["edit", "rename", "m.onnx", "first=one", "--in-place"], state_of_model("m.onnx")),
    "edit with a copy": (
        ["edit", "rename", "m.onnx", "first=one", "--in-place", "--copy-data"],
        state_of_model("m.onnx"),
    ),
    "over another": (
        ["extract", "m.onnx", "--outputs", "na", "-o", "o.onnx", "--force"],
        state_of_model("o.onnx"),
    ),
}  # fmt: skip


def run_with_fault(action: Action, call: str, number: int, last: bool) -> tuple[int, str]:
    """(exit code, what it said) of work whose n-th call of a kind fails, or is the last thing that it does."""
    process = os.fork()
    if process == 0:
        code: object = 70
        try:
            said = os.open("../said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            plant(call, number, last)
            if callable(action):
                action()
                code = 0
            else:
                app(action)
        except SystemExit as end:
            code = end.code
        except (SurgeonError, OSError) as error:
            sys.stdout.write(f"error: {error}")
            code = 2
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 70)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), Path("../said").read_text()


def plant(call: str, number: int, last: bool) -> None:
    real = getattr(os, call)
    calls = 0

    def faulty(*arguments: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number and not last:
            raise OSError(errno.EIO, "Input/output error")
        result = real(*arguments, **named)
        if calls == number:
            os._exit(KILLED)
        return result

    setattr(os, call, faulty)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check_every_fault(folder: Path, action: Action, state: Callable[[], object]) -> None:
    before, old = contents(folder), state()
    with suppress(SystemExit):
        action() if callable(action) else app(action)  # the forks find imported what it imports
    new = state()
    faults = 0
    for call in CALLS:
        for last in (False, True):
            for number in range(1, 50):
                restore(folder, before)
                code, said = run_with_fault(action, call, number, last)
                where = f"{call} {number} {'last' if last else 'fails'}: {said}"
                assert state() in (old, new), where
                assert "Traceback" not in said, where
                if code == 2:
                    assert not list(folder.rglob(".*")), where
                    if "nothing was changed" in said:
                        assert contents(folder) == before, where
                if code == 0:
                    assert state() == new, where
                    break
                faults += 1
            else:
                pytest.fail(f"without any fault it does not end well: {said}")
    assert faults >= 4
    restore(folder, before)


def restore(folder: Path, before: dict[str, bytes]) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    os.chdir(folder)
    for name, data in before.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("verb", VERBS)
def test_a_model_is_whole_whatever_ends_the_command(verb, folder):
    check_every_fault(folder, *VERBS[verb])


def tensors(value: int) -> dict[str, np.ndarray]:
    return {"na": np.full(8, value, np.float32), "y": np.full((value, 8), -value, np.float32)}


@pytest.mark.parametrize("suffix", ["", ".npz", ".safetensors"])
def test_references_are_whole_whatever_ends_their_writing(suffix, folder):
    def state() -> object:
        stored = open_references(f"refs{suffix}")
        return {name: np.asarray(stored.read(name)).tobytes() for name in stored}

    for number in range(1, 4):  # whatever name the bytes have
        save_tensors(f"refs{suffix}", tensors(number))

    check_every_fault(folder, lambda: save_tensors(f"refs{suffix}", tensors(9)), state)


def test_new_references_are_there_whole_or_not_at_all(folder):
    def state() -> object:
        return contents(Path("new")) if os.path.lexists("new") else None

    check_every_fault(folder, lambda: save_tensors("new", tensors(1)), state)


def test_a_reproducer_is_whole_whatever_ends_its_writing(folder):
    model = load("m.onnx")
    feeds = {"x": np.ones((1, 16), np.float32)}
    values = {"na": feeds["x"] @ WEIGHT, "y": np.zeros((1, 512), np.float32)}
    save_tensors("refs.npz", {**feeds, **values})
    with Runtime(RuntimeOptions(opt="none")) as runtime:
        result = bisect(model, open_references("refs.npz"), feeds, runtime)
    older = Path("culprit", "test_data_set_0")
    older.mkdir(parents=True)
    for name in ("../model.onnx", "../model.data", "input_0.pb", "input_7.pb"):
        (older / name).write_bytes(b"old")

    def state() -> object:
        return contents(Path("culprit"))

    check_every_fault(
        folder,
        lambda: finished(reproducing(load("m.onnx"), result, Path("culprit"), verify=False)),
        state,
    )


def test_a_folder_that_holds_anything_else_is_not_replaced(folder):
    Path("culprit").mkdir()
    Path("culprit", "report.md").touch()
    Path("culprit", "notes.md").touch()

    with pytest.raises(OutputExistsError, match=r"'notes\.md', which would be lost"):
        NewFolder(Path("culprit"), r"report\.md")


def test_what_a_killed_process_leaves_is_gone_after_the_next(folder):
    code, _ = run_with_fault(["data", "strip", "m.onnx", "-o", "new.onnx"], "fsync", 1, last=True)
    left = list(folder.glob(".*.writing"))

    assert code == KILLED
    assert left
    assert (
        run_with_fault(["data", "strip", "m.onnx", "-o", "n.onnx"], "link", 99, last=True)[0] == 0
    )
    assert not list(folder.glob(".*"))


# whose data is it


def elsewhere(kind: str) -> None:
    """Another model that refers to `m.data`, where it is not looked for at once."""
    data = Path("m.onnx").read_bytes()
    match kind:
        case "a backup":
            Path("m.onnx.bak").write_bytes(data)
        case "upper case":
            Path("M2.ONNX").write_bytes(data)
        case "without a suffix":
            Path("saved").write_bytes(data)
        case "a folder above":
            model = onnx.load("m.onnx", load_external_data=False)
            for tensor in model.graph.initializer:
                next(e for e in tensor.external_data if e.key == "location").value = "models/m.data"
            Path("../above.onnx").write_bytes(model.SerializeToString())
        case "a hard link":
            os.link("m.onnx", "linked.onnx")


@pytest.mark.parametrize(
    "kind", ["a backup", "upper case", "without a suffix", "a folder above", "a hard link"]
)
@pytest.mark.parametrize(
    "words",
    [
        ["data", "gc", "m.onnx"],
        ["data", "move", "m.onnx", "m.data"],
        ["data", "move", "m.onnx", "new.bin"],
        ["data", "external", "m.onnx", "-o", "m.onnx", "--force"],
        ["extract", "o.onnx", "--outputs", "na", "-o", "m.onnx", "--force"],
        ["edit", "rename", "m.onnx", "first=one", "--in-place", "--copy-data"],
    ],
)
def test_data_that_another_model_refers_to_is_never_touched(kind, words, folder):
    elsewhere(kind)
    before = Path("m.data").read_bytes()

    run_with_fault(words, "link", 10**6, last=True)

    assert Path("m.data").read_bytes() == before


def foreign(kind: str) -> bytes:
    match kind:
        case "text":
            return "grün = 1\n".encode() * 5000
        case "a safetensors file":
            header = b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
            return len(header).to_bytes(8, "little") + header + WEIGHT.tobytes() * 2
        case "a zip archive":
            return b"PK\x03\x04" + WEIGHT.tobytes() * 2
        case "a .npy file":
            return b"\x93NUMPY\x01\x00" + WEIGHT.tobytes() * 2
        case "a pickle":
            return b"\x80\x04\x95" + WEIGHT.tobytes() * 2
    return b"\xff\x00" * 40 + WEIGHT.tobytes() * 2


@pytest.mark.parametrize(
    "kind",
    ["text", "a safetensors file", "a zip archive", "a .npy file", "a pickle", "bytes that the"],
)
@pytest.mark.parametrize("words", [["gc"], ["move", "theirs"], ["move", "new.data"]])
def test_a_file_that_is_more_than_data_of_a_model_is_neither_rewritten_nor_removed(
    kind, words, folder
):
    model = onnx.load("m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        entries = {entry.key: entry for entry in tensor.external_data}
        entries["location"].value, entries["offset"].value = "theirs", "128"
    Path("m.onnx").write_bytes(model.SerializeToString())
    Path("theirs").write_bytes(foreign(kind))
    verb, *rest = words

    code, said = run_with_fault(["data", verb, "m.onnx", *rest], "link", 10**6, last=True)

    assert Path("theirs").read_bytes() == foreign(kind)
    assert kind in said
    assert code == (0 if rest == ["new.data"] else 2), said
    if rest == ["new.data"]:
        assert "'theirs' stays" in said


# what is there stays


OUTPUTS = {
    "extract": ["extract", "m.onnx", "--outputs", "na", "-o"],
    "expose": ["expose", "m.onnx", "--all", "-o"],
    "embed": ["data", "embed", "m.onnx", "-o"],
    "external": ["data", "external", "m.onnx", "-o"],
    "strip": ["data", "strip", "m.onnx", "-o"],
    "edit": ["edit", "rename", "m.onnx", "first=one", "-o"],
    "merge": ["merge", "m.onnx", "o.onnx", "--prefix", "p/", "-o"],
    "run": ["run", "m.onnx", "--save"],
    "record": ["record", "m.onnx", "-o"],
    "match": ["match", "m.onnx", "o.onnx", "--save"],
    "bisect": ["bisect", "m.onnx", "--against", "o.onnx", "-o"],
    "journal": ["bisect", "m.onnx", "--against", "o.onnx", "--journal"],
    "split": ["split", "m.onnx", "--at", "na", "-o"],
}


@pytest.mark.parametrize("verb", OUTPUTS)
@pytest.mark.parametrize("target", ["m.onnx", "o.onnx", "m.data", "notes", "link"])
def test_no_file_that_is_there_is_overwritten(verb, target, folder):
    Path("notes").write_text("mine")
    Path("link").symlink_to("elsewhere")
    before = contents(folder)

    code, said = run_with_fault([*OUTPUTS[verb], target], "link", 10**6, last=True)

    assert code == 2, said
    assert contents(folder) == before
    assert not Path("elsewhere").exists()


def test_a_session_overwrites_only_what_it_wrote(folder):
    Path("mine.py").write_text("mine")
    Path("mine.onnx").write_text("mine")

    def told(*commands: str) -> str:
        return run_with_fault(["repl", "m.onnx", "-c", "; ".join(commands)], "link", 99, last=True)[
            1
        ]

    assert "'mine.py' is there already" in told("export mine.py")
    assert "'mine.onnx' is there already" in told("save mine.onnx")
    assert "already" not in told("save s.onnx", "save s.onnx", "export s.py", "export s.py")
    assert Path("mine.py").read_text() == Path("mine.onnx").read_text() == "mine"


def test_a_journal_is_written_over_an_older_one(folder):
    words = [*OUTPUTS["journal"], "j", "-o", "culprit", "--force"]
    for _ in range(2):
        assert run_with_fault(words, "link", 10**6, last=True)[0] == 1


# a file that changes between load and save


def renamed(name: str) -> Model:
    model = load("m.onnx")
    model.proto.graph.node[0].name = name
    return model


@pytest.mark.parametrize("external", [None, True, False])
@pytest.mark.parametrize("target", ["m.onnx", "new.onnx"])
@pytest.mark.parametrize("change", ["another model", "other bytes, the same time", "cut short"])
def test_a_change_after_the_load_is_an_error(change, target, external, folder):
    model = renamed("one")
    before = os.stat("m.data")
    match change:
        case "another model":
            data = Path("m.data").read_bytes()
            Path("m.data").unlink()
            Path("m.data").write_bytes(data[::-1])
        case "other bytes, the same time":
            with open("m.data", "r+b") as file:
                file.write(b"other")
            os.utime("m.data", ns=(before.st_atime_ns, before.st_mtime_ns))
        case "cut short":
            os.truncate("m.data", before.st_size - 1)
    changed = contents(folder)

    with pytest.raises(SourceChangedError):
        save(model, target, external, force=True)

    assert contents(folder) == changed


def test_of_several_edits_at_once_one_is_written_and_the_others_say_so(folder):
    writers = 4
    barrier = multiprocessing.get_context("fork").Barrier(writers)
    processes = []
    for number in range(writers):
        process = os.fork()
        if process == 0:
            code = 70
            try:
                model = renamed(f"edit {number}")
                barrier.wait(30)
                save(model, "m.onnx")
                code = 0
            except SourceChangedError:
                code = 2
            finally:
                os._exit(code)
        processes.append(process)

    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]

    assert sorted(codes) == [0, 2, 2, 2]
    assert load("m.onnx").proto.graph.node[0].name == f"edit {codes.index(0)}"


def during(monkeypatch, call: str, work: Callable[[], object]) -> None:
    """Let something happen once, while a file is written."""
    usual, left = getattr(os, call), [work]

    def instead(*given: object) -> object:
        if left:
            left.pop()()
        return usual(*given)

    monkeypatch.setattr(os, call, instead)


@pytest.mark.parametrize("verb", [lambda model: move(model, "a.data"), collect], ids=["move", "gc"])
def test_data_that_a_model_refers_to_since_the_command_began_stays(verb, folder, monkeypatch):
    with open("m.data", "ab") as file:
        file.write(bytes(4096))
    model, other = load("m.onnx"), renamed("other")
    before = contents(folder)
    during(monkeypatch, "fsync", lambda: save(other, "out.onnx"))

    with suppress(SharedDataError):
        verb(model)

    assert Path("m.data").read_bytes() == before["m.data"]
    for name in ("m.onnx", "out.onnx"):
        loaded = onnx.load(name).graph.initializer
        assert np.array_equal(numpy_helper.to_array(loaded[0]), WEIGHT)


def test_who_writes_into_a_folder_waits_for_who_removes_from_it(folder):
    model = renamed("late")
    with ThreadPoolExecutor(1) as pool:
        with held(folder / "m.onnx"):
            written = pool.submit(save, model, "out.onnx")
            with pytest.raises(TimeoutError):
                written.result(0.5)
            Path("m.data").unlink()
        with pytest.raises(SourceChangedError):
            written.result(60)

    assert not Path("out.onnx").exists()


def test_recordings_of_torch_are_whole_whatever_ends_them(folder):
    torch = pytest.importorskip("torch")
    from onnxsurgeon_lite.recording import torch_recorder

    def write(value: int) -> None:
        with torch_recorder._Folder(Path("refs")) as writer:
            for name, array in tensors(value).items():
                writer.add(name, torch.from_numpy(array), {})

    def state() -> object:
        stored = open_references("refs")
        return {name: np.asarray(stored.read(name)).tobytes() for name in stored}

    write(1)
    write(2)

    check_every_fault(folder, lambda: write(9), state)
    assert len(list(Path("refs").iterdir())) == 2
