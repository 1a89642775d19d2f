"""Infer the types of every value, with sizes in the symbols of the inputs.

ONNX's own inference reads the whole graph once. Where it loses a size (`unk__40`), it is asked again for that node
alone, with numbers for the symbols, and `Expressions` says which expression they fit. Shapes that the model computes
are evaluated on the way; no weight is read.
"""

from collections.abc import Hashable, Iterable, Sequence, Set
from functools import cache
from math import prod
from weakref import WeakKeyDictionary

from onnx import GraphProto, NodeProto, TensorProto, TensorShapeProto, TypeProto

from onnxsurgeon_lite.graph import (
    FEW,
    MADE_UP,
    GraphIndex,
    RejectedError,
    constant_of,
    dims_of,
    has_shape,
    native,
    serialized_part,
    tensor_type,
)
from onnxsurgeon_lite.graph.declared import INPUT, OUTPUT, VALUE_INFO, declare_anew, declared_types
from onnxsurgeon_lite.graph.schemas import COMMUTATIVE
from onnxsurgeon_lite.model import by_name, copied, declare, drop, is_external, is_standard
from onnxsurgeon_lite.surgery.resizing.inference import (
    MOST_ELEMENTS,
    SizeInference,
    State,
    node_key,
)
from onnxsurgeon_lite.surgery.resizing.sizes import Size
from onnxsurgeon_lite.surgery.symbolic.expressions import FEWEST, SMALLEST, TRIALS, Expressions
from onnxsurgeon_lite.surgery.types import BY_SHAPE_ALONE, distinct
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

Types = dict[str, TypeProto]
_Made = list[tuple[list[tuple[int, TypeProto]], dict[int, Array] | None]]
"""For each output of a node: the type at each trial, and the numbers at each trial if they are known."""
# Results by index, forgotten with it: complete types, ONNX's own types, types taken over from before an edit, and
# inference that has begun.
_known: WeakKeyDictionary[GraphIndex, tuple[Types, Expressions]] = WeakKeyDictionary()
_onnx_known: WeakKeyDictionary[GraphIndex, Types] = WeakKeyDictionary()
_carried: WeakKeyDictionary[GraphIndex, tuple[Types, Expressions]] = WeakKeyDictionary()
_begun: WeakKeyDictionary[GraphIndex, tuple[bytes, bool]] = WeakKeyDictionary()
_DECLARED = "onnxsurgeon_lite.declared"
"""The domain of operators whose outputs have the types that they declare."""
_BROADCASTING = COMMUTATIVE | {
    "Sub", "Div", "Mod", "Pow", "Where", "MatMul", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
}  # fmt: skip
"""Operators that expand sizes of 1 to those of other inputs; of MatMul the last two axes are not among them."""
_NUMBERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT)


def infer_types(index: GraphIndex, outer: Expressions | None = None) -> tuple[Types, Expressions]:
    """Infer the type of every input, and of every value that a node of the main graph makes.

    Declared types are read only for inputs and for what operators of other domains make.

    Args:
        outer: what is known where a body's captured values come from.

    Returns:
        (types, the expressions in them). Types are to be read, not changed: equal ones are the same object.

    Raises:
        GraphError: the graph has a cycle, or a function calls itself.
    """
    index.require_sound()
    if outer is None and index in _known:
        types, expressions = _known[index]
        return types, expressions.copy()
    types, expressions = onnx_types(index), outer or Expressions()
    if index in _carried:  # what the model knew before the edit
        known, expressions = _carried[index]
        expressions = expressions.copy()
        types = types | {name: known[name] for name in known.keys() - _complete(types)}
    # ONNX's inference left something open
    if not index.producer.keys() | index.inputs.keys() <= _complete(types):
        types, expressions = _completed(index, types, expressions)
    # the steps of an edit look at each different type, again and again
    shared = dict[bytes, TypeProto]()
    types = {
        name: shared.setdefault(kind.SerializeToString(), kind)
        for name, kind in types.items()
        if name in index.producer or name in index.inputs
    }
    if outer is None:
        _known[index] = types, expressions
    return types, expressions.copy()


def carry_types(before: GraphIndex, after: GraphIndex) -> None:
    """Let an edited model know the inferred types of the values that are left: an edit gives none another meaning."""
    found = _known.get(before) or _carried.get(before)
    if found:
        types, expressions = found
        # an edit keeps the meaning of the values that it keeps
        known = after.producer.keys() | after.inputs.keys()
        kept = {name: types[name] for name in _complete(types) & known}
        _carried[after] = kept, expressions
        after.types.update(kept)


def onnx_types(index: GraphIndex) -> Types:
    """Infer types as ONNX does: every size in them is exact."""
    if index not in _onnx_known:
        _onnx_known[index] = _onnx_types(index)
    return _onnx_known[index]


