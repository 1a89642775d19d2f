"""Replace weights by similar noise, so that a model can be shown to others, and restore them later."""

import contextlib
import functools
import math
import os
from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Container,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto

from onnxsurgeon_lite.errors import ModelFileError, UsageError
from onnxsurgeon_lite.model import DataFile, Model, Written, movable, save, walk
from onnxsurgeon_lite.model.messages import copied, take_fields
from onnxsurgeon_lite.model.model import is_external, refer
from onnxsurgeon_lite.model.saving import save_settled
from onnxsurgeon_lite.model.storage.listing import Fingerprint, contents, fingerprint, named_tensors
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.shown import Shown
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

MARK = "onnxsurgeon_lite.stripped"
"""Metadata of a stripped tensor: the fingerprint of its original contents."""

_SPARED = 10  # elements: scales, shapes and other small tensors have at most so many
_BLOCK = 1 << 16  # elements at a time: they stay in the cache
_DRAWN = 1 << 16  # distinct random numbers per tensor
_RUN = 61  # of them that a large tensor repeats in one go: so few that no row of a matrix is another one
# of float, half, double, bfloat16, float8, float4
_FLOATS = frozenset((1, 10, 11, 16, 17, 18, 19, 20, 23, 24))
_QUANTIZED = frozenset((2, 3, 21, 22, 25, 26))  # of at most 8 bits: shapes and indices are wider
_BIASES = {"DequantizeLinear": (0,), "QLinearConv": (8,)}  # slots of quantized biases, of int32
_PARAMETERS = {  # slots of weights, which are weights however small they are
    "Add": (0, 1), "Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (0, 1), "PRelu": (1,),
    "BatchNormalization": (1, 2, 3, 4), "InstanceNormalization": (1, 2), "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2), "LSTM": (1, 2, 3, 7), "GRU": (1, 2, 3), "RNN": (1, 2, 3),
}  # fmt: skip
_PAYLOAD = (
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data",
    "external_data", "data_location",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Stripped(Shown):
    """The written files, and the number of tensors that changed.

    Attributes:
        kept: names of large tensors, of integers for example, that keep their contents.
        removed: what else was removed, a line for each kind.
    """

    written: Written
    changed: int
    kept: tuple[str, ...]
    removed: tuple[str, ...]


def strip(
    model: Model,
    path: Path,
    seed: int = 0,
    keep_sources: bool = False,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> Stripped:
    """Write a model whose weights are noise with the mean, deviation and range of the originals.

    Weights are float tensors, lists and quantized tensors of more than a few elements, in attributes too, and smaller
    ones of more than one number that an operator takes as weights. Other
    integers, booleans and strings stay, because shapes, indices and axes carry meaning; `kept` lists the large ones.

    Args:
        keep_sources: keep documentation, metadata, training info and unknown fields.

    Raises:
        SourceChangedError: a file changed after the load.
    """
    result = model.copy()
    removed = [] if keep_sources else remove_sources(result.proto)
    biases = _read_at(model.proto, _BIASES)  # quantized biases have 32 bits, as indices have
    small = biases | _read_at(model.proto, _PARAMETERS)
    kept = (n for n, t in named_tensors(model.proto) if is_external(t) and _is_kept(t, biases))
    weights = {
        number: tensor
        for number, tensor in enumerate(walk.tensors(result.proto))
        # a parameter of an operator is a weight from two numbers on
        if math.prod(tensor.dims) > (1 if tensor.name in small else _SPARED)
        and not _is_kept(tensor, biases)
    }
    location = "noise" if movable(model) else None  # external data stays external
    # one virtual file for all of them, each at its offset
    noise = _Noise(path / "noise", location, 0, 0, 0)
    start = 0
    with _surveys(model, {} if dry_run else weights) as surveys:
        for number, tensor in weights.items():
            # made when it is written, not now
            make = functools.partial(_noise, surveys[number], copied(tensor), (seed, number))
            if is_external(tensor):
                size = dtypes.byte_count(tensor.data_type, tensor.dims)
                noise.made[start] = make
                refer(tensor, noise.key, start, size)
                start += size
            else:
                _fill(tensor, TensorProto(raw_data=b"".join(make())))
        changed = len(weights) + _strip_lists(model, result, seed)
        result.files[noise.key] = replace(noise, size=start)
        mark = functools.partial(_mark, surveys)
        external = movable(result)
        if not external:  # the marks come before the data
            mark(result.proto)
        settle = mark if external else lambda _: None
        written = save_settled(result, path, external, settle, force=force, dry_run=dry_run)
    return Stripped(written, changed, tuple(kept), tuple(removed))


def _strip_lists(model: Model, result: Model, seed: int) -> int:
    """Replace the long lists of floats of a result by noise; return how many there are."""
    lists = list(_float_lists(result.proto))
    for number, (holder, floats) in enumerate(lists):
        survey = _survey(model, _as_tensor(floats))
        made = survey.noise(_as_tensor(floats), (seed, 1, number))
        floats.floats[:] = np.frombuffer(b"".join(made), np.float32).tolist()
        key = f"{MARK}.{floats.name}"
        holder.metadata_props.add(key=key, value=survey.fingerprint)
    return len(lists)


def _mark(surveys: "Mapping[int, Future[_Survey]]", proto: ModelProto) -> None:
    """Note at each tensor that was surveyed, by its number, what it held."""
    for number, tensor in enumerate(walk.tensors(proto)):
        if number in surveys:
            tensor.metadata_props.add(key=MARK, value=surveys[number].result().fingerprint)


def _noise(survey: "Future[_Survey]", tensor: TensorProto, seed: Sequence[int]) -> Iterator[bytes]:
    """Yield the noise of a tensor, once it is surveyed."""
    yield from survey.result().noise(tensor, seed)


def _float_lists(proto: ModelProto) -> Iterator[tuple[NodeProto | FunctionProto, AttributeProto]]:
    """Yield the attributes that are long lists of floats, and the nodes or functions that have them."""
    for node in walk.nodes(walk.holders(proto)):
        yield from ((node, a) for a in node.attribute if len(a.floats) > _SPARED)
    for function in proto.functions:
        yield from ((function, a) for a in function.attribute_proto if len(a.floats) > _SPARED)


def _as_tensor(floats: AttributeProto) -> TensorProto:
    return dtypes.from_array(np.array(floats.floats, np.float32))


def _read_at(proto: ModelProto, slots: Mapping[str, Collection[int]]) -> set[str]:
    """Return the values that nodes read at these slots of their operators."""
    found = set[str]()
    for node in walk.nodes(walk.graphs(proto)):
        read = slots.get(node.op_type, ())
        found.update(name for slot, name in enumerate(node.input) if slot in read)
    return found


def _is_kept(tensor: TensorProto, biases: Container[str]) -> bool:
    bias = tensor.data_type == TensorProto.INT32 and tensor.name in biases
    return not bias and tensor.data_type not in _FLOATS | _QUANTIZED


def unstrip(
    stripped: Model, original: Model, path: Path, *, force: bool = False, dry_run: bool = False
) -> Written:
    """Write a stripped model, edited or not, with the weights of the original.

    Weights are found by the fingerprint that stripping left, so renamed tensors are found too.

    Raises:
        UsageError: the model is not stripped, or the original lacks a tensor.
    """
    result = stripped.copy()
    result.files.update(original.files)  # the original's files are read where weights go back
    weights = _OriginalWeights(original)
    restored = 0
    for tensor in walk.tensors(result.proto):
        marks = [entry for entry in tensor.metadata_props if entry.key == MARK]
        for mark in marks:
            # the fingerprint says which tensor of the original it is
            _fill(tensor, weights.find(tensor, mark.value))
            tensor.metadata_props.remove(mark)
            restored += 1
    for holder, floats in _float_lists(result.proto):
        key = f"{MARK}.{floats.name}"
        for mark in [entry for entry in holder.metadata_props if entry.key == key]:
            tensor = weights.find(_as_tensor(floats), mark.value)
            floats.floats[:] = original.array(tensor).tolist()
            holder.metadata_props.remove(mark)
            restored += 1
    if not restored:
        raise UsageError(
            f"{str(stripped.path)!r} has no stripped weights",
            "give the stripped model first, then the original",
        )
    return save(result, path, movable(result), force=force, dry_run=dry_run)


class _OriginalWeights:
    """The tensors of the original by content; tensors of a dtype and shape are read when first looked up."""

    def __init__(self, original: Model) -> None:
        self.original = original
        self.known = dict[Hashable, dict[str, TensorProto]]()
        lists = (_as_tensor(floats) for _, floats in _float_lists(original.proto))
        # equal tensors have one fingerprint: any of them will do
        tensors = (*walk.tensors(original.proto), *lists)
        self.by_kind = groups((_kind(tensor), tensor) for tensor in tensors)

    def find(self, stripped: TensorProto, original: str) -> TensorProto:
        kind = _kind(stripped)
        if kind not in self.known:
            self.known[kind] = {fingerprint(self.original, t): t for t in self.by_kind[kind]}
        if original not in self.known[kind]:
            raise UsageError(
                f"{str(self.original.path)!r} does not hold the original of {stripped.name!r}",
                "is it the model that was stripped?",
            )
        return self.known[kind][original]


def _kind(tensor: TensorProto) -> Hashable:
    return (tensor.data_type, *tensor.dims)


def _fill(tensor: TensorProto, source: TensorProto) -> None:
    """Copy another tensor's payload into a tensor."""
    for name in _PAYLOAD:
        tensor.ClearField(name)
    take_fields(tensor, source, _PAYLOAD)


@dataclass
class _Survey:
    """A tensor's fingerprint, and the mean, deviation and range of its finite elements."""

    fingerprint: str
    mean: float = 0.0
    deviation: float = 0.0
    low: float = 0.0
    high: float = 0.0

    def noise(self, tensor: TensorProto, seed: Sequence[int]) -> Iterator[bytes]:
        """Yield raw bytes of noise with the same statistics, in blocks; large tensors repeat runs of it at random."""
        rng = np.random.default_rng(seed)
        left = math.prod(tensor.dims)
        # nothing outside the range of the original
        drawn = self._draw(rng, min(left, _DRAWN)).clip(self.low, self.high)
        drawn = drawn if tensor.data_type in _FLOATS else drawn.round()
        numbers = drawn.astype(dtypes.numpy_dtype(tensor.data_type))
        if left <= _DRAWN:
            yield bytes(dtypes.payload(numbers))
            return
        # large tensors: random runs of the drawn numbers, which is many times as fast
        runs = np.lib.stride_tricks.sliding_window_view(numbers, _RUN)
        while left:
            count = min(left, _BLOCK)
            starts = rng.integers(len(runs), size=-(-count // _RUN))
            yield bytes(dtypes.payload(runs[starts].reshape(-1)[:count]))
            left -= count

    def _draw(self, rng: "np.random.Generator", count: int) -> NDArray[np.floating]:
        # room on the narrower side: enough for a normal distribution?
        room = min(self.high - self.mean, self.mean - self.low)
        if room > 3 * self.deviation or not self.deviation:
            normal = rng.standard_normal(count, np.float32)
            return self.mean + normal * self.deviation
        # else a beta distribution of the same mean and deviation within the range
        width = self.high - self.low
        mean = (self.mean - self.low) / width
        weight = max(mean * (1 - mean) * (width / self.deviation) ** 2 - 1, 1e-3)
        return self.low + width * rng.beta(mean * weight, (1 - mean) * weight, count)


@dataclass
class _Checksums:
    """What the finite elements of a tensor add up to, relative to a number near their mean.

    Numbers of up to 32 bits are added in float32, in pairs: that is exact enough for noise, and ten times as fast.
    """

    near: float | None = None
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, array: Array) -> None:
        is_short = array.dtype.itemsize <= 2 or array.dtype == np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(array.astype(np.float32 if is_short else np.float64, copy=False))

    def _add(self, numbers: NDArray[np.floating]) -> None:
        # sums relative to a number near the mean lose no digits
        near = float(numbers.mean()) if self.near is None else self.near
        centered = numbers - numbers.dtype.type(near)
        total = float(centered.sum())
        squares = float(np.square(centered, out=centered).sum())
        # Inf, NaN, or an overflow: the finite elements alone, in float64
        if not math.isfinite(squares):
            finite = numbers[np.isfinite(numbers)].astype(np.float64)
            if finite.size and (finite.size < numbers.size or numbers.dtype != np.float64):
                self._add(finite)
            return
        if numbers.size:
            self.near = near
            self.count += numbers.size
            self.total += total
            self.squares += squares
            self.low = min(self.low, float(numbers.min()))
            self.high = max(self.high, float(numbers.max()))

    def survey(self, fingerprint: str) -> _Survey:
        if self.near is None:  # no finite element
            return _Survey(fingerprint)
        off = self.total / self.count
        deviation = math.sqrt(max(self.squares / self.count - off * off, 0.0))
        return _Survey(fingerprint, self.near + off, deviation, self.low, self.high)


@dataclass(frozen=True)
class _Noise(DataFile):
    """A file that is never written: its bytes are made where they are copied.

    Attributes:
        made: what makes the bytes of a tensor, by its offset.
    """

    made: dict[int, Callable[[], Iterator[bytes]]] = field(default_factory=dict, compare=False)

    @property
    def is_verbatim(self) -> bool:
        return False

    def verify(self) -> None:
        """Do nothing: nobody can change it."""

    def blocks(self, offset: int, length: int, block: int = 0) -> Iterator[bytes]:
        """Make the bytes of whole tensors."""
        end = offset + length
        while offset < end:  # tensors follow one another, each made whole
            for data in self.made[offset]():
                yield data
                offset += len(data)


@contextlib.contextmanager
def _surveys(
    model: Model, tensors: Mapping[int, TensorProto]
) -> "Iterator[Mapping[int, Future[_Survey]]]":
    """Yield the surveys of tensors, several made at once: hashing and adding let other threads run."""
    none: Future[_Survey] = Future()  # where nothing is surveyed (dry run), an empty survey
    none.set_result(_Survey("0" * 32))
    found = defaultdict[int, "Future[_Survey]"](lambda: none)
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        # tensors in memory first: those on disk take longer
        for number, tensor in sorted(tensors.items(), key=lambda item: is_external(item[1])):
            own = copied(tensor) if is_external(tensor) else tensor
            found[number] = pool.submit(_survey, model, own)
        yield found
    finally:
        pool.shutdown(cancel_futures=True)


def _survey(model: Model, tensor: TensorProto) -> _Survey:
    digest = Fingerprint()
    sums = _Checksums()
    left = math.prod(tensor.dims)
    for block in contents(model, tensor):
        digest.update(block)
        # whole bytes may hold more elements than are left, for packed dtypes
        size = min(left, 8 * len(block) // dtypes.byte_count(tensor.data_type, [8]))
        left -= size
        array = dtypes.decode(tensor.data_type, [size], block)
        for start in range(0, size, _BLOCK):
            sums.add(array[start : start + _BLOCK])
    if left:
        raise ModelFileError(
            f"tensor {tensor.name!r} of shape {list(tensor.dims)[:70]} lacks {left} of its elements"
        )
    return sums.survey(digest.text())


def remove_sources(proto: ModelProto) -> list[str]:
    """Remove, in place, everything that does not change what the model computes; return a line for each kind."""
    counts = Counter[str]()
    if proto.training_info:
        counts["training info"] = len(proto.training_info)
        del proto.training_info[:]
    size = proto.ByteSize()  # how many bytes they had, from the difference
    proto.DiscardUnknownFields()
    counts["bytes of unknown fields"] = size - proto.ByteSize()
    for message in _messages(proto):
        present = {kind.name: value for kind, value in message.ListFields()}
        counts["doc strings"] += "doc_string" in present
        counts.update(f"metadata {entry.key!r}" for entry in present.get("metadata_props", ()))
        for name in present.keys() & {"doc_string", "metadata_props"}:
            message.ClearField(name)
    return [f"removed {kind}: {count}" for kind, count in counts.items() if count]


def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and those in it, types excluded, which have no documentation."""
    yield message
    for kind, value in message.ListFields():
        if kind.message_type is not None and kind.name != "type":  # types hold no text of people
            for inner in value if kind.is_repeated else [value]:
                yield from _messages(inner)
