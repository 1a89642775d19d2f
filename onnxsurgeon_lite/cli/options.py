"""How functions become commands of `onnxdbg`: their arguments and options, what they write and what they show.

A command has the parameters of the library's function of the same name (an edit verb: the fields of its pass), and
those of its own function in this package. These are for the command line alone, or replace one of the same name.

- The command's own function: parameters before `*` are arguments, those after it are options.
- The library's function: parameters without a default are arguments, the others are options.
- The help is the parameter's line under `Args:` of the command's own function, or else of `usual`. A parameter of the
  library that has neither is no option of the command.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache, cached_property, partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Literal, Union, cast, get_args, get_origin

import typer

import onnxsurgeon_lite as osl
from onnxsurgeon_lite.api.call import OptLevel
from onnxsurgeon_lite.api.spelling import explained
from onnxsurgeon_lite.atomic import require_free
from onnxsurgeon_lite.cli import completion
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_text, key_value
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import announce, progress, writing

if TYPE_CHECKING:
    from onnxsurgeon_lite.matching.values.run_both import MatchResult
    from onnxsurgeon_lite.model import Model as Loaded
    from onnxsurgeon_lite.model import Written
    from onnxsurgeon_lite.passes.protocol import Attributes, AttributeValue
    from onnxsurgeon_lite.runtime.run import RunResult
    from onnxsurgeon_lite.shown import Shown

LOOK, CUT, CHANGE, RUN, DEBUG = "Look", "Cut", "Change", "Run", "Debug"  # panels of the help page

Look = Literal["auto", "unoptimized", "optimized", "node"]
LOOKS: tuple[Look, ...] = get_args(Look)


@dataclass(frozen=True)
class Typed:
    """How a parameter is typed on a command line, where that does not follow from its name and kind.

    Attributes:
        flags: `--output`, `-o`; by default the parameter's name.
        least: the smallest number that it may be.
        parser: turns one word into a value.
        checks: returns a number, or raises if it is not allowed.
        reads: turns all words into one value; gets the option's name first, for its messages.
    """

    flags: tuple[str, ...] = ()
    completes: completion.Completer | None = None
    metavar: str | None = None
    least: int | None = None
    parser: Callable[[str], object] | None = None
    checks: Callable[[float | None], float | None] | None = None
    reads: Callable[[str, Sequence[str]], object] | None = None


Node = Annotated[str, Typed(completes=completion.nodes)]
Nodes = Annotated[Sequence[str], Typed(completes=completion.nodes)]
Value = Annotated[str, Typed(completes=completion.values)]
Values = Annotated[Sequence[str], Typed(completes=completion.values)]
Inputs = Annotated[Sequence[str], Typed(completes=completion.inputs)]
Metrics = Literal["usual", "all"]
Save = Annotated[Path | None, Typed(("--save", "-o"))]


def pairs(option: str, texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return (name, value) of every `NAME=VALUE`.

    Args:
        option: its name, for messages.
    """
    found = []
    for text in texts:
        name, value = key_value(text)
        if value is None:
            raise UsageError(f"{option} {text!r} has no '='", f"write {option} NAME=...")
        found.append((name, value))
    return tuple(found)


