"""Which nodes of a model each kernel that ran computes."""

from collections.abc import Iterable
from dataclasses import dataclass

from onnx import NodeProto

from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.runtime.optimized import stands_for


@dataclass
class TimedPart:
    """Nodes of a model, by position, and the kernels that do together what they do, by name."""

    positions: list[int]
    kernels: list[str]


def parts(original: GraphIndex, executed: Iterable[NodeProto]) -> list[TimedPart]:
    """Return the parts of a model between values that its kernels make, in the order of `executed`.

    A kernel whose result the model does not know, such as a product before it is reshaped, belongs to the part of
    the next one whose result it knows. A change of layout belongs to none.
    """
    # value that only the runtime has -> the kernels that made it; parts so far: (values of the model, kernels)
    behind = dict[str, list[str]]()
    ends = list[tuple[list[str], list[str]]]()
    known = set[str]()
    for node in executed:
        kernels = [k for name in node.input for k in behind.get(name, ())] + [node.name]
        values = made_values(original, node)
        if not values:
            behind |= dict.fromkeys(node.output, kernels)
        elif new := [value for value in values if value not in known]:
            ends.append((new, kernels))
            known |= set(new)
    return [
        TimedPart(
            # the nodes between the values that kernels made and these
            sorted(original.ancestors(values, stop=known - set(values))),
            list(dict.fromkeys(kernels)),
        )
        for values, kernels in ends
    ]


def made_values(original: GraphIndex, node: NodeProto) -> list[str]:
    """Return the values of a model that a node makes, under their names or in another layout."""
    own = [value for value in node.output if value in original.producer]
    stood = None if own else stands_for(original, node)
    return own or ([stood] if stood in original.producer else [])
