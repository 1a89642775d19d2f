"""The recipes of CONTRIBUTING.md for verdicts and metrics, and the drawing of the house; verbs: test_contract.py."""

import dataclasses
import re
from pathlib import Path
from typing import get_args

from kit.rooms import ROOMS
from onnxsurgeon_lite.debug.result import Verdict
from onnxsurgeon_lite.tensors.comparison import Comparison
from onnxsurgeon_lite.tensors.metrics import METRICS

ROOT = Path(__file__).parents[2]
VERDICTS = (ROOT / "docs" / "reference" / "verdicts.md").read_text()
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_verdict_brings_what_it_must():
    sections = dict(
        re.findall(r"^## (.+?)\n(.*?)(?=^## |^---)", VERDICTS, re.MULTILINE | re.DOTALL)
    )
    words = get_args(Verdict)

    missing = [f"{v}: a section in docs/reference/verdicts.md" for v in words if v not in sections]
    missing += [
        f"{v}: its *Criterion:* in docs/reference/verdicts.md"
        for v, text in sections.items()
        if "*Criterion:*" not in text
    ]
    missing += [f"{v}: a test that expects it" for v in words if f'"{v}"' not in TESTS]
    missing += [f"{v}: a word of `Verdict`, for its section" for v in sections if v not in words]

    assert not missing, "\n".join(["this is missing:", *missing])
    assert list(sections) == list(words), "the sections stand in the order of triage"


def test_every_metric_brings_what_it_must():
    page = (ROOT / "docs" / "reference" / "tolerance.md").read_text()
    measured = {field.name for field in dataclasses.fields(Comparison)} | {"allowed"}

    missing = [
        f"{metric.title}: a line in docs/reference/tolerance.md"
        for metric in METRICS
        if f"\n| {metric.title} |" not in page
    ]
    missing += [
        f"{metric.title}: a field of `Comparison`"
        for metric in METRICS
        if metric.name not in measured
    ]

    assert not missing, "\n".join(["this is missing:", *missing])


def test_the_architecture_page_has_every_room_in_order():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()

    assert (
        tuple(re.findall(r"^\| `(\w+)/?` \| .*[a-z]", page.split("## Four")[0], re.MULTILINE))
        == ROOMS
    )


def test_every_input_of_the_table_of_security_has_its_test():
    table = (ROOT / "SECURITY.md").read_text().partition("## Every input")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    tests = {row[0]: row[-1].strip("`").partition("::") for row in rows[1:]}

    assert len(tests) > 20
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    lacking = [
        given for given, (file, _, name) in tests.items() if f"\ndef {name}(" not in files[file]
    ]
    assert not lacking