def begin_types(index: GraphIndex) -> None:
    """Start to infer what `infer_types` will be asked for."""
    known = index in _onnx_known or index in _begun
    if not known and len(index.nodes) > FEW and not index.model.proto.functions:
        part, data_prop = _begun[index] = _undeclared(index)
        native.begin_infer(part, data_prop=data_prop)


def _onnx_types(index: GraphIndex) -> Types:
    part, data_prop = _begun.pop(index) if index in _begun else _undeclared(index)
    try:
        graph = GraphProto.FromString(native.infer_encoded(part, data_prop=data_prop))
    except RejectedError:
        return {}
    types = declared_types(graph, (INPUT, VALUE_INFO, OUTPUT))
    # the elements of a sequence have one type: different sizes in it are unknown
    sequences = [kind for kind in distinct(types).values() if kind.HasField("sequence_type")]
    for kind in sequences:
        native.open_sizes(kind)
    return _elements_apart(index, types) if sequences else types


def _elements_apart(index: GraphIndex, types: Types) -> Types:
    """Infer types anew where the elements of a sequence share an unknown size, which is another one in each."""
    opened = {}
    for position, row in enumerate(index.rows):
        inner = position in index.bodied
        if row.domain or not (
            inner or any(types[n].HasField("sequence_type") for n in row.needs if n in types)
        ):
            continue
        for name in row.outputs:
            if name in types and any(map(is_unknown, dims_of(types[name]))):
                opened[name] = copied(types[name])
                native.open_sizes(opened[name], names=True)
    return onnx_types(as_declared(index, opened)) if opened else types


def as_declared(index: GraphIndex, types: Types) -> GraphIndex:
    """Return a model in which inference takes these types for the outputs of some nodes."""
    model = index.model.copy()
    graph = model.graph
    for position in index.makers(types):
        # a domain without schemas: inference believes what is declared
        graph.node[position].domain = _DECLARED
    if not any(imported.domain == _DECLARED for imported in model.proto.opset_import):
        model.proto.opset_import.add(domain=_DECLARED, version=1)
    drop(graph.value_info, lambda info: info.name in types)
    declare_anew(graph, types, with_outputs=True)
    declare(graph, types)
    return GraphIndex.of(model)


def _undeclared(index: GraphIndex) -> tuple[bytes, bool]:
    """Return the structure without the types that inference is to find, and whether it has to propagate data."""
    # Values of other domains keep their types: nothing could infer them.
    foreign = set[str]()
    if index.table.domains != {""}:
        foreign.update(name for row in index.rows if row.domain for name in row.outputs)

    def forget(rest: GraphProto) -> None:
        for info in rest.output:
            if info.name not in foreign:
                info.ClearField("type")

    # propagating data doubles the time
    by_shape_alone = index.table.operators <= BY_SHAPE_ALONE | {"Constant"}
    part = serialized_part(index.model, None, forget, foreign.__contains__)
    return part, not by_shape_alone


def _completed(
    index: GraphIndex, types: Types, expressions: Expressions
) -> tuple[Types, Expressions]:
    """Resolve unknown sizes; from the start again where the model refuses numbers by which a size got a mere name."""
    inference = SizeInference(index.model.proto, 1)
    start = expressions.copy()
    while True:
        # the numbers that the model accepts are known better after each attempt
        attempt = _Resolving(index, types, start.copy(), inference)
        attempt.run()
        if not attempt.again:
            return attempt.types, attempt.expressions
        start.live = attempt.expressions.live


