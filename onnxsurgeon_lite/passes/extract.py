"""Extract the submodel between two sets of values."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from onnx import GraphProto, ModelProto, NodeProto

from onnxsurgeon_lite.errors import OpenCutError
from onnxsurgeon_lite.graph import GraphIndex, enter, reached_functions
from onnxsurgeon_lite.graph.cut import Cut, boundary, close, missing_inputs
from onnxsurgeon_lite.graph.selecting.select import select_values, selected_nodes
from onnxsurgeon_lite.model import Enclosing, Model, take_fields, unknown_fields, walk
from onnxsurgeon_lite.passes.in_bodies import Narrowed
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery import Taken, clear_bodies, fresh


@dataclass(frozen=True)
class Extract:
    """Keep the nodes that compute the outputs from the inputs; by default the model's own inputs and outputs.

    The submodel keeps the captured values, functions, input defaults, quantization annotations, metadata and types
    that it uses. Of a body, whose values from outside become inputs or constants, all is kept, or what lies between
    values of it; a function is cut out as one of its calls has it.

    Attributes:
        inputs: the values to cut at: names, ids, globs.
        outputs: the values to keep.
        auto_inputs: add the inputs that close the cut.
        part: nodes to cut out instead, such as a module (`scope:layer.0`): what they read and make is the cut, where
            `inputs` and `outputs` do not say otherwise; or a body (`@3/then_branch`) or function (`fn:local::f`).

    Example:
        >>> part = osl.extract("whole_model.onnx", inputs="22", outputs="28")
        >>> print(part)
        extract: 22 -> 28 (6 nodes, 10 initializers)
        >>> part.save("part.onnx").path.name
        'part.onnx'
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    auto_inputs: bool = False
    part: tuple[str, ...] = ()
    name: ClassVar[str] = "extract"

    # `part` gives nodes instead of values: the cut is what crosses their border.
    # Values that a body captures are inputs of it as a model.
    # The missing inputs of an open cut are added, so the second attempt closes.
    def apply(self, model: Model) -> PassResult:
        """Cut the submodel out.

        Raises:
            GraphError: the part has a cycle, or a function calls itself.
            UnknownNameError: the main graph has no such value.
            CutError: an output is also an input, or lies upstream of the inputs.
            OpenCutError: the inputs do not determine the outputs (and `auto_inputs` is off).
        """
        index = GraphIndex.of(model)
        body, step = self._inside(index)
        if body is not index:  # a cut inside a body is a cut of that body as a model
            return replace(step.apply(body.model), changed=True)
        own_inputs = tuple(index.required_inputs)
        inputs = select_values(index, self.inputs)
        outputs = select_values(index, self.outputs)
        notes = inputs.notes + outputs.notes
        around: tuple[Sequence[str], Sequence[str]] = own_inputs, tuple(index.outputs)
        if self.part:
            nodes = selected_nodes(index, self.part)
            around = boundary(index, nodes)
        wanted_inputs = tuple(inputs.names if self.inputs else around[0])
        wanted_outputs = tuple(outputs.names if self.outputs else around[1])
        wanted_inputs += tuple(_from_outside(index, wanted_inputs, wanted_outputs))
        try:
            cut = close(index, wanted_inputs, wanted_outputs)
        except OpenCutError:
            if not self.auto_inputs:
                raise
            added = missing_inputs(index, wanted_inputs, wanted_outputs)
            notes.append(f"added to the inputs to close the cut: {', '.join(map(repr, added))}")
            cut = close(index, wanted_inputs + tuple(added), wanted_outputs)

        index.require_sound(cut.nodes)
        result = submodel(index, cut)
        notes += (f"no output depends on input {name!r}: kept" for name in cut.unused)
        for info in (*result.graph.input, *result.graph.output):
            if not info.HasField("type"):
                notes.append(f"the type of {info.name!r} is unknown")
        return PassResult(result, result.proto != model.proto, tuple(notes))

    def _inside(self, index: GraphIndex) -> "tuple[GraphIndex, Extract]":
        """Return the body that the cut is in, and the cut there."""
        if len(self.part) == 1:
            body, rest = enter(index, f"{self.part[0]}/*")
            # the part is a whole body
            if rest == "*":
                return body, replace(self, part=())
        inside = Narrowed.of(index, self, ("inputs", "outputs"), ("part",), called=True)
        if not inside.path:
            return index, self
        return enter(index, f"{inside.path}/*")[0], inside.step(self)


