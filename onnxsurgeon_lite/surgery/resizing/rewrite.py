"""Carry out a plan: change or copy constants, compute symbolic sizes, declare types."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, helper

from onnxsurgeon_lite.errors import ShapeError
from onnxsurgeon_lite.graph import dims_of, onnx_opset
from onnxsurgeon_lite.model import Model, assign, attributes_of, drop, walk
from onnxsurgeon_lite.surgery.edits import defined, fresh
from onnxsurgeon_lite.surgery.resizing.inference import State
from onnxsurgeon_lite.surgery.resizing.plan import (
    Entry,
    OperandChange,
    Ramp,
    Refill,
    ResizePlan,
    Scope,
    Spot,
    Stretch,
    after,
)
from onnxsurgeon_lite.surgery.resizing.sizes import Size, product, ratio, varies
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

_Sizes = list[tuple[int, TensorShapeProto.Dimension]]  # axes and their sizes
_HEAD = -1  # before the first node
_INLINE_INITIALIZERS = 4  # the first IR version in which an initializer need not be an input too
# opsets that introduced Expand, Slice with inputs, Range
_EXPAND, _SLICE_INPUTS, _RANGE = (8, 10, 11)


class Resizing:
    """Changes the model that was traced."""

    def __init__(self, model: Model, plan: ResizePlan) -> None:
        self.proto: ModelProto = model.proto
        self.plan = plan
        # How often each name is read: a constant that others read as well is copied, not changed.
        self.uses: Counter[str] = Counter()
        self.taken = set[str]()
        if plan.refills or plan.stretches:
            for graph in walk.graphs(model.proto):
                self.uses.update(info.name for info in graph.output)
                for node in graph.node:
                    self.uses.update(node.input)
            self.taken = set(self.uses) | _definitions(model.proto)
        # (graph, position) -> nodes to put before that node
        self.inserted: dict[tuple[Scope, int], list[NodeProto]] = defaultdict(list)
        self.removed = set[tuple[Scope, int]]()
        # what is computed already, by what it is computed from: sizes, constants, products
        self.computed = dict[tuple[object, ...], str]()
        self.opset = onnx_opset(model.proto)
        self.declaring = Declaring(plan)

    def run(self) -> list[str]:
        """Carry out the plan; return a line for each constant that changed."""
        # One change for all readers of a value that need the same entries.
        groups = defaultdict[Hashable, list[Refill]](list)
        for refill in self.plan.refills:
            name = refill.name
            groups[name, refill.scope.home(name), refill.entries].append(refill)
        notes = list(map(self._refill, groups.values()))
        notes += [
            self._ramp(change) if isinstance(change, Ramp) else self._stretch(change)
            for change in self.plan.stretches
        ]
        for scope in reversed(self.plan.scopes):  # bodies first: writing a graph copies its nodes
            self.declaring.declare(scope)
            self._place_nodes(scope)
        return notes

    def _refill(self, refills: list[Refill]) -> str:
        first = refills[0]
        name = first.name
        tensor = self._tensor(first.scope, name)
        fixed = [entry for entry in first.entries if isinstance(entry, int)]
        shared = ""
        # a constant, and all entries are numbers
        if tensor is not None and len(fixed) == len(first.entries):
            if self.uses[name] == len(refills):  # nobody else reads it
                _set_numbers(tensor, fixed)
            else:
                shared = f", in a copy: {self.uses[name] - len(refills)} more read the original"
                self._replace_all(refills)
        else:
            self._replace_all(refills)
        entries = ", ".join(self._text(entry) for entry in first.entries)
        more = f" and {len(refills) - 1} more" if len(refills) > 1 else ""
        kind = "constant" if tensor is not None else "shape"
        return (
            f"{kind} {name!r} {list(first.before)} -> [{entries}] at "
            f"{first}{more}{shared}: {first.reason}"
        )

    def _text(self, entry: Entry) -> str:
        return str(entry) if isinstance(entry, int) else self.plan.text(entry)

    def _replace_all(self, refills: Iterable[Refill]) -> None:
        for refill in refills:
            self._rewire(refill, self._shape(refill, refill.entries, refill.name))

    def _stretch(self, stretch: Stretch) -> str:
        value = name = stretch.name
        how = []
        # only the first slice is right: the size changes, and all slices are equal
        if stretch.thin:
            self._require_opset(_SLICE_INPUTS, "Slice with inputs")
            bounds = [
                self._constant(stretch, [number], f"{name}.{what}")
                for what, number in (("start", 0), ("end", 1), ("axis", stretch.axis))
            ]
            value = self._node(stretch, "Slice", [value] + bounds, f"{name}.first")
            how.append("its first slice along")
        if stretch.entry != 1:  # repeated along the axis
            self._require_opset(_EXPAND, "Expand")
            entries: list[Entry] = [1] * stretch.rank
            entries[stretch.axis] = stretch.entry
            shape = self._shape(stretch, entries, f"{name}.shape")
            value = self._node(stretch, "Expand", [value, shape], f"{name}.expanded")
            how.append(f"expanded to {self._text(stretch.entry)} along")
        self._rewire(stretch, value)
        return (
            f"{name!r} is read {', '.join(how)} axis {stretch.axis} at {stretch}: "
            f"{name!r} has a fixed size, but the other operands here change"
        )

    def _ramp(self, ramp: Ramp) -> str:
        """Let a node read `base + step * Range(size)`, or these numbers where the size is known."""
        entry = ramp.entry
        name = ramp.name
        does = "is"
        # [1, -1, 1]: the shape of numbers along the axis
        along = [-1 if axis == ramp.axis else 1 for axis in range(ramp.base.ndim)]
        if isinstance(entry, int):
            counted = np.add(ramp.base, np.multiply(ramp.step, np.arange(entry).reshape(along)))
            value = self._constant(ramp, counted, name)
            what = "the numbers"
        else:
            self._require_opset(_RANGE, "Range")
            size = self._node(ramp, "Squeeze", [self._size(ramp, entry)], "n")
            zero, one = (self._constant(ramp, number, f"{name}.bound") for number in (0, 1))
            numbers = self._node(ramp, "Range", [zero, size, one], f"{name}.range")
            shape = self._constant(ramp, along, f"{name}.shape")
            value = self._node(ramp, "Reshape", [numbers, shape], f"{name}.along")
            for op, by in (("Mul", ramp.step), ("Add", ramp.base)):
                # a factor of 1 or an offset of 0 needs no node
                if (by != (op == "Mul")).any() or by.size > 1:
                    constant = self._constant(ramp, by, f"{name}.{op.lower()}")
                    value = self._node(ramp, op, [value, constant], f"{name}.indices")
            what = "a Range"
        if ramp.onto:
            value = self._node(ramp, "Add", [name, value], name)
            does = "is added to"
        self._rewire(ramp, value)
        return (
            f"operand {name!r} {does} {what} of {self._text(entry)} along axis {ramp.axis} at "
            f"{ramp}: it counts the rows of what changes"
        )

    def _require_opset(self, version: int, what: str) -> None:
        if self.opset < version:
            raise ShapeError(
                f"this needs {what}, which opset {self.opset} does not have",
                f"convert the model to opset {version} or later first",
            )

    def _shape(self, spot: Spot, entries: Sequence[Entry], base: str) -> str:
        """Return the name of a tensor with these elements, computed if some are symbolic."""
        key = (spot.scope, base, tuple(entries))
        if key in self.computed:
            return self.computed[key]
        # it must stand before the first of the nodes that read the same shape
        same = (r.position for r in self.plan.refills if (r.scope, r.name, r.entries) == key)
        at = Spot(spot.scope, min([spot.position, *same]))
        numbers = [entry for entry in entries if isinstance(entry, int)]
        if len(numbers) == len(entries):
            return self.computed.setdefault(key, self._constant(at, numbers, base))
        parts = [  # one tensor of one element for each entry
            self._constant(at, [entry], f"{base}.{i}")
            if isinstance(entry, int)
            else self._size(at, entry)
            for i, entry in enumerate(entries)
        ]
        if len(parts) == 1:
            return parts[0]
        name = self._node(at, "Concat", parts, f"{base}.resized", axis=0)
        return self.computed.setdefault(key, name)

    def _size(self, spot: Spot, size: Size) -> str:
        """Return the name of a one-element value that has this size at run time."""
        # As a multiple of dimensions of the inputs: computed once, at the begin of the main graph, for all nodes.
        main = Spot(self.plan.scopes[0], _HEAD)
        opened = [symbol for symbol in self.plan.symbols if varies(after(symbol.sizes))]
        for count in (1, 2, 3):
            for group in combinations(opened, count):
                times = ratio(after(size), after(product([symbol.sizes for symbol in group])))
                if times is None:
                    continue
                factors = [
                    self._dimension(main, *symbol.places[0], f"{symbol.name}.size")
                    for symbol in group
                ]
                value = factors[0]
                for factor in factors[1:]:
                    value = self._arithmetic(main, "Mul", value, factor)
                for op, number in (("Mul", times.numerator), ("Div", times.denominator)):
                    if number != 1:
                        constant = self._constant(main, [number], "factor")
                        value = self._arithmetic(main, op, value, constant)
                return value
        # Else it is the size of an axis that the node itself reads.
        for name in spot.scope.graph.node[spot.position].input:
            state = spot.scope.find(name)
            for axis, other in enumerate((state and state.sizes()) or ()):
                if other is not None and after(other) == after(size):
                    return self._dimension(spot, name, axis, f"{name}.size")
        raise ShapeError(
            f"{spot} needs a size that none of its inputs has",
            "it is not a multiple of the dimensions that change; export the model with them dynamic",
        )

    def _dimension(self, spot: Spot, name: str, axis: int, base: str) -> str:
        key = (spot.scope, spot.position, name, axis)
        if key not in self.computed:
            shape = self._node(spot, "Shape", [name], f"{name}.shape")
            place = self._constant(spot, [axis], f"{name}.axis")
            self.computed[key] = self._node(spot, "Gather", [shape, place], base, axis=0)
        return self.computed[key]

    def _arithmetic(self, spot: Spot, op: str, value: str, other: str) -> str:
        key = (op, value, other)
        if key not in self.computed:
            self.computed[key] = self._node(spot, op, [value, other], f"{value}.times")
        return self.computed[key]

    def _constant(self, spot: Spot, given: int | Sequence[int] | Array, base: str) -> str:
        numbers = np.array(given, np.int64)  # int64, as all shapes
        key = (spot.scope, numbers.shape, numbers.tobytes())
        if key in self.computed:
            return self.computed[key]
        name = fresh(base, self.taken)
        tensor = dtypes.from_array(numbers, name)
        # an initializer; before IR version 4 it would have to be an input
        if self.proto.ir_version >= _INLINE_INITIALIZERS:
            spot.scope.graph.initializer.append(tensor)
            return self.computed.setdefault(key, name)
        node = helper.make_node("Constant", [], [name], value=tensor)
        self.inserted[spot.scope, spot.position].append(node)
        return name

    def _node(
        self, spot: Spot, op: str, inputs: list[str], base: str, axis: int | None = None
    ) -> str:
        name = fresh(base, self.taken)
        node = helper.make_node(op, inputs, [name], name, axis=axis)
        self.inserted[spot.scope, spot.position].append(node)
        self.uses.update(inputs)
        return name

    def _rewire(self, change: OperandChange, name: str) -> None:
        """Make a node read another value; remove what is no longer used."""
        scope, old = change.scope, change.name
        scope.graph.node[change.position].input[change.slot] = name
        self.uses[name] += 1
        self.uses[old] -= 1
        pending = [old]
        while pending:
            name = pending.pop()  # what nobody reads any more, and what it alone read
            position = scope.producers.get(name)
            if self.uses[name] > 0:
                continue
            if position is None:
                _remove_initializer(scope.graph, name)
                continue
            node = scope.graph.node[position]
            key = (scope, position)
            if key not in self.removed and not any(self.uses[output] for output in node.output):
                self.removed.add(key)
                self.uses.subtract(node.input)
                pending += node.input

    def _tensor(self, scope: Scope, name: str) -> TensorProto | None:
        """Return the constant with that name, initializer or Constant node, if it can be changed in place."""
        home = scope.home(name)
        if home is None:
            return None
        position = home.producers.get(name)
        if position is None:
            return next((t for t in home.graph.initializer if t.name == name), None)
        node = home.graph.node[position]
        value: TensorProto | None = attributes_of(node).get("value")
        return value if node.op_type == "Constant" else None

    def _place_nodes(self, scope: Scope) -> None:
        # nothing changed in this graph
        if not any(where is scope for where, _ in chain(self.inserted, self.removed)):
            return
        placed = list(self.inserted.get((scope, _HEAD), ()))
        for position, node in enumerate(scope.graph.node):
            placed += self.inserted.get((scope, position), ())
            if (scope, position) not in self.removed:
                placed.append(node)
        assign(scope.graph.node, placed)


@dataclass
class Declaring:
    """Declares the sizes that values have after the change.

    Attributes:
        emptied: values of the main graph that have no elements any more, with their types.
    """

    plan: ResizePlan
    emptied: dict[str, TypeProto] = field(default_factory=dict)

    def declare(self, scope: Scope) -> None:
        graph, states = scope.graph, scope.states
        # (serialized type, state) -> sizes to set, the type if it has no elements with them
        known = dict[Hashable, tuple[_Sizes, TypeProto | None]]()  # many are equal
        for info in chain(graph.value_info, graph.input, graph.output):
            state = states.get(info.name)
            if state is None:
                continue
            kind = info.type.SerializeToString()
            if (kind, state.key) not in known:
                known[kind, state.key] = self._changed(kind, state)
            new, empty = known[kind, state.key]
            # in place: a whole type would take new memory
            for axis, dim in new:
                dims_of(info.type)[axis].CopyFrom(dim)
            if empty is not None and info.name in scope.producers and not scope.path:
                self.emptied[info.name] = empty

    def _changed(self, declared: bytes, state: State) -> tuple[_Sizes, TypeProto | None]:
        """Return the axes of a serialized type that get another size, and the type if that takes its elements."""
        old, new = TypeProto.FromString(declared), TypeProto.FromString(declared)
        if new.tensor_type.HasField("shape"):
            self._declare_type(new, state.sizes(), state.follows)
        sides = (dims_of(kind) for kind in (old, new))
        pairs = enumerate(zip(*sides, strict=True))
        changed = [(axis, dim) for axis, (was, dim) in pairs if was != dim]
        return changed, new if _is_empty(new) and not _is_empty(old) else None

    def _declare_type(
        self, kind: TypeProto, sizes: Sequence[Size | None] | None, follows: bool
    ) -> None:
        dims = dims_of(kind)
        known = sizes if sizes is not None and len(sizes) == len(dims) else [None] * len(dims)
        for dim, size in zip(dims, known, strict=True):
            if size is None:
                # it depends on the change, and nobody knows how
                if follows and dim.HasField("dim_value"):
                    dim.ClearField("dim_value")
                continue
            fixed = self.plan.fixed(size)
            if isinstance(fixed, int):
                dim.dim_value = fixed
                continue
            symbol = self.plan.symbol_of(size)
            if dim.dim_param in self._kept_names:  # one of several names of equal sizes
                continue
            if symbol is not None and symbol.name:  # the name of the symbol
                dim.dim_param = symbol.name
            elif not dim.dim_param:  # a size without a name stays open
                dim.ClearField("dim_value")

    @cached_property
    def _kept_names(self) -> set[str]:
        return {symbol.name for symbol in self.plan.symbols if not symbol.changes} - {""}


def _is_empty(kind: TypeProto) -> bool:
    dims = dims_of(kind)
    return any(dim.HasField("dim_value") and dim.dim_value <= 0 for dim in dims)


def _set_numbers(tensor: TensorProto, numbers: Sequence[int]) -> None:
    """Replace the elements of a small integer tensor; keep everything else."""
    dtype = dtypes.numpy_dtype(tensor.data_type)
    limit = 2 ** (8 * dtype.itemsize - 1) - 1  # the end of a Slice is the largest possible number
    array = np.array([min(n, limit) for n in numbers], dtype).reshape(tensor.dims)
    for name in ("int32_data", "int64_data"):
        tensor.ClearField(name)
    tensor.raw_data = dtypes.encode(array)


def _remove_initializer(graph: GraphProto, name: str) -> None:
    # an initializer that is an input, too, stays
    if all(info.name != name for info in graph.input):
        drop(graph.initializer, lambda tensor: tensor.name == name)


def _definitions(model: ModelProto) -> set[str]:
    names = set[str]()
    for graph in walk.graphs(model):
        names.update(defined(graph), (node.name for node in graph.node))
    return names
