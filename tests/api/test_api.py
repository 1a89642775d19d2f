"""The library as people call it: every command as a function, results that show themselves, examples that run."""

import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from html import escape

import jedi
import numpy as np
import onnx
import pytest
import stubs
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.commands import COMMANDS
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import FeedsError, UsageError
from onnxsurgeon_lite.errors import said as message_of
from onnxsurgeon_lite.report.results import SHOWN_BY
from onnxsurgeon_lite.shown import Shown

ONES = np.ones((1, 3, 20, 20), np.float32)
NOT_CALLED = {"PASSES", "data"}  # a dict, a module
FUNCTIONS = {name: getattr(osl, name) for name in osl.__all__ if name not in NOT_CALLED}
FUNCTIONS |= {f"data.{name}": getattr(osl.data, name) for name in osl.data.__all__}

# parameters of commands that are about the terminal, and files that a result's `save` writes
TERMINAL = {
    "best_effort",
    "json",
    "force",
    "dry_run",
    "output",
    "save",
    "in_place",
    "copy_data",
    "undo",
    "commands",
    "context",
    "metrics",
    "verbose",
    "github",
    "by",
}
ALIASES = {
    "print": "text",
    "repl": "Debugger",
    "compare": "compare_sets",
}
SYNONYMS = {
    "keep": "folder",
    "by": "model",
    "two_exports": "second",
    "new_value": "output",
}

# of `Debugger`: the objects that hold several options
OBJECTS = {
    **dict.fromkeys(("seed", "dim", "fill"), "recipe"),
    **dict.fromkeys(("rtol", "atol", "ulp", "allow"), "tolerance"),
    **dict.fromkeys(
        ("provider", "threads", "timeout", "memory_limit", "ops_library", "ops"), "runtime"
    ),
    "reference": "references",
    "memory": "budget",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(FIXTURES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def twin(command: str) -> str:
    """The name of the function that does what a command does."""
    name = command.removeprefix("edit ").replace("data ", "data.").replace("-", "_")
    return ALIASES.get(name, name)


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"mcp"}))  # it serves the others
def test_a_command_is_a_function_that_takes_its_options(command):
    found = FUNCTIONS[twin(command)]
    known = set(inspect.signature(found).parameters)

    wanted = set(inspect.signature(COMMANDS[command]).parameters) - TERMINAL

    objects = OBJECTS if command == "repl" else {}
    lacking = {n for n in wanted if not {n, SYNONYMS.get(n), objects.get(n)} & known}
    assert lacking == set()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_name_is_documented_with_an_example(name):
    doc = inspect.getdoc(FUNCTIONS[name])

    assert doc
    assert "Example:\n    >>> " in doc
    if not inspect.isclass(FUNCTIONS[name]):
        given = inspect.signature(FUNCTIONS[name]).parameters
        assert all(f"    {argument}: " in doc for argument in given), doc


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_examples_run(name, folder):
    doc = inspect.getdoc(FUNCTIONS[name])
    test = doctest.DocTestParser().get_doctest(doc, {"osl": osl, "np": np}, name, None, None)
    said: list[str] = []

    result = doctest.DocTestRunner().run(test, out=said.append)

    assert not result.failed, "".join(said)


def test_public_methods_are_documented():
    classes = [found for found in FUNCTIONS.values() if inspect.isclass(found)]
    fields = {"ReferenceSet.prefetch"}
    missing = [
        f"{found.__name__}.{name}"
        for found in classes
        for name, method in vars(found).items()
        if not name.startswith("_") and inspect.isfunction(method) and not method.__doc__
    ]

    assert set(missing) <= fields


@pytest.fixture(scope="module")
def editor() -> jedi.Script:
    """A line for each name."""
    lines = (f"osl.{name}" for name in osl.__all__)
    return jedi.Script("\n".join(["import onnxsurgeon_lite as osl", *lines]))


@pytest.mark.parametrize("name", osl.__all__)
def test_an_editor_is_led_to_the_definition(name, editor):
    places = editor.goto(2 + osl.__all__.index(name), 5, follow_imports=True)

    assert [place.module_path.suffix for place in places] == [".py"]
    assert {place.type for place in places} <= {"class", "function", "module", "statement"}


def test_the_stub_is_what_the_passes_say():
    """`python scripts/pages/stubs.py` writes it."""
    pytest.importorskip("ruff")
    assert {path: path.read_text() for path in stubs.files()} == stubs.files()


