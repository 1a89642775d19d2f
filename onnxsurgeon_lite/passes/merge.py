"""Merge two models into one."""

import dataclasses
from collections.abc import Iterable, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from onnxsurgeon_lite.errors import EditError, SurgeonError, UnknownNameError
from onnxsurgeon_lite.graph.index import GraphIndex, call_key, function_key, opset_versions
from onnxsurgeon_lite.graph.table import plain_domain
from onnxsurgeon_lite.graph.text import shape_text
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.model.messages import drop
from onnxsurgeon_lite.model.wire import unknown_fields
from onnxsurgeon_lite.names import command, split
from onnxsurgeon_lite.passes.opset import Opset
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.runtime.feeds import required_inputs
from onnxsurgeon_lite.surgery.edits import (
    clear_bodies,
    defined,
    fresh,
    has_bodies,
    inner_names,
    rename_values,
)
from onnxsurgeon_lite.surgery.types import contradicts
from onnxsurgeon_lite.tensors import dtypes

_DOMAIN = ("", "ai.onnx")
_REPEATED = ("node", "input", "output", "initializer", "sparse_initializer", "value_info")


def merge(
    first: Model,
    second: Model,
    links: Sequence[tuple[str, str]] = (),
    share: Sequence[str] = (),
    prefix: str = "",
) -> PassResult:
    """Merge two models into one graph, the second's nodes after the first's.

    Names and functions of the second that clash with the first get a number; equal functions are shared.

    Args:
        links: (value of the first, input of the second that it feeds) pairs; a linked output stops being an output.
        share: inputs of both that become one.
        prefix: prefix for every name of the second that is not in `links` or `share`.

    Raises:
        UnknownNameError: a model has no such linked value or shared input.
        EditError: the opsets or types do not fit, or an input name of both is not shared.
    """
    notes: list[str] = []
    first, second = one_opset(first, second, notes)
    before, other = GraphIndex.of(first), GraphIndex.of(second)
    share = split(share, other.inputs)
    _check(before, other, links, share)
    incoming = {name: value for value, name in links} | {name: name for name in share}
    result, guest = first.copy(), second.copy()
    make_room(result, guest, incoming, prefix, notes)
    rename_functions(result.proto, guest.proto, notes)
    result.files.update(distinct_places(result, guest))
    add_graph(result.proto.graph, guest.proto.graph, {value for value, _ in links})
    add_model(result.proto, guest.proto)
    GraphIndex.of(result).require_sound()
    changes = [f"linked {value!r} to input {name!r}" for value, name in links]
    changes += (f"input {name!r} is shared" for name in share)
    changes.append(
        f"added the {len(guest.proto.graph.node)} nodes of graph {second.proto.graph.name!r}"
    )
    return PassResult.of(first, result, changes, notes)


