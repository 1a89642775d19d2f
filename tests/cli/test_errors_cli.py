"""What goes wrong, on the command line: one clear line, the next step, exit code 2, and every file as it was."""

import ctypes
import os
import resource
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from typer.testing import CliRunner

from kit import COMMAND, FIXTURES
from kit.busy import computed
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.tensors.references import save_tensors

VERBS = {
    "inspect": ["inspect", "MODEL"],
    "inspect a node": ["inspect", "MODEL", "--node", "@0"],
    "print": ["print", "MODEL"],
    "check": ["check", "MODEL"],
    "extract": ["extract", "MODEL", "--outputs", "h"],
    "expose": ["expose", "MODEL", "--all"],
    "run": ["run", "MODEL"],
    "record": ["record", "MODEL", "--inner", "-o", "recorded"],
    "compare": ["compare", "MODEL", "refs.npz"],
    "bisect": ["bisect", "MODEL", "--reference", "refs.npz"],
    "diff": ["diff", "MODEL", "good.onnx"],
    "diff the other way": ["diff", "good.onnx", "MODEL", "--run"],
    "split": ["split", "MODEL", "--at", "h"],
    "data ls": ["data", "ls", "MODEL"],
    "data embed": ["data", "embed", "MODEL"],
    "data external": ["data", "external", "MODEL"],
    "data move": ["data", "move", "MODEL", "moved.data"],
    "data gc": ["data", "gc", "MODEL"],
    "data link": ["data", "link", "MODEL", "w.safetensors"],
    "data strip": ["data", "strip", "MODEL"],
    "data unstrip": ["data", "unstrip", "MODEL", "good.onnx"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a good model and references in it."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(FIXTURES / "whole_model.onnx", "good.onnx")
    shutil.copy(FIXTURES / "references" / "whole_model.npz", "refs.npz")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(*words: object, folder: Path) -> tuple[str, str]:
    """(what is wrong, what to try) of a command that must say so and change nothing."""
    before = contents(folder)

    done = CliRunner().invoke(app, list(map(str, words)))

    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stdout == ""
    assert contents(folder) == before
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert lines[0].startswith("error: ")
    assert len(lines) == 2, done.stderr
    return lines[0], lines[1].removeprefix("  ")


def onnxdbg(*words: object, **options) -> subprocess.CompletedProcess[str]:
    given = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
    return subprocess.run([*COMMAND, *map(str, words)], **given)


def write_model(path: str, text: str) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21, "loc" : 1]>\n'
    Path(path).write_bytes(parser.parse_model(header + text).SerializeToString())


def damage(kind: str) -> str:
    """Make what is no model; returns its path."""
    good = Path("good.onnx").read_bytes()
    tensor = numpy_helper.from_array(np.arange(64, dtype=np.float32), "x").SerializeToString()
    match kind:
        case "missing":
            return "missing.onnx"
        case "a directory":
            Path("folder.onnx").mkdir()
            return "folder.onnx"
        case "of another kind":
            Path("bad.onnx").write_bytes(tensor)
        case "cut short":
            Path("bad.onnx").write_bytes(good[: len(good) // 2])
        case "without its end":
            Path("bad.onnx").write_bytes(good[:-1])
        case "in Latin-1":
            Path("bad.onnx").write_bytes(good.replace(b"make_fixtures", b"make_fix\xfctres"))
        case other:
            Path("bad.onnx").write_bytes(
                {"empty": b"", "text": b"hello\n", "noise": b"\xff" * 99}[other]
            )
    return "bad.onnx"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "cannot read 'missing.onnx': No such file or directory"),
        ("a directory", "'folder.onnx' is a directory, not a model"),
        ("empty", "bad.onnx' is empty"),
        ("text", "bad.onnx' is not"),
        ("noise", "bad.onnx' is not"),
        ("cut short", "bad.onnx' is not"),
        ("without its end", "bad.onnx' is not"),
        ("of another kind", "bad.onnx' is not an ONNX model"),
        ("in Latin-1", "producer_name is not UTF-8: b'make_fix\\xfctres'"),
    ],
)
def test_what_is_no_model_is_told(kind, message, verb, folder):
    path = damage(kind)

    wrong, _ = refused(*(path if w == "MODEL" else w for w in VERBS[verb]), folder=folder)

    assert message in wrong