def named(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return name -> value of every `NAME=VALUE`."""
    return dict(pairs(option, texts))


def _by_name(_: str, texts: Iterable[str]) -> dict[str, str]:
    """Return name or glob -> number of every `NAME:NUMBER`; `*` for one without a name."""
    # `logits*:1e-2`; names may have colons, numbers have none
    words = [text.rpartition(":") for text in texts]
    return {name or "*": number for name, _, number in words}


Allowed = Annotated[Sequence[str], Typed((), completion.values, "[NAME:]NUMBER", reads=_by_name)]


def attributes(_: str, texts: Iterable[str]) -> "Attributes":
    """Return (name, number, text or list) of every `NAME=VALUE`."""
    from onnxsurgeon_lite.surgery import parse

    found = []
    for text in texts:
        name, value = key_value(text)
        if value is None or not name:
            raise UsageError(
                f"attribute {text!r} has no '='", f"write {text}=VALUE, such as pads=[1,1,1,1]"
            )
        found.append((name, cast("AttributeValue", parse(value))))
    return tuple(found)


def _sizes(option: str, texts: Iterable[str]) -> dict[str, int]:
    """Return name -> size of every `NAME=SIZE`."""
    found = named(option, texts)
    for name, size in found.items():
        if not is_count(size):
            raise UsageError(
                f"the size {size!r} of dimension {name!r} is no number",
                f"write --dim {key_text(name)}=1",
            )
    return {name: int(size) for name, size in found.items()}


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not seconds < 1e9:
        raise typer.BadParameter(f"{seconds} is not a number of seconds")
    return seconds


def usual(
    model: Path,
    *,
    output: Annotated[Path | None, Typed(("--output", "-o"))] = None,
    force: bool = False,
    dry_run: bool = False,
    verbose: bool = False,
    metrics: Metrics = "usual",
    html: Path | None = None,
    node_data: Path | None = None,
    json: bool = False,
    feeds: str | None = None,
    seed: Annotated[int, Typed(least=0)] = 0,
    dim: Annotated[Sequence[str], Typed(metavar="NAME=SIZE", reads=_sizes)] = (),
    fill: Annotated[Sequence[str], Typed((), completion.of_inputs, "NAME=HOW", reads=named)] = (),
    rtol: Allowed,
    atol: Allowed,
    ulp: Allowed,
    allow: Allowed,
    opt: OptLevel,
    runtime: Annotated[str, Typed((), completion.runtimes, "NAME[:OPTION=VALUE,...]")] = "ort",
    provider: str = "cpu",
    threads: Annotated[int, Typed(least=0)] = 0,
    timeout: Annotated[float | None, Typed(least=0, checks=_finite)] = None,
    memory: str,
    memory_limit: str = "0",
    ops_library: Sequence[Path] = (),
    ops: Annotated[Path | None, Typed(metavar="FILE.py")] = None,
    reference: str | None,
    against: Path | None,
    map: Annotated[str | None, Typed(metavar="auto|names|FILE")],
    jobs: Annotated[int, Typed(least=0)],
    cluster: Annotated[str | None, Typed(metavar="ADDRESS|local|FILE")],
    sequence: Annotated[Sequence[str], Typed((), completion.steps, "OUTPUT=INPUT", reads=named)],
    metric: Annotated[str | None, Typed(metavar="NAME>=NUMBER|FILE.py:FN")],
    tolerance: float | None,
    noise: bool,
) -> None:
    """Declare the options that mean the same in most commands; only the signature and the help are used.

    Args:
        model: Model to read; optimized:MODEL is what onnxruntime makes of one.
        output: Where to write; by default a named file here.
        force: Overwrite what is there.
        dry_run: Say what would be made or changed, no more.
        verbose: Show the details of every culprit, and the search.
        metrics: Columns of tables: the usual metrics, or all.
        html: Write the result as a page for a browser, too: one file, which asks for no other.
        node_data: Write the numbers of nodes as model-explorer's custom node data, too.
        json: Print the result as JSON.
        feeds: Tensors for the inputs: .npz, .npy, .safetensors, test_data_set_N or a recorded folder.
        seed: Seed of made feeds.
        dim: Size of a symbolic dimension in made feeds.
        fill: How an input is made: zeros, ones, normal, uniform:lo,hi, numbers or a file.
        opt: Graph optimization level of the runtime.
        runtime: Runtime: ort, ort:version=1.20.1, ort:python=PATH, reference, openvino, command:PROGRAM, torch:FILE:FN.
        provider: Execution provider: cpu, cuda, or its full name.
        threads: Threads of the runtime; 0 lets it choose.
        timeout: Seconds that the runtime, or ONNX's inference, may take.
        memory: Bytes of values that are computed at once.
        memory_limit: What the runtime, or ONNX's inference, may allocate, such as 4GB; 0 for the usual limits.
        ops_library: Shared library with custom operators.
        ops: Python file with operators that the runtime lacks: OPS = {"domain::Op": function of arrays}.
        reference: Reference tensors: .npz, .npy, .safetensors, test_data_set_N or a recorded folder.
        against: Model whose values are the references.
        map: How references are matched with values: auto, names, or a file of `onnxdbg match`;
            auto by default where they are called otherwise.
        jobs: Runtimes that work on samples, each with one thread by default; 0 for one with all threads.
        cluster: Dask cluster that works on samples, or on parts of a model: its scheduler's address, or file, or local.
        sequence: The samples are steps: the output is the next one's input; present.*=past.* for several.
        metric: Decides instead of tolerances: cosine>=0.999, sqnr, psnr, kl, top1, iou, max_abs, ..., or a function
            (reference outputs, outputs) -> error of a sample, or (iterator of these) -> error of all.
        tolerance: Largest error that the metric may give; 0 by default.
        noise: Run the model with other threads, another optimization and in float64; allow what these differ by.
        rtol: Relative tolerance, of all or of tensors of a name (logits*:1e-2); each dtype's own by default.
        atol: Absolute tolerance; each dtype's own by default.
        ulp: Units in the last place that an element may be off by as well.
        allow: Share of elements that may be off by more, such as 0.1%.
    """


@dataclass(frozen=True)
class LibraryCommand:
    """A command that calls a function of the library.

    Attributes:
        finish: the command's own function. It is called last, with the result and the options that it declares.
        name: the library's function, as in `osl.data.ls`.
        doing: what is shown while it works; names in braces are options.
        shows: the options of `show`, which prints the result; None where `finish` shows it.
    """

    finish: Callable[..., None]
    name: str
    doing: str
    shows: str | None

    @cached_property
    def function(self) -> Callable[..., object]:
        """The library's function."""
        place: object = osl
        for part in self.name.split("."):
            place = getattr(place, part)
        return cast("Callable[..., object]", place)

    @cached_property
    def taken(self) -> dict[str, Parameter]:
        """The parameters of the library's function, as they are typed."""
        return {n: _from_library(n, p) for n, p in signature(self.function).parameters.items()}

    @cached_property
    def declared(self) -> list[str]:
        """The names of the parameters of `finish`; the first is for the result."""
        return list(signature(self.finish).parameters)

    @cached_property
    def added(self) -> list[str]:
        """The names of the usual options for showing and writing, which neither function has to declare."""
        return (self.shows or "").split() + list(_WRITING if "target" in self.declared else ())

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """All parameters, as typer sees them."""
        others = self.taken | {name: _USUAL[name] for name in self.added}
        return parameters(self.finish, others, (self.declared[0], "how", "target"))

    def run(self, **given: object) -> None:
        """Call the library, show the result, and finish."""
        with ExitStack() as stack:
            self._run(read(given, self.parameters, stack))

    def _run(self, options: dict[str, object]) -> None:
        first, *own = self.declared
        # a `finish` with a parameter `call` calls the library by itself, perhaps with other arguments
        result = partial(self.call, options) if first == "call" else self.call(options)
        if self.shows is not None:
            wanted = tuple(self.shows.split()) + _PAGES
            shown = {name: options[name] for name in wanted if name in options}
            cast("Callable[..., None]", show)(result, **shown)
        if "target" in own:
            options["target"] = self._target(options)
        # `**how` takes all options
        declared = options if "how" in own else own
        self.finish(result, **{name: options[name] for name in declared if name in options})

    def call(self, given: Mapping[str, object], *models: object, **more: object) -> object:
        """Call the library with those options that it takes; `models` and `more` replace what was given."""
        # options of the command line alone are not the function's
        options = {name: value for name, value in given.items() if name in self.taken} | more
        first, *_ = self.taken
        positional = options.pop(first, [])
        if models:
            positional = list(models)
        elif not isinstance(positional, list):
            positional = [positional]
        wait = progress(self.doing.format(**given)) if self.doing else nullcontext()
        with wait as report:
            if report and "progress" in self.taken:
                options["progress"] = report
            return self.function(*positional, **options)

    def _target(self, options: Mapping[str, object]) -> Target:
        """Return where to write what is made of the first file."""
        # the first parameter of the library's function that was given: the model, or the first of several
        source = next(options[name] for name in self.taken if name in options)
        place = cast(Path, source[0] if isinstance(source, list) else source)
        writing = {name: options[name] for name in _WRITING if name in options}
        return cast("Callable[..., Target]", Target)(place, self.finish.__name__, **writing)


def command(
    doing: str = "", of: str = "", shows: str | None = None
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Decorate a function as a command: it gets the result of the library's function of its name.

    If its first parameter is `call`, it gets the library's function instead of a result. If it has a parameter
    `target`, it gets the place to write to.

    Args:
        doing: see `LibraryCommand`.
        of: the library's function, if it has another name.
        shows: see `LibraryCommand`.
    """

    def made(function: Callable[..., None]) -> Callable[[], None]:
        found = LibraryCommand(function, of or function.__name__, doing, shows)
        return spelled(function, lambda **given: found.run(**given), lambda: found.parameters)

    return made


_WRITING = ("output", "force", "dry_run")
_PAGES = ("html", "node_data")
_KINDS = {"Sequence[str]": Sequence[str], "PathLike": Path, "Model": Path}
"""Part of an annotation of the library -> the type of what is given on a command line."""


def _from_library(name: str, parameter: Parameter) -> Parameter:
    """Return a parameter of a library's function as one of a command; one without a default is an argument."""
    # the option of that name in `usual`; a flag needs none
    usual = parameter if parameter.annotation is bool else _USUAL.get(name, parameter)
    kind = usual.annotation
    if usual is parameter:
        kinds = (kind for part, kind in _KINDS.items() if part in str(parameter.annotation))
        kind = next(kinds, kind)
    is_option = parameter.default is not Parameter.empty
    return usual.replace(
        default=False if name == "force" else parameter.default,
        annotation=kind,
        kind=Parameter.KEYWORD_ONLY if is_option else Parameter.POSITIONAL_OR_KEYWORD,
    )


def parameters(
    function: Callable[..., object],
    others: Mapping[str, Parameter] | None = None,
    hidden: Iterable[str] = (),
) -> dict[str, Parameter]:
    """Return a function's parameters, and those of the others that have a help text, as typer needs them.

    Args:
        others: the parameters of the library's function, or the fields of a pass.
        hidden: parameters of the function that are not options.
    """
    _, helps = explained(function.__doc__ or "")
    known = helps.keys() | _USUAL.keys()
    found = {name: p for name, p in (others or {}).items() if name in known}
    declared = (each for each in signature(function).parameters.items() if each[0] not in hidden)
    for name, own in declared:
        is_same = own.annotation is object  # as the library has it
        found[name] = own.replace(annotation=found[name].annotation) if is_same else own
    return {name: _for_typer(p, helps.get(name)) for name, p in found.items()}


def read(
    given: Mapping[str, object],
    parameters: Mapping[str, Parameter],
    stack: ExitStack,
    verb: str = "",
) -> dict[str, object]:
    """Convert what was given on the command line to what the library takes.

    Args:
        given: the values that typer read.
        stack: closed at the end of the command.
        verb: what messages call an argument.
    """
    # what was not typed is left to the library's defaults
    found = {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        # Annotated[kind, typer's info, Typed], as `_for_typer` made it
        _, info, typed = get_args(parameters[name].annotation) or (None, None, Typed())
        is_argument = isinstance(info, typer.models.ArgumentInfo)
        if typed.reads is not None:
            option = verb if is_argument else _flags(name, typed)[0]
            found[name] = typed.reads(option, cast("Sequence[str]", value))
        elif is_argument or name == "against":
            models = [
                _model_of(each, stack) for each in (value if isinstance(value, list) else [value])
            ]
            found[name] = models if isinstance(value, list) else models[0]
    return found


_OPTIMIZED = re.compile(r"optimized(?:=(?P<opt>basic|extended|all))?:(?P<model>.+)", re.DOTALL)


def _model_of(given: object, stack: ExitStack) -> object:
    """Return the model as the runtime optimizes it for `optimized:MODEL`, unless a file has this name."""
    asked = _OPTIMIZED.fullmatch(str(given)) if isinstance(given, Path) else None
    if asked is None or os.path.lexists(str(given)):
        return given
    from onnxsurgeon_lite.model.loading import HeldPath

    opt = cast("OptLevel", asked["opt"] or "all")
    made = stack.enter_context(osl.optimized(asked["model"], opt))
    # a path that carries the model: the library takes it as either
    held = HeldPath(made.path or Path(asked["model"]))
    held.model = made
    return held


def _flags(name: str, typed: Typed) -> tuple[str, ...]:
    return typed.flags or (f"--{name.replace('_', '-')}",)


def _for_typer(parameter: Parameter, said: str | None) -> Parameter:
    """Return a parameter with typer's description of it.

    Args:
        said: its help; None takes flags and help from `usual`.
    """
    kind, typed = _kind(parameter.annotation)
    if kind is typer.Context:
        return parameter.replace(kind=Parameter.KEYWORD_ONLY)
    if said is None:
        said = _USUAL_HELP[parameter.name]
        _, typed = _kind(_USUAL[parameter.name].annotation)
    is_option = parameter.kind is Parameter.KEYWORD_ONLY
    completes = typed.completes
    if completes is not None and not is_option:
        completes = completion.positional(completes)
    info = (partial(typer.Option, *_flags(parameter.name, typed)) if is_option else typer.Argument)(
        help=said,
        metavar=typed.metavar,
        autocompletion=completes,
        min=typed.least,
        parser=typed.parser,
        callback=typed.checks,
    )
    default = None if parameter.default == () else parameter.default
    return parameter.replace(
        annotation=Annotated[kind, info, typed], default=default, kind=Parameter.KEYWORD_ONLY
    )


def _kind(annotation: object) -> tuple[object, Typed]:
    """Split an annotation: the type of the value when it is given, and its `Typed`."""
    typed = Typed()
    # peel off `Annotated[...]` and `| None`
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation, *more = get_args(annotation)
        typed = next((each for each in more if isinstance(each, Typed)), typed)
    if get_origin(annotation) is Sequence:
        return list[get_args(annotation)[0]], typed  # type: ignore[misc]
    return annotation, typed


_USUAL = dict(signature(usual).parameters)
_, _USUAL_HELP = explained(usual.__doc__ or "")


def spelled(
    function: Callable[..., object],
    run: Callable[..., None],
    parameters: Callable[[], Mapping[str, Parameter]],
) -> Callable[[], None]:
    """Return a command with the name and help of a function, which reads its parameters only when it is run.

    Typer reads the parameters of every command at each start, which takes long. So it first sees a function without
    any; `HelpedCommand` asks (`whole`) for those of the command that is run.

    Args:
        run: called with the options.
        parameters: returns the parameters as typer needs them.
    """

    @cache
    def whole() -> Callable[..., None]:
        found = parameters()
        vars(run).update(__signature__=Signature(list(found.values())))
        run.__annotations__ = {name: p.annotation for name, p in found.items()}
        return run

    # what typer sees at the start: a name and a help text
    def command() -> None: ...

    command.__name__, (command.__doc__, _) = function.__name__, explained(function.__doc__ or "")
    vars(command).update(whole=whole)
    return command


def whole(command: Callable[..., object]) -> Callable[..., None]:
    """Return what a command runs, with its parameters as typer sees them."""
    return cast("Callable[..., None]", vars(command)["whole"]())


def look(name: str) -> Look:
    """Return the name of a look; `shipped` and `written` are old names of two.

    Raises:
        UsageError: no look has this name.
    """
    known = {"shipped": "optimized", "written": "unoptimized"}.get(name, name)
    if known not in LOOKS:
        raise UsageError(f"--look {name!r} does not exist", f"write {', '.join(LOOKS)}")
    return known


def show(
    result: "Shown",
    json: bool = False,
    metrics: str = "usual",
    verbose: bool = False,
    by: str = "",
    html: Path | None = None,
    node_data: Path | None = None,
    told: str = "",
) -> None:
    """Print a result, or its JSON; say what else was written."""
    from onnxsurgeon_lite.report import results

    how: dict[str, bool | str] = dict(
        every_metric=metrics == "all", verbose=verbose, by=by, told=told
    )
    results.show(result, json, **{name: wanted for name, wanted in how.items() if wanted})
    for place in filter(None, (html, node_data)):
        if not json:
            plain.show_written(place)


def require(agreement: bool) -> None:
    """End with the exit code of a mismatch where there is one."""
    if not agreement:
        raise typer.Exit(MISMATCH)


def store(
    result: "RunResult | MatchResult",
    place: Path | None,
    force: bool,
    json: bool = False,
    html: Path | None = None,
) -> None:
    """Save a result where it is wanted, then print it: a result that cannot be saved is an error alone."""
    from onnxsurgeon_lite.model import require_replaceable

    if place is not None:
        require_replaceable(place, force)
        result.save(place)
    show(result, json, html=html)
    if place is not None and not json:
        plain.show_written(place)


def save(model: "Loaded", target: Target, external: bool | None = None) -> "Written | None":
    """Write a model and say so.

    Raises:
        OutputExistsError: the file exists and may not be replaced.
    """
    from onnxsurgeon_lite.model import embedded_size, save
    from onnxsurgeon_lite.model.formats import written_format
    from onnxsurgeon_lite.model.saving import size_beside

    written_format(target.path)  # which refuses ONNX text
    size = size_beside(model, target.path) if external is None else embedded_size(model)
    if target.dry_run:
        announce("would write", target.path, size)
        return None
    force = target.replaceable()
    if not target.path.is_dir():  # which no --force turns into a file
        require_free(target.path, force)
    with writing(target.path, size):
        written = save(model, target.path, external, force=force)
    target.wrote(written.data_files)
    show(written)
    return written
