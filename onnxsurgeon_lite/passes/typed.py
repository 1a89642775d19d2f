"""Write edits as people type them: as steps of a recipe, or as a command."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import key_text, listed
from onnxsurgeon_lite.passes.insert import Insert
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.recipe_writing import given
from onnxsurgeon_lite.passes.remove import Remove
from onnxsurgeon_lite.passes.replace import Replace
from onnxsurgeon_lite.passes.rewire import Rewire
from onnxsurgeon_lite.passes.set_attr import SetAttr
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.passes.set_op import SetOp
from onnxsurgeon_lite.tensors.dtypes import is_array

_INLINE = 16  # more numbers are not typed


def as_step(step: Pass) -> dict[str, object]:
    """Return a pass as the step of a recipe; many numbers, and models, as what they are."""
    return {"verb": step.name} | {name: _plain(value) for name, value in given(step).items()}


def _plain(value: object) -> object:
    if is_array(value):
        return (
            value.tolist() if value.size <= _INLINE else f"{value.dtype.name} {list(value.shape)}"
        )
    if isinstance(value, Model):
        return f"a model of {len(value.graph.node)} nodes"
    # pairs become a table
    if isinstance(value, tuple) and value and all(isinstance(v, tuple) for v in value):
        return {str(key): _plain(item) for key, item in value}
    return list(map(_plain, value)) if isinstance(value, tuple | list) else value


def as_command(steps: Sequence[Pass], path: Path | None) -> list[str]:
    """Return the words of a command that makes an edit; none if it takes several, or numbers of a file."""
    if len(steps) != 1:
        return []
    words = list(_words(steps[0]))
    return ["onnxdbg", "edit", steps[0].name, str(path or "model.onnx")] + words if words else []


def _words(step: Pass) -> Iterator[str]:
    """Yield what follows the model on the command line; nothing if it cannot be typed."""
    match step:
        # only edits without parts that cannot be typed; the others give no words
        case SetAttr(nodes, attributes, ()):
            yield listed(nodes)
            yield from _pairs(attributes)
        case SetOp(nodes, op_type, None):
            yield from (listed(nodes), op_type)
        case Remove(nodes, bridge):
            yield from (listed(nodes),) + tuple(["--bridge", bridge] if bridge else [])
        case Rewire(old, new, to, slot):
            yield from (old, new, *_flags("--to", to))
            yield from () if slot is None else ("--slot", str(slot))
        case SetConstant(value, numbers, to) if _typed(numbers):
            yield from (value, _typed(numbers), *_flags("--to", to))
        case Insert(value, op_type) if all(_typed(numbers) for _, numbers in step.constants):
            yield from (value, op_type, *_flags("--attr", list(_pairs(step.attributes))))
            yield from _flags("--input", [*step.inputs, *(_typed(n) for _, n in step.constants)])
            yield from _flags("--to", step.to)
            yield from ["--before"] if step.before else []
        case Replace(inputs, outputs, op_type) if op_type:
            yield from ("--inputs", listed(inputs), "--outputs", listed(outputs), "--op", op_type)
            yield from _flags("--attr", list(_pairs(step.attributes)))


def _pairs(pairs: Sequence[tuple[str, object]] | Mapping[str, object]) -> Iterator[str]:
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return (f"{key_text(name)}={_typed(value)}" for name, value in items)


def _flags(flag: str, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        yield from (flag, value)


def _typed(value: object) -> str:
    """Return a value as it is typed; '' for many numbers."""
    if is_array(value):
        return json.dumps(value.tolist()) if value.size <= _INLINE else ""
    return value if isinstance(value, str) else json.dumps(value)