SAME = {
    "inspect whole_model.onnx": lambda: osl.inspect("whole_model.onnx"),
    "inspect whole_model.onnx --ops": lambda: osl.inspect("whole_model.onnx", ops=True),
    "inspect whole_model.onnx --node Add_7": lambda: osl.inspect("whole_model.onnx", "Add_7"),
    "inspect whole_model.onnx --value 23": lambda: osl.inspect("whole_model.onnx", value="23"),
    "inspect whole_model_dynamo.onnx --tree": lambda: osl.inspect(
        "whole_model_dynamo.onnx", tree=True
    ),
    "check custom_op.onnx": lambda: osl.check("custom_op.onnx"),
    "diff whole_model.onnx faulty_attribute.onnx": lambda: osl.diff(
        "whole_model.onnx", "faulty_attribute.onnx"
    ),
    "run whole_model.onnx --seed 3": lambda: osl.run("whole_model.onnx", seed=3),
    "compare faulty_constant.onnx references/whole_model.npz": lambda: osl.compare_sets(
        "faulty_constant.onnx", "references/whole_model.npz"
    ),
    "rank faulty_constant.onnx --against whole_model.onnx": lambda: osl.rank(
        "faulty_constant.onnx", against="whole_model.onnx"
    ),
    "rank faulty_constant.onnx --against whole_model.onnx --by output": lambda: osl.rank(
        "faulty_constant.onnx", against="whole_model.onnx", by="output"
    ),
    "rank whole_model.onnx --fp16-risk": lambda: osl.rank("whole_model.onnx", fp16_risk=True),
    "convert whole_model.onnx --to float16 --tolerance 0.1 --dry-run": lambda: osl.convert(
        "whole_model.onnx", "float16", tolerance=0.1
    ),
    "match references/whole_model.npz whole_model.onnx": lambda: osl.match(
        "references/whole_model.npz", "whole_model.onnx"
    ),
    "weights whole_model.onnx --against whole_model.safetensors": lambda: osl.weights(
        "whole_model.onnx", "whole_model.safetensors"
    ),
    "data ls external.onnx": lambda: osl.data.ls("external.onnx"),
    "split whole_model.onnx --at 23 -o parts --force": lambda: osl.split(
        "whole_model.onnx", "23", "parts", force=True
    ),
    "bisect faulty_attribute.onnx --reference references/whole_model.npz -o c --force": lambda: (
        osl.bisect("faulty_attribute.onnx", "references/whole_model.npz", output="c", force=True)
    ),
}


@pytest.mark.parametrize("words", SAME)
def test_a_result_is_what_the_command_prints(words, folder):
    printed = CliRunner().invoke(app, words.split())
    data = CliRunner().invoke(app, [*words.split(), "--json"])

    result = SAME[words]()

    assert str(result) == printed.stdout.rstrip("\n")
    assert json.loads(json.dumps(result.to_json())) == json.loads(data.stdout)
    assert len(repr(result)) < 200
    assert "\n" not in repr(result)
    shown = result._repr_html_()
    assert shown.startswith(("<table><tr><th>", "<pre>"))
    assert f"<pre>{escape(str(result))}</pre>" in shown


def test_a_notebook_shows_the_verdict_in_a_small_table_first(folder):
    result = osl.bisect("faulty_attribute.onnx", "references/whole_model.npz")

    verdict, *_, repair = re.findall("<tr><th>(.*?)</th><td>(.*?)</td></tr>", result._repr_html_())

    assert verdict[0] == "mismatch"
    assert verdict[1].startswith("wrong node: Conv")
    assert repair[0].startswith("cause: dilations of Conv")
    assert repair[1].startswith("onnxdbg edit set-attr faulty_attribute.onnx Conv_6")


SCALARS = {"compare"}  # take a number
BAD_CALLS = {
    "missing a required argument": lambda call: call(),
    "unexpected keyword argument 'nonsense'": lambda call: call("whole_model.onnx", nonsense=1),
    "too many positional arguments": lambda call: call(*["whole_model.onnx"] * 60),
    "is given as ": lambda call: call(7, *[None] * (_needed(call) - 1)),
}


def _needed(call) -> int:
    every = inspect.signature(call).parameters.values()
    return sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in every)


