"""Arguments and options that several commands share, and what they mean."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from onnxsurgeon_lite.api.call import OptLevel
from onnxsurgeon_lite.cli import completion
from onnxsurgeon_lite.cli.outputs import Target
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_text, key_value

if TYPE_CHECKING:
    from onnxsurgeon_lite.api.call import RunOnFeeds
    from onnxsurgeon_lite.model import Model as Loaded
    from onnxsurgeon_lite.model import Written
    from onnxsurgeon_lite.passes.set_attr import AttributeValue
    from onnxsurgeon_lite.shown import Shown


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not seconds < 1e9:
        raise typer.BadParameter(f"{seconds} is not a number of seconds")
    return seconds


LOOK, CUT, CHANGE, RUN, DEBUG = "Look", "Cut", "Change", "Run", "Debug"  # panels of the help page

Look = Literal["auto", "unoptimized", "optimized", "node"]
LOOKS: tuple[Look, ...] = get_args(Look)

Model = Annotated[Path, typer.Argument(help="Model to read.", show_default=False)]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Where to write; by default a named file here.", show_default=False
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be made or changed, no more.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show the details of every culprit, and the search.")
]
Metrics = Annotated[
    Literal["usual", "all"],
    typer.Option("--metrics", help="Columns of tables: the usual metrics, or all."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Feeds = Annotated[
    str | None,
    typer.Option(
        "--feeds",
        help="Tensors for the inputs: .npz, .npy, .safetensors, test_data_set_N or a recorded folder.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of made feeds.")]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", help="Size of a symbolic dimension in made feeds.", metavar="NAME=SIZE"),
]
Fills = Annotated[
    list[str] | None,
    typer.Option(
        "--fill",
        help="How an input is made: zeros, ones, normal, uniform:lo,hi or a file.",
        metavar="NAME=HOW",
        autocompletion=completion.of_inputs,
    ),
]
Opt = Annotated[OptLevel, typer.Option("--opt", help="Graph optimization level of the runtime.")]
Provider = Annotated[
    str, typer.Option("--provider", help="Execution provider: cpu, cuda, or its full name.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0,
        callback=_finite,
        help="Seconds that the runtime may take.",
        show_default=False,
    ),
]
Threads = Annotated[
    int, typer.Option("--threads", min=0, help="Threads of the runtime; 0 lets it choose.")
]
MemoryLimit = Annotated[
    str,
    typer.Option(
        "--memory-limit", help="What the runtime may allocate, such as 4GB; 0 for no limit."
    ),
]
OpsLibraries = Annotated[
    list[Path] | None,
    typer.Option("--ops-library", help="Shared library with custom operators.", show_default=False),
]
REFERENCES = "Reference tensors: .npz, .npy, .safetensors, test_data_set_N or a recorded folder."
Against = Annotated[
    Path | None,
    typer.Option("--against", help="Model whose values are the references.", show_default=False),
]
Map = Annotated[
    str | None,
    typer.Option(
        "--map",
        metavar="auto|names|FILE",
        help="How references are matched with values: auto, names, or a file of `onnxdbg match`; "
        "auto by default where they are called otherwise.",
        show_default=False,
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        "--rtol", help="Relative tolerance; each dtype's own by default.", show_default=False
    ),
]
Atol = Annotated[
    float | None,
    typer.Option(
        "--atol", help="Absolute tolerance; each dtype's own by default.", show_default=False
    ),
]


SHARED: dict[str, tuple[object, object]] = {
    "seed": (Seed, 0),
    "dim": (Dims, None),
    "fill": (Fills, None),
    "rtol": (Rtol, None),
    "atol": (Atol, None),
    "provider": (Provider, "cpu"),
    "threads": (Threads, 0),
    "timeout": (Timeout, None),
    "memory_limit": (MemoryLimit, "0"),
    "ops_library": (OpsLibraries, None),
}
"""Options of every command that runs a model: what typer is told, and the default."""


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


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that it passes on to the library as `**how`."""
    own = dict(signature(command).parameters)
    names = [n for n in get_args(own.pop("how").annotation)[0].__annotations__ if n in SHARED]
    parameters = [*own.values(), *map(option, names)]

    @wraps(command)
    def run(**given: object) -> None:
        command(**(given | library_options(given)))

    return spelled(run, parameters)


def option(name: str) -> Parameter:
    """A shared option as a parameter."""
    annotation, default = SHARED[name]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def spelled(command: Callable[..., None], parameters: Iterable[Parameter]) -> Callable[..., None]:
    """A command with these parameters, as typer sees it."""
    keyword = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters]
    vars(command).update(__signature__=Signature(keyword))
    command.__annotations__ = {p.name: p.annotation for p in keyword}
    return command


def library_options(given: Mapping[str, object]) -> "RunOnFeeds":
    """What the library takes for shared options as they are written."""
    found = {name: given[name] for name in SHARED if name in given}
    if "dim" in found:
        texts = cast("list[str] | None", found["dim"])
        found["dim"] = {name: _size_of(name, size) for name, size in pairs("--dim", texts)}
    if "fill" in found:
        found["fill"] = dict(pairs("--fill", cast("list[str] | None", found["fill"])))
    if "ops_library" in found:
        found["ops_library"] = found["ops_library"] or ()
    return cast("RunOnFeeds", found)


def show(
    result: "Shown", json: bool = False, metrics: str = "usual", verbose: bool = False
) -> None:
    """Print a result, or its JSON."""
    from onnxsurgeon_lite.report import results

    how = {"every_metric": metrics == "all", "verbose": verbose}
    results.show(result, json, **{name: True for name, wanted in how.items() if wanted})


def save(
    model: "Loaded", target: Target, external: bool | None = None, dry_run: bool = False
) -> "Written | None":
    """Write a model and say so.

    Raises:
        OutputExistsError: something stands there that may not be replaced.
    """
    from onnxsurgeon_lite.atomic import require_free
    from onnxsurgeon_lite.model import save
    from onnxsurgeon_lite.model.saving import embedded_size
    from onnxsurgeon_lite.report.progress import announce, writing

    size = embedded_size(model)
    if dry_run:
        announce("would write", target.path, size)
        return None
    force = target.replaceable()
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
