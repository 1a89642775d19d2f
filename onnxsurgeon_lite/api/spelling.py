"""Functions spell out what they share: options in their signatures, and their meaning in their docstrings."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Literal, ParamSpec, TypeVar, get_args, get_origin

from onnxsurgeon_lite.api.call import Call
from onnxsurgeon_lite.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

_MEANING = {
    "model": "A path, a file's bytes, a `ModelProto`, a `Model` or the result of an edit.",
    "nodes": "Names, ids (`@3`), globs, `op:Conv[2]`.",
    "op_type": "The operator.",
    "attributes": "Name -> number, text or list.",
    "domain": "The operator's domain.",
    "node_name": "Name of the new node.",
    "to": "The nodes that read the value; all by default.",
    "second": "An export of the same network at other sizes: constants that differ are derived from it.",
    "source": "A path, a file's bytes, a `ModelProto`, a `Model` or the result of an edit.",
    "feeds": "Input name -> array of the declared dtype and shape, or a path; made by default.",
    "map": "How references are matched with values: `auto`, `names`, or a file of `match`.",
    "opt": "Graph optimization level of the runtime.",
    "output": "Where to write.",
    "force": "Overwrite what is there.",
    "dry_run": "Find out what would be written, and write nothing.",
    "verify": "Run both models and compare their outputs.",
    "unproved": "Do not prove new sizes, or another opset, by running.",
    "seed": "Seed of made feeds; each input has its own stream.",
    "dim": "Size of each symbolic dimension in made feeds, by name; 1 for others.",
    "fill": "How an input is made, by name: `zeros`, `ones`, `normal`, `uniform:lo,hi`, numbers or a file.",
    "rtol": "Relative tolerance, of all or by name or glob; None for each dtype's own, 0 when only `atol` is given.",
    "atol": "Absolute tolerance, in the value's unit; None for each dtype's own.",
    "ulp": "Units in the last place that an element may be off by as well.",
    "allow": "The share of elements that may be off by more, 0 to 1, or `0.1%`.",
    "runtime": "`ort`, `reference`, `openvino`, `command:PROGRAM`, `torch:FILE.py:function` or a plugin, `:key=value`.",
    "provider": "Execution provider: `cpu`, `cuda`, or onnxruntime's own name for one.",
    "threads": "Threads of the runtime; 0 lets it choose.",
    "timeout": "Seconds that a request to the runtime, or to ONNX's own code, may take; None for the usual limits.",
    "memory_limit": "Bytes that the runtime, or ONNX's own code, may allocate, or `4GB`; 0 for the usual limits.",
    "ops_library": "Shared libraries with custom operators.",
    "jobs": "How many runtimes work on the samples, each with one thread by default; 0 for one with all threads.",
    "cluster": "Let a Dask cluster work on the samples, or on parts of a model: `local`, a scheduler's address, "
    "or the file that it wrote.",
    "sequence": "The samples are steps: output -> the input of the next step that gets it; a `*` in both is one text.",
    "metric": "Decides instead of tolerances: `cosine>=0.999`, `sqnr`, `psnr`, `kl`, `top1`, `iou`, `max_abs`; or "
    "a function (reference outputs, outputs) -> error of a sample, or (iterator of these) -> error of all.",
    "noise": "Run the model with other threads, another optimization and in float64, and allow what these differ by.",
    "tolerance": "The largest error that the metric may give; 0 by default.",
    "ops": "A Python file whose `OPS` maps `domain::Op` to a function of arrays: operators that the runtime lacks.",
    "progress": "Called with a sentence when the work goes on.",
}
DEFAULTS = {f.name: f.default for f in fields(Call) if f.init}
_NOTHING = re.compile(r"\b(None|object|Any)\b")
_NUMBERS = re.compile(r"\b(int|float|bool|object|Any)\b")  # of an annotation
# Docstrings in Google's style: a blank line, `Args:`, then lines of `    name: text`.
_SECTION = re.compile(r"\n\n(Args|Returns|Raises|Example):\n")
_ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)
KEYWORD = inspect.Parameter.KEYWORD_ONLY


def spelled(function: Callable[P, R]) -> Callable[P, R]:
    """Spell out what a function takes as `**how`, and document arguments that mean the same everywhere."""
    signature = inspect.signature(function)
    own = dict(signature.parameters)
    # `**how: Unpack[RunOnFeeds]`: its keys become keyword parameters with the defaults of `Call`
    if "how" in own:
        shared = get_args(own.pop("how").annotation)[0].__annotations__
        signature = signature.replace(parameters=list(own.values()) + options(shared))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound(function.__name__, signature, args, kwargs)
        return function(*args, **kwargs)

    vars(call)["__signature__"] = signature
    call.__doc__ = documented(function.__doc__ or "", signature.parameters)
    return call


def bound(
    name: str, signature: inspect.Signature, args: Iterable[object], named: Mapping[str, object]
) -> inspect.BoundArguments:
    """Return the arguments of a call by name.

    Raises:
        UsageError: one is missing, unknown or too many, no choice, or a number or None where none is meant.
    """
    try:
        given = signature.bind(*args, **named)
    except TypeError as error:
        raise UsageError(
            f"{name}: {error}",
            f"it takes {', '.join(signature.parameters)}; help(osl.{name})",
        ) from error
    for key, value in given.arguments.items():
        kind = signature.parameters[key].annotation
        # a Literal lists its choices; anything else is its own only choice
        known = get_args(kind) if get_origin(kind) is Literal else (value,)
        if value not in known:
            raise UsageError(
                f"{key}={value!r} has no meaning", f"give {', '.join(map(repr, known))}"
            )
        meant = inspect.formatannotation(kind)
        # numbers and None are checked by the text of the annotation; other types fit more than they say (paths, arrays)
        is_number = isinstance(value, int | float) and not _NUMBERS.search(meant)
        if is_number or (value is None and not _NOTHING.search(meant)):
            raise UsageError(
                f"{name}: {key} is given as {value!r}, not as {meant}", f"help(osl.{name})"
            )
    return given


def options(shared: Mapping[str, object], taken: Iterable[str] = ()) -> list[inspect.Parameter]:
    """Return shared options as parameters, without those of names that are taken."""
    return [
        inspect.Parameter(name, KEYWORD, default=DEFAULTS[name], annotation=annotation)
        for name, annotation in shared.items()
        if name not in taken
    ]


def documented(doc: str, parameters: Iterable[str], **more: str) -> str:
    """Return a docstring whose arguments are all explained: by itself, or by what they mean everywhere."""
    about, sections = _sections(doc)
    sections |= more
    # what the docstring says itself wins
    said = _MEANING | _arguments(sections)
    sections["Args"] = "\n".join(f"    {name}: {said[name]}" for name in parameters if name in said)
    named = (name for name in ("Args", "Returns", "Raises", "Example") if sections.get(name))
    return "\n\n".join([about] + [f"{name}:\n{sections[name].rstrip()}" for name in named])


def explained(doc: str) -> tuple[str, dict[str, str]]:
    """Return what a docstring says before its sections, and of each argument."""
    about, sections = _sections(doc)
    return about, {name: " ".join(text.split()) for name, text in _arguments(sections).items()}


def _sections(doc: str) -> tuple[str, dict[str, str]]:
    # [about, "Args", text, "Returns", text, ...]; a pass has `Attributes`
    about, *rest = _SECTION.split(inspect.cleandoc(doc).replace("Attributes:\n", "Args:\n"))
    return about, dict(zip(rest[::2], rest[1::2], strict=True))


def _arguments(sections: Mapping[str, str]) -> dict[str, str]:
    own = _ARGUMENT.split(sections.get("Args", ""))
    return dict(zip(own[1::2], map(str.rstrip, own[2::2]), strict=True))