@pytest.mark.parametrize("says", BAD_CALLS)
def test_a_bad_call_is_an_error_with_a_hint(says, folder):
    bare = {}
    for name, call in FUNCTIONS.items():
        parameters = inspect.signature(call).parameters.values()
        takes_more = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        if inspect.isclass(call) or takes_more or (says == "is given as " and name in SCALARS):
            continue
        if says.startswith("missing") and not _needed(call):
            continue
        try:
            BAD_CALLS[says](call)
        except UsageError as error:
            if not error.hint:
                bare[name] = error.message
        except Exception as error:  # noqa: BLE001  whatever it is, it is not ours
            bare[name] = repr(error)
        else:
            bare[name] = "nothing"
    assert not bare


def test_an_edit_is_what_the_command_prints(folder):
    words = "edit set-op whole_model.onnx Add_7 Sub --dry-run --verify"
    printed = CliRunner().invoke(app, words.split())

    result = osl.set_op("whole_model.onnx", "Add_7", "Sub", verify=True)

    assert str(result) == printed.stdout.rstrip("\n")
    assert not result.match
    assert printed.exit_code == 1


def test_every_kind_of_result_has_what_prints_it():
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    pytest.importorskip("openvino")
    for name in ("debug", "graph", "matching", "model", "passes", "recording", "report", "runtime"):
        room = importlib.import_module(f"onnxsurgeon_lite.{name}")
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if "torch" not in module.name and "worker" not in module.name:
                importlib.import_module(module.name)
    shown = {name: f"report.{place}".rpartition(".") for name, place in SHOWN_BY.items()}

    for module, _, function in shown.values():
        assert hasattr(importlib.import_module(f"onnxsurgeon_lite.{module}"), function)
    kinds = {kind.__name__ for kind in below(Shown)} - {"Shown"}  # a `View` is in its page's room
    assert kinds == set(SHOWN_BY)


def test_a_model_is_given_in_any_way(folder):
    path = folder / "whole_model.onnx"
    ways = [path, str(path), path.read_bytes(), onnx.load(path), osl.load(path)]

    texts = {osl.text(way) for way in ways}

    assert len(texts) == 1


def test_tensors_are_given_in_any_way(folder):
    stored = osl.open_references("references/whole_model.npz")
    arrays = {name: stored.read(name) for name in stored}
    feeds = {"input.1": arrays["input.1"]}

    found = [
        osl.bisect("faulty_attribute.onnx", references, feeds=given, quick=True)
        for references in ("references/whole_model.npz", stored, arrays, [arrays])
        for given in (None, feeds)
    ]

    assert {result.culprits[0].name for result in found} == {"Conv_6"}


def test_several_samples_are_a_list(folder):
    stored = osl.open_references("references/whole_model.npz")
    arrays = {name: stored.read(name) for name in stored}

    result = osl.bisect("faulty_attribute.onnx", [arrays, arrays])

    assert result.samples.total == 2
    assert result.samples.failing == [0, 1]


def test_a_pytorch_module_is_recorded(folder):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    done = osl.record((module, (torch.ones(1, 2),)), "refs")

    assert str(done) == f"recorded {done.values} values in 'refs'"
    assert "0" in osl.open_references("refs")


def test_an_error_carries_what_was_said_before_it(folder):
    with pytest.raises(osl.SurgeonError) as caught:
        osl.verify("whole_model.onnx", "linear_func.onnx")

    assert caught.value.told == ("made input.1: float [1, 3, 20, 20] normal, seeds 0, 1",)


