"""Repair faults that other tools leave."""

from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    helper,
)

from onnxsurgeon_lite.errors import GraphError
from onnxsurgeon_lite.graph import (
    FEW,
    GraphIndex,
    NodeTable,
    fitting_version,
    graph_at,
    graphs_below,
    has_shape,
    opset_versions,
    tensor_type,
)
from onnxsurgeon_lite.graph.check import begin_check, require_valid
from onnxsurgeon_lite.graph.dangling import dangling
from onnxsurgeon_lite.graph.declared import declared_types
from onnxsurgeon_lite.graph.schemas import has_dangling
from onnxsurgeon_lite.model import (
    Model,
    by_name,
    check_functions,
    drop_at,
    function_key,
    is_standard,
    plain_domain,
    walk,
)
from onnxsurgeon_lite.names import command
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.passes.sort import sort_nodes
from onnxsurgeon_lite.surgery import (
    clear_bodies,
    contradicts,
    defined,
    fresh,
    infer,
    name_apart,
    names_in,
    rename_uses,
)
from onnxsurgeon_lite.surgery.edits import rename_outputs
from onnxsurgeon_lite.surgery.types import begin_infer, fits

_MOST_AXES = 8  # of an input without a shape
_ROUNDS = 3  # in which types in bodies follow those outside, and the other way round


@dataclass(frozen=True)
class Fix:
    """Repair what other tools leave: names with two owners, wrong node order, stale types, missing imports, old IR.

    Of several initializers or Constants of one name the last stays, as in runtimes; when other nodes produce one value,
    a reader gets the last one before it in the file, and a graph output the last of all. The type of an input with a
    default follows the default; one without a shape gets open dimensions, if only one number of them fits its readers.
    A missing opset import gets the version that fits the nodes. Value_info is stale when an inferred type contradicts
    it.

    Attributes:
        join: let a node that reads a missing value read the one with the closest spelling, if that is only one.

    Example:
        >>> osl.fix("whole_model.onnx").changed
        False
    """

    join: bool = False
    name: ClassVar[str] = "fix"

    def apply(self, model: Model) -> PassResult:
        """Repair.

        Raises:
            GraphError: something is left that cannot be repaired: a cycle, a missing value, ...
        """
        result = model.copy()
        changes = list[str]()
        # inference and the checker start in the background, on the model as it is
        infer_unchanged = begin_infer(model, {info.name for info in _declared(model)})
        begin_check(model)
        try:
            graphs = list(walk.graphs(result.proto))
            # first what names depend on, then order, then types
            changes += chain(_header(result.proto, graphs), _named(graphs))
            for graph in graphs:
                changes += (f"{text} in graph {graph.name!r}" for text in _repaired(graph))
            changes += _joined(result.proto) if self.join else ()
            _require_produced(result)
            changes += sort_nodes(result)
            check_functions(result.proto)
            changes += _ranked(result)
            # inference that was begun is right only for an unchanged model
            changes += _stale(result, None if changes else infer_unchanged)
            # a type of a body changes types outside, and the other way round: a few rounds
            for _ in range(_ROUNDS):
                if not (inside := list(_stale_inside(result))):
                    break
                changes += chain(inside, _stale(result, None))
            _require_shapes(result.proto)
            require_valid(result)
        except GraphError as error:
            error.told = tuple(changes) + error.told
            raise
        return PassResult.of(model, result, changes)


def _repaired(graph: GraphProto) -> list[str]:
    # tidy: nothing to rename, so the expensive steps are left out
    if _is_tidy(graph):
        known = set(defined(graph)) if graph.value_info else set()
        return list(chain(_defaults(graph), _declared_once(graph, known)))
    found = list(chain(_single_constants(graph), _single_producers(graph), _unique_nodes(graph)))
    known = set(defined(graph))
    found += chain(_defaults(graph), _declared_once(graph, known), _unshadowed(graph, known))
    return found


