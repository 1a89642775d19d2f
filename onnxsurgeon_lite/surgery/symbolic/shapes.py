"""Infer the types of every value, with sizes in the symbols of the inputs.

ONNX's own inference reads the whole graph once. Where it loses a size (`unk__40`), it is asked again for that node
alone, with numbers for the symbols, and `Expressions` says which expression they fit. Shapes that the model computes
are evaluated on the way; no weight is read.
"""

from collections.abc import Sequence, Set
from functools import lru_cache
from math import prod

from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto

from onnxsurgeon_lite.graph import native
from onnxsurgeon_lite.graph.index import GraphIndex, has_shape, tensor_type
from onnxsurgeon_lite.graph.native import RejectedError
from onnxsurgeon_lite.graph.schemas import constant_of
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.model.messages import copied
from onnxsurgeon_lite.model.model import is_external
from onnxsurgeon_lite.surgery.resizing.inference import (
    MOST_ELEMENTS,
    Inference,
    InferenceFailed,
    State,
)
from onnxsurgeon_lite.surgery.resizing.sizes import Size
from onnxsurgeon_lite.surgery.symbolic.expressions import FEWEST, TRIALS, Expressions
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

Types = dict[str, TypeProto]
_UNKNOWN = "unk__"  # how ONNX's inference names a size that it does not know
_NUMBERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT)


def infer_types(index: GraphIndex, outer: Expressions | None = None) -> tuple[Types, Expressions]:
    """Infer the type of every value that a node of the main graph makes.

    Declared types are read only for inputs and for what operators of other domains make.

    Args:
        outer: what is known where a body's captured values come from.

    Returns:
        (types, the expressions in them).

    Raises:
        GraphError: the graph has a cycle, or a function calls itself.
    """
    index.require_sound()
    encoded = _undeclared(index)
    types, expressions = _types(encoded), outer or Expressions()
    if not all(_is_complete(types.get(name)) for name in (*index.producer, *index.inputs)):
        types, expressions = _inferred(encoded) if outer is None else _completed(encoded, outer)
    found = {name: kind for name, kind in types.items() if name in index.producer}
    return found, expressions.copy()


def onnx_types(index: GraphIndex) -> Types:
    """Infer types as ONNX does: every size in them is exact. To read, not to change."""
    return _types(_undeclared(index))


def _undeclared(index: GraphIndex) -> bytes:
    """Serialize the structure without the types that inference is to find."""
    part = copied(index.model.structure())
    foreign = {
        name for node in index.nodes if node.domain not in ("", "ai.onnx") for name in node.output
    }
    kept = [info for info in part.graph.value_info if info.name in foreign]
    del part.graph.value_info[:]
    part.graph.value_info.extend(kept)
    for info in part.graph.output:
        if info.name not in foreign:
            info.ClearField("type")
    return bytes(part.SerializeToString(deterministic=True))


@lru_cache(maxsize=1)  # several steps of an edit ask for the same
def _types(encoded: bytes) -> Types:
    try:
        graph = native.infer_encoded(encoded, data_prop=True)
    except RejectedError:
        return {}
    infos = (*graph.input, *graph.value_info, *graph.output)
    return {info.name: info.type for info in infos if info.HasField("type")}


@lru_cache(maxsize=1)
def _inferred(encoded: bytes) -> tuple[Types, Expressions]:
    return _completed(encoded, Expressions())


def _completed(encoded: bytes, expressions: Expressions) -> tuple[Types, Expressions]:
    """Infer types; resolve unknown sizes, from the start again where the model refuses some of the numbers."""
    types = _types(encoded)
    index = GraphIndex.of(Model(ModelProto.FromString(encoded)))
    inference = Inference(index.model.proto, 1)
    start = expressions.copy()
    while True:
        found = {name: copied(kind) for name, kind in types.items()}
        attempt = _Resolving(index, found, start.copy(), inference)
        attempt.run()
        if attempt.expressions.live == start.live:
            return attempt.types, attempt.expressions
        start.live = attempt.expressions.live


