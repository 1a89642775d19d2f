"""Files that stand in the way: our own default outputs are replaced, anything else never without --force."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.cli.outputs import factory_of, note_factory
from onnxsurgeon_lite.report import progress

EXTRACT = "extract whole_model.onnx --outputs 28"
BISECT = "bisect faulty_attribute.onnx --reference references/whole_model.npz --quick"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    shutil.copytree(FIXTURES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(line: str):
    done = CliRunner().invoke(app, shlex.split(line))
    assert isinstance(done.exception, SystemExit | None), repr(done.exception)
    return done


@pytest.mark.parametrize(
    ("line", "made"),
    [
        (EXTRACT, "whole_model.extract.onnx"),
        ("edit set-op external.onnx op:Relu Tanh --copy-data", "external.set-op.onnx"),
        (BISECT, "faulty_attribute.culprit/model.onnx"),
        ("split whole_model.onnx --at 23", "whole_model.split/1.onnx"),
    ],
)
def test_our_own_default_output_is_replaced(folder, line, made):
    first = ran(line)
    before = (folder / made).stat().st_ino

    again = ran(line)

    assert first.exit_code == again.exit_code < 2
    assert (folder / made).stat().st_ino != before


@pytest.mark.parametrize("change", ["edited", "touched", "copied", "forgotten"])
def test_what_is_not_ours_any_more_is_not_replaced(folder, monkeypatch, change):
    ran(EXTRACT)
    made = folder / "whole_model.extract.onnx"
    match change:
        case "edited":
            made.write_bytes(made.read_bytes() + b"\0")
        case "touched":
            os.utime(made)
        case "copied":
            shutil.copy2(made, "copy")
            os.replace("copy", made)
        case "forgotten":
            monkeypatch.setenv("XDG_STATE_HOME", str(folder / "elsewhere"))
    kept = made.read_bytes()

    done = ran(EXTRACT)

    assert done.exit_code == 2
    assert "'whole_model.extract.onnx' is there already" in done.output
    assert made.read_bytes() == kept
    assert ran(f"{EXTRACT} --force").exit_code == 0
    assert ran(EXTRACT).exit_code == 0


def test_a_reproducer_folder_that_holds_something_else_is_kept(folder):
    ran(BISECT)
    (folder / "faulty_attribute.culprit" / "notes.txt").write_text("mine")

    done = ran(BISECT)

    assert done.exit_code == 2
    assert "'faulty_attribute.culprit' is there already" in done.output


def test_nothing_of_an_earlier_reproducer_stays_in_a_new_one(folder):
    ran(BISECT)
    assert list(folder.glob("*.culprit/test_data_set_0/input_0.pb"))

    ran("bisect faulty_attribute.onnx --find nan --quick")
    ran(BISECT.replace("whole_model.npz", "test_data_set_0"))

    data = list(folder.glob("*.culprit/test_data_set_0/*"))
    assert sorted(file.name for file in data) == ["actual_0.pb", "input_0.pb", "output_0.pb"]


@pytest.mark.parametrize(
    "line",
    [
        f"{EXTRACT} -o taken",
        "expose whole_model.onnx 23 -o taken",
        "edit sort whole_model.onnx -o taken",
        "merge whole_model.onnx whole_model.onnx --map 31=input.1 --prefix b/ -o taken",
        "data embed external.onnx -o taken",
        "data external external.onnx -o taken",
        "data strip external.onnx -o taken",
        "data unstrip stripped.onnx external.onnx -o taken",
        "run whole_model.onnx -o taken.npz",
        "run whole_model.onnx -o full",
        "record whole_model.onnx -o taken.npz",
        "record whole_model.onnx -o full",
        "record whole_model.py:factory -o full",
        "match whole_model.onnx whole_model.onnx --save taken",
    ],
)
def test_an_output_that_is_named_never_overwrites_without_force(folder, line):
    if "stripped" in line:
        ran("data strip external.onnx -o stripped.onnx")
    (folder / "full").mkdir()
    taken = [folder / name for name in ("taken", "taken.npz", "full/mine")]
    for file in taken:
        file.write_text("mine")

    refused = ran(line)

    assert refused.exit_code == 2
    assert "is there already" in refused.output
    assert [file.read_text() for file in taken] == ["mine"] * 3
    assert ran(f"{line} --force").exit_code < 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("split whole_model.onnx --at 23 -o full", "holds 'mine', which would be lost"),
        (f"{BISECT} -o full", "holds 'mine', which would be lost"),
        (f"{BISECT} -o new --journal taken", "'taken' is there already"),
    ],
)
def test_force_replaces_no_folder_and_no_journal_that_holds_something_else(folder, line, told):
    (folder / "full").mkdir()
    foreign = [folder / "taken", folder / "full" / "mine"]
    for file in foreign:
        file.write_text("mine")

    plain, forced = ran(line), ran(f"{line} --force")

    assert (plain.exit_code, forced.exit_code) == (2, 2)
    assert "is there already" in plain.output
    assert told in forced.output
    assert [file.read_text() for file in foreign] == ["mine"] * 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("extract whole_model.onnx --outputs 2x8 -o taken", "no value '2x8'"),
        ("edit remove whole_model.onnx Conv_77 -o taken", "'Conv_77'"),
        ("split whole_model.onnx --at 2x8 -o taken", "no value '2x8'"),
        ("data embed lost.onnx -o taken", "cannot read 'lost.onnx'"),
        ("bisect lost.onnx --find nan -o taken", "cannot read 'lost.onnx'"),
        ("bisect whole_model.onnx --reference lost -o taken", "'lost'"),
        ("record whole_model.onnx --value 2x8 -o taken", "2x8"),
    ],
)
def test_the_real_error_comes_before_the_file_in_the_way(folder, line, problem):
    (folder / "taken").write_text("mine")

    done = ran(line)

    assert done.exit_code == 2
    assert problem in done.output
    assert "is there already" not in done.output


def test_data_that_stays_where_it_is_is_not_announced(monkeypatch):
    monkeypatch.setattr(progress, "LARGE", 5000)

    assert "note: writing" not in ran("edit set external.onnx producer_name=me").output
    assert (
        "note: writing"
        in ran("edit set external.onnx producer_name=you --copy-data --force").output
    )


@pytest.mark.parametrize(
    "line", [EXTRACT, "data embed external.onnx", "edit sort whole_model.onnx"]
)
def test_writing_much_is_announced_also_by_a_dry_run(monkeypatch, line):
    assert "writing" not in ran(line).output
    monkeypatch.setattr(progress, "LARGE", 100)

    assert "KB to '" in ran(f"{line} --dry-run").output
    assert "note: writing " in ran(line).output


def test_a_bar_says_how_much_is_written():
    assert progress.bar(500, 2000) == f"{'━' * 6:<24} 25% of 2 KB"


def test_a_demo_leaves_its_files_when_asked_to(folder):
    done = ran("demo --keep played")

    assert "the files stay in 'played'" in done.output
    assert {"model.onnx", "faulty.onnx", "references"} <= set(os.listdir(folder / "played"))
    assert ran("demo --keep played").exit_code == 2


@pytest.mark.parametrize("change", ["net.py", "refs/index.json", "refs/more", ""])
def test_the_factory_of_references_is_remembered_while_both_are_as_they_were(folder, change):
    (folder / "refs").mkdir()
    (folder / "refs" / "index.json").write_text("{}")
    (folder / "net.py").write_text("def made(): ...")
    note_factory("net.py:made", folder / "refs")

    if change:
        (folder / change).write_text("another")

    assert factory_of("refs") == (None if change else f"{folder / 'net.py'}:made")
    assert factory_of("elsewhere") is factory_of(None) is None


def test_a_user_without_a_home_folder_loses_only_what_is_remembered(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "m.onnx").write_bytes((FIXTURES / "whole_model.onnx").read_bytes())
    code = (
        "import os, pwd, sys\n"
        "for name in ('HOME', 'XDG_STATE_HOME', 'XDG_CACHE_HOME'): os.environ.pop(name, None)\n"
        "pwd.getpwuid = lambda _: {}[0]\n"
        "sys.argv = ['onnxdbg', *sys.argv[1:]]\n"
        "from onnxsurgeon_lite.cli import main\n"
        "main()\n"
    )

    for words in ("edit rename m.onnx *=p/*", "check m.onnx"):
        done = subprocess.run(
            [sys.executable, "-c", code, *words.split()],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert {path.name for path in folder.iterdir()} == {"m.onnx", "m.rename.onnx"}