def test_an_unknown_option_is_refused(folder):
    with pytest.raises(UsageError, match="rtol"):
        osl.run("whole_model.onnx", rtol=1.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["record", "whole_model.py:make", "-o", "refs"], "recording a PyTorch module needs torch"),
        (["weights", "whole_model.onnx", "--against", "x.pt"], "needs torch"),
    ],
)
def test_without_torch_a_command_says_what_to_install(words, said, folder):
    (folder / "x.pt").write_bytes(b"PK")
    code = "import sys; sys.modules['torch'] = None; from onnxsurgeon_lite.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, env=environment
    )

    assert done.returncode == 2
    assert said in done.stderr
    assert "pip install torch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: osl.extract(None), "given as None"),
        (lambda: osl.extract(dict), "given as the class dict"),
        (lambda: osl.run("whole_model.onnx", np.ones(3)), "{'input.1': array}"),
        (lambda: osl.run("whole_model.onnx", [np.ones(3)]), "{'input.1': array}"),
        (lambda: osl.run("whole_model.onnx", {"input.1": [1, 2]}), "has dtype int64"),
        (lambda: osl.run("whole_model.onnx", {"input.1": [1.0, 2.0]}), r"has shape \[2\]"),
        (lambda: osl.run("whole_model.onnx", {"input.1": [[1.0], 2.0]}), "tensor 'input.1' cannot"),
        (
            lambda: osl.run("whole_model.onnx", {"input.1": ONES, "imput": ONES}),
            "no input 'imput'.*\n  closest names: 'input.1'",
        ),
        (
            lambda: osl.bisect("whole_model.onnx", find="nan", feeds={"input.1": ONES, "x": ONES}),
            "no input 'x'",
        ),
        (lambda: osl.compare({"y": ONES}, {"y": ONES}), "compare_sets"),
        (lambda: osl.compare("a.npz", "a.npz"), "compare_sets"),
        (lambda: osl.compare(FIXTURES, FIXTURES), "compare_sets"),
        (lambda: osl.compare([[1], 2], ONES), "actual cannot be an array"),
        (
            lambda: osl.bisect("whole_model.onnx", "refs.npz", rtol="far"),
            "rtol of a tolerance is no number",
        ),
        (lambda: osl.bisect("whole_model.onnx", "refs.npz", look="foo"), "give 'auto', 'unopt"),
        (lambda: osl.merge(["whole_model.onnx", "whole_model.onnx"]), r"merge\(a, b\)"),
    ],
)
def test_what_has_no_meaning_is_refused_in_words(call, said, folder):
    with pytest.raises((UsageError, FeedsError)) as caught:
        call()

    assert re.search(said.replace("{", r"\{"), str(caught.value))
    assert caught.value.hint


def test_a_list_and_a_pytorch_tensor_are_arrays(folder):
    torch = pytest.importorskip("torch")
    outputs = osl.run("whole_model.onnx", {"input.1": ONES.tolist()})

    assert osl.compare(list(outputs["31"]), torch.from_numpy(outputs["31"])).match
    assert osl.run("whole_model.onnx", {"input.1": torch.ones(ONES.shape)})["31"].shape


def test_an_error_as_text_says_its_hint_once_behind_the_message():
    assert str(UsageError("wrong", "try")) == "wrong\n  try"
    assert str(UsageError("wrong")) == "wrong"
    assert message_of(UsageError("wrong", "try")) == "wrong"


def test_what_is_appended_takes_the_place_of_the_output_that_it_reads(folder):
    three = osl.expose("whole_model.onnx", ["28", "25"]).model
    assert [v.name for v in three.proto.graph.output] == ["31", "28", "25"]

    text = "p = Softmax(z, axis=-1); top, at = TopK(w, [2]); free = Relu(x)"
    links = {"31": "z", "28": "w", "23": "x"}
    appended = osl.append(three, text, links).model

    assert [v.name for v in appended.proto.graph.output] == ["p", "top", "at", "25", "free"]


CHAINED = "g (float[4] x) => (float[4] y) { a = Neg(x) y = Abs(a) }"
ON_RESULTS = {
    "another edit": lambda edited, model: osl.set_op(edited, "op:Relu", "Exp"),
    "an edit with a second model": lambda edited, model: osl.merge(model, edited, prefix="b/"),
    "a cut": lambda edited, model: osl.extract(edited, outputs="a"),
    "a look": lambda edited, model: osl.inspect(edited),
    "a check": lambda edited, model: osl.check(edited),
    "its text": lambda edited, model: osl.text(edited),
    "a diff": lambda edited, model: osl.diff(model, edited),
    "a run": lambda edited, model: osl.run(edited, {"x": np.ones(4, np.float32)}),
    "a conversion": lambda edited, model: osl.convert(edited, to="float16"),
    "a search": lambda edited, model: osl.bisect(edited, against=model),
    "the model to compare with": lambda edited, model: osl.bisect(model, against=edited),
    "a match": lambda edited, model: osl.match(edited, model),
}


@pytest.mark.parametrize("asked", ON_RESULTS.values(), ids=ON_RESULTS)
def test_a_result_is_accepted_wherever_a_model_is(asked):
    model = osl.build(CHAINED)
    edited = osl.insert(model, "a", "Relu")

    assert str(asked(edited, model)) == str(asked(edited.model, model))
