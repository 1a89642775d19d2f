"""Evaluate nodes in float64: in the runtime if it has the kernels, otherwise with the ONNX reference evaluator.

Weights are cast to float64 where they are used, so float64 is exact about them. Roundings in the definition of the
nodes (a Cast to float16, a quantization) stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, defs, helper

from onnxsurgeon_lite.errors import SurgeonError
from onnxsurgeon_lite.graph import onnx_opset
from onnxsurgeon_lite.model import attributes_of, integer, is_standard, walk
from onnxsurgeon_lite.runtime.observe import Observer
from onnxsurgeon_lite.runtime.options import REFERENCE, RuntimeOptions
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.surgery.contrib import in_standard, is_contrib
from onnxsurgeon_lite.tensors import dtypes
from onnxsurgeon_lite.tensors.dtypes import Array, Arrays, RunValue, RunValues, Wide, is_array

_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
_FLOATS |= {TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2}
_RECURRENT = ("LSTM", "GRU", "RNN")
# the type of the schema that must be allowed
_DOUBLE = "tensor(double)"
# after the name of a value: the same in float64
_WIDE = "\x01float64"


@dataclass
class Float64:
    """Evaluates parts of an observed model in float64; a context manager.

    Attributes:
        seconds: time limit for one evaluation outside the runtime.
        doubted: the runtime is what is judged: the reference evaluator comes before it.
    """

    observer: Observer
    seconds: float = 10.0
    doubted: bool = False
    _evaluator: Runtime | None = None
    _refused: set[str] = field(default_factory=set)

    @cached_property
    def _runner(self) -> Observer:
        """The observer, or one on onnxruntime where the observed runtime has no float64."""
        # onnxruntime has kernels for float64; others may not
        if self.observer.runtime.abilities.float64:
            return self.observer
        return Observer(self.observer.index, Runtime(RuntimeOptions(opt="none", lean=True)))

    def __enter__(self) -> "Float64":
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()
        # set only if it was needed
        runner = vars(self).get("_runner", self.observer)
        if runner is not self.observer:
            runner.runtime.__exit__(*exception)

    def evaluate(
        self, positions: Sequence[int], inputs: RunValues, output: str
    ) -> tuple[Array | None, str]:
        """Return (the value of `output`, the name of the evaluation), or (None, the reason)."""
        given = {n: v for n, v in inputs.items() if is_array(v)}
        if len(given) < len(inputs):
            return None, "sequences and optionals are not evaluated in float64"
        nodes = [self.observer.index.nodes[position] for position in positions]
        odd = next(
            (n for n in nodes if not (is_standard(n) or is_contrib(n)) or walk.bodies(n)), None
        )
        if odd is not None:
            return None, f"{odd.op_type} is a custom operator or has subgraphs"
        # the fastest first; where the runtime itself is judged, it comes last
        ways = (
            (self._in_runtime, f"{self._runner.runtime.title} in float64"),
            (self._convolution, "the definition in float64"),
            (self._in_evaluator, "the ONNX reference evaluator in float64"),
        )
        for way, name in ways[1:] + (ways[0],) if self.doubted else ways:
            found = way(positions, given, output)
            if is_array(found):
                return found, name
        return None, "no float64 evaluation in the time limit"

    def outputs(self, position: int, inputs: RunValues) -> dict[str, RunValue]:
        """Compute a node's outputs from float64 values; without a float64 evaluation, in the model's own dtypes."""
        index = self.observer.index
        node = index.nodes[position]
        names = [name for name in node.output if name]
        constants = map(index.dense, node.input)
        if any(map(dtypes.has_floats, inputs.values())) or any(
            t.data_type in _FLOATS for t in constants if t
        ):
            found = {name: self.evaluate([position], inputs, name)[0] for name in names}
            if all(is_array(value) for value in found.values()):
                return {**found}
        # without floats, float64 would change nothing; without an evaluation, the model's own dtypes have to do
        index.learn_types(inputs)
        # in the model's own dtypes, from values that were wider
        given = {name: _narrowed(value, index.types.get(name)) for name, value in inputs.items()}
        made = self.observer.alone([position], given, names)
        return {name: widened(value) for name, value in made.items()}

    def _in_runtime(self, positions: Sequence[int], inputs: Arrays, output: str) -> Array | None:
        ops = {self.observer.index.nodes[position].op_type for position in positions}
        # operators that had no kernel once have none later
        if ops & self._refused:
            return None
        model = self.observer.index.model
        part = self.observer.part(positions, dtypes.types_of(inputs), [output])
        try:
            # operators of onnxruntime by their definitions
            part = in_standard(model.with_proto(part))[0].proto
            # the schema of an operator may have no double
            if not _widen(part):
                return None
            found = self._runner.run_part(part, inputs, [output])[output]
        except SurgeonError:  # no definition, or no kernel of float64
            self._refused |= ops
            return None
        return found if is_array(found) else None

    def _convolution(self, positions: Sequence[int], inputs: Arrays, output: str) -> Array | None:
        """Compute a Conv here: the runtime has no float64 kernel, and the reference evaluator starts slowly."""
        index = self.observer.index
        node = index.nodes[positions[-1]]
        if len(positions) != 1 or node.op_type != "Conv":
            return None
        operands = []
        for name in node.input:
            constant = index.dense(name)
            if name in inputs:
                operands.append(inputs[name])
            elif constant:
                operands.append(index.model.array(constant))
        return convolve(node, *operands) if len(operands) == len(node.input) else None

    def _in_evaluator(self, positions: Sequence[int], inputs: Arrays, output: str) -> Array | None:
        # there the evaluator would compute something else without saying so
        if any(_beyond_evaluator(self.observer.index.nodes[position]) for position in positions):
            return None
        part = self.observer.part(positions, dtypes.types_of(inputs), [output])
        names = [declared.name for declared in part.graph.input]
        # one process for all evaluations, which ends after an error
        if self._evaluator is None:
            evaluator = RuntimeOptions(runtime=REFERENCE, timeout=self.seconds)
            self._evaluator = Runtime(evaluator)
        # a limit of time: some definitions are very slow
        try:
            for name in names:
                self._evaluator.put(name, _widened(inputs[name]))
            self._evaluator.open(self.observer.index.model.with_proto(part))
            found = self._evaluator.run(names, [output]).values[output]
            self._evaluator.forget(names)
        except SurgeonError:
            self._close()
            return None
        return found if is_array(found) else None

    def _close(self) -> None:
        if self._evaluator is not None:
            self._evaluator.__exit__()
            self._evaluator = None


def _beyond_evaluator(node: NodeProto) -> bool:
    """Return whether the reference evaluator ignores an attribute of a recurrent node."""
    given = attributes_of(node)
    # it implements the forward direction with default activations
    ignored = given.keys() & {"activations", "clip", "input_forget"}
    return node.op_type in _RECURRENT and bool(
        ignored or given.get("direction", b"forward") != b"forward"
    )


def convolve(node: NodeProto, x: Array, weight: Array, bias: Array | None = None) -> Array | None:
    """Compute a Conv by its definition, in float64; return None for an `auto_pad` that is not supported.

    Source: https://onnx.ai/onnx/operators/onnx__Conv.html
    """
    windows = windows_of(node, x, weight.shape[2:])
    wide = weight.astype(float)
    axes = x.ndim - 2
    if windows is None:
        return None
    groups = integer(node, "group", 1)
    # the axes of the kernel in `windows`; those before them are samples, channels and places
    taps = tuple(range(2 + axes, 2 + 2 * axes))
    # each group of output channels reads its own group of input channels
    made = [
        np.tensordot(w, k, ((1,) + taps, (1, *range(2, 2 + axes))))
        for w, k in zip(np.split(windows, groups, 1), np.split(wide, groups, 0), strict=True)
    ]
    # tensordot puts output channels last
    result = np.moveaxis(np.concatenate(made, -1), -1, 1)
    return result if bias is None else result + dtypes.wide(bias).reshape(-1, *[1] * axes)


def windows_of(node: NodeProto, x: Array, kernel: Sequence[int]) -> Wide | None:
    """Return what a Conv reads, in float64: [samples, channels, each axis, each axis of the kernel].

    None for an `auto_pad` that is not supported, and for an input that is smaller than a window.
    """
    attributes = attributes_of(node)
    axes = len(kernel)
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    # pad, then take each window; strides skip windows, dilations skip elements
    pads = attributes.get("pads", [0] * 2 * axes)
    ones = [1] * axes
    strides, dilations = (attributes.get(name, ones) for name in ("strides", "dilations"))
    # none for samples and channels; begin and end of each axis
    around = [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)]
    padded = np.pad(dtypes.wide(x), around)
    # how far a window reaches, with gaps
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if any(size < r for size, r in zip(padded.shape[2:], reach, strict=True)):
        return None
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + axes)))
    # every stride-th window, every dilation-th element in it
    steps = [slice(None, None, step) for step in (1, 1, *strides, *dilations)]
    return windows[tuple(steps)]


def _widen(part: ModelProto) -> bool:
    """Cast the float inputs of the nodes to double, if the definitions of their operators allow it."""
    graph = part.graph
    opset = onnx_opset(part)
    # values that are float in the model
    floats = {v.name for v in graph.input if v.type.tensor_type.elem_type in _FLOATS}
    floats |= {t.name for t in graph.initializer if t.data_type in _FLOATS}
    casts = dict[str, NodeProto]()
    nodes = list(graph.node)
    for node in nodes:
        if _makes_float(node):
            floats.update(node.output)
        # which inputs may be double
        widens = _takes_double(node, opset)
        # the operator has no such definition, or no entry for its input
        if widens is None or len(widens) < len(node.input[:1]):
            return False
        # one Cast for each value, however many nodes read it
        for slot, name in enumerate(node.input):
            if name in floats and widens[min(slot, len(widens) - 1)]:
                wide = name + _WIDE
                casts[name] = helper.make_node("Cast", [name], [wide], to=TensorProto.DOUBLE)
                node.input[slot] = wide
    del graph.node[:]
    # Casts of inputs first, those of results after their nodes
    made_by = {name: node for node in nodes for name in node.output}
    graph.node.extend(cast for name, cast in casts.items() if name not in made_by)
    for node in nodes:
        graph.node.append(node)
        graph.node.extend(casts[name] for name in node.output if name in casts)
    # inputs that are double already
    doubles = (v.type.tensor_type.elem_type == TensorProto.DOUBLE for v in graph.input)
    return bool(casts) or any(doubles)


def _makes_float(node: NodeProto) -> bool:
    """Return whether an attribute of the node makes its result a float."""
    attributes = attributes_of(node)
    match node.op_type:
        case "Cast":
            # a Cast to float16 is part of the definition: its result is cast again where it is used
            return attributes.get("to") in _FLOATS
        case "Constant" | "ConstantOfShape":
            value = attributes.get("value")
            if isinstance(value, TensorProto):
                return value.data_type in _FLOATS
            return node.op_type == "ConstantOfShape" or attributes.keys() <= {
                "value_float",
                "value_floats",
            }
    return False


def _takes_double(node: NodeProto, version: int) -> list[bool] | None:
    """Return whether each input can be double; None if the operator has no such definition."""
    try:
        schema = defs.get_schema(node.op_type, version, "")
    except defs.SchemaError:
        return None
    allowed = {c.type_param_str: _DOUBLE in c.allowed_type_strs for c in schema.type_constraints}
    # variadic operators have one formal input for all
    takes = [allowed.get(formal.type_str, False) for formal in schema.inputs]
    return takes if any(takes) or not takes else None


def widened(value: RunValue) -> RunValue:
    """Cast floats to float64; return everything else unchanged."""
    return dtypes.wide(value) if dtypes.has_floats(value) else value


def _narrowed(value: RunValue, kind: TypeProto | None) -> RunValue:
    """Cast a float64 value to its dtype in the model; to float32 if the model does not declare one."""
    if not is_array(value) or value.dtype != np.float64:
        return value
    declared = kind.tensor_type.elem_type if kind is not None else 0
    return value.astype(dtypes.numpy_dtype(declared or TensorProto.FLOAT))


def _widened(array: Array) -> Array:
    """Cast floats to float64, and integers below a byte to int8."""
    if dtypes.data_type_of_numpy(array.dtype) in _FLOATS:
        return dtypes.wide(array)
    # ml_dtypes' int4 and the like, which onnx's evaluator does not read
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:
        return array.astype(np.int8)
    return np.ascontiguousarray(array)
