"""Replace nodes whose results are constant by these results."""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from onnxsurgeon_lite.errors import RuntimeFailure, RuntimeLost
from onnxsurgeon_lite.graph import (
    RANDOM,
    GraphIndex,
    bodies_below,
    checked,
    constant,
    fixed_shape,
    held,
    put_back,
    standing,
    tensor_type,
)
from onnxsurgeon_lite.model import Model, drop, drop_at, is_external, walk
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import drop_declarations, trained, value_names
from onnxsurgeon_lite.surgery.control_flow import straighten
from onnxsurgeon_lite.surgery.decided import DECIDED, decide
from onnxsurgeon_lite.surgery.shape_values import Elements, is_known, shape_values
from onnxsurgeon_lite.surgery.symbolic.shapes import carry_types, infer_types, onnx_types
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

if TYPE_CHECKING:
    from onnxsurgeon_lite.runtime.session import Runtime

_QUANTIZERS = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
_KEPT = RANDOM | {"Dropout", "Constant"} | _QUANTIZERS
_SIZES = 64  # elements of a constant that can be a shape


@dataclass(frozen=True)
class Fold:
    """Replace nodes whose results are constant by these results; in bodies and functions too.

    onnxruntime computes them; what follows from a declared shape needs no run. A node stays when it is random, of
    another domain or a quantization, has a body, or makes a graph output. The branch that runs takes the place of an If
    whose condition is constant. Only the constants that are folded are read.

    Attributes:
        limit: bytes; a node stays when an input or result is larger, or of unknown size.

    Example:
        >>> osl.fold("low_precision.onnx").changed
        True
    """

    limit: int = 1 << 20
    name: ClassVar[str] = "fold"

    def apply(self, model: Model) -> PassResult:
        """Fold.

        Raises:
            GraphError: the graph has a cycle, or a function calls itself.
            EditError: a node lacks what its operator takes.
        """
        return self.edit(checked(model))

    def edit(self, index: GraphIndex) -> PassResult:
        """Fold the nodes of an indexed model."""
        result = index.model
        changes = list[str]()
        notes = list[str]()
        # a quick look first: most graphs have nothing to fold
        if _Constants(index, None, self.limit).may_fold():
            result = result.copy()
            changes, notes = fold(result, None, self.limit, index)
        # an If whose condition is constant now gives way to its branch, which may fold further
        if index.bodied:
            result, taken, _, _ = straighten(result, 0)
            if taken:
                after = self.edit(GraphIndex.of(result))
                result = after.model
                notes = list(after.notes)
                changes += taken + list(after.changes)
        return PassResult.of(index.model, result, changes, notes, is_told=True)


def fold(
    result: Model, values: Iterable[str] | None, limit: int, before: GraphIndex | None = None
) -> tuple[list[str], list[str]]:
    """Fold, in place, what depends on nothing but constants; with `values`, only what depends on these too.

    Args:
        before: the index of the same model, which knows types and learns them.

    Returns:
        (changes, notes).
    """
    with ExitStack() as stack:
        return _fold(result, values, limit, _Count(stack), before)


def _fold(
    result: Model,
    values: Iterable[str] | None,
    limit: int,
    whole: "_Count",
    before: GraphIndex | None,
) -> tuple[list[str], list[str]]:
    """Fold until what is too large stays so; see `fold`."""
    # a node that was too large may fit once others have folded around it
    rounds = True
    while rounds:
        counts = whole.folded, whole.decided
        # types that are known already need no second inference
        index = GraphIndex.of(result)
        if before is not None:
            carry_types(before, index)
        whole.large.clear()
        whole.failed.clear()
        _fold_graph(index, result.graph, None if values is None else set(values), limit, whole)
        for function in result.proto.functions if values is None else ():
            _fold_function(result, function, limit, whole)
        if before is not None:
            carry_types(index, before)
        rounds = bool(whole.large) and counts != (whole.folded, whole.decided)
    # decided: operands such as shapes, which types say without a run
    changes = [f"{whole.decided} nodes read a constant shape or dtype"] if whole.decided else []
    if whole.folded:
        changes.append(f"folded {whole.folded} nodes into {whole.constants} constants")
    notes = []
    if whole.large:
        notes.append(
            f"kept {len(whole.large)} constant nodes: an input or result is over {limit} bytes or of unknown size"
        )
    notes += (f"kept {what}: the runtime cannot compute it" for what in whole.failed)
    return changes, notes


def fold_positions(index: GraphIndex, positions: set[int]) -> None:
    """Replace, in place, nodes that are constant by their results."""
    found = _Constants(index, set(), 0)
    # `runs` is given: nothing is searched
    found.runs = positions
    with ExitStack() as stack:
        made = _computed(index, found, _Count(stack), strict=True)
    _replace(index.graph, found, made, _idle(index, found.gone))


