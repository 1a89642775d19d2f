"""Convert a Scan to an equivalent Loop, because a Loop can carry sequences."""

from dataclasses import dataclass

from onnx import GraphProto, NodeProto

from onnxsurgeon_lite.model import drop, integer, scan_layout
from onnxsurgeon_lite.surgery.edits import fresh, rename_outputs, rename_uses
from onnxsurgeon_lite.surgery.exposing.wires import NewNodes, condition, loop_inputs

_INT64_MIN = -(2**63)


@dataclass(frozen=True)
class Stacked:
    """A stacked output of a Scan: the body's value, the output's name, the axis, and 1 for the reverse direction."""

    value: str
    name: str
    axis: int
    back: int

    def add(self, after: NewNodes, collected: str) -> None:
        """Stack the collected values: a sequence, or a tensor that is stacked along dimension 0."""
        if self.axis:  # stacked along a new axis that is not the first: from a sequence
            new = {"axis": self.axis, "new_axis": 1}
            if not self.back:
                after.named("ConcatFromSequence", [collected], self.name, **new)
                return
            collected = after.add("ConcatFromSequence", [collected], f"{self.name}.forward", **new)
        # start, end, axis and step of a Slice that reverses
        bounds = [after.constant([number]) for number in (-1, _INT64_MIN, self.axis, -1)]
        after.named("Slice", [collected] + bounds, self.name)


def to_loop(
    node: NodeProto, graph: GraphProto, before: NewNodes, after: NewNodes
) -> tuple[dict[str, str], list[Stacked]]:
    """Convert a Scan to a Loop, in place, with new nodes before and after it.

    Returns:
        The new names of the elements that the body iterates over, because a node's output must not shadow an outer
        value; and the outputs that a Loop cannot stack, which the Loop still lacks.
    """
    scanned = integer(node, "num_scan_inputs")
    # a Scan's inputs: first its states, then what it iterates over
    states = len(node.input) - scanned
    taken, inner = before.taken, NewNodes(before.taken)

    # the body can define a value with a source's name: it then reads the source under another name
    sources = [before.add("Identity", [name], f"{name}.scanned") for name in node.input[states:]]
    # The number of iterations is the size of the axis that is iterated over; the same for all.
    axes, backwards = scan_layout(node, "input", scanned)
    shape = before.add("Shape", sources[:1], "shape")
    trips = before.add("Gather", [shape, before.constant(axes[0])], "trips", axis=0)
    last = before.add("Sub", [trips, before.constant(1)], "last")
    number, going = fresh("iteration", taken), fresh("going", taken)

    # The rows that a Scan gives to its body; in a Loop, the body takes them from the whole by a Gather.
    elements = {value.name: fresh(value.name, taken) for value in graph.input[states:]}
    rename_uses(graph.node, elements)
    rename_outputs(graph, elements)
    for element, source, axis, back in zip(
        elements.values(), sources, axes, backwards, strict=True
    ):
        # from the last row to the first
        place = inner.add("Sub", [last, number], "place") if back else number
        inner.named("Gather", [source, place], element, axis=axis)
    on = inner.add("Identity", [going], "on")
    for made in reversed(inner.made):
        graph.node.insert(0, made)
    # The formal inputs of a Loop's body: iteration, condition, states. Its first output is the condition.
    del graph.input[states:]
    for declared in reversed(loop_inputs(number, going)):
        graph.input.insert(0, declared)
    graph.output.insert(0, condition(on))

    left = _take_stacked(node, graph, states, after)
    node.op_type = "Loop"
    node.input[:] = [trips, before.always(), *node.input[:states]]
    drop(node.attribute, lambda attribute: attribute.name != "body")
    return elements, left


def _take_stacked(
    node: NodeProto, graph: GraphProto, states: int, after: NewNodes
) -> list[Stacked]:
    """Stack outputs as a Loop does, and transpose them afterwards; remove and return those that it cannot stack."""
    left = list[Stacked]()
    count = len(graph.output) - 1 - states
    axes, backwards = scan_layout(node, "output", count)
    # From the last to the first, because slots after a removed one change.
    for slot in range(states + count - 1, states - 1, -1):
        name = node.output[slot] if slot < len(node.output) else ""
        output = Stacked(
            graph.output[slot + 1].name, name, axes[slot - states], backwards[slot - states]
        )
        if name and output.axis:  # the Loop gets a sequence instead, see `Stacked.add`
            left.append(output)
            del node.output[slot], graph.output[slot + 1]
        elif name and output.back:  # stacked along the first axis, but reversed
            node.output[slot] = fresh(f"{name}.stacked", after.taken)
            output.add(after, node.output[slot])
    return left
