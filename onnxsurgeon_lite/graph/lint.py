"""Find suspicious parts of a model that the ONNX checker accepts."""

from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import chain

from onnx import NodeProto, TensorProto, TypeProto

from onnxsurgeon_lite.graph.index import (
    GraphIndex,
    has_shape,
    symbols_of,
    tensor_type,
)
from onnxsurgeon_lite.graph.schemas import held, normalizes_by_batch
from onnxsurgeon_lite.graph.text import shape_text, type_text
from onnxsurgeon_lite.model import is_standard, walk


@dataclass(frozen=True)
class LintFinding:
    """A suspicious part of a model.

    Attributes:
        kind: `dangling`, `missing data`, `unreachable`, `unused`, `duplicate name`, `unknown type`, `frozen output`,
            `frozen shape`, `wrong shape`, `wrong type`, `training mode` or `refused`.
        places: ids of nodes, or names of values.
    """

    kind: str
    message: str
    places: tuple[str, ...]


def find(index: GraphIndex) -> list[LintFinding]:
    """Look for problems that the checker accepts: in the main graph; names and training mode in bodies too.

    Raises:
        GraphError: a function calls itself.
    """
    kinds = (
        _unreachable,
        _unused,
        _duplicate_names,
        _unknown_types,
        _frozen_outputs,
        _declared_types,
        _defaults,
        _training_mode,
    )
    return list(chain.from_iterable(kind(index) for kind in kinds))


def _unreachable(index: GraphIndex) -> Iterator[LintFinding]:
    reached = index.ancestors(index.outputs)
    for position in range(len(index.nodes)):
        if position not in reached:
            node = index.describe(position)
            yield LintFinding("unreachable", f"no output depends on {node}", (f"@{position}",))


def _unused(index: GraphIndex) -> Iterator[LintFinding]:
    """Find inputs and initializers that no node reads."""
    given = dict.fromkeys(index.inputs, "input") | dict.fromkeys(
        index.initializers.keys() - index.inputs.keys(), "initializer"
    )
    # scales and zero points that only annotations read
    parameters = walk.annotating(index.graph)
    for name in sorted(index.unread(given) - index.outputs.keys() - parameters):
        yield LintFinding("unused", f"no node reads {given[name]} {name!r}", (name,))


def _duplicate_names(index: GraphIndex) -> Iterator[LintFinding]:
    """Find values that are defined twice, bodies included, and nodes of one graph with the same name."""
    defined = dict[str, str]()
    for what, name in _definitions(index):
        first = defined.setdefault(name, what)
        # a default: one value, declared twice
        if first != what and (first, what) != ("an input", "an initializer"):
            yield LintFinding("duplicate name", f"value {name!r} is {first}, and {what}", (name,))
    for body in index.every_body:
        called = defaultdict[str, list[str]](list)
        for position, node in enumerate(body.nodes):
            called[node.name].append(body.node_id(position))
            if body.path and not body.path.startswith("fn:"):  # a function sees no graph
                # a value of the main graph, which the body hides
                for name in defined.keys() & set(node.output):
                    what = f"{defined[name]}, and made by {node.op_type} {body.node_id(position)}"
                    yield LintFinding("duplicate name", f"value {name!r} is {what}", (name,))
        for name, ids in called.items():
            if name and len(ids) > 1:
                shown = ", ".join(ids)
                yield LintFinding(
                    "duplicate name", f"nodes {shown} have the same name {name!r}", tuple(ids)
                )


def _definitions(index: GraphIndex) -> Iterator[tuple[str, str]]:
    """Yield (what it is, name) for each definition of a value in the main graph."""
    yield from (("an input", value.name) for value in index.graph.input)
    seen = set[str]()
    for tensor in index.graph.initializer:
        yield ("another initializer" if tensor.name in seen else "an initializer"), tensor.name
        seen.add(tensor.name)
    for name, position in index.producer.items():
        yield f"made by {index.describe(position)}", name


def _unknown_types(index: GraphIndex) -> Iterator[LintFinding]:
    index.learn_types(index.producer)
    for name, position in index.producer.items():
        if name not in index.types:
            node = index.describe(position)
            yield LintFinding(
                "unknown type", f"the type of {name!r}, made by {node}, is unknown", (name,)
            )


