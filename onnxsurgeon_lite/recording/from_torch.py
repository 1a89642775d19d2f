"""Record reference tensors from a PyTorch module, for the model that was exported from it."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import ModelLike, loaded
from onnxsurgeon_lite.names import split
from onnxsurgeon_lite.recording.from_model import Recording
from onnxsurgeon_lite.recording.torch_recorder import (
    DTYPES,
    ModuleCall,
    RecordError,
    call_factory,
    load_factory,
    module_of,
    record_module,
)
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.references import ReferenceSet, Tensors, open_references


# Feeds take the place of the factory's arguments.
def record_factory(
    target: object,
    folder: Path,
    feeds: Tensors | None = None,
    model: ModelLike | None = None,
    scopes: Sequence[str] = (),
    operators: bool = False,
    compiler: str = "",
    program: bool = False,
) -> Recording:
    """Record a module, (module, args) or what a function or `FILE.py:factory` returns; see `record_module`.

    Args:
        feeds: a reference set with the arguments of `forward`, instead of those from the factory.
        model: an ONNX model whose input names are used.
        compiler: the backend of `torch.compile`; then only what the whole module returns is recorded.
    """
    # names of the model's inputs, to which tensors are bound in order
    inputs = GraphIndex.of(loaded(model)).required_inputs if model is not None else []
    try:
        module, args, kwargs = _module(target)
        if feeds is not None:
            sample = _bound(module, _tensors(open_references(feeds, inputs)))
            args, kwargs = sample.args, sample.kwargs
        done = record_module(
            _Compiled(module, compiler) if compiler else module,
            args,
            kwargs,
            folder,
            scopes=split(scopes),
            operators=operators,
            input_names=inputs,
            program=program,
        )
    except RecordError as error:
        failure = ReferenceSetError(error.message, error.hint or None)
        for line in error.trace.splitlines():
            failure.add_note(line)
        raise failure from error
    return Recording(done.values, folder, done.notes)


class _Compiled(torch.nn.Module):
    """A module that is compiled as a whole: its parts are no submodules, because watching them would cut it."""

    def __init__(self, module: torch.nn.Module, compiler: str) -> None:
        super().__init__()
        # not as an attribute of the module: torch would find its parts
        vars(self)["forward"] = torch.compile(module.eval().forward, backend=compiler)


def _module(target: object) -> tuple[torch.nn.Module, object, Mapping[str, object]]:
    if isinstance(target, str):
        return load_factory(target)
    if callable(target) and not isinstance(target, torch.nn.Module):
        return call_factory(target, getattr(target, "__name__", str(target)))
    return module_of(target, "record was given")


def _bound(module: torch.nn.Module, feeds: Mapping[str, torch.Tensor]) -> ModuleCall:
    """Bind tensors to `forward`'s parameters: by name if it has parameters of these names, otherwise in order."""
    parameters = inspect.signature(module.forward).parameters
    # by name only if every feed has a parameter
    if all(name in parameters for name in feeds):
        return ModuleCall((), dict(feeds))
    return ModuleCall(tuple(feeds.values()), {})


def _tensors(feeds: ReferenceSet) -> dict[str, torch.Tensor]:
    # a set may hold values besides its inputs; a file of arrays alone says nothing about inputs
    names = [name for name in feeds if feeds.entries[name].is_input] or list(feeds)
    of_name = {name: dtype for dtype, name in DTYPES.items()}
    found = {}
    for name in names:
        array = feeds.read(name)
        if not dtypes.is_array(array) or array.dtype.kind in "OUS":
            raise UsageError(f"feed {name!r} is not a tensor that torch supports", "leave it out")
        called = dtypes.dtype_name(dtypes.data_type_of_numpy(array.dtype))
        if called not in of_name:
            raise UsageError(
                f"feed {name!r} has dtype {called}, which torch does not support", "leave it out"
            )
        # a tensor on memory of its own, which torch may write to
        raw = bytearray(dtypes.encode(array))
        flat = torch.frombuffer(raw, dtype=of_name[called]) if raw else torch.empty(0)
        found[name] = flat.to(of_name[called]).reshape(array.shape)
    return found
