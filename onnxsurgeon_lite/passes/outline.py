"""Outline the nodes of a module as a function."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from onnxsurgeon_lite.errors import EditError, UnknownNameError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import modules_of_class, select_nodes
from onnxsurgeon_lite.model import Model, assign, copied, walk
from onnxsurgeon_lite.names import glob, is_glob
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import drop_declarations, fresh, rename_values, settle
from onnxsurgeon_lite.surgery.inlining import keep_names

_CLASS = "class:"
_SCOPE = "scope:"
_MIN_IR = 8  # the first IR version with functions


@dataclass(frozen=True)
class Outline:
    """Move the nodes of a module path (`encoder.layer.4` and below) into a model-local function and call it.

    All modules of a class (`class:BertLayer`), or of a path with a glob (`encoder.layer.*`), that are equal but for
    their weights become one function, whose inputs the weights are. What an exporter computes once for several of them
    stays outside. `Inline` is the inverse: a call's metadata has what its own nodes and values were called.

    Attributes:
        scope: the module path, with a glob or not, or `class:NAME`.

    Example:
        >>> osl.outline("whole_model_dynamo.onnx", "convs1").changes
        ('outlined 3 nodes as function local::convs1',)
    """

    scope: str
    domain: str = "local"
    name: ClassVar[str] = "outline"

    def apply(self, model: Model) -> PassResult:
        """Outline.

        Raises:
            UnknownNameError: no node has this scope or class.
            EditError: a path leaves the scope and enters it again.
        """
        index = GraphIndex.of(model)
        parts, notes = _without_shared(index, self._parts(index))
        # a call runs at one place, so its nodes must be able to
        for path, inside in parts.items():
            _require_convex(index, set(inside), path)
        result = model.copy()
        proto = result.proto
        taken = {function.name for function in proto.functions}
        # nodes without names -> the function that has these
        alike = dict[bytes, FunctionProto]()
        calls = dict[int, NodeProto]()
        changes = []
        for path, inside in parts.items():
            own = self._function(index, inside)
            # at the position of the module's last node, after all that it reads
            call = calls[inside[-1]] = NodeProto(
                domain=self.domain, name=path, input=own.input, output=own.output
            )
            key = _shape_of(own)
            function = alike.get(key)
            if function is None:
                function = alike[key] = self._named(own, path, taken)
                what = f"{len(inside)} nodes as function {self.domain}::{function.name}"
                changes.append(f"outlined {what}")
            else:
                changes.append(f"{path!r} calls {self.domain}::{function.name} too")
                # an equal module: the call remembers what its own nodes and values were called
                keep_names(call, own)
            call.op_type = function.name
        notes += self._replace(index, proto, parts, calls)
        if len(alike) < len(parts):
            notes.append(
                "a function's nodes have the names and metadata of its first module; inline gives each its own back"
            )
        if len(alike) > 1:
            notes.append(
                f"the modules differ in more than weights, so these are {len(alike)} functions; "
                "edit simplify first may make them equal"
            )
        proto.functions.extend(alike.values())
        self._declare(proto, notes)
        settle(index, result)
        return PassResult.of(model, result, changes, notes)

    def _parts(self, index: GraphIndex) -> dict[str, list[int]]:
        """Return module path -> its nodes."""
        if self.scope.startswith(_CLASS):
            nodes = select_nodes(index, self.scope)
            return modules_of_class(index, self.scope.removeprefix(_CLASS), nodes)
        path = self.scope.removeprefix(_SCOPE)
        # the path cut off at the depth of the pattern: nodes below a module belong to it
        depth = path.count(".") + 1
        fits = glob(path) if is_glob(path) else {path}.__contains__
        found = dict[str, list[int]]()
        for position, origin in enumerate(index.origins):
            module = ".".join(origin.scope.split(".")[:depth])
            if module and fits(module):
                found.setdefault(module, []).append(position)
        if not found:
            known = dict.fromkeys(filter(None, (origin.scope for origin in index.origins)))
            raise UnknownNameError(path, f"graph {index.graph.name!r}", known, kind="scope")
        return found

    def _function(self, index: GraphIndex, inside: list[int]) -> FunctionProto:
        function = FunctionProto(domain=self.domain)
        function.node.extend(index.nodes[position] for position in inside)
        made = dict.fromkeys(index.outputs_of(inside))
        reads = dict.fromkeys(n for n in index.inputs_of(inside) if n not in made)
        # outputs: what is read outside, or is an output of the graph
        members = set(inside)
        readers = index.readers(made)
        function.input.extend(reads)
        function.output.extend(
            n for n in made if n in index.outputs or not members.issuperset(readers[n])
        )
        function.opset_import.extend(index.model.proto.opset_import)
        function.value_info.extend(v for v in index.graph.value_info if v.name in made)
        return function

    def _named(self, own: FunctionProto, path: str, taken: set[str]) -> FunctionProto:
        """Return a function with its name; one for a class has names without the path of the first module."""
        function = copied(own)
        is_one = self.scope.removeprefix(_SCOPE) == path
        base = path if is_one else self.scope.removeprefix(_CLASS).removeprefix(_SCOPE)
        function.name = fresh(re.sub(r"\W+", "_", base).strip("_") or "module", taken)
        if not is_one:
            # "encoder.layer.0.weight" -> "weight", as a function has no fixed module
            _rename(function, {n: n.removeprefix(f"{path}.") for n in function.input})
        return function

    def _replace(
        self,
        index: GraphIndex,
        proto: ModelProto,
        parts: Mapping[str, list[int]],
        calls: Mapping[int, NodeProto],
    ) -> list[str]:
        """Put the calls in the place of the last node of each module, and drop what describes inner values."""
        gone = set(chain.from_iterable(parts.values()))
        # the last node of a module becomes its call, the others go
        nodes = [
            calls.get(p, n) for p, n in enumerate(proto.graph.node) if p in calls or p not in gone
        ]
        assign(proto.graph.node, nodes)
        outputs = set(walk.outputs(calls.values()))
        inner = index.made_by(gone) - outputs
        lost = [a for a in index.graph.quantization_annotation if a.tensor_name in inner]
        drop_declarations(proto.graph, inner)
        return (
            [f"functions cannot hold quantization annotations: dropped {len(lost)}"] if lost else []
        )

    def _declare(self, proto: ModelProto, notes: list[str]) -> None:
        if self.domain not in {opset.domain for opset in proto.opset_import}:
            proto.opset_import.add(domain=self.domain, version=1)
        if proto.ir_version < _MIN_IR:
            notes.append(f"IR version {proto.ir_version} -> {_MIN_IR}, as functions require")
            proto.ir_version = _MIN_IR


def _without_shared(
    index: GraphIndex, parts: Mapping[str, list[int]]
) -> tuple[dict[str, list[int]], list[str]]:
    """Return the modules without nodes that need nothing of their own and that others read as well, with a note."""
    owner = {position: path for path, inside in parts.items() for position in inside}
    shared = set()
    for position, path in owner.items() if len(parts) > 1 else ():
        # (modules that make what a node reads, modules that read what it makes)
        makers = set(map(owner.get, index.makers(index.reads[position])))
        users = set(map(owner.get, index.next_to(index.outputs_of([position]))))
        # it reads nothing of its own module, which reads it as others do
        if path not in makers and path in users and users - {path, None}:
            shared.add(position)
    left = {path: [p for p in inside if p not in shared] for path, inside in parts.items()}
    what = "node that several of the modules read stays outside: "
    return left, [f"a {what}{index.describe(position)}" for position in sorted(shared)]


def _shape_of(function: FunctionProto) -> bytes:
    """Return what functions that compute the same have in common: nodes without names, documentation and metadata."""
    plain = copied(function)
    del plain.value_info[:]
    for node in walk.with_inner(plain.node):
        for field in ("name", "doc_string", "metadata_props"):
            node.ClearField(field)
    made = walk.outputs(function.node)
    # values by their number, so that names do not matter
    names = {name: f"v{n}" for n, name in enumerate(dict.fromkeys(chain(function.input, made)))}
    _rename(plain, names)
    return bytes(plain.SerializeToString(deterministic=True))


def _rename(function: FunctionProto, names: Mapping[str, str]) -> None:
    """Rename values of a function, if no two get one name."""
    if len(set(names.values())) < len(names):
        return
    body = GraphProto(node=function.node, value_info=function.value_info)
    rename_values(ModelProto(), body, names)
    function.input[:] = [names.get(name, name) for name in function.input]
    function.output[:] = [names.get(name, name) for name in function.output]
    assign(function.node, body.node)
    assign(function.value_info, body.value_info)


def _require_convex(index: GraphIndex, inside: set[int], scope: str) -> None:
    """Raise `EditError` if a path leaves the nodes and enters them again: one call cannot run in two parts."""
    places = sorted(index.places[position] for position in inside)
    after = set[int]()  # nodes outside that depend on those inside
    # only nodes between the first and the last one can be on a path back in
    for position in index.order[places[0] : places[-1] + 1]:
        needed = set(index.makers(index.reads[position]))
        if position not in inside:
            if not needed.isdisjoint(inside) or not needed.isdisjoint(after):
                after.add(position)
        elif not needed.isdisjoint(after):
            raise EditError(
                f"a path leaves {scope!r} and enters it again, from {index.describe(min(needed & after))} "
                f"to {index.describe(position)}",
                "outline a larger or a smaller scope",
            )
