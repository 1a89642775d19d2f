"""Reference tensors of a PyTorch module, for a model that was exported from it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from onnxsurgeon_lite import tensors
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.feeds import required_inputs
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.model import load
from onnxsurgeon_lite.references import ReferenceSet, open_references
from onnxsurgeon_lite.torch_recorder import (
    Recorded,
    RecordError,
    Stored,
    bind_feeds,
    load_factory,
    record_module,
)


def record_factory(
    target: str,
    folder: Path,
    feeds: str | None = None,
    model: Path | None = None,
    scopes: Sequence[str] = (),
    operators: bool = False,
) -> Recorded:
    """Record the module that `FILE.py:factory` returns; see `torch_recorder.record_module`.

    Args:
        feeds: a reference set with what `forward` takes, in place of the factory's arguments.
        model: names the inputs like this ONNX model's.

    Raises:
        ReferenceSetError: the module cannot be recorded; the user's own lines of a traceback are its notes.
    """
    inputs = required_inputs(GraphIndex.of(load(model))) if model is not None else []
    try:
        module, args, kwargs = load_factory(target)
        if feeds is not None:
            sample = bind_feeds(module, _arrays(open_references(feeds, inputs)))
            args, kwargs = sample.args, sample.kwargs
        return record_module(
            module,
            args,
            kwargs,
            folder,
            scopes=scopes,
            operators=operators,
            input_names=inputs,
        )
    except RecordError as error:
        told = ReferenceSetError(error.message, error.hint or None)
        for line in error.trace.splitlines():
            told.add_note(line)
        raise told from error


def _arrays(feeds: ReferenceSet) -> dict[str, Stored]:
    names = [name for name in feeds if feeds.entries[name].is_input] or list(feeds)
    arrays: dict[str, Stored] = {}
    for name in names:
        array = feeds.read(name)
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OUS":
            raise UsageError(f"feed {name!r} is no tensor that torch has", "leave it out")
        dtype = tensors.dtype_name(tensors.data_type_of_numpy(array.dtype))
        arrays[name] = (dtype, array.shape, tensors.encode(array))
    return arrays
