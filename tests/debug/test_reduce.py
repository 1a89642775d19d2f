"""`reduce`: planted failures, whose smallest size is known by construction, and what is kept when it is interrupted."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxsurgeon_lite as osl
from kit.planted import FAILURES, MODULE
from onnxsurgeon_lite.debug.journal import Journal
from onnxsurgeon_lite.debug.reduction import shrinking
from onnxsurgeon_lite.debug.reduction.asking import Questions
from onnxsurgeon_lite.debug.reduction.conditions import (
    Condition,
    Failing,
    FailingProgram,
    Reason,
    SeenValues,
    alike,
)
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.runtime.feeds import Recipe
from onnxsurgeon_lite.runtime.session import Runtime

CHAIN = "g (float[4] x) => (float[4] y) { a = Relu (x)  h = Neg (a)  l = Log (h)  y = Abs (l) }"
ONES = {"x": np.ones(4, np.float32)}


def test_there_are_at_least_24_planted_failures():
    assert len(FAILURES) >= 24


@pytest.mark.parametrize("name", FAILURES)
def test_a_planted_failure_is_reduced_to_its_smallest_size_and_proved(name, tmp_path):
    failure = FAILURES[name]

    found = osl.reduce(
        failure.make(),
        failure.fails,
        command=failure.command,
        feeds=failure.feeds,
        output=tmp_path / "small",
        **failure.how,
    )

    assert found.after.nodes <= failure.nodes
    assert found.calls <= 150
    # a function of this process is not asked in another
    assert found.proved or callable(failure.fails)
    assert found.complete
    assert found.reason.kind in (tmp_path / "small" / "README.md").read_text()


def searched(failing: Failing, fails, runtime: Runtime, asked: list, jobs: int = 1) -> Failing:
    """Reduce a model with a condition that is a function."""

    def ask(case: Failing) -> Reason | None:
        asked.append(case)
        return Reason("fails") if fails(case) else None

    seen, reason = SeenValues(runtime, Recipe()), Reason("fails")
    questions = Questions([ask] * jobs, reason, 1)
    search = shrinking.Shrinking(questions, reason, seen, Journal(), failing, lambda _: None)
    return search.run()


def operators(case: Failing) -> list[str]:
    return [node.op_type for node in case.model.proto.graph.node]


@pytest.mark.parametrize("place", range(0, 40, 3))
def test_each_node_of_a_chain_is_found_in_few_questions(place, model_of, runtime):
    names = ["x", *(f"h{i}" for i in range(40))]
    lines = [
        f"{names[i + 1]} = {'Softsign' if i == place else 'Abs'} ({names[i]})" for i in range(40)
    ]
    model = model_of(f"chain (float[2] x) => (float[2] h39) {{ {' '.join(lines)} }}")
    asked: list[Failing] = []

    found = searched(
        Failing(model, {"x": np.ones(2, np.float32)}),
        lambda case: "Softsign" in operators(case),
        runtime,
        asked,
    )

    assert operators(found) == ["Softsign"]
    assert len(asked) <= 24


def test_what_was_refused_is_not_asked_again_after_an_unrelated_step(model_of, runtime):
    model = model_of(
        "g (float[2] x) => (float[2] y) { a = Softsign (x)  b = Neg (a)  c = Softplus (b)  y = Abs (c) }"
    )
    asked: list[Failing] = []

    searched(
        Failing(model, {"x": np.ones(2, np.float32)}),
        lambda case: {"Softsign", "Softplus"} <= {*operators(case)},
        runtime,
        asked,
    )

    keys = [case.key for case in asked]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("jobs", [2, 4])
def test_several_questions_at_a_time_give_the_same_result(jobs, model_of, runtime):
    lines = [f"a{i} = Softsign (b{i})  b{i + 1} = Neg (a{i})" for i in range(6)]
    text = f"g (float[2] b0) => (float[2] b6) {{ {' '.join(lines)} }}"
    first = Failing(model_of(text), {"b0": np.ones(2, np.float32)})
    at_once, most, lock = 0, 0, threading.Lock()

    def fails(case: Failing) -> bool:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return operators(case).count("Softsign") == 6

    alone = searched(first, fails, runtime, [])
    assert most == 1
    together = searched(first, fails, runtime, [], jobs)

    assert most == jobs
    assert together.key == alone.key
    assert [step.name for step in together.steps] == [step.name for step in alone.steps]


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="real-time signals")
def test_a_program_may_end_by_a_signal_without_a_name(model_of):
    fails = FailingProgram("sh -c 'kill -40 $$' {model}")

    reason = fails(Failing(model_of(CHAIN), ONES))

    assert reason.kind == "exit code -40"


def test_what_a_condition_says_does_nothing_to_the_terminal(model_of):
    found = osl.reduce(model_of(CHAIN), lambda *_: "red \x1b[m", feeds=ONES)

    assert r"red \x1b[m" in str(found)
    assert "\x1b" not in str(found)


def test_a_model_that_does_not_fail_is_refused():
    with pytest.raises(UsageError, match="the model does not fail"):
        osl.reduce(osl.build("g (float[2] x) => (float[2] y) { y = Relu (x) }"), "error")


def test_a_condition_that_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="'broken' is no condition"):
        osl.reduce(osl.build(CHAIN), "broken")


def test_a_program_without_a_model_is_refused():
    with pytest.raises(UsageError, match="has no {model}"):
        osl.reduce(osl.build(CHAIN), command="true")


def test_a_mismatch_between_settings_is_no_other_failure(tmp_path):
    with pytest.raises(UsageError, match="does not fail"):
        osl.reduce(osl.build(CHAIN), "mismatch", feeds=ONES, b="opt=basic")


def test_messages_are_alike_but_for_names_and_numbers(model_of):
    names = Failing(model_of(CHAIN), {}).names

    one = alike("node h at 0x1f: 'x' has 3 rows (node @2, @3)", names)
    two = alike("node l at 0x2e: 'y' has 14 rows", names)

    assert one == two == "node _ at #: '_' has # rows"


def test_a_word_that_was_a_name_of_the_first_model_makes_no_other_failure(tmp_path):
    """The message has the word `a`, which is the name of a value until that leaves."""
    (tmp_path / "check.py").write_text(
        "import sys\nsys.exit('this is a failure' if b'Log' in open(sys.argv[1], 'rb').read() else 0)"
    )

    found = osl.reduce(osl.build(CHAIN), command=f"{sys.executable} {tmp_path}/check.py {{model}}")

    assert [value.name for value in found.model.proto.graph.input] == ["v0"]
    assert found.after.nodes == 1


def test_a_crash_that_becomes_another_error_is_no_reduction(tmp_path):
    """The Optional alone would crash the runtime: that is another failure."""
    found = osl.reduce(FAILURES["optional"].make(), "error")

    assert found.reason.kind == "error"
    assert found.after.nodes == 2


def reducing(folder: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "onnxsurgeon_lite", "reduce", "model.onnx", "-o", "small"]
    return subprocess.Popen([*command, *more], cwd=folder, stdout=-1, stderr=-1, text=True)


@pytest.fixture
def slow(tmp_path) -> tuple[Path, tuple[str, ...]]:
    """A model, and a condition that takes a while."""
    onnx.save(MODULE.within("out = Softsign (h)", "out"), tmp_path / "model.onnx")
    (tmp_path / "check.py").write_text(
        "import sys, time; time.sleep(0.1)\n"
        "model = open(sys.argv[1], 'rb').read()\n"
        "fails = b'Softsign' in model and model.count(b'Relu') > 2\n"
        "open('log', 'a').write(f'asked {len(model)} {fails}\\n')\n"
        "sys.exit(fails)\n"
    )
    return tmp_path, ("--command", f"{sys.executable} {tmp_path}/check.py {{model}}")


def asked_in(folder: Path) -> int:
    log = folder / "log"
    return log.read_text().count("asked") if log.exists() else 0


def has_shrunk(folder: Path) -> bool:
    """Return whether a smaller model failed, and a question was asked after that."""
    log = folder / "log"
    first, *rest = log.read_text().splitlines() if log.exists() else [""]
    failing = [line for line in rest[:-1] if line.endswith("True")]
    return any(int(line.split()[1]) < int(first.split()[1]) for line in failing)


def test_a_killed_search_loses_the_last_step_alone(slow):
    folder, condition = slow
    process = reducing(folder, *condition)
    while asked_in(folder) < 5:
        time.sleep(0.05)
    process.kill()
    process.communicate()
    before = asked_in(folder)

    resumed = reducing(folder, "--resume", *condition)
    out, err = resumed.communicate()
    after = asked_in(folder)
    whole = reducing(folder, "--force", *condition)
    whole.communicate()

    assert resumed.returncode == 0, err
    assert "-> 4 nodes," in out
    # the first question is asked anew, the others once, but for the last
    assert after - 1 <= asked_in(folder) - after + 2
    assert before >= 5


def test_an_interrupted_search_keeps_the_best_so_far(slow):
    folder, condition = slow
    process = reducing(folder, *condition)
    while not has_shrunk(folder):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate()

    assert process.returncode == 130
    assert "interrupted" in out
    kept = onnx.load(folder / "small" / "model.onnx")
    assert "Softsign" in {node.op_type for node in kept.graph.node}
    assert len(kept.graph.node) < 26
    assert (folder / "small.journal").exists()


def test_the_result_as_json(tmp_path):
    onnx.save(FAILURES["missing operator"].make(), tmp_path / "model.onnx")

    out, err = reducing(tmp_path, "--fails", "error", "--json").communicate()

    told = json.loads(out)
    assert told["reason"]["kind"] == "error", err
    assert told["after"]["nodes"] == 1
    assert told["proved"] is True


def test_the_script_of_a_result_needs_no_package_of_ours(tmp_path):
    osl.reduce(
        FAILURES["NaN"].make(), "nan", feeds=FAILURES["NaN"].feeds, output=tmp_path / "small"
    )

    text = (tmp_path / "small" / "repro.py").read_text()
    done = subprocess.run([sys.executable, "repro.py"], cwd=tmp_path / "small", check=False)

    assert "onnxsurgeon" not in text
    assert done.returncode == 1


def test_names_are_no_markup_of_the_text_for_an_issue(tmp_path):
    name = "a\n```\n\n<img src=http://127.0.0.1/x.png>\n# title\n"
    model = osl.build("g (float[2] x) => (float[2] y) { y = Neg (x) }").proto
    model.graph.node[0].op_type = model.graph.node[0].name = name

    osl.reduce(model, "error", output=tmp_path / "small")

    lines = (tmp_path / "small" / "README.md").read_text().splitlines()
    hostile = [line for line in lines if "<img" in line or "title" in line or "```" in line]
    assert hostile
    assert all(line.startswith("    ") for line in hostile)


def test_a_malformed_constant_is_no_end_of_the_search(tmp_path):
    model = osl.build(CHAIN).proto
    model.graph.initializer.add(name="w", data_type=onnx.TensorProto.DOUBLE, raw_data=bytes(1600))
    model.graph.node.add(op_type="Add", input=["w", "w"], output=["unread"])
    onnx.save(model, tmp_path / "m.onnx")

    found = osl.reduce(tmp_path / "m.onnx", "error")

    assert (found.complete, found.after.nodes) == (True, 1)


def softplus() -> onnx.ModelProto:
    """A chain with a Softplus, whose nodes say something of themselves."""
    model = MODULE.within("out = Softplus (h)", "out")
    for node in model.graph.node:
        node.name, node.doc_string = f"net/{node.output[0]}", "of a customer"
        node.metadata_props.add(key="file", value="customer.py")
    model.doc_string = model.graph.doc_string = "of a customer"
    model.metadata_props.add(key="owner", value="a customer")
    return model


def test_a_node_that_makes_nothing_is_no_end_of_the_search(tmp_path):
    model = osl.build(CHAIN).proto
    model.graph.node.add(op_type="Relu", input=["h"])
    onnx.save(model, tmp_path / "m.onnx")

    found = osl.reduce(tmp_path / "m.onnx", "error")

    assert (found.complete, found.after.nodes) == (True, 2)  # another one makes the output


def test_a_model_without_outputs_is_no_end_of_the_search(tmp_path):
    model = osl.build(
        "g (float[4] x) => (float[8] y) { s = SequenceConstruct(x, x)"
        " a = ConcatFromSequence<axis = 0>(s) y = Relu(a) }"
    ).proto
    model.graph.ClearField("output")
    onnx.save(model, tmp_path / "m.onnx")

    found = osl.reduce(tmp_path / "m.onnx", "error")

    assert found.complete


def test_a_function_is_a_condition_and_what_it_returns_is_the_reason():
    def fails(model: osl.Model, feeds: dict) -> str:
        return "no Softplus" * any(n.op_type == "Softplus" for n in model.proto.graph.node)

    found = osl.reduce(softplus(), fails)

    assert (found.reason.kind, found.reason.text) == ("function", "no Softplus")
    assert found.proved is None  # the function is of this process
    assert found.after.nodes == 1
    assert found.found <= found.calls <= 5


def test_a_function_of_a_file_is_a_condition(tmp_path):
    onnx.save(softplus(), tmp_path / "model.onnx")
    (tmp_path / "check.py").write_text(
        "def fails(model, feeds):\n    return b'Softplus' in model.proto.SerializeToString()\n"
    )

    out, err = reducing(tmp_path, "--fails", "check.py:fails").communicate()

    assert "-> 1 node," in out, err
    assert "reproduce: onnxdbg reduce small/model.onnx" in out
    assert "in a process of its own: not run" in out


def test_what_a_function_raises_is_an_error_of_the_call():
    def fails(model: osl.Model, feeds: dict) -> bool:
        return bool(1 / 0)

    with pytest.raises(UsageError, match="'fails' raised ZeroDivisionError"):
        osl.reduce(softplus(), fails)


def test_documentation_and_metadata_leave():
    found = osl.reduce(softplus(), command=MODULE.program("both-Softplus"))

    assert b"customer" not in found.model.proto.SerializeToString()
    assert found.model.proto.graph.node[0].name == ""


def test_metadata_that_the_failure_needs_stays():
    def fails(model: osl.Model, feeds: dict) -> bool:
        return any(node.metadata_props for node in model.proto.graph.node)

    found = osl.reduce(softplus(), fails)

    assert found.after.nodes == 1
    assert b"customer.py" in found.model.proto.SerializeToString()


def test_attributes_become_their_defaults_where_the_failure_does_not_need_them():
    model = MODULE.within("s = Softmax <axis = 0> (h)  out = LeakyRelu <alpha = 0.5> (s)", "out")

    def fails(model: osl.Model, feeds: dict) -> bool:
        nodes = {node.op_type: list(node.attribute) for node in model.proto.graph.node}
        return bool(nodes.get("Softmax")) and "LeakyRelu" in nodes

    found = osl.reduce(model, fails)

    attributes = {n.op_type: [a.name for a in n.attribute] for n in found.model.proto.graph.node}
    assert attributes == {"Softmax": ["axis"], "LeakyRelu": []}


def test_numbers_become_short_where_they_may_not_be_0_or_1():
    def fails(model: osl.Model, feeds: dict) -> bool:
        return all((np.abs(value) > 1.05).all() for value in feeds.values())

    model = osl.build("g (float[3] x) => (float[3] y) { y = Softplus (x) }")
    found = osl.reduce(model, fails, feeds={"x": np.array([1.2345, 2.34567, 7.891], np.float32)})

    (value,) = found.feeds.values()
    assert value.tolist() == [np.float32(1.2)]


def test_the_recipe_makes_the_result_of_the_first_model(tmp_path):
    first = softplus()
    found = osl.reduce(first, command=MODULE.program("both-Softplus"), output=tmp_path / "small")

    again = osl.apply(tmp_path / "small" / "recipe.toml", first).model

    assert [n.op_type for n in again.proto.graph.node] == ["Softplus"]
    assert again.proto.graph.node == found.model.proto.graph.node


def test_a_ratio_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="slower=much says no ratio"):
        osl.reduce(osl.build(CHAIN), "slower=much")


def test_settings_whose_times_are_compared_let_threads_spin_unless_they_say_otherwise():
    begun: list[osl.RuntimeOptions] = []
    usual, silent = (
        osl.RuntimeOptions(),
        osl.RuntimeOptions(settings=(("session.intra_op.allow_spinning", "0"),)),
    )
    for kind, pattern in (("slower", "2"), ("nan", "")):
        condition = Condition(begun.append, usual, usual, None, kind, pattern)
        condition.started(usual)
        condition.started(silent)

    spins = [dict(options.settings).get("session.intra_op.allow_spinning") for options in begun]
    assert spins == ["1", "0", None, "0"]


def test_a_program_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="cannot be run"):
        osl.reduce(osl.build(CHAIN), command="no_such_program {model}")


def test_the_script_finds_the_files_of_the_command(tmp_path, monkeypatch):
    (tmp_path / "check.sh").write_text("exit 3\n")
    monkeypatch.chdir(tmp_path)

    found = osl.reduce(osl.build(CHAIN), command="sh check.sh {model}", output=tmp_path / "small")

    assert found.proved


def test_a_command_with_an_open_quote_is_refused():
    with pytest.raises(UsageError, match="cannot be split: No closing quotation"):
        osl.reduce(osl.build(CHAIN), command="check '{model}")


def test_the_files_of_a_program_are_words_wherever_they_are(tmp_path, monkeypatch):
    (tmp_path / "a b'c").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a b'c"))

    model = osl.build("g (float[2] x) => (float[2] y) { y = Neg (x) }")
    found = osl.reduce(model, command="diff {model} {feeds}/nothing")

    assert found.reason.kind == "exit code 2"


def survivors(mark: str) -> list[str]:
    """Processes with a word that only one test has, after some time to end."""
    for _ in range(50):
        found = subprocess.run(["pgrep", "-f", mark], capture_output=True, text=True, check=False)
        if not found.stdout:
            return []
        time.sleep(0.1)
    return found.stdout.split()


@pytest.mark.parametrize("end", ["wait", "exit 3"])
def test_what_a_program_started_ends_with_it(end, tmp_path):
    mark = f"60.{os.getpid()}"
    program = f"sh -c 'sleep {mark} >&- 2>&- & sleep 60.5 >&- & {end}' {{model}}"

    found = osl.reduce(
        osl.build("g (float[2] x) => (float[2] y) { y = Neg (x) }"),
        command=program,
        timeout=0.5,
        output=tmp_path / "small",
    )

    assert found.reason.kind == ("hang" if end == "wait" else "exit code 3")
    assert found.proved
    assert survivors(f"sleep {mark}") == []


def test_a_program_ends_with_a_killed_command(slow):
    folder, _ = slow
    mark = f"61.{os.getpid()}"
    process = reducing(
        folder, "--command", f"sh -c 'touch {folder}/log; exec sleep {mark}' {{model}}"
    )
    while not (folder / "log").exists():
        time.sleep(0.05)
    process.kill()
    process.communicate()

    assert survivors(f"sleep {mark}") == []


def test_a_program_that_prints_without_end_is_kept_in_part():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    found = osl.reduce(
        osl.build("g (float[2] x) => (float[2] y) { y = Neg (x) }"),
        command="yes {model}",
        timeout=1,
    )

    assert found.reason.kind == "hang"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB


@pytest.mark.parametrize(
    "condition", [("--fails", "error"), ("--command", MODULE.program("both-Nope"))]
)
def test_a_model_of_2_4_gb_is_reduced_within_300_mb(condition, tmp_path):
    path = MODULE.large(tmp_path)
    assert (tmp_path / "weights").stat().st_size > 2.3e9
    watched = (
        "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)"
    )
    command = [sys.executable, "-m", "onnxsurgeon_lite", "reduce", str(path), *condition]

    done = subprocess.run(
        [sys.executable, "-c", watched, *command, "-o", "small"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "-> 1 node, 4 bytes" in done.stdout
    assert int(done.stdout.split()[-1]) * 1024 < 300e6  # the largest process
    assert sum(f.stat().st_size for f in (tmp_path / "small").rglob("*.*")) < 100_000


def test_an_opset_becomes_the_oldest_that_defines_what_is_left_as_it_is():
    model = osl.build(
        """<ir_version: 10, opset_import: ["" : 21, "unused" : 3]>
        g (float[4] x) => (float[4] y) { a = Neg (x)  b = Softplus (a)  y = Abs (b) }"""
    )

    found = osl.reduce(model, command=MODULE.program("both-Softplus"))

    assert [(each.domain, each.version) for each in found.model.proto.opset_import] == [("", 1)]
    onnx.checker.check_model(found.model.proto)


def test_an_opset_that_the_failure_needs_stays():
    def fails(model: osl.Model, feeds: dict) -> bool:
        return any(each.version == 21 for each in model.proto.opset_import)

    found = osl.reduce(osl.build(CHAIN.replace("g (", "g (", 1)), fails)

    assert found.model.proto.opset_import[0].version == 21


def test_a_failure_that_comes_and_goes_says_how_often_it_came(tmp_path):
    """A program that fails at each question but every third."""
    (tmp_path / "check.py").write_text(
        "import pathlib, sys\n"
        f"log = pathlib.Path({str(tmp_path / 'asked')!r})\n"
        "count = len(log.read_text()) if log.exists() else 0\n"
        "log.write_text('x' * (count + 1))\n"
        "sys.exit(7 if count % 3 and b'Log' in open(sys.argv[1], 'rb').read() else 0)\n"
    )

    found = osl.reduce(
        osl.build(CHAIN),
        command=f"{sys.executable} {tmp_path}/check.py {{model}}",
        runs=10,
        output=tmp_path / "small",
    )

    assert (found.failed, found.runs, found.after.nodes) == (6, 10, 1)
    assert "(6 of 10 times)" in str(found)
    assert "fails 6 of 10 times" in (tmp_path / "small" / "README.md").read_text()


def test_progress_says_the_size_so_far():
    told: list[str] = []

    osl.reduce(FAILURES["missing operator"].make(), "error", progress=told.append)

    assert told[0].startswith("26 nodes, ")
    assert told[-1].startswith("1 node, ")
    assert all(line.endswith(" times") for line in told)


def test_a_short_model_is_in_the_text_for_an_issue_as_onnx_text(tmp_path):
    osl.reduce(FAILURES["NaN"].make(), "nan", feeds=FAILURES["NaN"].feeds, output=tmp_path / "s")

    text = (tmp_path / "s" / "README.md").read_text()
    assert "= Sqrt (" in text
    assert max(map(len, text.splitlines())) < 300


def test_a_search_whose_time_is_over_has_the_best_so_far_and_is_resumed(slow):
    folder, condition = slow

    late = reducing(folder, "--seconds", "0.5", *condition)
    out, err = late.communicate()
    left = onnx.load(folder / "small" / "model.onnx")
    shutil.rmtree(folder / "small")  # the program leaves a file in it
    resumed = reducing(folder, "--resume", *condition)
    out_again, _ = resumed.communicate()

    assert late.returncode == 0, err
    assert "the time is over: more may be possible, with --resume" in out
    assert len(left.graph.node) <= 26
    assert "-> 4 nodes," in out_again


OVERFLOWS = """net (float[4,8] x) => (float[4,8] y) {
    a = Relu (x)  b = Exp (a)  c = Neg (b)  y = Abs (c) }"""


def test_bisect_reduces_its_reproducer_of_a_crash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onnxsurgeon_lite.api.debug._QUICK", 60.0)  # a busy machine is slow
    text = FAILURES["kernel that crashes"].make()

    found = osl.bisect(text, find="nan", feeds={"x": np.ones((4, 8), np.float32)}, output="culprit")

    assert found.culprits[0].findings[0].verdict == "crash"
    assert found.further == []
    assert found.reduced.startswith("1 node, ")
    assert "reduced: 'culprit/reduced', 1 node, " in str(found)
    done = subprocess.run([sys.executable, "culprit/reduced/repro.py"], check=False)
    assert done.returncode < 0


def test_what_bisect_prints_reduces_its_reproducer_further(tmp_path, monkeypatch):
    """A hang takes long, so the reproducer stays as it is; the command has the time that a run may take."""
    monkeypatch.chdir(tmp_path)
    text = FAILURES["Loop that hangs"].make()

    found = osl.bisect(text, find="nan", output="culprit", timeout=1)

    assert "--timeout 1" in " ".join(found.further)
    assert f"reduce further: {' '.join(found.further)}" in str(found)
    command = [sys.executable, "-m", "onnxsurgeon_lite", *found.further[1:], "--seconds", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "hang (1 of 1 times)" in done.stdout, done.stderr


def test_bisect_offers_nothing_where_a_node_is_wrong(tmp_path):
    model = osl.build(OVERFLOWS)
    osl.record(model, tmp_path / "refs", {"x": np.ones((4, 8), np.float32)})
    wrong = osl.set_op(model, "@2", "Relu")

    found = osl.bisect(wrong, tmp_path / "refs", output=tmp_path / "culprit")

    assert (found.reduced, found.further) == ("", [])
    assert "reduce" not in str(found)