def test_of_many_models_the_most_similar_to_a_misspelt_one_comes_first(folder):
    for name in (*"abcdefg", "encoder", "decoder_step"):
        Path(f"{name}.onnx").touch()

    _, hint = refused("inspect", "encodre.onnx", folder=folder)

    assert hint.startswith("models in that folder: encoder.onnx, decoder_step.onnx, ")
    assert hint.count(".onnx") == 5


def spoil_external_data(kind: str) -> None:
    shutil.copy(FIXTURES / "external.onnx", "model.onnx")
    shutil.copy(FIXTURES / "external.data", "external.data")
    match kind:
        case "missing":
            Path("external.data").unlink()
        case "too short":
            os.truncate("external.data", 1000)
        case "behind a link":
            Path("external.data").rename("elsewhere")
            Path("external.data").symlink_to("elsewhere")
        case "a directory":
            Path("external.data").unlink()
            Path("external.data").mkdir()
        case location:
            proto = onnx.load("model.onnx", load_external_data=False)
            for tensor in proto.graph.initializer:
                for entry in tensor.external_data:
                    entry.value = location if entry.key == "location" else entry.value
            Path("model.onnx").write_bytes(proto.SerializeToString())


@pytest.mark.parametrize("verb", ["inspect", "extract", "run"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "is missing"),
        ("too short", "which has 1000"),
        ("behind a link", "behind a symbolic link"),
        ("../external.data", "outside the model's folder"),
        ("/etc/passwd", "outside the model's folder"),
        ("sub/../../x", "outside the model's folder"),
    ],
)
def test_external_data_that_is_not_there_is_told(kind, message, verb, folder):
    if kind == "missing" and verb != "run":
        pytest.skip("the structure is there")
    spoil_external_data(kind)

    wrong, _ = refused(*("model.onnx" if w == "MODEL" else w for w in VERBS[verb]), folder=folder)

    assert message in wrong


BROKEN = {
    "a cycle": (
        "g (float[1] x) => (float[1] h) { a = Add (x, h) h = Relu (a) }",
        "the graph has a cycle of 2 nodes: Relu @1 -> Add @0 -> Relu @1",
    ),
    "two producers": (
        "g (float[1] x) => (float[1] h) { h = Relu (x) h = Neg (x) }",
        "value 'h' has two producers: Relu @0 and Neg @1",
    ),
    "a recursive function": (
        "g (float[1] x) => (float[1] h) { h = loc.F (x) }\n"
        '<domain: "loc", opset_import: ["" : 21, "loc" : 1]> F (a) => (b) { b = loc.F (a) }',
        "functions call themselves, directly or indirectly: 'loc::F'",
    ),
}


@pytest.mark.parametrize(
    "verb",
    ["extract", "expose", "run", "record", "compare", "bisect", "diff", "split"],
)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_graph_is_told(kind, verb, folder):
    text, message = BROKEN[kind]
    write_model("bad.onnx", text)
    save_tensors("refs.npz", {"x": np.ones(1, np.float32), "h": np.ones(1, np.float32)})
    before = contents(folder)

    done = CliRunner().invoke(app, ["bad.onnx" if w == "MODEL" else w for w in VERBS[verb]])

    assert done.exit_code == 2, (done.output, done.exception)
    assert f"error: {message}" in done.stderr
    assert contents(folder) == before


