"""The pass protocol: model in, `PassResult` out; `Pipeline` applies passes one after another."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from onnx import AttributeProto, TensorProto, ValueInfoProto, helper

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import (
    GraphIndex,
    captured,
    fitting_version,
    opset_versions,
    tensor_type,
)
from onnxsurgeon_lite.graph.settling import UNSETTLED, settling_later
from onnxsurgeon_lite.model import Model, Written, by_name, drop, is_standard, save, walk
from onnxsurgeon_lite.shown import HIDDEN, Shown, hidden
from onnxsurgeon_lite.surgery import retype

AttributeValue = int | float | str | Sequence[int] | Sequence[float] | Sequence[str]
Attributes = tuple[tuple[str, AttributeValue], ...]
OPTIONAL_INPUTS = 4  # the IR version since which an initializer need not be an input
_NUMBERED_TYPES = 6  # the opset since which Cast has the number of a dtype, not its name


@dataclass(frozen=True, repr=False)
class PassResult(Shown):
    """The result of a pass.

    Attributes:
        model: the new model; the input object when nothing changed.
        changed: True when the new model differs from the input.
        notes: hints for the user, one sentence each.
        changes: the changes, one line each.
        unproved: True when only a run can tell that the result computes what the source does.
        frozen: inputs that became constants, with their numbers; a run of the source is fed them.
        turned: input or output that was transposed -> the dimension of the source at each place.
        decisive: values that a run has to compare, where those are enough; all else means the same in both.

    Example:
        >>> result = osl.Rename((("23", "features"),)).apply(osl.load("whole_model.onnx"))
        >>> print(result)
        renamed value '23' to 'features'
    """

    model: Model = field(metadata=HIDDEN)
    changed: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    unproved: bool = hidden(False)
    frozen: Mapping[str, TensorProto] = field(default_factory=dict, metadata=HIDDEN)
    turned: Mapping[str, tuple[int, ...]] = field(default_factory=dict, metadata=HIDDEN)
    decisive: tuple[str, ...] = hidden(())

    @classmethod
    def of(
        cls,
        source: Model,
        result: Model,
        changes: Iterable[str],
        notes: Iterable[str] = (),
        *,
        is_told: bool = False,
    ) -> "PassResult":
        """Return the result of an edit on a copy; the source when the copy equals it.

        Args:
            is_told: `changes` lists every change, so that the models need not be compared if there is none.
        """
        lines = tuple(changes)
        if (is_told and not lines) or result.proto == source.proto:
            return cls(source, changed=False, notes=tuple(notes))
        _complete(result, source)
        return cls(result, True, tuple(notes), lines)

    def save(self, path: str | Path, external: bool | None = None, force: bool = False) -> Written:
        """Write the model; see `onnxsurgeon_lite.save`."""
        return save(self.model, path, external, force=force)


def _complete(result: Model, source: Model) -> None:
    """Make an edited model valid in its own version of ONNX.

    Before IR version 4 every initializer is an input, too. Before opset 6 Cast has the name of a dtype. A model
    without an import of ONNX's own operators gets one if the edit added such a node.
    """
    proto = result.proto
    # every initializer is an input
    if proto.ir_version < OPTIONAL_INPUTS:
        before = by_name(source.graph.input)
        declared = {info.name for info in proto.graph.input}
        new = [tensor for tensor in proto.graph.initializer if tensor.name not in declared]
        # names that are still needed; a removed initializer takes its input with it
        kept = {name for node in proto.graph.node for name in chain(node.input, captured(node))}
        kept.update(value.name for value in chain(proto.graph.output, proto.graph.initializer))
        gone = by_name(source.graph.initializer).keys() - kept
        drop(proto.graph.input, lambda info: info.name in gone)
        proto.graph.input.extend(
            before.get(tensor.name) or ValueInfoProto(name=tensor.name, type=tensor_type(tensor))
            for tensor in new
        )
    opset = opset_versions(proto.opset_import).get("")
    # what follows concerns old opsets, or none at all
    if opset is not None and opset >= _NUMBERED_TYPES:
        return
    own = [node for node in walk.nodes(walk.graphs(proto)) if is_standard(node)]
    if opset is None:
        version = fitting_version(own, "", proto.ir_version) if own else None
        # an import that fits the nodes, which the edit brought
        proto.opset_import.extend([] if version is None else [helper.make_opsetid("", version)])
        return
    # "FLOAT" instead of 1
    casts = (node.attribute for node in own if node.op_type == "Cast")
    for attribute in chain.from_iterable(casts):
        if attribute.type == AttributeProto.INT:
            named = TensorProto.DataType.Name(attribute.i)
            attribute.CopyFrom(helper.make_attribute(attribute.name, named))


class Pass(Protocol):
    """An edit of a model; options are fields of a frozen dataclass.

    Example:
        >>> isinstance(osl.Rename({"23": "features"}.items()), osl.PASSES["rename"])
        True
    """

    name: ClassVar[str]

    def apply(self, model: Model) -> PassResult:
        """Return the edited model; the input does not change."""
        ...


def key(value: object) -> Hashable:
    """Return a key for an edit or one of its options: keys are equal only if all options are, with all numbers."""
    match value:
        case np.ndarray():
            # arrays by their bytes; objects (strings) by how they are written
            raw = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
            return value.dtype.name, value.shape, _digest(raw)
        case list() | tuple():
            return tuple(map(key, value))
        case Mapping():
            return tuple((name, key(each)) for name, each in value.items())
        # a model by its graph and where its weights are
        case Model():
            return str(value.path), _digest(value.proto.SerializeToString(deterministic=True))
    if is_dataclass(value):
        return type(value), *(key(getattr(value, field.name)) for field in fields(value))
    return type(value), repr(value)


def _digest(raw: bytes) -> bytes:
    import hashlib

    return hashlib.blake2b(raw).digest()


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
