"""Record reference tensors from PyTorch, on a machine that has only torch.

This file imports only torch and the standard library, so you can copy it to the machine that trains the model:

    python torch_recorder.py model.py:factory -o refs

`factory()` returns a module, `(module, args)`, `(module, kwargs)` or `(module, args, kwargs)`. `args` is a tuple of
arguments for `forward`, or a list of such tuples, one per sample; `kwargs` is a dict of them by name. The folder
holds the output of every submodule under the module's path (`encoder.layer.0`). A second call of a module is
`encoder.layer.0#2`, and the parts of a tuple or dict are `encoder.layer.0[0]`, `decoder[logits]`. The output of the
root module has the name of its class. An input keeps its name: the first call of a module of that name is
`encoder#1`. Modules are recorded in evaluation mode, like exporters do.
"""

from __future__ import annotations  # an older Python may run it

import argparse
import contextlib
import ctypes
import dataclasses
import difflib
import fnmatch
import functools
import importlib.util
import inspect
import io
import itertools
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

import torch

_DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool",
    "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
DTYPES: dict[torch.dtype, str] = {
    getattr(torch, name): {"float32": "float", "float64": "double"}.get(name, name.replace("_", ""))
    for name in _DTYPES
    if hasattr(torch, name)  # older versions of torch lack some
}
"""torch dtype -> the ONNX name."""

_MOST_WEIGHTS = 1 << 28  # bytes of a module that is stored as ONNX, too
_TORCH = os.path.dirname(torch.__file__) + os.sep
if TYPE_CHECKING:  # Python 3.8 has no such types but in annotations
    Call = tuple[torch.nn.Module, object, Mapping[str, object]]
    """A module, its arguments, and those by name."""


class RecordError(Exception):
    """An error that the user can fix: what is wrong, what to do, and where their own code failed."""

    def __init__(self, message: str, hint: str = "", trace: str = "") -> None:
        super().__init__(message)
        self.message, self.hint, self.trace = message, hint, trace


@dataclasses.dataclass
class Recorded:
    """The result of a recording: the number of values, and remarks on those that were not stored."""

    values: int
    notes: list[str]


@dataclasses.dataclass
class ModuleCall:
    """One call of the module."""

    args: tuple[object, ...]
    kwargs: dict[str, object]


def record_module(
    module: torch.nn.Module,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    folder: str | Path = "refs",
    *,
    scopes: Sequence[str] = (),
    operators: bool = False,
    input_names: Sequence[str] = (),
    program: bool = False,
) -> Recorded:
    """Call a module, and store its inputs and the output of every submodule as soon as it exists.

    Args:
        args: the arguments of `forward`, a tuple or a single tensor; a list of tuples for several samples.
        scopes: globs of module paths (`encoder.layer.4.*`): only values in these modules are stored.
        operators: use `torch.export` to store every operator's output, under the dynamo exporter's names.
        input_names: names for the inputs, from an ONNX model; by default those of `forward`'s parameters.
        program: store the module as ONNX too, with its weights, if torch can trace it and they are few.

    Raises:
        RecordError: the module cannot be called like this, its code raised, or a scope does not exist.
    """
    module = getattr(module, "_orig_mod", module)  # unwrap torch.compile
    calls = [ModuleCall(given, dict(kwargs or {})) for given in _samples(args)]
    _check(module, scopes)
    trains = sorted(
        {_kind(part) for part in module.modules() if part.training and isinstance(part, _TRAINING)}
    )
    with _Folder(Path(folder)) as writer, _evaluating(module):
        if trains:
            writer.notes.append(f"recorded in evaluation mode; {trains[0]} was in training mode")
        for writer.sample, call in enumerate(calls):
            sample = _on_device_of(module, call)
            bound, names = _write_inputs(writer, module, sample, input_names)
            record = _record_operators if operators else _record_calls
            record(writer, module, sample, scopes)
            if program and not writer.sample:
                writer.program = _traced(module, bound, names)
    return Recorded(len(writer.entries), list(dict.fromkeys(writer.notes)))


