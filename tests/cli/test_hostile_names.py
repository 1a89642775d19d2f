"""Names, paths and texts that a stranger chose stay text in generated Python and TOML."""

import ast
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.debug.bisection import reproducer
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import python, toml
from onnxsurgeon_lite.passes import PASSES
from onnxsurgeon_lite.passes.recipe import read_recipe
from onnxsurgeon_lite.passes.recipe_writing import write_recipe, write_script
from onnxsurgeon_lite.tensors.comparison import Tolerance

ATTACK = "open('attacked', 'w')"
HOSTILE = [
    f'"""; {ATTACK}; """',
    f"'''; {ATTACK}; '''",
    f"'; {ATTACK} #",
    f'"; {ATTACK} #',
    f"\\'; {ATTACK} #",
    f"x\n{ATTACK}\n",
    f"x\r{ATTACK}\r",
    f"x\x0c{ATTACK}\u2028{ATTACK}",
    f"{{{ATTACK}}}",
    "{source} %s $HOME `id`",
    "tail\\",
    "\0nul",
    "\x7f\x1b[2J",
    "grün \U0001f600",
]


def steps(name: str) -> list[osl.Pass]:
    return [
        osl.Expose((name,)),
        osl.Extract((name,), (name, name)),
        osl.Rename(((name, f"{name}2"),)),
        osl.Remove((name,)),
        osl.SetOp((name,), name),
        osl.SetAttr((name,), ((name, name), ("pads", [1, 2]), ("alpha", 0.5))),
        osl.SetShape({name: (1, name)}),
        osl.Freeze(((name, [[1, 2]]),)),
        osl.NameOutputs((name,)),
        osl.Outline(name),
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_an_exported_script_does_the_edits_and_nothing_else(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    write_script(steps(name), Path("s.py"), f"{name}.onnx", name)

    found = runpy.run_path("s.py")
    assert list(found["STEPS"]) == steps(name)
    assert f"Edits of {name}.onnx" in found["__doc__"]
    assert [path.name for path in tmp_path.iterdir()] == ["s.py"]


@pytest.mark.parametrize("name", [name for name in HOSTILE if "\0" not in name])
def test_a_script_may_have_a_hostile_name_itself(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path(name.replace("/", "") + ".py")

    write_script([osl.SetConstant("w", np.zeros(100))], path, "m.onnx", "out.onnx")

    (step,) = runpy.run_path(str(path))["STEPS"]
    assert step.numbers.shape == (100,)
    assert not Path("attacked").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_an_exported_recipe_says_the_same_steps(name, tmp_path):
    write_recipe(steps(name)[:5], tmp_path / "r.toml")

    assert list(read_recipe(tmp_path / "r.toml", PASSES).passes) == steps(name)[:5]


@pytest.mark.parametrize("name", [*HOSTILE, "\udcff"])
def test_a_literal_is_the_text_itself(name):
    value = (name, [name, {name: (name,)}], None, True, -0.0, float("inf"), b"\xff")

    assert python(value).isascii()
    assert eval(python(value), {}) == value
    assert ast.literal_eval(python(name)) == name


def test_what_has_no_literal_is_refused(tmp_path):
    with pytest.raises(UsageError, match="a script cannot say"):
        write_script([osl.Script(lambda graph: graph)], tmp_path / "s.py", "m.onnx", "o.onnx")

    assert list(tmp_path.iterdir()) == []


def test_toml_has_no_character_that_it_forbids():
    quoted = toml("".join(map(chr, range(256))))

    assert not [c for c in quoted if ord(c) < 32 or ord(c) == 127]


@pytest.mark.parametrize("bound", [1e-5, float("inf"), float("nan")])
def test_the_script_of_a_reproducer_is_python_whatever_the_tolerance(bound):
    compared = SimpleNamespace(tolerance=Tolerance(bound, bound))
    culprit = SimpleNamespace(value=HOSTILE[0], comparison=compared, verdicts=set())

    text = reproducer._script(SimpleNamespace(look="optimized", kind=""), culprit, {})

    assert compile(text, "repro.py", "exec")
    assert "nan)" not in text.replace("'nan')", "")
    assert ATTACK not in text
