"""Declare the type of every value."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from onnx import GraphProto, TypeProto

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    bodies_below,
    check_node,
    has_shape,
    require_schemas,
    type_text,
)
from onnxsurgeon_lite.model import Model, by_name, declare
from onnxsurgeon_lite.names import few
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import contradicts, distinct
from onnxsurgeon_lite.surgery.symbolic.expressions import Expressions
from onnxsurgeon_lite.surgery.symbolic.shapes import (
    as_declared,
    begin_types,
    infer_types,
    is_unknown,
)

_CHECKED = 50  # nodes


@dataclass(frozen=True)
class Infer:
    """Declare the type of every value, with sizes in the symbols of the inputs (`4*seq`); in bodies too.

    What is declared already stays where it says more, and what follows is inferred from it; a declared type that cannot
    be right is replaced, except an output's. Values in functions have the types of their calls, so none is declared.
    What an operator refuses is noted. No weight is read.

    Example:
        >>> osl.infer("detector.onnx").changes
        ('declared 6 values',)
    """

    name: ClassVar[str] = "infer"

    def apply(self, model: Model) -> PassResult:
        """Declare them.

        Raises:
            GraphError: the graph has a cycle, or a function calls itself.
            EditError: a node lacks what its operator takes.
        """
        index = GraphIndex.of(model)
        begin_types(index)
        require_schemas(index)
        return self.edit(index)

    def edit(self, index: GraphIndex) -> PassResult:
        """Declare the types of an indexed model."""
        model = index.model
        result = index.model.copy()
        declaring = _Declaring()
        declaring.graph(index, result.graph, None)
        changes = [
            f"{what} {count} values"
            for what, count in (("declared", declaring.added), ("completed", declaring.completed))
            if count
        ]
        return PassResult.of(model, result, changes, declaring.notes())


def _inferred(
    index: GraphIndex, outer: Expressions | None
) -> tuple[dict[str, TypeProto], Expressions]:
    """Infer the types of a graph, from declared shapes, too, where none can be inferred."""
    graph = index.graph
    # declared shapes, used only where inference gives none
    declared = {info.name: info.type for info in graph.value_info if has_shape(info.type)}
    while True:
        types, expressions = infer_types(index, outer and outer.copy())
        unknown = index.producer.keys() - {n for n, kind in types.items() if has_shape(kind)}
        # what reads unknown values may follow once those are taken
        makers = {name: index.rows[index.producer[name]] for name in declared.keys() & unknown}
        taken = {
            name: declared.pop(name)
            # the nearest to the inputs first
            for name, row in makers.items()
            if unknown.isdisjoint(row.needs)
        }
        if not taken:
            return types, expressions
        index = as_declared(index, taken)


def _refused(index: GraphIndex, untyped: list[str]) -> Iterator[str]:
    """Yield why nodes have no type although what they read has one: their operators refuse it."""
    unknown = set(untyped)
    # nodes whose outputs have no type, each once
    first = (p for p in dict.fromkeys(map(index.producer.get, untyped)) if p is not None)
    for position in islice(first, _CHECKED):
        # its inputs have types, so it is the first of a chain
        if unknown.isdisjoint(index.rows[position].needs):
            try:
                check_node(index, index.nodes[position], index.describe(position))
            except SurgeonError as error:
                yield error.message


class _Declaring:
    """Writes types into graphs, and counts."""

    def __init__(self) -> None:
        self.added = self.completed = 0
        self.untyped = list[str]()
        self.wrong = list[str]()

    def graph(self, index: GraphIndex, graph: GraphProto, outer: Expressions | None) -> None:
        """Declare the values of a graph and of its bodies."""
        types, expressions = _inferred(index, outer)
        self._declare(graph, {name: types[name] for name in index.producer if name in types})
        # ids of types with a shape: values share few types
        shaped = {key for key, kind in distinct(types).items() if has_shape(kind)}
        untyped = [name for name in index.producer if id(types.get(name)) not in shaped]
        # for the checks, and for the bodies
        index.types.update(types)
        self.wrong += _refused(index, untyped)
        self.untyped += untyped
        for _, body, inner in bodies_below(index, graph):
            self.graph(inner, body, expressions.copy())

    def _declare(self, graph: GraphProto, types: dict[str, TypeProto]) -> None:
        outputs = {info.name for info in graph.output}
        declared = by_name(graph.value_info[:] + graph.output[:])
        new = dict[str, TypeProto]()
        for name, kind in types.items():
            info = declared.get(name)
            # not declared; declared wrongly; declared, but not completely
            if info is None:
                new[name] = kind
            elif contradicts(info.type, kind):
                stays = ": kept, as an output" if name in outputs else ""
                self.wrong.append(
                    f"{name!r} was declared {type_text(info.type)}, it is {type_text(kind)}{stays}"
                )
                if not stays:
                    info.type.CopyFrom(kind)
            else:
                self.completed += _complete(info.type, kind, name in outputs)
        declare(graph, new)
        self.added += len(new)

    def notes(self) -> Iterator[str]:
        yield from self.wrong
        if self.untyped:
            count = len(self.untyped)
            yield f"no shape is known for {count} values: {few(self.untyped)}"


def _complete(declared: TypeProto, inferred: TypeProto, is_output: bool) -> bool:
    """Add, in place, what a declared type lacks; return whether it lacked something; an output's named sizes stay."""
    if not declared.HasField("tensor_type") or not inferred.HasField("tensor_type"):
        lacks = declared.WhichOneof("value") is None
        if lacks:
            declared.CopyFrom(inferred)
        return lacks
    before = declared.SerializeToString()
    if not declared.tensor_type.elem_type:
        declared.tensor_type.elem_type = inferred.tensor_type.elem_type
    if not declared.tensor_type.HasField("shape") and has_shape(inferred):
        declared.tensor_type.shape.CopyFrom(inferred.tensor_type.shape)
    pairs = zip(declared.tensor_type.shape.dim, inferred.tensor_type.shape.dim, strict=False)
    # a size without a number or name takes what is inferred; a name gives way to a number
    for dim, known in pairs:
        if is_unknown(dim) or (dim.dim_param and known.HasField("dim_value") and not is_output):
            dim.CopyFrom(known)
    return bool(before != declared.SerializeToString())
