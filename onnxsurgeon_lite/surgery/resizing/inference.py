"""Infer the sizes of one node's outputs: ONNX's shape inference, once for each trial.

Small tensors that are known at every trial (constants, and results computed from shapes) are evaluated too, so that a
shape that the model computes is as good as a constant one.
"""

import math
import pickle
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper

from onnxsurgeon_lite.graph import RejectedError, dims_of, fixed_shape, native, sizes_in
from onnxsurgeon_lite.model import copied, integer, is_standard, walk
from onnxsurgeon_lite.surgery.resizing.sizes import Axis, Size, in_range, varies
from onnxsurgeon_lite.surgery.shape_values import is_known, shape_values
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

MOST_ELEMENTS = 1024
"""Tensors with more elements are not evaluated."""
_BOUNDED = frozenset((
    "Add", "Cast", "Concat", "Constant", "Div", "Equal", "Gather", "Identity", "Mul", "ReduceProd", "Reshape", "Shape",
    "Size", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where",
))  # fmt: skip
"""Operators of small tensors that make no large ones."""
_CHANNELS = {
    "Conv": (1, 1),
    "ConvTranspose": (1, 0),
    "BatchNormalization": (1, 0),
    "InstanceNormalization": (1, 0),
    "LSTM": (2, 2),
    "GRU": (2, 2),
    "RNN": (2, 2),
}
"""Operator -> (axis of its input, axis of its weight) that must have one size: ONNX's inference does not tell."""


@dataclass(frozen=True)
class State:
    """The knowledge about a value.

    Attributes:
        types: the type at each trial.
        axes: the factors of each axis; None for an axis of unknown size, and for unknown rank.
        data: the numbers at each trial, if they are few and known.
        follows: it depends on something that differs between trials.
    """

    types: tuple[TypeProto, ...]
    axes: tuple[Axis | None, ...] | None = None
    data: tuple[Array, ...] | None = None
    follows: bool = False

    def sizes(self) -> list[Size | None] | None:
        return None if self.axes is None else list(self.shape or ())

    @cached_property
    def shape(self) -> list[Size | None] | None:
        """The sizes in the types, even if the factors of the axes are unknown; do not change it."""
        return sizes_of(self.types)

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for equal states."""
        types = tuple(kind.SerializeToString(deterministic=True) for kind in self.types)
        arrays = () if self.data is None else self.data
        data = tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays)
        return types, self.axes, data, self.data is None, self.follows


_Reads = Mapping[str, State]


class InferenceFailed(Exception):
    """The node rejects its inputs at the trial with this number.

    Attributes:
        weight: what a weight needs, which is never made larger; '' if another operand may be.
    """

    def __init__(self, trial: int, message: str, weight: str = "") -> None:
        super().__init__(message)
        self.trial, self.weight = trial, weight


def sizes_of(types: Sequence[TypeProto]) -> list[Size | None] | None:
    """Return the sizes of a tensor's axes over the trials: None for an unknown size, and for unknown rank."""
    shapes = [shape for kind in types if (shape := sizes_in(kind)) is not None]
    # a rank that is unknown, or another one at another trial
    if len(shapes) < len(types) or len(set(map(len, shapes))) > 1:
        return None
    columns = zip(*shapes, strict=True)  # one column for each axis, with a number for each trial
    return [None if None in column else tuple(n or 0 for n in column) for column in columns]


def tensor_state(
    data_type: int, sizes: Sequence[Size], trials: int, data: tuple[Array, ...] | None = None
) -> State:
    """Return the state of a tensor of known sizes."""
    types = tuple(
        helper.make_tensor_type_proto(data_type, [in_range(size[trial]) for size in sizes])
        for trial in range(trials)
    )
    return State(types, tuple((size,) for size in sizes), data, any(map(varies, sizes)))


def node_key(node: NodeProto, reads: tuple[Hashable, ...]) -> Hashable:
    """Return a key that is equal for nodes which make the same of the same inputs, given keys of what they read."""
    attributes = [attribute.SerializeToString() for attribute in node.attribute]
    if attributes and walk.bodies(node):
        return object()  # which captures values: it is equal to none
    made = tuple(map(bool, node.output[:]))  # which outputs are there, not their names
    return node.op_type, node.domain, node.overload, tuple(attributes), reads, made


