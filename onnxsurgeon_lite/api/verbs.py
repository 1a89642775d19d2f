"""Every edit as a function: `rename(model, {"23": "features"})`. The passes give fields and documentation."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, get_args, get_origin, get_type_hints

from onnxsurgeon_lite.api.call import MEANING, Editing, option
from onnxsurgeon_lite.api.edit import applied

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.verify import EditResult
    from onnxsurgeon_lite.passes import Pass

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_RUN = ("verify", "unproved", "feeds")
_MODELS = ("second", "model")  # fields that hold a model
_ALONE = ("extract", "expose")  # there is nothing to compare the result with
_RETURNS = "Returns:\n    The edited model, what changed, and what running it showed."


def __getattr__(name: str) -> "Callable[..., EditResult]":
    from onnxsurgeon_lite.passes import PASSES

    verb = name.replace("_", "-")
    if verb not in PASSES:
        raise AttributeError(name)
    return globals().setdefault(name, _function(name, verb, PASSES[verb]))


def _function(name: str, verb: str, kind: "type[Pass]") -> "Callable[..., EditResult]":
    """Return the function that makes the pass from its fields, and applies it."""
    from onnxsurgeon_lite.model import loaded
    from onnxsurgeon_lite.passes import PASSES
    from onnxsurgeon_lite.passes.recipe import make_pass

    signature = _signature(kind)
    edited, fields = next(iter(signature.parameters)), inspect.signature(kind).parameters

    def edit(*args: object, **named: object) -> "EditResult":
        given = signature.bind(*args, **named).arguments
        model = given.pop(edited)
        how = {key: given.pop(key) for key in [*given] if key not in fields}
        given |= {key: loaded(given[key]) for key in _MODELS if given.get(key) is not None}
        return applied(lambda: make_pass(verb, given, PASSES), model, **how)

    edit.__name__ = edit.__qualname__ = name
    edit.__doc__ = _documentation(kind, signature)
    vars(edit)["__signature__"] = signature
    return edit


def _signature(kind: "type[Pass]") -> inspect.Signature:
    """Return the model, the fields of the pass, and the options of a run."""
    fields, hints = inspect.signature(kind).parameters, get_type_hints(kind)
    model = inspect.Parameter(
        "source" if "model" in fields else "model",
        inspect.Parameter.POSITIONAL_ONLY,
        annotation="ModelLike",
    )
    own = [p.replace(annotation=_accepted(hints[name])) for name, p in fields.items()]
    if kind.name in _ALONE:
        return inspect.Signature([model, *own], return_annotation="EditResult")
    run = [inspect.signature(applied).parameters[n].replace(kind=_KEYWORD) for n in _RUN]
    shared = Editing.__annotations__.items()
    run += [option(name, hint) for name, hint in shared if name not in fields]
    return inspect.Signature([model, *own, *run], return_annotation="EditResult")


def _accepted(hint: object) -> object:
    """Return what a field can be made of."""
    item = get_args(hint)[0] if get_origin(hint) is tuple else None
    if get_origin(item) is tuple:
        return Mapping[str, get_args(item)[1]]
    return str | Sequence[str] if item is str else hint


def _documentation(kind: "type[Pass]", signature: inspect.Signature) -> str:
    """Return the documentation of the pass as that of a function."""
    text, _, example = inspect.cleandoc(kind.__doc__ or "").partition("\n\nExample:\n")
    about, _, fields = text.partition("\n\nAttributes:\n")
    own = inspect.signature(kind).parameters
    model = f"    {next(iter(signature.parameters))}: A path, bytes, a `ModelProto` or a `Model`."
    run = [
        f"    {name}: {MEANING[name]}"
        for name in signature.parameters
        if name in MEANING and name not in own
    ]
    arguments = "\n".join(filter(None, ["Args:", model, fields, *run]))
    raises = inspect.cleandoc(kind.apply.__doc__ or "").partition("Raises:\n")[2]
    parts = [about, arguments, _RETURNS, raises and f"Raises:\n{raises}", f"Example:\n{example}"]
    return "\n\n".join(filter(None, parts))
