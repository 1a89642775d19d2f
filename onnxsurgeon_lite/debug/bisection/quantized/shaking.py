"""Shake what is quantized by up to half a quantum, to see what rounding makes of a part.

Source: random perturbation of operands, as in stochastic arithmetic (CADNA, Verrou).
"""

from dataclasses import replace

import numpy as np
from onnx import ModelProto, NodeProto, helper

from onnxsurgeon_lite.graph.index import GraphIndex, opset_versions
from onnxsurgeon_lite.graph.quantizers import DEQUANTIZE, DYNAMIC, Quantizers
from onnxsurgeon_lite.model import copied
from onnxsurgeon_lite.runtime.observe import original
from onnxsurgeon_lite.tensors.dtypes import Array, DType, from_array, numpy_dtype, type_of
from onnxsurgeon_lite.tensors.grid import Grid

_NOISE, _EXACT = "\x01noise", "\x01exact"
_NO_RANDOM = 22
"""From this opset on onnxruntime has no kernels of random numbers."""


def shaken(
    part: ModelProto, quantizers: Quantizers, runs: int, share: float = 1.0
) -> tuple[ModelProto, list[dict[str, Array]]]:
    """Return a part that adds noise to what it dequantizes, and the noise to feed it with in each run.

    The noise is up to half a quantum, or a share of that. Equal elements of a vector are rounded alike, so they get
    equal noise; a matrix is shaken element by element.
    """
    result = copied(part)
    made = result.graph.node
    del made[:]
    feeds: list[dict[str, Array]] = [{} for _ in range(runs)]
    # scales that DynamicQuantizeLinear computes: their quantum is known at run time only, so the noise reads them
    computed = {n.output[1] for n in part.graph.node if n.op_type == DYNAMIC and share == 1}
    for number, node in enumerate(part.graph.node):
        made.append(node)
        name = node.output[0]
        grid = _grid(quantizers, node, share)
        # not dequantized, or of unknown step: stays as it is
        if grid is None and not (node.op_type == DEQUANTIZE and node.input[1] in computed):
            continue
        # `name = DequantizeLinear(...)` becomes `exact = DequantizeLinear(...)`, `name = Add(exact, noise)`
        exact, noise = f"{name}{_EXACT}", f"{name}{_NOISE}"
        made[-1].output[0] = exact
        integers = None if grid is None else _vector(quantizers.index, node)
        # three sources of noise: drawn by the runtime with a computed step, with a constant step, or drawn here and fed
        if grid is None:
            made.extend(_drawn(result, exact, node.input[1], noise, number))
        elif integers is None:
            step = _step(result, quantizers.index, node, grid)
            made.extend(_drawn(result, exact, step, noise, number))
        else:
            dtype = _dtype(quantizers.index, node)
            for run, given in enumerate(feeds):
                given[noise] = _noise_of(integers, grid, number * runs + run).astype(dtype)
            result.graph.input.add(name=noise, type=type_of(feeds[0][noise]))
        made.append(helper.make_node("Add", [exact, noise], [name]))
    return result, feeds


def _grid(quantizers: Quantizers, node: NodeProto, share: float = 1.0) -> Grid | None:
    """Return the numbers that a node dequantizes to, with a share of their steps; None if they are not known."""
    found = quantizers.grids.get(original(node.output[0])) if node.op_type == DEQUANTIZE else None
    return None if found is None else replace(found, scale=found.scale * share)


def _vector(index: GraphIndex, node: NodeProto) -> Array | None:
    """Return the integers of a constant with at most one axis; None for anything else."""
    tensor = index.dense(node.input[0])
    if tensor is None or len(tensor.dims) > 1:
        return None
    return index.model.array(tensor)


def _noise_of(integers: Array, grid: Grid, seed: int) -> Array:
    # one draw for each distinct integer
    levels, which = np.unique(integers.astype(np.int64), return_inverse=True)
    drawn = np.random.default_rng(seed).uniform(-0.5, 0.5, levels.shape)
    return np.asarray(drawn[which].reshape(integers.shape) * grid.quantum(integers.shape))


def _drawn(part: ModelProto, exact: str, step: str, noise: str, seed: int) -> list[NodeProto]:
    """Return the nodes that draw noise for a value, as large as a step."""
    uniform = f"{noise}\x01uniform"
    drawn = noise_like(part, exact, uniform, (-0.5, 0.5), seed + 1)
    return drawn + [helper.make_node("Mul", [uniform, step], [noise])]


def noise_like(
    part: ModelProto, value: str, noise: str, bounds: tuple[float, float], seed: int
) -> list[NodeProto]:
    """Return the nodes that draw uniform noise of a value's shape and dtype, for a part of a model."""
    low, high = bounds
    if opset_versions(part.opset_import).get("", 0) < _NO_RANDOM:
        drawn = helper.make_node(
            "RandomUniformLike", [value], [noise], low=low, high=high, seed=float(seed)
        )
        return [drawn]
    # the mask of a Dropout chooses one of two numbers: of the same mean and variance
    middle, spread = (low + high) / 2, (high - low) / 12**0.5
    half, yes, unused, mask, less, more, chosen = (f"{noise}\x01{n}" for n in range(7))
    return [
        helper.make_node("Constant", [], [half], value_float=0.5),
        helper.make_node("Constant", [], [yes], value=from_array(np.array(True))),
        helper.make_node("Dropout", [value, half, yes], [unused, mask], seed=seed),
        helper.make_node("Constant", [], [less], value_float=middle - spread),
        helper.make_node("Constant", [], [more], value_float=middle + spread),
        helper.make_node("Where", [mask, more, less], [chosen]),
        helper.make_node("CastLike", [chosen, value], [noise]),
    ]


def shifted(part: ModelProto, quantizers: Quantizers, constants: bool) -> ModelProto:
    """Return a part whose zero points are one off: those of constants, or those of all else that is dequantized."""
    result = copied(part)
    made = result.graph.node
    del made[:]
    for node in part.graph.node:
        made.append(node)
        name = node.output[0]
        grid = _grid(quantizers, node)
        if grid is not None and (original(name) in quantizers.weights) is constants:
            made[-1].output[0] = f"{name}{_EXACT}"
            given = [f"{name}{_EXACT}", _step(result, quantizers.index, node, grid)]
            made.append(helper.make_node("Sub", given, [name]))
    return result


def _step(part: ModelProto, index: GraphIndex, node: NodeProto, grid: Grid) -> str:
    """Add the quantum of what a node dequantizes as a constant, and return its name."""
    made = node.output[0]
    kind, tensor = index.types.get(original(made)), index.dense(node.input[0])
    rank = len(kind.tensor_type.shape.dim) if kind is not None else 0
    # of an activation only the rank counts: the quantum broadcasts
    shape = tuple(tensor.dims if tensor is not None else [1] * rank)
    quantum = grid.quantum(shape or (1,)).astype(_dtype(index, node))
    name = f"{made}\x01step"
    part.graph.initializer.append(from_array(np.asarray(quantum), name))
    return name


def _dtype(index: GraphIndex, node: NodeProto) -> DType:
    tensor = index.dense(node.input[1])
    return numpy_dtype(tensor.data_type) if tensor is not None else np.dtype(np.float32)