class _Resolving:
    """Replaces the sizes that ONNX's inference does not know.

    Attributes:
        types: as known so far.
        open: the values whose types were not complete; they have types of their own.
        made: what equal nodes make of equal inputs.
        named: a size has a name of its own because no expression fits it.
        again: since then there are fewer trials to fit, so one may.
    """

    def __init__(
        self, index: GraphIndex, types: Types, expressions: Expressions, inference: SizeInference
    ) -> None:
        self.index = index
        # values without a complete type
        self.open = set(types).union(index.producer) - _complete(types)
        self.types = types | {name: copied(types[name]) for name in self.open & types.keys()}
        self.expressions = expressions
        self.inference = inference
        self.named = self.again = False
        # `unk__7` -> its number or expression, wherever it appears again
        self.names = dict[str, int | str]()  # of onnx's unknown sizes
        self.data = dict[str, dict[int, Array]]()  # value -> trial -> its numbers
        self.initializers = by_name(index.model.structure().graph.initializer)
        self.constant = cache(self._constant)
        self.known = cache(self._known)
        self.made = dict[Hashable, _Made]()

    def run(self) -> None:
        for name in self.index.inputs:
            self._settle(name, [], None)  # the inputs' symbols first
        in_order = self.index.in_order
        # nodes that make open values
        open_at = set(self.index.makers(self.open))
        traced = self._unknown(in_order(open_at))
        # nodes that bring something new, and nodes that compute shapes for them
        makers = traced | self._shape_makers(traced)
        for position in in_order(open_at | makers):
            if position in makers:
                self._visit(position, position in traced)
            if self.again:
                return
            # sizes whose name was found at another node
            for name in self.open.intersection(self.index.rows[position].outputs):
                for dim in dims_of(self.types.get(name)):
                    if dim.dim_param in self.names:
                        _put(dim, self.names[dim.dim_param])

    def _unknown(self, positions: Iterable[int]) -> set[int]:
        """Return the nodes where a size appears that ONNX's inference does not know."""
        seen = set(self.names)
        found = set()
        for position in positions:
            for name in self.open.intersection(self.index.rows[position].outputs):
                kind = self.types.get(name)
                # the same unknown name further on needs no second look
                new = {dim.dim_param for dim in dims_of(kind) if is_unknown(dim)} - seen
                if kind is None or not has_shape(kind) or new:
                    found.add(position)
                    seen |= new - {""}
        return found

    def _shape_makers(self, traced: Set[int]) -> set[int]:
        """Return the nodes that compute the small integers which those nodes read."""
        found = set[int]()
        pending = list(traced)
        while pending:
            for name in self.index.reads[pending.pop()]:
                position = self.index.producer.get(name, -1)
                # small integers: what shapes are computed from
                if position >= 0 and position not in found and self._is_small(name):
                    found.add(position)
                    pending.append(position)
        return found

    def _is_small(self, name: str) -> bool:
        kind = self.types.get(name)
        if kind is None or not has_shape(kind):
            return True
        return kind.tensor_type.elem_type in _NUMBERS and len(dims_of(kind)) <= 1

    def _visit(self, position: int, is_traced: bool) -> None:
        """Infer a node at every trial that is left; equal nodes with equal inputs are inferred once."""
        node = self.index.nodes[position]
        key = node_key(node, tuple(map(self.known, node.input[:])))
        made = self.made.get(key)
        if made is None:  # as for the first of these nodes
            made = self.made[key] = self._at_trials(position)
        for name, (types, data) in zip(node.output[:], made, strict=True):
            if data is not None:
                self.data[name] = data
            if name and is_traced:
                self._settle(name, types, node)

    def _known(self, name: str) -> Hashable:
        """Return a key that is equal for values about which the same is known."""
        kind, tensor = self.types.get(name), self.constant(name) if name else None
        encoded = None if kind is None else kind.SerializeToString(deterministic=True)
        return (encoded, id(self.data.get(name))) if tensor is None else tensor.key

    def _at_trials(self, position: int) -> "_Made":
        """Infer a node at every trial that is left; trials that it alone refuses are none for the model."""
        live = self.expressions.live
        # small numbers first: a size may be the number of axes
        for trials in (live[-SMALLEST:], live):
            at = self._states(position, trials)
            if _rank_varies(at.values()):  # then nothing can be said of its axes
                return [([], None) for _ in self.index.nodes[position].output]
        # some trials are refused: the model does not accept these numbers
        if FEWEST <= len(at) < len(live):
            self.expressions.live = list(at)
            self.again |= self.named
        elif len(at) < len(live):  # of sizes that may have to be equal, onnx tells the rank
            at = self._states(position, live, sized=False)
            at = at if len(at) == len(live) else {}
        made: _Made = []
        for slot in range(len(self.index.nodes[position].output)):
            found = {trial: states[slot] for trial, states in at.items()}
            data = {t: state.data[0] for t, state in found.items() if state.data is not None}
            types = [(t, state.types[0]) for t, state in found.items()]
            made.append((types, data if data and len(data) == len(at) else None))
        return made

    def _states(
        self, position: int, trials: Sequence[int], sized: bool = True
    ) -> dict[int, list[State]]:
        """Return what a node makes at the trials whose inputs it takes, of symbols if not `sized`."""
        reads = self.index.reads[position]
        many = [{name: self._state(name, trial, sized) for name in reads} for trial in trials]
        found = self.inference.states_at(self.index.nodes[position], many)
        return {t: states for t, states in zip(trials, found, strict=True) if states is not None}

    def _state(self, name: str, trial: int, sized: bool) -> State:
        constant = self.constant(name)
        if constant is not None:  # the numbers of constants are known
            return constant
        kind = copied(self.types.get(name, TypeProto()))
        for dim in dims_of(kind):
            if sized and dim.dim_param and not is_unknown(dim):
                # the number of the symbol at this trial
                _put(dim, self.expressions.size(dim.dim_param)[trial])
        data = self.data.get(name, {}).get(trial)
        return State((kind,), None, None if data is None else (data,))

    def _constant(self, name: str) -> State | None:
        tensor = self.initializers.get(name)
        if tensor is None and name in self.index.producer:
            tensor = constant_of(self.index.nodes[self.index.producer[name]])
        if tensor is None or name in self.index.inputs:
            return None
        # few enough to compute with
        few = not is_external(tensor) and prod(tensor.dims) <= MOST_ELEMENTS
        array = dtypes.to_array(tensor) if few else None
        known = array is not None and array.dtype.kind in "iufb"
        return State(
            (tensor_type(tensor),), None, (array,) if array is not None and known else None
        )

    def _settle(
        self, name: str, at: Sequence[tuple[int, TypeProto]], node: NodeProto | None
    ) -> None:
        """Give a value's unknown sizes the expressions that fit what its node made at the trials."""
        kind = self.types.get(name)
        if (kind is None or not has_shape(kind)) and not self._take_rank(name, at):
            return
        for axis, dim in enumerate(dims_of(self.types[name])):
            if dim.dim_param and not is_unknown(dim):
                self.expressions.size(dim.dim_param)  # a name of the user's is a symbol
            if not is_unknown(dim):
                continue
            unknown = dim.dim_param
            text = self.names.get(unknown)
            if text is None:
                # The unknown size gets the expression that fits its numbers, the largest of broadcast sizes, or a
                # name of its own.
                size, own = _size(axis, at), f"{name}_dim{axis}"
                from_right = len(dims_of(self.types[name])) - axis
                among = self._among(node, from_right) if size is None and node else frozenset()
                text = self.expressions.joined(among, own) if among else self._text(size, own)
                self.named |= text == own and not among and node is not None
            _put(dim, text)
            if unknown:
                self.names[unknown] = text

    def _take_rank(self, name: str, at: Sequence[tuple[int, TypeProto]]) -> bool:
        """Give a value a type with its rank, if its node makes the same at every trial."""
        ranks = {len(dims_of(kind)) if has_shape(kind) else -1 for _, kind in at}
        if len(ranks) != 1 or -1 in ranks or not at[0][1].HasField("tensor_type"):
            return False
        self.types[name] = copied(at[0][1])
        for dim in dims_of(self.types[name]):
            if is_unknown(dim) or not dim.dim_param:
                dim.Clear()
        return True

    def _among(self, node: NodeProto, from_right: int) -> frozenset[str]:
        """Return the sizes that an axis has the largest of, all others being 1; none if they are not known."""
        least = 2 * (node.op_type == "MatMul")  # axes that are not expanded
        kinds = [self._state(name, 0, sized=False).types[0] for name in node.input]
        shapes = list(map(dims_of, kinds))
        known = all(map(has_shape, kinds)) and least < from_right
        if node.op_type not in _BROADCASTING or not is_standard(node) or not known:
            return frozenset()
        dims = [shape[-from_right] for shape in shapes if len(shape) >= from_right]
        # sizes of 1 are expanded to the others
        texts = frozenset(dim.dim_param for dim in dims if dim.dim_value != 1)
        unclear = "" in texts or any(map(is_unknown, dims)) or min(map(len, shapes)) < least
        return frozenset() if unclear else texts

    def _text(self, size: Size | None, name: str) -> int | str:
        """Return the number or expression of a size, else a new symbol."""
        text = None if size is None else self.expressions.text(size)
        return self.expressions.symbol(name, size) if text is None else text