def load_factory(target: str) -> Call:
    """Return (module, args, kwargs) from `FILE.py:factory`.

    Raises:
        RecordError: there is no such file or function, or the function needs arguments, raises or returns another type.
    """
    # from the right: a path may have colons
    path, colon, name = target.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise RecordError(f"{target!r} does not name a factory", "write FILE.py:function")
    if not os.path.isfile(path):
        raise RecordError(f"there is no file {path!r}")
    file = _imported(path)
    factory = getattr(file, name, None)
    if not callable(factory):
        functions = [own for own, value in vars(file).items() if callable(value)]
        raise RecordError(f"{path!r} has no function {name!r}", _closest(name, functions))
    return call_factory(factory, name)


def call_factory(factory: Callable[[], object], name: str) -> Call:
    """(module, args, kwargs) from a function that returns the module, or (module, args).

    Raises:
        RecordError: it needs arguments, raises, or returns something else.
    """
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise RecordError(
            f"factory {name!r} needs arguments: {error}",
            "write a function without arguments that returns the module, or (module, args)",
        ) from error
    said = f"factory {name!r} returned"
    with _explained(f"factory {name!r}"):
        # a factory that draws weights without a seed gives others each time, unlike those of the export
        seed, state = torch.initial_seed(), torch.get_rng_state()
        made = module_of(factory(), said)
        drawn = not torch.equal(torch.get_rng_state(), state)
        if drawn and torch.initial_seed() == seed:  # it did not seed what it drew
            _require_same_weights(made[0], module_of(factory(), said)[0], name)
    return made


def _require_same_weights(one: torch.nn.Module, other: torch.nn.Module, factory: str) -> None:
    weights = other.state_dict()
    for name, tensor in one.state_dict().items():
        if not torch.equal(tensor, weights.get(name, tensor)):
            raise RecordError(
                f"factory {factory!r} returns other weights from call to call: {name!r} differs",
                "write torch.manual_seed(0) first, or load the weights; then export again",
            )


def module_of(made: object, said: str) -> Call:
    """(module, args, kwargs) from a module, or a tuple of the first of them."""
    # module; (module, args); (module, args, kwargs)
    parts = made if isinstance(made, tuple) else (made,)
    if not isinstance(parts[0], torch.nn.Module) or len(parts) > 3:
        raise RecordError(
            f"{said} {_kind(made)}, not a module",
            "return the module, or (module, args), or (module, args, kwargs)",
        )
    args = parts[1] if len(parts) > 1 else ()
    kwargs = parts[2] if len(parts) > 2 else {}
    if isinstance(args, Mapping) and len(parts) == 2:
        args, kwargs = (), args  # called as model(**inputs)
    if not isinstance(kwargs, Mapping):
        raise RecordError(
            f"{said} {_kind(made)}: keyword arguments are a dict", "return (module, args, kwargs)"
        )
    return parts[0], args, kwargs


def _samples(args: object) -> list[tuple[object, ...]]:
    # a list holds samples; anything else is one
    several = args if isinstance(args, list) else [args]
    if not several:
        raise RecordError(
            "args is an empty list: there are no samples", "give a tuple of arguments"
        )
    return [given if isinstance(given, tuple) else (given,) for given in several]


def _imported(path: str) -> object:
    """Import the file as a module, with its own folder on the search path."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, os.path.abspath(path))
    if spec is None or spec.loader is None:
        raise RecordError(f"{path!r} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded  # dataclasses and pickles look up their module
    # imports of the file's neighbors work as when it is run
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        with _explained(repr(path)):
            spec.loader.exec_module(loaded)
    except RecordError:
        del sys.modules[name]
        raise
    return loaded


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Report an exception of the user's own code, with their lines of the traceback."""
    try:
        yield
    except RecordError:
        raise
    # SystemExit: scripts without a main guard may call exit
    except (Exception, SystemExit) as error:
        raise RecordError(f"{what} raised {_raised(error)}", trace=_own_lines(error)) from error


def _raised(error: BaseException) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _own_lines(error: BaseException) -> str:
    """Return the user's own lines of the traceback."""
    # frames of torch, of this file, and of generated code
    foreign = (__file__, contextlib.__file__, "<", _TORCH)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(foreign)]
    return "".join(traceback.format_list(own)).rstrip()