def same_names(first: Model, second: Model) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the links and the shared inputs that equal names mean: outputs that are inputs, inputs of both."""
    outputs, inputs = (
        {value.name for value in values}
        for values in (first.proto.graph.output, first.proto.graph.input)
    )
    asked = list(required_inputs(GraphIndex.of(second)))
    links = [(name, name) for name in asked if name in outputs]
    return links, [name for name in asked if name in inputs - outputs]


def one_opset(first: Model, second: Model, notes: list[str]) -> tuple[Model, Model]:
    """Bring both models to one ONNX opset by converting the older; other domains must have equal versions."""
    one, two = ({o.domain: o.version for o in m.proto.opset_import} for m in (first, second))
    for domain in one.keys() & two.keys() - set(_DOMAIN):
        if one[domain] != two[domain]:
            raise EditError(
                f"the models import versions {one[domain]} and {two[domain]} of domain {domain!r}",
                "export both with one version of this domain",
            )
    versions = [next((v[d] for d in _DOMAIN if d in v), 0) for v in (one, two)]
    if not all(versions) or versions[0] == versions[1]:
        return first, second
    older = first if versions[0] < versions[1] else second
    try:
        converted = Opset(max(versions)).apply(older)
    except SurgeonError as error:
        raise EditError(
            f"the models have opsets {versions[0]} and {versions[1]}; the older cannot be converted: "
            f"{error.message}",
            "export both with one opset version",
        ) from error
    name = older.proto.graph.name
    notes += (f"graph {name!r}: {text}" for text in (*converted.changes, *converted.notes))
    return (converted.model, second) if older is first else (first, converted.model)


def require_fit(before: GraphIndex, value: str, other: GraphIndex, name: str) -> None:
    """Raise `EditError` if a value's type does not fit another graph's input."""
    one, two = before.type_of(value), other.type_of(name)
    if one is not None and two is not None and contradicts(one, two):
        raise EditError(
            f"value {value!r} {_text(one)} does not fit input {name!r} {_text(two)}",
            "see both with: onnxdbg inspect MODEL --value NAME",
        )


def _text(kind: TypeProto) -> str:
    if not kind.HasField("tensor_type"):
        return shape_text(kind)
    return f"{dtypes.dtype_name(kind.tensor_type.elem_type)} {shape_text(kind)}"


def _check(
    before: GraphIndex, other: GraphIndex, links: Iterable[tuple[str, str]], share: Iterable[str]
) -> None:
    taken: set[str] = set()
    for value, name in (*links, *((name, name) for name in share)):
        before.require(value)
        if name not in other.inputs:
            raise UnknownNameError(name, f"graph {other.graph.name!r}", other.inputs, kind="input")
        if name in taken:
            raise EditError(f"input {name!r} is linked or shared twice", "link or share it once")
        taken.add(name)
        require_fit(before, value, other, name)
    for name in share:
        if name not in before.inputs:
            raise UnknownNameError(
                name, f"graph {before.graph.name!r}", before.inputs, kind="input"
            )


def make_room(
    result: Model, guest: Model, incoming: dict[str, str], prefix: str, notes: list[str]
) -> None:
    """Rename values and nodes of the guest that clash with the first model."""
    graph = guest.proto.graph
    names = dict(incoming)
    own, theirs = (dict.fromkeys(defined(model.proto.graph)) for model in (result, guest))
    results = (value.name for value in result.proto.graph.output)
    taken = inner_names(result.proto, result.proto.graph.node).union(
        own, results, incoming.values()
    )
    if prefix:
        names = {n: prefix + n for n in theirs if n not in incoming} | names
    both = [
        v.name for v in graph.input if names.get(v.name, v.name) in taken and v.name not in incoming
    ]
    if both:
        shown = ", ".join(map(repr, both))
        raise EditError(
            f"input {shown} of graph {graph.name!r} has the name of a value of the first model",
            f"share it ({command('--share', both[0])}), link it (--map), or rename the second's values (--prefix)",
        )
    clashes = [name for name in theirs if name not in incoming and names.get(name, name) in taken]
    taken |= inner_names(guest.proto, guest.proto.graph.node).union(
        theirs, (value.name for value in graph.output)
    )
    for name in clashes:
        names[name] = fresh(names.get(name, name), taken)
    renamed = [value.name for value in graph.output if value.name in clashes]
    notes += (
        f"renamed output {n!r} of graph {graph.name!r} to {names[n]!r}: the name was taken"
        for n in renamed
    )
    if len(clashes) > len(renamed):
        inner = len(clashes) - len(renamed)
        notes.append(
            f"renamed {inner} inner values of graph {graph.name!r}: their names were taken"
        )
    clear_bodies(graph.node, own)
    # the first model declares and provides incoming values
    for kind in (graph.input, graph.initializer, graph.value_info):
        drop(kind, lambda message: message.name in incoming)
    rename_values(guest.proto, graph, names)
    if has_bodies(result.proto.graph.node):
        clear_bodies(result.proto.graph.node, set(defined(graph)))
    _name_nodes(graph.node, prefix, {node.name for node in result.proto.graph.node})


def _name_nodes(nodes: Iterable[NodeProto], prefix: str, taken: set[str]) -> None:
    for node in nodes:
        name = node.name
        if name and (prefix or name in taken):
            node.name = fresh(prefix + name, taken)


def rename_functions(result: ModelProto, guest: ModelProto, notes: list[str]) -> None:
    """Drop functions of the guest that the first model has too; rename those that differ but share a name."""
    known = {function_key(function): function for function in result.functions}
    taken = {function.name for proto in (result, guest) for function in proto.functions}
    names = {}
    for place in range(len(guest.functions) - 1, -1, -1):
        function = guest.functions[place]
        key = function_key(function)
        if known.get(key) == function:
            del guest.functions[place]
        elif key in known:
            names[key] = fresh(function.name, taken)
            notes.append(
                f"renamed function {function.name!r} of graph {guest.graph.name!r} to {names[key]!r}"
            )
            function.name = names[key]
    for node in _all_nodes(guest) if names else ():
        node.op_type = names.get(call_key(node), node.op_type)


def _all_nodes(proto: ModelProto) -> Iterable[NodeProto]:
    for graph in walk.graphs(proto):
        yield from graph.node
    for function in proto.functions:
        yield from function.node


def distinct_places(result: Model, guest: Model) -> Iterable[tuple[str, DataFile]]:
    """Yield the guest's data files, renamed where both models would save to one place."""
    taken = {file.location for file in result.files.values()}
    for key, file in guest.files.items():
        if key in result.files:
            continue
        location = file.location
        number = 1
        while location is not None and location in taken:
            location, number = f"{number}.{file.location}", number + 1
        taken.add(location)
        yield key, dataclasses.replace(file, location=location)


def add_graph(graph: GraphProto, guest: GraphProto, linked: set[str]) -> None:
    drop(graph.output, lambda value: value.name in linked)
    annotated = {annotation.tensor_name for annotation in graph.quantization_annotation}
    graph.quantization_annotation.extend(
        a for a in guest.quantization_annotation if a.tensor_name not in annotated
    )
    for field in _REPEATED:
        getattr(graph, field).extend(getattr(guest, field))
    _add_notes(graph, guest, guest.name)
    graph.MergeFromString(unknown_fields(guest))


def add_model(proto: ModelProto, guest: ModelProto) -> None:
    imported = opset_versions(proto.opset_import)
    proto.opset_import.extend(
        o for o in guest.opset_import if plain_domain(o.domain) not in imported
    )
    proto.ir_version = max(proto.ir_version, guest.ir_version)
    proto.functions.extend(guest.functions)
    proto.training_info.extend(guest.training_info)
    _add_notes(proto, guest, guest.graph.name)
    proto.MergeFromString(unknown_fields(guest))


def _add_notes(target: ModelProto | GraphProto, source: ModelProto | GraphProto, name: str) -> None:
    """Merge metadata and doc strings; a clashing key gets the graph's name as prefix."""
    known = {entry.key: entry.value for entry in target.metadata_props}
    for entry in source.metadata_props:
        if known.get(entry.key) != entry.value:
            key = f"{name}.{entry.key}" if entry.key in known else entry.key
            target.metadata_props.add(key=key, value=entry.value)
    if source.doc_string and source.doc_string != target.doc_string:
        target.doc_string = "\n".join(filter(None, (target.doc_string, source.doc_string)))
