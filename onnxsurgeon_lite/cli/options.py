"""Arguments and options that several commands share, and what they mean."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from onnxsurgeon_lite.cli import completion
from onnxsurgeon_lite.errors import OutputExistsError, UsageError
from onnxsurgeon_lite.names import key_text, key_value

if TYPE_CHECKING:
    from onnxsurgeon_lite.debug.bisection.result import Look
    from onnxsurgeon_lite.passes.set_attr import AttributeValue
    from onnxsurgeon_lite.runtime.feeds import Recipe
    from onnxsurgeon_lite.runtime.session import RuntimeOptions
    from onnxsurgeon_lite.tensors.comparison import Tolerance

LOOK, CUT, CHANGE, RUN, DEBUG = "Look", "Cut", "Change", "Run", "Debug"  # panels of the help page

LOOKS: "dict[str, Look | None]" = {
    "auto": None,
    "optimized": "optimized",
    "unoptimized": "unoptimized",
    "node": "node",
}
OptLevel = Literal["none", "basic", "extended", "all"]

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
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Feeds = Annotated[
    str | None,
    typer.Option(
        "--feeds",
        help="Tensors for the inputs: .npz, .npy, .safetensors, test_data_set_N or a recorded folder.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of made feeds.")]
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
    typer.Option("--timeout", min=0, help="Seconds that the runtime may take.", show_default=False),
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

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "B": 1, "": 1}


def default_output(
    model: Path, verb: str, output: Path | None, force: bool, suffix: str = ".onnx"
) -> Path:
    """The named output, or `<model>.<verb><suffix>` in the working directory, which must not be there yet."""
    path = output or Path(f"{model.stem}.{verb}{suffix}")
    if force:
        return path
    if path.is_file() and model.exists() and path.samefile(model):
        raise OutputExistsError(
            f"{str(path)!r} is the model that is read",
            "edits write over it with --in-place, other commands with --force",
        )
    require_absent(path, force or (output is not None and path.is_dir()))
    return path


def require_absent(path: Path, force: bool) -> None:
    """Raise `OutputExistsError` if a command would overwrite a file, or a folder that holds anything."""
    occupied = any(path.iterdir()) if path.is_dir() else path.exists() or path.is_symlink()
    if occupied and not force:
        raise OutputExistsError(
            f"{str(path)!r} is there already", "name another with -o, or overwrite it with --force"
        )


def recipe(seed: int, dims: list[str] | None, fills: list[str] | None) -> "Recipe":
    """How feeds are made."""
    from onnxsurgeon_lite.runtime.feeds import Recipe

    sizes = {name: _size_of(name, size) for name, size in pairs("--dim", dims)}
    return Recipe(seed, sizes, dict(pairs("--fill", fills)))


def tolerance(rtol: float | None, atol: float | None) -> "Tolerance | None":
    """The tolerance given (the one left out is 0), or None for each dtype's own."""
    from onnxsurgeon_lite.tensors.comparison import Tolerance

    if rtol is None and atol is None:
        return None
    if not all(given >= 0 for given in (rtol or 0.0, atol or 0.0)):
        raise UsageError("a tolerance is a number, 0 or more", "write --rtol 1e-3 --atol 1e-5")
    return Tolerance(atol or 0.0, rtol or 0.0)


def runtime_options(
    opt: OptLevel,
    provider: str = "cpu",
    threads: int = 0,
    timeout: float | None = None,
    ops_libraries: list[Path] | None = None,
    lean: bool = False,
) -> "RuntimeOptions":
    """How the runtime is to work."""
    from onnxsurgeon_lite.runtime.session import RuntimeOptions

    for library in ops_libraries or ():
        if not library.is_file():
            raise UsageError(
                f"there is no operator library at {str(library)!r}", "give the path of a .so file"
            )
    libraries = tuple(str(library.resolve()) for library in ops_libraries or ())
    return RuntimeOptions(opt, provider, threads, lean, timeout, libraries)


def unoptimized(how: "RuntimeOptions") -> "RuntimeOptions":
    """The same runtime with optimization off."""
    return replace(how, opt="none", lean=True)


def look(name: str) -> str:
    """Return the name of a look; `shipped` and `written` are old names of two.

    Raises:
        UsageError: no look has this name.
    """
    known = {"shipped": "optimized", "written": "unoptimized"}.get(name, name)
    if known not in LOOKS:
        raise UsageError(f"--look {name!r} does not exist", f"write {', '.join(LOOKS)}")
    return known


def with_settings(how: "RuntimeOptions", text: str | None) -> "RuntimeOptions":
    """Other settings for one side of a comparison, written `opt=none,threads=1`.

    Raises:
        UsageError: a setting that is unknown, or has no such value.
    """
    for name, value in pairs("setting", text.split(",") if text else ()):
        match name:
            case "opt" if value in get_args(OptLevel):
                how = replace(how, opt=cast(OptLevel, value))
            case "provider":
                how = replace(how, provider=value)
            case "threads" if value.isdecimal():
                how = replace(how, threads=int(value))
            case "disabled":
                how = replace(how, disabled=(*how.disabled, value))
            case _:
                raise UsageError(
                    f"{name}={value} is no setting",
                    "write opt=none, provider=cpu, threads=1 or disabled=OPTIMIZER",
                )
    return how


def refuse(applies: bool, what: str, given: Mapping[str, object], hint: str = "") -> None:
    """Raise `UsageError` for options that mean nothing for what a command is given."""
    useless = [name for name, value in given.items() if value]
    if applies and useless:
        raise UsageError(f"{', '.join(useless)} is not for {what}", hint or "leave it out")


def files(texts: list[str] | None) -> dict[str, Path]:
    """Name -> file of `--initializer` options."""
    return {name: Path(path) for name, path in pairs("--initializer", texts)}


def text_of(path: Path) -> str:
    """A text file's contents."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r} as text: {error}") from error


def byte_size(text: str) -> int:
    """Bytes that `4GB`, `512MB` or a plain number mean."""
    digits = text.strip().rstrip("BbKkMmGgTt")
    unit = text.strip()[len(digits) :].upper()
    try:
        factor = _UNITS[unit if unit.endswith("B") or not unit else unit + "B"]
        size = int(float(digits) * factor)
    except (ValueError, KeyError, OverflowError):
        size = -1
    if not 0 <= size < 1 << 63:
        raise UsageError(f"{text!r} is no size", "write 512MB or 4GB")
    return size


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


def _size_of(name: str, size: str) -> int:
    if not size.isdecimal():
        raise UsageError(
            f"the size {size!r} of dimension {name!r} is no number",
            f"write --dim {key_text(name)}=1",
        )
    return int(size)
