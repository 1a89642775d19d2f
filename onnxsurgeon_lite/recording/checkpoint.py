"""Read parameters that PyTorch or llama.cpp stored, without running code from the file."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError, said
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet, Tensors, open_references
from onnxsurgeon_lite.untrusted import UNREADABLE, require_regular

_HEADS = (
    (".attn_q.", "llama.attention.head_count"),
    (".attn_k.", "llama.attention.head_count_kv"),
)
"""Weights whose rows llama.cpp orders by pairs, in its architecture `llama`; how many heads they have."""

_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")


# Tensors stay in the file, if its format allows that.
def open_checkpoint(given: Tensors) -> ReferenceSet:
    """Open the parameters in a safetensors, PyTorch or GGUF file, or any reference set."""
    path = Path(given) if isinstance(given, str | PathLike) else Path()
    reader = _READERS.get(path.suffix)
    if reader is None:
        return open_references(given)
    try:
        require_regular(path)  # a file that is not there needs no other library
        entries = reader(path)
    except ImportError as error:
        raise UsageError(
            f"reading {str(path)!r} needs {error.name}",
            f"run pip install {error.name}, or store the parameters as .safetensors",
        ) from error
    except pickle.UnpicklingError as error:
        raise ReferenceSetError(
            f"{str(path)!r} is not a pickle of tensors alone, and could run any code: refused",
            "store only the parameters: torch.save(module.state_dict(), FILE), or as .safetensors",
        ) from error
    except UNREADABLE as error:
        why = getattr(error, "strerror", None) or said(error).partition("\n")[0]
        raise ReferenceSetError(f"cannot read {str(path)!r}: {why}") from error
    if not entries:
        raise ReferenceSetError(
            f"{str(path)!r} holds no parameters", "store a state dict: name -> tensor"
        )
    return ReferenceSet(str(path), entries)


def _torch(path: Path) -> dict[str, Entry]:
    """Return what a file of PyTorch holds besides what training scripts store there, too."""
    import torch

    from onnxsurgeon_lite.recording.torch_recorder import DTYPES

    def array(tensor: torch.Tensor) -> Array:
        # bytes first: numpy has no bfloat16 of torch's
        raw = tensor.detach().contiguous().ravel().view(torch.uint8)
        dtype = dtypes.numpy_dtype(dtypes.data_type_of(DTYPES[tensor.dtype]))
        return np.asarray(raw.numpy()).view(dtype).reshape(tensor.shape)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickle versions that torch then refuses anyway
        # torch's format since 1.6 is an archive, whose tensors can stay in the file
        is_archive = zipfile.is_zipfile(path)
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    return {
        str(name): Entry(partial(array, tensor), tuple(tensor.shape))
        for name, tensor in _unwrapped(found).items()
        if isinstance(tensor, torch.Tensor) and tensor.dtype in DTYPES
    }


def _gguf(path: Path) -> dict[str, Entry]:
    """Return the tensors of llama.cpp, in float where they are quantized; the names are its own."""
    from gguf import GGUFReader, ReaderTensor, dequantize

    reader = GGUFReader(path)
    heads = {part: reader.fields[key].parts[-1][0] for part, key in _HEADS if key in reader.fields}

    def array(each: ReaderTensor) -> Array:
        numbers = dequantize(each.data, each.tensor_type)
        count = next((heads[part] for part in heads if part in each.name), 0)
        if not count:
            return np.asarray(numbers)
        # half a head is rotated with the other half; there, the two rows of each pair follow one another
        pairs = numbers.reshape(count, -1, 2, numbers[0].size)
        return np.asarray(pairs.swapaxes(1, 2).reshape(numbers.shape))

    # it has the sizes of a shape in the other order
    return {
        each.name: Entry(partial(array, each), tuple(map(int, each.shape[::-1])))
        for each in reader.tensors
    }


_READERS = dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), _torch)
_READERS[".gguf"] = _gguf


def _unwrapped(found: object) -> Mapping[object, object]:
    """Return the state dict, also from inside the dict that training scripts put around it."""
    # a dict that contains itself must not be searched forever
    seen = set[int]()
    while isinstance(found, Mapping) and id(found) not in seen:
        seen.add(id(found))
        inner = next((found[key] for key in _WRAPPERS if isinstance(found.get(key), Mapping)), None)
        if inner is None:
            return found
        found = inner
    return {}