def _check(module: object, scopes: Sequence[str]) -> None:
    if not isinstance(module, torch.nn.Module):
        raise RecordError(f"{_kind(module)} is not a torch.nn.Module", "give the module itself")
    if isinstance(module, torch.jit.ScriptModule):
        raise RecordError(
            "the module is TorchScript, whose submodules cannot be observed",
            "give the module that it was made from",
        )
    paths = [path for path, _ in module.named_modules(remove_duplicate=False)]
    for pattern in scopes:
        # paths of shared modules, too
        if not any(_fits([pattern], path) for path in paths):
            raise RecordError(
                f"the module has no submodule {pattern!r} (it has {len(paths)})",
                _closest(pattern, paths),
            )
    if any(p.is_meta for p in chain(module.parameters(), module.buffers())):
        raise RecordError(
            "the module is on the meta device and has no weights", "load them, then record"
        )


def _closest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"closest names: {', '.join(map(repr, close))}" if close else ""


def _kind(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_kind, value))})"
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


# what computes something else in training
_TRAINING = torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._BatchNorm


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Use evaluation mode and no gradients, then restore the mode of every submodule."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _on_device_of(module: torch.nn.Module, sample: ModuleCall) -> ModuleCall:
    """Move the arguments to the device of the module's weights, if all weights are on one."""
    # weights on several devices: the module distributes its inputs itself
    devices = {p.device for p in chain(module.parameters(), module.buffers())}
    if len(devices) != 1:
        return sample
    device = devices.pop()
    with _explained(f"moving the arguments to {device}"):
        args, kwargs = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda tensor: tensor.to(device), (sample.args, sample.kwargs)
        )
    return ModuleCall(args, kwargs)


def _write_inputs(
    writer: _Folder, module: torch.nn.Module, sample: ModuleCall, input_names: Sequence[str]
) -> tuple[inspect.BoundArguments, list[str]]:
    """Store the inputs; return the arguments and the names of their tensors."""
    try:
        # as Python binds them, so names are those of the parameters
        bound = inspect.signature(module.forward).bind(*sample.args, **sample.kwargs)
    except TypeError as error:
        raise RecordError(
            f"{type(module).__name__}.forward cannot be called like this: {error}",
            "return the arguments from the factory, or give feeds",
        ) from error
    # tensors inside of arguments have names such as `past[0]`
    parts = chain.from_iterable(itertools.starmap(_flat, bound.arguments.items()))
    given = {name: part for name, part in parts if isinstance(part, torch.Tensor)}
    names = _renamed(list(given), input_names)
    for name, called in names.items():
        writer.add(called, given[name], {"kind": "input"})
    return bound, list(names.values())


def _traced(module: torch.nn.Module, bound: inspect.BoundArguments, names: list[str]) -> bytes:
    """Return a module as ONNX; nothing if it has many weights, or the exporter that traces cannot take it."""
    # a large file beside the values would surprise
    weights = chain(module.parameters(), module.buffers())
    if sum(each.numel() * each.element_size() for each in weights) > _MOST_WEIGHTS:
        return b""
    forward, own = module.forward, vars(module).get("forward")

    @functools.wraps(forward)
    def tensors(*args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        parts = [part for _, part in _flat("", forward(*args, **kwargs))]
        return tuple(part for part in parts if isinstance(part, torch.Tensor))

    # the exporter takes tensors alone as results
    vars(module)["forward"] = tensors
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _PROGRAM)
        try:
            with warnings.catch_warnings(), _quiet():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    module,
                    bound.args,
                    path,
                    kwargs=bound.kwargs,
                    input_names=names,
                    dynamo=False,
                )
            return path.read_bytes()
        except Exception:  # noqa: BLE001  whatever it is, the values are recorded
            return b""
        finally:
            vars(module).pop("forward")
            vars(module).update({} if own is None else {"forward": own})


def _renamed(names: list[str], inputs: Sequence[str]) -> dict[str, str]:
    """Rename inputs to the model's names: equal names first, then by layer and kind, then in order."""
    # without the names of a model, all keep their own
    left = [name for name in inputs if name not in names]
    others = [name for name in names if name not in inputs] if inputs else []
    if len(left) != len(others) and inputs:
        raise RecordError(
            f"the module gets {len(names)} tensors ({', '.join(names)}), "
            f"the model has {len(inputs)} inputs ({', '.join(inputs)})",
            "name forward's parameters like the model's inputs",
        )
    # `past_key_values[layers][1][keys]` is `past_key_values.1.key`; models order these in several ways
    known = {_layer_and_kind(name): name for name in left}
    if set(map(_layer_and_kind, others)) == known.keys() and len(known) == len(left):
        left = [known[_layer_and_kind(name)] for name in others]
    renamed = {name: name for name in names}
    renamed.update(zip(others, left))  # noqa: B905  `strict` came with Python 3.10
    return renamed


