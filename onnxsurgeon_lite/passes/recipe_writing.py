"""Write edits as a Python script or a recipe for `onnxdbg edit apply`; large arrays go into `.npy` files beside it.

Edits are written as people type them, too: as steps of a recipe, or as a command.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.atomic import Staging
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import key_text, listed, python, toml
from onnxsurgeon_lite.passes.insert import Insert
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.remove import Remove
from onnxsurgeon_lite.passes.replace import Replace
from onnxsurgeon_lite.passes.rewire import Rewire
from onnxsurgeon_lite.passes.set_attr import SetAttr
from onnxsurgeon_lite.passes.set_constant import SetConstant
from onnxsurgeon_lite.passes.set_op import SetOp
from onnxsurgeon_lite.tensors.dtypes import Array, is_array

_INLINE = 64  # larger arrays go into files

_SCRIPT = """\
{title}

import sys
{numpy}
import onnxsurgeon_lite as osl

STEPS = (
{steps})


def edit(model: osl.Model) -> osl.Model:
    for step in STEPS:
        model = step.apply(model).model
    return model


if __name__ == "__main__":
    source, target = [*sys.argv[1:], *({source}, {target})[len(sys.argv) - 1 :]]
    osl.save(edit(osl.load(source)), target)
"""


def write_script(steps: Sequence[Pass], path: Path, source: str, target: str) -> None:
    """Write a Python script that repeats the edits."""
    with Staging() as staging:
        stored = _Stored(staging, path)
        lines = "".join(f"    {_call(step, stored)},\n" for step in steps)
        # small arrays are written out, so not every script with numbers needs files
        needs_numpy = "\nimport numpy as np\n" if "np." in lines else ""
        title = f"Edits of {source}, written by onnxdbg repl: python {path.name} [IN [OUT]]."
        names = {"title": python(title), "source": python(source), "target": python(target)}
        stored.finish(_SCRIPT.format(**names, numpy=needs_numpy, steps=lines))


def write_recipe(steps: Sequence[Pass], path: Path) -> None:
    """Write a recipe that repeats the edits."""
    with Staging() as staging:
        stored = _Stored(staging, path)
        stored.finish("\n".join(_table(step, stored) for step in steps))


class _Stored:
    """Writes a text and its array files, all or none."""

    def __init__(self, staging: Staging, path: Path) -> None:
        self.staging = staging
        self.path = path
        self.numbers = itertools.count(1)

    def file(self, array: Array) -> str:
        path = self._free("npy")
        with self.staging.open(path) as file:
            np.save(file, array, allow_pickle=False)
        return str(path)

    def model(self, model: Model) -> str:
        """Write a small model of a step; return its path."""
        path = self._free("onnx")
        with self.staging.open(path) as file:
            file.write(model.materialize().SerializeToString())
        return str(path)

    def _free(self, suffix: str) -> Path:
        """Return where a file can stand: those of an older script stay."""
        # numbered upwards, without files that exist
        names = (self.path.with_suffix(f".{number}.{suffix}") for number in self.numbers)
        return next(name for name in names if not os.path.lexists(name))

    def finish(self, text: str) -> None:
        with self.staging.open(self.path) as file:
            file.write(text.encode())
        self.staging.commit()


def given(step: Pass) -> dict[str, object]:
    """Return the fields that differ from their defaults."""
    if not dataclasses.is_dataclass(step):
        raise TypeError(step)  # every pass is one
    return {
        field.name: value
        for field in dataclasses.fields(step)
        # arrays have no truth value when compared
        if is_array(value := getattr(step, field.name)) or value != _default(field)
    }


def _default(field: "dataclasses.Field[object]") -> object:
    # a default may be made by a factory
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


def _call(step: Pass, stored: _Stored) -> str:
    def array(numbers: Array) -> str:
        if numbers.size > _INLINE and numbers.dtype != object:
            return f"np.load({python(stored.file(numbers))})"
        return f"np.array({python(numbers.tolist())}, {python(numbers.dtype.name)})"

    fields = (f"{name}={_python(value, array)}" for name, value in given(step).items())
    return f"osl.{type(step).__name__}({', '.join(fields)})"


def _python(value: object, array: Callable[[Array], str]) -> str:
    if is_array(value):
        return array(value)
    if isinstance(value, tuple):
        items = [_python(item, array) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    try:
        return python(value.item() if isinstance(value, np.generic) else value)
    except TypeError as error:
        raise UsageError(
            f"a script cannot say a step that holds a {type(value).__name__}",
            "give scripts by the paths of their files",
        ) from error


def _table(step: Pass, stored: _Stored) -> str:
    lines = ["[[step]]", f"verb = {_toml(step.name, stored)}"]
    lines += (f"{name} = {_toml(value, stored)}" for name, value in given(step).items())
    return "\n".join(lines) + "\n"


def _toml(value: object, stored: _Stored) -> str:
    if isinstance(value, Model):
        return _toml(stored.model(value), stored)
    if is_array(value):
        # other kinds of numbers, and many of them, go into a file
        small = value.size <= _INLINE and value.dtype.kind in "iuf"
        return _toml(value.tolist(), stored) if small else _toml(stored.file(value), stored)
    if isinstance(value, Mapping):
        value = tuple(value.items())
    # pairs become a table
    if (
        isinstance(value, tuple)
        and value
        and all(
            isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
            for item in value
        )
    ):
        # names without a second half become a list
        if all(item is None for _, item in value):
            return _toml([name for name, _ in value], stored)
        pairs = (f"{_toml(name, stored)} = {_toml(item, stored)}" for name, item in value)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_toml(item, stored) for item in value)}]"
    if value is None:
        raise UsageError(
            "TOML cannot express None inside a table", "write a script instead: export session.py"
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return toml(value) if isinstance(value, str) else repr(value)


_TYPED = 16  # more numbers are not typed


def as_step(step: Pass) -> dict[str, object]:
    """Return a pass as the step of a recipe; many numbers, and models, as what they are."""
    return {"verb": step.name} | {name: _plain(value) for name, value in given(step).items()}


def _plain(value: object) -> object:
    if is_array(value):
        return value.tolist() if value.size <= _TYPED else f"{value.dtype.name} {list(value.shape)}"
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
        return json.dumps(value.tolist()) if value.size <= _TYPED else ""
    return value if isinstance(value, str) else json.dumps(value)
