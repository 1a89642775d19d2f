"""`onnxdbg bisect` and `rank` on the command line: what they take, what they leave, what they say."""

import json
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
from onnx import TensorProto, helper, numpy_helper, parser

from kit import COMMAND, FIXTURES
from kit.commands import onnxdbg
from onnxsurgeon_lite import load
from onnxsurgeon_lite.cli.options import look
from onnxsurgeon_lite.runtime.session import run_model
from onnxsurgeon_lite.tensors.references import save_tensors, write_test_data

REFERENCES = FIXTURES / "references" / "whole_model.npz"


@pytest.fixture
def folder(tmp_path):
    shutil.copy(FIXTURES / "faulty_attribute.onnx", tmp_path / "model.onnx")
    return tmp_path


def test_without_arguments_it_takes_what_lies_around_and_says_so(folder):
    shutil.copy(REFERENCES, folder / "refs.npz")

    done = onnxdbg("bisect", cwd=folder)

    assert done.returncode == 1
    assert "note: took 'model.onnx' and the references 'refs.npz'" in done.stderr
    assert "(@6)" in done.stdout


def test_the_layout_of_onnx_is_enough(folder):
    shutil.copytree(FIXTURES / "references" / "test_data_set_0", folder / "test_data_set_0")

    done = onnxdbg("bisect", "--no-cause", cwd=folder)

    assert done.returncode == 1
    assert "test_data_set_0" in done.stderr


def test_a_config_file_says_what_to_take(folder):
    shutil.copy(REFERENCES, folder / "elsewhere.npz")
    shutil.copy(folder / "model.onnx", folder / "another.onnx")
    (folder / "onnxdbg.toml").write_text('model = "model.onnx"\nreference = "elsewhere.npz"\n')

    done = onnxdbg("bisect", cwd=folder)

    assert done.returncode == 1
    assert "as 'onnxdbg.toml' says" in done.stderr


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda f: None, "there is no reference set in this folder"),
        (lambda f: shutil.copy(f / "model.onnx", f / "b.onnx"), "there are 2 of them, a model"),
        (lambda f: (f / "onnxdbg.toml").write_text("model = 3"), "does not say what to bisect"),
        (lambda f: (f / "onnxdbg.toml").write_text("= ="), "cannot read 'onnxdbg.toml'"),
    ],
)
def test_what_cannot_be_guessed_is_asked_for(prepare, said, folder):
    prepare(folder)

    done = onnxdbg("bisect", cwd=folder)

    assert done.returncode == 2
    assert said in done.stderr
    assert "onnxdbg bisect" in done.stderr or "toml" in done.stderr


def test_several_samples_are_judged_and_the_worst_explained(folder):
    right = load(FIXTURES / "whole_model.onnx")
    names = [node.output[0] for node in right.proto.graph.node]
    exposed = right.copy()
    declared = {v.name for v in exposed.proto.graph.output}
    exposed.proto.graph.output.extend(
        onnx.ValueInfoProto(name=n) for n in names if n not in declared
    )
    for number, size in enumerate((0.0, 1.0, 30.0)):
        given = {"input.1": np.full((1, 3, 20, 20), size, np.float32)}
        write_test_data(folder / f"test_data_set_{number}", given, run_model(exposed, given))

    done = onnxdbg("bisect", "model.onnx", "--reference", ".", "--json", cwd=folder)

    samples = json.loads(done.stdout)["samples"]
    assert samples["total"] == 3
    assert samples["worst"] in samples["failing"]
    assert samples["same"]


def test_a_model_is_bisected_against_another(folder):
    done = onnxdbg(
        *("bisect", "model.onnx", "--against", FIXTURES / "whole_model.onnx", "--json"), cwd=folder
    )

    assert [c["value"] for c in json.loads(done.stdout)["culprits"]] == ["27"]


def test_a_half_precision_copy_is_compared_in_the_wider_dtype(folder):
    text = """<ir_version: 10, opset_import: ["" : 21]>
        net ({t}[2,8] x) => ({t}[2,8] y) {{ a = Mul (x, w) b = Tanh (a) y = Add (b, w) }}"""
    for name, dtype, np_dtype in (("wide", "float", np.float32), ("half", "float16", np.float16)):
        model = parser.parse_model(text.format(t=dtype))
        weight = np.linspace(0.5, 1.5, 8).astype(np_dtype)
        model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
        onnx.save(model, folder / f"{name}.onnx")
    broken = onnx.load(folder / "half.onnx")
    broken.graph.node[1].op_type = "Sigmoid"
    onnx.save(broken, folder / "broken.onnx")

    good = onnxdbg("bisect", "half.onnx", "--against", "wide.onnx", cwd=folder)
    bad = onnxdbg("bisect", "broken.onnx", "--against", "wide.onnx", "--json", cwd=folder)

    assert good.returncode == 0, good.stdout
    assert [c["value"] for c in json.loads(bad.stdout)["culprits"]] == ["b"]
    notes = json.loads(bad.stdout)["outputs"]["y"]["notes"]
    assert notes == ["compared across dtypes: float16 with float32"]


