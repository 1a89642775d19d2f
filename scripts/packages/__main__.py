"""Plant faults in language model packages and exports with a cache, and count how often their true cause is named.

    python scripts/packages [SUBJECT ...] [--fault TEXT] [--mode KIND ...]

Needs the test extra and onnxruntime-genai, whose builder makes the packages of random weights. A fault is asked about
as people do:

- against: the right model decodes the same text, and `bisect` goes on at the first divergent step (the prompt, where
  all tokens agree).
- module: the PyTorch module is recorded at a prompt and at a step; int4 differs from it by more than a fault does.
- weights: the checkpoint, for faults in its numbers.

A repair is judged on fresh texts in plain onnxruntime, beside the right model, prompt and steps:

- true: the repair holds, or `weights` names the tensor. named: outputs that are exchanged are named, which is no
  node's fault. unknown: culprits, and no repair.
- WRONG: `agrees` of a model that differs, a repair that is said to agree and does not hold, or a culprit in a right
  model.
- invisible: the fault changes nothing on fresh texts.
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

import numpy as np
import onnx
import onnxruntime
import torch

import onnxsurgeon_lite as osl
from faults import FAULTS, Fault
from onnxsurgeon_lite.recording.torch_recorder import record_module
from onnxsurgeon_lite.tensors.dtypes import Array
from subjects import CACHE, SUBJECTS, Step, Subject, made, step

MODES = ("against", "module", "weights")
PROMPT, STEPS, FRESH = 7, 6, 3
HOW = {"decode": {"logits": "input_ids"}, "sequence": {"present.*": "past_key_values.*"}}
Feeds = dict[str, Array]


def fed(session: onnxruntime.InferenceSession, feeds: Feeds) -> Feeds:
    """Return the feeds that a model takes, with its positions and in its precision."""
    past = feeds["attention_mask"].shape[1] - feeds["input_ids"].shape[1]
    positions = np.arange(past, feeds["attention_mask"].shape[1])[None]
    known = {**feeds, "position_ids": positions}
    half = {each.name for each in session.get_inputs() if each.type == "tensor(float16)"}
    names = [each.name for each in session.get_inputs()]
    return {n: known[n].astype(np.float16) if n in half else known[n] for n in names}


def decoded(session: onnxruntime.InferenceSession, seed: int) -> list[Array]:
    """Return all outputs at a text and at each step behind it; the tokens are drawn, not decoded."""
    found, tokens = [], np.random.default_rng(seed).integers(3, 99, (1, PROMPT + STEPS))
    feeds = step(PROMPT, 0) | {"input_ids": tokens[:, :PROMPT]}
    names = [each.name for each in session.get_outputs()]
    for count in range(PROMPT, PROMPT + STEPS):
        outputs = dict(zip(names, session.run(None, fed(session, feeds)), strict=True))
        found += [outputs[name] for name in sorted(outputs)]
        cache = {f"past_key_values.{name}": outputs[f"present.{name}"] for name in CACHE}
        mask = np.ones((1, count + 1), np.int64)
        feeds = {"input_ids": tokens[:, count : count + 1], "attention_mask": mask, **cache}
    return found


def distance(model: Path, right: Path) -> float:
    """Return how far a model is from the right one on fresh texts, as a share of the largest number."""
    one, other = (onnxruntime.InferenceSession(str(path)) for path in (model, right))
    worst = 0.0
    for seed in range(100, 100 + FRESH):
        for a, r in zip(decoded(one, seed), decoded(other, seed), strict=True):
            if a.shape != r.shape or not np.isfinite(a).all():
                return float("inf")
            off = np.abs(a.astype(np.float64) - r.astype(np.float64)).max()
            worst = max(worst, float(off / np.abs(r.astype(np.float64)).max()))
    return worst


def against(model: Path, right: Subject, folder: Path) -> osl.BisectResult:
    """Bisect at the first divergent step, as the how-to page does."""
    feeds, written = {"input_ids": step(PROMPT, 0)["input_ids"]}, folder / "step.npz"
    found = osl.compare_sets(model, right.model, feeds, steps=STEPS, step_feeds=written, **HOW)
    given: object = written
    if found.match:
        session = onnxruntime.InferenceSession(str(model))
        given = [fed(session, step(PROMPT, 0)), fed(session, step(1, PROMPT + STEPS))]
    return osl.bisect(
        model, against=right.model, feeds=given, repair=folder / "repaired.onnx", force=True
    )


def module(model: Path, right: Subject, folder: Path) -> osl.BisectResult:
    """Bisect against the recording of a prompt and of a step."""
    if right.name.endswith("int4"):
        raise osl.SurgeonError("the integers differ from the module by more than a fault does")
    session = onnxruntime.InferenceSession(str(model))
    names = ["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in CACHE)]
    samples = [step(PROMPT, 0), step(1, PROMPT + STEPS)]
    args = [tuple(map(torch.from_numpy, sample.values())) for sample in samples]
    record_module(Step(right.module, named=True), args, folder=folder / "refs", input_names=names)
    given = [fed(session, sample) for sample in samples]
    return osl.bisect(
        model, folder / "refs", feeds=given, repair=folder / "repaired.onnx", force=True
    )


def weighed(model: Path, right: Subject, differs: bool) -> tuple[str, str]:
    """Return what the comparison with the checkpoint names: of what was changed, and of nothing else."""
    one, other = (
        {t.name: t.SerializeToString() for t in onnx.load(path).graph.initializer}
        for path in (model, right.model)
    )
    changed = {name for name in one if one[name] != other.get(name)}
    found = osl.weights(model, right.source / "model.safetensors")
    named = [w for w in found.weights if w.finding or not w.comparison.match]
    said = "; ".join(f"{w.name}: {w.how}, {w.finding}" for w in named)
    if not differs:
        return ("WRONG" if named else "agrees"), said
    if not named:
        return "WRONG", f"nothing differs, where {sorted(changed)} was changed"
    places = {name.rpartition("weight")[0] for name in changed}
    right_places = all(w.name.rpartition("weight")[0] in places for w in named)
    return ("true" if right_places else "WRONG"), said


def asked(
    mode: str, model: Path, right: Subject, fault: Fault | None, folder: Path
) -> tuple[str, str]:
    """Return (what became of it, the first cause in words)."""
    differs = fault is not None and distance(model, right.model) > right.close
    try:
        if mode == "weights":
            return weighed(model, right, differs)
        result = (against if mode == "against" else module)(model, right, folder)
    except osl.SurgeonError as error:
        return "refused", error.message
    (folder / "said.txt").write_text(str(result))
    causes = [cause for culprit in result.culprits for cause in culprit.causes]
    said = causes[0].sentence if causes else f"{[(c.op_type, c.name) for c in result.culprits]}"
    if fault is None:
        return ("WRONG" if result.culprits else result.verdict), said
    exchanged = next((note for note in result.notes if "not in the order" in note), "")
    if exchanged and differs:
        return "named", exchanged
    if result.verdict != "mismatch":
        return (
            "WRONG"
            if differs and result.verdict == "agrees"
            else result.verdict
            if differs
            else "invisible"
        ), said
    if not causes or result.repair is None or result.repair.model is None:
        return "unknown", said
    if distance(result.repair.model, right.model) <= right.close:
        return "true", said
    return ("WRONG" if result.repair.verdict == "agrees" else "partly"), said


def rows(given: argparse.Namespace) -> Iterator[tuple[str, str, str, str, float, str]]:
    for name in given.subject or SUBJECTS:
        base = given.keep or Path(tempfile.mkdtemp())
        right = made(name, base / name.replace(" ", "-"))
        for number, fault in enumerate((None, *FAULTS)):
            if given.fault not in (fault.name if fault else "healthy"):
                continue
            proto = onnx.load(right.model)
            if fault is not None and not fault.plant(proto):
                continue
            folder = base / name.replace(" ", "-") / str(number)
            for mode in given.mode:
                if mode == "weights" and fault is not None and not fault.of_weights:
                    continue
                if mode == "module" and right.name.endswith("int4"):
                    continue
                (folder / mode).mkdir(parents=True, exist_ok=True)
                wrong = folder / mode / "wrong.onnx"
                onnx.save(proto, wrong)
                start = time.perf_counter()
                state, said = asked(mode, wrong, right, fault, folder / mode)
                seconds = time.perf_counter() - start
                yield name, fault.name if fault else "", mode, state, seconds, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("subject", nargs="*", choices=[*SUBJECTS, []])
    parser.add_argument("--fault", default="", help="a part of the names of faults")
    parser.add_argument("--mode", nargs="*", choices=MODES, default=[*MODES])
    parser.add_argument(
        "--keep", type=Path, help="a folder for the models and what is said of them"
    )
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {mode: Counter() for mode in MODES}
    for name, fault, mode, state, seconds, said in rows(given):
        counts[mode][state if fault else f"healthy: {state}"] += 1
        print(f"| {name} | {fault} | {mode} | {state} | {seconds:.0f} | {said[:170]} |", flush=True)
    for mode, found in counts.items():
        print(mode, dict(found))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    sys.exit(main())
