"""How many mistakes `onnxdbg bisect` names, and whether every cause that it shows repairs: a table and two shares.

    python scripts/causes [--held-back | --all | --drawn SEED] [--only PATTERN] [--keep FOLDER] [--seconds S]

Needs the test extra (torch). Each case plants one mistake in a small network and bisects its export against the right
network. Some of the cases are held back: `--held-back` tells only their shares. `--drawn` measures cases that a seed
draws.
"""

import argparse
import re
import tempfile
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from cases import Case, cases, held_back
from drawn import drawn

import onnxsurgeon_lite as osl
from models import network
from onnxsurgeon_lite.debug.causes import finding
from onnxsurgeon_lite.debug.result import Culprit
from onnxsurgeon_lite.passes import Pipeline
from onnxsurgeon_lite.recording.torch_recorder import record_module


@dataclass
class Row:
    """What a case came to.

    Attributes:
        first: the true cause is the first one. shown: how many causes were shown. false: those that do not repair.
        repaired: `--repair` makes the model agree.
    """

    first: bool = False
    shown: int = 0
    false: list[str] = field(default_factory=list)
    repaired: bool = False
    said: str = ""
    seconds: tuple[float, float] = (0.0, 0.0)


def export(case: Case, bug: str, folder: Path) -> Path:
    path = folder / f"{case.network}_{bug or 'right'}_{case.exporter}.onnx"
    if path.exists():
        return path
    module, given = network(case.network, "" if bug == "padding" else bug)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (given,),
            path,
            dynamo=case.exporter == "dynamo",
            opset_version=case.opset,
            external_data=False,
            input_names=["given"],
            output_names=["made"],
            verbose=False,
        )
    if case.bug == "padding" and bug:
        model = osl.load(path)
        osl.save(osl.set_attr(model, "op:Conv[1]", {"pads": [2, 1, 0, 1]}).model, path, force=True)
    return path


def measured(case: Case, folder: Path) -> Row:
    wrong = export(case, case.bug, folder)
    right, given = network(case.network)
    how = {"feeds": {"given": given.numpy()}}
    if case.references == "modules":
        references = folder / f"{case.network}_refs"
        if not references.exists():
            record_module(right, (given,), folder=references, input_names=["given"])
        how["reference"] = references
    else:
        how["against"] = export(case, "", folder)
    start = time.perf_counter()
    plain = osl.bisect(wrong, **how, cause=False)
    middle = time.perf_counter()
    fixed = folder / "fixed.onnx"
    result = osl.bisect(wrong, **how, repair=fixed, force=True)
    row = Row(seconds=(middle - start, time.perf_counter() - middle))
    if plain.verdict != "mismatch":
        row.said = f"INVISIBLE: {plain.verdict}"
        return row
    judge(case, result, osl.load(wrong), how, row)
    return row


def judge(case: Case, result: osl.BisectResult, model: osl.Model, how: dict, row: Row) -> None:
    """Apply every cause alone, and search again: its culprit must be gone."""
    firsts = [cause.sentence for culprit in result.culprits for cause in culprit.causes[:1]]
    row.first = bool(firsts) and re.search(case.cause, firsts[0]) is not None
    row.said = " | ".join(firsts[:3]) or "; ".join(
        f"{c.op_type} {c.unexplained}" for c in result.culprits[:2]
    )
    for culprit in result.culprits:
        for cause in culprit.causes:
            row.shown += 1
            if not repairs(culprit, Pipeline(cause.steps).apply(model).model, how):
                row.false.append(cause.sentence)
    row.repaired = result.repair is not None and result.repair.verdict == "agrees"


def repairs(culprit: Culprit, edited: osl.Model, how: dict) -> bool:
    again = osl.bisect(edited, **how, cause=False)
    return culprit.value not in {other.value for other in again.culprits if other.own}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--held-back", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--drawn", type=int, metavar="SEED", help="cases that a seed draws")
    parser.add_argument("--count", type=int, default=15, help="of drawn cases")
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument(
        "--seconds", type=float, help="the least time for causes, on a busy machine"
    )
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    finding.SECONDS = asked.seconds or finding.SECONDS
    with tempfile.TemporaryDirectory() as made:
        folder = asked.keep or Path(made)
        folder.mkdir(exist_ok=True)
        rows = []
        chosen: Iterable[Case] = (
            case
            for number, case in enumerate(cases())
            if asked.all or held_back(case, number) == asked.held_back
        )
        if asked.drawn is not None:
            chosen = drawn(asked.drawn, asked.count, folder, export)
        for case in chosen:
            if not re.search(asked.only, case.name):
                continue
            try:
                rows.append(measured(case, folder))
            except KeyboardInterrupt:
                break  # what there is is told
            except Exception as error:  # a case that fails is told, and the others go on
                rows.append(Row(said=f"ERROR {type(error).__name__}: {error}"))
            row = rows[-1]
            if not asked.held_back:
                mark = "ok  " if row.first else "    "
                fixed = "repaired" if row.repaired else ""
                times = "{:.1f}s {:.1f}s".format(*row.seconds)
                print(f"{mark}{case.name}: {row.said[:230]} [{fixed}] {times}", flush=True)
                for sentence in row.false:
                    print(f"      FALSE {sentence}", flush=True)
    seen = [row for row in rows if not row.said.startswith("INVISIBLE")]
    first, shown = sum(row.first for row in seen), sum(row.shown for row in seen)
    false = sum(len(row.false) for row in seen)
    print(f"{len(seen)} cases: the true cause first in {first} ({first / max(1, len(seen)):.0%});")
    print(
        f"{shown} causes shown, {shown - false} repair; {sum(r.repaired for r in seen)} models repaired as a whole"
    )


if __name__ == "__main__":
    main()
