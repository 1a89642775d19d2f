"""The short form of `scripts/sweep`: every verb keeps values, validity and fields of small models."""

import subprocess
import sys
from pathlib import Path

from onnxsurgeon_lite import PASSES

SWEEPING = Path(__file__).parents[2] / "scripts" / "sweeping"


def test_no_verb_breaks_a_small_model():
    done = subprocess.run(
        [sys.executable, SWEEPING, "--small"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_verb_is_swept(monkeypatch):
    monkeypatch.syspath_prepend(str(SWEEPING))
    from lines import LINES, verb_of

    swept = {verb_of(line) for line in LINES.strip().splitlines()}

    assert sorted(PASSES.keys() - swept) == []
