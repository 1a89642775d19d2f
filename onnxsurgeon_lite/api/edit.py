"""Change models: apply, merge, build, and a function for each verb."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast, get_args, get_origin, get_type_hints

from onnxsurgeon_lite import passes
from onnxsurgeon_lite.api.call import Call, Limiting, RunOnFeeds, as_names, indexed
from onnxsurgeon_lite.api.spelling import KEYWORD, bound, documented, options, spelled
from onnxsurgeon_lite.errors import FeedsError, RuntimeFailure, SurgeonError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from onnxsurgeon_lite.matching.edit_result import EditResult
    from onnxsurgeon_lite.model import Model, ModelLike
    from onnxsurgeon_lite.passes import Pass, PassResult
    from onnxsurgeon_lite.runtime.session import Runtime
    from onnxsurgeon_lite.tensors.references import Tensors

_MODELS = ("second", "model")  # fields that hold a model
_RETURNS = "    The edited model, what changed, and what running it showed."
ALONE = ("extract", "expose")  # their result is shown by itself: nothing is to be compared with
_PROVED = ("set-shape", "rebatch")
_LARGE = 1 << 20  # bytes of a model's file


@spelled
def apply(
    recipe: "str | PathLike[str] | Pass | Sequence[Pass]",
    model: "ModelLike",
    verify: bool = False,
    unproved: bool = False,
    feeds: "Tensors | None" = None,
    allow_scripts: bool = False,
    **how: Unpack[RunOnFeeds],
) -> "EditResult":
    """Apply a recipe, a pass or several passes to a model: all or nothing. The model itself stays as it is.

    Args:
        recipe: A TOML file (`[[step]]`, `verb = ...`, its fields), a pass, or passes in order.
        verify: Run both models and compare their outputs.
        unproved: Do not prove new sizes (`set_shape`, `rebatch`) or another opset by running.
        feeds: For `verify`: input name -> array, or a path; made by default.
        allow_scripts: A recipe's file may run Python, and read URLs and files outside its folder.

    Returns:
        The edited model, what changed, and what the runs showed.

    Raises:
        UsageError: The recipe cannot be read.
        EditError: The edit would break the model.
        ShapeError: New sizes are not proved.

    Example:
        >>> result = osl.apply(osl.SetOp(("Add_7",), "Sub"), "whole_model.onnx")
        >>> result.changes
        ("Add 'Add_7' (@7): operator Add -> Sub",)
    """
    return applied(lambda: _step(recipe, allow_scripts), model, verify, unproved, feeds, **how)


def applied(
    make: "Callable[[], Pass]",
    model: "ModelLike",
    verify: bool = False,
    unproved: bool = False,
    feeds: "Tensors | None" = None,
    early: bool = False,
    **how: Unpack[RunOnFeeds],
) -> "EditResult":
    """Make a pass and apply it; see `apply`.

    Args:
        early: Unless `unproved`, the runtime is needed: its process starts before the pass is imported.
    """
    with Call(**how) as call:
        # 1. start the process, then make the pass and apply it
        child = call.child() if verify or (early and not unproved) else None
        from onnxsurgeon_lite.matching.edit_result import EditResult
        from onnxsurgeon_lite.model import loaded

        step = make()
        _prepare(model)
        original = loaded(model)
        done = step.apply(original)
        alone = None if step.name in ALONE else original
        result = EditResult(
            done.model, done.changed, done.notes, done.changes, verb=step.name, source=alone
        )
        # 2. prove what is always proved: simplifications step by step, new sizes
        if done.changed and step.name == "simplify" and not unproved:
            result = _simplified(result, original, step, feeds, call.started(child, "none"), call)
        if unproved and (done.unproved or is_proved(step)):
            result = replace(result, ran=(_UNPROVED,))
        elif done.changed and is_proved(step):
            result = _proved(result, original, step, call.started(child, "none"), call)
        # 3. verify: asked for, or an edit says that its result is not certain
        if not (done.changed and (verify or (done.unproved and not unproved))):
            return result
        runtime = call.started(child, "none")
        return _verified(result, original, feeds, done, runtime, call, needed=verify)


def _prepare(model: "ModelLike") -> None:
    """Fork for inference before a large model is loaded: the fork is to hold none of it."""
    from onnxsurgeon_lite.graph import native

    with suppress(OSError):
        if isinstance(model, str | PathLike) and Path(model).stat().st_size > _LARGE:
            native.begin()


def _simplified(
    result: "EditResult",
    original: "Model",
    step: "Pass",
    feeds: "Tensors | None",
    runtime: "Runtime",
    call: Call,
) -> "EditResult":
    """Keep those steps of `simplify` whose result agrees with the original."""
    from onnxsurgeon_lite.matching.prove import StepProof

    assert isinstance(step, passes.Simplify)  # by its name
    call.progress("proving by running")
    index = indexed(original)
    trials = call.trials(index, feeds, runtime, {})
    # steps whose result differs from the original are taken back
    done, line = StepProof(index, trials, runtime).proved(step, result)
    return replace(
        result,
        model=done.model,
        changed=done.changed,
        changes=done.changes,
        notes=done.notes,
        ran=tuple(call.notes),
        proof=(line,),
    )


_UNPROVED = "this was not proved: neither model was run"


def is_proved(step: "Pass") -> bool:
    """Return whether a pass, or one of its steps, is always proved by running."""
    return step.name in _PROVED or any(is_proved(part) for part in getattr(step, "passes", ()))


def _step(recipe: "str | PathLike[str] | Pass | Sequence[Pass]", allow_scripts: bool) -> "Pass":
    if isinstance(recipe, str | PathLike):
        from onnxsurgeon_lite.passes.recipe import read_recipe

        return read_recipe(Path(recipe), passes.PASSES, allow_scripts)
    if isinstance(recipe, list | tuple):
        return passes.Pipeline(tuple(recipe))
    return cast("Pass", recipe)


def _proved(
    result: "EditResult", original: "Model", step: "Pass", runtime: "Runtime", call: Call
) -> "EditResult":
    """Prove what new sizes were given to; an error that says why not tells what was changed."""
    from onnxsurgeon_lite.matching.prove import prove_step

    call.progress("proving by running")
    try:
        proof = prove_step(step, original, result.model, runtime, call.recipe())
    except SurgeonError as error:
        error.told = result.notes + result.changes
        raise
    return replace(result, proof=tuple(proof))


def _verified(
    result: "EditResult",
    original: "Model",
    feeds: "Tensors | None",
    done: "PassResult",
    runtime: "Runtime",
    call: Call,
    needed: bool,
) -> "EditResult":
    """Run both models and compare their outputs; `needed`: an original that does not run is an error."""
    from onnxsurgeon_lite.matching import verify as verifying
    from onnxsurgeon_lite.matching.trials import unmoved_notes

    edited = result.model
    # with data in files of its own, a model runs as far as the edit matters; a value in a body is none of the graph
    if done.decisive and len(original.files) > 1 and not needed:
        with suppress(SurgeonError):
            cut = passes.Extract(outputs=done.decisive)
            original, edited = cut.apply(original).model, cut.apply(edited).model
    sides = indexed(original), indexed(edited)
    # inputs that became constants are fed with these numbers in the original
    held = {n: original.array(t) for n, t in done.frozen.items() if n in sides[0].inputs}
    known = verifying.known_feeds(*sides)
    kinds = verifying.other_dtypes(*sides)
    try:
        trials = call.trials(sides[0], feeds, runtime, {**held, **known}, kinds)
    except (FeedsError, RuntimeFailure) as error:
        if needed:
            raise
        return replace(
            result, ran=(f"this was not proved: the original does not run: {error.message}",)
        )
    compared = verifying.verify(*sides, trials, runtime, turned=done.turned)
    call.notes += (
        f"{name!r} of the original was transposed by {list(order)}: the edit gave it another layout"
        for name, order in done.turned.items()
        if list(order) != sorted(order)
    )
    call.notes += unmoved_notes(compared.unmoved)
    return replace(result, ran=result.ran + tuple(call.notes), verified=compared)


@spelled
def merge(
    *models: "ModelLike",
    map: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    share: str | Sequence[str] = (),
    prefix: str | Sequence[str] = (),
    by_name: bool = False,
    keep: str | Sequence[str] = (),
    **how: Unpack[Limiting],
) -> "EditResult":
    """Merge models into one: outputs of one feed inputs of the next, inputs are shared.

    Args:
        models: Two or more, each a path, bytes, a `ModelProto` or a `Model`.
        map: An output of the models so far -> the input that it feeds, in each later model that has it.
        share: Inputs of several models that become one.
        prefix: Put before every name of the next model; one, or one for each model but the first.
        by_name: Outputs feed all inputs of their name, inputs and equal constants of one name are one: what was split
            is whole again. The models may come in any order.
        keep: Outputs that stay outputs though they feed an input.

    Returns:
        The merged model, and what was linked and added.

    Raises:
        UsageError: There is one model alone.
        UnknownNameError: A link or a shared input that a model does not have.
        EditError: Opsets that cannot be reconciled, types that do not fit, an input of both that is not shared.

    Example:
        >>> tail = osl.extract("whole_model.onnx", inputs="23").model
        >>> print(osl.merge("whole_model.onnx", tail, map={"31": "23"}, prefix="second/"))
        linked '31' to input '23'
        added the 8 nodes of graph 'whole_model'
        merged 2 models: input.1 -> second/31 (19 nodes, 34 initializers)
    """
    from onnxsurgeon_lite.matching.edit_result import EditResult
    from onnxsurgeon_lite.model import loaded
    from onnxsurgeon_lite.passes.merge import merge_all

    if len(models) < 2:
        listed = len(models) == 1 and isinstance(models[0], list | tuple)
        hint = "give each by itself: merge(a, b)" if listed else "name two or more"
        raise UsageError("one model alone cannot be merged", hint)
    links = map.items() if isinstance(map, Mapping) else map
    share, prefix, keep = (as_names(n) for n in (share, prefix, keep))
    with Call(**how):
        merged = merge_all([loaded(m) for m in models], links, share, prefix, by_name, keep)
    return EditResult(
        merged.model, True, merged.notes, merged.changes, verb=f"merged {len(models)} models"
    )


@spelled
def build(
    text: "str | PathLike[str]",
    initializer: "Mapping[str, str | PathLike[str] | np.ndarray] | None" = None,
    weights: "str | PathLike[str] | None" = None,
    **how: Unpack[Limiting],
) -> "Model":
    """Build a model from ONNX text syntax, and check it.

    Args:
        text: The text, or the path of a file that holds it; a graph alone gets default versions.
        initializer: Name -> array, or the path of a `.npy` file; one for a declared input takes its place.
        weights: The file that `text(weights=...)` wrote: what was not edited in the text is as it was in the model.

    Raises:
        BuildError: The text is no model, or an array does not fit.
        GraphError: The model is not valid.

    Example:
        >>> model = osl.build("double (float[n] x) => (float[n] y) { y = Add(x, x) }")
        >>> osl.run(model, {"x": np.ones(2, np.float32)})["y"]
        array([2., 2.], dtype=float32)
    """
    from onnxsurgeon_lite.graph.check import require_valid
    from onnxsurgeon_lite.passes.build import add_initializers, parse_text

    with Call(**how):
        if weights is None:
            model = parse_text(_read(text))
        else:
            from onnxsurgeon_lite.passes.round_trip import build_with_weights

            model = build_with_weights(_read(text), Path(weights))
        model = add_initializers(model, initializer or {})
        require_valid(model)
        return model


def _read(text: "str | PathLike[str]") -> str:
    """Return the text itself, or what its file holds; text has parentheses and braces, a path does not need them."""
    from onnxsurgeon_lite.untrusted import text_of

    return text if isinstance(text, str) and "{" in text else text_of(Path(text))


def verb(name: str) -> "Callable[..., EditResult]":
    """Return an edit as a function: it makes the pass from its fields, and applies it."""
    from onnxsurgeon_lite.model.loading import held, loaded
    from onnxsurgeon_lite.passes.recipe import make_pass

    title = name.replace("_", "-")
    kind = passes.PASSES[title]
    fields = inspect.signature(kind).parameters
    signature = _signature(kind, fields)
    edited = next(iter(signature.parameters))

    def edit(*args: object, **named: object) -> "EditResult":
        # split the arguments into the model, the fields of the pass, and options of the run
        given = bound(name, signature, args, named).arguments
        model = given.pop(edited)
        how = {key: given.pop(key) for key in list(given) if key not in fields}
        given |= {k: loaded(v) for k, v in given.items() if (k in _MODELS and v) or held(v)}
        return applied(lambda: make_pass(title, given, passes.PASSES), model, **how)

    edit.__name__ = edit.__qualname__ = name
    raises = inspect.cleandoc(kind.apply.__doc__ or "").partition("Raises:\n")[2]
    edit.__doc__ = documented(
        kind.__doc__ or "", signature.parameters, Raises=raises, Returns=_RETURNS
    )
    vars(edit)["__signature__"] = signature
    return edit


def _signature(kind: "type[Pass]", fields: Mapping[str, inspect.Parameter]) -> inspect.Signature:
    """Return the model, the fields of the pass, and the options of its runs."""
    # a pass with a field `model` (replace) calls the edited one `source`
    first = "source" if "model" in fields else "model"
    hints = get_type_hints(kind)
    model = inspect.Parameter(first, inspect.Parameter.POSITIONAL_ONLY, annotation="ModelLike")
    own = [p.replace(annotation=_accepted(hints[name])) for name, p in fields.items()]
    run = [
        inspect.Parameter("verify", KEYWORD, default=False, annotation=bool),
        inspect.Parameter("unproved", KEYWORD, default=False, annotation=bool),
        inspect.Parameter("feeds", KEYWORD, default=None, annotation="Tensors | None"),
        *options(RunOnFeeds.__annotations__, fields),
    ]
    run = options(Limiting.__annotations__) if kind.name in ALONE else run
    return inspect.Signature([model, *own, *run], return_annotation="EditResult")


def _accepted(hint: object) -> object:
    """Return what a field can be made of."""
    # tuple[tuple[str, X], ...] is typed as a mapping, tuple[str, ...] as one text or several
    item = get_args(hint)[0] if get_origin(hint) is tuple else None
    if get_origin(item) is tuple:
        value = get_args(item)[1]
        return f"Mapping[str, {getattr(value, '__name__', value)}]"
    return str | Sequence[str] if item is str else hint
