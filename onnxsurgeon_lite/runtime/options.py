"""The options of a runtime: which one it is, and how it works."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.names import is_count, key_text, key_value, listed, split

Opt = Literal["none", "basic", "extended", "all"]
Settings = str | Mapping[str, str | int]

ORT, REFERENCE, TORCH = "ort", "reference", "torch"
TARGET = "target"
"""The setting that needs no key: the program of `command:PROGRAM`, the module of `torch:FILE.py:function`."""

_SWITCHES = {"openvino": ("INFERENCE_PRECISION_HINT", "f32"), "cuda": ("use_tf32", "0")}
"""Runtime, or provider of onnxruntime -> the setting that makes it compute in float32."""
_PROVIDERS = ("CPU", "CUDA", "Tensorrt", "OpenVINO", "Dml", "QNN", "CoreML", "ROCM", "MIGraphX")
_KNOWN = (
    "write opt=none, provider=cpu, threads=1, disabled=OPTIMIZER, else=reference or runtime=NAME"
)


@dataclass(frozen=True)
class RuntimeOptions:
    """Which runtime, and how it works.

    Attributes:
        opt: graph optimization level.
        provider: execution provider: `cpu`, `cuda`, or onnxruntime's own name of one; another runtime's device.
        threads: intra-op threads; 0 for the runtime's choice.
        lean: for sessions that run once: weights stay mapped from their files, without prepacked copies; products with
            integers in blocks have copies, and do not round what they multiply.
        timeout: seconds that a request may take; None for no limit.
        ops_libraries: shared libraries with custom operators.
        disabled: graph optimizers to disable.
        runtime: `ort`, `reference`, `openvino`, `command`, `torch`, or that of an installed plugin.
        settings: (key, value) that the runtime, or onnxruntime's provider, is given as they are.
        ops: a Python file with operators that the runtime lacks.
        python: the interpreter whose onnxruntime it is; '' for this one.
        version: the version for which that interpreter was made; '' where it was given.
        otherwise: the runtime that computes what it has no kernels for: `reference`, or '' for none.

    Example:
        >>> osl.RuntimeOptions(opt="none", threads=1).provider
        'cpu'
    """

    opt: Opt = "all"
    provider: str = "cpu"
    threads: int = 0
    lean: bool = False
    timeout: float | None = None
    ops_libraries: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    runtime: str = ORT
    settings: tuple[tuple[str, str], ...] = ()
    ops: str = ""
    python: str = ""
    version: str = ""
    otherwise: str = ""


def named(options: RuntimeOptions, text: str) -> RuntimeOptions:
    """Return options with the runtime that `NAME[:option=value,...]` means."""
    return with_settings(options, f"runtime={text}") if text != options.runtime else options


def with_settings(options: RuntimeOptions, settings: Settings | None) -> RuntimeOptions:
    r"""Return options with other settings, written `opt=none,threads=1` or `runtime=openvino,threads=1`.

    `runtime=NAME:REST` is `runtime=NAME,REST`; a rest without `=` is what the runtime is made of, such as a program.
    `\,` is a comma inside a value.

    Raises:
        UsageError: a setting that is unknown, or has no such value.
    """
    # "runtime=NAME:REST": the rest is put before the settings that follow
    parts = split([settings_text(settings)])
    while parts:
        name, value = key_value(parts.pop(0))
        if value is None:
            raise UsageError(f"setting {name!r} has no '='", "write setting NAME=...")
        if name == "runtime":
            value, _, rest = value.partition(":")
            options = replace(options, runtime=value, settings=(), python="", version="")
            # "target=./program", or settings
            parts[:0] = [rest if key_value(rest)[1] else f"{TARGET}={rest}"] if rest else []
        else:
            options = _with_setting(options, name, value)
    _require_known(options)
    return options


def settings_text(settings: Settings | None) -> str:
    """Return settings as they are written."""
    if isinstance(settings, Mapping):
        return ",".join(f"{name}={value}" for name, value in settings.items())
    return settings or ""


def _with_setting(options: RuntimeOptions, name: str, value: str) -> RuntimeOptions:
    # settings of any runtime, then those of onnxruntime, then those of the runtime itself
    match name:
        case "opt" if value in get_args(Opt):
            return replace(options, opt=cast(Opt, value))
        case "provider":
            return replace(options, provider=value)
        case "threads" if is_count(value):
            return replace(options, threads=int(value))
        case "python" if options.runtime == ORT:
            return replace(options, python=value, version="")
        case "version" if options.runtime == ORT:
            from onnxsurgeon_lite.runtime.environments import interpreter_of

            return replace(options, python=interpreter_of(value), version=value)
        case "disabled":
            return replace(options, disabled=options.disabled + (value,))
        case "else" if value == REFERENCE:
            return replace(options, otherwise=value)
        case "opt" | "threads" | "else":
            raise UsageError(f"{name}={value} is no setting", _KNOWN)
    return replace(options, settings=options.settings + ((name, value),))


def _require_known(options: RuntimeOptions) -> None:
    """Refuse settings of onnxruntime on the CPU that are not those of a session; a provider has its own."""
    if options.runtime != ORT or not options.provider.startswith(("cpu", "CPU")):
        return
    # session settings have a dot in their names
    for name, value in options.settings:
        if "." not in name:
            raise UsageError(f"{name}={value} is no setting", _KNOWN)


def words_of(options: RuntimeOptions) -> list[str]:
    """Return the command line's words for a runtime that is not onnxruntime alone; none for that."""
    words = ["--ops", options.ops] if options.ops else []
    settings = [f"{key_text(key)}={value}" for key, value in options.settings]
    if options.python:
        # the path of an environment that was made here means nothing elsewhere
        own = f"version={options.version}" if options.version else f"python={options.python}"
        settings.append(own)
    settings += [f"else={options.otherwise}"] if options.otherwise else []
    if options.runtime == ORT and not settings:
        return words
    return [
        "--runtime",
        # "--runtime NAME:key=value,..."
        ":".join([options.runtime] + ([listed(settings)] if settings else [])),
        *words,
    ]


def in_full_precision(options: RuntimeOptions) -> RuntimeOptions | None:
    """Return options without the lower precision that a runtime may choose by itself; None if no switch is known."""
    switch = _SWITCHES.get(options.runtime if options.runtime != ORT else options.provider)
    return replace(options, settings=options.settings + (switch,)) if switch else None


def require_ort(verb: str, *sides: RuntimeOptions, any_python: bool = False) -> None:
    """Refuse other runtimes, and operators in Python, for a verb that needs what onnxruntime alone does.

    Args:
        any_python: its onnxruntime may be that of another interpreter, with settings of its own.
    """
    for options in sides:
        # with another interpreter only its own settings remain to refuse
        options = replace(options, python="", settings=()) if any_python else options
        if words_of(options):
            raise UsageError(
                f"{verb} works with onnxruntime alone", "leave out --runtime and --ops"
            )


def provider_name(name: str) -> str:
    """Return onnxruntime's own name of a provider: `cuda` is `CUDAExecutionProvider`."""
    short = {known.lower(): known for known in _PROVIDERS}
    return f"{short[name.lower()]}ExecutionProvider" if name.lower() in short else name
