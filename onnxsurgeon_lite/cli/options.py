"""How the commands' functions become commands: words and kinds of their parameters, and what several of them do.

A parameter before `*` is an argument, one behind it an option; its help is its line under `Args:`, or that of `usual`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Literal, Union, cast, get_args, get_origin

import typer

from onnxsurgeon_lite.api.call import OptLevel
from onnxsurgeon_lite.api.spelling import explained
from onnxsurgeon_lite.atomic import require_free
from onnxsurgeon_lite.cli import completion
from onnxsurgeon_lite.cli.boundary import MISMATCH
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_text, key_value
from onnxsurgeon_lite.report import plain
from onnxsurgeon_lite.report.progress import announce, writing

if TYPE_CHECKING:
    from onnxsurgeon_lite.api.call import RunOnFeeds
    from onnxsurgeon_lite.matching.values.run_both import MatchResult
    from onnxsurgeon_lite.model import Model as Loaded
    from onnxsurgeon_lite.model import Written
    from onnxsurgeon_lite.passes.set_attr import AttributeValue
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
    """

    flags: tuple[str, ...] = ()
    completes: completion.Completer | None = None
    metavar: str | None = None
    least: int | None = None
    parser: Callable[[str], object] | None = None
    checks: Callable[[float | None], float | None] | None = None


Node = Annotated[str, Typed(completes=completion.nodes)]
Nodes = Annotated[Sequence[str], Typed(completes=completion.nodes)]
Value = Annotated[str, Typed(completes=completion.values)]
Values = Annotated[Sequence[str], Typed(completes=completion.values)]
Inputs = Annotated[Sequence[str], Typed(completes=completion.inputs)]
Metrics = Literal["usual", "all"]
Save = Annotated[Path | None, Typed(("--save", "-o"))]


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
    dim: Annotated[Sequence[str], Typed(metavar="NAME=SIZE")] = (),
    fill: Annotated[Sequence[str], Typed((), completion.of_inputs, "NAME=HOW")] = (),
    rtol: float | None = None,
    atol: float | None = None,
    opt: OptLevel = "all",
    runtime: Annotated[str, Typed((), completion.runtimes, "NAME[:OPTION=VALUE,...]")] = "ort",
    provider: str = "cpu",
    threads: Annotated[int, Typed(least=0)] = 0,
    timeout: Annotated[float | None, Typed(least=0, checks=_finite)] = None,
    memory_limit: str = "0",
    ops_library: Sequence[Path] = (),
    ops: Annotated[Path | None, Typed(metavar="FILE.py")] = None,
    reference: str | None = None,
    against: Path | None = None,
    mapping: Annotated[str | None, Typed(("--map",), metavar="auto|names|FILE")] = None,
    jobs: Annotated[int, Typed(least=0)] = 0,
    cluster: Annotated[str | None, Typed(metavar="ADDRESS|local|FILE")] = None,
    sequence: Annotated[
        Sequence[str], Typed(metavar="OUTPUT=INPUT", completes=completion.steps)
    ] = (),
    metric: Annotated[str | None, Typed(metavar="FILE.py:FN")] = None,
    tolerance: float | None = None,
) -> None:
    """Hold what means the same in most commands.

    Args:
        model: Model to read.
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
        runtime: Runtime: ort, reference, openvino, command:PROGRAM, torch:FILE.py:FUNCTION, or a plugin.
        provider: Execution provider: cpu, cuda, or its full name.
        threads: Threads of the runtime; 0 lets it choose.
        timeout: Seconds that the runtime, or ONNX's inference, may take.
        memory_limit: What the runtime, or ONNX's inference, may allocate, such as 4GB; 0 for the usual limits.
        ops_library: Shared library with custom operators.
        ops: Python file with operators that the runtime lacks: OPS = {"domain::Op": function of arrays}.
        reference: Reference tensors: .npz, .npy, .safetensors, test_data_set_N or a recorded folder.
        against: Model whose values are the references.
        mapping: How references are matched with values: auto, names, or a file of `onnxdbg match`;
            auto by default where they are called otherwise.
        jobs: Runtimes that work on samples, each with one thread by default; 0 for one with all threads.
        cluster: Dask cluster that works on samples, or on parts of a model: its scheduler's address, or file, or local.
        sequence: The samples are steps: the output is the next one's input; present.*=past.* for several.
        metric: A function (reference outputs, outputs) -> error of a sample, or (iterator of these) -> error of all;
            it decides instead of tolerances.
        tolerance: Largest error that the metric may give; 0 by default.
        rtol: Relative tolerance; each dtype's own by default.
        atol: Absolute tolerance; each dtype's own by default.
    """


def command(function: Callable[..., None]) -> Callable[[], None]:
    """Make a command of a function; `**how` are usual options, as the library takes them."""

    def run(**given: object) -> None:
        function(**library_options(written(given)))

    return spelled(function, run, lambda: parameters(function))


def parameters(function: Callable[..., object]) -> dict[str, Parameter]:
    """Return a function's parameters as typer sees them."""
    _, said = explained(function.__doc__ or "")
    found = dict(signature(function).parameters)
    if (how := found.pop("how", None)) is not None:
        shared = get_args(how.annotation)[0].__annotations__
        found |= {name: p for name, p in _USUAL.items() if name in shared}
    return {name: _told(p, said.get(name)) for name, p in found.items()}


