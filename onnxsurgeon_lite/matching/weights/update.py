"""Write the numbers of a checkpoint into a model, through the map that compared them."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.weights.compare import Weight
from onnxsurgeon_lite.matching.weights.folding import Fold, batch_norm
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.surgery.constants import describe_like
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array
from onnxsurgeon_lite.tensors.references import ReferenceSet

_ALIKE = 0.5  # the least cosine similarity that tells one order of axes from another


def update_weights(
    index: GraphIndex, weights: Iterable[Weight], checkpoint: ReferenceSet
) -> tuple[Model, list[str]]:
    """Return the model with the numbers of a checkpoint, and the names of the weights that changed.

    Raises:
        ReferenceSetError: the checkpoint lacks a parameter, has it in another shape, or the order of its axes is not
            known.
    """
    result = index.model.copy()
    tensors = {tensor.name: tensor for tensor in result.proto.graph.initializer}
    changed = []
    for weight in weights:
        tensor = tensors[weight.name]
        array = _fitting(weight, tensor, checkpoint)
        before = index.model.array(tensor)
        if array.tobytes() != before.tobytes():
            changed.append(weight.name)
            new = dtypes.from_array(array, weight.name)
            describe_like(new, tensor)
            tensor.CopyFrom(new)
    return result, changed


def _fitting(weight: Weight, tensor: TensorProto, checkpoint: ReferenceSet) -> Array:
    """Return a parameter as the model holds it: in its layout, folded, in its dtype."""
    dtype, shape = dtypes.numpy_dtype(tensor.data_type), tuple(tensor.dims)
    if weight.uncertain and weight.comparison.cosine < _ALIKE:
        raise ReferenceSetError(
            f"parameter {weight.parameter!r} fits {weight.name!r} in several orders of its axes, like it in none",
            "give the checkpoint that the model was exported from with --against",
        )
    array = _laid_out(weight, checkpoint)
    if array.shape != shape:
        if weight.order is not None or array.size != np.prod(shape, dtype=int):
            raise ReferenceSetError(
                f"parameter {weight.parameter!r} gives {list(array.shape)}, {weight.name!r} has {list(shape)}",
                "give a checkpoint of the same network",
            )
        array = array.reshape(shape)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array.astype(dtype, copy=False))


def _laid_out(weight: Weight, checkpoint: ReferenceSet) -> Array:
    if weight.fold is not None:
        return _folded(weight, weight.fold, checkpoint)
    stored = _read(checkpoint, weight.parameter)
    if weight.order is None or len(weight.order) != stored.ndim:
        return stored
    return np.transpose(stored, weight.order)


def _folded(weight: Weight, fold: Fold, checkpoint: ReferenceSet) -> Array:
    norm = batch_norm(checkpoint, fold.norm.name)
    if norm is None:
        raise _missing(checkpoint, f"{fold.norm.name}.running_var")
    fold = replace(fold, norm=norm)
    if weight.axis is not None:
        return fold.weight(_read(checkpoint, weight.parameter), weight.axis)
    has_own = (
        weight.parameter != f"{norm.name}.bias"
    )  # a convolution without one: the norm's is named
    return fold.bias(_read(checkpoint, weight.parameter) if has_own else None)


def _read(checkpoint: ReferenceSet, parameter: str) -> Array:
    stored = checkpoint.read(parameter) if parameter in checkpoint else None
    if not isinstance(stored, np.ndarray):
        raise _missing(checkpoint, parameter)
    return stored


def _missing(checkpoint: ReferenceSet, parameter: str) -> ReferenceSetError:
    return ReferenceSetError(
        f"{str(checkpoint.place)!r} has no parameter {parameter!r}",
        f"it has {listed(list(checkpoint)[:6])}",
    )
