"""Ask `bisect` about mistakes that were written without knowing what it looks for, and count what holds.

    python scripts/strangers [SUBJECT ...] [--slip KEY] [--mode KIND] [--seconds N]

Each subject is a network that somebody writes a second time, with a mistake (`SLIPS`); the second is exported, the
first gives the references: by `osl.record`, by hooks of one's own, or the outputs alone, in turn. A repair is judged
on fresh inputs in plain onnxruntime, beside the right network in PyTorch:

- true: the repair holds. partly: it is said to be incomplete. unknown: culprits, and no cause.
- WRONG: `agrees` of a model that differs, or a repair that is said to agree and does not hold.
- invisible: the mistake changes nothing on fresh inputs.
"""

import argparse
import logging
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import conditioned
import deployed
import exported
import handmade
import language
import numpy as np
import onnxruntime
import other
import packaged
import ported
import reimplemented
import rewritten
import samplewise
import served
import torch
import vision

import onnxsurgeon_lite as osl
from subjects import Subject, made

SUBJECTS = {
    kind.__name__: kind
    for kind in (
        *vision.SUBJECTS,
        *language.SUBJECTS,
        *other.SUBJECTS,
        *packaged.SUBJECTS,
        *handmade.SUBJECTS,
        *rewritten.SUBJECTS,
        *samplewise.SUBJECTS,
        *conditioned.SUBJECTS,
        *reimplemented.SUBJECTS,
        *ported.SUBJECTS,
        *exported.SUBJECTS,
        *deployed.SUBJECTS,
        *served.SUBJECTS,
    )
}
CLOSE = 1e-4  # of the largest number of an output: twenty times what kernels differ by here
FRESH = 3
MODES = ("record", "hooks", "record", "final")


def arrays(given: object) -> list[np.ndarray]:
    parts = given if isinstance(given, tuple) else (given,)
    return [part.detach().numpy() for part in parts]


def distance(model: Path, right: Subject) -> float:
    """Return how far a model is from the right network on fresh inputs, as a share of the largest number."""
    session, worst = onnxruntime.InferenceSession(str(model)), 0.0
    torch.manual_seed(1234)
    for _ in range(FRESH):
        inputs = right.inputs()
        names = [each.name for each in session.get_inputs()]
        found = session.run(None, dict(zip(names, arrays(inputs), strict=False)))
        for a, r in zip(found, arrays(right(*inputs)), strict=True):
            if a.shape != r.shape:
                return float("inf")
            off = float(np.abs(a - r).max() / np.abs(r).max())
            worst = max(worst, float("inf") if np.isnan(off) else off)
    return worst


def references(mode: str, right: Subject, inputs: tuple, folder: Path) -> dict[str, np.ndarray]:
    """Return tensors as a person has them: of hooks on every layer, or the outputs alone."""
    outputs = {f"y{i}": array for i, array in enumerate(arrays(right(*inputs)))}
    if mode == "final":
        return outputs
    if mode == "record":
        return osl.record(right, args=inputs)
    seen: dict[str, np.ndarray] = {}
    for name, module in right.named_modules():
        if not list(module.children()) and name:

            def hook(_module, _inputs, output, name=name):
                seen[name] = arrays(output[0] if isinstance(output, tuple) else output)[0]

            module.register_forward_hook(hook)
    right(*inputs)
    return seen | outputs


def asked(
    kind: type[Subject], slip: str, mode: str, folder: Path, limit: float | None
) -> tuple[str, float, str]:
    """Return (what became of it, seconds, the first cause in words)."""
    right, wrong = made(kind), made(kind, slip)
    torch.manual_seed(7)
    inputs = right.inputs()
    names = [f"x{i}" for i in range(len(inputs))]
    outs = [f"y{i}" for i in range(len(arrays(wrong(*inputs))))]
    model, repaired = folder / "wrong.onnx", folder / "repaired.onnx"
    how = {"input_names": names, "output_names": outs, "dynamo": False}
    torch.onnx.export(wrong, inputs, str(model), **how)
    feeds = dict(zip(names, arrays(inputs), strict=True))
    session = onnxruntime.InferenceSession(str(model))
    feeds = {each.name: feeds[each.name] for each in session.get_inputs()}
    differs = distance(model, right) > CLOSE
    known = references(mode, right, inputs, folder)
    start = time.perf_counter()
    try:
        found = osl.bisect(str(model), known, feeds=feeds, repair=repaired, seconds=limit)
    except osl.SurgeonError as error:
        return "refused", time.perf_counter() - start, error.message
    seconds = time.perf_counter() - start
    (folder / "said.txt").write_text(str(found))
    causes = [cause for culprit in found.culprits for cause in culprit.causes]
    said = causes[0].sentence if causes else f"{[c.op_type for c in found.culprits]}"
    if not slip:
        return ("agrees" if found.verdict == "agrees" else "WRONG"), seconds, found.verdict
    if found.verdict == "agrees":
        return ("WRONG" if differs else "invisible"), seconds, "agrees"
    if not causes or found.repair is None or found.repair.model is None:
        return ("unknown" if found.verdict == "mismatch" else found.verdict), seconds, said
    holds = distance(found.repair.model, right) <= CLOSE
    if holds:
        return "true", seconds, said
    return ("WRONG" if found.repair.verdict == "agrees" else "partly"), seconds, said


def rows(given: argparse.Namespace) -> Iterator[tuple[str, str, str, str, float, str]]:
    for number, (name, kind) in enumerate(SUBJECTS.items()):
        for turn, slip in enumerate(("", *kind.SLIPS)):
            mode = MODES[(number + turn) % len(MODES)]  # a fair share of mistakes for each
            if (given.subject and name not in given.subject) or given.slip not in (None, slip):
                continue
            with tempfile.TemporaryDirectory() as folder:
                yield (
                    name,
                    slip,
                    given.mode or mode,
                    *asked(kind, slip, given.mode or mode, Path(folder), given.seconds),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("subject", nargs="*", choices=[*SUBJECTS, []])
    parser.add_argument("--slip")
    parser.add_argument("--mode", choices=sorted(set(MODES)))
    parser.add_argument("--seconds", type=float, help="for the search of causes")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    for name, slip, mode, state, seconds, said in rows(given):
        counts[state] += 1
        print(f"| {name} | {slip} | {mode} | {state} | {seconds:.0f} | {said[:150]} |", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    sys.exit(main())