def _frozen_outputs(index: GraphIndex) -> Iterator[LintFinding]:
    """Find outputs that depend on no number of an input."""
    inputs = index.inputs.keys() - index.initializers.keys()
    # depends on numbers of inputs; depends at least on their sizes
    fed, sized = set(inputs), set(inputs)
    for position in index.order:
        node, reads = index.nodes[position], index.reads[position]
        if not sized.isdisjoint(reads):
            sized.update(node.output)
        # only the size goes on
        if not fed.isdisjoint(reads) and node.op_type not in ("Shape", "Size"):
            fed.update(node.output)
    for name in index.outputs:
        if name not in fed and inputs:
            what = "on the shape of inputs alone" if name in sized else "on no input"
            yield LintFinding(
                "frozen output",
                f"output {name!r} depends {what}: was it frozen by tracing?",
                (name,),
            )


def _declared_types(index: GraphIndex) -> Iterator[LintFinding]:
    """Find outputs whose declared type is not what follows from the inputs."""
    symbols = set(symbols_of(index.inputs.values()))
    inferred = index.inferred_outputs()
    for name, output in index.outputs.items():
        declared = output.type
        is_ = inferred.get(name)
        if is_ is None:
            continue
        problem = _type_problem(declared, is_, symbols - {""})
        if problem:
            text = type_text if problem == "wrong type" else shape_text
            said = f"output {name!r} is declared {text(declared)}, inputs make it {text(is_)}"
            yield LintFinding(problem, said, (name,))


def _defaults(index: GraphIndex) -> Iterator[LintFinding]:
    """Find inputs whose default has another type."""
    for name in index.inputs.keys() & index.initializers.keys():
        tensor = index.initializers[name]
        declared = index.inputs[name].type
        if isinstance(tensor, TensorProto) and _type_problem(declared, tensor_type(tensor), ()):
            said = f"input {name!r} is declared {type_text(declared)}, its default is {type_text(tensor_type(tensor))}"
            yield LintFinding("wrong type", f"{said}: onnxdbg edit fix", (name,))


def _type_problem(declared: TypeProto, inferred: TypeProto, symbols: Container[str]) -> str:
    """Return what is wrong with a declared type; '' if nothing is known to be."""
    one, other = declared.tensor_type, inferred.tensor_type
    if one.elem_type and other.elem_type and one.elem_type != other.elem_type:
        return "wrong type"
    known = has_shape(declared) and has_shape(inferred)
    return _shape_problem(declared, inferred, symbols) if known else ""


def _shape_problem(declared: TypeProto, inferred: TypeProto, symbols: Container[str]) -> str:
    """Return what is wrong with a declared shape; '' if nothing is known to be."""
    ones, others = declared.tensor_type.shape.dim, inferred.tensor_type.shape.dim
    if len(ones) != len(others):
        return "wrong shape"
    for one, other in zip(ones, others, strict=True):
        fixed = one.HasField("dim_value"), other.HasField("dim_value")
        if all(fixed) and one.dim_value != other.dim_value:
            return "wrong shape"
        # a symbol of the inputs on one side, a number on the other
        if any(fixed) and not all(fixed) and (one.dim_param or other.dim_param) in symbols:
            return "frozen shape"
    return ""


def _training_mode(index: GraphIndex) -> Iterator[LintFinding]:
    for body in index.every_body:
        for position, node in enumerate(body.nodes):
            if trains(index, node):
                node_id = body.node_id(position)
                yield LintFinding(
                    "training mode",
                    f"{node.op_type} {node_id} is in training mode: exported in train()? onnxdbg edit inference",
                    (node_id,),
                )


def trains(index: GraphIndex, node: NodeProto) -> bool:
    """Return whether a Dropout or a BatchNormalization computes what it does in training."""
    if not is_standard(node):
        return False
    if node.op_type == "BatchNormalization":
        return normalizes_by_batch(node, index.opset)
    if node.op_type != "Dropout" or len(node.input) < 3:
        return False
    mode = held(index, node.input[2])  # training_mode, if it is constant
    return mode is not None and bool(index.model.array(mode).any())