def test_two_settings_of_one_model_are_compared(folder):
    done = onnxdbg(
        "bisect", "model.onnx", "--a", "opt=none", "--b", "opt=all,threads=1", cwd=folder
    )

    assert done.returncode == 0
    assert done.stdout.startswith("agrees at '31'")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--a", "speed=3"], "speed=3 is no setting"),
        (["--a", "opt"], "has no '='"),
        (["--reference", "r.npz", "--against", "m.onnx"], "several things to compare with"),
        (["--find", "zero"], "--find 'zero' is unknown"),
        (["--reference", "r.npz", "--resume"], "nothing to resume"),
        (["--reference", "r.npz", "--journal", "j", "--resume"], "no journal"),
        (["--reference", "r.npz", "--look", "twice"], "--look 'twice' does not exist"),
    ],
)
def test_options_without_meaning_are_refused(words, said, folder):
    shutil.copy(REFERENCES, folder / "r.npz")

    done = onnxdbg("bisect", "model.onnx", *words, cwd=folder)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_looks_keep_their_old_names(folder):
    words = ["bisect", "model.onnx", "--reference", str(REFERENCES), "--look", "written"]

    done = onnxdbg(*words, "--json", cwd=folder)

    assert json.loads(done.stdout)["look"] == "unoptimized"
    assert look("shipped") == "optimized"


def test_the_optimized_graph_is_searched_also_where_channels_do_not_fill_a_block(folder):
    model = FIXTURES / "faulty_attribute.onnx"
    words = ["bisect", model, "--reference", REFERENCES, "--look", "optimized", "--json"]

    done = onnxdbg(*words, cwd=folder)

    (culprit,) = json.loads(done.stdout)["culprits"]
    assert culprit["covers"] == ["@4", "@6", "@7"]  # '27' is fused into the sum, and cannot be seen


