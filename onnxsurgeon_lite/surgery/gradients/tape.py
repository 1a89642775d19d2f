"""Write the nodes of a gradient: terms that compute with each other, in the operators of one opset.

Differences between opsets that a rule would meet when it writes nodes stand here, once.
"""

import math
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from onnx import NodeProto, TensorProto, TensorShapeProto, TypeProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import MADE_UP, known_size, tensor_type
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.surgery.resizing.inference import SizeInference
from onnxsurgeon_lite.surgery.resizing.sizes import in_range
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

OLDEST = 16
"""The opset from which on all nodes can be written: ScatterElements and ScatterND add since then."""

Dim = int | str | None  # a size, a name, or unknown
Number = int | float
Attribute = int | float | str | Sequence[int] | TensorProto | None


def _binary(op_type: str, dtype: int = 0) -> "Callable[[Term, Term | Number], Term]":
    """Return the method that writes an operator of two inputs; `dtype`: of its result, where that is another."""

    def written(term: "Term", other: "Term | Number") -> "Term":
        made = term.tape.op(op_type, term, other)
        return made.typed(dtype) if dtype else made

    return written


@dataclass(frozen=True)
class Term:
    """A value that gradients are computed from."""

    tape: "Tape" = field(repr=False, compare=False)
    name: str
    dtype: int

    def typed(self, dtype: int) -> "Term":
        """Return the term, known to have this dtype."""
        return Term(self.tape, self.name, dtype)

    __add__ = _binary("Add")
    __sub__ = _binary("Sub")
    __pow__ = _binary("Pow")
    __matmul__ = _binary("MatMul")
    __gt__ = _binary("Greater", TensorProto.BOOL)
    __lt__ = _binary("Less", TensorProto.BOOL)

    def __radd__(self, other: Number) -> "Term":
        return self + other

    def __rsub__(self, other: Number) -> "Term":
        return self.tape.op("Sub", self.of(other), self)

    def __mul__(self, other: "Term | Number") -> "Term":
        # a product with 1 needs no node
        return self if other == 1 else self.tape.op("Mul", self, other)

    def __rmul__(self, other: Number) -> "Term":
        return self * other

    def __truediv__(self, other: "Term | Number") -> "Term":
        return self if other == 1 else self.tape.op("Div", self, other)

    def __rtruediv__(self, other: Number) -> "Term":
        return self.tape.op("Div", self.of(other), self)

    def __neg__(self) -> "Term":
        return self.tape.op("Neg", self)

    def equals(self, other: "Term | Number") -> "Term":
        """Return where two terms have the same numbers."""
        return self.tape.op("Equal", self, other).typed(TensorProto.BOOL)

    def of(self, number: Number) -> "Term":
        """Return a constant of this term's dtype."""
        return self.tape.number(number, self.dtype)

    def cast(self, dtype: int) -> "Term":
        """Return the term in another dtype."""
        return self if dtype == self.dtype else self.tape.op("Cast", self, to=dtype).typed(dtype)

    def where(self, then: "Term | Number", other: "Term | Number") -> "Term":
        """Return `then` where this condition holds, `other` elsewhere; one of them is a term."""
        like = then if isinstance(then, Term) else other  # numbers get the dtype of the other one
        assert isinstance(like, Term)
        chosen = [like.of(v) if not isinstance(v, Term) else v for v in (then, other)]
        return self.tape.op("Where", self, *chosen).typed(like.dtype)

    def up_to(self) -> "Term":
        """Return the numbers 0, 1, ... that are less than this one."""
        return self.tape.op("Range", self.of(0), self, self.of(1))

    def function(self, op_type: str) -> "Term":
        """Return an operator of one input, applied."""
        return self.tape.op(op_type, self)


Operand = Term | Number | Iterable[int] | None
"""What a node reads: a term, or what becomes a constant."""


@dataclass
class Names:
    """What all scopes of a model share: the names that are taken, and the constants.

    Attributes:
        type_of, array_of: what the model knows of its own values: type, and numbers that never change.
    """

    taken: set[str]
    opset: int
    type_of: Callable[[str], TypeProto | None]
    array_of: Callable[[str], Array | None]
    types: dict[str, TypeProto] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    inference: SizeInference | None = None
    # serialized tensor -> constant; (number, dtype) -> name: every constant is written once
    constants: dict[bytes, TensorProto] = field(default_factory=dict)
    numbers: dict[tuple[Number, int], str] = field(default_factory=dict)
    count: int = 0

    def fresh(self) -> str:
        """Return a name that is new to the model."""
        while True:
            self.count += 1
            name = f"gradient/{self.count}"
            if name not in self.taken:
                return name