class _Resolving:
    """Replaces, in place, the sizes that ONNX's inference does not know."""

    def __init__(
        self, index: GraphIndex, types: Types, expressions: Expressions, inference: Inference
    ) -> None:
        self.index = index
        self.types = types
        self.expressions = expressions
        self.inference = inference
        self.names: dict[str, int | str] = {}  # of onnx's unknown sizes
        self.data: dict[str, dict[int, Array]] = {}  # value -> trial -> its numbers
        self.initializers = {
            tensor.name: tensor for tensor in index.model.structure().graph.initializer
        }
        self.constants: dict[str, State | None] = {}

    def run(self) -> None:
        for name in self.index.inputs:
            self._settle(name, [])
        traced = self._unknown()
        needed = traced | self._shape_makers(traced)
        for position in self.index.order:
            if position in needed:
                self._visit(position, position in traced)
            for name in self.index.nodes[position].output[:]:
                for dim in _dims(self.types.get(name)):
                    if dim.dim_param in self.names:
                        _put(dim, self.names[dim.dim_param])

    def _unknown(self) -> set[int]:
        """Return the nodes where a size appears that ONNX's inference does not know."""
        seen = set(self.names)
        found = set()
        for position in self.index.order:
            for name in filter(None, self.index.nodes[position].output[:]):
                kind = self.types.get(name)
                new = {dim.dim_param for dim in _dims(kind) if is_unknown(dim)} - seen
                if kind is None or not has_shape(kind) or new:
                    found.add(position)
                    seen |= new - {""}
        return found

    def _shape_makers(self, traced: Set[int]) -> set[int]:
        """Return the nodes that compute the small integers which those nodes read."""
        found: set[int] = set()
        pending = list(traced)
        while pending:
            for name in self.index.reads[pending.pop()]:
                position = self.index.producer.get(name, -1)
                if position >= 0 and position not in found and self._is_small(name):
                    found.add(position)
                    pending.append(position)
        return found

    def _is_small(self, name: str) -> bool:
        kind = self.types.get(name)
        if kind is None or not has_shape(kind):
            return True
        return kind.tensor_type.elem_type in _NUMBERS and len(_dims(kind)) <= 1

    def _visit(self, position: int, is_traced: bool) -> None:
        """Infer a node at every trial that is left; trials that it alone refuses are none for the model."""
        live = self.expressions.live
        states = {trial: self._states(position, trial) for trial in live}
        at = [(trial, found) for trial, found in states.items() if found is not None]
        if FEWEST <= len(at) < len(live):
            self.expressions.live = [trial for trial, _ in at]
        elif len(at) < len(live):
            at = []
        for slot, name in enumerate(self.index.nodes[position].output):
            found = {trial: states[slot] for trial, states in at}
            data = {t: state.data[0] for t, state in found.items() if state.data is not None}
            if data and len(data) == len(at):
                self.data[name] = data
            if name and is_traced:
                self._settle(name, [(t, state.types[0]) for t, state in found.items()])

    def _states(self, position: int, trial: int) -> list[State] | None:
        """Return what a node makes at a trial; None if it refuses its inputs."""
        reads = {name: self._state(name, trial) for name in self.index.reads[position]}
        try:
            return self.inference.states(self.index.nodes[position], reads)
        except InferenceFailed:
            return None

    def _state(self, name: str, trial: int) -> State:
        if name not in self.constants:
            self.constants[name] = self._constant(name)
        constant = self.constants[name]
        if constant is not None:
            return constant
        kind = TypeProto()
        kind.CopyFrom(self.types.get(name, kind))
        for dim in _dims(kind):
            if dim.dim_param and not is_unknown(dim):
                _put(dim, self.expressions.size(dim.dim_param)[trial])
        data = self.data.get(name, {}).get(trial)
        return State((kind,), None, None if data is None else (data,))

    def _constant(self, name: str) -> State | None:
        tensor = self.initializers.get(name)
        if tensor is None and name in self.index.producer:
            tensor = constant_of(self.index.nodes[self.index.producer[name]])
        if tensor is None or name in self.index.inputs:
            return None
        few = not is_external(tensor) and prod(tensor.dims) <= MOST_ELEMENTS
        array = dtypes.to_array(tensor) if few else None
        known = array is not None and array.dtype.kind in "iufb"
        return State(
            (tensor_type(tensor),), None, (array,) if array is not None and known else None
        )

    def _settle(self, name: str, at: Sequence[tuple[int, TypeProto]]) -> None:
        """Give a value's unknown sizes the expressions that fit what its node made at the trials."""
        kind = self.types.get(name)
        if (kind is None or not has_shape(kind)) and not self._take_rank(name, at):
            return
        for axis, dim in enumerate(_dims(self.types[name])):
            if dim.dim_param and not is_unknown(dim):
                self.expressions.size(dim.dim_param)
            if not is_unknown(dim):
                continue
            unknown = dim.dim_param
            text = self.names.get(unknown)
            if text is None:
                text = self._text(_size(axis, at), f"{name}_dim{axis}")
            _put(dim, text)
            if unknown:
                self.names[unknown] = text

    def _take_rank(self, name: str, at: Sequence[tuple[int, TypeProto]]) -> bool:
        """Give a value a type with its rank, if its node makes the same at every trial."""
        ranks = {len(_dims(kind)) if has_shape(kind) else -1 for _, kind in at}
        if len(ranks) != 1 or -1 in ranks or not at[0][1].HasField("tensor_type"):
            return False
        self.types[name] = copied(at[0][1])
        for dim in _dims(self.types[name]):
            dim.Clear()
        return True

    def _text(self, size: Size | None, name: str) -> int | str:
        """Return the number or expression of a size, else a new symbol."""
        text = None if size is None else self.expressions.text(size)
        return self.expressions.symbol(name, size) if text is None else text


def _size(axis: int, at: Sequence[tuple[int, TypeProto]]) -> Size | None:
    """Return the size of an axis at the trials; None if one of them does not know it."""
    size = [0] * TRIALS
    for trial, kind in at:
        dims = _dims(kind)
        if axis >= len(dims) or not dims[axis].HasField("dim_value"):
            return None
        size[trial] = dims[axis].dim_value
    return tuple(size) if at else None


def _dims(kind: TypeProto | None) -> Sequence[TensorShapeProto.Dimension]:
    found: Sequence[TensorShapeProto.Dimension] = () if kind is None else kind.tensor_type.shape.dim
    return found


def is_unknown(dim: TensorShapeProto.Dimension) -> bool:
    return not dim.HasField("dim_value") and (
        not dim.dim_param or dim.dim_param.startswith(_UNKNOWN)
    )


def _is_complete(kind: TypeProto | None) -> bool:
    return kind is not None and has_shape(kind) and not any(map(is_unknown, _dims(kind)))


def _put(dim: TensorShapeProto.Dimension, size: int | str) -> None:
    if isinstance(size, int):
        dim.dim_value = size
    else:
        dim.dim_param = size
