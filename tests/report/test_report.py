"""What the terminal shows: at 80 columns whole names, first the verdicts, and no more than what tells."""

import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kit import FIXTURES
from onnxsurgeon_lite import compare
from onnxsurgeon_lite.debug.result import Finding, in_order
from onnxsurgeon_lite.report.plain import table
from onnxsurgeon_lite.tensors.comparison import gap, texts, titles
from onnxsurgeon_lite.tensors.metrics import METRICS, SHOWN

LONG = "/model/layers.0/self_attn/q_proj/MatMul_output_0_of_a_name_that_no_column_holds_at_all"
REFERENCES = FIXTURES / "references" / "whole_model.npz"


@pytest.fixture
def three(tmp_path):
    """A model with three wrong weights."""
    model = onnx.load(FIXTURES / "whole_model.onnx")
    wrong = {model.graph.node[position].input[1] for position in (1, 4, 8)}
    for tensor in model.graph.initializer:
        if tensor.name in wrong:
            array = numpy_helper.to_array(tensor) * np.float32(1.1)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(model, tmp_path / "three.onnx")
    return tmp_path / "three.onnx"


def said(*words, folder, columns=80) -> str:
    """What a command prints on a terminal of so many columns."""
    done = subprocess.run(
        [sys.executable, "-m", "onnxsurgeon_lite", *map(str, words)],
        cwd=folder,
        env={**os.environ, "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_a_table_that_fits_has_its_cells_side_by_side():
    lines = table(["name", "bytes #"], [("a", 1), ("bcd", 1000)], limit=80)

    assert lines == ["name   bytes #", "──────────────", "a            1", "bcd       1000"]


@pytest.mark.parametrize("limit", [20, 40, 80])
def test_a_name_that_is_too_wide_stands_whole_on_a_line_of_its_own(limit):
    lines = table(["a", "b", "over"], [(LONG, "25", "5%"), ("x", "y", "z")], limit=limit)

    assert lines[:2] == ["a", "  b    over"]
    assert lines[3:] == [LONG, "  25   5%", "x", "  y    z"]


def test_columns_that_do_not_fit_follow_below_with_their_titles():
    lines = table(["n", "one", "two", "last"], [("n", 1, 2, LONG)], limit=20)

    assert lines[2:] == ["n   1     2", f"    last {LONG}"]


def test_every_metric_that_is_shown_is_in_a_comparison_and_has_a_column():
    result = compare(np.ones(3, np.float32), np.array([1, 1, 2], np.float32))

    assert tuple(result.metrics) == SHOWN
    assert [METRICS[name].title for name in SHOWN] == titles(every=True)[3:]
    assert titles() == ["max abs", "allowed", "over"]
    assert dict(zip(titles(), texts(result), strict=True)) == {
        "max abs": "1",
        "allowed": "0.00022",
        "over": "33.3%",
    }
    assert len(texts(result, every=True)) == len(titles(every=True))


@pytest.mark.parametrize(
    ("actual", "reference", "phrase"),
    [
        ([1.0, 2.0], [1.0, 2.5], "max abs 0.5 where 5e-05 is allowed"),
        ([1.0, 2.0], [1.0], r"shape \[2\] where the reference has \[1\]"),
        ([np.nan, 2.0], [1.0, 2.0], "1 NaN and 0 Inf where the reference has 0 and 0"),
        (["a", "b"], ["a", "c"], "1 of 2 elements differ"),
    ],
)
def test_how_far_two_tensors_are_apart_is_said_in_a_phrase(actual, reference, phrase):
    sides = (np.array(side, object if "a" in side else np.float32) for side in (actual, reference))

    assert re.match(phrase.replace("5e-05", ".*"), gap(compare(*sides)))


def test_what_is_allowed_in_a_match_is_that_of_the_largest_error():
    reference = np.array([1, 100], np.float64)

    result = compare(reference + [0, 1e-6], reference)

    assert result.match
    assert result.max_abs <= result.allowed == pytest.approx(1e-9 * 100 + 1e-7 * 100)


def test_verdicts_have_one_order():
    found = [Finding(verdict, "") for verdict in ("wrong node", "rounding", "random", "optimizer")]

    order = [finding.verdict for finding in in_order(found)]

    assert order == ["random", "optimizer", "rounding", "wrong node"]


def test_a_bisection_begins_with_the_verdict_in_a_line(tmp_path):
    told = said(
        "bisect",
        *(FIXTURES / "faulty_attribute.onnx", "--reference", REFERENCES),
        folder=tmp_path,
        columns=100,
    ).splitlines()

    assert told[0] == (
        "wrong node: Conv 'Conv_6' (@6) makes '27': max abs 2.11 where 0.000149 is allowed"
    )
    assert told[-1] == "  reproduce: python faulty_attribute.culprit/repro.py"


def test_several_culprits_begin_with_a_summary_behind_the_first_that_is_certain(three):
    asked = ("bisect", three, "--reference", REFERENCES, "--no-cause", "-o")

    short = said(*asked, "short", folder=three.parent)
    long = said(*asked, "long", "--verbose", folder=three.parent)

    for printed in (short, long):  # the first is told while others are looked for
        first, summary = printed.split("3 culprits, those that err by themselves first:\n")
        assert first.startswith("wrong constant: Conv 'Conv_1' (@1) makes '22'")
        assert first.count("makes '") == 1
        assert summary.startswith("  wrong constant: Conv 'Conv_1'")
        assert summary.count("makes '") == 3
    assert [text.count("  worst at") for text in (short, long)] == [1, 3]
    assert "values compared in" in long
    assert max(map(len, (short + long).splitlines())) <= 80


def test_a_region_shows_operators_and_names(three):
    kept = {
        name: array
        for name, array in np.load(REFERENCES).items()
        if name in ("input.1", "22", "29")
    }
    np.savez(three.parent / "few.npz", **kept)

    asked = ("bisect", three, "--reference", "few.npz", "--map", "names", "--no-cause", "--verbose")
    told = said(*asked, folder=three.parent)

    assert "one of 7 nodes up to Conv 'Conv_8' (@8)" in " ".join(told.split())
    assert "    Conv 'Conv_2' (@2)\n    Conv 'Conv_3' (@3)\n" in told


def test_every_metric_is_shown_when_asked_for(tmp_path):
    asked = ("compare", FIXTURES / "faulty_attribute.onnx", REFERENCES)

    usual = said(*asked, folder=tmp_path)
    every = said(*asked, "--metrics", "all", folder=tmp_path)

    assert usual.startswith("MISMATCH in 1 of 1 tensor\n")
    assert "SQNR dB" not in usual
    assert all(title in every for title in titles(every=True))
    assert max(map(len, every.splitlines())) <= 80
