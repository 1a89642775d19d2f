"""What all edits do around their pass: load, apply, show what changed, prove or verify, save; and verbs of packages."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter, formatannotation, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

from onnxsurgeon_lite import passes, plugins
from onnxsurgeon_lite.api.call import RunOnFeeds
from onnxsurgeon_lite.api.spelling import explained
from onnxsurgeon_lite.cli import completion, options
from onnxsurgeon_lite.cli.help import HelpedCommand
from onnxsurgeon_lite.cli.options import Typed
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.plugins import brought, offered
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import progress

if TYPE_CHECKING:
    from onnxsurgeon_lite.model import Model
    from onnxsurgeon_lite.passes import Pass, PassResult

_WRITING = ("output", "in_place", "force", "copy_data", "undo")

Keep = Callable[["Pass", "PassResult"], object]
"""Takes a result in place of a file."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The options of every edit.

    Args:
        in_place: Write over the model itself.
        copy_data: Give the result a data file of its own.
        verify: Run both; write nothing when their outputs differ (exit code 1).
        unproved: Write what was not run: nothing says that new sizes, or converted nodes, hold.
        undo: Write a recipe here that takes the edit back.
    """

    output: Path | None = None
    in_place: bool = False
    force: bool = False
    dry_run: bool = False
    copy_data: bool = False
    verify: bool = False
    unproved: bool = False
    feeds: str | None = None
    undo: Path | None = None


_COMPLETED = {
    **dict.fromkeys(("value", "values", "old", "new", "bridge"), completion.values),
    **dict.fromkeys(("keep", "of", "layer"), completion.values),
    **dict.fromkeys(("nodes", "to"), completion.nodes),
    **dict.fromkeys(("inputs", "share"), completion.inputs),
    "outputs": completion.outputs,
    "rules": completion.rules,
    "scope": completion.scopes,
    "stack": completion.scopes,
}
"""Field -> what completes it."""
# of a field that is typed
_WORD = re.compile(r"(tuple\[)?(str|int|float|bool)(, \.\.\.\])?( \| None)?")
_WORDS = {"int": int, "float": float, "bool": bool}
_OF_A_FILE = ("apply", "script")  # their own file is the first argument, the model the second
_PROVED = ("set-shape", "rebatch", "simplify")  # the runtime is needed in any case
_LISTED = ("apply", "opset", "inline")  # their steps may be such that are proved


# A field of the same name wins; `--unproved` is for verbs that are proved; with `keep` nothing is written.
# A field that the help does not tell of cannot be typed.
def command(words: Callable[..., object], keep: Keep | None = None) -> Callable[..., None]:
    """A command that applies a verb's pass: the fields of it that its help tells of, and the options of every edit.

    Args:
        words: declares what does not follow from the fields, and may return other fields, or a pass.
        keep: takes the result; nothing is written then.
    """
    verb = words.__name__.replace("_", "-")

    @cache
    def parameters() -> tuple[Mapping[str, Parameter], ...]:
        """Those of the verb, those of every edit, those of a run."""
        _, said = explained(words.__doc__ or "")
        fields = {name: p for name, p in _fields(verb).items() if name in said}
        own = options.parameters(words, fields)
        foreign = set(own) if verb in _PROVED + _LISTED else {*own, "unproved"}
        foreign |= set(_WRITING) if keep else set()
        usual = options.parameters(options.usual)
        run = RunOnFeeds.__annotations__.keys() - own.keys()
        model = {"model": usual["model"]}
        return (
            own | model if verb in _OF_A_FILE else model | own,
            {name: p for name, p in options.parameters(Shared).items() if name not in foreign},
            {name: p for name, p in usual.items() if name in run},
        )

    def every() -> Mapping[str, Parameter]:
        own, shared, run = parameters()
        return {**own, **shared, **run}

    def command(**given: object) -> None:
        with ExitStack() as stack:
            told = options.read(given, every(), stack, verb)
            source = cast(Path, told.pop("model"))
            own, shared, run = ({n: told[n] for n in names if n in told} for names in parameters())
            make_shared: Callable[..., Shared] = Shared
            step = partial(_made, words, verb, own)
            _edit(verb, step, source, make_shared(**shared), cast(RunOnFeeds, run), keep)

    return options.spelled(words, command, every)


def _made(words: Callable[..., object], verb: str, given: Mapping[str, object]) -> "Pass":
    """Make the pass of what was typed."""
    from onnxsurgeon_lite.passes.recipe import make_pass

    declared = {name: given[name] for name in signature(words).parameters if name in given}
    # None: the typed fields are all; a mapping: further fields; a pass: it is all
    found = words(**declared)
    if found is not None and not isinstance(found, Mapping):
        return cast("Pass", found)
    known = signature(passes.PASSES[verb]).parameters
    fields = {name: value for name, value in given.items() if name in known}
    more = {name: value for name, value in (found or {}).items() if value is not None}
    return make_pass(verb, fields | more, passes.PASSES)


def _fields(verb: str) -> dict[str, Parameter]:
    """Return the fields of a pass as they are typed: one without a default is an argument, another an option."""
    found = {}
    for name, hint, default in _declared(verb):
        needed = default is Parameter.empty
        found[name] = Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD if needed else Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[_typed(hint), Typed(completes=_COMPLETED.get(name))],
        )
    return found


def _declared(verb: str) -> Iterator[tuple[str, str, object]]:
    """Yield (name, type, default) of each field; those of our own passes are read from their files.

    So help and completion need not import the pass, and with it onnx.
    """
    if verb not in passes.VERBS:
        fields = (
            signature(passes.PASSES[verb]).parameters if verb in offered(plugins.PASSES) else {}
        )
        for name, field in fields.items():
            hint = formatannotation(field.annotation).strip("'")
            if _WORD.fullmatch(hint):
                yield name, hint, field.default
        return
    # one file a verb: parse it, and read the annotated fields of its class
    file = Path(passes.__file__).with_name(f"{verb.replace('-', '_')}.py")
    classes = (
        node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef)
    )
    kind = next(node for node in classes if node.name == passes.VERBS[verb])
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            hint = ast.unparse(node.annotation)
            if not hint.startswith("ClassVar"):
                yield node.target.id, hint, _default(node.value)


def _default(value: ast.expr | None) -> object:
    """Return a default as far as it is a literal."""
    if value is None:
        return Parameter.empty
    try:
        return ast.literal_eval(value)
    except ValueError:  # made by a function
        return None


def _typed(hint: str) -> object:
    """Return what is typed for a field of a type: a word, or several."""
    if hint.startswith(("tuple[", "Mapping[")):
        return Sequence[str]
    return _WORDS.get(hint.removesuffix(" | None"), str)


def _edit(
    verb: str,
    make: "Callable[[], Pass]",
    source: Path,
    shared: Shared,
    how: RunOnFeeds,
    keep: Keep | None,
) -> None:
    """Edit, show what that changed and what running it showed, save or keep."""
    from onnxsurgeon_lite.api.edit import applied

    if shared.in_place and shared.output:
        raise UsageError("-o and --in-place exclude each other", "leave one of them out")
    with progress(f"editing {source}") as how["progress"]:
        early = verb in _PROVED
        result = applied(make, source, shared.verify, shared.unproved, shared.feeds, early, **how)
    options.show(result)
    if not result.match:
        plain.show_notes(["the outputs differ: nothing was written"])
    options.require(result.match)
    # at the prompt: the session goes on with the result
    if keep:
        if not shared.dry_run:
            keep(make(), result)
        return
    # before the model is written: in place, its data may be what is overwritten
    back = _undoing(source, result, shared) if shared.undo else None
    output = source if shared.in_place else shared.output
    label = "pipeline" if verb == "apply" else verb
    target = Target(source, label, output, shared.force or shared.in_place, shared.dry_run)
    if result.changed or not shared.in_place:
        _save(result.model, source, target, shared)
    if shared.undo and back and not shared.dry_run:
        from onnxsurgeon_lite.passes.recipe_writing import write_recipe

        write_recipe([back], shared.undo)
        plain.show_written(shared.undo)


def _undoing(source: Path, result: "PassResult", shared: Shared) -> "Pass":
    """Return the pass that takes an edit back, before anything is written."""
    from onnxsurgeon_lite.model import load, require_replaceable
    from onnxsurgeon_lite.passes.restore import Restore

    assert shared.undo is not None  # the caller looked
    require_replaceable(shared.undo, shared.force)
    return Restore.undoing(load(source), result.model)


def _save(model: "Model", source: Path, target: Target, shared: Shared) -> None:
    written = options.save(model, target, True if shared.copy_data else None)
    # files of the source whose data the result refers to
    kept = {file.path for file in model.files.values() if file.location is not None}
    beside = {path.absolute() for path in written.data_files} if written else set()
    if target.path != source and kept & beside:
        plain.show_notes([f"{str(source)!r} uses this data too; --copy-data gives each its own"])


class Edits(TyperGroup):
    """Our own verbs, then those that other packages bring; one that cannot be imported is named and left out."""

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return own + [verb for verb in brought(plugins.PASSES)[0] if verb not in own]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        return _of_package(cmd_name) if own is None and cmd_name in offered(plugins.PASSES) else own

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        plain.show_notes(brought(plugins.PASSES)[1])


def _of_package(verb: str) -> Any:
    """Return the command of another package's pass: its help is the docstring."""
    found, broken = brought(plugins.PASSES)
    if verb not in found:
        raise UsageError(next(line for line in broken if line.startswith(f"left out {verb!r}")))
    about, said = explained(found[verb].__doc__ or verb)
    lines = [f"    {name}: {said.get(name, 'A field of the pass.')}" for name in _fields(verb)]

    # typer reads a command's name and help from a function: this one has those of the plugin's pass
    def words() -> None: ...

    words.__name__ = verb.replace("-", "_")
    words.__doc__ = "\n".join([about, "", "Args:"] + lines)
    info = CommandInfo(name=verb, cls=HelpedCommand, callback=command(words))
    return typer.main.get_command_from_info(
        info, pretty_exceptions_short=False, rich_markup_mode="rich"
    )