@dataclass
class Tape:
    """The nodes of one scope under construction; equal nodes are written once.

    Attributes:
        stage: the node whose gradient is being written; new nodes are named after it.
    """

    names: Names
    stage: str = ""
    nodes: list[NodeProto] = field(default_factory=list)
    # see `add`; with what the scopes around have made
    _known: ChainMap[Hashable, tuple[str, ...]] = field(default_factory=ChainMap)

    @property
    def opset(self) -> int:
        """The model's opset version of the ONNX domain."""
        return self.names.opset

    def type_of(self, name: str) -> TypeProto | None:
        """Return the known type of a value."""
        return self.names.types.get(name) or self.names.type_of(name)

    def array_of(self, name: str) -> Array | None:
        """Return the numbers of a value that never changes, None for others."""
        known = self.names.arrays.get(name)
        return self.names.array_of(name) if known is None else known

    def value(self, name: str) -> Term:
        """Return a value of the model as a term.

        Raises:
            EditError: its dtype is not known.
        """
        kind = self.type_of(name)
        if kind is None or not kind.tensor_type.elem_type:
            raise EditError(
                f"the dtype of {name!r} is not known, and its gradient needs it",
                "declare it: onnxdbg edit set-shape MODEL",
            )
        return Term(self, name, kind.tensor_type.elem_type)

    def shape(self, name: str) -> list[Dim] | None:
        """Return the known dimensions of a value: numbers, names, None; None if the rank is unknown."""
        kind = self.type_of(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        return [_dim(dim) for dim in kind.tensor_type.shape.dim]

    def rank(self, term: Term) -> int:
        """Return the rank of a value of the model.

        Raises:
            EditError: it is not known.
        """
        shape = self.shape(term.name)
        if shape is None:
            raise EditError(
                f"the rank of {term.name!r} is not known, and its gradient needs it",
                "declare the shapes of the inputs: onnxdbg edit set-shape MODEL",
            )
        return len(shape)

    def static(self, term: Term) -> list[int] | None:
        """Return the shape of a value of the model if it is known completely."""
        return known_sizes(self.shape(term.name))

    def dims(self, term: Term) -> Term:
        """Return the shape as a term: a constant where it is known."""
        static = self.static(term)
        return self.integers(static) if static is not None else self.shape_of(term)

    def shape_of(self, term: Term, start: int = 0, end: int | None = None) -> Term:
        """Return the dimensions from `start` to `end`."""
        shape = self.shape(term.name)
        part = None if shape is None else known_sizes(shape[start:end])
        # sizes that are known become a constant, others are read when the model runs
        if part is not None:
            return self.integers(part)
        return self.op("Shape", term, start=start or None, end=end).typed(TensorProto.INT64)

    def dim(self, term: Term, axis: int) -> Term:
        """Return one dimension, as a tensor of one element."""
        place = self.axis(term, axis)
        return self.shape_of(term, place, place + 1)

    def axis(self, term: Term, axis: int) -> int:
        """Return an axis of a value, not negative.

        Raises:
            EditError: it has no axes.
        """
        rank = self.rank(term)
        if not rank:
            raise EditError(f"{term.name!r} has no axes", "check the model: onnxdbg check MODEL")
        return axis % rank  # -1 is the last one

    def array(self, array: Array) -> Term:
        """Return a constant."""
        term = self.tensor(dtypes.from_array(array))
        self.names.arrays[term.name] = array
        return term

    def tensor(self, tensor: TensorProto) -> Term:
        """Return a constant; one that is in a file stays there."""
        # equal tensors are one constant, whatever their names: the key is the tensor without its name
        nameless = copied(tensor)
        nameless.ClearField("name")
        key = nameless.SerializeToString(deterministic=True)
        if key not in self.names.constants:
            nameless.name = self.names.fresh()
            self.names.constants[key] = nameless
            self.names.types[nameless.name] = tensor_type(tensor)
        return Term(self, self.names.constants[key].name, tensor.data_type)

    def integers(self, numbers: Iterable[int]) -> Term:
        """Return a constant list of integers."""
        return self.array(np.array(list(map(in_range, numbers)), np.int64))

    def number(self, number: Number, dtype: int) -> Term:
        """Return a scalar constant."""
        known = self.names.numbers
        if (number, dtype) not in known:
            known[number, dtype] = self.array(np.array(number, dtypes.numpy_dtype(dtype))).name
        return Term(self, known[number, dtype], dtype)

    def op(self, op_type: str, *inputs: Operand, **attributes: Attribute) -> Term:
        """Add a node with one output of the first term's dtype.

        Args:
            inputs: a number is a constant of that dtype, several integers are a constant list.
        """
        return self.ops(op_type, 1, *inputs, **attributes)[0]

    def ops(
        self, op_type: str, outputs: int, *inputs: Operand, **attributes: Attribute
    ) -> list[Term]:
        """Add a node with several outputs; an equal one that exists is used instead."""
        # numbers get the dtype of the first term
        first = next(term for term in inputs if isinstance(term, Term))
        # an attribute that is None is left to its default
        node = NodeProto(op_type=op_type, input=[self._name(given, first) for given in inputs])
        node.attribute.extend(
            helper.make_attribute(name, value)
            for name, value in attributes.items()
            if value is not None
        )
        return [Term(self, name, first.dtype) for name in self.add(node, outputs)]

    def _name(self, given: Operand, like: Term) -> str:
        """Return the name of an input; see `op`."""
        match given:
            case None:
                return ""
            case Term():
                return given.name
            case Iterable():
                return self.integers(given).name
        return like.of(given).name

    def add(self, node: NodeProto, outputs: int) -> tuple[str, ...]:
        """Add a node without outputs, and return their names; an equal one that exists is used instead."""
        # The key is the node without names of its own: operator, inputs, attributes. A body finds nodes of the graphs
        # around it.
        key = node.SerializeToString(deterministic=True), outputs
        if key in self._known:
            return self._known[key]
        made = tuple(self.names.fresh() for _ in range(outputs))
        node.output.extend(made)
        node.name = f"{self.stage}/{node.op_type}_{made[0].rpartition('/')[2]}"
        self.nodes.append(node)
        self._known[key] = made
        return made

    def body(self) -> "Tape":
        """Return a tape for a subgraph; it can read all that is written here."""
        return Tape(self.names, self.stage, _known=self._known.new_child())

    def total(self, terms: Sequence[Term]) -> Term:
        """Return the sum of terms of one shape."""
        if len(terms) > 2 and terms[0].dtype != TensorProto.INT64:  # which Sum does not take
            return self.op("Sum", *terms)
        return reduce(Term.__add__, terms)

    def sum(self, term: Term, axes: Sequence[int] | Term, keepdims: bool = False) -> Term:
        """Return the sum over axes."""
        if not axes:  # no axes: nothing to sum over
            return term
        return self.op("ReduceSum", term, axes, keepdims=int(keepdims), noop_with_empty_axes=1)

    def mean(self, term: Term, like: Term, axes: Sequence[int]) -> Term:
        """Return the mean over axes of a term that has the shape of the value `like`; the axes stay."""
        return self.sum(term, axes, True) / self.count(like, axes)

    def count(self, value: Term, axes: Sequence[int]) -> Term:
        """Return how many elements of a value stand along axes, in its dtype."""
        # a number where the sizes are known, else a product that is computed when the model runs
        shape = self.shape(value.name) or []
        sizes = [shape[axis] if -len(shape) <= axis < len(shape) else None for axis in axes]
        known = known_sizes(sizes)
        if known is not None:
            return value.of(math.prod(known))
        chosen = self.op("Gather", self.dims(value), axes)
        return self.op("ReduceProd", chosen, keepdims=0).cast(value.dtype)

    def reshaped(self, term: Term, like: Term) -> Term:
        """Return the numbers in the shape of a value."""
        return self.op(
            "Reshape",
            term,
            self.dims(like),
            allowzero=1 if 0 in (self.static(like) or ()) else None,
        )

    def flat(self, term: Term) -> Term:
        """Return the numbers as a list."""
        return self.op("Reshape", term, [-1])

    def transposed(self, term: Term, perm: Sequence[int]) -> Term:
        """Return the axes in another order."""
        unchanged = list(perm) == list(range(len(perm)))
        return term if unchanged else self.op("Transpose", term, perm=perm)

    def swapped(self, term: Term, rank: int) -> Term:
        """Return the last two axes exchanged."""
        return self.transposed(term, [*range(rank - 2), rank - 1, rank - 2])

    def concat(self, first: Term | Iterable[int], *more: Operand, axis: int = 0) -> Term:
        """Return parts in a row; see `op`."""
        if more or not isinstance(first, Term):
            return self.op("Concat", first, *more, axis=axis)
        return first

    def zeros(self, shape: Term, dtype: int) -> Term:
        """Return zeros."""
        return self._filled(shape, 0, dtype)

    def ones_like(self, value: Term) -> Term:
        """Return ones in the shape of a value."""
        return self._filled(self.dims(value), 1, value.dtype)

    def _filled(self, shape: Term, number: Number, dtype: int) -> Term:
        filling = dtypes.from_array(np.full(1, number, dtypes.numpy_dtype(dtype)))
        return self.op("ConstantOfShape", shape, value=filling).typed(dtype)

    def size(self, value: Term) -> Term:
        """Return how many elements a value has, as a tensor of one element."""
        # a constant, or the product of the dimensions when the model runs
        static = self.static(value)
        if static is not None:
            return self.integers([math.prod(static)])
        return self.op("ReduceProd", self.dims(value), keepdims=1)

    def places(self, value: Term) -> Term:
        """Return the number of each element of a value, in its shape."""
        static = self.static(value)
        # a constant of at most 32 KiB; larger ones are computed when the model runs
        if static is not None and math.prod(static) <= 4096:
            return self.array(np.arange(math.prod(static), dtype=np.int64).reshape(static))
        size = self.op("Squeeze", self.size(value))
        return self.reshaped(size.up_to(), value)

    def scattered(self, places: Term, numbers: Term, like: Term) -> Term:
        """Return zeros in the shape of a value, with numbers added at the elements of these numbers."""
        # Flat, because one operator then adds at any places: several of the numbers may go to one element.
        empty = self.zeros(self.size(like), numbers.dtype)
        flat = self.op(
            "ScatterElements", empty, self.flat(places), self.flat(numbers), reduction="add", axis=0
        )
        return self.reshaped(flat, like)

    def summed_to(self, term: Term, value: Term, given: list[Dim] | None) -> Term:
        """Return a term summed over the axes along which a value was broadcast.

        Args:
            given: what is known of the term's shape.
        """
        # axes whose sizes are not known are compared when the model runs
        wanted = self.shape(value.name)
        if given is None or wanted is None or len(given) < len(wanted):
            return _summed_at_run(self, term, value)
        # Broadcasting adds axes in front, and repeats along axes of size 1.
        missing = len(given) - len(wanted)
        pairs = list(zip(given[missing:], wanted, strict=True))
        if any(w != 1 and not _equal(g, w) for g, w in pairs):
            return _summed_at_run(self, term, value)
        # first axes of size 1, which stay, then axes that the value does not have
        kept = [missing + i for i, (g, w) in enumerate(pairs) if w == 1 and g != 1]
        return self.sum(self.sum(term, kept, True), range(missing))


def _summed_at_run(tape: Tape, term: Term, value: Term) -> Term:
    """Sum over the axes that differ when the model runs."""
    wanted = tape.dims(value)
    given = tape.shape_of(term)
    # the shape with ones in front: it differs along the axes to sum over
    lengths = [tape.shape_of(shape) for shape in (given, wanted)]
    front = tape._filled(lengths[0] - lengths[1], 1, TensorProto.INT64)
    same = tape.concat(front, wanted).equals(given)
    other = tape.op("Not", same)
    # a list of the axes that differ
    axes = tape.flat(tape.op("NonZero", other).typed(TensorProto.INT64))
    return tape.op("Reshape", tape.sum(term, axes, True), wanted)


def known_sizes(dims: Sequence[Dim] | None) -> list[int] | None:
    """Return dimensions if all are known."""
    known = [dim for dim in dims or () if isinstance(dim, int)]
    return None if dims is None or len(known) < len(dims) else known


def _dim(dim: TensorShapeProto.Dimension) -> Dim:
    """Return a dimension; a name that inference made says nothing, because two inferences make the same."""
    size = known_size(dim)
    if size is not None:
        return size
    return str(dim.dim_param) if dim.dim_param and not dim.dim_param.startswith(MADE_UP) else None


def _equal(one: Dim, other: Dim) -> bool:
    """Return whether two dimensions are the same, or must be: a number above 1 is not broadcast to another."""
    if one is None or other is None:
        # a known number may be taken as equal to an unknown size: only 1 would be broadcast
        return isinstance(other, int)
    return one == other or isinstance(other, int)
