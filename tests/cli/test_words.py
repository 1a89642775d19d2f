"""Whatever a command line or a system does, the command says it in words: exit 0, 1 or 2, and no traceback."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from kit import FIXTURES
from onnxsurgeon_lite.cli import boundary
from onnxsurgeon_lite.cli.app import app

COMMAND = [sys.executable, "-m", "onnxsurgeon_lite"]
MANY = "9" * 5000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / "whole_model.onnx", "good.onnx")
    graph = "g (float[N, 4] x) => (float[N, 4] y) { h = Relu (x) y = Neg (h) }"
    header = '<ir_version: 10, opset_import: ["" : 21]>\n'
    onnx.save(onnx.parser.parse_model(header + graph), "open.onnx")
    return tmp_path


def in_words(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in (0, 1, 2), (done.output, done.exception)
    assert "Traceback" not in done.output
    assert "internal error" not in done.output
    return done.output


def onnxdbg(*words: object, **options) -> subprocess.CompletedProcess[str]:
    given = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
    return subprocess.run([*COMMAND, *words], **given)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "good.onnx", "--timeout", "inf"],
        ["run", "good.onnx", "--timeout", "nan"],
        ["run", "good.onnx", "--timeout", "1e300"],
        ["check", "good.onnx", "--timeout", "inf"],
        ["run", "good.onnx", "--seed", "-1"],
        ["data", "strip", "good.onnx", "--seed", "-1"],
        ["run", "good.onnx", "--seed", MANY],
        ["run", "good.onnx", "--threads", MANY],
        ["run", "good.onnx", "--threads", "9" * 12],
        ["run", "open.onnx", "--dim", f"N={MANY}"],
        ["run", "open.onnx", "--dim", f"N={'9' * 18}"],
        ["run", "open.onnx", "--dim", f"N={10**13}"],
        ["run", "open.onnx", "--memory-limit", MANY],
        ["inspect", "good.onnx", "--node", f"@{MANY}"],
        ["inspect", "good.onnx", "--value", f"22[{MANY}]"],
        ["edit", "set-shape", "open.onnx", f"x=[{MANY},4]"],
        ["edit", "rebatch", "open.onnx", MANY],
        ["edit", "rebatch", "open.onnx", "9" * 18],
        ["edit", "opset", "open.onnx", "--to", MANY],
        ["edit", "opset", "open.onnx", "99999999999"],
        ["edit", "opset", "open.onnx", MANY],
        ["edit", "set-attr", "good.onnx", "Conv_1", f"pads=[{MANY}]"],
        ["edit", "set-constant", "good.onnx", "22", MANY],
        ["edit", "freeze", "open.onnx", f"x={MANY}"],
        ["run", "open.onnx", "--fill", f"x=uniform:0,{MANY}"],
        ["compare", "good.onnx", "refs", "--rtol", MANY],
        ["run", "good.onnx", "--opt", "\udcff"],
        ["repl", "open.onnx", "-c", f"seed {MANY}"],
        ["repl", "open.onnx", "-c", f"delete {MANY}"],
    ],
    ids=lambda words: " ".join(words)[:50],
)  # fmt: skip
def test_a_number_that_means_nothing_is_told(words, folder):
    said = in_words(*words)

    assert len(said) < 25_000


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "M"],
        ["print", "M"],
        ["check", "M"],
        ["run", "M"],
        ["record", "M", "-o", "refs"],
        ["extract", "M", "--outputs", "h", "-o", "out.onnx"],
        ["edit", "rename", "M", "h=g", "--in-place"],
        ["data", "external", "M", "-o", "ext.onnx"],
        ["data", "ls", "M"],
        ["diff", "M", "M"],
        ["inspect", b"missing-\xff.onnx"],
        ["run", "M", "--feeds", b"missing-\xff.npz"],
        ["extract", "M", "--outputs", "h", "-o", b"out-\xff.onnx"],
    ],
    ids=str,
)
def test_a_path_that_is_not_utf8_is_a_path(words, folder):
    path = os.fsencode(folder) + b"/gr\xfcn"
    os.mkdir(path)
    model = path + b"/m\xff.onnx"
    large = onnx.load("open.onnx")
    large.graph.initializer.append(helper.make_tensor("w", 1, [600], np.ones(600)))
    with open(model, "wb") as file:
        file.write(large.SerializeToString())

    done = onnxdbg(*(model if word == "M" else word for word in words))

    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    if not any(b"missing" in os.fsencode(word) for word in words):
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "12", "012"])
def test_a_closed_stream_spoils_no_file(closed, folder):
    shell = " ".join(
        [*COMMAND, "record", "good.onnx", "-o", "refs", *(f"{number}>&-" for number in closed)]
    )

    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)

    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        in_words("compare", "good.onnx", "refs")


def test_a_working_directory_that_is_gone_is_told(folder):
    shell = f"mkdir gone; cd gone; rmdir ../gone; {' '.join(COMMAND)}"
    environment = {**os.environ, "PYTHONPATH": str(Path(boundary.__file__).parents[2])}
    for words in (f"inspect {folder}/good.onnx", f"run {folder}/good.onnx --save x.npz", "bisect"):
        done = subprocess.run(
            ["bash", "-c", f"{shell} {words}"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )

        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr


def test_a_system_without_temporary_folder_is_told(folder):
    code = (
        "import sys, tempfile\n"
        "def none(*_): raise FileNotFoundError(2, 'No usable temporary directory found')\n"
        "tempfile._get_default_tempdir = none\n"
        "from onnxsurgeon_lite.cli import main\n"
        "main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "run", "good.onnx"], capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "No usable temporary directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bug_has_its_own_exit_code_and_leaves_its_traceback_in_a_file(folder, monkeypatch):
    from onnxsurgeon_lite.graph import summary

    def broken(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(summary, "summarize", broken)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)

    done = CliRunner().invoke(app, ["inspect", "good.onnx"])

    assert done.exit_code == boundary.INTERNAL == 70
    (report,) = folder.glob("onnxdbg-*.txt")
    assert done.stderr == f"error: internal error (KeyError): please report it with {report}\n"
    assert "KeyError: 'planted'" in report.read_text()


def writes_into(process: int, folder: Path) -> bool:
    """Whether a process has a file open there that has no name yet."""
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(descriptor).startswith(f"{folder}/#"):
                return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_nothing(number, folder):
    nodes = [helper.make_node("Relu", [f"h{i}"], [f"h{i + 1}"]) for i in range(3000)]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, [200_000]) for n in ("h0", "h3000")
    ]
    graph = helper.make_graph(nodes, "long", values[:1], values[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "m.onnx")
    process = subprocess.Popen(
        [*COMMAND, "record", "m.onnx", "-o", "refs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: [
            signal.signal(signal.SIGINT, signal.default_int_handler),
            signal.signal(signal.SIGHUP, signal.SIG_DFL),  # ignored below nohup
        ],
    )
    deadline = time.monotonic() + 60
    while not writes_into(process.pid, folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    before = sorted(path.name for path in folder.iterdir() if path.name != "refs")

    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 128 + number, said
    assert b"Traceback" not in said
    assert sorted(path.name for path in folder.iterdir()) == before


# models that no exporter writes


def odd(kind: str) -> onnx.ModelProto:  # noqa: C901  a table of models
    model = onnx.load("open.onnx")
    graph = model.graph
    match kind:
        case "a negative dimension":
            graph.initializer.add(name="w", data_type=1, dims=[-3, 5], raw_data=b"abcd")
            graph.node[0].input[0] = "w"
        case "two negative dimensions":
            graph.initializer.add(name="w", data_type=1, dims=[-1, -1], raw_data=b"abcd")
            graph.node[0].input[0] = "w"
        case "more than 64 dimensions":
            graph.initializer.add(name="w", data_type=1, dims=[1] * 70, raw_data=b"abcd")
            graph.node[0].input[0] = "w"
        case "an input of more than 64 dimensions":
            for _ in range(70):
                graph.input[0].type.tensor_type.shape.dim.add(dim_value=1)
        case "an input beyond any memory":
            for _ in range(3):
                graph.input[0].type.tensor_type.shape.dim.add(dim_value=1 << 40)
        case "an opset beyond int32":
            model.opset_import[0].version = 1 << 40
        case "a negative opset":
            model.opset_import[0].version = -5
        case "an ir version beyond int32":
            model.ir_version = 1 << 50
        case "an unknown group":
            model.MergeFromString(b"\xbb\x3e\x08\x01\xbc\x3e")
        case "a node with an unknown group":
            graph.node[0].MergeFromString(b"\xbb\x3e\x08\x01\xbb\x3e\xbc\x3e\xbc\x3e")
        case "an unknown dtype":
            graph.input[0].type.tensor_type.elem_type = 999
        case "an initializer of an unknown dtype":
            graph.initializer.add(name="w", data_type=999, dims=[1], raw_data=b"abcd")
            graph.node[0].input[0] = "w"
        case "a large doc string":
            model.doc_string = graph.node[0].doc_string = "long " * 1_000_000
        case "huge dimensions of data that is not there":
            graph.initializer.add(name="w", data_type=1, dims=[1 << 40, 1 << 40])
    return model


ODD = [
    *("a negative dimension", "two negative dimensions", "more than 64 dimensions"),
    *("an input of more than 64 dimensions", "an input beyond any memory"),
    *("an opset beyond int32", "a negative opset", "an ir version beyond int32"),
    *("an unknown group", "a node with an unknown group", "an unknown dtype"),
    *("an initializer of an unknown dtype", "a large doc string"),
    "huge dimensions of data that is not there",
]
VERBS = [
    *(["inspect", "m.onnx"], ["inspect", "m.onnx", "--node", "@0"], ["print", "m.onnx"]),
    *(["inspect", "m.onnx", "--value", "h"], ["check", "m.onnx"], ["check", "m.onnx", "--full"]),
    *(["run", "m.onnx"], ["extract", "m.onnx", "--outputs", "h"], ["expose", "m.onnx", "--all"]),
    *(["diff", "open.onnx", "m.onnx"], ["diff", "m.onnx", "m.onnx", "--run"]),
    *(["edit", "opset", "m.onnx", "22"], ["edit", "clean", "m.onnx"], ["edit", "fix", "m.onnx"]),
    *(["edit", "set-shape", "m.onnx", "x=2,4"], ["edit", "rebatch", "m.onnx", "2"]),
    *(["edit", "insert", "m.onnx", "h", "Abs"], ["edit", "dedupe", "m.onnx"]),
    *(["edit", "promote", "m.onnx", "w"], ["edit", "inline", "m.onnx"]),
    *(["data", "ls", "m.onnx"], ["data", "strip", "m.onnx"], ["data", "external", "m.onnx"]),
    *(["data", "embed", "m.onnx"], ["match", "m.onnx", "open.onnx"]),
]


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_model_is_told_by_every_verb(kind, folder):
    Path("m.onnx").write_bytes(odd(kind).SerializeToString())

    for words in VERBS:
        before = time.monotonic()
        said = in_words(*words)
        assert time.monotonic() - before < 40, words
        if words[0] == "inspect":
            assert len(said) < 10_000, words


def test_unknown_groups_survive(folder):
    Path("m.onnx").write_bytes(odd("a node with an unknown group").SerializeToString())

    in_words("edit", "clean", "m.onnx", "-o", "c.onnx")
    in_words("edit", "rename", "m.onnx", "h=g", "-o", "r.onnx")

    group = b"\xbb\x3e\x08\x01\xbb\x3e\xbc\x3e\xbc\x3e"
    assert group in Path("c.onnx").read_bytes()
    assert group in Path("r.onnx").read_bytes()
