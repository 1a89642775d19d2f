"""Read a recipe: verbs in a TOML file -> a pipeline.

    [[step]]
    verb = "set-op"         # the pass; the other keys are its fields
    nodes = ["Add_7"]
    op_type = "Sub"

Pairs are tables: `names = {"31" = "out"}`; where the second half is optional, a list of names suffices.
Numbers may be the path of a file; a second model is a path. A recipe is data, which anybody may have written:
unless it is trusted, it runs no Python and names no URL, and no file outside its folder and the current one.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np

from onnxsurgeon_lite.errors import SurgeonError, UnknownNameError, UsageError, require_known
from onnxsurgeon_lite.graph import RejectedError
from onnxsurgeon_lite.graph.native import begin_together
from onnxsurgeon_lite.passes.protocol import AttributeValue, Pass, Pipeline
from onnxsurgeon_lite.passes.restore import Restore
from onnxsurgeon_lite.plugins import PASSES, brought
from onnxsurgeon_lite.remote import Remote, placed
from onnxsurgeon_lite.surgery import read_numbers
from onnxsurgeon_lite.untrusted import text_of

_SYNONYMS = {"merge": "append"}  # a model after another

_FILES = (".onnx", ".npy", ".npz", ".safetensors", ".pb")


def read_toml(path: Path, folder: Path | None = None) -> dict[str, object]:
    """Read a TOML file of usual size.

    Args:
        folder: where it must lie, links followed.

    Raises:
        UsageError, ReferenceSetError: it cannot be read, or is no regular file.
        RuntimeTimeout, RuntimeFailure: reading it takes too long, or too much memory.
    """
    import tomllib

    text = text_of(path, folder, 1 << 22)
    try:
        # in a fork, with limits: a key of many parts takes Python's parser hours
        return begin_together("the TOML parser", tomllib.loads, text)()
    except RejectedError as error:  # numbers too long, lists too deep
        raise UsageError(f"cannot read {str(path)!r}: {error}") from error


def read_recipe(
    path: Path, passes: Mapping[str, type[Pass]], allow_scripts: bool = False
) -> Pipeline:
    """Read a recipe into a pipeline.

    Args:
        allow_scripts: it may run Python, and read URLs and files anywhere.
    """
    steps = read_toml(path).get("step")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UsageError(
            f"the recipe {str(path)!r} has no steps", 'write [[step]], then verb = "rename" ...'
        )
    made = []
    for number, step in enumerate(steps, 1):
        try:
            given = dict(step)
            # before the pass is made: nothing of an untrusted step is read
            if not allow_scripts:
                _require_data(given, path.parent)
            made.append(make_pass(str(given.pop("verb", "")), given, passes))
        except SurgeonError as error:
            error.add_note(f"in step {number} of {len(steps)} of {str(path)!r}")
            raise
    return Pipeline(tuple(made))


def _require_data(step: Mapping[str, object], folder: Path) -> None:
    """Raise `UsageError` if a step does what a recipe may not do unasked."""
    asked = "if you trust it, write --allow-scripts (in Python allow_scripts=True)"
    if step.get("verb") == "script":
        raise UsageError(f"the recipe runs Python: {step.get('edit')!r}", asked)
    near = folder.resolve(), Path.cwd()
    # any text may be a path, whichever key it has
    for text in _texts(step):
        # a name with a model's ending, or a file that exists
        is_file = Path(text).suffix in _FILES or (os.path.lexists(text) and not Path(text).is_dir())
        # links are followed: they may lead out of the folder
        real = os.path.realpath(text) if is_file else ""
        if isinstance(placed(text), Remote) or (
            is_file and not any(Path(real).is_relative_to(own) for own in near)
        ):
            raise UsageError(f"the recipe reads {text!r}, which is not in its folder", asked)


def _texts(value: object) -> Iterator[str]:
    """Every text of a TOML value."""
    if isinstance(value, str):
        # what follows a NUL byte is no part of a path
        yield value.partition("\0")[0]
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def make_pass(verb: str, step: Mapping[str, object], passes: Mapping[str, type[Pass]]) -> Pass:
    """Create a pass from its fields, as TOML or Python values."""
    verb = _SYNONYMS.get(verb, verb)
    # `Restore` only exists in recipes that undo edits; plugins are looked for where the verb is not ours
    if verb != Restore.name and verb not in passes:
        unknown = UnknownNameError(verb, "a recipe", passes, kind="verb")
        for line in brought(PASSES)[1]:
            unknown.add_note(line)
        raise unknown
    kind = passes.get(verb, Restore)
    if not dataclasses.is_dataclass(kind):
        raise TypeError(kind)  # every pass is one
    types = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    require_known(step, fields, f"verb {verb!r}", "key")
    # a field without a default
    for name, field in fields.items():
        if name not in step and field.default is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"verb {verb!r} needs {name!r}", f"write {name} = ...")
    given = {
        key: value if callable(value) else _value(key, value, types[key])  # a script's function
        for key, value in step.items()
    }
    return kind(**given)


def _value(key: str, value: object, expected: object) -> object:
    """Convert a value of TOML or Python to the field's type."""
    options = get_args(expected)
    if get_origin(expected) is Literal:
        return _choice(key, value, options)
    # numbers: written out, or a file
    if any(get_origin(option) is np.ndarray for option in options):  # `Numbers`
        return read_numbers(value) if isinstance(value, str) else value
    if expected == AttributeValue or isinstance(value, tuple):
        return value
    if get_origin(expected) is Mapping:
        return dict(_pairs(key, value, options[1]))
    if get_origin(expected) is tuple:
        item = options[0]
        # a table of pairs; the second half has the type that follows
        if get_origin(item) is tuple:
            return _pairs(key, value, get_args(item)[1])
        values = value if isinstance(value, list) else [value]
        return tuple(_value(key, v, item) for v in values)
    # None is the default of a field, never written
    kinds = [kind for kind in (options or (expected,)) if kind is not NoneType]
    # an int where only a float is asked for; a bool is neither
    if type(value) is int and int not in kinds and float in kinds:
        return float(value)
    if type(value) not in kinds:
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise UsageError(f"{key!r} is {value!r}, not of type {names}", f"give {key} = {names}")
    return value


def _choice(key: str, value: object, options: Sequence[object]) -> object:
    if value not in options:
        raise UsageError(f"{key!r} is {value!r}", f"write {' or '.join(map(repr, options))}")
    return value


def _pairs(key: str, value: object, expected: object) -> tuple[tuple[str, object], ...]:
    """Convert a table to pairs, or a list of names where the second half is optional."""
    # freeze = ["a", "b"] keeps their defaults
    if isinstance(value, list) and NoneType in get_args(expected):
        return tuple((str(name), None) for name in value)
    if not isinstance(value, dict):
        raise UsageError(f"{key!r} is not a table", f'write {key} = {{"name" = ...}}')
    return tuple((name, _value(key, v, expected)) for name, v in value.items())
