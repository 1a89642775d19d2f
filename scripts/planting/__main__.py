"""Plant faults in real architectures, and count how often `onnxdbg bisect` names them: a table.

    python scripts/planting [ARCHITECTURE ...] [--each N] [--kind KIND ...] [--references KIND ...]

Needs the test extra (torch, transformers). The architectures are those of `scripts/matching`, small, with random
weights. A fault counts when an output, or a value that is compared, leaves its tolerance.

- named first: the first culprit is the node that was changed, or its region has that node; of a missing node, a
  neighbor.
- nothing else blamed: it is the only culprit.
"""

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.errors import RuntimeFailure, SurgeonError
from onnxsurgeon_lite.tensors.comparison import default_tolerance
from planters import KINDS, Fault, Plan, runs, spread
from subjects import NAMES, Subject, subjects

REFERENCES = ("full", "partial", "modules", "outputs", "float32")
HEAD = (
    "| model | references | faults | named first | nothing else blamed | healthy |",
    "|---|---|---|---|---|---|",
)
BAD = ("others", "missed", "error")
WORSE = 2.0  # times the error of the right model, where that has one


def judged(result: osl.BisectResult, fault: Fault, model: Path, counts: bool) -> str:
    """Return `named`, `others` (named first, and another is blamed), `missed`; `agrees` if it does not count."""
    if result.verdict != "mismatch":
        return "missed" if counts else "agrees"
    nodes = onnx.load(model, load_external_data=False).graph.node
    places = {f"@{i}" for i, node in enumerate(nodes) if not fault.places.isdisjoint(node.output)}
    held = [not places.isdisjoint([c.id, *c.region, *c.covers]) for c in result.culprits]
    if not held or not held[0]:
        return "missed"
    return "named" if len(held) == 1 else "others"


def healthy(subject: Subject, given: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield what bisect says of the right model."""
    for kind, references in chosen(subject, given).items():
        result = bisected(subject.model, references)
        state = (
            "error" if isinstance(result, str) else "agrees" if not result.culprits else "culprit"
        )
        if state != "agrees":
            show(subject, kind, "healthy", result)
        yield kind, "healthy", state


def chosen(subject: Subject, given: argparse.Namespace) -> dict[str, Path]:
    return {kind: path for kind, path in subject.references.items() if kind in given.references}


def faulty(
    subject: Subject, given: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, str, str]]:
    """Yield (kind of references, kind of fault, what bisect makes of it)."""
    plan = Plan(onnx.load(subject.model), subject.shapes)
    wrong = folder / "wrong.onnx"
    faults = spread(plan, given.kind, given.each)
    right = osl.run(subject.model, subject.feeds, opt="none")
    for fault in filter(lambda fault: runs(fault.model), faults):
        onnx.save(fault.model, wrong)
        try:
            made = osl.run(wrong, subject.feeds, opt="none")
        except RuntimeFailure:
            continue  # it has other dtypes than float32
        for kind, references in chosen(subject, given).items():
            result = bisected(wrong, references)
            counts = worse(made, right, subject, kind)
            state = "error" if isinstance(result, str) else judged(result, fault, wrong, counts)
            if given.verbose and state in BAD:
                show(subject, kind, f"{fault.kind} {sorted(fault.places)[:3]}: {state}", result)
            yield kind, fault.kind.partition(":")[0], state


def worse(made: osl.RunResult, right: osl.RunResult, subject: Subject, kind: str) -> bool:
    """Return whether an output mismatches its reference, where that of the right model errs far less."""
    of_float = kind in ("modules", "float32") and "float32" in subject.references
    stored = osl.open_references(subject.references["float32" if of_float else "full"])
    allowed = default_tolerance(subject.precision, subject.precision)
    pairs = [
        [osl.compare(values[name], stored.read(name), allowed) for values in (made, right)]
        for name in right
    ]
    return any(
        not wrong.match
        and (usual.match or wrong.metric("sqnr") < usual.metric("sqnr") - 20 * np.log10(WORSE))
        for wrong, usual in pairs
    )


def show(subject: Subject, kind: str, what: str, result: osl.BisectResult | str) -> None:
    print(f"  {subject.name}, {kind}, {what}")
    said = [result] if isinstance(result, str) else str(result).splitlines()[:8]
    print(*(f"      {line[:200]}" for line in said), sep="\n", flush=True)


def bisected(model: Path, references: Path) -> osl.BisectResult | str:
    try:
        return osl.bisect(model, references, cause=False)
    except SurgeonError as error:
        return f"error: {error}"


def rows(model: str, counts: Mapping[tuple[str, str], Counter[str]]) -> Iterator[str]:
    """Yield the shares of a model as rows of a Markdown table, one for each kind of references."""
    for kind in dict.fromkeys(kind for kind, _ in counts):
        found = sum(
            (c for (k, what), c in counts.items() if k == kind and what != "healthy"), Counter()
        )
        told = found["named"] + found["others"]
        total = told + found["missed"] + found["error"]
        right = "no culprit" if counts[kind, "healthy"]["agrees"] else "CULPRIT"
        shares = (f"{n} ({n / total:.1%})" if total else "" for n in (told, found["named"]))
        yield f"| {model} | {kind} | {total} | {' | '.join(shares)} | {right} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=NAMES, metavar="ARCHITECTURE")
    parser.add_argument("--each", type=int, default=1, help="faults of each kind")
    parser.add_argument("--kind", nargs="*", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--references", nargs="*", default=[*REFERENCES], choices=REFERENCES)
    parser.add_argument("--only", default="", help="part of the names of the models")
    parser.add_argument(
        "--keep", type=Path, help="folder for the models, which are deleted without it"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show what is not named")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    print(*HEAD, sep="\n", flush=True)
    for name in given.names:
        with tempfile.TemporaryDirectory() as temporary:
            folder = given.keep / name if given.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            for subject in subjects(name, folder):
                if given.only not in subject.name:
                    continue
                counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
                for kind, what, state in (
                    *healthy(subject, given),
                    *faulty(subject, given, folder),
                ):
                    counts[kind, what][state] += 1
                print(*rows(subject.name, counts), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