def _rank_varies(at: Iterable[list[State]]) -> bool:
    """Return whether every output of a node has other numbers of axes at other trials."""
    known = [[len(dims_of(state.types[0])) for state in states] for states in at]
    return bool(known) and all(len(set(column)) > 1 for column in zip(*known, strict=True))


def _size(axis: int, at: Sequence[tuple[int, TypeProto]]) -> Size | None:
    """Return the size of an axis at the trials; None if one of them does not know it."""
    size = [0] * TRIALS
    for trial, kind in at:
        dims = dims_of(kind)
        if axis >= len(dims) or not dims[axis].HasField("dim_value"):
            return None
        size[trial] = dims[axis].dim_value
    return tuple(size) if at else None


def is_unknown(dim: TensorShapeProto.Dimension) -> bool:
    if dim.HasField("dim_value"):
        return bool(dim.dim_value < 0)  # some exporters write -1
    return not dim.dim_param or dim.dim_param.startswith(MADE_UP)


def _complete(types: Types) -> set[str]:
    """Return the values whose types have a shape, and no unknown size in it."""
    shaped = {key: dims_of(kind) for key, kind in distinct(types).items() if has_shape(kind)}
    # by identity: equal types are shared
    complete = {key for key, dims in shaped.items() if not any(map(is_unknown, dims))}
    return {name for name, kind in types.items() if id(kind) in complete}


def _put(dim: TensorShapeProto.Dimension, size: int | str) -> None:
    setattr(dim, "dim_value" if isinstance(size, int) else "dim_param", size)