@dataclass
class _Count:
    stack: ExitStack
    decided: int = 0
    folded: int = 0
    constants: int = 0
    large: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @cached_property
    def runtime(self) -> "Runtime":
        """What computes constants, in a process that starts when it is asked for."""
        from onnxsurgeon_lite.runtime.options import RuntimeOptions
        from onnxsurgeon_lite.runtime.session import Runtime

        return self.stack.enter_context(Runtime(RuntimeOptions(opt="none", threads=1)))


def _fold_graph(
    index: GraphIndex, graph: GraphProto, values: set[str] | None, limit: int, count: _Count
) -> None:
    """Fold a graph that an index describes, then its bodies."""
    found = _Constants(index, values, limit)
    if values is None:
        count.decided += found.decide(graph)
    if found.may_run():
        # starts the process while the nodes are searched
        count.runtime.begin()
    found.find()
    count.large += map(index.describe, found.large)
    if found.gone:
        made = _computed(found.index, found, count)
        idle = _idle(found.index, found.gone)
        # an index of a body has a copy of it: both are edited
        for same in chain([graph], [] if index.graph is graph else [index.graph]):
            _replace(same, found, made, idle)
        count.folded += len(found.gone)
        count.constants += len(made)
    if values is not None or not index.bodied:
        return
    index = GraphIndex.of(index.model) if found.gone else index
    for _, body, inner in bodies_below(index, graph):
        _fold_graph(inner, body, values, limit, count)


def _fold_function(model: Model, function: FunctionProto, limit: int, count: _Count) -> None:
    """Fold what is constant in every call of a function."""
    before = count.folded, count.decided
    index = standing(model, function)
    _fold_graph(index, index.graph, None, limit, count)
    # nothing folded: the function stays as it was, byte for byte
    if (count.folded, count.decided) != before:
        put_back(index.graph, function)


