"""The recipes of CONTRIBUTING.md, but for verbs (test_contract.py), and the drawing of the house."""

import ast
import re
from pathlib import Path
from typing import get_args

from kit import ROOT
from kit.rooms import ROOMS
from onnxsurgeon_lite.debug.result import Verdict
from onnxsurgeon_lite.runtime import backends
from onnxsurgeon_lite.tensors.metrics import METRICS

PACKAGE = ROOT / "onnxsurgeon_lite"
VERDICTS = (ROOT / "docs" / "reference" / "verdicts.md").read_text()
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def definitions(folder: Path, kind: type) -> list[tuple[str, ast.AST]]:
    """Return the public classes or functions of a folder's files, each with the file's name."""
    found = []
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text())
        found += [(path.stem, n) for n in tree.body if isinstance(n, kind) and n.name[0] != "_"]
    return found


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
    json = (ROOT / "docs" / "reference" / "json.md").read_text()

    missing = []
    for name, metric in METRICS.items():
        held = (
            ("a row in docs/reference/tolerance.md", f"\n| {metric.title} |" in page),
            ("among those that can decide, there", f"`{name}`" in page),
            ("in docs/reference/json.md", not metric.shown or f"`{name}`" in json),
            ("a test of its number", re.search(rf"""["'`]{name}\b""", TESTS)),
        )
        missing += [f"{name}: {what}" for what, there in held if not there]

    assert not missing, "\n".join(["this is missing:", *missing])


def test_every_runtime_brings_what_it_must():
    page = (ROOT / "docs" / "reference" / "runtimes.md").read_text()
    listed = {where: name for name, where in backends._BUILT_IN.items()}

    classes = {}
    for file, found in definitions(PACKAGE / "runtime" / "backends", ast.ClassDef):
        methods = {n.name for n in found.body if isinstance(n, ast.FunctionDef)}
        if {"open", "run"} <= methods:
            classes[f"onnxsurgeon_lite.runtime.backends.{file}:{found.name}"] = found.name.lower()

    line = "a line of `_BUILT_IN` in runtime/backends/__init__.py"
    missing = [f"{name}: {line}" for where, name in classes.items() if where not in listed]
    missing += [f"{where} of `_BUILT_IN`: a class" for where in listed if where not in classes]
    for name in (listed.get(where, name) for where, name in classes.items()):
        if not re.search(rf"^\| `{name}\b", page, re.MULTILINE):
            missing.append(f"{name}: a row of the table in docs/reference/runtimes.md")
        if not re.search(rf"""runtime["']?[=:] ?f?["']?{name}\b|--runtime",? "?{name}""", TESTS):
            missing.append(f"{name}: a test that runs a model with `runtime={name!r}`")

    assert not missing, "\n".join(["this is missing:", *missing])


def test_every_family_of_mistakes_brings_what_it_must():
    page = (ROOT / "docs" / "explanation" / "causes.md").read_text()
    table = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    described = {name for row in table for name in re.findall(r"`(\w+)`", row)}
    folder = PACKAGE / "debug" / "causes"
    whole = "\n".join(path.read_text() for path in folder.parent.rglob("*.py"))

    missing = []
    for file, found in definitions(folder, ast.FunctionDef):
        if found.returns is None or ast.unparse(found.returns) != "Hypotheses":
            continue
        if [a.annotation and ast.unparse(a.annotation) for a in found.args.args] != ["Place"]:
            continue
        if file not in described:
            missing.append(f"{file}: its mistakes, in the table of docs/explanation/causes.md")
        if len(re.findall(rf"\b{found.name}\b", whole)) == 1:  # its own definition
            missing.append(f"{found.name}: a line of `FAMILIES` in debug/causes/families.py")

    assert not missing, "\n".join(["this is missing:", *sorted(set(missing))])


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
