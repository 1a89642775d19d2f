"""Give layers of a quantized model their float values back, and see what that does to the outputs."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from onnx import ModelProto, TensorProto, helper

from onnxsurgeon_lite.debug.ranking.rank import sqnr
from onnxsurgeon_lite.errors import UsageError
from onnxsurgeon_lite.graph import DEQUANTIZE, GraphIndex, Quantizers
from onnxsurgeon_lite.model import Model, copied
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.shown import Progress, Shown
from onnxsurgeon_lite.tensors.dtypes import RunValues, from_array, is_float, numpy_dtype

_MARGIN = 0.5  # decibels that a quantizer may place its nodes otherwise
_RELU = ("Relu", "Clip")
_QUANTIZED = """Add ArgMax AveragePool BatchNormalization Clip Concat Conv ConvTranspose CumSum Flatten Gather
GatherElements Gemm GlobalAveragePool InstanceNormalization LayerNormalization LeakyRelu MatMul MaxPool Mul Pad Relu
Reshape Resize Sigmoid Slice Softmax Split Squeeze TopK Transpose Unsqueeze Where"""
"""The operators that onnxruntime's quantizer quantizes; others may stand between quantized ones."""


@dataclass(frozen=True)
class LeftOut:
    """What giving one layer its float values back does to the outputs.

    Attributes:
        output_db: the SQNR of the worst output then, in decibels.
        gain_db: how much better that is.
        place: the module, class and source line of the node.
    """

    id: str
    name: str
    op_type: str
    output_db: float
    gain_db: float
    place: str


@dataclass(frozen=True)
class LeaveOneOut(Shown):
    """Layers by what they gain the outputs in float, the most first.

    Attributes:
        output_db: the SQNR of the worst output of the quantized model.
        exclude: the layers that together reach the wanted SQNR. reached_db: what the outputs have with all of these in
            float.
        wanted_db: the SQNR that was asked for.
    """

    nodes: list[LeftOut]
    output_db: float
    exclude: list[str] = field(default_factory=list)
    reached_db: float | None = None
    wanted_db: float | None = None


def leave_one_out(
    index: GraphIndex,
    theirs: GraphIndex,
    feeds: Feeds,
    runtime: Runtime,
    wanted: float | None,
    progress: Progress,
) -> LeaveOneOut:
    """Run the model once for each layer that is left in float; then leave layers in float until the outputs are good.

    Args:
        theirs: the float model, which has the weights.
        wanted: the SQNR that each output should have, in decibels.

    Raises:
        UsageError: no layer of the model is quantized.
    """
    parts = _Partial(index, theirs, feeds, runtime)
    if not parts.layers:
        raise UsageError(
            "no layer of the model is between DequantizeLinear and QuantizeLinear",
            "give a model in the QDQ format: quantize_static(..., quant_format=QuantFormat.QDQ)",
        )
    # each layer alone in float: what the outputs gain
    before = parts.output_db(())
    found = []
    for number, position in enumerate(parts.layers):
        progress(f"{number} of {len(parts.layers)} layers left in float")
        node, after = index.nodes[position], parts.output_db([position])
        place = str(index.origins[position])
        gain = after - before
        found.append(LeftOut(f"@{position}", node.name, node.op_type, after, gain, place))
    found.sort(key=lambda layer: -layer.output_db)
    # with a goal: the fewest layers that reach it
    if wanted is None:
        return LeaveOneOut(found, before)
    exclude, reached = _reaching(parts, found, wanted, before)
    names = [layer.name or layer.id for layer in exclude]
    return LeaveOneOut(found, before, names, reached, wanted)


def _reaching(
    parts: "_Partial", layers: Sequence[LeftOut], wanted: float, before: float
) -> tuple[list[LeftOut], float]:
    """Return (layers that together reach the wanted SQNR, what they reach): as many of the best as it takes."""

    def with_these(layers: Sequence[LeftOut]) -> float:
        return parts.output_db([int(layer.id[1:]) for layer in layers])

    # first add the best layers until it is enough, then take back those that turn out not to be needed
    chosen, reached, enough = list[LeftOut](), before, wanted + _MARGIN
    for layer in layers:
        if reached >= enough:
            break
        chosen.append(layer)
        reached = with_these(chosen)
    for layer in reversed(chosen[:-1]):
        fewer = [other for other in chosen if other is not layer]
        if reached >= enough and (without := with_these(fewer)) >= enough:
            chosen, reached = fewer, without
    return chosen, reached


