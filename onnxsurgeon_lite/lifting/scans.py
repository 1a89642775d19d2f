"""A Scan as the Loop that computes the same: a Loop can carry sequences."""

from onnx import GraphProto, NodeProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.lifting.wires import Nodes, condition, loop_inputs
from onnxsurgeon_lite.surgery import fresh, rename_uses

_INT64_MIN = -(2**63)


def to_loop(
    node: NodeProto, graph: GraphProto, body: GraphIndex, before: Nodes, after: Nodes
) -> dict[str, str]:
    """Make a Scan a Loop, in place, with new nodes before and after it.

    Returns:
        The new names of the elements that the body goes over: a node's output must not have an outer value's name.

    Args:
        graph: its body.
        body: the same, with its types.

    Raises:
        EditError: an output is stacked along a dimension other than the first, and its rank is unknown.
    """
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    scanned = given["num_scan_inputs"]
    states = len(node.input) - scanned
    taken, inner = before.taken, Nodes(before.taken)

    # the body may have a value of a source's name: it reads the source under another one
    sources = [before.add("Identity", [name], f"{name}.scanned") for name in node.input[states:]]
    axes = given.get("scan_input_axes", [0] * scanned)
    shape = before.add("Shape", sources[:1], "shape")
    trips = before.add("Gather", [shape, before.constant(axes[0])], "trips", axis=0)
    last = before.add("Sub", [trips, before.constant(1)], "last")
    number, going = fresh("iteration", taken), fresh("going", taken)
    backwards = given.get("scan_input_directions", [0] * scanned)
    elements = {value.name: fresh(value.name, taken) for value in graph.input[states:]}
    rename_uses(graph.node, elements)
    for value in graph.output:
        value.name = elements.get(value.name, value.name)
    for element, source, axis, back in zip(
        elements.values(), sources, axes, backwards, strict=True
    ):
        place = inner.add("Sub", [last, number], "place") if back else number
        inner.named("Gather", [source, place], element, axis=axis)
    on = inner.add("Identity", [going], "on")
    for made in reversed(inner.made):
        graph.node.insert(0, made)
    del graph.input[states:]
    for declared in reversed(loop_inputs(number, going)):
        graph.input.insert(0, declared)
    stacked = [value.name for value in graph.output[states:]]
    graph.output.insert(0, condition(on))

    axes = given.get("scan_output_axes", [0] * len(stacked))
    backwards = given.get("scan_output_directions", [0] * len(stacked))
    for slot, (value, axis, back) in enumerate(zip(stacked, axes, backwards, strict=True), states):
        if slot < len(node.output) and node.output[slot] and (axis or back):
            name, node.output[slot] = (
                node.output[slot],
                fresh(f"{node.output[slot]}.stacked", taken),
            )
            _restacked(after, node.output[slot], name, _order(body, value, axis), back)
    node.op_type = "Loop"
    node.input[:] = [trips, "", *node.input[:states]]
    for slot in range(len(node.attribute) - 1, -1, -1):
        if node.attribute[slot].name != "body":
            del node.attribute[slot]
    return elements


def _order(body: GraphIndex, value: str, axis: int) -> list[int]:
    """The permutation that brings dimension 0 of what a Loop stacks to where a Scan has it."""
    if axis == 0:
        return []
    kind = body.type_of(value)
    if kind is None or not kind.tensor_type.HasField("shape"):
        raise EditError(
            f"the rank of {value!r} in {body.graph.name!r} is unknown, and a Scan stacks it along axis {axis}",
            "declare its type in the body",
        )
    rank = 1 + len(kind.tensor_type.shape.dim)
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return order


def _restacked(after: Nodes, stacked: str, name: str, order: list[int], back: int) -> None:
    """What the Scan gave, from what the Loop stacked."""
    if back:
        bounds = [after.constant([number]) for number in (-1, _INT64_MIN, 0, -1)]
        reverse = after.add if order else after.named
        stacked = reverse("Slice", [stacked, *bounds], f"{name}.forward" if order else name)
    if order:
        after.named("Transpose", [stacked], name, perm=order)