class _Constants:
    """The nodes of a graph that are constant, walking forward.

    Attributes:
        shapes: value -> the numbers that follow from declared shapes.
        runs: the nodes that the runtime must compute.
        large: nodes kept for their size.
    """

    def __init__(self, index: GraphIndex, values: set[str] | None, limit: int) -> None:
        self.index = index
        self.values = values
        self.limit = limit
        self.shapes = dict[str, Array]()
        self.runs = set[int]()
        self.large = set[int]()
        # value -> its elements, numbers or symbols, as far as shapes say
        self._elements = dict[str, Elements | None]()
        # values whose elements are at least partly known
        self._followed = set[str]()
        # initializers that training updates
        self._bound = trained(index.model.proto)

    @property
    def gone(self) -> set[int]:
        """The nodes to replace."""
        return self.runs.union(self.index.makers(self.shapes))

    def may_fold(self) -> bool:
        """Return whether a node reads constants alone, or there are shapes, bodies or functions to look into."""
        index = self.index
        if index.bodied or index.model.proto.functions or "Shape" in index.operators:
            return True
        return bool(index.reading_only(self._constants())) or self.may_decide()

    def decide(self, graph: GraphProto) -> int:
        """Replace operands that types decide; return how many nodes changed."""
        decided = 0
        if self.may_decide():
            taken = value_names(self.index)
            # sets the cached property, so `type_of` uses what is inferred here
            self.types, _ = infer_types(self.index)
            for same in chain([graph], [] if self.index.graph is graph else [self.index.graph]):
                decided = decide(self.index, same, self.types, set(taken))
        if decided:
            self.index = GraphIndex.of(self.index.model)
        return decided

    def may_decide(self) -> bool:
        """Return whether types may decide an operand that is computed now."""
        places = chain.from_iterable(self.index.operators.get(n, ()) for n in DECIDED)
        operands = chain.from_iterable(self.index.nodes[p].input[1:2] for p in places)
        return any(held(self.index, name) is None for name in operands)

    def may_run(self) -> bool:
        """Return whether a node reads constants alone, and is not kept for what it is."""
        settled = self._constants() | (self.values or set())
        rows = map(self.index.rows.__getitem__, self.index.reading_only(settled))
        return any(not row.domain and row.op_type not in _KEPT for row in rows)

    def find(self) -> None:
        """Find what is constant."""
        known = set(self.values or ())
        settled = known | self._constants()
        # a place is a position in topological order
        places = self.index.places
        pending = [places[p] for p in self.index.reading_only(settled)]
        if self.values is None:
            # a Shape needs only the type of what it reads
            pending += (places[p] for p in self.index.operators.get("Shape", ()))
        heapq.heapify(pending)
        last = -1
        while pending:  # in the order of the graph: what follows from a node comes after it
            place = heapq.heappop(pending)
            # a node may be pushed by several of its inputs
            if place > last:
                last = place
                position = self.index.order[place]
                found = self._found(position, known, settled)
                # readers of what is known now: they may be constant, too
                readers = self.index.readers(found).values() if found else ()
                for each in chain.from_iterable(readers):
                    heapq.heappush(pending, places[each])
        self._keep_large()

    def _found(self, position: int, known: set[str], settled: set[str]) -> Sequence[str]:
        """Look at a node; return what it makes if that is constant, or if the numbers of a shape are followed to it."""
        row = self.index.rows[position]
        # numbers of shapes are followed through arithmetic; with `values` only those count
        follows = self.values is None and (
            row.op_type == "Shape" or not self._followed.isdisjoint(row.needs)
        )
        if not follows and not settled.issuperset(row.needs):
            return ()
        node = self.index.nodes[position]
        if row.domain or row.op_type in _KEPT or _is_open(node):
            return ()
        outputs = [name for name in row.outputs if name]
        # an output keeps its node
        if not outputs or not self.index.outputs.keys().isdisjoint(outputs):
            return ()
        if follows and self._follows(node):
            known.update(outputs)
            settled.update(outputs)
        elif self._is_constant(position, known):
            self.runs.add(position)
            known.update(outputs)
            settled.update(outputs)
        # not constant, but partly known shapes are followed on
        elif self._followed.isdisjoint(outputs):
            return ()
        return outputs

    def _keep_large(self) -> None:
        """Keep the nodes whose results are large, and those that read them."""
        types = self._types_of(self.runs)
        kept = set[str]()
        for position in self.index.in_order(self.runs):
            row = self.index.rows[position]
            # the size of what a node makes, from its type; unknown does not fit
            sizes = [_size(types.get(name) or self.type_of(name)) for name in row.outputs if name]
            fits = all(size is not None and size <= self.limit for size in sizes)
            # a node that reads what stays must stay, too
            reads_kept = not kept.isdisjoint(row.needs)
            if reads_kept or not fits:
                kept.update(row.outputs)
                self.runs.discard(position)
            if not (reads_kept or fits):
                self.large.add(position)

    def _types_of(self, positions: Set[int]) -> Mapping[str, TypeProto]:
        """Infer what constant nodes make, without the rest of the graph."""
        if not positions:
            return {}
        # `types` is a cached property: present only if it was computed
        if "types" in vars(self):
            return self.types
        source = self.index.model.structure()
        part = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
        part.functions.extend(source.functions)
        # only the constant nodes and what makes their inputs
        read = self.index.read_by(positions)
        makers = set(self.index.makers(read))
        part.graph.node.extend(source.graph.node[p] for p in sorted(makers | positions))
        part.graph.initializer.extend(t for t in source.graph.initializer if t.name in read)
        self.types = onnx_types(GraphIndex.of(self.index.model.with_proto(part)))
        return self.types

    def _constants(self) -> set[str]:
        """Return the names that may be constant, and ''."""
        nodes = (self.index.nodes[p] for p in self.index.operators.get("Constant", ()))
        return {"", *self.index.initializers, *walk.outputs(nodes)}

    def _follows(self, node: NodeProto) -> bool:
        """Follow the numbers of a shape; return whether all are known."""
        first = self.type_of(node.input[0]) if node.op_type == "Shape" else None
        elements = shape_values(node, self._read, first)
        self._elements[node.output[0]] = elements
        if elements is not None:
            self._followed.add(node.output[0])
        if elements is None or not is_known(elements) or self._from_constants(node):
            return False
        self.shapes[node.output[0]] = elements.astype(np.int64)
        return True

    def _from_constants(self, node: NodeProto) -> bool:
        """Return whether a node reads nothing but constants of the model: the runtime computes those."""
        reads = [name for name in node.input if name]
        return node.op_type != "Shape" and all(self._constant(name) is not None for name in reads)

    def _read(self, name: str) -> Elements | None:
        if name not in self._elements:
            tensor = self._constant(name)
            self._elements[name] = None
            if (
                tensor is not None
                # shapes and axes: integers, at most one axis, and few
                and tensor.data_type == TensorProto.INT64
                and len(tensor.dims) < 2
                and sum(tensor.dims) <= _SIZES
                and not is_external(tensor)
            ):
                self._elements[name] = dtypes.to_array(tensor).astype(object)
        return self._elements[name]

    def _is_constant(self, position: int, known: Set[str]) -> bool:
        reads = self.index.reads[position]
        # with `values`, only what depends on them
        if not reads or (self.values is not None and known.isdisjoint(reads)):
            return False
        tensors = [self._constant(name) for name in reads if name not in known]
        if any(tensor is None for tensor in tensors):
            return False
        # a constant over the limit is not read for folding
        sizes = [self._bytes(tensor) for tensor in tensors if tensor is not None]
        if all(size is not None and size <= self.limit for size in sizes):
            return True
        self.large.add(position)
        return False

    def _constant(self, name: str) -> TensorProto | None:
        return None if name in self._bound else constant(self.index, name)

    def _bytes(self, tensor: TensorProto) -> int | None:
        if is_external(tensor):
            return self.index.model.span(tensor)[2]
        return _size(tensor_type(tensor))

    @cached_property
    def types(self) -> Mapping[str, TypeProto]:
        """The inferred types."""
        return onnx_types(self.index)

    def type_of(self, name: str) -> TypeProto | None:
        return self.types.get(name) or self.index.types.get(name)


