"""Replace a region by a node or a model."""

from dataclasses import dataclass
from typing import ClassVar

from onnx import NodeProto, TypeProto

from onnxsurgeon_lite.errors import EditError, UsageError
from onnxsurgeon_lite.graph import GraphIndex, check_node
from onnxsurgeon_lite.graph.cut import close
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.model import Model, drop_at, loaded
from onnxsurgeon_lite.names import listed
from onnxsurgeon_lite.passes.in_bodies import in_bodies
from onnxsurgeon_lite.passes.merge import add_guest, one_opset, require_fit
from onnxsurgeon_lite.passes.protocol import Attributes, PassResult
from onnxsurgeon_lite.passes.set_attr import make_attribute
from onnxsurgeon_lite.passes.targets import Operands
from onnxsurgeon_lite.surgery import Taken, drop_declarations, follow, importing, reorder, settle


@dataclass(frozen=True)
class Replace:
    """Replace the region between inputs and outputs by one node (`op_type`) or by a model (`model`, or its path).

    Inputs and outputs correspond in order. Values that only the old region read stay; `clean` removes them.

    Attributes:
        inputs: the values where the region begins, in order; numbers among them become constants of the new node.
        outputs: the values that it computes.
        model: a model to have instead, or its path.

    Example:
        >>> osl.replace("whole_model.onnx", "23", "25", "Identity").changes
        ('replaced 2 nodes by Identity',)
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    op_type: str = ""
    attributes: Attributes = ()
    domain: str = ""
    node_name: str = ""
    model: Model | str | None = None
    name: ClassVar[str] = "replace"
    retypes: ClassVar[bool] = True

    @in_bodies(values=("inputs", "outputs"))
    def apply(self, model: Model) -> PassResult:
        """Replace the region.

        Raises:
            UnknownNameError: no such value or operator.
            CutError: the inputs do not determine the outputs.
            EditError: a node outside reads a value inside the region, or the replacement has other inputs or outputs.
        """
        if bool(self.op_type) == (self.model is not None):
            raise UsageError(
                "a replacement is either an operator or a model", "give one of --op and --model"
            )
        notes = list[str]()
        index = GraphIndex.of(importing(model, self.op_type and self.domain, notes))
        # find the region, which no node outside may read from
        outputs = select_values(index, self.outputs)
        notes += outputs.notes
        base = f"{outputs.names[0]}_{self.op_type.lower()}" if outputs.names else ""
        inputs = Operands.read(index, self.inputs, base, Taken(index), notes)
        if self.model is not None and inputs.numbers:
            raise UsageError("a model takes values, no numbers", "insert them: onnxdbg edit insert")
        values = [name for name in inputs.names if name and name not in inputs.numbers]
        region = close(index, values, outputs.names).nodes
        # a constant that others read stays; other values inside the region must not be read outside
        inside = set(region)
        region = tuple(
            p
            for p in region
            if index.reads[p] or inside.issuperset(index.next_to(index.nodes[p].output))
        )
        if not region:
            raise EditError("nothing is between the inputs and the outputs", "name other values")
        _require_private(index, region, outputs.names)
        # put the node or the graph of the model in its place, and let types follow
        types = dict[str, TypeProto]()
        if self.op_type:
            result = _without(index, region, outputs.names)
            # where the region's last node was, counted without the region
            self._add_node(result, region[-1] - len(region) + 1, inputs, outputs.names)
            after = settle(index, result)
            for name in outputs.names:
                types |= check_node(
                    after, after.nodes[after.producer[name]], f"the new {self.op_type}"
                )
        else:
            result = self._add_model(index, region, inputs.names, outputs.names, types, notes)
            after = settle(index, result)
        notes += follow(index, after, types)
        what = self.op_type or "the graph of the model"
        change = f"replaced {len(region)} nodes by {what}"
        return PassResult.of(model, result, [change], notes)

    def _add_node(self, result: Model, place: int, inputs: Operands, outputs: list[str]) -> None:
        node = NodeProto(
            op_type=self.op_type, domain=self.domain or None, name=self.node_name or None
        )
        node.input[:] = inputs.names
        node.output[:] = outputs
        # schemas are needed only for numbers and attributes
        if inputs.numbers or self.attributes:
            index = GraphIndex.of(result)
            result.graph.initializer.extend(inputs.tensors(index, node))
            node.attribute.extend(make_attribute(index, node, *pair) for pair in self.attributes)
        result.graph.node.insert(place, node)

    def _add_model(
        self,
        index: GraphIndex,
        region: tuple[int, ...],
        inputs: list[str],
        outputs: list[str],
        types: dict[str, TypeProto],
        notes: list[str],
    ) -> Model:
        assert self.model is not None  # one of the two is given
        first, guest = one_opset(index.model, loaded(self.model).copy(), notes)
        graph = guest.graph
        other = GraphIndex.of(guest)
        theirs = other.required_inputs
        results = [value.name for value in graph.output]
        for kind, own, given in (("inputs", theirs, inputs), ("outputs", results, outputs)):
            if len(own) != len(given):
                raise EditError(
                    f"the region has {len(given)} {kind}, its replacement {len(own)}",
                    f"the replacement has {listed(own)}",
                )
        for value, name in zip(inputs, theirs, strict=True):
            require_fit(index, value, other, name)
        types.update(zip(outputs, (value.type for value in graph.output), strict=True))
        # the model's inputs and outputs get the names of the region's
        places = dict(zip(theirs, inputs, strict=True)) | dict(zip(results, outputs, strict=True))
        result = _without(GraphIndex.of(first), region, outputs)
        # the main graph declares its outputs itself
        del graph.output[:]
        nodes = result.graph.node
        before = region[-1] - len(region) + 1
        left = len(nodes)
        add_guest(result, guest, places, set(), notes)
        # from the end of the list to the place of the region
        reorder(nodes, [*range(before), *range(left, len(nodes)), *range(before, left)])
        return result


def _without(index: GraphIndex, region: tuple[int, ...], outputs: list[str]) -> Model:
    result = index.model.copy()
    drop_at(result.graph.node, region)
    inner = index.made_by(region)
    drop_declarations(result.graph, inner - set(outputs))
    return result


def _require_private(index: GraphIndex, region: tuple[int, ...], outputs: list[str]) -> None:
    inside = set(region)
    readers = index.readers(index.made_by(region))
    for position in region:
        for name in index.outputs_of([position]):
            # readers outside of the region
            users = [user for user in readers[name] if user not in inside]
            if name not in outputs and (users or name in index.outputs):
                who = ", ".join(map(index.describe, users[:4])) or "the graph's outputs"
                raise EditError(
                    f"value {name!r} inside the region is read outside by {who}",
                    f"make it an output of the region: --outputs {listed(outputs + [name])}",
                )
