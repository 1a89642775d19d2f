"""A model's weights against the checkpoint it was exported from, whatever the exporter did to them.

Exporters rename weights, transpose those of a Linear, and fold a BatchNorm into the convolution before it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnxsurgeon_lite import tensors
from onnxsurgeon_lite.comparison import EXACT, Comparison, Tolerance, compare
from onnxsurgeon_lite.errors import ReferenceSetError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.references import ReferenceSet
from onnxsurgeon_lite.tensors import Array

_EPSILONS = (1e-5, 1e-3, 1e-6, 1e-12, 1e-8, 1e-4)
_FOLDED = Tolerance(1e-5, 1e-4, scaled=True)
_RUNNING = "running_var"
_Floats = NDArray[np.float64]
_BATCH_NORM = ("weight", "bias", "running_mean", _RUNNING)


@dataclass
class Weight:
    """An initializer and the parameter that it was.

    Attributes:
        how: `same`, `transposed`, or `folded with X` for what a BatchNorm X was folded into.
    """

    name: str
    parameter: str
    how: str
    comparison: Comparison


@dataclass
class WeightsResult:
    """What holding a model's weights against a checkpoint gave.

    Attributes:
        weights: the initializers that were found. only_model: floats of more than one element that were not.
        only_checkpoint: parameters that no initializer comes from.
    """

    weights: list[Weight] = field(default_factory=list)
    only_model: list[str] = field(default_factory=list)
    only_checkpoint: list[str] = field(default_factory=list)

    @property
    def match(self) -> bool:
        """Whether every weight that was found is what it was."""
        return all(weight.comparison.match for weight in self.weights)


def compare_weights(
    index: GraphIndex,
    checkpoint: ReferenceSet,
    tolerance: Tolerance | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> WeightsResult:
    """Find each initializer's parameter by name, content or place, and compare; one tensor in memory at a time.

    Args:
        tolerance: None wants copies to be equal, and what was folded or cast within the dtype's own.

    Raises:
        ReferenceSetError: the checkpoint has nothing of the model.
    """
    return _Search(index, checkpoint, tolerance, progress).run()


class _Search:
    def __init__(
        self,
        index: GraphIndex,
        checkpoint: ReferenceSet,
        tolerance: Tolerance | None,
        progress: Callable[[str], None],
    ) -> None:
        self.index, self.checkpoint, self.tolerance = index, checkpoint, tolerance
        self.progress = progress
        self.result = WeightsResult()
        self.used: set[str] = set()
        self.prefix = self._prefix()

    def run(self) -> WeightsResult:
        by_content = self._by_content()
        left = []
        for number, (name, tensor) in enumerate(self._floats()):
            self.progress(f"{number} weights compared")
            array = self.index.model.array(tensor)
            same = by_content.get(_digest(array), [])
            parameter = self._closest(name, same)
            if parameter is None or not self._add(name, array, parameter, self._read(parameter)):
                left.append(name)
        for name in left:
            self._by_place(name)
        self.result.weights.sort(
            key=lambda weight: list(self.index.initializers).index(weight.name)
        )
        self.result.only_checkpoint = [
            name
            for name in self.checkpoint
            if name not in self.used and not name.endswith("num_batches_tracked")
        ]
        if not self.result.weights:
            raise ReferenceSetError(
                f"{self.checkpoint.place!r} has no weight of the model",
                "is it the checkpoint that was exported?",
            )
        return self.result

    def _floats(self) -> Iterator[tuple[str, TensorProto]]:
        for name, tensor in self.index.initializers.items():
            if isinstance(tensor, TensorProto) and np.prod(tensor.dims) > 1:
                kind = tensors.dtype_name(tensor.data_type)
                if "float" in kind or kind == "double":
                    yield name, tensor

    def _read(self, parameter: str) -> Array:
        stored = self.checkpoint.read(parameter)
        return stored if isinstance(stored, np.ndarray) else np.empty(0)

    def _by_content(self) -> dict[str, list[str]]:
        """Digest -> the parameters of that content, whatever the order of their elements."""
        found = defaultdict(list)
        for number, name in enumerate(self.checkpoint):
            self.progress(f"{number} parameters read")
            array = self._read(name)
            if array.size > 1 and array.dtype.kind not in "OUS":
                found[_digest(array)].append(name)
        return found

    def _closest(self, name: str, parameters: list[str]) -> str | None:
        """Of parameters of equal content the one that the initializer's name or place means."""
        wanted = [self._parameter(name), *(f"{scope}." for scope in self._scopes(name))]
        fitting = [p for want in wanted for p in parameters if p == want or p.startswith(want)]
        return next(iter([*fitting, *(p for p in parameters if p not in self.used)]), None)

    def _by_place(self, name: str) -> None:
        """What differs from every parameter: by its own name, else the parameter of its module that has its shape."""
        tensor = self.index.initializers[name]
        assert isinstance(tensor, TensorProto)
        array = self.index.model.array(tensor)
        candidates = [self._parameter(name), *self._owned(name)]
        candidates = [p for p in dict.fromkeys(candidates) if p in self.checkpoint]
        for parameter in candidates:
            if self._add_folded(name, array, parameter):
                return
        for parameter in candidates:
            free = parameter not in self.used or parameter == self._parameter(name)
            if free and self._add(name, array, parameter, self._read(parameter)):
                return
        self.result.only_model.append(name)

    def _add(self, name: str, array: Array, parameter: str, stored: Array) -> bool:
        """Compare in the layout that fits; a square weight in the one that agrees."""
        layouts = [("same", stored)] if stored.shape == array.shape else []
        if stored.ndim == 2 and stored.T.shape == array.shape:
            layouts.append(("transposed", stored.T))
        if not layouts:
            return False
        compared = [(how, self._compared(array, other)) for how, other in layouts]
        how, comparison = min(compared, key=lambda pair: (not pair[1].match, -pair[1].cosine))
        self.result.weights.append(Weight(name, parameter, how, comparison))
        self.used.add(parameter)
        return True

    def _compared(self, array: Array, stored: Array) -> Comparison:
        copied = self.tolerance or (EXACT if array.dtype == stored.dtype else None)
        return compare(array, np.ascontiguousarray(stored), copied)

    def _add_folded(self, name: str, array: Array, parameter: str) -> bool:
        """Take the BatchNorm that gives the initializer when it is folded into the parameter, if there is one."""
        for norm in self._batch_norms(array.shape):
            scale, shift, mean, variance = (
                self._read(f"{norm}.{key}").astype(np.float64) for key in _BATCH_NORM
            )
            stored = self._read(parameter).astype(np.float64)
            for epsilon in _EPSILONS:
                factor = scale / np.sqrt(variance + epsilon)
                folded = _folded(stored, factor, mean, shift, array.ndim)
                if folded is None or folded.shape != array.shape:
                    continue
                comparison = compare(array, folded.astype(array.dtype), self.tolerance or _FOLDED)
                if comparison.match:
                    how = f"folded with {norm}"
                    self.result.weights.append(Weight(name, parameter, how, comparison))
                    self.used |= {parameter, *(f"{norm}.{key}" for key in _BATCH_NORM)}
                    return True
        return False

    def _batch_norms(self, shape: tuple[int, ...]) -> list[str]:
        """The BatchNorms of as many channels as the weight has outputs."""
        names = (n.removesuffix(f".{_RUNNING}") for n in self.checkpoint if n.endswith(_RUNNING))
        return [
            name
            for name in names
            if all(f"{name}.{key}" in self.checkpoint for key in _BATCH_NORM)
            and self._read(f"{name}.{_RUNNING}").shape == shape[:1]
        ]

    # --- names ---

    def _prefix(self) -> tuple[str, str]:
        """(what a model's names have in front, what the checkpoint's have) where one of them was wrapped."""
        scopes = {origin.scope for origin in self.index.origins if origin.known and origin.scope}
        owners = {name.rpartition(".")[0] for name in self.checkpoint}
        heads = {f"{name.split('.')[0]}." for name in scopes | owners}
        ways = [("", ""), *((head, "") for head in heads), *(("", head) for head in heads)]
        return max(
            ways, key=lambda way: (len({_moved(s, way) for s in scopes} & owners), way == ("", ""))
        )

    def _parameter(self, name: str) -> str:
        return _moved(name, self.prefix)

    def _scopes(self, name: str) -> list[str]:
        users = self.index.consumers.get(name, ())
        return [_moved(self.index.origins[user].scope, self.prefix) for user in users]

    def _owned(self, name: str) -> list[str]:
        """The parameters of the modules whose nodes use an initializer, and of those beside them."""
        scopes = self._scopes(name)
        beside = [scope.rpartition(".")[0] for scope in scopes]
        own = [p for p in self.checkpoint if p.rpartition(".")[0] in scopes]
        return own + [
            p for p in self.checkpoint if p.rpartition(".")[0].rpartition(".")[0] in beside
        ]


def _folded(
    stored: _Floats, factor: _Floats, mean: _Floats, shift: _Floats, rank: int
) -> _Floats | None:
    """What a BatchNorm makes of a weight, or of the bias beside it."""
    if rank > 1:
        return None if stored.ndim != rank else stored * factor.reshape(-1, *[1] * (rank - 1))
    bias = stored if stored.shape == mean.shape else np.zeros_like(mean)
    return np.asarray((bias - mean) * factor + shift)


def _moved(name: str, way: tuple[str, str]) -> str:
    drop, put = way
    return f"{put}{name.removeprefix(drop)}" if name.startswith(drop) else name


def _digest(array: Array) -> str:
    return tensors.unordered_digest(
        np.ascontiguousarray(array).tobytes(), tensors.data_type_of_numpy(array.dtype)
    )
