"""Shared by the edits that differentiate: a copy of a model, and the nodes of gradients after its own."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TypeProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    constant,
    operator_text,
    opset_versions,
    reached_functions,
    require_schemas,
)
from onnxsurgeon_lite.model import Model, walk
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.inline import Inline
from onnxsurgeon_lite.passes.opset import Opset, not_run
from onnxsurgeon_lite.surgery import name_apart, node_names, value_names
from onnxsurgeon_lite.surgery.contrib import is_contrib
from onnxsurgeon_lite.surgery.expansion import needed
from onnxsurgeon_lite.surgery.gradients.reverse_mode.reverse import MissingRule, Reverse
from onnxsurgeon_lite.surgery.gradients.rules import BY_SIZE
from onnxsurgeon_lite.surgery.gradients.step import is_float
from onnxsurgeon_lite.surgery.gradients.tape import OLDEST, Names, Tape, Term
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array

_READ = 4096  # elements of a constant that a rule may ask for
_SHOWN = 4  # nodes that a note names


@dataclass
class Derivative:
    """A model under differentiation.

    Attributes:
        index: the model that is differentiated: its opset is new enough, no function is called on the way.
        tape: takes the nodes.
        notes: what the user should know.
        stops, gaps: the nodes at which paths ended: not smooth, or without a rule.
    """

    index: GraphIndex
    tape: Tape
    notes: list[str] = field(default_factory=list)
    stops: list[NodeProto] = field(default_factory=list)
    gaps: list[NodeProto] = field(default_factory=list)

    @classmethod
    def of(cls, model: Model, values: Iterable[str]) -> "Derivative":
        """Prepare a model for gradients of values."""
        require_schemas(GraphIndex.of(model))
        notes = list[str]()
        # functions are inlined first, as the opset of their bodies may be older
        index = GraphIndex.of(_newer(_without_calls(model, values, notes), notes))
        index.learn_types(index.values())
        opset = opset_versions(index.model.proto.opset_import).get("")
        if opset is None:
            raise EditError(
                "the model imports no opset of ONNX's own domain", "see: onnxdbg check MODEL"
            )
        names = Names(
            value_names(index), opset, index.types.get, lambda name: _numbers(index, name)
        )
        return cls(index, Tape(names), notes)

    def require_floats(self, names: Iterable[str]) -> None:
        """Raise `EditError` unless values are tensors of floats."""
        for name in names:
            kind = self.index.types.get(name, TypeProto())
            if not kind.HasField("tensor_type"):
                raise EditError(f"{name!r} is not a tensor", "choose a value that is one")
            dtype = kind.tensor_type.elem_type
            if dtype and not is_float(dtype):
                raise EditError(
                    f"{name!r} is {dtypes.dtype_name(dtype)}: only floats have a gradient",
                    "choose a value after it that is a float",
                )

    def gradients(
        self, of: str, seed: Term, to: Collection[str], strict: bool = True
    ) -> dict[str, Term]:
        """Write the gradients of a value by others, given the weight of each of its elements.

        Args:
            strict: raise an error at a node without a rule; otherwise the path ends there, and a note says so.

        Returns:
            The terms; a value that `of` does not depend on smoothly is left out.

        Raises:
            EditError: a node on the path has no rule.
        """
        needed = self.index.ancestors([of])
        nodes = [self.index.nodes[place] for place in self.index.order if place in needed]
        # from the output back to the values, over the nodes in order
        reverse = Reverse(self.tape, nodes, strict)
        try:
            found = reverse.gradients({of: seed}, to)
        except MissingRule as error:
            raise self._missing(error, of, to) from error
        # sizes do not change the numbers, so a path that ends there is no gap
        self.stops = [node for node in reverse.stops if node.op_type not in BY_SIZE]
        self.gaps = [node for node, _ in reverse.gaps]
        if self.stops:
            more = len(self.stops) - _SHOWN
            shown = ", ".join(map(self.describe, self.stops[:_SHOWN]))
            self.notes.append(
                f"no gradient passes {shown}{f' and {more} more' if more > 0 else ''}: "
                "what they make does not change smoothly"
            )
        self.notes += (
            f"no gradient passes {self.describe(node)}: {error.message}"
            for node, error in reverse.gaps
        )
        return found

    def describe(self, node: NodeProto) -> str:
        """Return a node's text for messages."""
        places = self.index.makers(node.output)
        return self.index.describe(places[0]) if places else node.op_type

    def require_dependent(self, of: str, to: Iterable[str], found: Collection[str]) -> None:
        """Raise `EditError` if there are values without a gradient."""
        left = [name for name in to if name not in found]
        if not left:
            return
        blocked = f"only through {self.describe(self.stops[0])}" if self.stops else ""
        # some path reaches it, but only through a node that stops gradients
        reached = self.index.read_by(self.index.ancestors([of]))
        if blocked and any(name in reached for name in left):
            raise EditError(
                f"{of!r} depends on {listed(left)} {blocked}, which no gradient passes",
                "choose a value after that node: --to VALUE",
            )
        known = [name for name in self.index.inputs if name in reached]
        raise EditError(
            f"{of!r} does not depend on {listed(left)}",
            f"it depends on {', '.join(map(repr, known))}" if known else "it depends on no input",
        )

    def _missing(self, error: MissingRule, of: str, to: Collection[str]) -> EditError:
        node = error.node
        target = next(name for name in node.output if name)
        # from the values to the node, and on to the output
        index = self.index
        places = index.shortest(index.next_to(to), set(index.makers([target])))
        places += index.shortest(index.users(target), set(index.makers([of])))
        path = " -> ".join(map(index.describe, places)) or self.describe(node)
        operator = operator_text(node.domain, node.op_type)
        instead = "standardize" if is_contrib(node) else "replace"
        return EditError(
            f"{operator} has no gradient rule; the path needs it: {path}",
            f"differentiate by a value after it (--to), or replace it: onnxdbg edit {instead}",
        )

    def input(self, name: str, kind: TypeProto) -> Term:
        """Add an input of the model."""
        self._take(name)
        self.index.graph.input.add(name=name, type=kind)
        return Term(self.tape, name, kind.tensor_type.elem_type)

    def output(self, name: str, term: Term, like: TypeProto) -> None:
        """Add an output of the model."""
        # a term may be the gradient of several values: each output has a name of its own
        self._take(name)
        self.tape.nodes.append(
            NodeProto(op_type="Identity", input=[term.name], output=[name], name=name)
        )
        self.index.graph.output.add(name=name, type=like)

    def _take(self, name: str) -> None:
        if name in self.tape.names.taken:
            raise EditError(f"value {name!r} exists already", "rename it: onnxdbg edit rename")
        self.tape.names.taken.add(name)

    def model(self, kept: Collection[str] = ()) -> Model:
        """Return the model with the gradients.

        Args:
            kept: the names of terms that are read, besides the outputs.
        """
        proto = self.index.model.proto
        graph = proto.graph
        names = node_names(proto)
        # a definition may compute more than its gradient reads
        ends = {value.name for value in graph.output}.union(kept)
        nodes = needed(self.tape.nodes, ends)
        graph.node.extend(nodes)
        read = ends.union(walk.inputs(walk.with_inner(nodes)))
        # shapes that were folded leave constants that nothing reads
        constants = self.tape.names.constants.values()
        graph.initializer.extend(tensor for tensor in constants if tensor.name in read)
        name_apart(walk.graphs(proto), names)
        return self.index.model


def _newer(model: Model, notes: list[str]) -> Model:
    version = opset_versions(model.proto.opset_import).get("", OLDEST)
    if version >= OLDEST:
        return model.copy()
    done = Opset(OLDEST).apply(model)
    notes.extend(
        (f"opset {version} -> {OLDEST}, which gradients need",) + done.notes + not_run(done)
    )
    return done.model


def _without_calls(model: Model, values: Iterable[str], notes: list[str]) -> Model:
    """Inline the functions if values depend on calls of some."""
    if not model.proto.functions:
        return model
    index = GraphIndex.of(model)
    nodes = [index.nodes[place] for place in index.ancestors(values)]
    called = reached_functions(model.proto, nodes)
    if not called:
        return model
    notes.append(
        f"inlined {len(model.proto.functions)} functions: gradients pass through their nodes"
    )
    return Inline().apply(model).model


def _numbers(index: GraphIndex, name: str) -> Array | None:
    """Return the numbers of a small constant."""
    tensor = constant(index, name)
    if tensor is None or np.prod(tensor.dims) > _READ:
        return None
    return index.model.array(tensor)
