"""Give inputs and outputs another layout."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from onnx import NodeProto, TypeProto, helper

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import GraphIndex, dims_of, shape_text
from onnxsurgeon_lite.model import Model, assign, attributes_of, copied
from onnxsurgeon_lite.passes.protocol import PassResult
from onnxsurgeon_lite.surgery.border import border, convert, converter, take_away


@dataclass(frozen=True)
class SetLayout:
    """Give inputs and outputs another layout: a Transpose at the border converts them.

    Where an earlier `set-layout` put one that this one undoes, that is taken away.

    Attributes:
        layouts: input or output -> layout. `NHWC` stands for an input that is `NCHW` so far, and the other way round;
            `NCHW->NWHC` says both.

    Example:
        >>> osl.set_layout("whole_model.onnx", {"input.1": "NHWC"}).changes
        ("input 'input.1': NCHW [1, 3, 20, 20] -> NHWC [1, 20, 20, 3]",)
    """

    layouts: Mapping[str, str] = field(default_factory=dict)
    name: ClassVar[str] = "set-layout"

    def apply(self, model: Model) -> PassResult:
        """Set the layouts.

        Raises:
            UnknownNameError: no such input or output.
            EditError: a layout does not fit the shape, or an input has a default.
        """
        index = GraphIndex.of(model)
        result = model.copy()
        changes = []
        turned = {}
        for name, layout in self.layouts.items():
            declared = border(index, name)
            inside, outside = _layouts(name, layout, declared.type)
            if inside == outside:
                continue
            is_input = name in index.inputs
            # a Transpose from the start to the end of the border
            start, end = (outside, inside) if is_input else (inside, outside)
            # axis of the start at each place of the end
            perm = [start.index(c) for c in end]
            turned[name] = tuple(inside.index(c) for c in outside)
            kind = _moved(declared.type, turned[name])
            now = GraphIndex.of(result)
            # an earlier Transpose that this one would undo goes instead
            known = converter(now, name, "Transpose")
            if known is not None and _undoes(perm, now.nodes[known[0]]):
                take_away(now, name, kind, *known)
            else:
                convert(now, name, kind, helper.make_node("Transpose", [], [], perm=perm))
            changes.append(
                f"{'input' if is_input else 'output'} {name!r}: {inside} {shape_text(declared.type)} -> "
                f"{outside} {shape_text(kind)}"
            )
        return replace(PassResult.of(model, result, changes), turned=turned)


def _undoes(perm: list[int], node: NodeProto) -> bool:
    """Return whether a Transpose with these axes takes back what a node does."""
    other = attributes_of(node).get("perm", [])
    return [perm[axis] for axis in other] == list(range(len(perm)))


def _layouts(name: str, text: str, kind: TypeProto) -> tuple[str, str]:
    """Return (the layout so far, the new one)."""
    given, _, new = text.upper().rpartition("->")
    # "NHWC" as NCHW: the last letter second; "NCHW" as NHWC: the second letter last
    first, last = new[:1] + new[-1:] + new[1:-1], new[:1] + new[2:] + new[1:2]
    inside = given or (first if new.endswith("C") else last)
    # each letter once, the same letters on both sides, and channels if only one layout is given
    if len(set(new)) != len(new) or sorted(inside) != sorted(new) or (not given and "C" not in new):
        raise EditError(f"{text!r} is not a layout", f"write {name}=NHWC, or {name}=NCHW->NWHC")
    if not kind.tensor_type.HasField("shape") or len(dims_of(kind)) != len(new):
        raise EditError(
            f"{name!r} has shape {shape_text(kind)}, layout {new} has {len(new)} dimensions",
            "give a letter for each dimension",
        )
    return inside, new


def _moved(kind: TypeProto, order: tuple[int, ...]) -> TypeProto:
    """Return a type with its dimensions in another order."""
    moved = copied(kind)
    dims = dims_of(kind)
    assign(moved.tensor_type.shape.dim, [dims[place] for place in order])
    return moved
