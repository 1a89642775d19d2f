"""What scripts plant: the failures of `scripts/bench reduce`, the faults of `scripts/packages`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime

import onnxsurgeon_lite as osl
from kit import packages

SCRIPTS = Path(__file__).parents[2] / "scripts"


def _module(name: str, folder: str) -> ModuleType:
    spec = spec_from_file_location(name, SCRIPTS / folder / f"{name}.py")
    found = module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


MODULE = _module("failures", "benchmarks")
FAILURES = MODULE.FAILURES
FAULTS = _module("faults", "packages").FAULTS

CACHE = [f"{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
HOW = {"decode": {"logits": "input_ids"}, "sequence": {"present.*": "past_key_values.*"}}
PROMPT, STEPS = 7, 5
TEXT = {"input_ids": np.array([[3, 17, 5, 40, 2, 30, 11]])}


def decoded(place: Path, seed: int) -> list[np.ndarray]:
    """Return all outputs of a package of two layers at a text and at each step behind it."""
    session = onnxruntime.InferenceSession(str(place))
    names = [each.name for each in session.get_outputs()]
    tokens = np.random.default_rng(seed).integers(0, packages.VOCABULARY, (1, PROMPT + STEPS))
    empty = np.zeros((1, packages.KV_HEADS, 0, packages.HEAD), np.float32)
    cache, found, new = {f"past_key_values.{name}": empty for name in CACHE}, [], tokens[:, :PROMPT]
    for count in range(PROMPT, PROMPT + STEPS):
        mask = np.ones((1, count), np.int64)
        made = session.run(None, {"input_ids": new, "attention_mask": mask, **cache})
        found += made
        held = dict(zip(names, made, strict=True))
        cache = {f"past_key_values.{name}": held[f"present.{name}"] for name in CACHE}
        new = tokens[:, count : count + 1]
    return found


def repaired(fault: str, right: Path, folder: Path, close: float = 1e-4) -> osl.BisectResult:
    """Plant a fault, bisect as people do, and hold the repair on fresh texts.

    Args:
        close: how far a number may be off, as a share of the largest.
    """
    wrong, planted = folder / "wrong.onnx", osl.load(right).materialize()
    assert any(each.plant(planted) for each in FAULTS if each.name == fault)
    osl.save(planted, wrong)

    found = osl.compare_sets(wrong, right, TEXT, steps=8, step_feeds=folder / "step.npz", **HOW)
    given = None if found.match else folder / "step.npz"  # a small error changes no token
    result = osl.bisect(wrong, against=right, feeds=given, repair=folder / "repaired.onnx")

    assert result.verdict == "mismatch"
    assert result.repair.verdict == "agrees"
    for seed in (1, 2):
        pairs = zip(decoded(folder / "repaired.onnx", seed), decoded(right, seed), strict=True)
        for made, known in pairs:
            np.testing.assert_allclose(made, known, atol=close * np.abs(known).max())
    return result