def _states_work(header: bytes, trials: int, node: NodeProto, many: list[_Reads]) -> bytes:
    """Infer a node's states for each of several inputs, in the process of ONNX's own code."""
    inference = SizeInference(ModelProto.FromString(header), trials)
    return pickle.dumps([inference.tried(node, reads) for reads in many])


class SizeInference:
    """Shape inference on single nodes of one model."""

    def __init__(self, model: ModelProto, trials: int) -> None:
        self.trials = trials
        # opset imports and functions, to which each node is added
        self.header = ModelProto(ir_version=10, opset_import=model.opset_import)
        self.header.functions.extend(model.functions)
        # node and inputs -> states; None: the node rejects them
        self.known = dict[Hashable, list[State] | None]()

    def states(self, node: NodeProto, reads: _Reads) -> list[State]:
        """Return the states of the node's outputs; equal nodes with equal inputs are inferred once."""
        (found,) = self.states_at(node, [reads])
        # raises the error of the node
        return self._states(node, reads) if found is None else list(found)

    def states_at(self, node: NodeProto, many: Sequence[_Reads]) -> Iterable[list[State] | None]:
        """Return the states for each of several inputs, None where the node rejects them; all are asked for at once."""
        known = ((r[n].key if n in r else n == "" for n in node.input[:]) for r in many)
        keys = [node_key(node, tuple(key)) for key in known]
        # in one round trip to the process
        new = {k: r for k, r in zip(keys, many, strict=True) if k not in self.known}
        if new:
            made = pickle.loads(
                native.apart(
                    "type inference",
                    _states_work,
                    self.header.SerializeToString(),
                    self.trials,
                    node,
                    list(new.values()),
                )
            )
            self.known.update(zip(new, made, strict=True))
        return map(self.known.__getitem__, keys)

    def tried(self, node: NodeProto, reads: _Reads) -> list[State] | None:
        with suppress(InferenceFailed):
            return self._states(node, reads)
        return None

    def _states(self, node: NodeProto, reads: _Reads) -> list[State]:
        follows = any(state.follows for state in reads.values())
        # if nothing differs between the trials, one is enough
        trials = range(self.trials if follows else 1)
        bounded = node.op_type in _BOUNDED  # what has these numbers needs no inference
        evaluated = [self._evaluate(node, reads, trial) if bounded else None for trial in trials]
        inferred: list[dict[str, TypeProto]] = [{}]
        if None in evaluated:  # inference, and then evaluation where the results are small
            inferred = [self._infer(node, reads, trial) for trial in trials]
            evaluated = [
                self._evaluate(node, reads, trial) if _is_small(types.values()) else None
                for trial, types in zip(trials, inferred, strict=True)
            ]
        states = []
        for slot, name in enumerate(node.output):
            types = tuple(at.get(name, TypeProto()) for at in inferred)
            data = tuple(numbers[slot] for numbers in evaluated if numbers is not None)
            whole = len(data) == len(trials) and bool(name)  # known at every trial
            if whole:
                kinds = (dtypes.data_type_of_numpy(array.dtype) for array in data)
                types = tuple(map(helper.make_tensor_type_proto, kinds, (a.shape for a in data)))
            repeat = self.trials // len(trials)  # one trial stands for all of them
            states.append(_with_axes(types * repeat, data * repeat if whole else None, reads))
        return [replace(state, follows=follows) for state in states]

    def _part(self, node: NodeProto, reads: _Reads, trial: int) -> ModelProto:
        part = copied(self.header)
        # a model of one node: known numbers are initializers, everything else inputs
        part.graph.name = "node"
        part.graph.node.append(node)
        for name, state in reads.items():
            if state.data is not None:
                part.graph.initializer.append(dtypes.from_array(state.data[trial], name))
            else:
                part.graph.input.add(name=name, type=state.types[trial])
        return part

    def _infer(self, node: NodeProto, reads: _Reads, trial: int) -> dict[str, TypeProto]:
        part = self._part(node, reads, trial)
        vectors = [v.type for v in part.graph.input if len(dims_of(v.type)) == 1]
        try:  # propagating data makes a dimension of every element of a vector
            inferred = native.infer(part, strict=True, data_prop=_is_small(vectors))
        except RejectedError as error:
            raise InferenceFailed(trial, str(error)) from error
        # ONNX's inference accepts a weight with other channels
        if weight := _misfit(
            node, [reads[name].types[trial] for name in node.input[:2] if name in reads]
        ):
            raise InferenceFailed(trial, weight, weight)
        return {info.name: info.type for info in inferred.value_info}

    def _evaluate(self, node: NodeProto, reads: _Reads, trial: int) -> Sequence[Array] | None:
        """Return the numbers of the outputs; None if they are unknown or many."""
        if not is_standard(node) or not node.input:
            return None
        if (moved := _moved(node, reads, trial)) is not None:
            return [moved]
        if any(state.data is None for state in reads.values()):
            return None
        part = self._part(node, reads, trial)
        for name in node.output:
            part.graph.output.add(name=name)
        try:
            results = native.evaluated(part, MOST_ELEMENTS)
        except RejectedError:  # unknown numbers are acceptable
            return None
        return None if results is None else list(map(dtypes.to_array, results.initializer))