def _told(parameter: Parameter, said: str | None) -> Parameter:
    """Say to typer what a parameter is; one without words of its own is the usual one."""
    kind, typed = _kind(parameter.annotation)
    if kind is typer.Context:
        return parameter
    if said is None:
        said = _SAID_USUALLY[parameter.name]
        _, typed = _kind(_USUAL[parameter.name].annotation)
    is_option = parameter.kind is Parameter.KEYWORD_ONLY
    flags = typed.flags or (f"--{parameter.name.replace('_', '-')}",)
    completes = typed.completes
    if completes is not None and not is_option:
        completes = completion.positional(completes)
    info = (partial(typer.Option, *flags) if is_option else typer.Argument)(
        help=said,
        metavar=typed.metavar,
        autocompletion=completes,
        min=typed.least,
        parser=typed.parser,
        callback=typed.checks,
    )
    default = None if parameter.default == () else parameter.default
    return parameter.replace(
        annotation=Annotated[kind, info], default=default, kind=Parameter.KEYWORD_ONLY
    )


def _kind(annotation: object) -> tuple[object, Typed]:
    """Return what a parameter holds where it holds something, and how it is typed."""
    typed = Typed()
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation, *more = get_args(annotation)
        typed = next((each for each in more if isinstance(each, Typed)), typed)
    if get_origin(annotation) is Sequence:
        return list[get_args(annotation)[0]], typed  # type: ignore[misc]
    return annotation, typed


_USUAL = dict(signature(usual).parameters)
_, _SAID_USUALLY = explained(usual.__doc__ or "")


def spelled(
    function: Callable[..., object],
    run: Callable[..., None],
    parameters: Callable[[], Mapping[str, Parameter]],
) -> Callable[[], None]:
    """Return a command that is called and described as a function is.

    Typer reads the parameters of every command at each start; it sees none, until `Command` asks for
    those of the one that is run.
    """

    @cache
    def whole() -> Callable[..., None]:
        found = parameters()
        vars(run).update(__signature__=Signature([*found.values()]))
        run.__annotations__ = {name: p.annotation for name, p in found.items()}
        return run

    def command() -> None: ...

    command.__name__, (command.__doc__, _) = function.__name__, explained(function.__doc__ or "")
    vars(command).update(whole=whole)
    return command


def whole(command: Callable[..., object]) -> Callable[..., None]:
    """Return what a command runs, with its parameters as typer sees them."""
    return cast("Callable[..., None]", vars(command)["whole"]())


def written(given: Mapping[str, object]) -> dict[str, object]:
    """Return what stands on the command line."""
    return {name: value for name, value in given.items() if value is not None}


def look(name: str) -> Look:
    """Return the name of a look; `shipped` and `written` are old names of two.

    Raises:
        UsageError: no look has this name.
    """
    known = {"shipped": "optimized", "written": "unoptimized"}.get(name, name)
    if known not in LOOKS:
        raise UsageError(f"--look {name!r} does not exist", f"write {', '.join(LOOKS)}")
    return known


def pairs(option: str, texts: Iterable[str] | None) -> list[tuple[str, str]]:
    """(name, value) of every `NAME=VALUE`."""
    found = []
    for text in texts or ():
        name, value = key_value(text)
        if value is None:
            raise UsageError(f"{option} {text!r} has no '='", f"write {option} NAME=...")
        found.append((name, value))
    return found


def attributes(texts: Iterable[str] | None) -> "tuple[tuple[str, AttributeValue], ...]":
    """(name, what is written) of every `NAME=VALUE`."""
    from onnxsurgeon_lite.surgery.constants import parse

    found = []
    for text in texts or ():
        name, value = key_value(text)
        if value is None or not name:
            raise UsageError(
                f"attribute {text!r} has no '='", f"write {text}=VALUE, such as pads=[1,1,1,1]"
            )
        found.append((name, cast("AttributeValue", parse(value))))
    return tuple(found)


def library_options(given: Mapping[str, object]) -> "RunOnFeeds":
    """Return usual options as the library takes them."""
    found = dict(given)
    if "dim" in found:
        texts = cast("list[str]", found["dim"])
        found["dim"] = {name: _size_of(name, size) for name, size in pairs("--dim", texts)}
    if "fill" in found:
        found["fill"] = dict(pairs("--fill", cast("list[str]", found["fill"])))
    if "sequence" in found:
        found["sequence"] = dict(pairs("--sequence", cast("list[str]", found["sequence"])))
    return cast("RunOnFeeds", found)


def show(
    result: "Shown",
    json: bool = False,
    metrics: str = "usual",
    verbose: bool = False,
    by: str = "",
    html: Path | None = None,
    node_data: Path | None = None,
) -> None:
    """Print a result, or its JSON; say what else was written."""
    from onnxsurgeon_lite.report import results

    how: dict[str, bool | str] = {"every_metric": metrics == "all", "verbose": verbose, "by": by}
    results.show(result, json, **{name: wanted for name, wanted in how.items() if wanted})
    for place in (html, node_data):
        if place is not None and not json:
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
    from onnxsurgeon_lite.model.sharing import require_replaceable

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
    from onnxsurgeon_lite.model import save
    from onnxsurgeon_lite.model.saving import embedded_size, require_protobuf, size_beside

    require_protobuf(target.path)
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


def _size_of(name: str, size: str) -> int:
    if not is_count(size):
        raise UsageError(
            f"the size {size!r} of dimension {name!r} is no number",
            f"write --dim {key_text(name)}=1",
        )
    return int(size)
