"""Merge two models into one."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from onnxsurgeon_lite.errors import EditError, SurgeonError, require_known
from onnxsurgeon_lite.graph import GraphIndex, opset_versions, type_text
from onnxsurgeon_lite.model import (
    Model,
    call_key,
    drop,
    entries,
    function_key,
    plain_domain,
    unknown_fields,
    walk,
)
from onnxsurgeon_lite.model.datafile import DataFile
from onnxsurgeon_lite.names import command, counted, key_text, listed, split
from onnxsurgeon_lite.passes.dedupe import content
from onnxsurgeon_lite.passes.inverse import UNREADABLE
from onnxsurgeon_lite.passes.opset import Opset, not_run
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.search.grouping import groups
from onnxsurgeon_lite.surgery import clear_bodies, contradicts, defined, fresh, rename_values
from onnxsurgeon_lite.surgery.edits import has_bodies, inner_names

WHOLE = "onnxdbg.split"  # a part's metadata: the interface of the model that it was split from
_REPEATED = ("node", "input", "output", "initializer", "sparse_initializer", "value_info")


def merge(
    first: Model,
    second: Model,
    links: Sequence[tuple[str, str]] = (),
    share: Sequence[str] = (),
    prefix: str = "",
    keep: Sequence[str] = (),
    by_name: bool = False,
) -> PassResult:
    """Merge two models into one graph, the second's nodes after the first's.

    Names and functions of the second that clash with the first get a number; equal functions are shared.

    Args:
        links: (value of the first, input of the second that it feeds) pairs; a linked output stops being an output.
        share: inputs of both that become one.
        prefix: prefix for every name of the second that is not in `links` or `share`.
        keep: linked outputs that stay outputs.
        by_name: constants that both have under one name, and what both compute from these alone, become one.

    Raises:
        UnknownNameError: a model has no such linked value or shared input.
        EditError: the opsets or types do not fit, or an input name of both is not shared.
    """
    notes = list[str]()
    first, second = one_opset(first, second, notes)
    before, other = GraphIndex.of(first), GraphIndex.of(second)
    share = split(share, other.inputs)
    _check(before, other, links, share)
    # name in the second -> value of the first that takes its place
    incoming = {name: value for value, name in links} | {name: name for name in share}
    result, guest = first.copy(), second.copy()
    if by_name:
        same = set(_common(before, other))
        incoming |= {name: name for name in same if name not in incoming}
        # what both compute alike, the first keeps
        drop(guest.graph.node, lambda node: not same.isdisjoint(node.output))
        drop(guest.graph.output, lambda value: value.name in before.outputs.keys() & same)
    linked = {value for value, _ in links}.difference(keep)
    add_guest(result, guest, incoming, linked, notes, prefix)
    GraphIndex.of(result).require_sound()
    changes = [f"linked {value!r} to input {name!r}" for value, name in links]
    changes += (f"input {name!r} is shared" for name in share)
    changes.append(
        f"added the {counted(len(guest.graph.node), 'node')} of graph {second.graph.name!r}"
    )
    return PassResult.of(first, result, changes, notes)


def merge_all(
    models: Sequence[Model],
    links: Iterable[tuple[str, str]],
    share: Iterable[str],
    prefixes: Sequence[str],
    by_name: bool,
    keep: Iterable[str],
) -> PassResult:
    """Merge several models, each with all before it.

    1. Several links of one input feed it in one model after another; the last feeds it in all further ones.
    2. By name, models come after those whose outputs they read, and an output feeds every input of its name.
    3. The parts of a split model give its outputs, inputs and declarations in the order that they had.

    Raises:
        UnknownNameError: a link, shared input or kept output that no model has.
        EditError: see `merge`.
    """
    # parts are put into an order in which each reads only outputs before it
    if by_name and not any(prefixes):
        models = _runnable(models)
    whole = next(filter(None, map(_whole, models)), {})
    # outputs that somebody may want to keep or share
    before = list(chain.from_iterable(_names(model.graph.output) for model in models))
    asked = list(chain.from_iterable(_names(model.graph.input) for model in models[1:]))
    share, keep = split(share, set(asked)), split(keep, set(before))
    require_known(share, asked, "the models", "input")
    require_known(keep, before, "the models", "output")
    # input -> the values that feed it, one for each model that has the input
    waiting = groups((name, value) for value, name in links)
    merged = models[0]
    notes = list[str]()
    changes = list[str]()
    made = set(_names(merged.graph.output))
    for guest, prefix in zip(models[1:], chain(prefixes, [""] * len(models)), strict=False):
        inputs = set(_names(guest.graph.input))
        # the last model gets links of inputs that none has, so that `merge` names them
        if guest is models[-1]:
            inputs |= waiting.keys() - set(asked)  # which `merge` says that it has not
        # the last of several links feeds all further models
        linked = {n: v.pop(0) if len(v) > 1 else v[0] for n, v in waiting.items() if n in inputs}
        shared = [name for name in share if name in inputs]
        if by_name:
            free = [n for n in GraphIndex.of(guest).required_inputs if n not in linked]
            # by name: an output feeds, an input that both have is shared
            linked |= {name: name for name in free if name in made}
            shared += [n for n in _names(merged.graph.input) if n in free and n not in shared]
            if not (linked or shared or whole):
                name = guest.graph.name
                notes.append(f"graph {name!r} has no name in common: nothing is linked by name")
        pairs = [(value, name) for name, value in linked.items()]
        kept = list(keep) + whole.get("outputs", [])
        result = merge(merged, guest, pairs, shared, prefix, kept, by_name)
        made.update(_names(guest.graph.output))
        notes += result.notes
        changes += result.changes
        merged = result.model
    # outputs that links used up
    gone = _restore(merged, whole, dict.fromkeys(before))
    return PassResult(merged, True, (*notes, *no_outputs(gone)), tuple(changes))


def no_outputs(gone: Sequence[str]) -> Iterator[str]:
    """Yield a note that names linked outputs which are no longer outputs."""
    if gone:
        yield f"linked, and no output any more: {listed(gone)}; {command('--keep', *gone[:1])} keeps one"


def _names(values: Iterable[ValueInfoProto]) -> Iterator[str]:
    return (value.name for value in values)


def _runnable(models: Sequence[Model]) -> list[Model]:
    """Put models after those whose outputs they read, otherwise as they are given."""
    made = dict[str, int]()
    for place, model in enumerate(models):
        for name in _names(model.graph.output):
            # of several models that make a value, the first counts
            made.setdefault(name, place)
    needs = {
        place: {made.get(name, place) for name in _names(model.graph.input)} - {place}
        for place, model in enumerate(models)
    }
    return [models[place] for place in in_order(needs)]


def in_order(needs: Mapping[int, set[int]]) -> list[int]:
    """Put places after those that they need, otherwise as they are given."""
    left = dict.fromkeys(needs)
    ordered = list[int]()
    while left:
        # in a circle, the first one that is left
        ordered.append(next((p for p in left if not needs[p] & left.keys()), next(iter(left))))
        del left[ordered[-1]]
    return ordered


def _whole(model: Model) -> dict[str, list[str]]:
    """Return what a part says about the model that it was split from."""
    try:
        found = json.loads(entries(model.proto.metadata_props)[WHOLE])
        return {key: list(map(str, found[key])) for key in ("inputs", "outputs", "undeclared")}
    except UNREADABLE:
        return {}


def _restore(merged: Model, whole: Mapping[str, list[str]], outputs: Iterable[str]) -> list[str]:
    """Order inputs and outputs as in the model that was split; return the outputs that are none now."""
    graph = merged.graph
    ends = set(_names(chain(graph.input, graph.output)))
    # outputs that are values still
    made = ends.union(*(node.output for node in graph.node))
    gone = [name for name in outputs if name in made - ends]
    if not whole:
        return gone
    places = {name: n for n, name in enumerate(chain(whole["inputs"], whole["outputs"]))}
    for values in (graph.input, graph.output):
        values.sort(key=lambda value: places.get(value.name, len(places)))
    # all ends are there: the model is whole again
    if ends.issuperset(places):
        drop(graph.value_info, lambda info: info.name in whole["undeclared"])
        drop(merged.proto.metadata_props, lambda entry: entry.key == WHOLE)
    return []


def _common(one: GraphIndex, two: GraphIndex) -> Iterator[str]:
    """Yield constants that two models have under one name, and values that equal nodes compute from these alone."""
    found = set[str]()
    for name, tensor in two.initializers.items():
        mine = one.initializers.get(name)
        # constants of one name and content; both inputs with a default, or neither
        if mine is not None and (name in one.inputs) == (name in two.inputs):
            if isinstance(mine, TensorProto) and isinstance(tensor, TensorProto):
                equal = content(one.model, mine) == content(two.model, tensor)
            else:
                equal = mine == tensor
            found |= {name} if equal else set()
    for place in two.order:
        # then equal nodes that read such values only
        node = two.nodes[place]
        twin = one.producer.get(node.output[0]) if node.output else None
        if twin is not None and one.nodes[twin] == node and found.issuperset(two.reads[place]):
            found.update(filter(None, node.output))
    yield from found


def one_opset(first: Model, second: Model, notes: list[str]) -> tuple[Model, Model]:
    """Bring both models to one ONNX opset by converting the older; other domains must have equal versions."""
    one, two = (opset_versions(model.proto.opset_import) for model in (first, second))
    for domain in one.keys() & two.keys() - {""}:
        if one[domain] != two[domain]:
            raise EditError(
                f"the models import versions {one[domain]} and {two[domain]} of domain {domain!r}",
                "export both with one version of this domain",
            )
    versions = one.get("", 0), two.get("", 0)
    if not all(versions) or versions[0] == versions[1]:
        return first, second
    # the older is converted up
    older = first if versions[0] < versions[1] else second
    try:
        converted = Opset(max(versions)).apply(older)
    except SurgeonError as error:
        raise EditError(
            f"the models have opsets {versions[0]} and {versions[1]}; the older cannot be converted: "
            f"{error.message}",
            "export both with one opset version",
        ) from error
    name = older.graph.name
    told = converted.changes + converted.notes + not_run(converted)
    notes += (f"graph {name!r}: {text}" for text in told)
    return (converted.model, second) if older is first else (first, converted.model)


def require_fit(before: GraphIndex, value: str, other: GraphIndex, name: str) -> None:
    """Raise `EditError` if a value's type does not fit another graph's input."""
    one = before.type_of(value)
    two = other.type_of(name)
    if one is not None and two is not None and contradicts(one, two):
        raise EditError(
            f"value {value!r} {type_text(one)} does not fit input {name!r} {type_text(two)}",
            "see both with: onnxdbg inspect MODEL --value NAME",
        )


def _check(
    before: GraphIndex, other: GraphIndex, links: Iterable[tuple[str, str]], share: Iterable[str]
) -> None:
    taken = set[str]()
    for value, name in (*links, *((name, name) for name in share)):
        before.require(value)
        require_known([name], other.inputs, f"graph {other.graph.name!r}", "input")
        if name in taken:
            raise EditError(f"input {name!r} is linked or shared twice", "link or share it once")
        taken.add(name)
        require_fit(before, value, other, name)
    for name in share:
        if name not in before.inputs:
            raise EditError(
                f"value {name!r} of graph {before.graph.name!r} is no input that can be shared",
                f"link it: {command('--map', f'{key_text(name)}={name}')}",
            )


def add_guest(
    result: Model,
    guest: Model,
    incoming: dict[str, str],
    linked: set[str],
    notes: list[str],
    prefix: str = "",
) -> None:
    """Add another model, in place; the guest is used up.

    Args:
        incoming: name in the guest -> value of the first model that takes its place.
        linked: outputs of the first model that are inner values then.
    """
    _make_room(result, guest, incoming, prefix, notes)
    _rename_functions(result.proto, guest.proto, notes)
    result.files.update(_distinct_places(result, guest))
    _add_graph(result.graph, guest.graph, linked)
    proto, other = result.proto, guest.proto
    imported = opset_versions(proto.opset_import)
    proto.opset_import.extend(
        o for o in other.opset_import if plain_domain(o.domain) not in imported
    )
    proto.ir_version = max(proto.ir_version, other.ir_version)
    proto.functions.extend(other.functions)
    for field in ("training_info", "configuration"):
        known = getattr(proto, field, [])  # onnx before 1.18 has no configurations
        known.extend(message for message in getattr(other, field, ()) if message not in known)
    _add_notes(proto, other, other.graph.name)
    proto.MergeFromString(unknown_fields(other))


def _make_room(
    result: Model, guest: Model, incoming: dict[str, str], prefix: str, notes: list[str]
) -> None:
    """Rename values and nodes of the guest that clash with the first model."""
    host = result.graph
    graph = guest.graph
    names = dict(incoming)
    own, theirs = (dict.fromkeys(defined(model.graph)) for model in (result, guest))
    results = (value.name for value in host.output)
    # names of the first model: those in bodies, its own, its results, and what it feeds
    taken = inner_names(result.proto, host.node).union(own, results, incoming.values())
    if prefix:
        names = {n: prefix + n for n in theirs if n not in incoming} | names
    # an input of the second cannot be renamed silently: a caller feeds it
    both = [
        v.name for v in graph.input if names.get(v.name, v.name) in taken and v.name not in incoming
    ]
    if both:
        is_input = any(value.name == both[0] for value in host.input)
        advice, how = "share it", ("--share", both[0])
        # with an input of that name sharing is meant, else linking
        if not is_input:
            advice, how = "link it", ("--map", f"{key_text(both[0])}={both[0]}")
        raise EditError(
            f"input {', '.join(map(repr, both))} of graph {graph.name!r} has the name of a value of the first model",
            f"{advice} ({command(*how)}), all of one name (--by-name), or rename the second's values (--prefix)",
        )
    clashes = [name for name in theirs if name not in incoming and names.get(name, name) in taken]
    # new names must also avoid those of the second
    taken |= inner_names(guest.proto, guest.graph.node).union(
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
    clear_bodies(graph.node, own.keys())
    # the first model declares and provides incoming values
    for kind in (graph.input, graph.initializer, graph.value_info):
        drop(kind, lambda message: message.name in incoming)
    drop(graph.sparse_initializer, lambda sparse: sparse.values.name in incoming)
    rename_values(guest.proto, graph, names)
    if has_bodies(host.node):
        clear_bodies(host.node, set(defined(graph)))
    _name_nodes(graph.node, prefix, {n.name for n in walk.with_inner(host.node)})


def _name_nodes(nodes: Iterable[NodeProto], prefix: str, taken: set[str]) -> None:
    for node in nodes:
        name = node.name
        if name and (prefix or name in taken):
            node.name = fresh(prefix + name, taken)
        for _, body in walk.bodies(node):
            _name_nodes(body.node, prefix, taken)


def _rename_functions(result: ModelProto, guest: ModelProto, notes: list[str]) -> None:
    """Drop functions of the guest that the first model has too; rename those that differ but share a name."""
    known = {function_key(function): function for function in result.functions}
    taken = {function.name for function in chain(result.functions, guest.functions)}
    names = {}
    # from the end, so that positions stay
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
    # calls of renamed functions
    for node in walk.nodes(walk.holders(guest)) if names else ():
        node.op_type = names.get(call_key(node), node.op_type)


def _distinct_places(result: Model, guest: Model) -> Iterable[tuple[str, DataFile]]:
    """Yield the guest's data files, renamed where both models would save to one place."""
    taken = {file.location for file in result.files.values()}
    for key, file in guest.files.items():
        # a file of both models is one file
        if key in result.files:
            continue
        location = file.location
        number = 1
        while location is not None and location in taken:
            location = f"{number}.{file.location}"
            number = number + 1
        taken.add(location)
        yield key, dataclasses.replace(file, location=location)


