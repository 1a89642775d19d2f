"""The optimized graph that the runtime makes of a model, with the original's values found in it.

The runtime writes its optimized graph; run as that is, with optimization off, it computes what the optimized run
computes, and a value in it can be observed without undoing a fusion. Convolutions in a blocked layout have values with
other names, but a node still carries the name of the value that it computes, and a `ReorderOutput` converts that
value back.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from onnx import NodeProto, helper

from onnxsurgeon_lite.graph import GraphIndex
from onnxsurgeon_lite.graph.selecting.select import select_values
from onnxsurgeon_lite.model import Model, load, operand
from onnxsurgeon_lite.runtime.feeds import Feeds
from onnxsurgeon_lite.runtime.run import run
from onnxsurgeon_lite.runtime.session import Runtime
from onnxsurgeon_lite.system import IS_POSIX, TemporaryFolder
from onnxsurgeon_lite.tensors.dtypes import RunValues, byte_count

RULES = (  # onnxruntime's rule_based_graph_transformer runs these
    "CastChainElimination", "CastElimination", "ClipQuantRewrite", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion",
    "DivMulFusion", "EliminateDropout", "EliminateIdentity", "EliminateSlice", "ExpandElimination", "FuseReluClip",
    "GemmSumFusion", "GemmTransposeFusion", "LabelEncoderFusion", "MatMul_BatchNormalization_Fusion",
    "NoopElimination", "NotWhereFusion", "Pad_Fusion", "PreShapeNodeElimination", "ReluQuantRewrite",
    "UnsqueezeElimination",
)  # fmt: skip
WEIGHTS_FILE = "weights"  # beside the graph, as runtime/worker.py says
OPTIMIZERS = "onnxdbg.optimizers"  # metadata of the model: what changed it
KERNEL = "kernel:"  # before a value of the optimized graph, among values of the model
_QUICKLY_WRITTEN = 256 << 20  # bytes
_BLOCKED = "com.microsoft.nchwc"
_BLOCKED_SUFFIX = "_nchwc"


@contextmanager
def optimized_model(
    original: GraphIndex, runtime: Runtime, weights: bool = True
) -> Iterator[Model]:
    """Yield the model that the runtime runs for another one; its files exist while the context is open."""
    with structure_file(weights) as path:
        runtime.open(original.model, optimized=path)
        yield load_structure(path)


@contextmanager
def optimized_graph(original: GraphIndex, runtime: Runtime) -> Iterator[GraphIndex]:
    """Yield the graph that the runtime runs for a model, with the original's values in it."""
    with optimized_model(original, runtime) as model:
        _pass_through(original, GraphIndex.of(model))
        yield GraphIndex.of(model)


def kernel_values(
    original: GraphIndex, runtime: Runtime, feeds: Feeds, selectors: Iterable[str]
) -> RunValues:
    """Return values of the optimized graph by `kernel:` and their names there; optimization is off afterwards."""
    with optimized_graph(original, runtime) as graph:
        names = select_values(graph, selectors).names
        runtime.options = replace(runtime.options, opt="none")
        return {
            f"{KERNEL}{name}": value for name, value in run(graph, feeds, runtime, names).items()
        }


@contextmanager
def structure_file(weights: bool = False) -> Iterator[Path]:
    """Yield where the runtime can write its optimized graph, by default without the weights, which take long."""
    with TemporaryFolder() as folder:
        # weights go to a device that forgets them; Windows lets few users make a link
        if IS_POSIX and not weights:
            (Path(folder) / WEIGHTS_FILE).symlink_to(os.devnull)
        yield Path(folder) / "optimized.onnx"


def load_structure(path: Path) -> Model:
    """Return the optimized graph that the runtime wrote to a file of `structure_file`."""
    weights = path.with_name(WEIGHTS_FILE)
    # onnxruntime 1.27 replaces the link, 1.20 leaves it there; no model's data may be a link
    if weights.is_symlink():
        weights.unlink()
    return load(path)


def unfused(index: GraphIndex, runtime: Runtime, names: Iterable[str]) -> list[str]:
    """Return the values that the optimized graph of a model lacks: to fetch one, the runtime must not fuse its node.

    None of a model whose weights would take longer to write than a run takes.
    """
    # all initializers but sparse ones
    weights = filter(None, map(index.dense, index.initializers))
    if sum(byte_count(tensor.data_type, tensor.dims) for tensor in weights) > _QUICKLY_WRITTEN:
        return []
    with optimized_graph(index, runtime) as optimized:
        return [name for name in names if name not in optimized.producer]


def known_optimizers(index: GraphIndex, runtime: Runtime) -> list[str]:
    """Return the optimizers that the runtime tries on a model, and the rules that it applies without naming them."""
    with structure_file() as path:
        runtime.open(index.model, optimized=path)
    return sorted({*runtime.optimizers(only_changing=False), *RULES})


def _pass_through(original: GraphIndex, optimized: GraphIndex) -> None:
    """Restore each value that exists only in blocked layout: convert it out under its own name, and back in.

    Both conversions only move data, so results stay bitwise equal. The graph can then be cut at the value, and a
    reference can replace it.
    """
    blocked = {
        # output in blocked layout -> the value that it is
        node.output[0]: name
        for node in optimized.nodes
        if node.domain == _BLOCKED and node.name.endswith(_BLOCKED_SUFFIX)
        if (name := stands_for(original, node)) is not None and name not in optimized.producer
    }
    # the channels of a value are needed to convert it
    original.learn_types(blocked.values())
    graph = optimized.graph
    nodes = list(graph.node)
    restored = dict[str, str]()
    del graph.node[:]
    for node in nodes:
        for slot, name in enumerate(node.input):
            # readers read the value that was converted back in
            node.input[slot] = restored.get(name, name)
        graph.node.append(node)
        # a blocked value that has a name of the model
        token = node.output[0] if node.output else ""
        channels = _channels(original, blocked.get(token, ""))
        if channels:
            out = graph.node.add(op_type="ReorderOutput", input=[token], output=[blocked[token]])
            out.domain = _BLOCKED
            out.attribute.append(helper.make_attribute("channels", channels))
            restored[token] = f"{token}\x01again"
            back = graph.node.add(op_type="ReorderInput", input=[blocked[token]])
            back.domain = _BLOCKED
            back.output.append(restored[token])


def _channels(original: GraphIndex, name: str) -> int:
    """Return the channels of a feature map; 0 if unknown, or not a multiple of 4, as `ReorderInput` needs."""
    # without a type it cannot be converted
    kind = original.types.get(name)
    dims = list(kind.tensor_type.shape.dim) if kind is not None else []
    channels = int(dims[1].dim_value) if len(dims) == 4 else 0
    return channels if channels % 4 == 0 else 0


def stands_for(original: GraphIndex, node: NodeProto) -> str | None:
    """Return the original value that a blocked node computes: with a fourth input, the residual sum."""
    value: str | None = node.name.removesuffix(_BLOCKED_SUFFIX)
    if value not in original.producer:
        return None
    # a Conv adds its fourth input: it stands for the Add after the convolution, and for an activation after
    # that
    if node.op_type == "Conv" and operand(node, 3):
        value = _only_user(original, value, "Add")
        activation = next((a.s.decode() for a in node.attribute if a.name == "activation"), None)
        if activation is not None and value is not None:
            value = _only_user(original, value, activation)
    return value


def _only_user(original: GraphIndex, value: str, op_type: str) -> str | None:
    users = [original.nodes[p] for p in original.consumers.get(value, ())]
    if len(users) != 1 or users[0].op_type != op_type:
        return None
    return str(users[0].output[0])