def _layer_and_kind(name: str) -> tuple[tuple[str, ...], str]:
    """Return the numbers in a name, and its last word in the singular."""
    words = re.findall(r"[a-z]+", name.lower())
    return tuple(re.findall(r"\d+", name)), re.sub("s$", "", words[-1]) if words else ""


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield every tensor and other object in a value with its name; parts have their key in brackets."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(f"{name}[{key}]", part)
    elif isinstance(value, (tuple, list)):
        for number, part in enumerate(value):
            yield from _flat(f"{name}[{number}]", part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for part in dataclasses.fields(value):
            yield from _flat(f"{name}[{part.name}]", getattr(value, part.name))
    elif not isinstance(value, (int, float, complex, str, type(None))):
        parts = [] if isinstance(value, torch.Tensor) else _parts(name, value)
        yield from parts or [(name, value)]


def _parts(name: str, value: object, depth: int = 4) -> list[tuple[str, object]]:
    """Return the tensors of another object, such as a cache of keys and values."""
    # what torch does not know as a container is a leaf of itself
    leaves = torch.utils._pytree.tree_leaves(value)
    if any(leaf is value for leaf in leaves):  # torch does not know its parts
        # then its attributes
        items = list(getattr(value, "__dict__", {}).items())
    else:
        items = [(str(number), leaf) for number, leaf in enumerate(leaves)]
    found: list[tuple[str, object]] = []
    for key, part in items:
        if isinstance(part, torch.Tensor):
            found.append((f"{name}[{key}]", part))
        elif depth and not isinstance(part, (type, torch.nn.Module)):
            found += _parts(f"{name}[{key}]", part, depth - 1)
    return found


def _fits(patterns: Sequence[str], path: str) -> bool:
    """Return whether a module path, or that of an enclosing module, matches a glob; no globs match everything."""
    parts = path.split(".")
    # "a.b.c" -> "a", "a.b", "a.b.c"; also "a.b.c.", for globs such as `a.b.c.*`
    around = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    candidates = (*around, f"{path}.")
    return not patterns or any(fnmatch.fnmatchcase(c, p) for c in candidates for p in patterns)


def _record_calls(
    writer: _Folder, module: torch.nn.Module, sample: ModuleCall, scopes: Sequence[str]
) -> None:
    """Store the output of each submodule, before an in-place operation can overwrite it."""
    # path -> how often it was called
    calls = Counter[str]()

    def stored(path: str) -> Callable[..., None]:
        def hook(called: torch.nn.Module, args: object, result: object) -> None:
            calls[path] += 1
            name = path or type(called).__name__
            # the first call has the plain name, unless an input took it
            numbered = f"{name}#{calls[path]}"
            parts = list(_flat(numbered if calls[path] > 1 else name, result))
            if any(writer.holds(part) for part, _ in parts):
                parts = list(_flat(numbered, result))
            place = {"scope": path, "class": _class_name(type(called)), "source": _caller()}
            for part, value in parts:
                writer.add(part, value, place)

        return hook

    names: dict[torch.nn.Module, str] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        if not _fits(scopes, path):
            continue
        if not isinstance(part, torch.jit.ScriptModule):
            # a shared module has several paths: the first is its name
            names.setdefault(part, path)
        elif not isinstance(module.get_submodule(path.rpartition(".")[0]), torch.jit.ScriptModule):
            writer.notes.append(f"{path!r} was not recorded, because it is TorchScript")
    handles = [part.register_forward_hook(stored(path)) for part, path in names.items()]
    try:
        with _explained(f"{type(module).__name__}.forward"):
            module(*sample.args, **sample.kwargs)
    finally:
        for handle in handles:
            handle.remove()


def _class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _caller() -> str:
    """Return `model.py:42`: the innermost running line outside of torch and this file."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        path = frame.f_code.co_filename
        if path != __file__ and not path.startswith(_TORCH):
            return f"{os.path.basename(path)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _record_operators(
    writer: _Folder, module: torch.nn.Module, sample: ModuleCall, scopes: Sequence[str]
) -> None:
    """Store the output of each operator of the exported program, under the dynamo exporter's names."""
    try:
        with _quiet():
            program = torch.export.export(module, sample.args, sample.kwargs, strict=False)
            # as the exporter breaks operators down, so that names are its names
            program = program.run_decompositions(_decompositions())
    except Exception as error:
        raise RecordError(
            f"torch.export cannot take the module: {_raised(error)}",
            "record its submodules instead: leave out --operators",
            _own_lines(error),
        ) from error

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> object:
            result = super().run_node(n)
            place = _node_place(n)
            # inputs and attributes are no operators
            chosen = n.op == "call_function" and _fits(scopes, place["scope"])
            if chosen and isinstance(result, torch.Tensor):
                writer.add(n.name, result, place)
            return result

    graph = program.module()
    # the program takes flat arguments
    flat_args = torch.utils._pytree.tree_leaves((sample.args, sample.kwargs))
    with _explained("the exported program"):
        Recorder(graph).run(*flat_args)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress logs and output: torch prints whole graphs before it raises."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _decompositions() -> dict[torch._ops.OperatorBase, Callable[..., object]]:
    """Return the dynamo exporter's decompositions, if it is installed."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration
    except ImportError:
        return {}
    registry = _registration.ONNXRegistry.from_torchlib()
    # operators that the exporter translates stay whole
    supported = _decomp.get_onnx_implemented_overloads(registry)
    table = _decomp.create_onnx_friendly_decomposition_table(set(supported))
    return {op: rule for op, rule in table.items() if isinstance(op, torch._ops.OperatorBase)}


def _node_place(node: torch.fx.Node) -> dict[str, str]:
    """Return scope, class and line of an operator."""
    # the innermost module
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", "")
    # 'File "model.py", line 42, in forward' -> '"model.py"' and the rest
    frames = [
        line.split('"')[1:] for line in (node.stack_trace or "").splitlines() if 'File "' in line
    ]
    own = [frame for frame in frames if not frame[0].startswith(_TORCH)] or frames
    source = ""
    if own:
        number = own[-1][1].split("line ")[1].split(",")[0]
        source = f"{os.path.basename(own[-1][0])}:{number}"
    class_name = kind if isinstance(kind, str) else _class_name(kind)
    return {"scope": path, "class": class_name, "source": source}


_BEGIN = '{"format": "onnxsurgeon-references"'
_PROGRAM = "program.onnx"
_VALUES = re.compile(r"values(\.[0-9]+)?\.bin")


class _Folder:
    """A folder being written: `values.bin` as values arrive, `index.json` at the end; whole or not at all.

    The values have no name before they are complete, and a new folder does not exist: a killed process leaves nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sample = 0
        self.entries: list[dict[str, object]] = []
        self.notes: list[str] = []
        self.program = b""  # the module as ONNX
        # (sample, name)
        self._names: set[tuple[int, str]] = set()
        # memory, shape, strides and dtype -> (the tensor, its version, where it was written)
        self._written: dict[object, tuple[weakref.ref[torch.Tensor], int, dict[str, object]]] = {}
        self._made = False

    def __enter__(self) -> _Folder:
        try:
            # a folder that this process made is removed again after an error
            self._made = not self.folder.exists()
            # beside the result: a file can only be renamed within a file system
            near = self.folder.parent if self._made else self.folder
            self._file = tempfile.TemporaryFile(buffering=1 << 20, dir=near)  # noqa: SIM115
        except OSError as error:
            raise self._cannot_write(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        values, index = self.folder / ".values.bin", self.folder / ".index.json"
        program = self.folder / f".{_PROGRAM}"
        try:
            if error is None:
                self.folder.mkdir(exist_ok=True)
                # values first, under a hidden name; the index makes them visible
                _appear(self._file, values)
                old = _old_values(self.folder)
                name = _free_name(self.folder)
                index.write_text(self._index(name), encoding="utf-8")
                values.replace(self.folder / name)
                index.replace(self.folder / "index.json")
                for file in old:
                    file.unlink()
                # a file of this name that is not ours stays
                if self.program and not os.path.lexists(self.folder / _PROGRAM):
                    program.write_bytes(self.program)
                    program.replace(self.folder / _PROGRAM)
        except OSError as full:
            if error is None:
                raise self._cannot_write(full) from full
        finally:
            with contextlib.suppress(OSError):
                self._file.close()  # which writes what a full disk did not take
            for file in (values, index, program):
                file.unlink(missing_ok=True)
            if self._made and self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _cannot_write(self, error: OSError) -> RecordError:
        return RecordError(f"cannot write to {str(self.folder)!r}: {error.strerror}")

    def holds(self, name: str) -> bool:
        """Return whether this sample has a value of this name."""
        return (self.sample, name) in self._names

    def add(self, name: str, tensor: object, place: Mapping[str, str]) -> None:
        """Append a tensor; a tensor that has not changed since it was written is not written again."""
        if self.holds(name):
            self.notes.append(f"{name!r} was not recorded again: another value has this name")
            return
        if not isinstance(tensor, torch.Tensor):
            self.notes.append(f"{name!r} was not recorded: it is {_kind(tensor)}")
            return
        if tensor.layout is not torch.strided or tensor.dtype not in DTYPES:
            self.notes.append(f"{name!r} was not recorded: it is {tensor.dtype}, {tensor.layout}")
            return
        known = {key: text for key, text in place.items() if text}
        # memory may be used again by another tensor: the reference and the version show that
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        alive, version, where = self._written.get(key, (None, 0, {}))
        if alive is None or alive() is None or version != tensor._version:
            where = self._write(tensor)
            self._written[key] = weakref.ref(tensor), tensor._version, where
        self._names.add((self.sample, name))
        entry = {"name": name, "sample": self.sample}
        entry.update(where)
        entry.update(known)
        self.entries.append(entry)

    def _write(self, tensor: torch.Tensor) -> dict[str, object]:
        data = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        length, offset = data.numel() * data.element_size(), self._file.tell()
        # the bytes themselves: numpy has no bfloat16
        if length:
            try:
                self._file.write((ctypes.c_char * length).from_address(data.data_ptr()))
            except OSError as error:
                raise self._cannot_write(error) from error
        return {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "offset": offset,
            "length": length,
        }

    def _index(self, name: str) -> str:
        values = ",\n  ".join(map(json.dumps, self.entries))
        file = f'"file": {json.dumps(name)}, ' if name != "values.bin" else ""
        return f'{_BEGIN}, "version": 1, {file}"values": [\n  {values}\n]}}\n'


def _appear(file: IO[bytes], path: Path) -> None:
    """Give a file without a name its own, else a copy of it."""
    file.flush()
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", path)
    except OSError:
        file.seek(0)
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)


def _old_values(folder: Path) -> list[Path]:
    """Return the files of a folder whose index is ours."""
    index = folder / "index.json"
    if not index.is_file() or not index.read_bytes().startswith(_BEGIN.encode()):
        return []
    old = [file for file in folder.glob("values*.bin") if _VALUES.fullmatch(file.name)]
    return [*old, *folder.glob(_PROGRAM)]


def _free_name(folder: Path) -> str:
    """Return a name for the file of tensors; the one of an older recording stays until its index is replaced."""
    names = (f"values.{n}.bin" if n else "values.bin" for n in itertools.count())
    return next(name for name in names if not os.path.lexists(folder / name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run this file as a command."""
    parser = argparse.ArgumentParser(description="Record reference tensors from PyTorch.")
    parser.add_argument("factory", help="FILE.py:function that returns a module, or (module, args)")
    parser.add_argument("-o", "--output", default="refs", help="folder to write")
    parser.add_argument("--scope", action="append", default=[], help="record only this module")
    parser.add_argument("--operators", action="store_true", help="every operator's output")
    parser.add_argument("--no-program", action="store_true", help="not the module as ONNX")
    parser.add_argument("--input-name", action="append", default=[], help="the model's input names")
    given = parser.parse_args(arguments)
    try:
        module, args, kwargs = load_factory(given.factory)
        done = record_module(
            module,
            args,
            kwargs,
            given.output,
            scopes=given.scope,
            operators=given.operators,
            input_names=given.input_name,
            program=not given.no_program,
        )
    except RecordError as error:
        lines = filter(None, (f"error: {error.message}", error.hint, error.trace))
        sys.stderr.write("\n".join(lines) + "\n")
        return 2
    for note in done.notes:
        sys.stderr.write(f"note: {note}\n")
    sys.stdout.write(f"recorded {done.values} values in {given.output!r}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
