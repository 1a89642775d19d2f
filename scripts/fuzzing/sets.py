"""Damaged sets of references, maps, journals, recipes and checkpoints, read by commands."""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from onnx import numpy_helper

import running
from commands import LIMITS
from readers import damaged

if TYPE_CHECKING:
    from __main__ import Attack

_MADE = (
    "record original.onnx -o set.npz",
    "record original.onnx -o set.safetensors",
    "match recorded original.onnx --save pairs.json",
    "bisect original.onnx --reference recorded --journal journal -o culprit",
)
_READ = """
compare original.onnx SET LIMITS
compare SET SET
compare SET recorded --json
run original.onnx --feeds SET LIMITS
bisect original.onnx --reference SET -o culprit LIMITS
rank original.onnx --reference SET LIMITS
match SET original.onnx LIMITS
weights original.onnx --against SET
weights original.onnx --update SET -o out.onnx
repl original.onnx --reference SET LIMITS -c "run; why; heal h"
"""
_OTHERS = {
    "weights.npz": "weights original.onnx --against weights.npz\n"
    "weights original.onnx --update weights.npz -o out.onnx",
    "pairs.json": "compare original.onnx recorded --map pairs.json LIMITS\n"
    "bisect original.onnx --reference recorded --map pairs.json -o culprit LIMITS",
    "journal": "bisect original.onnx --reference recorded --journal journal --resume -o culprit LIMITS\n"
    "bisect original.onnx --reference recorded --journal journal -o culprit LIMITS",
    "recipe.toml": "edit apply recipe.toml original.onnx -o out.onnx",
    "suite.toml": "test --config suite.toml LIMITS",
}
_SETS = {
    "recorded/index.json": "recorded",
    "recorded/values.bin": "recorded",
    "set.npz": "set.npz",
    "set.safetensors": "set.safetensors",
    "test_data_set_0/input_0.pb": "test_data_set_0",
    "test_data_set_0/output_0.pb": "test_data_set_0",
}


def mutants_of(
    attack: "Attack", models: dict[str, bytes], given: argparse.Namespace
) -> Iterator[None]:
    """Attack every command that reads such a file with damaged ones, each kind in turn."""
    _prepare(attack, models["plain"])
    files = [*_SETS, *_OTHERS]
    whole = {name: (attack.folder / name).read_bytes() for name in files}
    for number in range(given.first, given.first + given.mutants):
        name = files[number % len(files)]
        data = damaged(whole[name], whole[name], Random(f"{given.seed}/{number}"))
        text = _OTHERS.get(name) or _READ.replace("SET", _SETS[name])
        lines = text.replace("LIMITS", LIMITS).strip().splitlines()
        label = f"{Path(name).name}-{given.seed}-{number}"
        attack.attack(label, data, [shlex.split(line) for line in lines], name)
        (attack.folder / name).write_bytes(whole[name])
        yield


def _prepare(attack: "Attack", model: bytes) -> None:
    attack.prepare("plain", model)
    for line in _MADE:
        running.run(line.split(), attack.folder)
    folder = attack.folder / "test_data_set_0"
    folder.mkdir()
    with np.load(attack.folder / "set.npz") as stored:
        for file, value in (("input_0", "x"), ("output_0", "y")):
            tensor = numpy_helper.from_array(stored[value], value)
            (folder / f"{file}.pb").write_bytes(tensor.SerializeToString())
