"""Functions spell out what they share: options in signatures, their meaning in docstrings. A verb as a function."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from onnxsurgeon_lite.api.call import Call, RunOnFeeds

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.verify import EditResult
    from onnxsurgeon_lite.passes import Pass

P = ParamSpec("P")
R = TypeVar("R")

_MEANING = {
    "model": "A path, a file's bytes, a `ModelProto` or a `Model`.",
    "source": "A path, a file's bytes, a `ModelProto` or a `Model`.",
    "feeds": "Input name -> array of the declared dtype and shape, or a path; made by default.",
    "map": "How references are matched with values: `auto`, `names`, or a file of `match`.",
    "opt": "Graph optimization level of the runtime.",
    "output": "Where to write.",
    "force": "Overwrite what is there.",
    "dry_run": "Find out what would be written, and write nothing.",
    "verify": "Run both models and compare their outputs.",
    "unproved": "Do not prove new sizes by running.",
    "seed": "Seed of made feeds; each input has its own stream.",
    "dim": "Size of each symbolic dimension in made feeds, by name; 1 for others.",
    "fill": "How an input is made, by name: `zeros`, `ones`, `normal`, `uniform:lo,hi` or a file.",
    "rtol": "Relative tolerance; None for each dtype's own, 0 when only `atol` is given.",
    "atol": "Absolute tolerance, in the value's unit; None for each dtype's own.",
    "provider": "Execution provider: `cpu`, `cuda`, or onnxruntime's own name for one.",
    "threads": "Threads of the runtime; 0 lets it choose.",
    "timeout": "Seconds that one request to the runtime may take; None for no limit.",
    "memory_limit": "Bytes that the runtime may allocate, or `4GB`; 0 for no limit.",
    "ops_library": "Shared libraries with custom operators.",
    "progress": "Called with a sentence when the work goes on.",
}
_DEFAULTS = {f.name: f.default for f in fields(Call) if f.init}
_SECTION = re.compile(r"\n\n(Args|Returns|Raises|Example):\n")
_ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)
_MODELS = ("second", "model")  # fields that hold a model
_RETURNS = "    The edited model, what changed, and what running it showed."
ALONE = ("extract", "expose")
"""Verbs whose result is shown by itself: there is nothing to compare it with."""

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def spelled(function: Callable[P, R]) -> Callable[P, R]:
    """Spell out what a function takes as `**how`, and document arguments that mean the same everywhere."""
    signature = inspect.signature(function)
    own = dict(signature.parameters)
    if "how" in own:
        shared = get_args(own.pop("how").annotation)[0].__annotations__
        signature = signature.replace(parameters=[*own.values(), *_options(shared)])

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        signature.bind(*args, **kwargs)
        return function(*args, **kwargs)

    vars(call)["__signature__"] = signature
    call.__doc__ = _documented(function.__doc__ or "", signature.parameters)
    return call


def _options(shared: Mapping[str, object], taken: Iterable[str] = ()) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, _KEYWORD, default=_DEFAULTS[name], annotation=annotation)
        for name, annotation in shared.items()
        if name not in taken
    ]


def _documented(doc: str, parameters: Iterable[str], **more: str) -> str:
    """Return a docstring whose arguments are all explained: by itself, or by what they mean everywhere."""
    about, *rest = _SECTION.split(inspect.cleandoc(doc).replace("Attributes:\n", "Args:\n"))
    sections = {**dict(zip(rest[::2], rest[1::2], strict=True)), **more}
    own = _ARGUMENT.split(sections.get("Args", ""))
    said = _MEANING | dict(zip(own[1::2], map(str.rstrip, own[2::2]), strict=True))
    sections["Args"] = "\n".join(f"    {name}: {said[name]}" for name in parameters if name in said)
    named = (name for name in ("Args", "Returns", "Raises", "Example") if sections.get(name))
    return "\n\n".join([about, *(f"{name}:\n{sections[name].rstrip()}" for name in named)])


def verb(name: str) -> "Callable[..., EditResult]":
    """Return an edit as a function: it makes the pass from its fields, and applies it."""
    from onnxsurgeon_lite.api.edit import applied
    from onnxsurgeon_lite.model import loaded
    from onnxsurgeon_lite.passes import PASSES
    from onnxsurgeon_lite.passes.recipe import make_pass

    title = name.replace("_", "-")
    kind = PASSES[title]
    fields = inspect.signature(kind).parameters
    signature = _signature(kind, fields)
    edited = next(iter(signature.parameters))

    def edit(*args: object, **named: object) -> "EditResult":
        given = signature.bind(*args, **named).arguments
        model = given.pop(edited)
        how = {key: given.pop(key) for key in [*given] if key not in fields}
        given |= {key: loaded(given[key]) for key in _MODELS if given.get(key) is not None}
        return applied(lambda: make_pass(title, given, PASSES), model, **how)

    edit.__name__ = edit.__qualname__ = name
    raises = inspect.cleandoc(kind.apply.__doc__ or "").partition("Raises:\n")[2]
    edit.__doc__ = _documented(
        kind.__doc__ or "", signature.parameters, Raises=raises, Returns=_RETURNS
    )
    vars(edit)["__signature__"] = signature
    return edit


def _signature(kind: "type[Pass]", fields: Mapping[str, inspect.Parameter]) -> inspect.Signature:
    """Return the model, the fields of the pass, and the options of its runs."""
    first, hints = "source" if "model" in fields else "model", get_type_hints(kind)
    model = inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY, annotation="ModelLike")
    own = [p.replace(annotation=_accepted(hints[name])) for name, p in fields.items()]
    run = [
        inspect.Parameter("verify", _KEYWORD, default=False, annotation=bool),
        inspect.Parameter("unproved", _KEYWORD, default=False, annotation=bool),
        inspect.Parameter("feeds", _KEYWORD, default=None, annotation="Tensors | None"),
        *_options(RunOnFeeds.__annotations__, fields),
    ]
    run = [] if kind.name in ALONE else run
    return inspect.Signature([model, *own, *run], return_annotation="EditResult")


def _accepted(hint: object) -> object:
    """Return what a field can be made of."""
    item = get_args(hint)[0] if get_origin(hint) is tuple else None
    if get_origin(item) is tuple:
        value = get_args(item)[1]
        return f"Mapping[str, {getattr(value, '__name__', value)}]"
    return str | Sequence[str] if item is str else hint