def _from_outside(
    index: GraphIndex, inputs: Sequence[str], outputs: Sequence[str]
) -> Iterator[str]:
    """Yield the inputs that are values outside of a body, where a cut needs them and does not name them."""
    outside = index.model.enclosing.names & index.inputs.keys() - set(inputs)
    if outside:
        nodes = index.ancestors(outputs, inputs)
        needed = set(outputs).union(index.inputs_of(nodes))
        yield from (name for name in index.inputs if name in outside & needed)


def submodel(index: GraphIndex, cut: Cut) -> Model:
    """Return the model of a closed cut."""
    source = index.model.proto
    result = ModelProto()
    names = {field.name for field in source.DESCRIPTOR.fields}
    # everything that is not about nodes: versions, metadata, unknown fields
    take_fields(result, source, names - {"graph", "functions", "training_info"})
    result.MergeFromString(unknown_fields(source))
    nodes = [index.nodes[position] for position in cut.nodes]
    used = index.read_by(cut.nodes) | set(cut.outputs)
    _fill_graph(result.graph, index, cut, nodes, used)
    result.functions.extend(reached_functions(source, nodes))
    kept = {tensor.name for tensor in result.graph.initializer}
    result.training_info.extend(
        training
        # training that updates a dropped initializer is dropped, too
        for training in source.training_info
        if all(binding.key in kept for binding in training.update_binding)
    )
    made = index.model.with_proto(result)
    made.enclosing = Enclosing()
    return made


def _fill_graph(
    graph: GraphProto, index: GraphIndex, cut: Cut, nodes: list[NodeProto], used: set[str]
) -> None:
    source = index.graph
    take_fields(graph, source, ("name", "doc_string", "metadata_props"))
    graph.MergeFromString(unknown_fields(source))
    produced = set(walk.outputs(nodes))
    inner = produced.difference(cut.inputs, cut.outputs)
    for annotation in source.quantization_annotation:
        if annotation.tensor_name in used | produced:
            graph.quantization_annotation.append(annotation)
            # parameters of a kept annotation stay
            used |= {entry.value for entry in annotation.quant_parameter_tensor_names}
    # values that nothing in the cut makes: initializers and defaults
    stays = used - set(cut.inputs) - produced
    graph.node.extend(nodes)
    clear_bodies(graph.node, produced.union(cut.inputs))  # which may come earlier now
    for node in graph.node:
        _drop_outputs(node, cut.inputs, index)
    graph.initializer.extend(tensor for tensor in source.initializer if tensor.name in stays)
    graph.sparse_initializer.extend(
        sparse for sparse in source.sparse_initializer if sparse.values.name in stays
    )
    graph.value_info.extend(info for info in source.value_info if info.name in inner)
    index.learn_types(cut.inputs + cut.outputs)
    graph.input.extend(map(index.value_info, cut.inputs))
    defaults = stays & index.initializers.keys()
    # initializers that are inputs with a default
    graph.input.extend(info for info in source.input if info.name in defaults)
    graph.output.extend(map(index.value_info, cut.outputs))


def _drop_outputs(node: NodeProto, cut_inputs: Container[str], index: GraphIndex) -> None:
    """Rename the outputs of a kept node that the cut feeds instead."""
    # the node still makes it, but the cut feeds the value: the node's own gets another name
    for slot, name in enumerate(node.output):
        if name and name in cut_inputs:
            node.output[slot] = fresh(f"{name}_unused", Taken(index))