def _is_tidy(graph: GraphProto) -> bool:
    """Return whether a graph has no bodies, and gives each name to one value and one node."""
    table = NodeTable.of(graph)
    values = list(filter(None, chain(walk.sources(graph), chain.from_iterable(table.makes))))
    names = [name for node in graph.node if (name := node.name)]
    once = len(set(values)) == len(values) and len(set(names)) == len(names)
    return once and not table.bodied


def _named(graphs: Iterable[GraphProto]) -> Iterable[str]:
    for graph in graphs:
        if not graph.name:
            graph.name = "graph"
            yield "a graph without a name is 'graph' now"


def _header(proto: ModelProto, graphs: list[GraphProto]) -> Iterable[str]:
    """Import what the nodes need, and raise the IR version to what the model needs."""
    local = {function_key(function)[0] for function in proto.functions}
    # a model without bodies needs no walk through all nodes to see its domains
    used = set[str]().union(*(NodeTable.of(graph).domains for graph in graphs))
    is_complete = used <= opset_versions(proto.opset_import).keys()
    inner = [] if is_complete else list(walk.nodes(graphs))
    holders = [(proto, inner)] + [(f, list(walk.with_inner(f.node))) for f in proto.functions]
    for holder, nodes in holders:
        for domain in sorted({plain_domain(node.domain) for node in nodes} | {""}):
            if domain in opset_versions(holder.opset_import):
                continue
            # only nodes of this domain say which version fits
            own = [node for node in nodes if plain_domain(node.domain) == domain]
            # the version of the main graph; 1 for the model's own functions; else what fits the nodes
            fits = opset_versions(proto.opset_import).get(domain) or (
                1 if domain in local else fitting_version(own, domain, proto.ir_version)
            )
            if fits is not None and (own or holder is proto):
                holder.opset_import.add(domain=domain, version=fits)
                yield f"imported version {fits} of domain {domain or 'ai.onnx'!r}"
    needed = least_ir_version(proto)
    if proto.ir_version < needed:
        yield f"IR version {proto.ir_version} -> {needed}, which the model needs"
        proto.ir_version = needed


def least_ir_version(proto: ModelProto) -> int:
    """Return the IR version that a model needs for its opsets, its functions, and initializers that are no inputs."""
    needed = int(helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True))
    inputs = {value.name for value in proto.graph.input}
    if any(tensor.name not in inputs for tensor in proto.graph.initializer):
        # IR version 4 is the first where an initializer needs not be an input
        needed = max(needed, 4)
    # IR version 8 has functions
    return max(needed, 8 if proto.functions else 0)


def _joined(proto: ModelProto) -> Iterable[str]:
    for missing in list(dangling(proto)):
        if missing.node is not None and missing.meant is not None:
            slots = [missing.meant if n == missing.name else n for n in missing.node.input]
            missing.node.input[:] = slots
            yield f"{missing.reader} {missing.meant!r} instead of {missing.name!r}"


def _require_produced(model: Model) -> None:
    large = len(model.graph.node) > FEW and not model.proto.functions
    if large and not has_dangling(GraphIndex.of(model)):
        return
    left = list(dangling(model.proto))
    if left:
        more = f"; and {len(left) - 1} more" if left[1:] else ""
        hint = "rewire their readers: onnxdbg edit rewire, or find them all: onnxdbg check MODEL"
        if any(missing.node is not None and missing.meant for missing in left):
            hint = "join those whose spelling is clear: onnxdbg edit fix MODEL --join"
        elif left[0].node is None and left[0].name in {o.name for o in model.graph.output}:
            hint = f"remove the output: onnxdbg edit remove-output MODEL {command(left[0].name)}"
        raise GraphError(f"cannot be fixed: {left[0]}{more}", hint)


