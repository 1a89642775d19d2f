"""Apply passes one after another."""

from dataclasses import dataclass, replace
from typing import ClassVar

from onnx import TensorProto

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.settling import UNSETTLED, settling_later
from onnxsurgeon_lite.model import Model
from onnxsurgeon_lite.passes.protocol import Pass, PassResult
from onnxsurgeon_lite.surgery import retype


@dataclass(frozen=True)
class Pipeline:
    """Apply passes in order; types are checked once, at the end. A pipeline is a pass too.

    Example:
        >>> steps = osl.Pipeline((osl.SetOp(("Add_7",), "Sub"), osl.Rename((("31", "out"),))))
        >>> steps.apply(osl.load("whole_model.onnx")).changes
        ("Add 'Add_7' (@7): operator Add -> Sub", "renamed value '31' to 'out'")
    """

    passes: tuple[Pass, ...]
    name: ClassVar[str] = "pipeline"
    retypes: ClassVar[bool] = True

    # The types of all steps together have to fit: the outermost pipeline checks them.
    def apply(self, model: Model) -> PassResult:
        """Apply all passes.

        Raises:
            SurgeonError: a pass failed; the error's note names it and those before it.
            EditError: the final types do not fit.
        """
        # a pipeline inside another one leaves the check of types to that one
        outer = UNSETTLED.get()
        left = set[str]() if outer is None else outer
        current = model
        notes, changes = list[str](), list[str]()
        unproved = False
        frozen = dict[str, TensorProto]()
        turned = dict[str, tuple[int, ...]]()
        for number, step in enumerate(self.passes):
            try:
                with settling_later(left):
                    result = apply_step(step, current)
            except SurgeonError as error:
                before = ", ".join(repr(done.name) for done in self.passes[:number])
                after = f", after {before}" if before else ""
                place = f"step {number + 1} of {len(self.passes)}{after}"
                error.add_note(f"in pass {step.name!r}, {place}")
                raise
            current = result.model if result.changed else current  # collect what each step says
            notes += result.notes
            changes += result.changes
            unproved |= result.unproved
            frozen |= result.frozen
            for name, order in result.turned.items():
                # composed: which dimension of the first model stands at each place now
                so_far = turned.get(name, tuple(range(len(order))))
                turned[name] = tuple(so_far[axis] for axis in order)
        if current is model:
            return PassResult(model, changed=False, notes=tuple(notes))
        if left and outer is None:
            notes += retype(model, GraphIndex.of(current), left)
        done = PassResult(current, True, tuple(notes), tuple(changes), unproved, frozen)
        return replace(done, turned=turned)


def apply_step(step: Pass, model: Model) -> PassResult:
    """Apply one step of a pipeline; after one that `retypes` values, types need not fit yet."""
    # settling: types may be wrong until the pipeline has ended
    with settling_later(UNSETTLED.get() if hasattr(step, "retypes") else None):
        return step.apply(model)