@pytest.mark.parametrize("kind", BROKEN)
def test_check_reports_a_broken_graph(kind, folder):
    text, message = BROKEN[kind]
    write_model("bad.onnx", text)

    done = CliRunner().invoke(app, ["check", "bad.onnx"])

    assert done.exit_code == 1
    assert f"invalid: {message}" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["extract", "good.onnx", "--outputs", "2x8"], "no value '2x8'", "closest names: '28'"),
        (["extract", "good.onnx", "--outputs", "zzz"], "no value 'zzz'", "onnxdbg print"),
        (["expose", "good.onnx", "op:Gemm"], "no operator 'Gemm'", "it has 'Add', 'Conv'"),
        (["run", "good.onnx", "--fetch", "@99"], "no value '@99'", ""),
        (["record", "good.onnx", "--value", "2x8", "-o", "r"], "no value '2x8'", "'28'"),
        (["inspect", "good.onnx", "--value", "2x8"], "no value '2x8'", "'28'"),
        (["inspect", "good.onnx", "--node", "Conf_1"], "no node 'Conf_1'", "'Conv_1'"),
        (["extract", "good.onnx", "--inputs", "22,22"], "more than once: '22'", "once"),
        (["expose", "good.onnx", "22", "Conv_1"], "more than once: '22'", "once"),
        (["expose", "good.onnx"], "no value is named", "--all"),
        (
            ["extract", "good.onnx", "--inputs", "28", "--outputs", "22"],
            "output '22' lies upstream of the inputs '28'",
            "--inputs 22 --outputs 28",
        ),
        (["extract", "good.onnx", "--inputs", "22", "--outputs", "22"], "both an input and", ""),
        (
            ["extract", "good.onnx", "--inputs", "24", "--outputs", "28"],
            "do not determine '28': '27' also needed, by 27 -> 28",
            "add --auto-inputs, or try: onnxdbg extract good.onnx --inputs 24,27 --outputs 28",
        ),
        (["run", "good.onnx", "--feeds", "missing.npz"], "'missing.npz'", "onnxdbg record"),
        (["run", "good.onnx", "--feeds", "good.onnx"], "not a known kind of reference set", ".npz"),
        (["run", "good.onnx", "--fill", "x=ones"], "no input 'x'", "'input.1'"),
        (["run", "good.onnx", "--fill", "input.1=once"], "'once'", "uniform:0,255"),
        (["run", "good.onnx", "--fill", "ones"], "no '='", "--fill NAME="),
        (["run", "good.onnx", "--fill", "input.1=[1,2]"], "has shape [2]", "leave out --fill"),
        (["run", "good.onnx", "--dim", "n=2"], "no symbolic dimension 'n'", ""),
        (["run", "good.onnx", "--dim", "n=two"], "'two'", "--dim n=1"),
        (["run", "good.onnx", "--provider", "abacus"], "'abacus'", "CPUExecutionProvider"),
        (["run", "good.onnx", "--memory-limit", "much"], "'much' is no size", "4GB"),
        (["run", "good.onnx", "--memory-limit", "-1"], "'-1' is no size", "4GB"),
        (["run", "good.onnx", "--memory-limit", "1e400"], "'1e400' is no size", "4GB"),
        (["run", "good.onnx", "--ops-library", "no.so"], "'no.so'", ".so"),
        (["compare", "good.onnx", "missing"], "'missing'", "onnxdbg record"),
        (["compare", "refs.npz", "good.onnx"], "not a known kind of reference set", ".npz"),
        (["compare", "good.onnx", "refs.npz", "--rtol", "-1"], "0 or more", "--rtol"),
        (["compare", "good.onnx", "refs.npz", "--atol", "nan"], "0 or more", "--atol"),
        (["extract", "good.onnx", "--outputs", "28", "-o", "no/x.onnx"], "no/x.onnx", "mkdir -p"),
        (["expose", "good.onnx", "--all", "-o", "a b/x.onnx"], "a b/x.onnx", "a b'"),
        (["record", "good.onnx", "-o", "no/refs"], "'no/refs'", "mkdir -p no"),
        (["record", "good.onnx", "-o", "no/refs.npz"], "no/refs.npz", "mkdir -p"),
        (["record", "good.onnx", "-o", "good.onnx", "--force"], "is not a folder", "another"),
        (["run", "good.onnx", "--save", "no/out.npz"], "no/out.npz", "mkdir -p"),
        (["bisect", "good.onnx", "--reference", "refs.npz", "-o", "no/x"], "'no'", "mkdir -p no"),
        (["extract", "good.onnx", "--outputs", "28", "-o", "/sys/x.onnx"], "/sys/x", "elsewhere"),
        (["extract", "good.onnx", "--outputs", "28", "-o", "/proc/x.onnx"], "/proc/x", "elsewhere"),
        (["record", "good.onnx", "-o", "/sys/refs"], "/sys/refs", "elsewhere"),
        (["extract", "good.onnx", "--outputs", "28", "-o", "."], "not a regular file", "-o"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_told_with_what_to_try(words, message, hint, folder):
    wrong, what_to_try = refused(*words, folder=folder)

    assert message in wrong
    assert hint in what_to_try


@pytest.mark.parametrize("words", [["record", "net.py", "-o", "r"], ["inspect", "net.py"]])
def test_a_python_file_without_its_function_is_told(words, folder):
    (folder / "net.py").write_text("def make(): ...")

    wrong, what_to_try = refused(*words, folder=folder)

    assert "'net.py' is a Python file, not a model" in wrong
    assert "net.py:FUNCTION" in what_to_try


@pytest.mark.parametrize(
    "words",
    [
        ["edit", "rename", "odd.onnx", r"a\=b=c"],
        ["edit", "set-type", "odd.onnx", r"a\=b=float16"],
        ["edit", "freeze", "odd.onnx", r"a\=b=1"],
        ["run", "odd.onnx", "--fill", r"a\=b=ones"],
    ],
)
def test_a_name_with_an_equals_sign_is_written_with_a_backslash(words, folder):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("a=b", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["a=b"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), "odd.onnx")

    done = CliRunner().invoke(app, words)

    assert done.exit_code == 0, done.stderr
    assert "a=b" in done.output


def test_a_node_where_a_value_was_meant_is_resolved_and_said(folder):
    words = ["extract", "good.onnx", "--inputs", "Conv_1", "--outputs", "28", "-o", "out.onnx"]

    done = CliRunner().invoke(app, words)

    assert done.exit_code == 0
    assert "'Conv_1' is a node: using its output '22'" in done.stderr
    assert [value.name for value in onnx.load("out.onnx").graph.input] == ["22"]


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": np.zeros((1, 3, 20, 20), np.float32)}, "no tensor for input 'input.1'"),
        (
            {"input.1": np.zeros((1, 3, 20, 20), np.int64)},
            "'input.1' has dtype int64, the model declares float",
        ),
        ({"input.1": np.zeros((3, 20, 20), np.float32)}, "'input.1' has shape [3, 20, 20]"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "record", "compare", "bisect"])