def slow_model(folder: Path) -> None:
    """Twelve nodes that take a while each, the eighth of them wrong."""
    names = [f"h{i}" for i in range(12)]
    nodes = [
        helper.make_node("MatMul", [f"h{i - 1}" if i else "x", "w"], [f"h{i}"]) for i in range(12)
    ]
    square = helper.make_tensor_type_proto(TensorProto.FLOAT, [800, 800])
    weight = np.random.default_rng(0).standard_normal((800, 800)).astype(np.float32) / 28
    graph = helper.make_graph(
        nodes,
        "slow",
        [helper.make_value_info("x", square)],
        [helper.make_value_info(names[-1], square)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(weight * 1.1, "v")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, folder / "right.onnx")
    model.graph.node[7].input[1] = "v"
    onnx.save(model, folder / "slow.onnx")
    done = onnxdbg("record", "right.onnx", "-o", "refs", cwd=folder)
    assert done.returncode == 0, done.stderr


WORDS = ("bisect", "slow.onnx", "--reference", "refs", "--memory", "3MB", "--journal", "journal")


def answers(folder: Path) -> int:
    journal = folder / "journal"
    return len(journal.read_text().splitlines()) - 1 if journal.exists() else 0


def cut_short(folder: Path, how: int) -> subprocess.CompletedProcess:
    """The search, ended by a signal once it has some answers."""
    process = subprocess.Popen(
        [*COMMAND, *WORDS],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while answers(folder) < 4 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(WORDS, process.returncode, out, err)


def test_ctrl_c_says_how_far_the_search_is_and_resume_goes_on(tmp_path):
    slow_model(tmp_path)

    stopped = cut_short(tmp_path, signal.SIGINT)
    resumed = onnxdbg(*WORDS, "--resume", "--json", cwd=tmp_path)

    assert stopped.returncode == 130
    assert "interrupted" in stopped.stderr
    assert "good up to 'h" in stopped.stderr
    assert "--resume" in stopped.stderr
    assert [c["value"] for c in json.loads(resumed.stdout)["culprits"]] == ["h7"]


def hard_model(folder: Path) -> None:
    """A chain of layers, one with other weights by chance, and references of its end alone: no mistake explains it."""
    rng = np.random.default_rng(0)
    lines, names = [], ["x"]
    for i in range(12):
        lines += [f"m{i} = MatMul (h{i - 1}, w{i})".replace("h-1", "x"), f"h{i} = Tanh (m{i})"]
        names.append(f"w{i}")
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        f"hard (float[3,64] x) => (float[3,64] h11) {{ {chr(10).join(lines)} }}"
    )
    weights = {f"w{i}": rng.standard_normal((64, 64)).astype(np.float32) / 8 for i in range(12)}
    for name in ("right", "hard"):
        kept = (numpy_helper.from_array(array, each) for each, array in weights.items())
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        onnx.save(model, folder / f"{name}.onnx")
        weights["w5"] = rng.standard_normal((64, 64)).astype(np.float32) / 8
    done = onnxdbg("record", "right.onnx", "-o", "refs", "--value", "h11", cwd=folder)
    assert done.returncode == 0, done.stderr


def test_the_headline_comes_before_the_causes_and_ctrl_c_then_keeps_it(tmp_path):
    hard_model(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, "bisect", "hard.onnx", "--reference", "refs", "--seconds", "60", "-o", "made"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    headline = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, notes = process.communicate(timeout=30)

    assert headline.startswith("wrong node: one of 24 nodes up to Tanh")
    assert process.returncode == 1
    assert headline not in rest
    assert "cause: not known: its search was interrupted" in rest
    said = "note: interrupted: not looked for: more about the cause, a reproducer"
    assert said in notes
    assert not (tmp_path / "made").exists()


def test_a_search_that_was_killed_is_resumed_with_the_same_answer(tmp_path):
    slow_model(tmp_path)
    whole = json.loads(onnxdbg(*WORDS[:-2], "--json", "-o", "first", cwd=tmp_path).stdout)

    killed = cut_short(tmp_path, signal.SIGKILL)
    resumed = json.loads(onnxdbg(*WORDS, "--resume", "--json", cwd=tmp_path).stdout)

    assert killed.returncode == -signal.SIGKILL
    assert answers(tmp_path) >= 4
    assert resumed["culprits"] == whole["culprits"]


def test_a_full_disk_ends_the_journal_and_not_the_search(folder):
    shutil.copy(REFERENCES, folder / "r.npz")
    os.mkfifo(folder / "gone")

    words = ("bisect", "model.onnx", "--reference", "r.npz", "--journal", "/dev/full")
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "journal" in done.stderr
    assert "(@6)" in done.stdout


def test_a_journal_of_another_question_is_refused(folder):
    shutil.copy(REFERENCES, folder / "r.npz")
    words = ("bisect", "model.onnx", "--reference", "r.npz", "--journal", "j", "--force")
    onnxdbg(*words, cwd=folder)

    done = onnxdbg(*words, "--resume", "--rtol", "1e-2", cwd=folder)

    assert done.returncode == 2
    said = " ".join(done.stderr.split())  # a long folder breaks the line
    assert "belongs to another model, references or options" in said


def test_references_in_half_precision_are_compared_and_that_is_said(folder):
    with np.load(REFERENCES) as stored:
        half = {name: stored[name].astype(np.float16) for name in stored if name != "input.1"}
        save_tensors(folder / "half.npz", {**half, "input.1": stored["input.1"]})

    done = onnxdbg("bisect", "model.onnx", "--reference", "half.npz", "--json", cwd=folder)

    result = json.loads(done.stdout)
    assert [c["value"] for c in result["culprits"]] == ["27"]
    assert result["outputs"]["31"]["notes"] == ["compared across dtypes: float32 with float16"]


def test_references_with_nan_in_them_mismatch_where_they_have_it(folder):
    shutil.copy(FIXTURES / "whole_model.onnx", folder / "model.onnx")
    with np.load(REFERENCES) as stored:
        values = dict(stored)
    values["25"] = np.full_like(values["25"], np.nan)
    values["28"] = values["29"] = values["30"] = values["31"] = values["25"]
    save_tensors(folder / "nan.npz", values)

    done = onnxdbg("bisect", "model.onnx", "--reference", "nan.npz", "--json", cwd=folder)

    culprit = json.loads(done.stdout)["culprits"][0]
    assert culprit["value"] == "25"
    assert done.returncode == 1


def test_a_model_that_cannot_run_is_an_error(folder):
    model = onnx.load(folder / "model.onnx")
    model.graph.node[3].op_type = "NoSuchOperator"
    onnx.save(model, folder / "model.onnx")
    shutil.copy(REFERENCES, folder / "r.npz")

    done = onnxdbg("bisect", "model.onnx", "--reference", "r.npz", cwd=folder)

    assert done.returncode == 2
    assert "NoSuchOperator" in done.stderr
    assert not list(folder.glob("*.culprit"))


def quantized_pair(folder: Path) -> None:
    """A float model of three layers and a copy in QDQ form; the result of the first gets a hopeless scale."""
    rng = np.random.default_rng(0)
    lines, qdq, constants, more, stream, q = [], [], {}, {}, "x", "x"
    for i in range(3):
        constants[f"w{i}"] = (rng.standard_normal((8, 8)) / 3).astype(np.float32)
        more |= {f"s{i}": np.float32(0.03 if i != 1 else 0.9), f"z{i}": np.int8(0)}
        lines.append(f"m{i} = MatMul ({stream}, w{i})")
        qdq += [
            f"q{i} = QuantizeLinear ({q}, s{i}, z{i})",
            f"d{i} = DequantizeLinear (q{i}, s{i}, z{i})",
            f"m{i} = MatMul (d{i}, w{i})",
        ]
        stream = q = f"m{i}"
    for name, body, extra in (("float", lines, {}), ("qdq", qdq, more)):
        model = parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]>\n'
            f"net (float[4,8] x) => (float[4,8] m2) {{ {chr(10).join(body)} }}"
        )
        model.graph.initializer.extend(
            numpy_helper.from_array(np.asarray(v), n) for n, v in {**constants, **extra}.items()
        )
        for node in model.graph.node:
            node.name = f"/layer/{node.output[0]}"
        onnx.save(model, folder / f"{name}.onnx")


