"""Read parameters that PyTorch stored, without running code from the file."""

import pickle
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxsurgeon_lite.errors import ReferenceSetError, UsageError, said
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references import Entry, ReferenceSet, open_references
from onnxsurgeon_lite.untrusted import UNREADABLE, require_regular

if TYPE_CHECKING:
    import torch

_TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
_WRAPPERS = ("state_dict", "model_state_dict", "model", "module")


# Tensors stay in the file, if its format allows that.
def open_checkpoint(path: Path) -> ReferenceSet:
    """Open the parameters in a `.safetensors` or PyTorch file, or any reference set."""
    if path.suffix not in _TORCH_SUFFIXES:
        return open_references(path)
    try:
        require_regular(path)  # a file that is not there needs no torch
        import torch

        from onnxsurgeon_lite.recording.torch_recorder import DTYPES

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle versions that torch then refuses anyway
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_archive(path))
    except ImportError as error:
        raise UsageError(
            f"reading {str(path)!r} needs torch",
            "run pip install torch, or store the parameters as .safetensors",
        ) from error
    except pickle.UnpicklingError as error:
        raise ReferenceSetError(
            f"{str(path)!r} is not a pickle of tensors alone, and could run any code: refused",
            "store only the parameters: torch.save(module.state_dict(), FILE), or as .safetensors",
        ) from error
    except OSError as error:
        raise ReferenceSetError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except UNREADABLE as error:
        raise ReferenceSetError(
            f"cannot read {str(path)!r}: {said(error).splitlines()[0]}"
        ) from error
    state = _unwrapped(found)
    entries = {  # what training scripts store besides parameters is left out
        str(name): Entry(partial(_array, tensor), tuple(tensor.shape))
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and tensor.dtype in DTYPES
    }
    if not entries:
        raise ReferenceSetError(
            f"{str(path)!r} holds no parameters", "store a state dict: name -> tensor"
        )
    return ReferenceSet(str(path), entries)


def _is_archive(path: Path) -> bool:
    """Return whether the file is a zip: torch's format since 1.6, whose tensors can stay in the file."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


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


def _array(tensor: "torch.Tensor") -> Array:
    import torch

    from onnxsurgeon_lite.recording.torch_recorder import DTYPES

    # bytes first: numpy has no bfloat16 of torch's
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    dtype = dtypes.numpy_dtype(dtypes.data_type_of(DTYPES[tensor.dtype]))
    return np.asarray(raw.numpy()).view(dtype).reshape(tensor.shape)