def _single_constants(graph: GraphProto) -> Iterable[str]:
    """Keep the last of several initializers, or of several Constants, of one name."""
    for kind, messages, named in (
        ("initializer", graph.initializer, [tensor.name for tensor in graph.initializer]),
        ("Constant", graph.node, [_constant_name(node) for node in graph.node]),
    ):
        last = {name: place for place, name in enumerate(named)}
        doubled = [place for place, name in enumerate(named) if name and last[name] != place]
        if not doubled:
            continue
        others = Counter(walk.outputs(graph.node))
        # a Constant is stale only if no other kind of node makes the value
        times = Counter(named)
        stale = [
            place
            for place in doubled
            if kind != "Constant" or others[named[place]] == times[named[place]]
        ]
        names = dict.fromkeys(named[place] for place in stale)
        drop_at(messages, stale)
        for name in names:
            yield f"kept the last of several {kind}s {name!r}, which runtimes use,"


def _constant_name(node: NodeProto) -> str:
    constant = node.op_type == "Constant" and is_standard(node)
    return node.output[0] if constant and node.output else ""


def _defaults(graph: GraphProto) -> Iterable[str]:
    """Let the declared type of an input follow its default."""
    defaults = by_name(graph.initializer)
    for info in graph.input:
        tensor = defaults.get(info.name)
        if tensor is not None and (
            contradicts(info.type, tensor_type(tensor)) or not has_shape(info.type)
        ):
            info.type.CopyFrom(tensor_type(tensor))
            yield f"the type of input {info.name!r} follows its default"


def _single_producers(graph: GraphProto) -> Iterable[str]:
    """Rename every definition of a value but the last."""
    times = Counter(walk.outputs(graph.node))
    # inputs and initializers count as a first definition
    outer = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    left = {n: count + (n in outer) for n, count in times.items() if count + (n in outer) > 1}
    if not left:
        return
    taken = names_in([graph])
    # old name -> the name that readers at this point see
    current = dict[str, str]()
    yield f"value {', '.join(map(repr, list(left)[:6]))} had several producers: renamed all but the last"
    for name in left:
        if name in outer:
            left[name] -= 1  # inputs keep their names
            current[name] = name
    for node in graph.node:
        rename_uses([node], {old: new for old, new in current.items() if old != new})
        for slot, name in enumerate(node.output):
            if name in left:
                left[name] -= 1
                # an input keeps its name, so all nodes get new ones
                last = left[name] == 0 and name not in outer
                current[name] = name if last else fresh(name, taken)
                node.output[slot] = current[name]
    rename_outputs(graph, current)


def _unshadowed(graph: GraphProto, known: set[str]) -> Iterable[str]:
    """Rename body values that shadow outer ones; the checker and runtimes reject them."""
    renamed = clear_bodies(graph.node, known)
    if renamed:
        yield f"renamed values in bodies that shadowed outer ones: {', '.join(map(repr, renamed[:6]))}"


def _unique_nodes(graph: GraphProto) -> Iterable[str]:
    if renamed := name_apart([graph]):
        yield f"renamed {renamed} nodes with a duplicate name"


def _declared_once(graph: GraphProto, known: set[str]) -> Iterable[str]:
    seen = {value.name for value in chain(graph.input, graph.output)}
    stale = []
    for place, info in enumerate(graph.value_info):
        if info.name not in known or info.name in seen:
            stale.append(place)
        seen.add(info.name)
    drop_at(graph.value_info, stale)
    if stale:
        yield f"removed {len(stale)} value_info entries: repeated, or of missing values"


def _ranked(result: Model) -> Iterable[str]:
    """Give an input without a shape open dimensions, if only one number of them fits what reads it."""
    declared = {info.name for info in result.graph.value_info}
    for info in filter(lambda info: not has_shape(info.type), result.graph.input):
        kind, fitting = info.type.tensor_type, []
        # each number of open axes in turn: do all readers accept it
        for rank in range(_MOST_AXES):
            kind.shape.CopyFrom(TensorShapeProto(dim=[TensorShapeProto.Dimension()] * rank))
            if fits(result, declared):
                fitting.append(rank)
        kind.ClearField("shape")
        if len(fitting) == 1:
            for axis in range(fitting[0]):
                kind.shape.dim.add(dim_param=f"{info.name}_dim{axis}")
            yield f"input {info.name!r} has {fitting[0]} open dimensions now, which alone fit its readers"