def _misfit(node: NodeProto, kinds: Sequence[TypeProto]) -> str:
    """Return what a weight needs of an input that has other channels; '' if it has those, or that is not known."""
    axes = _CHANNELS.get(node.op_type) if is_standard(node) else None
    if axes is None or len(kinds) < 2:
        return ""
    given, weight = (_size(kind, axis) for kind, axis in zip(kinds, axes, strict=True))
    groups = integer(node, "group", 1)
    # the weight of a grouped Conv has the channels of one group
    needed = weight * groups if weight and node.op_type == "Conv" else weight
    if not given or not needed or given == needed:
        return ""
    return f"its weight {node.input[1]!r} needs {needed} in axis {axes[0]} of {node.input[0]!r}"


def _size(kind: TypeProto, axis: int) -> int:
    """Return the size of an axis; 0 if it is not known."""
    dims = dims_of(kind)
    return int(dims[axis].dim_value) if axis < len(dims) else 0


def _is_small(kinds: Iterable[TypeProto]) -> bool:
    """Return whether none of these types is known to have many elements."""
    sizes = (sizes_of([kind]) for kind in kinds)
    counts = (math.prod(size[0] for size in known if size) for known in sizes if known)
    return all(count <= MOST_ELEMENTS for count in counts)


def _moved(node: NodeProto, reads: _Reads, trial: int) -> Array | None:
    """Return the numbers of a shape, or of whole numbers in a list that are only moved: that needs no evaluator."""
    first = reads.get(node.input[0])
    kind = None if first is None else first.types[trial]
    if node.op_type == "Size":
        shape = fixed_shape(kind)
        return None if shape is None else np.array(np.prod(shape, dtype=np.int64))
    arrays = {name: state.data[trial] for name, state in reads.items() if state.data is not None}
    # lists of integers, and scalars
    if any(array.ndim > 1 or array.dtype.kind != "i" for array in arrays.values()):
        return None
    elements = {name: array.astype(object) for name, array in arrays.items()}
    found = shape_values(node, elements.get, kind)
    if found is None or not is_known(found):
        return None
    # Shape and Cast make int64, the others keep the dtype of their input
    made = node.op_type in ("Shape", "Cast")
    return found.astype(np.int64 if made else arrays[node.input[0]].dtype)


def _with_axes(
    types: tuple[TypeProto, ...], data: tuple[Array, ...] | None, reads: _Reads
) -> State:
    """Return a state whose axes take the factors of input axes with the same size."""
    sizes = sizes_of(types)
    if sizes is None:
        return State(types, None, data)
    # an axis with the size of an input's axis is taken to be that axis, whose factors are known
    factored = dict(_factored(reads))
    axes = tuple(None if size is None else factored.get(size, (size,)) for size in sizes)
    return State(types, axes, data)


def _factored(reads: _Reads) -> Iterator[tuple[Size, Axis]]:
    for state in reads.values():
        for size, axis in zip(state.sizes() or (), state.axes or (), strict=True):
            if size is not None and axis is not None and len(axis) > 1 and varies(size):
                # only sizes that change, and have several factors, tell more than the size
                yield size, axis
