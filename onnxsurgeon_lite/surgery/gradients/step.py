"""One node whose gradient is being written: what a rule reads.

Differences between opsets that a rule would meet when it reads a node stand here, once.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto

from onnxsurgeon_lite.errors import EditError
from onnxsurgeon_lite.graph import schema_at
from onnxsurgeon_lite.model import by_name, integer, operand
from onnxsurgeon_lite.surgery.gradients.tape import Tape, Term
from onnxsurgeon_lite.tensors.dtypes import Array


@dataclass
class GradientStep:
    """A node and the gradients of its outputs.

    Attributes:
        gradients: per output, the gradient; None where nothing depends on it.
        slot: the input whose gradient is asked for.
    """

    tape: Tape
    node: NodeProto
    gradients: Sequence[Term | None]
    slot: int = 0
    _cache: dict[int, Term] = field(default_factory=dict)  # slot -> input

    @cached_property
    def attributes(self) -> Mapping[str, AttributeProto]:
        """The node's attributes by name."""
        return by_name(self.node.attribute)

    def has(self, slot: int) -> bool:
        """Return whether the node has this input."""
        return bool(operand(self.node, slot))

    def input(self, slot: int) -> Term:
        """Return an input."""
        # a rule reads an input several times
        if slot not in self._cache:
            self._cache[slot] = self.tape.value(self.node.input[slot])
        return self._cache[slot]

    @property
    def x(self) -> Term:
        """The input whose gradient is asked for."""
        return self.input(self.slot)

    @property
    def a(self) -> Term:
        """The first input."""
        return self.input(0)

    @property
    def b(self) -> Term:
        """The second input."""
        return self.input(1)

    @property
    def y(self) -> Term:
        """The first output."""
        return self.output(0)

    def output(self, slot: int) -> Term:
        """Return an output.

        Raises:
            EditError: the node omits it.
        """
        if slot < len(self.node.output) and self.node.output[slot]:
            return self.tape.value(self.node.output[slot])
        raise EditError(f"{self.node.op_type} {self.node.name!r} omits its output {slot}")

    @property
    def dy(self) -> Term:
        """The gradient of the first output."""
        first = self.gradients[0]
        if first is None:
            raise self.refused("only its other outputs are used")
        return first

    def refused(self, why: str) -> EditError:
        """Return the error for a node whose rule does not hold for it."""
        name = f" {self.node.name!r}" if self.node.name else ""
        return EditError(
            f"{self.node.op_type}{name} has no gradient rule where {why}",
            "leave it out of the path: choose another --to or --of",
        )

    def again(
        self,
        outputs: int,
        *inputs: Term | None,
        attributes: Container[str] | None = None,
    ) -> list[Term]:
        """Return the outputs of the same node with other inputs, and with all or some of its attributes."""
        # all attributes, or some
        kept = [a for a in self.node.attribute if attributes is None or a.name in attributes]
        node = NodeProto(op_type=self.node.op_type, attribute=kept)
        node.input.extend("" if term is None else term.name for term in inputs)
        # the results have the dtype of the first input
        first = next(term for term in inputs if term is not None)
        made = self.tape.add(node, outputs)
        return [Term(self.tape, name, first.dtype) for name in made]

    def second(
        self, outputs: int, *inputs: Term | None, attributes: Container[str] | None = None
    ) -> Term:
        """Return the second output, which has places; with some attributes, or without a name, it is computed again."""
        name = self.node.output[1] if len(self.node.output) > 1 and attributes is None else ""
        name = name or self.again(outputs, *inputs, attributes=attributes)[1].name
        return Term(self.tape, name, TensorProto.INT64)

    def rest(self, start: int = 1) -> list[Term | None]:
        """Return the inputs from a slot on."""
        return [
            self.input(slot) if self.has(slot) else None
            for slot in range(start, len(self.node.input))
        ]

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute."""
        return integer(self.node, name, default)

    def number(self, name: str, default: float = 0.0) -> float:
        """Return an attribute; by default what the operator's schema says, otherwise `default`."""
        if name in self.attributes:
            return float(self.attributes[name].f)
        # not given: what the operator's schema says
        schema = schema_at(self.node.op_type, self.tape.opset)
        given = schema.attributes[name].default_value
        return float(given.f) if given.name else default

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute."""
        return self.attributes[name].s.decode() if name in self.attributes else default

    def integers(self, name: str) -> list[int] | None:
        """Return an attribute, None if it is not given."""
        return list(self.attributes[name].ints) if name in self.attributes else None

    def numbers(self, slot: int) -> Array | None:
        """Return the numbers of an input that never changes."""
        return self.tape.array_of(self.node.input[slot]) if self.has(slot) else None

    @cached_property
    def rank(self) -> int:
        """The rank of the first input."""
        return self.tape.rank(self.a)

    def axis(self, default: int = -1) -> int:
        """Return the attribute `axis`, not negative."""
        return self.at(self.integer("axis", default))

    def at(self, axis: int) -> int:
        """Return an axis of the first input, not negative."""
        return self.tape.axis(self.a, axis)

    def listed(self, name: str, slot: int = 1) -> list[int] | Term | None:
        """Return what older opsets have as an attribute, newer ones as an input; None if it is not given."""
        if name in self.attributes or not self.has(slot):
            return self.integers(name)
        known = self.numbers(slot)
        # a term where they are computed when the model runs
        return self.input(slot) if known is None else [int(n) for n in np.ravel(known)]

    def axes(self) -> list[int] | Term:
        """Return the reduced axes, not negative where they are known: all of them if none is given."""
        axes = self.listed("axes")
        if isinstance(axes, Term):
            return axes
        if not axes:
            # no axes: all of them, or none where `noop_with_empty_axes` says so
            return [] if self.integer("noop_with_empty_axes") else list(range(self.rank))
        return sorted(map(self.at, axes))

    def fixed_axes(self) -> list[int]:
        """Return the reduced axes.

        Raises:
            EditError: they are computed when the model runs.
        """
        axes = self.axes()
        if isinstance(axes, Term):
            raise self.refused("the axes are computed when the model runs")
        return axes

    def spread(self, term: Term) -> Term:
        """Return a term of the shape of the output of a reduction such that it broadcasts to the input."""
        if self.integer("keepdims", 1):
            return term
        axes = self.axes()
        return self.tape.op("Unsqueeze", term, axes) if axes else term

    def expanded(self, term: Term) -> Term:
        """Return a term of the shape of the output of a reduction, in the shape of the input."""
        return self.tape.op("Expand", self.spread(term), self.tape.dims(self.a))


def is_float(dtype: int) -> bool:
    """Return whether a value of this dtype can have a gradient."""
    return dtype in (
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.FLOAT16,
        TensorProto.BFLOAT16,
    )


Slot = Callable[[GradientStep], Term | None]
"""The gradient of one input; None where it is zero."""
Rule = tuple[Slot, ...] | Slot
"""The gradient of each input by its place; one function where all inputs are alike."""
