"""Resolve the targets of an edit: nodes in any body, one value, the readers of a value."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from onnx import GraphProto, NodeProto, TensorProto, TypeProto

from onnxsurgeon_lite import names
from onnxsurgeon_lite.errors import AmbiguousNameError, EditError, GraphError, UnknownNameError
from onnxsurgeon_lite.graph import GraphIndex, Schema, allowed_types, allows, schema_of, variable_at
from onnxsurgeon_lite.graph.selecting.select import (
    select_node,
    select_nodes,
    select_values,
    split_names,
)
from onnxsurgeon_lite.names import glob, is_count, is_glob
from onnxsurgeon_lite.surgery import (
    Numbers,
    Taken,
    data_type_for,
    data_type_named,
    fresh,
    make_tensor,
    read_numbers,
)


def chosen_nodes(index: GraphIndex, selectors: Iterable[str]) -> dict[str, NodeProto]:
    """Return id -> selected node; ids of nodes in bodies and functions (`@12/then_branch/@3`) included."""
    found = dict[str, NodeProto]()
    for selector in split_names(index, selectors):
        # "@12/then_branch/@3" -> "@12/then_branch", "3"
        path, inside, number = selector.rpartition("/@")
        if inside and is_count(number):
            body = next((body for body in index.inner_bodies if body.path == path), None)
            nodes = list(body.nodes) if body is not None else []
            if int(number) < len(nodes):
                found[selector] = nodes[int(number)]
                continue
            if body is not None:
                known = [body.node_id(place) for place in range(len(nodes))]
                raise UnknownNameError(selector, f"body {path!r}", known, kind="node")
        for position in select_nodes(index, selector):
            found[index.node_id(position)] = index.nodes[position]
    return found


def one_value(index: GraphIndex, selector: str, notes: list[str]) -> str:
    """Return the value of the main graph that a selector means; notes of the selection go to `notes`."""
    # `listed` escapes commas: one selector
    selection = select_values(index, [names.listed([selector])])
    notes += selection.notes
    if len(selection.names) != 1:
        raise AmbiguousNameError(selector, selection.names)
    return selection.names[0]


def readers(index: GraphIndex, value: str, selectors: Iterable[str]) -> list[int]:
    """Return the readers of a value: the selected ones, or all."""
    reading = index.readers([value])[value]
    # each node once, in the order asked for
    chosen = list(dict.fromkeys(select_node(index, s) for s in split_names(index, selectors)))
    for position in chosen:
        if position not in reading:
            who = ", ".join(map(index.describe, reading[:6])) or "no node"
            raise EditError(
                f"{index.describe(position)} does not read {value!r}", f"it is read by {who}"
            )
    return chosen or reading


def ends(
    index: GraphIndex, selectors: Iterable[str], known: Collection[str], kind: str
) -> list[str]:
    """Return the inputs or outputs that are named; a glob means all that match it.

    Raises:
        UnknownNameError: the model has no such input or output.
    """
    found = list[str]()
    for selector in split_names(index, selectors):
        # a name that has `*` itself is that name
        matching = [selector] if selector in known else []
        if not matching and is_glob(selector):
            matching = list(filter(glob(selector), known))
        if not matching:
            raise UnknownNameError(selector, "the model", known, kind=kind)
        found += matching
    return found


def initializer_place(graph: GraphProto, value: str) -> int:
    """Return the position of the only initializer of a name; raises `GraphError` if there are several."""
    places = [place for place, tensor in enumerate(graph.initializer) if tensor.name == value]
    if len(places) > 1:
        raise GraphError(
            f"value {value!r} has {len(places)} initializers",
            "keep the last, which runtimes use: onnxdbg edit fix MODEL",
        )
    return places[0]


@dataclass
class Operands:
    """The inputs of a node that is to be made.

    Attributes:
        names: values, new constants among them; '' omits one.
        numbers: new constant -> its numbers.
    """

    names: list[str] = field(default_factory=list)
    numbers: dict[str, Numbers] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        index: GraphIndex,
        texts: Iterable[str],
        base: str,
        taken: Taken,
        notes: list[str],
        constants: Iterable[tuple[str, Numbers]] = (),
    ) -> "Operands":
        """Read what a user wrote: values of the main graph, or numbers if no value has such a name.

        Args:
            base: what the names of new constants begin with.
            taken: the names of values; new ones are added.
            constants: new ones that the texts may name; all of them where there is no text.
        """
        # name in the texts -> (its name in the graph, its numbers)
        made = {name: (fresh(name, taken), numbers) for name, numbers in constants}
        found = cls(numbers=dict(made.values()))
        texts = list(texts)
        if not texts:
            found.names += found.numbers
        for text in texts:
            whole = literal(index, text)
            # "[1, 2]" is a list of numbers; "a, b" are two names
            parts = [text] if whole is not None else split_names(index, [text]) or [""]
            for part in parts:
                # '' is an omitted input
                numbers = literal(index, part) if part else None
                if numbers is not None:
                    name = fresh(f"{base}_constant", taken)
                    found.numbers[name] = numbers
                elif part in made:
                    name = made[part][0]
                else:
                    name = one_value(index, part, notes) if part else ""
                found.names.append(name)
        return found

    def tensors(self, index: GraphIndex, node: NodeProto) -> Iterator[TensorProto]:
        """Yield the new constants, in the dtypes that a node needs.

        Raises:
            EditError: a dtype cannot represent the numbers.
        """
        if not self.numbers:
            return
        schema = schema_of(index, node)
        others = {name: index.type_of(name) for name in node.input if name in index}
        for slot, name in enumerate(node.input):
            if name in self.numbers:
                value = self.numbers[name]
                yield make_tensor(
                    name, value, data_type_of_operand(schema, node, slot, others, value)
                )


def literal(index: GraphIndex, text: str) -> Numbers | None:
    """Return the numbers that a text says; None if it is a name."""
    if text in index:
        return None
    numbers = read_numbers(text)
    return None if isinstance(numbers, str) else numbers


def data_type_of_operand(
    schema: Schema | None,
    node: NodeProto,
    slot: int,
    others: Mapping[str, TypeProto | None],
    value: Numbers,
) -> int:
    """Return the dtype of an operand: that of the operands of the same type, else one that the operator takes."""
    # what the numbers are by themselves: float, or int64
    own = data_type_for(node.input[slot], value)
    # an unknown operator: like its first operand with a type
    if schema is None:
        known = [kind.tensor_type.elem_type for kind in others.values() if kind is not None]
        return known[0] if known else own

    if slot >= schema.max_input:
        raise EditError(f"{node.op_type} takes {schema.max_input} inputs", "give fewer")
    variable = variable_at(schema.inputs, slot)
    # an operand of the same type variable decides
    for place, name in enumerate(node.input):
        kind = others.get(name)
        if kind is not None and variable_at(schema.inputs, place) == variable:
            return int(kind.tensor_type.elem_type)
    # else the dtype of the numbers, if the operator takes it, or the first that it takes
    allowed = allowed_types(schema, variable)
    if allows(schema, variable, own) or not allowed:
        return own
    return data_type_named(allowed[0].removeprefix("tensor(").removesuffix(")"))