def _add_graph(graph: GraphProto, guest: GraphProto, linked: set[str]) -> None:
    """Add a graph; linked outputs are inner values then, of the type that they had."""
    outer = set(_names(chain(graph.input, graph.value_info)))
    # of a type that the first model does not declare
    inner = [value for value in graph.output if value.name in linked]
    graph.value_info.extend(v for v in inner if v.HasField("type") and v.name not in outer)
    drop(graph.output, lambda value: value.name in linked)
    annotated = {annotation.tensor_name for annotation in graph.quantization_annotation}
    graph.quantization_annotation.extend(
        a for a in guest.quantization_annotation if a.tensor_name not in annotated
    )
    # all that a graph holds as a list; lists of both, the first model's before
    for field in _REPEATED:
        getattr(graph, field).extend(getattr(guest, field))
    _add_notes(graph, guest, guest.name)
    graph.MergeFromString(unknown_fields(guest))


def _add_notes(target: ModelProto | GraphProto, source: ModelProto | GraphProto, name: str) -> None:
    """Merge metadata and doc strings; a clashing key gets the graph's name as prefix."""
    known = entries(target.metadata_props)
    for entry in source.metadata_props:
        if known.get(entry.key) != entry.value:
            key = f"{name}.{entry.key}" if entry.key in known else entry.key
            target.metadata_props.add(key=key, value=entry.value)
    if source.doc_string and source.doc_string != target.doc_string:
        target.doc_string = "\n".join(filter(None, (target.doc_string, source.doc_string)))
