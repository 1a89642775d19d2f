"""`onnxdbg test`: the checks of a TOML file, each with tolerances of its own."""

import json
import os
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import limits
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import UsageError

MODEL = FIXTURES / "whole_model.onnx"
FAULTY = FIXTURES / "faulty_attribute.onnx"
REFERENCE = FIXTURES / "references/whole_model.npz"


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """Write checks, run them; (exit code, output)."""
    monkeypatch.chdir(tmp_path)

    def run(text: str, *arguments: str):
        for name, path in (("MODEL", MODEL), ("FAULTY", FAULTY), ("REFERENCE", REFERENCE)):
            text = text.replace(name, f'"{path}"')
        (tmp_path / "onnxdbg.toml").write_text(text)
        done = CliRunner().invoke(app, ["test", "--config", "onnxdbg.toml", *arguments])
        return done.exit_code, done.output

    return run


GOOD = '[[check]]\nname = "good"\nmodel = MODEL\nreference = REFERENCE\n'
BAD = '[[check]]\nname = "bad, 1"\nmodel = FAULTY\nreference = REFERENCE\n'
LOST = '[[check]]\nname = "lost"\nmodel = "lost.onnx"\nreference = REFERENCE\n'


def test_models_that_match_exit_0_those_that_do_not_exit_1_and_name_the_output(suite):
    code, told = suite(GOOD)
    assert (code, told.splitlines()[0]) == (0, "1 check: match")

    code, told = suite(GOOD + BAD)
    assert (code, told.splitlines()[0]) == (1, "1 of 2 checks failed")
    assert "mismatch at value '31'" in told


def test_what_cannot_be_compared_is_an_error_and_the_others_are_tried(suite):
    code, told = suite(LOST + GOOD)

    assert code == 2
    assert "ERROR   lost" in told
    assert "match   good" in told
    assert "No such file" in told


def test_each_output_has_a_tolerance_of_its_own(suite, tmp_path):
    osl.save(
        osl.build("g (float[2] x) => (float[2] a, float[2] b) { a = Neg(x) b = Abs(x) }"),
        tmp_path / "two.onnx",
    )
    x = np.float32([1, 2])
    np.savez(tmp_path / "refs.npz", x=x, a=-x + np.float32(0.5), b=x + np.float32(0.5))
    check = '[[check]]\nmodel = "two.onnx"\nreference = "refs.npz"\n'

    assert suite(check)[0] == 1
    assert suite(check + "atol = 0.6")[0] == 0
    assert suite(check + "tolerance = { a = { atol = 0.6 } }")[0] == 1
    assert suite(check + 'tolerance = { "[ab]" = { atol = 0.6 } }')[0] == 0
    assert suite(check + "atol = 0.6\ntolerance = { a = { atol = 0.4 } }")[0] == 1


def test_a_tolerance_that_fits_no_output_is_an_error(suite):
    code, told = suite(GOOD + "tolerance = { 'lost*' = { rtol = 1 } }")

    assert code == 2
    assert "no tensor is called 'lost*'" in told


def test_checks_are_chosen_by_name(suite):
    assert suite(GOOD + BAD, "go*")[0] == 0
    assert suite(GOOD + BAD, "nothing")[0] == 2


def test_junit_holds_every_check(suite, tmp_path):
    suite(GOOD + BAD + LOST, "--junit", "results.xml")

    found = ElementTree.parse(tmp_path / "results.xml").getroot()
    assert {k: found.get(k) for k in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    kinds = {case.get("name"): [each.tag for each in case] for case in found}
    assert kinds == {"good": [], "bad, 1": ["failure"], "lost": ["error"]}


def test_annotations_are_lines_that_a_forge_reads(suite):
    _, told = suite(GOOD + BAD, "--github")

    lines = [line for line in told.splitlines() if line.startswith("::")]
    assert len(lines) == 1
    assert lines[0].startswith(f"::error file={FAULTY},title=bad%2C 1::mismatch at value '31'")
    assert "%0A" in lines[0]


def test_a_name_that_would_color_a_terminal_is_printed_as_text(suite):
    _, told = suite(LOST.replace('"lost"', '"\\u001b[31mlost"'), "--github")

    assert "\x1b" not in told
    assert "title=\\x1b[31mlost" in told


def test_json_holds_every_comparison(suite):
    _, told = suite(GOOD, "--json")

    outcome = json.loads(told[told.index("{") :])["outcomes"][0]
    assert outcome["comparison"]["compared"]["31"]["match"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no checks"),
        ("check = 3", "holds no checks"),
        ("[[check]]\nmodel = 3", "model of check 1"),
        ('[[check]]\nmodel = "a"', "has no reference"),
        ('[[check]]\nmodel = "a"\nreference = "b"\nmode = 1', "has 'mode'"),
        ('[[check]]\nmodel = "a"\nreference = "b"\natol = -1', "no number, 0 or more"),
        ('[[check]]\nmodel = "a"\nreference = "b"\ntolerance = 1', "is no table"),
        ('[[check]]\nmodel = "a"\nreference = "b"\nopt = "most"', "opt of check 1"),
        (GOOD + GOOD, "are called 'good'"),
    ],
)
def test_a_suite_that_is_not_understood_is_said(suite, text, said):
    code, told = suite(text)

    assert code == 2
    assert said in told