def _require_shapes(proto: ModelProto) -> None:
    for info in filter(lambda info: not has_shape(info.type), proto.graph.input):
        raise GraphError(
            f"cannot be fixed: input {info.name!r} declares no shape, and several fit its readers",
            f"say it: onnxdbg edit set-shape MODEL {command(info.name)}=N,3,224,224",
        )


def _stale(
    result: Model, begun: Callable[[Set[str]], dict[str, TypeProto]] | None
) -> Iterable[str]:
    """Correct the value_info and outputs of the main graph that contradict inference, or have no type."""
    names = {info.name for info in _declared(result)}
    inferred = begun(names) if begun else infer(result, names)
    declared = declared_types(result.graph)
    # (id of the declared type, id of the inferred) -> whether they agree
    right = dict[tuple[int, int], bool]()  # most values share a few types
    stale = set()
    for name, kind in inferred.items():
        known = declared.get(name)
        key = id(known), id(kind)
        if key not in right:
            right[key] = known is not None and _says_as_much(known, kind)
        if not right[key]:
            stale.add(name)
    for info in _declared(result) if stale else ():
        if info.name not in stale:
            continue
        kind = inferred[info.name]
        if contradicts(info.type, kind):
            info.type.CopyFrom(kind)
            yield f"corrected the stale type of {info.name!r}"
        elif not _says_as_much(info.type, kind):
            info.type.CopyFrom(kind)
            yield f"declared the type of {info.name!r}"


def _stale_inside(result: Model) -> Iterable[str]:
    """Correct the value_info and outputs of bodies that contradict inference, outer bodies first.

    A shape that a body gives back to itself, as in a Loop, may change from one iteration to the next: it stays.
    """
    current = dict(graphs_below(GraphIndex.of(result)))
    # outer bodies first: inner ones depend on their types
    for path in sorted(filter(None, current), key=lambda path: path.count("/")):
        graph = graph_at(result.proto, path)
        assert isinstance(graph, GraphProto)  # no path of a body leads to a function
        inferred = infer(
            current[path].model, {v.name for v in chain(graph.value_info, graph.output)}
        )
        stale = [
            info
            for info in chain(graph.value_info, graph.output)
            if info.name in inferred and contradicts(info.type, inferred[info.name])
        ]
        # what a loop returns to itself may grow from one iteration to the next
        kept = {value.name for value in graph.output} if graph.input else set[str]()
        for info in stale:
            kind = inferred[info.name]
            one, other = info.type.tensor_type, kind.tensor_type
            if info.name not in kept or one.elem_type != other.elem_type:
                info.type.CopyFrom(kind)
                yield f"corrected the stale type of {info.name!r} in {path!r}"
        # types that were corrected decide those of inner bodies
        if stale:
            current = dict(graphs_below(GraphIndex.of(result)))


def _says_as_much(declared: TypeProto, inferred: TypeProto) -> bool:
    """Return whether a declared type fits the inferred one, and has a dtype, and a shape if that has one."""
    # a sequence or map has no dtype of its own
    lacks_dtype = not declared.tensor_type.elem_type
    lacks_dtype &= declared.WhichOneof("value") in (None, "tensor_type")
    lacks = lacks_dtype or has_shape(declared) < has_shape(inferred)
    return not (lacks or contradicts(declared, inferred))


def _declared(model: Model) -> list[ValueInfoProto]:
    """Return the declarations of what nodes make."""
    graph = model.graph
    given = set(walk.sources(graph))
    return [info for info in chain(graph.value_info, graph.output) if info.name not in given]