def _is_open(node: NodeProto) -> bool:
    """Return whether a node has a body, or the call of a function decides an attribute."""
    return bool(walk.bodies(node)) or walk.has_references(node)


def _size(kind: TypeProto | None) -> int | None:
    """Return the bytes of a tensor type with a fixed shape, else None."""
    shape = fixed_shape(kind)
    if kind is None or shape is None:
        return None
    return math.prod(shape) * dtypes.numpy_dtype(kind.tensor_type.elem_type).itemsize


def _computed(
    index: GraphIndex, found: _Constants, count: _Count, strict: bool = False
) -> dict[str, Array]:
    """Return the constants that other nodes read.

    Args:
        strict: what the runtime cannot compute is an error; otherwise such nodes leave `found`, and are counted.
    """
    made: dict[str, Array] = dict(found.shapes)
    # groups of nodes that run together: all of them at first
    pending = [index.in_order(found.runs)] if found.runs else []
    everything = False
    while pending:
        group = pending.pop()
        outputs = index.made_by(group)
        try:
            # what other nodes read; after a failure everything, as any node may stay
            wanted = outputs if everything else _read_by_others(index, outputs, found)
            made.update(_run(index, wanted, found, count.runtime))
        except RuntimeFailure as error:
            if strict:
                raise
            if isinstance(error, RuntimeLost):
                count.runtime.restart()
            everything = True  # whichever node stays, what it reads is known
            if len(group) == 1:
                found.runs.discard(group[0])
                count.failed.append(index.describe(group[0]))
            else:
                # half of the group each, so that one bad node costs few runs
                pending += [group[len(group) // 2 :], group[: len(group) // 2]]
    read = _read_by_others(index, made, found)
    return {name: array for name, array in made.items() if name in read}


def _read_by_others(index: GraphIndex, names: Iterable[str], found: _Constants) -> set[str]:
    """Return the values that a node reads which is not folded."""
    gone = found.gone
    readers = index.readers(set(names))
    return {name for name, users in readers.items() if not gone.issuperset(users)}


def _run(
    index: GraphIndex, wanted: Set[str], found: _Constants, runtime: "Runtime"
) -> dict[str, Array]:
    from onnxsurgeon_lite.graph.cut import Cut
    from onnxsurgeon_lite.passes.extract import submodel
    from onnxsurgeon_lite.runtime.session import run_model

    if not wanted:
        return {}
    # from the wanted values up to the numbers of shapes, which are fed
    nodes = index.in_order(index.ancestors(wanted, found.shapes))
    fed = found.shapes.keys() & index.inputs_of(nodes)
    # a model needs types at its ends
    index.types.update((name, kind) for name in fed | wanted if (kind := found.type_of(name)))
    part = submodel(index, Cut(tuple(sorted(fed)), tuple(sorted(wanted)), tuple(nodes), ()))
    feeds = {name: found.shapes[name] for name in fed}
    values = run_model(part, feeds, runtime=runtime)
    return {name: value for name, value in values.items() if dtypes.is_array(value)}


def _replace(
    graph: GraphProto, found: _Constants, made: Mapping[str, Array], idle: Set[str]
) -> None:
    """Put results in the place of nodes, and remove the constants that are idle then."""
    gone, index = found.gone, found.index
    outputs = index.made_by(gone)
    # a Constant node goes with its value
    drop_at(graph.node, gone.union(index.makers(idle)))
    drop(graph.initializer, lambda tensor: tensor.name in idle)
    graph.initializer.extend(dtypes.from_array(array, name) for name, array in made.items())
    drop_declarations(graph, outputs - made.keys() | idle)


def _idle(index: GraphIndex, gone: set[int]) -> set[str]:
    """Return the constants that nothing needs without some of the nodes that read them."""
    readers = index.readers(index.read_by(gone))
    # all readers are gone
    idle = {name for name, users in readers.items() if gone.issuperset(users)}
    # scales and zero points of annotations stay
    idle -= walk.annotating(index.graph)
    # a value that a node other than Constant makes is no constant to remove
    makers = {p for p in index.makers(idle) if index.nodes[p].op_type != "Constant"}
    inputs = {name for name in index.inputs if not constant(index, name)}
    return idle - index.made_by(makers) - inputs - index.outputs.keys()
