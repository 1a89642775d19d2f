"""Write the numbers of a checkpoint into a model, through the map that compared them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto

from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.matching.weights.belonging import apart
from onnxsurgeon_lite.matching.weights.compare import ALIKE, Weight, WeightsResult, as_text
from onnxsurgeon_lite.matching.weights.folding import FoldedWeight, batch_norm, plus_one
from onnxsurgeon_lite.matching.weights.pieces import Pieces
from onnxsurgeon_lite.model import by_name
from onnxsurgeon_lite.model.walk import tensors as all_tensors
from onnxsurgeon_lite.names import command, few, listed, rewrapped, wrapper_of
from onnxsurgeon_lite.surgery.constants import describe_like
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, Shape, is_array
from onnxsurgeon_lite.tensors.in_file import digest
from onnxsurgeon_lite.tensors.references import ReferenceSet

_MASK = 2  # distinct numbers, at most, of a mask: no training made it
_AGAINST = "give the checkpoint that the model was exported from with --against"
_AGAIN = "export the model again, or keep what cannot be followed as it is with --partial"
_QUANTIZERS = {"DequantizeLinear", "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}


def update_weights(
    index: GraphIndex,
    found: WeightsResult,
    old: ReferenceSet | None,
    new: ReferenceSet,
    is_partial: bool,
) -> None:
    """Put a copy of the model that has the numbers of a checkpoint into the result.

    Args:
        old: the checkpoint that the weights were found in, if it is another one.
        is_partial: True keeps weights as they are whose new numbers are not known for sure.

    Raises:
        ReferenceSetError: the new numbers of a weight are not known for sure: the checkpoint lacks a parameter, has it
            in another shape, or what the export did with it cannot be followed.
    """
    new = apart(new, index)
    if old is not None:
        old = apart(old, index)
        new = _named_like(old, new)
    update = _Update(index, found, old, new)
    if not is_partial and (hidden := update.hidden()):
        raise hidden
    result, found.updated = index.model.copy(), []
    tensors = by_name(result.proto.graph.initializer)
    for weight in found.weights:
        tensor = tensors[weight.name]
        try:
            array = update.fitting(weight, tensor)
        except ReferenceSetError as error:
            if not is_partial:
                raise
            found.kept[weight.name] = error.message
            continue
        if array is not None:
            found.updated.append(weight.name)
            tensor.CopyFrom(_like(tensor, array))
    found.model = result


def _like(tensor: TensorProto, array: Array) -> TensorProto:
    """Return a tensor with other numbers and the same name, location and notes."""
    changed = dtypes.from_array(array, tensor.name)
    describe_like(changed, tensor)
    return changed


def _named_like(old: ReferenceSet, new: ReferenceSet) -> ReferenceSet:
    """Return a checkpoint by the names of another one, where one of them was saved from inside a wrapper module."""
    way = wrapper_of(set(new), set(old))
    names = {name: rewrapped(name, way) for name in new}
    return replace(
        new, entries={names[n] if names[n] in old else n: e for n, e in new.entries.items()}
    )


@dataclass(frozen=True)
class _Update:
    index: GraphIndex
    found: WeightsResult
    old: ReferenceSet | None
    new: ReferenceSet

    def fitting(self, weight: Weight, tensor: TensorProto) -> Array | None:
        """Return a parameter as the model holds it: in its layout, folded, in its dtype; None if nothing changes."""
        # integers in blocks, then numbers that nobody knows the origin of, are refused
        dtype, shape = dtypes.numpy_dtype(tensor.data_type), tuple(tensor.dims)
        if not dtypes.is_float(dtype):
            raise ReferenceSetError(
                f"{weight.name!r} holds integers in blocks",
                "update the float model, and quantize that again",
            )
        # bytes that the model has now
        before = self.index.model.array(tensor)
        if not weight.comparison.match:
            self._require_known(weight)
        array = self._laid_out(weight, shape)
        # a reshaped parameter only needs the same number of elements
        if array.shape != shape:
            if weight.order is not None or array.size != np.prod(shape, dtype=int):
                raise ReferenceSetError(
                    f"parameter {weight.parameter!r} gives {list(array.shape)}, {weight.name!r} has {list(shape)}",
                    "give a checkpoint of the same network",
                )
            array = array.reshape(shape)
        # a number that the dtype does not reach must not become infinite unseen
        with np.errstate(over="ignore"):
            cast = np.asarray(array.astype(dtype, copy=False), order="C")
        if cast.tobytes() == before.tobytes():
            return None
        if not np.isfinite(cast).all() and np.isfinite(array).all():
            raise ReferenceSetError(
                f"parameter {weight.parameter!r} has numbers that {dtype} of {weight.name!r} does not reach",
                "export the model again in a wider dtype",
            )
        if weight.comparison.match:
            self._require_alone(weight, before)
        return cast

    def _require_known(self, weight: Weight) -> None:
        """Raise if numbers that differ do not say whose they are, or how they were made."""
        if weight.fold is not None and weight.axis is not None:
            raise ReferenceSetError(
                f"{weight.name!r} is {weight.parameter!r} {weight.how} by an epsilon that other numbers do not tell",
                _AGAINST,
            )
        if weight.rivals:
            raise _ambiguous(weight)
        if weight.comparison.metric("cosine") < ALIKE and not weight.is_placed:
            raise ReferenceSetError(
                f"{weight.name!r} has neither the numbers nor the place of a parameter", _AGAINST
            )

    def _require_alone(self, weight: Weight, before: Array) -> None:
        """Raise if equal numbers do not say which parameter a weight is, and these are no longer equal."""
        if weight.rivals:
            raise _ambiguous(weight)
        if weight.fold is not None:
            self._require_one_norm(weight, weight.fold)
        # parameters that were equal and are so no longer: which one the weight is, its place must say
        path = str(self.index.model.path or "MODEL")
        # equal parameters that differ in the new checkpoint
        apart = [p for p in weight.equal if p in self.new and not self._same(p, weight.parameter)]
        # where every one of them has a weight of its own, each is known
        placed = {each.parameter for each in self.found.weights if each.is_placed}
        if apart and not (weight.is_placed and placed.issuperset(weight.equal)):
            raise ReferenceSetError(
                f"{weight.name!r} holds {few([weight.parameter] + apart)}, which were equal and no longer are",
                f"give each reader its own: {command('onnxdbg', 'edit', 'unshare', path, weight.name)}",
            )
        # a constant of one number may be the exporter's own
        users = self.index.users(weight.name)
        # its own if there are as many equal parameters as modules that read it
        scopes = {self.index.origins[user].scope for user in users}
        is_own = weight.is_placed and len(scopes) <= max(1, len(weight.equal))
        if not is_own and (before == before.flat[0]).all():
            raise ReferenceSetError(
                f"{weight.name!r} may be a constant: it holds one number, as {weight.parameter!r} did",
                _AGAIN,
            )

    def _require_one_norm(self, weight: Weight, fold: FoldedWeight) -> None:
        """Raise if several BatchNorms explained the weight, and these are no longer equal."""
        for rival in fold.rivals:
            mine, other = (batch_norm(self.new, name) for name in (fold.norm.name, rival))
            if mine is None or other is None or not mine.is_as(other):
                raise ReferenceSetError(
                    f"{weight.name!r} is {weight.parameter!r} folded with {fold.norm.name!r} or {rival!r}, "
                    "which were equal and no longer are",
                    _AGAIN,
                )

    def hidden(self) -> ReferenceSetError | None:
        """Return an error if parameters changed that the export may have put into weights in unknown ways."""
        # parameters that no weight is known to hold may be in any constant
        extra = [p for p in self.new if p not in self.old] if self.old is not None else []
        if extra:
            return ReferenceSetError(
                f"{str(self.new.place)!r} has {few(extra)}, which the model's checkpoint lacks",
                _AGAIN,
            )
        changed = [p for p in self.found.only_checkpoint if p in self.new and self._changes(p)]
        # a number alone may be part of any constant
        where = few(list(self._unexplained()) if changed else [])
        if not where and not any(self._read(p).size <= _MASK for p in changed):
            return None
        hint = _AGAINST if self.old is None else _AGAIN
        if not _QUANTIZERS.isdisjoint(self.index.operators):
            hint = "the model is quantized: update the float model, and quantize that again"
        return ReferenceSetError(
            f"no weight is known to hold {few(changed)}, and the numbers of {where or 'constants'} "
            "do not tell how they were made",
            hint,
        )

    def _changes(self, parameter: str) -> bool:
        """Return whether a parameter has new numbers; all floats, if the old ones are not known."""
        now = self._read(parameter)
        if self.old is None or not dtypes.is_float(now.dtype):
            return dtypes.is_float(now.dtype)
        before = self.old.read(parameter)
        return not is_array(before) or not np.array_equal(before.astype(now.dtype), now)

    def _unexplained(self) -> Iterator[str]:
        """Yield the tensors that may be made of parameters, and do not agree with any."""
        known = {weight.name for weight in self.found.weights if weight.comparison.match}
        for tensor in filter(_is_trained, all_tensors(self.index.model.proto)):
            array = None if tensor.name in known else self.index.model.array(tensor)
            if array is not None and np.unique(array).size > _MASK:
                yield tensor.name or "a Constant"

    def _laid_out(self, weight: Weight, shape: Shape) -> Array:
        if weight.pieces is not None:
            return self._joined(weight.pieces, shape)
        if weight.fold is not None:
            return self._folded(weight, weight.fold)
        same = (p for p in (weight.parameter,) + weight.equal if p in self.new)
        stored = self._read(next(same, weight.parameter))
        if weight.added is not None:
            return plus_one(stored, weight.added)
        if weight.order is None or len(weight.order) != stored.ndim:
            return stored
        return np.transpose(stored, weight.order)

    def _joined(self, pieces: Pieces, shape: Shape) -> Array:
        for name, known in pieces.parameters.items():
            if (now := self._read(name).shape) != known:
                raise ReferenceSetError(
                    f"parameter {name!r} is {list(now)}, it was {list(known)}",
                    "give a checkpoint of the same network",
                )
        return pieces.joined(self._read, shape)

    def _folded(self, weight: Weight, fold: FoldedWeight) -> Array:
        norm = batch_norm(self.new, fold.norm.name)
        if norm is None:
            raise self._missing(f"{fold.norm.name}.running_var")
        fold = replace(fold, norm=norm)
        if weight.axis is not None:
            return fold.weight(self._read(weight.parameter), weight.axis)
        # a convolution without a bias: that of the norm is named
        has_own = weight.parameter != f"{norm.name}.bias"
        return fold.bias(self._read(weight.parameter) if has_own else None)

    def _same(self, a: str, b: str) -> bool:
        """Return whether two parameters are still equal, in whatever order of axes."""
        return a == b or (b in self.new and digest(self._read(a)) == digest(self._read(b)))

    def _read(self, parameter: str) -> Array:
        stored = self.new.read(parameter) if parameter in self.new else None
        if not is_array(stored):
            raise self._missing(parameter)
        return stored

    def _missing(self, parameter: str) -> ReferenceSetError:
        return ReferenceSetError(
            f"{str(self.new.place)!r} has no parameter {parameter!r}",
            f"it has {listed(list(self.new)[:6])}",
        )


def _ambiguous(weight: Weight) -> ReferenceSetError:
    # they fit about equally well: their order must not depend on rounding
    ways = ", or ".join(sorted([as_text(weight), *weight.rivals[:3]]))
    return ReferenceSetError(f"{weight.name!r} may be {ways}: its numbers do not tell", _AGAINST)


def _is_trained(tensor: TensorProto) -> bool:
    """Return whether a tensor has the dtype of weights, quantized ones too, and more than a few elements."""
    if tensor.data_type in (TensorProto.STRING, TensorProto.BOOL):
        return False
    dtype = dtypes.numpy_dtype(tensor.data_type)
    return np.prod(tensor.dims) > _MASK and (dtypes.is_float(dtype) or dtype.itemsize == 1)
