"""What every verb must bring, and what every pass must keep."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import onnxsurgeon_lite
from kit.commands import HELP
from kit.graphs import FEEDS, run
from kit.verbs import CONTRACT, CUSTOM_WORDS, LOSSLESS, ONCE
from onnxsurgeon_lite import PASSES, Expose, passes
from onnxsurgeon_lite.graph.check import check

ROOT = Path(__file__).parents[2]
FUZZED = (ROOT / "scripts" / "fuzzing" / "commands.py").read_text()
SWEPT = (ROOT / "scripts" / "sweeping" / "lines.py").read_text()
TESTS = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))
PAGES = "\n".join(p.read_text() for p in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))))
PAGES += "\n".join(map(str, HELP.values()))
NO_VERBS = {"pipeline", "restore"}  # passes that are no verb


def passes_by_name() -> dict[str, type]:
    """The passes that the files in passes/ define, whether anything else speaks of them or not."""
    found = {}
    for module in pkgutil.iter_modules(passes.__path__, f"{passes.__name__}."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and {"name", "apply"} <= vars(kind).keys():
                found[kind.name] = kind
    return {name: kind for name, kind in found.items() if name not in NO_VERBS}


def lacking(verb: str, kind: type | None) -> list[str]:
    """What a verb lacks."""
    stem, name = verb.replace("-", "_"), "".join(map(str.capitalize, verb.split("-")))
    file = f"passes/{stem}.py"
    stub = (Path(onnxsurgeon_lite.__file__).parent / "api" / "verbs.pyi").read_text()
    path = f"edit {verb}" if f"edit {verb}" in HELP else verb
    told = HELP.get(path) or ""
    its_own = kind is not None and kind.__name__ == name and kind.__module__.endswith(f".{stem}")
    held = (
        (f'{file}: a class {name} with name = "{verb}"', its_own),
        # `in` alone would import the file, which may be what is missing
        (f'passes/__init__.py: "{verb}" in _NAMES', verb in list(PASSES)),
        (
            f"api/verbs.pyi: def {stem}(...), by python scripts/pages/stubs.py",
            re.search(rf"^def {stem}\(", stub, re.M),
        ),
        ("cli/edit.py: a function with help", told),
        ("cli/edit.py: two examples in the help", told.count("\n$ onnxdbg ") == 2),
        ("tests/kit/verbs.py: a line in CONTRACT", verb in CONTRACT),
        ("tests/kit/verbs.py: a line in LOSSLESS", verb in {step.name for step, *_ in LOSSLESS}),
        ("tests/kit/verbs.py: a line in CUSTOM_WORDS", verb in CUSTOM_WORDS),
        ("scripts/fuzzing/commands.py: a line", re.search(rf"^(edit )?{verb} ", FUZZED, re.M)),
        ("scripts/sweeping/lines.py: a line", re.search(rf"^(.* ; )?(edit )?{verb} ", SWEPT, re.M)),
        (f"tests/passes: a test of {name}", re.search(rf'\b({stem}|{name})\(|"{verb}"', TESTS)),
    )
    return [what for what, there in held if not there]


def test_every_verb_brings_what_it_must():
    known = passes_by_name()
    edits = {name.removeprefix("edit ") for name in HELP if name.startswith("edit ")}
    verbs = {*known, *PASSES, *edits - {"apply"}}

    missing = [
        f"{verb}: {what}" for verb in sorted(verbs) for what in lacking(verb, known.get(verb))
    ]

    assert not missing, "\n".join(["this is missing:", *missing])


def test_every_command_has_help_and_an_example():
    shown = set(re.findall(r"onnxdbg ((?:(?:data|edit) )?[\w-]+)", PAGES))

    missing = [f"{name}: help" for name, text in HELP.items() if not text]
    missing += [
        f"{name}: an example in its help, README.md or docs/" for name in HELP.keys() - shown
    ]

    assert not missing, "\n".join(["this is missing:", *missing])


def test_the_package_offers_every_pass():
    for kind in PASSES.values():
        assert getattr(onnxsurgeon_lite, kind.__name__) is kind


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_keeps_the_contract(name, model_of, runtime):
    step, text = CONTRACT[name]
    model = model_of(text)
    for node in model.proto.graph.node:
        node.name = f"/{node.op_type.lower()}/{node.output[0]}"
    before = model.proto.SerializeToString()

    result = step.apply(model)

    assert PASSES[name].name == name
    assert model.proto.SerializeToString() == before
    assert result.changed
    assert result.model.proto != model.proto
    assert name in ONCE or not step.apply(result.model).changed
    assert check(result.model, full=True).valid
    feeds = {"x": FEEDS["x0"]}
    whole = run(runtime, Expose(("h",)).apply(model).model, feeds)
    known = {**feeds, **whole}
    inputs = {v.name: known[v.name] for v in result.model.proto.graph.input if v.name in known}
    assert run(runtime, result.model, inputs)["y"].tolist() == whole["y"].tolist()