def test_feeds_that_do_not_fit_are_told(verb, feeds, message, folder):
    np.savez("feeds.npz", **feeds)
    words = ["good.onnx" if w == "MODEL" else w for w in VERBS[verb]]

    wrong, _ = refused(*words, "--feeds", "feeds.npz", folder=folder)

    assert message in wrong


NAMES = [
    "plain",
    "two words",
    "it's",
    'say "hi"',
    "new\nline",
    "-lead",
    "--inputs",
    "a,b",
    "back\\slash",
    "a\\,b",
    "$HOME `id`",
    "\x1b[31mred",
    "\u202eturned\u00a0",
    "[red]x[/red]",
    "*",
    "é",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_command_that_is_offered_works_when_pasted(name, folder):
    nodes = [
        helper.make_node("Relu", ["x"], [f"{name} 1"]),
        helper.make_node("Neg", ["x"], [name]),
        helper.make_node("Add", [f"{name} 1", name], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    path = folder / "the model's.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())
    given = listed([f"{name} 1"])

    _, hint = refused(
        "extract", path, f"--inputs={given}", "--outputs", "y", "-o", "out.onnx", folder=folder
    )
    offered = hint.removeprefix("add --auto-inputs, or try: onnxdbg ")
    shell = ["bash", "-c", f"{shlex.join(COMMAND)} {offered}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)

    assert hint.isprintable()
    assert done.returncode == 0, done.stderr
    inputs = {value.name for value in onnx.load(folder / "out.onnx").graph.input}
    assert inputs == {f"{name} 1", name}


def test_an_operator_that_the_runtime_lacks_is_told_with_its_node(folder):
    shutil.copy(FIXTURES / "custom_op.onnx", "custom.onnx")

    wrong, hint = refused("run", "custom.onnx", folder=folder)

    assert "no operator my.domain:Thing (node @1)" in wrong
    assert "--ops-library" in hint


@pytest.mark.parametrize(("name", "told"), [("inner", "'inner'"), ("", "'@1'")])
def test_a_dtype_that_the_runtime_lacks_is_told_with_its_node(name, told, folder):
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.UINT16),
        helper.make_node("Unique", ["h"], ["a"], name=name),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    ends = [helper.make_tensor_value_info("a", TensorProto.UINT16, [2])]
    graph = helper.make_graph(nodes, "g", values, ends)
    opset = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    Path("m.onnx").write_bytes(model.SerializeToString())

    wrong, _ = refused("run", "m.onnx", folder=folder)

    assert f"the runtime cannot run Unique for the dtypes of node {told}" in wrong


ENDLESS = """
g (float[2] x) => (float[2] y) {
    trips = Constant <value_int = 4611686018427387904> ()
    always = Constant <value = bool {1}> ()
    y = Loop (trips, always, x) <body = body (int64 i, bool c, float[2] v) => (bool go, float[2] w) {
        go = Identity (c)
        w = Add (v, v)
    }>
}
"""


def test_a_run_beyond_its_time_is_ended(folder):
    write_model("endless.onnx", ENDLESS)
    started = time.monotonic()

    wrong, hint = refused("run", "endless.onnx", "--timeout", "1", folder=folder)

    assert "did not finish within 1 seconds" in wrong
    assert "--timeout" in hint
    assert time.monotonic() - started < 10


def test_a_run_that_fails_is_told_with_its_node(folder):
    write_model(
        "huge.onnx",
        "g (int64[1] n) => (float y) { z = ConstantOfShape (n) y = ReduceSum <keepdims = 0> (z) }",
    )
    np.savez("feeds.npz", n=np.array([1 << 42]))

    wrong, hint = refused("run", "huge.onnx", "--feeds", "feeds.npz", folder=folder)

    assert "ConstantOfShape node. Name:'@0'" in wrong
    assert hint


def children_of(pid: int) -> list[int]:
    """Process ids of the runtime's processes that a command started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listen_to_ctrl_c() -> None:
    """A test run in the background inherits that SIGINT is ignored; a terminal's command does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A run that never ends, and the runtime's process once that is at work."""
    process = subprocess.Popen(
        [*COMMAND, "run", "endless.onnx"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen_to_ctrl_c,
    )
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        children = children_of(process.pid)
        if children and computed(children[0]) > 1:
            return process, children[0]
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the run did not start")


def test_a_runtime_that_is_killed_is_told(folder):
    write_model("endless.onnx", ENDLESS)
    process, child = started(folder)

    os.kill(child, signal.SIGKILL)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, "")
    assert "the runtime's process died: killed, most likely because memory ran out" in err
    assert "Traceback" not in err


def test_a_runtime_that_crashes_is_told(folder):
    write_model("endless.onnx", ENDLESS)
    process, child = started(folder)

    os.kill(child, signal.SIGSEGV)
    _, err = process.communicate(timeout=30)

    assert process.returncode == 2
    assert "the runtime's process died: SIGSEGV" in err


def test_a_runtime_out_of_memory_is_told(folder):
    wrong, _ = refused("run", "good.onnx", "--memory-limit", "10MB", folder=folder)

    assert "runtime" in wrong


def test_ctrl_c_ends_the_run_and_its_process(folder):
    write_model("endless.onnx", ENDLESS)
    process, child = started(folder)

    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert time.monotonic() - sent < 2
    assert process.returncode == 130
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not alive(child)


def test_the_runtime_dies_with_the_command(folder):
    write_model("endless.onnx", ENDLESS)
    process, child = started(folder)

    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not alive(child)


@pytest.mark.parametrize(
    "words",
    [
        ["extract", "good.onnx", "--outputs", "28", "-o", "out.onnx"],
        ["expose", "good.onnx", "--all", "-o", "good.onnx", "--force"],
        ["record", "good.onnx", "-o", "recorded"],
        ["record", "good.onnx", "-o", "recorded.npz"],
        ["record", "good.onnx", "-o", "recorded.safetensors"],
        ["run", "good.onnx", "--save", "refs.npz", "--force"],
    ],
)
def test_a_full_disk_is_told_and_leaves_every_file(words, folder):
    before = contents(folder)

    done = onnxdbg(
        *words,
        cwd=folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )

    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "error: cannot write" in done.stderr
    assert "free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(folder) == before


def write_long_model() -> None:
    nodes = [helper.make_node("Relu", [f"h{i}"], [f"h{i + 1}"]) for i in range(20_000)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("h0", "h20000")]
    graph = helper.make_graph(nodes, "long", values[:1], values[1:])
    Path("long.onnx").write_bytes(helper.make_model(graph).SerializeToString())


def test_a_reader_that_wants_one_line_gets_it(folder):
    write_long_model()
    shell = f"{shlex.join(COMMAND)} print long.onnx | head -1"

    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)

    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_file_is_written_though_its_reader_wants_one_line(folder):
    shell = f"{shlex.join(COMMAND)} edit remove good.onnx Add_7 --bridge 25 -o less.onnx | true"

    subprocess.run(["bash", "-c", shell], check=True)

    assert len(onnx.load("less.onnx").graph.node) == len(onnx.load("good.onnx").graph.node) - 1


@pytest.mark.parametrize("words", [["print", "long.onnx"], ["run", "good.onnx", "--json"]])
def test_a_reader_that_has_gone_gives_no_traceback(words, folder):
    write_long_model()
    process = subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()

    assert process.wait(30) == 2
    assert not [line for line in told.splitlines() if not line.startswith("note: ")]


def test_an_error_keeps_its_exit_code_when_no_one_reads_it(folder):
    shell = f"{shlex.join(COMMAND)} inspect missing.onnx 2>/dev/full"

    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "Traceback" not in done.stdout


def test_a_result_that_cannot_be_written_is_an_error(folder):
    shell = f"{shlex.join(COMMAND)} inspect good.onnx >/dev/full"

    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def obey_permissions() -> None:
    """Take away what lets root write anywhere."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert ctypes.CDLL(None).prctl(24, capability) == 0  # PR_CAPBSET_DROP


@pytest.mark.parametrize(
    "words",
    [
        ["extract", "good.onnx", "--outputs", "28", "-o", "shut/x.onnx"],
        ["record", "good.onnx", "-o", "shut/refs"],
        ["record", "good.onnx", "-o", "shut/refs.npz"],
        ["run", "good.onnx", "--save", "shut/x.safetensors"],
    ],
)
def test_a_folder_that_may_not_be_written_to_is_told(words, folder):
    (folder / "shut").mkdir(mode=0o555)

    done = onnxdbg(*words, cwd=folder, preexec_fn=obey_permissions)

    assert (done.returncode, done.stdout) == (2, "")
    assert "Permission denied" in done.stderr
    assert "write elsewhere with -o" in done.stderr
    assert list((folder / "shut").iterdir()) == []


def test_a_model_that_may_not_be_read_is_told(folder):
    (folder / "good.onnx").chmod(0)

    done = onnxdbg("inspect", "good.onnx", cwd=folder, preexec_fn=obey_permissions)

    assert done.returncode == 2
    assert "is not readable" in done.stderr


@pytest.mark.parametrize("typed", ["--refs", "--ref", "--refrence"])
def test_an_unknown_option_is_told_with_those_that_begin_alike(typed):
    done = CliRunner().invoke(app, ["bisect", "model.onnx", typed, "refs"], color=False)

    assert done.exit_code == 2
    assert "(Possible options: --reference)" in done.output


def test_a_value_for_an_option_that_takes_none_is_told():
    done = CliRunner().invoke(app, ["edit", "sort", "model.onnx", "--force=x"], color=False)

    assert done.exit_code == 2
    assert "does not take a value" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simplify", "a model.onnx"], "try: onnxdbg edit simplify 'a model.onnx'"),
        (["simplfy", "a.onnx"], "No such command 'simplfy'; try: onnxdbg edit simplify a.onnx"),
        (["extrat", "a.onnx"], "No such command 'extrat'. Did you mean 'extract'"),
        (["ls", "model.onnx"], "try: onnxdbg data ls model.onnx"),
        (["bisect", "a.onnx", "b.onnx"], "another model to compare with is --against MODEL"),
    ],
)
def test_a_command_of_another_form_is_told(words, said):
    result = CliRunner().invoke(app, words, env={"COLUMNS": "300"})

    assert result.exit_code == 2
    assert said in result.output
