"""A list of verbs in a TOML file -> a pipeline.

    [[step]]
    verb = "set-op"         # the pass; the other keys are its fields
    nodes = ["Add_7"]
    op_type = "Sub"

Pairs are tables: `names = {"31" = "out"}`; a list of names leaves out the other halves where they can be left out.
Numbers may be the path of a file that holds them, a second model is the path of one.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import get_args, get_origin, get_type_hints

import numpy as np

from onnxsurgeon_lite.errors import SurgeonError, UnknownNameError, UsageError
from onnxsurgeon_lite.passes.pipeline import Pipeline
from onnxsurgeon_lite.passes.protocol import Pass
from onnxsurgeon_lite.passes.set_attr import AttributeValue
from onnxsurgeon_lite.surgery.constants import read_numbers


def read_recipe(path: Path, passes: Mapping[str, type[Pass]]) -> Pipeline:
    """The pipeline that a recipe describes.

    Raises:
        UsageError, UnknownNameError: the file cannot be read, or a step is wrong; a note names the step.
    """
    try:
        steps = tomllib.loads(path.read_text(encoding="utf-8")).get("step")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read the recipe {str(path)!r}: {error}") from error
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UsageError(
            f"the recipe {str(path)!r} has no steps", 'write [[step]], then verb = "rename" ...'
        )
    made = []
    for number, step in enumerate(steps, 1):
        try:
            given = dict(step)
            made.append(make_pass(str(given.pop("verb", "")), given, passes))
        except SurgeonError as error:
            error.add_note(f"in step {number} of {len(steps)} of {str(path)!r}")
            raise
    return Pipeline(tuple(made))


def make_pass(verb: str, step: Mapping[str, object], passes: Mapping[str, type[Pass]]) -> Pass:
    """A pass from its fields as a recipe has them, or as they are.

    Raises:
        UnknownNameError: there is no such verb, or it has no such field.
        UsageError: a field is missing, or of another type.
    """
    if verb not in passes:
        raise UnknownNameError(verb, "a recipe", passes, kind="verb")
    kind = passes[verb]
    if not dataclasses.is_dataclass(kind):
        raise TypeError(kind)  # every pass is one
    types = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in step:
        if key not in fields:
            raise UnknownNameError(key, f"verb {verb!r}", fields, kind="key")
    for name, field in fields.items():
        if name not in step and field.default is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"verb {verb!r} needs {name!r}", f"write {name} = ...")
    given = {
        key: value if callable(value) else _value(key, value, types[key])  # a script's function
        for key, value in step.items()
    }
    return kind(**given)


def _value(key: str, value: object, wanted: object) -> object:
    """A TOML value, or one of Python, as a field has it."""
    options = get_args(wanted)
    if any(get_origin(option) is np.ndarray for option in options):  # `Numbers`
        return read_numbers(value) if isinstance(value, str) else value
    if wanted == AttributeValue:
        return value
    if isinstance(value, tuple):
        return value
    if get_origin(wanted) is Mapping:
        if not isinstance(value, dict):
            raise UsageError(f"{key!r} is no table", f'write {key} = {{"name" = ...}}')
        return {name: _value(key, v, options[1]) for name, v in value.items()}
    if get_origin(wanted) is tuple:
        item = options[0]
        if get_origin(item) is tuple:
            return _pairs(key, value, get_args(item)[1])
        values = value if isinstance(value, list) else [value]
        return tuple(_value(key, v, item) for v in values)
    kinds = [kind for kind in (options or (wanted,)) if kind is not NoneType]
    if type(value) is int and int not in kinds and float in kinds:
        return float(value)
    if type(value) not in kinds:
        names = " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        raise UsageError(f"{key!r} is {value!r}, not of type {names}")
    return value


def _pairs(key: str, value: object, wanted: object) -> tuple[tuple[str, object], ...]:
    """A table, or names alone where the other half can be left out."""
    if isinstance(value, list) and NoneType in get_args(wanted):
        return tuple((str(name), None) for name in value)
    if not isinstance(value, dict):
        raise UsageError(f"{key!r} is no table", f'write {key} = {{"name" = ...}}')
    return tuple((name, _value(key, v, wanted)) for name, v in value.items())