def test_a_file_with_checks_alone_leaves_bisect_to_look_around(suite, tmp_path):
    suite(GOOD)

    done = CliRunner().invoke(app, ["bisect"])

    assert "there is no model in this folder" in done.output


def test_a_folder_without_a_suite_is_told_what_to_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(app, ["test"])

    assert done.exit_code == 2
    assert "there is no 'onnxdbg.toml' here" in done.output
    assert "[[check]]" in done.output


OUTSIDE = [
    "http://127.0.0.1:9/refs.npz",
    "make.py:samples",
    "hf:imdb",
    "../refs.npz",
    "link.npz",
    "/etc/passwd",
    "a\\u0000b",
]


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A folder that came from elsewhere, with Python and a link out of it; no request leaves."""
    inside = tmp_path / "came"
    inside.mkdir()
    monkeypatch.chdir(inside)
    (tmp_path / "refs.npz").write_bytes(REFERENCE.read_bytes())
    (inside / "link.npz").symlink_to("../refs.npz")
    (inside / "refs.npz").write_bytes(REFERENCE.read_bytes())
    (inside / "model.onnx").write_bytes(MODEL.read_bytes())
    (inside / "make.py").write_text("open('PWN', 'w')\ndef samples(): yield {}\n")
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a request"))
    return inside


def test_references_that_are_found_are_no_python_whatever_their_names(found):
    osl.record("model.onnx", "make.py:samples")
    (found / "refs.npz").unlink()
    (found / "link.npz").unlink()

    done = CliRunner().invoke(app, ["bisect"])
    assert (done.exit_code, "the references 'make.py:samples'" in done.output) == (0, True)
    assert CliRunner().invoke(app, ["compare", "model.onnx", "make.py:samples"]).exit_code == 0
    assert not (found / "PWN").exists()


@pytest.mark.parametrize("place", OUTSIDE)
@pytest.mark.parametrize("key", ["model", "reference", "feeds", "map", "against"])
def test_a_configuration_that_is_found_names_nothing_outside_its_folder(found, key, place):
    check = {"model": "model.onnx", "reference": "refs.npz", key: place}
    lines = "".join(f'{name} = "{text}"\n' for name, text in check.items())
    verbs = {"test": f"[[check]]\n{lines}"} if key != "against" else {}
    if key in ("model", "reference", "against"):
        verbs["bisect"] = lines
    for verb, text in verbs.items():
        (found / "onnxdbg.toml").write_text(text)
        done = CliRunner().invoke(app, [verb])
        assert (done.exit_code, "not in its folder" in done.output) == (2, True), done.output

    assert not (found / "PWN").exists()


def test_a_configuration_that_is_named_is_trusted(found):
    (found / "onnxdbg.toml").write_text(
        '[[check]]\nmodel = "model.onnx"\nreference = "../refs.npz"\n'
    )

    assert CliRunner().invoke(app, ["test"]).exit_code == 2
    assert CliRunner().invoke(app, ["test", "--config", "onnxdbg.toml"]).exit_code == 0
    assert osl.test("onnxdbg.toml").match
    with pytest.raises(UsageError, match="not in its folder"):
        osl.test()


@pytest.mark.parametrize("verb", ["test", "bisect"])
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (lambda path: path.symlink_to("../refs.npz"), "link out of its folder"),
        (lambda path: path.symlink_to(path.name), "cannot read"),
        (lambda path: path.write_bytes(b"#" * (1 << 23)), "bytes, more than"),
        (lambda path: path.write_text("model = " + "1" * 5000), "cannot read"),
        (lambda path: path.write_text("model = " + "[" * 5000), "cannot read"),
        (lambda path: path.write_bytes(b"\xff"), "cannot read"),
    ],
)
def test_a_configuration_that_is_no_usual_file_is_refused(found, verb, made, said):
    made(found / "onnxdbg.toml")

    done = CliRunner().invoke(app, [verb])
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_a_configuration_that_is_read_for_ever_is_left(found, monkeypatch):
    monkeypatch.setattr(limits, "_SECONDS", 0.5)
    (found / "onnxdbg.toml").write_text("x" + ".x" * 100_000 + " = 1")

    done = CliRunner().invoke(app, ["test"])
    assert (done.exit_code, "the TOML parser" in done.output) == (2, True), done.output


@pytest.mark.parametrize("number", ["1e400", "inf", "nan", "-1", "1" * 4000])
def test_a_tolerance_is_a_number_of_usual_size(suite, number):
    code, told = suite(GOOD + f"rtol = {number}\n")

    assert (code, "is no number" in told) == (2, True)