@dataclass
class _Partial:
    """A quantized model with some layers in float.

    Quantizers place a pair on a value when its producer or one of its users is quantized.
    """

    index: GraphIndex
    theirs: GraphIndex
    feeds: Feeds
    runtime: Runtime

    @cached_property
    def quantizers(self) -> Quantizers:
        return Quantizers.of(self.index)

    @cached_property
    def layers(self) -> list[int]:
        """The nodes whose operands and result are quantized, in topological order."""
        return [position for position in self.index.order if self._is_quantized(position)]

    def _is_quantized(self, position: int) -> bool:
        node = self.index.nodes[position]
        quantizers = self.quantizers
        if node.op_type not in _QUANTIZED.split():
            return False
        # quantized operands and a quantized result, or at least a quantized weight
        read = [
            name for name in node.input if name in quantizers.weights | quantizers.sources.keys()
        ]
        made = [name for name in node.output if name in quantizers.behind]
        return bool(read and made) or bool(quantizers.weights & set(read))

    @cached_property
    def _references(self) -> RunValues:
        # output -> the float model's value
        names = [n for n in self.index.outputs if self._origin(n, self.theirs.producer)]
        theirs = {name: self._origin(name, self.theirs.producer) for name in names}
        given = {name: value for name, value in self.feeds.items() if name in self.theirs.inputs}
        found = run(self.theirs, given, self.runtime, list(theirs.values()))
        return {name: found[other] for name, other in theirs.items()}

    def _origin(self, name: str, among: Collection[str]) -> str:
        return next((n for n in self.quantizers.origin(name) if n in among), "")

    def output_db(self, left: Iterable[int]) -> float:
        """Return the SQNR of the worst output with these layers in float."""
        model = GraphIndex.of(Model(self._model(set(left)), self.index.model.files))
        names = list(self._references)
        found = run(model, self.feeds, self.runtime, names)
        return min(sqnr(found[name], self._references[name]) for name in names)

    def _model(self, left: Collection[int]) -> ModelProto:
        result = copied(self.index.model.proto)
        weights = {name: self._float_weight(name) for name in self.quantizers.weights}
        for position in left:
            node = result.graph.node[position]
            for slot, name in enumerate(node.input):
                tensor = weights.get(name)
                if tensor is not None:
                    node.input[slot] = tensor.name
                    result.graph.initializer.append(tensor)
        kept = set(self.layers) - set(left)
        for behind, source in self.quantizers.sources.items():
            # the pair goes if no quantized layer makes or reads the value; -1 is an input of the model
            around = {self.index.producer.get(source, -1)}.union(self.index.users(behind))
            if not around & kept:
                node = result.graph.node[self.index.producer[behind]]
                assert node.op_type == DEQUANTIZE
                # Quantizers merge a Relu into the range of the pair behind it: without the pair it must come back.
                origin = self._origin(behind, self.theirs.producer)
                merged = self.theirs.operator_of(origin) in _RELU and source in self.index.producer
                cuts = merged and self.index.operator_of(source) not in _RELU
                node.CopyFrom(helper.make_node("Relu" if cuts else "Identity", [source], [behind]))
        return result

    def _float_weight(self, name: str) -> TensorProto | None:
        """Return the float model's tensor of a dequantized weight, under a name of its own."""
        other = self.theirs.dense(self._origin(name, self.theirs.initializers))
        own = self.index.dense(self.index.nodes[self.index.producer[name]].input[0])
        if other is None or own is None or list(own.dims) != list(other.dims):
            return None
        if not is_float(numpy_dtype(other.data_type)):  # the other model is quantized, too
            return None
        return from_array(self.theirs.model.array(other), f"{name}\x01float")
