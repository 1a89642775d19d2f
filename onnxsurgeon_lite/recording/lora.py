"""A LoRA adapter, and a checkpoint that has it merged in: W + scale * B @ A, as the `peft` library does it."""

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet
from onnxsurgeon_lite.untrusted import json_of

_PART = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
_FOREIGN = ("alpha_pattern", "fan_in_fan_out", "use_dora")  # what a merge has to know otherwise


Lora = dict[str, NDArray[np.float32]]
"""What an adapter adds to a weight [out, in]: A [rank, in], B [out, rank] and a scale, by names."""


def loras(base: ReferenceSet, adapter: ReferenceSet, alpha: float | None) -> dict[str, Lora]:
    """Return what an adapter adds to each weight of a checkpoint, by the weight's name.

    Args:
        base: weights [out, in] by name, as `model.layers.0.self_attn.q_proj.weight`.
        adapter: A [rank, in] and B [out, rank] of some of them.
        alpha: the scale is alpha / rank; by default as the `adapter_config.json` beside the adapter says.

    Raises:
        ReferenceSetError: the adapter is none of Linear layers, or of another network.
        UsageError: nothing says its alpha.
    """
    path = Path(adapter.place).with_name("adapter_config.json")
    config = json_of(path) if path.is_file() else {}
    if alpha is None and "lora_alpha" not in config:
        raise UsageError(
            f"nothing says the alpha of {adapter.place!r}", "give it: --alpha 16, as in training"
        )
    # beside each weight its A and B, which must have its sizes
    factor = float(str(config["lora_alpha"])) if alpha is None else alpha
    found = {}
    for name, parts in _pairs(adapter, config).items():
        is_whole = len(parts) == 2
        if not is_whole or name not in base.entries:
            lacks = base.place if is_whole else adapter.place
            raise ReferenceSetError(
                f"{lacks!r} lacks a part of {name!r}", "give the checkpoint that was adapted"
            )
        a, b = (_floats(adapter, parts[part]) for part in "AB")
        shape = base.entries[name].shape or np.shape(_floats(base, name))
        if (b.shape[0], a.shape[-1]) != shape or b.shape[1:] != a.shape[:1]:
            raise ReferenceSetError(
                f"B {list(b.shape)} @ A {list(a.shape)} does not fit {name!r}",
                "give the checkpoint that was adapted",
            )
        # "rank-stabilized" adapters divide by the root of the rank
        rank = math.sqrt(len(a)) if config.get("use_rslora") else len(a)
        scale = np.asarray(factor / rank, np.float32)
        found[name] = {parts["A"]: a, parts["B"]: b, f"{name}.lora_scale": scale}
    return found


def merged(base: ReferenceSet, adapted: Mapping[str, Lora]) -> ReferenceSet:
    """Return a checkpoint with an adapter merged into its weights, each when it is read."""
    entries = {
        name: Entry(partial(_merged, base, name, lora), base.entries[name].shape)
        for name, lora in adapted.items()
    }
    return replace(base, entries=dict(base.entries) | entries)


def _pairs(adapter: ReferenceSet, config: Mapping[str, object]) -> Mapping[str, Mapping[str, str]]:
    """Return the weight's name -> the names of its A and B."""
    unknown = next((key for key in _FOREIGN if config.get(key)), "")
    pairs = defaultdict[str, dict[str, str]](dict)
    for name in adapter:
        found = _PART.fullmatch(name)
        if found is None or unknown:
            raise ReferenceSetError(
                f"{name!r} of {adapter.place!r} is no plain LoRA of a Linear layer{unknown and f' ({unknown})'}",
                "merge it with peft's merge_and_unload(), and give that checkpoint with --update",
            )
        pairs[f"{found[1]}.weight"][found[2]] = name
    return pairs


def _floats(tensors: ReferenceSet, name: str) -> NDArray[np.float32]:
    return np.asarray(tensors.read(name)).astype(np.float32)


def _merged(base: ReferenceSet, name: str, lora: Lora) -> Array:
    a, b, scale = lora.values()
    return _floats(base, name) + scale * (b @ a)