def test_rank_puts_the_lossiest_node_first_and_prints_names_to_exclude(tmp_path):
    quantized_pair(tmp_path)

    done = onnxdbg("rank", "qdq.onnx", "--against", "float.onnx", "--json", cwd=tmp_path)

    result = json.loads(done.stdout)
    assert [node["name"] for node in result["nodes"]][0] == "/layer/m0"
    assert result["exclude"] == ["/layer/m0"]
    float_names = {node.name for node in onnx.load(tmp_path / "float.onnx").graph.node}
    assert float_names.issuperset(result["exclude"])


def test_what_float16_would_lose_is_told_from_one_float32_run(tmp_path):
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        net (float[4] x) => (float[4] y, float[4] z) {
            big = Mul (x, w)
            y = Log (big)
            tiny = Div (x, w)
            fine = Add (x, x)
            z = Add (fine, tiny)
        }""")
    weight = np.float32([1e6, 1e7, 1e8, 1e9])
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "feeds.npz", x=np.float32([1, 2, 3, 4]) * 1e-3)

    done = onnxdbg("rank", "m.onnx", "--fp16-risk", "--feeds", "feeds.npz", "--json", cwd=tmp_path)

    nodes = {node["value"]: node for node in json.loads(done.stdout)["nodes"]}
    assert nodes["big"]["overflowing"] == 2
    assert nodes["big"]["clamped"] == ["w"]
    assert nodes["tiny"]["vanishing"] == 4
    assert "fine" not in nodes
    assert nodes["big"]["keep"]
    assert not nodes["tiny"]["keep"]  # it vanishes beside `fine`


def test_the_reproducer_needs_nothing_but_onnx_and_numpy(folder):
    shutil.copy(REFERENCES, folder / "r.npz")
    onnxdbg("bisect", "model.onnx", "--reference", "r.npz", "-o", "out", cwd=folder)
    script = (folder / "out" / "repro.py").read_text()

    done = subprocess.run(
        [sys.executable, "-I", "out/repro.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout == "MISMATCH\n"
    assert "onnxsurgeon" not in script
    assert len(script.splitlines()) < 20
    report = (folder / "out" / "report.md").read_text()
    assert "wrong node" in report
    assert "`python repro.py`" in report


def test_weights_that_the_references_speak_of_are_not_stripped(folder):
    shutil.copy(REFERENCES, folder / "r.npz")

    done = onnxdbg(
        "bisect",
        "model.onnx",
        "--reference",
        "r.npz",
        "-o",
        "out",
        "--strip-weights",
        cwd=folder,
    )

    assert "kept the weights" in done.stderr
